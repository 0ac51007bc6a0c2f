"""docs/kernels.md: its table is what the tests hold, and its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "kernels.md").read_text("utf-8")


def test_table_is_what_is_tested() -> None:
    script = (ROOT / "scripts" / "measure" / "kernel_accuracy.py").read_text("utf-8")
    bounds = dict(re.findall(r'"(\w+)": Function\(.*?, ([\d.]+)[,)]', script))
    table = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", TEXT, flags=re.MULTILINE))
    assert table.keys() == bounds.keys()
    for name, worst in table.items():
        assert float(worst) <= float(bounds[name]), name
    for path in re.findall(r"(?:scripts|tests)/[\w./]+\.py", TEXT):
        assert (ROOT / path).exists(), path
