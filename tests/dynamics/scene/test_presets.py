"""Presets of contact parameters, as MuJoCo moves what they make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fraxenv import dynamics
from fraxenv.dynamics import Scene
from fraxenv.errors import ConfigError

mujoco = pytest.importorskip("mujoco")


def slope(cone: str = "elliptic") -> Scene:
    """A cube on a slope of 20 degrees, which it is too rough to slide down."""
    g = 9.81 * np.array([np.sin(np.radians(20)), 0, -np.cos(np.radians(20))])
    return dynamics.load_mjcf(
        f"""<mujoco><option timestep=".002" cone="{cone}" gravity="{g[0]} {g[1]} {g[2]}"/>
        <worldbody><geom type="plane" size="1 1 .1"/>
        <body pos="0 0 .02"><freejoint/><geom type="box" size=".02 .02 .02" mass="1"/></body>
        </worldbody></mujoco>"""
    )


def creep(scene: Scene) -> float:
    """Speed down the slope, m/s, once all has settled."""
    model: Any = scene.to_mujoco()
    model.opt.tolerance = 0
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, 500)
    before = data.qpos[0]
    mujoco.mj_step(model, data, 500)
    return float(data.qpos[0] - before) / 1.0


def test_grip_stops_creeping() -> None:
    scene = slope()
    assert creep(scene) > 5e-4
    assert abs(creep(dynamics.grip(scene))) < 1e-6
    assert abs(creep(dynamics.grip(scene, impratio=10))) < 1e-5


def test_grip_asks_for_elliptic_cones_and_a_ratio() -> None:
    with pytest.raises(ConfigError, match="cones are pyramidal, expected elliptic"):
        dynamics.grip(slope("pyramidal"))
    with pytest.raises(ConfigError, match=r"impratio=0\.0, expected a positive number"):
        dynamics.grip(slope(), impratio=0.0)
