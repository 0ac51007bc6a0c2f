"""The scripts that tell a story, small: what they print, and that they draw."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support import colours

EXAMPLES = Path(__file__).parents[2] / "scripts" / "examples"


def run(script: str, picture: Path, *options: str, shades: int = 1000) -> str:
    """What a script prints; its picture has more than so many colours, few if it is all lines."""
    command = [sys.executable, EXAMPLES / script, *options, "--output", picture]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with Image.open(picture) as image:
        assert image.size[0] >= 1000
    assert colours(picture) > shades
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


@pytest.mark.slow
def test_a_policy_learns_by_gradient(tmp_path: Path) -> None:
    small = ["--total-timesteps", "49152", "--folder", str(tmp_path / "runs")]
    printed = run("learn_by_gradient.py", tmp_path / "learn.png", *small, shades=100)
    found = re.search(r"^shac +49,152 steps, .* reaches +([\d.]+) %", printed, re.MULTILINE)
    assert found is not None
    assert float(found[1]) > 50


@pytest.mark.slow
def test_gains_are_tuned(tmp_path: Path) -> None:
    small = ["--iterations", "20", "--episodes", "8", "--steps", "100", "--control-hz", "100"]
    printed = run("tune_gains.py", tmp_path / "gains.png", *small)
    errors = dict(re.findall(r"^(\w+) +rms error +([\d.]+) mm", printed, re.MULTILINE))
    assert float(errors["after"]) < 0.8 * float(errors["before"])


@pytest.mark.slow
def test_a_robot_is_identified_from_a_recording(tmp_path: Path) -> None:
    small = ["--episodes", "4", "--seconds", "1", "--recording", str(tmp_path / "swings.npz")]
    noise = ["--position-noise", "0", "--velocity-noise", "0"]
    printed = run("identify_robot.py", tmp_path / "robot.png", *small, *noise, shades=100)
    rows = re.findall(r"^\w.*? +(-?[\d.]+) +(-?[\d.]+) +([\d.]+) +(-?[\d.]+)$", printed, re.M)
    assert len(rows) == 18
    first, found, _, true = np.array(rows, float).T
    assert (np.abs(found - true) <= 0.02 * np.abs(first - true) + 2e-3).all()


@pytest.mark.slow
def test_a_motion_is_corrected_through_the_filter(tmp_path: Path) -> None:
    small = ["--iterations", "30", "--beginnings", "8"]
    printed = run("plan_through_filter.py", tmp_path / "plan.png", *small)
    ends = dict(re.findall(r"^(\w+) +ends +([\d.]+) mm", printed, re.MULTILINE))
    assert float(ends["corrected"]) < 0.6 * float(ends["straight"])
