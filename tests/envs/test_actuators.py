"""The motors of an environment: what they apply of what the controller and the filter ask for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import fraxenv
from fraxenv import dynamics, load_state, save_state
from fraxenv.controllers import Barrier, SafetyFilter
from fraxenv.dynamics import Actuators
from fraxenv.dynamics.actuation import SPEED_MARGIN
from fraxenv.envs import Environment, EnvParams, EnvState
from fraxenv.errors import CheckpointError, ConfigError, UnknownNameError

Env = tuple[Environment, EnvParams]

HZ = 1000
KEY = jax.random.key(0)
QUICK = {"xla_backend_optimization_level": 0}  # to compile
bias_forces = jax.jit(dynamics.bias_forces)


def make(actuators: Actuators = Actuators(), **options: Any) -> Env:  # noqa: B008
    """One control step and one of the physics are one policy step; actions are torques."""
    options = {"action": "torque", "policy_hz": HZ, "backend": "vmap"} | options
    made, params = fraxenv.make("PandaReach-v0", **options)
    params = params.replace(actuators=actuators)
    environment = Environment(
        "Motors-v0", made.robot, params, policy_hz=made.policy_hz, backend=made.backend
    )
    return environment, environment.default_params


def follow(
    environment: Environment, params: EnvParams, state: EnvState, actions: Any
) -> tuple[EnvState, Any]:
    """The states after each of the actions (T, k), and what was reported."""

    def step(state: EnvState, action: Array) -> tuple[EnvState, Any]:
        _, new, _, _, info = environment.step_env(KEY, state, action, params)
        return new, (new, info)

    return jax.lax.scan(step, state, jnp.asarray(actions, state.q.dtype))[1]


def run(env: Env, actions: Any, start: int = 0) -> tuple[EnvState, EnvState, Any]:
    """The first state, those after each action, and what was reported."""
    environment, params = env
    _, state = environment.reset(jax.random.key(start), params)
    program = jax.jit(partial(follow, environment), compiler_options=QUICK)
    return state, *program(params, state, actions)


def torques(robot: dynamics.Robot, actions: Any) -> np.ndarray:
    """What the action space makes of actions, N m."""
    return np.asarray(actions) * np.asarray(robot.effort_limits)


# --- Numbers --------------------------------------------------------------------------------------


def test_numbers_are_leaves_and_nothing_is_compiled_again() -> None:
    """A batch of environments with a limit of effort each equals one after the other."""
    endless = dynamics.load_robot("panda").replace(velocity_limits=np.full(7, np.inf))
    environment, params = make(Actuators(effort_limit=87.0), robot=endless)
    actions = jax.random.uniform(jax.random.key(1), (20, 7), minval=-1.0)
    _, state = environment.reset(KEY, params)
    limits = np.array([[5.0] * 7, [20.0] * 7, [1, 2, 4, 8, 1, 2, 4]], np.float32)

    def commands(limit: Any) -> Any:
        actuators = Actuators(effort_limit=limit, steps=params.actuators.steps)
        found = follow(environment, params.replace(actuators=actuators), state, actions)[1]
        return found["controller"]["torque"], found["controller"]["saturation"]

    one = jax.jit(chex.assert_max_traces(commands, n=1), compiler_options=QUICK)
    alone = [one(jnp.asarray(limit)) for limit in limits]
    together = jax.jit(jax.vmap(commands), compiler_options=QUICK)(limits)
    asked = torques(environment.robot, actions)
    for i, limit in enumerate(limits):
        tau, saturation = (np.asarray(x[i]) for x in together)
        chex.assert_trees_all_close(alone[i], (tau, saturation), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(tau, np.clip(asked, -limit, limit), rtol=1e-6)
        np.testing.assert_allclose(saturation, np.mean(np.abs(asked) > limit, 1), rtol=1e-6)
        assert 0 < saturation.mean() < 1


def test_make_takes_actuators_and_their_options() -> None:
    options = {"control_hz": 500, "backend": "vmap"}
    _, params = fraxenv.make(
        "PandaReach-v0",
        actuators=Actuators(effort_limit=50.0),
        actuator_options={"rate_limit": 300.0, "delay": 0.004},
        **options,
    )
    motors = params.actuators
    assert (motors.effort_limit, motors.rate_limit, motors.gain) == (50.0, 300.0, None)
    assert motors.steps == 2
    _, params = fraxenv.make("PandaReach-v0", actuator_options={"gain": 0.9}, **options)
    assert float(params.actuators.gain) == pytest.approx(0.9)
    with pytest.raises(UnknownNameError, match=r"'torque_limit'.*effort_limit"):
        fraxenv.make("PandaReach-v0", actuator_options={"torque_limit": 1.0})
    with pytest.raises(ConfigError, match=r"actuators=3.*Actuators"):
        fraxenv.make("PandaReach-v0", actuators=3)


# --- Gain and delay -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "gain"), [pytest.param(0, None, marks=pytest.mark.slow), (1, 0.5), (3, None)]
)
def test_torque_arrives_as_many_control_steps_later(
    steps: int, gain: float | None, x64: None
) -> None:
    """The motion is that of a robot that has the torques applied, late; before, it is held."""
    env = make(Actuators(gain=gain, delay=steps / HZ))
    robot = env[0].robot
    assert env[1].actuators.steps == steps
    actions = 0.2 * np.random.default_rng(0).uniform(-1, 1, (8, 7))
    first, states, info = run(env, actions)
    asked = torques(robot, actions)
    np.testing.assert_allclose(info["controller"]["torque"], asked, rtol=1e-12)

    held = np.asarray(bias_forces(robot, first.q, first.v))
    applied = np.concatenate([np.tile(held, (steps, 1)), asked])[:8] * (gain or 1.0)
    q, v = first.q, first.v
    step = jax.jit(lambda q, v, tau: dynamics.step(robot, q, v, tau, 1 / HZ))
    for k in range(8):
        q, v = step(q, v, applied[k])
        np.testing.assert_allclose(states.q[k], q, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(states.v[k], v, rtol=1e-8, atol=1e-8)
    if gain is None and steps:
        assert np.abs(states.v[steps - 1]).max() < 1e-8
        assert np.abs(states.v[steps]).max() > 1e-3


def test_a_delay_may_be_changed_within_what_there_is_room_for() -> None:
    environment, params = make(Actuators(delay=0.003))
    actions = jnp.full((5, 7), 0.1)

    def moves(params: EnvParams) -> Array:
        """The fastest joint after each action (T,), rad/s."""
        _, state = environment.reset_env(KEY, params)
        states, _ = follow(environment, params, state, actions)
        return jnp.max(jnp.abs(states.v), axis=-1)

    program = jax.jit(chex.assert_max_traces(moves, n=1), compiler_options=QUICK)
    for steps in range(4):
        changed = Actuators(delay=np.float32(steps / HZ), steps=3)
        still = program(params.replace(actuators=changed))
        assert np.flatnonzero(np.asarray(still) > 1e-3)[0] == steps
    longer = params.replace(actuators=Actuators(delay=0.004, steps=3))
    with pytest.raises(ConfigError, match=r"delays of up to 4 steps.*room for steps=3"):
        environment.reset(KEY, longer)


def test_a_delay_that_nobody_made_room_for_is_refused() -> None:
    """It would be none, silently."""
    environment, params = make()
    late = params.replace(actuators=Actuators(delay=0.003))
    with pytest.raises(ConfigError, match="delay is set, and steps is None"):
        jax.jit(environment.reset_env)(KEY, late)
    _, state = environment.reset(KEY, params)
    roomy = params.replace(actuators=Actuators(delay=0.003, steps=3))
    with pytest.raises(ConfigError, match="the state has no commands on their way"):
        environment.step_env(KEY, state, jnp.zeros(7), roomy)


def test_a_drawn_delay_has_room_of_its_own() -> None:
    """Randomisation may be set later than the environment was made."""
    environment, params = make()
    random = fraxenv.make(
        "PandaReach-v0", policy_hz=HZ, randomisation={"motor_delay": (0.002, 0.002)}
    )[1].randomisation
    _, state = environment.reset(KEY, params.replace(randomisation=random))
    assert state.actuator_state.delayed.values.shape == (3, 7)
    assert int(state.actuator_state.delayed.steps) == 2


# --- Limits ---------------------------------------------------------------------------------------

RATE = 200.0  # N m/s


def _height(robot: dynamics.Robot, situation: Any, barrier: Barrier) -> Array:
    return dynamics.frame_pose(robot, situation.q, "hand", kin=situation.kin)[0][2:]


FLOOR = SafetyFilter(barriers=(Barrier(_height, name="floor", parameters=(), margin=0.45),))
MOTORS = {
    "none": Actuators(),
    "effort": Actuators(effort_limit=30.0),
    "rate": Actuators(rate_limit=RATE),
    "effort, rate, gain and delay": Actuators(40.0, RATE, 1.2, 0.002),
}
ALONE = ("effort", "rate")
"""Limits that the last has as well."""


@pytest.mark.parametrize(
    ("case", "safety"),
    [
        *(pytest.param(case, "none", id=case) for case in MOTORS if case not in ALONE),
        *(pytest.param(case, "none", id=case, marks=pytest.mark.slow) for case in ALONE),
        *(
            pytest.param(case, FLOOR, id=f"{case}, filtered", marks=pytest.mark.slow)
            for case in MOTORS
        ),
    ],
)
def test_commands_are_within_the_range_of_the_motors(case: str, safety: Any) -> None:
    """Always, whatever the filter makes of them; and their rate is limited if it is to be."""
    actuators = MOTORS[case]
    environment, params = env = make(actuators, safety=safety)
    rng = np.random.default_rng(0)
    actions = np.repeat(rng.uniform(-1, 1, (8, 7)), 40, axis=0)
    first, states, info = run(env, actions)
    before = jax.tree.map(lambda x, y: jnp.concatenate([x[None], y[:-1]]), first, states)
    reach: Callable[..., Any] = jax.jit(
        jax.vmap(lambda s: params.actuators.range(environment.robot, s.v, s.actuator_state, 1 / HZ))
    )
    lower, upper = (np.asarray(x) for x in reach(before))
    tau = np.asarray(info["controller"]["torque"])
    slack = 1e-4  # float32
    assert (tau >= lower - slack).all()
    assert (tau <= upper + slack).all()
    assert np.mean((tau < lower + slack) | (tau > upper - slack)) > 0.02
    assert np.mean(info["safety"]["intervened"]) > 0.05 or safety == "none"

    speeds = np.abs(before.v) / np.asarray(environment.robot.velocity_limits)
    slow = speeds < 1  # the limit of speed comes before that of the rate
    held = np.asarray(bias_forces(environment.robot, first.q, first.v))
    change = np.abs(np.diff(np.concatenate([held[None], tau]), axis=0)) * HZ
    assert slow.mean() > 0.1
    if actuators.rate_limit is not None:
        assert change[slow].max() <= RATE * (1 + 1e-3)
        assert change[slow].max() > 0.99 * RATE
    else:
        assert change[slow].max() > 10 * RATE
    if actuators.effort_limit is not None:
        assert np.abs(tau).max() <= actuators.effort_limit
    # Without a filter the command is what there is of what was asked for.
    asked = torques(environment.robot, actions)
    beyond = (asked < lower) | (asked > upper)
    np.testing.assert_allclose(info["controller"]["saturation"], beyond.mean(1), atol=0.15)
    if safety == "none":
        np.testing.assert_allclose(tau, np.clip(asked, lower, upper), atol=1e-3)


def test_joints_are_not_pushed_beyond_their_speed() -> None:
    """One at a time, with the others held.

    A step can add to a speed at the limit what the torque that is left then adds: a light joint
    that is pushed hard goes further beyond than the 2 % within which the torque fades.
    """
    environment, params = make(policy_hz=50)
    robot = environment.robot
    limit, effort = np.asarray(robot.velocity_limits), np.asarray(robot.effort_limits)
    eye = np.eye(7, dtype=np.float32)
    _, start = environment.reset(KEY, params)
    inertia = np.diag(jax.jit(dynamics.crba)(robot, start.q))

    def fastest(share: Any, joint: Any, limits: Any) -> Array:
        held = robot.replace(
            damping=1e5 * (1 - joint), gravity=jnp.zeros(3), velocity_limits=limits
        )
        states, _ = follow(
            environment, params.replace(robot=held), start, jnp.tile(share * joint, (20, 1))
        )
        return jnp.max(jnp.abs(states.v) @ joint)

    every = jax.jit(jax.vmap(fastest, (None, 0, None)), compiler_options=QUICK)
    heavy = []
    for share in (1.0, 0.3, 0.1):
        speed = np.asarray(every(share, eye, limit))
        fading = SPEED_MARGIN * limit
        overshoot = np.maximum(fading, (1 - share) * fading + share * effort / inertia / HZ)
        assert (speed <= limit + 1.05 * overshoot).all()
        within = overshoot <= 0.03 * limit
        assert (speed[within] <= 1.03 * limit[within]).all()
        assert (speed >= limit).all()
        heavy.append(within.sum())
    assert heavy == [1, 3, 5]
    free = np.asarray(every(1.0, eye, np.full(7, np.inf, np.float32)))
    assert (free > 3 * limit).all()


# --- States ---------------------------------------------------------------------------------------


def test_what_motors_remember_comes_back_bit_for_bit(tmp_path: Path) -> None:
    """And so does what follows from it."""
    environment, params = env = make(Actuators(40.0, RATE, 1.2, 0.003), max_steps_in_episode=100)
    actions = np.random.default_rng(0).uniform(-1, 1, (12, 7))
    _, states, _ = run(env, actions)
    state = jax.tree.map(lambda x: x[-1], states)
    motors = state.actuator_state
    assert len(np.unique(motors.delayed.values[:, 0])) == 4  # all different
    assert np.any(np.asarray(motors.command))
    save_state(tmp_path / "state.npz", environment, state, params)
    loaded, numbers, _ = load_state(tmp_path / "state.npz", environment)
    assert jax.tree.structure(loaded) == jax.tree.structure(state)
    program = jax.jit(partial(follow, environment), compiler_options=QUICK)
    for a, b in zip(
        jax.tree.leaves((state.actuator_state, params, program(params, state, actions))),
        jax.tree.leaves((loaded.actuator_state, numbers, program(numbers, loaded, actions))),
        strict=True,
    ):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_another_delay_than_the_states_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    environment, params = make(Actuators(delay=0.003))
    _, state = environment.reset(KEY, params)
    save_state(tmp_path / "state.npz", environment, state, params)
    other, _ = make(Actuators(delay=0.002))
    with pytest.raises(CheckpointError):
        load_state(tmp_path / "state.npz", other)
