"""docs/kernels.md: its blocks run, its table is what the tests hold, its commands exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "kernels.md").read_text("utf-8")


def test_python_blocks_run(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL):
        exec(compile(block, "docs/kernels.md", "exec"), namespace)
    assert namespace["qdd"].shape == (4096, 7)
    printed = capsys.readouterr().out
    assert printed.startswith("acceleration: executor 'native'")
    assert "outside the kernel   nothing" in printed


def test_table_is_what_is_tested() -> None:
    script = (ROOT / "scripts" / "kernel_accuracy.py").read_text("utf-8")
    bounds = dict(re.findall(r'"(\w+)": Function\(.*?, ([\d.]+)[,)]', script))
    table = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", TEXT, flags=re.MULTILINE))
    assert table.keys() == bounds.keys()
    for name, worst in table.items():
        assert float(worst) <= float(bounds[name]), name
    for path in re.findall(r"(?:scripts|tests)/[\w./]+\.py", TEXT):
        assert (ROOT / path).exists(), path
