"""A limit of force: what it demands of a tool on a plane, and that it is kept."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support import load_script

import fraxenv
from fraxenv import dynamics
from fraxenv.controllers import SafetyFilter, barriers
from fraxenv.controllers.safety.barriers import situation
from fraxenv.controllers.safety.conditions import barrier_conditions

LIMIT, SHARE, RATE, APPROACH = 40.0, 0.5, 80.0, 4.0


ROBOT = dynamics.load_robot("panda")
Q = jnp.asarray(ROBOT.q_default, jnp.float32)


@partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
def conditions(v: Array, a: Array, above: Array) -> Array:
    plane = dynamics.Obstacles(half_spaces=dynamics.HalfSpace(jnp.eye(3)[2:], jnp.zeros(1)))
    lowest = dynamics.obstacle_distances(ROBOT, Q, plane, shapes=("hand_5",))[0, 0]
    barrier = barriers.contact_force(
        "hand", LIMIT, ("hand_5",), offset=lowest - above, rate=RATE, approach=APPROACH, share=SHARE
    )
    # Without the acceleration that the motion itself has.
    bias = dynamics.frame_bias_acceleration(ROBOT, Q, v, "hand")
    J = dynamics.frame_jacobian(ROBOT, Q, "hand")
    a = a - J.T @ jnp.linalg.solve(J @ J.T, bias)
    here = situation(ROBOT, dynamics.compute_terms(ROBOT, Q, v))
    return -barrier_conditions(ROBOT, (barrier,), here, a).b


@jax.jit
def known() -> tuple[Array, Array]:
    return dynamics.frame_jacobian(ROBOT, Q, "hand"), dynamics.crba(ROBOT, Q)


def demanded(push: float, speed: float, above: float) -> tuple[np.ndarray, np.ndarray]:
    """What both rows have left (2,), m/s^2, and the masses (2,), kg, of a Panda that pushes down.

    With a force on the hand, N, a speed downwards, m/s, and the tool's shape at a height, m.
    """
    J, M = (np.asarray(x, float) for x in known())
    inverse = np.linalg.inv(M)
    compliance = J @ inverse @ J.T
    v = inverse @ J.T @ np.linalg.solve(compliance, [0, 0, -speed, 0, 0, 0])
    a = inverse @ J.T @ [0, 0, -push, 0, 0, 0]
    turning = np.linalg.inv(compliance[2:, 2:])
    left = conditions(*(jnp.asarray(x, jnp.float32) for x in (v, a, above)))
    return np.asarray(left), np.array([1 / compliance[2, 2], turning[0, 0]])


def test_a_push_counts_as_it_is_however_the_tool_touches() -> None:
    left, mass = demanded(push=15.0, speed=0.0, above=-0.01)
    np.testing.assert_allclose(mass * left, SHARE * LIMIT - 15.0, rtol=2e-3)
    assert mass[1] > 1.05 * mass[0]
    # And at a speed, what stops the tool by a damping of this rate.
    left, mass = demanded(push=15.0, speed=0.02, above=-0.01)
    np.testing.assert_allclose(mass * left, SHARE * LIMIT - 15.0 - RATE * mass * 0.02, rtol=2e-3)


def test_far_from_the_plane_it_may_be_faster() -> None:
    left, mass = demanded(push=0.0, speed=0.2, above=0.1)
    expected = SHARE * LIMIT - mass * (RATE * (0.2 - APPROACH * 0.1) + APPROACH * 0.2)
    np.testing.assert_allclose(mass * left, expected, rtol=2e-3)


def test_planes_of_an_environment_may_be_tuples() -> None:
    """A vector and a number of one barrier are two leaves; and a plane may be for some shapes."""
    plane = barriers.half_space((0.0, 0.0, 1.0), 0.1, shapes=("hand_5", "hand_1"))
    safety = SafetyFilter((plane, barriers.contact_force("hand", 50.0, ("hand_5",))))
    env, params = fraxenv.make("PandaReach-v0", safety=safety)
    normal, offset = params.safety.barriers[0].parameters
    assert normal.shape == (3,)
    assert offset.shape == ()
    assert len(params.safety.row_names(env.robot)) == 4


@pytest.mark.slow
def test_a_hand_that_presses_too_hard() -> None:
    """Every physics step's force; and without the barrier, the same policy's."""
    script = load_script("measure/press_hard")
    options = script.Options(envs=128)
    free = script.press(None, 0.05, options)["force"]
    assert free.max() > 120.0
    for limit in (60.0, 30.0):
        kept = script.press(limit, 0.05, options)
        assert 0.3 * limit < kept["force"].max() < limit
        assert kept["infeasible"] == 0.0
