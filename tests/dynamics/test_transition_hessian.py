"""Second derivatives of a step against automatic differentiation of the step itself."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support import with_slow

from fraxenv import dynamics
from fraxenv.dynamics import Robot
from fraxenv.dynamics.transition_hessian import transition_hessian

DT = 0.01


def resisting(robot: Robot) -> Robot:
    """With rotors, damping and friction, and stops that most joints touch."""
    n = robot.nv
    limits = np.where(np.isfinite(robot.position_limits), [-0.2, 0.2], robot.position_limits)
    return robot.replace(
        armature=np.linspace(0.0, 0.3, n), damping=np.linspace(0.1, 2.0, n),
        friction=np.linspace(0.0, 1.0, n), stop_stiffness=np.full(n, 50.0),
        stop_damping=np.full(n, 1.0), position_limits=limits,
    )  # fmt: skip


@pytest.mark.parametrize("rough", with_slow([False, True], False))
@pytest.mark.parametrize(
    "name", with_slow(["double_pendulum", "joints", "panda"], "joints", "panda")
)
def test_is_that_of_the_step(name: str, rough: bool, x64: None, joints_path: Path) -> None:
    path = joints_path if name == "joints" else None
    robot = dynamics.load_urdf(path) if path else dynamics.load_robot(name)
    robot = resisting(robot) if rough else robot
    n, draw = robot.nv, np.random.default_rng(0)
    q = jax.jit(dynamics.random_configuration)(robot, jax.random.key(1))
    v, tau = jnp.asarray(draw.normal(size=n)), jnp.asarray(3 * draw.normal(size=n))
    weight = jnp.asarray(draw.normal(size=2 * n))
    end, speed = jax.jit(dynamics.step)(robot, q, v, tau, DT)

    def weighted(z: Array) -> Array:
        start = dynamics.integrate(robot, q, z[:n], 1.0)
        q1, v1 = dynamics.step(robot, start, v + z[n : 2 * n], tau + z[2 * n :], DT)
        return weight[:n] @ dynamics.difference(robot, end, q1) + weight[n:] @ (v1 - speed)

    expected = jax.jit(jax.hessian(weighted))(jnp.zeros(3 * n))
    found = jax.jit(lambda: transition_hessian(robot, q, v, tau, DT, weight))()
    np.testing.assert_allclose(found, expected, atol=1e-11 * float(jnp.abs(expected).max()))
