"""Limits of effort, of its rate and of speed; gain and delay."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import dtype_with_slow

from fraxenv import dynamics
from fraxenv.dynamics import Actuators, ActuatorState, Robot
from fraxenv.dynamics.actuation import SPEED_MARGIN, felt_velocity
from fraxenv.errors import ArrayError, ConfigError
from fraxenv.kernels import explain, fuse

pytestmark = pytest.mark.usefixtures("x64")

DT = 1e-3
STILL = np.zeros(7)
LARGE = 1e4  # N m, more than any motor has
OWN_EFFORT = np.array([40.0, 400.0, 8.0, 35.0, 4.0, 30.0, 3.0])
OWN_RATE = np.array([500.0, 400.0, 300.0, 200.0, 100.0, 50.0, 2000.0])


@pytest.fixture
def robot(panda: Robot) -> Robot:
    """Without a limit of speed."""
    return panda.replace(velocity_limits=np.full(7, np.inf))


@jax.jit
def run(robot: Robot, actuators: Actuators, commands: Any, v: Any = STILL, before: Any = 0) -> Any:
    """Torques applied and commands that count, (steps, nv), for those asked for (steps, nv)."""
    state = actuators.init(robot, jnp.broadcast_to(jnp.asarray(before, float), robot.nv), DT)

    def step(state: ActuatorState, tau: Any) -> Any:
        applied, command, state = actuators(robot, tau, v, state, DT)
        return state, (applied, command)

    return jax.lax.scan(step, state, jnp.asarray(commands, float))[1]


def count(n: int) -> Any:
    """The torques 0, 1, ... (n, 7) of all joints."""
    return jnp.tile(jnp.arange(float(n))[:, None], (1, 7))


# --- Limits ---------------------------------------------------------------------------------------


def test_without_limits_in_the_way_the_torque_is_applied(robot: Robot) -> None:
    tau = jnp.arange(7.0)[None]
    for actuators in (Actuators(), Actuators(effort_limit=50.0, rate_limit=np.inf)):
        applied, command = run(robot, actuators, tau, before=tau[0])
        np.testing.assert_array_equal(applied, tau)
        np.testing.assert_array_equal(command, tau)


def test_motors_remember_only_what_they_need(robot: Robot) -> None:
    assert Actuators(effort_limit=3.0, gain=2.0).init(robot, STILL, DT) == ActuatorState()
    limited = Actuators(rate_limit=1.0).init(robot, STILL, DT)
    assert limited.command is not None
    assert limited.delayed is None
    late = Actuators(delay=0.0, steps=0).init(robot, STILL, DT)
    assert late.command is None
    assert late.delayed is not None


def test_effort_limits_always_hold(robot: Robot) -> None:
    for sign in (1.0, -1.0):
        for size in (LARGE, np.inf):
            applied, command = run(robot, Actuators(), np.full((1, 7), sign * size))
            np.testing.assert_array_equal(applied[0], sign * robot.effort_limits)
            np.testing.assert_array_equal(command, applied)
            applied, _ = run(robot, Actuators(OWN_EFFORT), np.full((1, 7), sign * size))
            expected = sign * np.minimum(OWN_EFFORT, robot.effort_limits)
            np.testing.assert_array_equal(applied[0], expected)


def test_a_floating_joint_has_no_motor() -> None:
    g1 = dynamics.load_robot("g1")
    still = jnp.zeros(g1.nv)
    applied, _ = run(g1, Actuators(effort_limit=1e3), np.full((1, g1.nv), LARGE), still)
    assert not applied[0, :6].any()
    assert (applied[0, 6:] > 0).all()


def test_a_rate_limit_of_ones_own_or_the_robots_whichever_is_less(robot: Robot) -> None:
    for own in (np.inf, 100.0, OWN_RATE):
        rate = np.minimum(own, robot.effort_rate_limits)
        for sign in (1.0, -1.0):
            commands = np.full((5, 7), sign * LARGE)
            applied, command = run(robot, Actuators(rate_limit=own), commands, before=-2.0 * sign)
            expected = sign * (-2.0 + DT * rate * np.arange(1, 6)[:, None])
            np.testing.assert_allclose(applied, expected, rtol=1e-12, atol=1e-12)
            np.testing.assert_array_equal(command, applied)


def test_without_a_rate_limit_torque_may_jump(robot: Robot) -> None:
    """Also where the robot has one: it holds with a limit of one's own, infinity for example."""
    assert np.isfinite(robot.effort_rate_limits).all()
    applied, _ = run(robot, Actuators(), np.full((1, 7), LARGE), before=-2.0)
    np.testing.assert_array_equal(applied[0], robot.effort_limits)


def test_effort_and_rate_hold_together(robot: Robot) -> None:
    rng = np.random.default_rng(0)
    commands = rng.uniform(-100.0, 100.0, (300, 7)) * np.sin(np.arange(300) / 40)[:, None]
    applied, _ = run(robot, Actuators(OWN_EFFORT, OWN_RATE), commands)
    rate, effort = (
        np.minimum(own, limit)
        for own, limit in ((OWN_RATE, robot.effort_rate_limits), (OWN_EFFORT, robot.effort_limits))
    )
    change = np.abs(np.diff(applied, axis=0))
    assert (change <= rate * DT * (1 + 1e-9)).all()
    assert (change.max(axis=0) > 0.999 * rate * DT).all()
    assert (np.abs(applied) <= effort).all()
    assert (np.abs(applied).max(axis=0) == effort).any()


def test_the_range_is_what_would_be_obeyed(panda: Robot) -> None:
    """A torque within it counts as it is, and one beyond it as the end of it."""
    rng = np.random.default_rng(1)
    for actuators in (Actuators(), Actuators(effort_limit=20.0), Actuators(OWN_EFFORT, OWN_RATE)):
        state = actuators.init(panda, rng.normal(size=7), DT)
        for _ in range(20):
            v = rng.uniform(-1.03, 1.03, 7) * np.asarray(panda.velocity_limits)
            lower, upper = actuators.range(panda, v, state, DT)
            assert (lower <= upper).all()
            within = lower + rng.uniform(0, 1, 7) * (upper - lower)
            np.testing.assert_array_equal(actuators(panda, within, v, state, DT)[1], within)
            for end, beyond in ((lower, -1.0), (upper, 1.0)):
                command = actuators(panda, end + beyond, v, state, DT)[1]
                np.testing.assert_array_equal(command, end)
            _, _, state = actuators(panda, rng.normal(size=7) * 50, v, state, DT)


def test_a_torque_that_is_not_a_number_is_not_hidden(robot: Robot) -> None:
    applied, _ = run(robot, Actuators(), np.full((1, 7), np.nan))
    assert np.isnan(applied).all()


# --- Speed ----------------------------------------------------------------------------------------


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
    applied, command = run(panda, Actuators(), np.full((1, 7), LARGE), 1.01 * limit)
    np.testing.assert_allclose(applied[0], 0.5 * panda.effort_limits, rtol=1e-4)
    np.testing.assert_array_equal(command, applied)


def test_the_limit_of_speed_comes_before_that_of_the_rate(panda: Robot) -> None:
    """A motor that pushes lets go at once when the joint is too fast, and then brakes slowly."""
    actuators = Actuators(rate_limit=100.0)
    state = actuators.init(panda, jnp.full(7, 10.0), DT)
    fast = 1.03 * np.asarray(panda.velocity_limits)
    lower, upper = actuators.range(panda, fast, state, DT)
    np.testing.assert_allclose(lower, -0.1, rtol=1e-12)
    np.testing.assert_array_equal(upper, 0.0)
    applied, command, state = actuators(panda, jnp.full(7, 10.0), fast, state, DT)
    assert not applied.any()
    # It counts from what was commanded, not from what was asked for.
    np.testing.assert_array_equal(state.command, command)
    applied, _, _ = actuators(panda, jnp.full(7, 10.0), STILL, state, DT)
    np.testing.assert_allclose(applied, 0.1, rtol=1e-12)


def test_a_torque_held_for_long_ends_at_the_velocity_limit(panda: Robot) -> None:
    """The first joint, pushed by 5 % of its effort limit, with the others held still."""
    q = jnp.asarray(panda.q_default)
    tau = jnp.zeros_like(q).at[0].set(0.05 * panda.effort_limits[0])
    free = panda.replace(gravity=np.zeros(3), damping=np.where(np.arange(7) == 0, 0.0, 1e6))
    motors = Actuators()

    def step(carry: tuple, _: None) -> tuple:
        q, v, state = carry
        applied, _, state = motors(free, tau, v, state, DT)
        q, v = dynamics.step(free, q, v, applied, DT)
        return (q, v, state), v[0]

    start = (q, jnp.zeros_like(q), motors.init(free, tau, DT))
    _, speed = jax.jit(lambda c: jax.lax.scan(step, c, None, 1000))(start)
    limit = panda.velocity_limits[0]
    assert limit <= speed.max() <= 1.025 * limit  # the others give way a little


def test_unlimited_effort_with_limited_speed_stays_finite(panda: Robot) -> None:
    endless = panda.replace(effort_limits=np.full(7, np.inf))
    for factor in (0.0, 1.01, 2.0):
        lower, upper = dynamics.effort_bounds(endless, factor * np.asarray(panda.velocity_limits))
        assert not np.isnan(lower).any()
        assert not np.isnan(upper).any()


# --- Gain and delay -------------------------------------------------------------------------------


def test_gain_scales_what_is_applied_and_not_the_command(robot: Robot) -> None:
    gain = np.linspace(0.5, 3.5, 7)
    tau = np.linspace(-10.0, 10.0, 7)[None]
    applied, command = run(robot, Actuators(gain=gain), tau)
    np.testing.assert_array_equal(command, tau)
    limit = np.asarray(robot.effort_limits)
    assert (np.abs(gain * tau[0]) > limit).any()
    np.testing.assert_allclose(applied[0], np.clip(gain * tau[0], -limit, limit), rtol=1e-12)


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("gain", [None, 0.5])
def test_commands_arrive_after_the_delay(robot: Robot, steps: int, gain: float | None) -> None:
    actuators = Actuators(gain=gain, delay=steps * DT, steps=3)
    applied, command = run(robot, actuators, count(8), before=-1.0)
    factor = 1.0 if gain is None else gain
    assert (applied[:, 0] / factor).tolist() == [-1.0] * steps + list(range(8 - steps))
    np.testing.assert_array_equal(command, count(8))


def test_delays_are_whole_steps_and_no_longer_than_there_is_room_for(robot: Robot) -> None:
    for delay, steps in ((0.0014, 1), (0.0016, 2), (0.0021, 2), (0.5, 3)):
        applied, _ = run(robot, Actuators(delay=delay, steps=3), count(6), before=-1.0)
        assert applied[:, 0].tolist() == [-1.0] * steps + list(range(6 - steps))


def test_speed_limits_hold_when_a_late_command_arrives(panda: Robot) -> None:
    """It was given at rest, and the joint is beyond its velocity limit when it arrives."""
    actuators = Actuators(gain=2.0, delay=DT, steps=1)
    state = actuators.init(panda, STILL, DT)
    _, _, state = actuators(panda, jnp.full(7, 10.0), STILL, state, DT)
    fast = 1.03 * jnp.asarray(panda.velocity_limits)
    applied, _, _ = actuators(panda, jnp.full(7, -3.0), fast, state, DT)
    assert not applied.any()


def test_rate_limits_hold_before_the_delay(robot: Robot) -> None:
    actuators = Actuators(rate_limit=100.0, delay=2 * DT, steps=2)
    applied, command = run(robot, actuators, np.full((6, 7), LARGE))
    np.testing.assert_allclose(command[:, 0], 0.1 * np.arange(1, 7), rtol=1e-12)
    np.testing.assert_allclose(applied[:, 0], [0, 0, 0.1, 0.2, 0.3, 0.4], rtol=1e-12)


def test_sized_has_room_for_the_longest_delay() -> None:
    assert Actuators().sized(1000).steps == 0
    assert Actuators(delay=0.003).sized(1000).steps == 3
    assert Actuators(delay=0.0021).sized(1000).steps == 3
    assert Actuators(delay=np.array([0.0, 0.004])).sized(500).steps == 2
    assert Actuators(delay=0.003).sized(1000, 5).steps == 5
    assert Actuators(delay=0.003, steps=7).sized(1000).steps == 7
    with pytest.raises(ConfigError, match=r"delays of up to 3 steps.*room for steps=2"):
        Actuators(delay=0.003, steps=2).sized(1000)
    assert Actuators(steps=2).sized(1000, 5).steps == 5
    jax.eval_shape(lambda delay: _sized_while_traced(delay), 0.003)


def _sized_while_traced(delay: Any) -> Any:
    assert Actuators(delay=delay).sized(1000, 5).steps is None
    assert Actuators(delay=delay, steps=2).sized(1000, 5).steps == 5
    return delay


# --- Pytrees --------------------------------------------------------------------------------------


def test_numbers_are_leaves_and_may_be_batched(panda: Robot) -> None:
    """Nothing is compiled again for other numbers, and a batch equals one after the other."""
    actuators = Actuators(OWN_EFFORT, OWN_RATE, np.ones(7), 0.001, steps=2)
    assert len(jax.tree.leaves(actuators)) == 4
    scaled = [0.5, 1.0, 2.0]
    several = [jax.tree.map(lambda x, s=s: jnp.asarray(x * s), actuators) for s in scaled]
    commands = 50 * np.random.default_rng(0).normal(size=(6, 7))

    @jax.jit
    @chex.assert_max_traces(n=1)
    def applied(actuators: Actuators) -> Any:
        return run(panda, actuators, commands)[0]

    one_by_one = jnp.stack([applied(a) for a in several])
    together = jax.vmap(lambda a: run(panda, a, commands)[0])(
        jax.tree.map(lambda *x: jnp.stack(x), *several)
    )
    np.testing.assert_allclose(together, one_by_one, rtol=1e-12)
    for a, b in ((0, 1), (1, 2)):
        assert np.abs(one_by_one[a] - one_by_one[b]).max() > 0.1


def test_states_keep_their_types(panda: Robot, dtype: np.dtype) -> None:
    """The state can be carried through a scan: same structure, shapes, dtypes, never weak."""
    actuators = Actuators(30.0, 800.0, 0.9, 0.001, steps=2)
    state = actuators.init(panda, np.zeros(7, dtype), DT)
    tau = jax.ShapeDtypeStruct((7,), dtype)
    applied, command, after = jax.eval_shape(lambda t, s: actuators(panda, t, t, s, DT), tau, state)
    for x in (applied, command):
        assert (x.shape, x.dtype, x.weak_type) == ((7,), dtype, False)
    chex.assert_trees_all_equal_shapes_and_dtypes(after, state)
    assert not any(x.weak_type for x in jax.tree.leaves(after))


@dtype_with_slow("float64")
@pytest.mark.parametrize(
    "actuators",
    [Actuators(), Actuators(60.0, 800.0), Actuators(OWN_EFFORT, OWN_RATE, 1.1, 0.001, steps=2)],
)
def test_fused_kernels_are_whole_and_right(
    panda: Robot, dtype: np.dtype, actuators: Actuators
) -> None:
    rng = np.random.default_rng(0)
    limit = np.asarray(panda.velocity_limits)
    tau, v = rng.normal(size=(2, 5, 7)) * np.stack([[np.full(7, 60.0)], [0.7 * limit]])

    def two_steps(tau: Any, v: Any) -> Any:
        state = actuators.init(panda, 0.5 * tau, DT)
        _, _, state = actuators(panda, tau, v, state, DT)
        return actuators(panda, -tau, v, state, DT)

    arguments = jnp.asarray(tau, dtype), jnp.asarray(v, dtype)
    assert explain(two_steps, "native")(*arguments).fallbacks == []
    expected = jax.jit(jax.vmap(two_steps))(*arguments)
    actual = fuse(two_steps, "native")(*arguments)
    bound = 1e-4 if dtype == np.float32 else 1e-12
    chex.assert_trees_all_equal_dtypes(actual, expected)
    chex.assert_trees_all_close(actual, expected, rtol=bound, atol=bound)


def test_gradients_are_right(panda: Robot) -> None:
    """By numbers of the actuators and torques: reverse equals forward and central differences."""
    actuators = Actuators(OWN_EFFORT, OWN_RATE, 1.1 * np.ones(7), 0.001, steps=1)
    rng = np.random.default_rng(0)
    commands = rng.uniform(-20, 20, (4, 7))
    v = 1.01 * np.asarray(panda.velocity_limits) * rng.choice([-1, 0, 1], 7)

    def effort(actuators: Actuators, commands: Any) -> Any:
        return jnp.sum(run(panda, actuators, commands, v)[0] ** 2)

    point = jax.tree.map(lambda x: jnp.asarray(x, float), (actuators, commands))
    gradient = jax.jit(jax.grad(effort, argnums=(0, 1)))(*point)
    chex.assert_tree_all_finite(gradient)
    direction = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), point)
    rate = sum(jax.tree.leaves(jax.tree.map(lambda g, d: jnp.sum(g * d), gradient, direction)))
    assert abs(float(rate)) > 1.0
    forward = jax.jit(partial(jax.jvp, effort))(point, direction)[1]
    assert float(rate) == pytest.approx(float(forward), rel=1e-8)
    h = 1e-7
    at = [effort(*jax.tree.map(lambda x, d, s=s: x + s * h * d, point, direction)) for s in (-1, 1)]
    assert float(rate) == pytest.approx(float(at[1] - at[0]) / (2 * h), rel=1e-4)


# --- Wrong input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["effort_limit", "rate_limit", "gain", "delay"])
def test_numbers_that_are_not_possible_are_refused(name: str) -> None:
    numbers = {f.name for f in dataclasses.fields(Actuators) if not f.metadata.get("static")}
    assert numbers == {"effort_limit", "rate_limit", "gain", "delay"}
    for value in (-1.0, np.nan, np.array([1.0, -1.0]), (1.0, -2.0), jnp.array(-1.0), "weak"):
        with pytest.raises(ConfigError, match=rf"Actuators: {name}=.*of at least zero"):
            Actuators(**{name: value})  # type: ignore[arg-type]
    Actuators(**{name: 0.0})  # type: ignore[arg-type]
    if name in ("gain", "delay"):
        with pytest.raises(ConfigError, match=rf"Actuators: {name}=inf, expected it to be finite"):
            Actuators(**{name: np.inf})  # type: ignore[arg-type]
    else:
        Actuators(**{name: np.inf})  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [-1, 1.5, True, "3"])
def test_steps_that_are_not_possible_are_refused(steps: Any) -> None:
    with pytest.raises(ConfigError, match=r"Actuators: steps=.*whole number >= 0"):
        Actuators(steps=steps)


@pytest.mark.parametrize("name", ["effort_limit", "rate_limit", "gain"])
def test_wrong_shapes_are_refused(panda: Robot, name: str) -> None:
    with pytest.raises(ArrayError, match=rf"{name} of robot 'panda' has shape \(3,\)"):
        run(panda, Actuators(**{name: np.ones(3)}), count(1))  # type: ignore[arg-type]


def test_torques_and_velocities_of_another_robot_are_refused(panda: Robot) -> None:
    motors = Actuators()
    state = motors.init(panda, STILL, DT)
    with pytest.raises(ArrayError, match=r"tau of robot 'panda' has shape \(6,\)"):
        motors.init(panda, jnp.zeros(6), DT)
    with pytest.raises(ArrayError, match=r"tau of robot 'panda' has shape \(6,\)"):
        motors(panda, jnp.zeros(6), STILL, state, DT)
    with pytest.raises(ArrayError, match=r"v of robot 'panda' has shape \(6,\)"):
        motors(panda, STILL, jnp.zeros(6), state, DT)
    with pytest.raises(ArrayError, match=r"v of robot 'panda' has shape \(6,\)"):
        motors.range(panda, jnp.zeros(6), state, DT)


def test_a_state_of_other_actuators_is_refused(panda: Robot) -> None:
    late, slow = Actuators(delay=0.0, steps=1), Actuators(rate_limit=1.0)
    for actuators, missing in ((slow, "no command to count from"), (late, "no commands on their")):
        with pytest.raises(ConfigError, match=missing):
            actuators(panda, STILL, STILL, ActuatorState(), DT)
    with pytest.raises(ConfigError, match="no command to count from"):
        slow.range(panda, STILL, late.init(panda, STILL, DT), DT)


def test_a_delay_without_room_is_refused(panda: Robot) -> None:
    """It would not be one: there is nowhere for commands to wait."""
    with pytest.raises(ConfigError, match=r"delay is set, and steps is None.*sized\(control_hz\)"):
        Actuators(delay=0.002).init(panda, STILL, DT)


# --- Derivatives ----------------------------------------------------------------------------------


def test_a_held_torque_at_the_limit_of_speed_has_the_slope_of_an_implicit_step(
    panda: Robot,
) -> None:
    inertia = np.linspace(0.05, 2.0, 7)

    def speed(v: Any, felt: bool) -> Any:
        seen = felt_velocity(panda, v, jnp.diag(inertia), DT) if felt else v
        applied, *_ = Actuators()(panda, np.full(7, LARGE), seen, ActuatorState(), DT)
        return v + DT * applied / inertia

    @partial(jax.jit, static_argnums=1)
    def both_ways(v: Any, felt: bool) -> Any:
        return jax.jacfwd(speed)(v, felt), jax.jacrev(speed)(v, felt)

    at_limit = 1.01 * np.asarray(panda.velocity_limits)
    growth = DT * panda.effort_limits / (SPEED_MARGIN * panda.velocity_limits) / inertia
    assert np.max(growth) > 30
    for v, exact, ours in (
        (at_limit, 1 - growth, 1 - growth / (1 + growth)),
        (0.5 * at_limit, np.ones(7), np.ones(7)),
        (2 * at_limit, np.ones(7), np.ones(7)),
    ):
        np.testing.assert_array_equal(speed(v, True), speed(v, False))
        for felt, expected in ((False, exact), (True, ours)):
            for found in both_ways(v, felt):
                np.testing.assert_allclose(found, np.diag(expected), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("v", [0.0, 1.01, 2.0])
def test_derivatives_without_limit_of_effort_are_finite(panda: Robot, v: float) -> None:
    strong = panda.replace(effort_limits=np.full(7, np.inf))

    def torque(v: Any) -> Any:
        seen = felt_velocity(strong, v, jnp.eye(7), DT)
        return jnp.clip(jnp.ones(7), *dynamics.effort_bounds(strong, seen))

    slopes = jax.jit(jax.jacrev(torque))(jnp.asarray(v * strong.velocity_limits))
    np.testing.assert_array_equal(slopes, 0)
