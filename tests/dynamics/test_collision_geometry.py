"""Where a robot's collision shapes are, and how fast they move."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv import dynamics
from fraxenv.dynamics.body_motion import body_twists

QUICK = {"xla_backend_optimization_level": 0}  # to compile

INERTIAL = (
    '<inertial><mass value="1"/>'
    '<inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>'
)


@pytest.mark.parametrize("floating", [False, True])
def test_rates_of_a_robots_shapes(
    x64: None, arm_path: Path, tmp_path: Path, floating: bool
) -> None:
    path = tmp_path / "arm.urdf"
    urdf = arm_path.read_text("utf-8")
    path.write_text(urdf.replace('<link name="base">', f'<link name="base">{INERTIAL}'))
    robot = dynamics.load_urdf(path, floating_base=floating)
    assert robot.topology.travels == floating
    v = np.random.default_rng(8).normal(size=robot.nv)
    q = dynamics.integrate(robot, dynamics.neutral(robot), 0.3 * v, 1.0)

    def geometry(t: jax.Array) -> dynamics.RobotGeometry:
        return dynamics.robot_geometry(robot, dynamics.integrate(robot, q, t * v, 1.0))

    @partial(jax.jit, compiler_options=QUICK)
    def both(t: jax.Array) -> tuple[dynamics.RobotGeometry, dynamics.RobotGeometry]:
        here, moved = jax.jvp(geometry, (t,), (jnp.ones(()),))
        kin = dynamics.compute_kinematics(robot, q)
        twists = body_twists(robot, kin, jnp.asarray(v))
        return dynamics.robot_geometry_rate(robot, here, kin, twists), moved

    ours, theirs = both(jnp.zeros(()))
    assert all(x.size for x in jax.tree.leaves(ours))
    chex.assert_trees_all_close(ours, theirs, rtol=1e-7, atol=1e-12)
