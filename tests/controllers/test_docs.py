"""docs/controllers.md: its block runs, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import fraxenv.controllers

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "controllers.md").read_text("utf-8")


def test_python_blocks_run() -> None:
    namespace: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL):
        exec(compile(block, "docs/controllers.md", "exec"), namespace)
    assert namespace["q"].shape == (7,)
    assert bool(namespace["telemetry"]["target_finite"])


def test_what_is_named_exists() -> None:
    table = re.findall(r"^\| `(\w+)` \| (?:`(\w+)`|\w+ \(nv,\)) \|", TEXT, flags=re.MULTILINE)
    assert len(table) == 5
    for name in {n for row in table for n in row if n}:
        assert hasattr(fraxenv.controllers, name), name
    for path in re.findall(r"scripts/\w+\.py", TEXT):
        assert (ROOT / path).exists(), path
