"""docs/controllers.md and docs/safety.md: what they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import fraxenv.controllers
from fraxenv.controllers.safety import barriers
from fraxenv.controllers.safety.filter import no_safety_report

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "controllers.md").read_text("utf-8")
SAFETY = (ROOT / "docs" / "safety.md").read_text("utf-8")


def test_what_is_named_exists() -> None:
    table = re.findall(r"^\| `(\w+)` \| (?:`(\w+)`|\w+ \(nv,\)) \|", TEXT, flags=re.MULTILINE)
    assert len(table) == 5
    for name in {n for row in table for n in row if n}:
        assert hasattr(fraxenv.controllers, name), name
    for path in re.findall(r"scripts/\w+/\w+\.py", TEXT):
        assert (ROOT / path).exists(), path


def test_what_safety_names_exists() -> None:
    table = re.findall(r"^\| `(\w+)\(.*?\)` \|", SAFETY, flags=re.MULTILINE)
    assert len(table) == 9
    for name in table:
        assert hasattr(barriers, name), name
    report = re.search(r"\| key \| meaning \|\n(.*?)\n\n", SAFETY, flags=re.DOTALL)
    assert report is not None
    first = [line.split("|")[1] for line in report[1].splitlines()[1:]]
    keys = {name for cell in first for name in re.findall(r"`(\w+)`", cell)}
    assert keys == set(no_safety_report(np.dtype(np.float32)))
    for path in re.findall(r"scripts/\w+/\w+\.py", SAFETY):
        assert (ROOT / path).exists(), path
