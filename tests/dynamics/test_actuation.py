"""Delay, torque rates, and limits of effort and speed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv import dynamics
from fraxenv.dynamics import Robot

pytestmark = pytest.mark.usefixtures("x64")


@pytest.fixture
def robot(panda: Robot) -> Robot:
    return panda.replace(effort_rate_limits=np.full(7, np.inf), velocity_limits=np.full(7, np.inf))


def test_without_limits_in_the_way_the_command_is_applied(robot: Robot) -> None:
    tau = jnp.arange(7.0)
    state = dynamics.actuator_state(robot, jnp.zeros(7))
    applied, state = dynamics.actuate(robot, tau, jnp.zeros(7), state, 1e-3)
    np.testing.assert_array_equal(applied, tau)
    np.testing.assert_array_equal(state.tau, tau)


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_commands_arrive_after_the_delay(robot: Robot, delay: int) -> None:
    state = dynamics.actuator_state(robot, jnp.full(7, -1.0), longest_delay=3)
    arrived = []
    for k in range(8):
        tau, state = dynamics.actuate(robot, jnp.full(7, k), jnp.zeros(7), state, 1e-3, delay)
        arrived.append(float(tau[0]))
    assert arrived == [-1.0] * delay + list(range(8 - delay))


def test_a_batch_may_have_a_delay_each(robot: Robot) -> None:
    state = dynamics.actuator_state(robot, jnp.zeros(7), longest_delay=2)

    def applied(delay: jax.Array) -> jax.Array:
        first, after = dynamics.actuate(robot, jnp.ones(7), jnp.zeros(7), state, 1e-3, delay)
        second, _ = dynamics.actuate(robot, jnp.full(7, 2.0), jnp.zeros(7), after, 1e-3, delay)
        return jnp.stack([first[0], second[0]])

    result = jax.vmap(applied)(jnp.arange(3))
    assert result.tolist() == [[1.0, 2.0], [0.0, 1.0], [0.0, 0.0]]


def test_torque_changes_no_faster_than_its_rate_limit(panda: Robot) -> None:
    slow = panda.replace(velocity_limits=np.full(7, np.inf))
    state = dynamics.actuator_state(slow, jnp.zeros(7))
    for k in range(1, 4):
        tau, state = dynamics.actuate(slow, jnp.full(7, 10.0), jnp.zeros(7), state, 1e-3)
        np.testing.assert_allclose(tau, k * 1e-3 * panda.effort_rate_limits)


def test_effort_limits_always_hold(robot: Robot) -> None:
    state = dynamics.actuator_state(robot, jnp.zeros(7))
    tau, _ = dynamics.actuate(robot, jnp.full(7, 1e6), jnp.zeros(7), state, 1e-3)
    np.testing.assert_array_equal(tau, robot.effort_limits)
    tau, _ = dynamics.actuate(robot, jnp.full(7, -np.inf), jnp.zeros(7), state, 1e-3)
    np.testing.assert_array_equal(tau, -robot.effort_limits)


def test_motors_do_not_speed_up_beyond_the_velocity_limit(panda: Robot) -> None:
    limit = np.asarray(panda.velocity_limits)
    lower, upper = dynamics.effort_bounds(panda, 1.03 * limit)
    assert not upper.any()
    np.testing.assert_array_equal(lower, -panda.effort_limits)  # but they may brake
    lower, upper = dynamics.effort_bounds(panda, -1.01 * limit)
    np.testing.assert_allclose(lower, -0.5 * panda.effort_limits, rtol=1e-4)
    np.testing.assert_array_equal(upper, panda.effort_limits)
    np.testing.assert_allclose(
        dynamics.effort_bounds(panda, limit)[1], panda.effort_limits, rtol=1e-5
    )


def test_a_torque_held_for_long_ends_at_the_velocity_limit(panda: Robot) -> None:
    """The first joint, pushed by 5 % of its effort limit, with the others held still."""
    q = jnp.asarray(panda.q_default)
    tau = jnp.zeros_like(q).at[0].set(0.05 * panda.effort_limits[0])
    free = panda.replace(
        gravity=np.zeros(3),
        effort_rate_limits=np.full(7, np.inf),
        damping=np.where(np.arange(7) == 0, 0.0, 1e6),
    )

    def step(carry: tuple, _: None) -> tuple:
        q, v, state = carry
        applied, state = dynamics.actuate(free, tau, v, state, 1e-3)
        q, v = dynamics.step(free, q, v, applied, 1e-3)
        return (q, v, state), v[0]

    start = (q, jnp.zeros_like(q), dynamics.actuator_state(free, tau))
    _, speed = jax.jit(lambda c: jax.lax.scan(step, c, None, 1000))(start)
    limit = panda.velocity_limits[0]
    assert limit <= speed.max() <= 1.025 * limit  # the others give way a little


def test_unlimited_effort_with_limited_speed_stays_finite(panda: Robot) -> None:
    endless = panda.replace(effort_limits=np.full(7, np.inf))
    for factor in (0.0, 1.01, 2.0):
        lower, upper = dynamics.effort_bounds(endless, factor * np.asarray(panda.velocity_limits))
        assert not np.isnan(lower).any()
        assert not np.isnan(upper).any()
