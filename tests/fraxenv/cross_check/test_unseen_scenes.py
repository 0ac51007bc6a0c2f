"""Scenes that nobody looked at while contact was written: they agree, or are refused by name.

They are in the style of those that people have: classes of defaults, meshes that only show, servos,
coupled fingers, loops. Whoever mends something by one of them writes another.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fraxenv import dynamics
from fraxenv.cli import main
from fraxenv.cli.cross_check import WITHIN

pytest.importorskip("mujoco")

UNSEEN = Path(__file__).parents[2] / "models" / "unseen"

MODELLED = (
    "arm_with_linkage_gripper",
    "ball_joint_humanoid",
    "biped_with_loops",
    "capsule_dog",
    "finger_hand",
    "kitchen",
    "swinging_chain",
    "tilting_maze",
    "two_arms_with_pairs",
    "wheeled_lift",
)
REFUSED = {
    "tendon_gripper": "actuator 'fingers': transmissions of the kind 'tendon'.*joint=",
    "quadrotor": "<option density='1.225'>: forces of a fluid.*Set it to 0",
    "muscle_leg": "actuator 'quadriceps': dyntype='muscle'.*Use 'none'",
    "cylinder_calf_dog": "geoms 'FL_calf1' and 'trunk', a cylinder and a box.*contype",
}


def test_all_are_declared() -> None:
    names = {*MODELLED, *(f"refused_{name}" for name in REFUSED)}
    assert names == {path.stem for path in UNSEEN.glob("*.xml")}


@pytest.mark.parametrize("name", MODELLED)
def test_loads(name: str) -> None:
    assert dynamics.load_mjcf(UNSEEN / f"{name}.xml").constraints.layout.pairs


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises(dynamics.SceneLoadError, match=f"(?s){REFUSED[name]}"):
        dynamics.load_mjcf(UNSEEN / f"refused_{name}.xml")


LYING = pytest.mark.xfail(
    reason="MuJoCo's distances of a cylinder that stands on a plane, tilted by t, are off by "
    "1e-16 / t of its radius; ours are right to 1e-15 m"
)
"""`test_a_cylinder_s_distances_are_exact_where_mujoco_s_are_rounding` shows it."""
BEYOND = ("tilting_maze", "wheeled_lift")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=LYING if n in BEYOND else ()) for n in MODELLED]
)
def test_agrees(name: str, tmp_path: Path) -> None:
    options = ("--states", "1000", "--seconds", "1", "--output", str(tmp_path / "scene.png"))
    assert main(["cross-check", str(UNSEEN / f"{name}.xml"), *options]) == WITHIN
