"""The scripts about the safety filter, small: what they compute, not how long it takes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import jax
import numpy as np
import pytest
from PIL import Image
from support import colours, load_script

from fraxenv.dynamics import frame_pose, load_robot

EXAMPLES = Path(__file__).parents[2] / "scripts" / "examples"


@pytest.mark.slow
def test_the_ball_is_avoided(tmp_path: Path) -> None:
    picture = tmp_path / "avoid.png"
    command = [sys.executable, EXAMPLES / "avoid_obstacle.py", "--output", picture]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    distances = re.findall(r"filter (\w+) +ball comes to +(-?[\d.]+) mm", done.stdout)
    found = {name: float(mm) for name, mm in distances}
    assert found["off"] < -20
    assert found["on"] > 0
    with Image.open(picture) as image:
        assert image.size[0] >= 1500
    assert colours(picture) > 1000


@pytest.mark.slow
def test_programs_are_solved(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("quadprog")
    script = load_script("measure/compare_qp")
    script.main(script.Options(states=300, chunk=300))
    text = capsys.readouterr().out
    assert "torque beyond its limit, worst of all: 0.0e+00 N m" in text
    residuals = [float(x) for x in re.findall(r"worst KKT (\S+),", text)]
    assert len(residuals) == len(script.KINDS)
    assert max(residuals) <= 1e-4


@pytest.mark.slow
def test_violations_are_counted() -> None:
    script = load_script("measure/validate_safety")
    options = script.Options(control_steps=1, envs=64)
    found = {
        name: script.count(name, script.ROWS[name], options)
        for name in ("on, target runs ahead", "off, target runs ahead")
    }
    assert found["on, target runs ahead"]["beyond the margin"] == 0
    assert found["off, target runs ahead"]["violations"] > 0
    assert all(f["torques"] == f["not finite"] == 0 for f in found.values())
    assert script.far_from_everything(500, seed=0) <= 1e-5


def load_avoidable() -> ModuleType:
    """With the script beside it that it imports."""
    load_script("measure/unknown_robot")
    return load_script("measure/avoidable")


@pytest.mark.slow
def test_a_way_out_is_found_where_there_is_one() -> None:
    """Of a sphere that comes slowly, and not of one that comes at 40 m/s."""
    script = load_avoidable()
    robot = load_robot("panda")
    q = np.asarray(robot.q_default, np.float32)
    hand = np.asarray(frame_pose(robot, q, "hand")[0])
    steps = np.arange(26)[:, None, None]
    far = np.tile(np.array([[5.0, 5.0, 5.0]]), (26, 1, 1))
    paths = [
        np.concatenate([hand + [0.4, 0.0, 0.0] + steps * [-v / 50, 0.0, 0.0], far], axis=1)
        for v in (1.0, 40.0)
    ]
    many = jax.tree.map(lambda x: np.broadcast_to(x, (2, *np.shape(x))), robot)
    radius = np.full((2, 2), 0.1, np.float32)
    at_rest = np.stack([q, q]), np.zeros((2, robot.nv), np.float32)
    case = script.Case(many, *at_rest, np.array(paths, np.float32), radius)
    found = script.planner(50)(case, script.SWINGS)
    assert np.asarray(found).any(axis=1).tolist() == [True, False]


def test_steps_are_judged_once_an_episode() -> None:
    script = load_avoidable()
    happened = np.zeros((4, 100), bool)
    happened[0, [50, 51]] = happened[1, 3] = happened[2, 99] = True
    assert script.first_steps(happened, back=10, ahead=20) == [(0, 50)]
