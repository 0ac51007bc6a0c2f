"""Robots of prismatic joints alone: no joint turns the hand, so half of its pose has no rows."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import rollout

from fraxenv import dynamics
from fraxenv.controllers import OSC, DifferentialIK, PoseTarget
from fraxenv.controllers.differential_ik import differential_ik
from fraxenv.dynamics import Robot

LINK = """<link name="{0}"><inertial><mass value="1"/>
<inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="j{0}" type="prismatic"><parent link="{1}"/><child link="{0}"/><axis xyz="{2}"/>
<limit lower="-1" upper="1" effort="100" velocity="2"/></joint>"""


def gantry(folder: Path) -> Robot:
    """Two prismatic joints."""
    links = LINK.format("x", "base", "1 0 0") + LINK.format("y", "x", "0 1 0")
    path = folder / "gantry.urdf"
    path.write_text(f'<robot name="gantry"><link name="base"/>{links}</robot>')
    return dynamics.load_urdf(path, end_effectors={"hand": "y"})


def test_osc_moves_a_hand_that_cannot_turn(tmp_path: Path) -> None:
    robot = gantry(tmp_path)
    goal = jnp.array([0.1, -0.05, 0.0])
    target = PoseTarget(goal, jnp.eye(3))
    q, v, tau, _ = jax.jit(lambda: rollout(robot, OSC("hand"), target, 3.0))()
    assert np.isfinite(np.asarray(tau)).all()
    np.testing.assert_allclose(q[-1], goal[:2], atol=1e-3)
    np.testing.assert_allclose(v[-1], 0, atol=1e-3)


@pytest.mark.slow
def test_differential_ik_moves_a_hand_that_cannot_turn(tmp_path: Path) -> None:
    robot = gantry(tmp_path)
    ik = DifferentialIK("hand", posture="none")
    target = PoseTarget(jnp.array([0.1, -0.05, 0.0]), jnp.eye(3))
    q = jnp.zeros(2)
    for _ in range(100):
        terms = dynamics.compute_terms(robot, q, jnp.zeros(2))
        q = q + 0.02 * differential_ik(ik, robot, terms, target)[0]
    np.testing.assert_allclose(q, [0.1, -0.05], atol=1e-3)
