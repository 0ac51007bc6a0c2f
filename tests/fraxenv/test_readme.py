"""Every Python block of the README runs, in order, as a newcomer would type them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[2] / "README.md"


def test_python_blocks_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 4
    namespace: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block.replace("1024", "16"), str(README), "exec"), namespace)
    assert namespace["position"].shape == (3,)
    assert "dx -0.02 0.02 m" in capsys.readouterr().out


def test_commands_and_files_exist() -> None:
    text = README.read_text("utf-8")
    for path in re.findall(r"(?:bash |\]\()((?:scripts|docs)/[\w./]+|[A-Z]+\.md)", text):
        assert (README.parent / path).exists(), path
