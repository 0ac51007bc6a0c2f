"""The scripts that tell a story, small: what they print, and that they draw."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from support import colours

EXAMPLES = Path(__file__).parents[2] / "scripts" / "examples"


def run(script: str, picture: Path, *options: str) -> str:
    """What a script prints."""
    command = [sys.executable, EXAMPLES / script, *options, "--output", picture]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with Image.open(picture) as image:
        assert image.size[0] >= 1000
    assert colours(picture) > 1000
    return done.stdout


@pytest.mark.slow
def test_a_policy_learns_to_reach(tmp_path: Path) -> None:
    small = ["--steps", "40000", "--seeds", "1", "--num-envs", "64", "--episodes", "16"]
    printed = run("train_reach.py", tmp_path / "reach.png", *small, "--control-hz", "100")
    medians = dict(re.findall(r"^(\w+) +reaches .* median +([\d.]+) mm$", printed, re.MULTILINE))
    assert float(medians["trained"]) < 0.8 * float(medians["untrained"])


@pytest.mark.slow
def test_the_filter_keeps_a_dragged_hand_clear(tmp_path: Path) -> None:
    printed = run("drag_hand.py", tmp_path / "drag.png", "--control-hz", "500")
    found = re.findall(r"^filter (\w+) +comes to +(-?[\d.]+) mm", printed, re.MULTILINE)
    least = {name: float(mm) for name, mm in found}
    assert least["off"] < -50
    assert least["on"] > 0
