"""Reaching among obstacles: where they are put, how they move, and what the filter reports."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from jax import Array
from support import with_slow

import fraxenv
from fraxenv import dynamics
from fraxenv.controllers import Barrier, SafetyFilter, default_barriers
from fraxenv.dynamics import Actuators
from fraxenv.envs import Environment, EnvParams, EnvState
from fraxenv.envs.observation import task_inputs
from fraxenv.errors import ConfigError, UnknownNameError
from fraxenv.making.registration import register_envs

ID = "PandaReachObstacles-v0"
QUICK = {"xla_backend_optimization_level": 0}  # to compile
SIZE, STEPS = 32, 100

Env = tuple[Environment, EnvParams]
Rollout = tuple[dict[str, Any], EnvState]
KINDS: dict[str, dict[str, Any]] = {
    "filter": {"task_options": {"moving_count": 3, "obstacle_speed": 0.3}},
    "off": {"safety_options": {"enabled": False}, "action_options": {"target": "desired"}},
    "none": {"safety": "none"},
}


def make(kind: str = "filter", **options: Any) -> Env:
    return fraxenv.make(ID, **KINDS[kind] | options)


def resets(env: Env, size: int, seed: int = 0) -> EnvState:
    environment, params = env
    keys = jax.random.split(jax.random.key(seed), size)
    reset = jax.jit(jax.vmap(environment.reset_env, (0, None)), compiler_options=QUICK)
    return reset(keys, params)[1]


def rollout(kind: str, steps: int = STEPS) -> Rollout:
    """`info` (steps, SIZE) of random steps without resets, and the states."""
    environment, params = make(kind)

    def step(state: EnvState, key: Array) -> tuple[EnvState, Any]:
        keys = jax.random.split(key, SIZE)
        action = jax.vmap(environment.action_space(params).sample)(keys)
        _, state, _, _, info = jax.vmap(environment.step_env, (0, 0, 0, None))(
            keys, state, action, params
        )
        return state, (info, state)

    keys = jax.random.split(jax.random.key(7), steps)
    quick = QUICK if kind == "none" else None
    run = jax.jit(partial(jax.lax.scan, step), compiler_options=quick)
    _, found = run(resets((environment, params), SIZE), keys)
    info, states = jax.tree.map(np.asarray, found)
    return info, states


@pytest.fixture(scope="module")
def filtered() -> Rollout:
    return rollout("filter")


@pytest.fixture(scope="module")
def rollouts(filtered: Rollout) -> dict[str, Rollout]:
    return {"filter": filtered, "off": rollout("off"), "none": rollout("none", 2)}


# --- Resets ---------------------------------------------------------------------------------------


def test_resets_leave_robot_and_goal_free() -> None:
    environment, params = make(backend="vmap")
    state, task = resets((environment, params), 500), params.task
    spheres, active = state.world.obstacles.spheres, state.world.obstacles.active
    robot = environment.robot
    every = [s.name for s in robot.topology.collision_shapes]

    def gaps(q: Array, obstacles: Any) -> Array:
        return dynamics.obstacle_distances(robot, q, obstacles, shapes=every)

    clearance = float(task.clearance)
    assert clearance > 0
    found = jax.jit(jax.vmap(gaps))(state.q, state.world.obstacles)
    assert np.min(found) > clearance - 1e-5
    away = np.linalg.norm(spheres.position - state.task_state.position, axis=-1)
    assert (away - spheres.radius)[np.asarray(active)].min() > float(task.goal_clearance) - 1e-5
    assert 0.5 < np.mean(active) <= 1

    low, high = np.asarray(task.obstacle_low), np.asarray(task.obstacle_high)
    assert (spheres.position >= low - 1e-6).all()
    assert (spheres.position <= high + 1e-6).all()
    smallest, largest = np.asarray(task.obstacle_radius)
    assert np.asarray(spheres.radius).min() >= smallest - 1e-6
    assert np.asarray(spheres.radius).max() <= largest + 1e-6
    assert np.std(np.asarray(spheres.position)[:, 0], axis=0).min() > 0.05  # anew every time


def test_obstacles_that_are_left_out_are_not_seen() -> None:
    crowded = {"obstacle_low": (-0.1, -0.1, 0.0), "obstacle_high": (0.5, 0.1, 0.6)}
    environment, params = make("none", task_options=crowded, backend="vmap")
    state = resets((environment, params), 200)
    task, robot = params.task, environment.robot
    observe = jax.jit(jax.vmap(lambda s: task.observation_terms(*task_inputs(robot, s))))
    terms, active = observe(state), np.asarray(state.world.obstacles.active)
    assert not active.all()
    seen = np.asarray(terms["to_obstacles"]).reshape(200, 8, 3)
    assert not seen[~active].any()
    assert not np.asarray(terms["obstacle_radius"])[~active].any()
    assert (np.abs(seen[active]).max(axis=-1) > 0).all()
    assert environment.observation_layout["to_obstacles"] == 24
    assert "obstacle_velocity" not in environment.observation_layout
    moving, _ = make("filter")
    assert moving.observation_layout["obstacle_velocity"] == 9


# --- Steps ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_reports_have_one_structure(rollouts: dict[str, Rollout]) -> None:
    expected = {
        "min_barrier": "float32",
        "min_barrier_row": "int32",
        "slack": "float32",
        "deviation": "float32",
        "residual": "float32",
        "intervened": "bool",
        "feasible": "bool",
    }
    for info, _ in rollouts.values():
        report = info["safety"]
        assert {k: x.dtype.name for k, x in report.items()} == expected
        assert all(x.shape == info["clearance"].shape for x in report.values())
        assert all(np.isfinite(report[k]).all() for k in ("slack", "deviation", "residual"))
    off = rollouts["none"][0]["safety"]
    assert (off["min_barrier"] == np.inf).all()
    assert (off["min_barrier_row"] == -1).all()
    assert not off["intervened"].any()
    assert off["feasible"].all()


@pytest.mark.slow
def test_the_filter_keeps_the_robot_off(filtered: Rollout) -> None:
    info, _ = filtered
    assert info["safety"]["min_barrier"].min() >= -2e-3
    assert info["clearance"].min() >= -2e-3
    assert info["safety"]["intervened"].any()
    assert not info["diverged"].any()
    assert not info["reward_terms"]["collision"].any()


@pytest.mark.slow
def test_without_the_filter_there_are_violations(rollouts: dict[str, Rollout]) -> None:
    info, _ = rollouts["off"]
    report = info["safety"]
    assert (info["clearance"] < -2e-3).any()
    assert (report["min_barrier"] < -2e-3).any()
    assert not report["intervened"].any()
    assert not report["deviation"].any()
    collided = info["reward_terms"]["collision"] == 1
    np.testing.assert_array_equal(collided, info["clearance"] < 0)


def test_obstacles_move_within_their_box(filtered: Rollout) -> None:
    """Some of them, straight on at their speed, and back where they come to a side of it."""
    _, states = filtered
    position = states.world.obstacles.spheres.position  # (STEPS, SIZE, 8, 3)
    velocity = states.world.obstacles.velocity
    moved = np.diff(position, axis=0) * 50  # m/s
    assert not moved[:, :, 3:].any()
    assert (np.abs(moved[:, :, :3]).max(axis=(0, 3)) > 1e-3).all()
    turned = velocity[1:] * velocity[:-1] < 0
    assert turned.any()
    np.testing.assert_allclose(moved[~turned], velocity[:-1][~turned], atol=1e-4)
    np.testing.assert_array_equal(np.abs(velocity), np.abs(velocity[:1]).repeat(len(velocity), 0))
    assert (np.abs(moved) <= np.abs(velocity[:-1]) + 1e-4).all()
    assert np.abs(velocity).max() <= 0.3
    task = make("filter")[1].task
    beyond = 1e-6
    assert (position >= np.asarray(task.obstacle_low) - beyond).all()
    assert (position <= np.asarray(task.obstacle_high) + beyond).all()


@pytest.mark.slow
def test_other_obstacles_stay(rollouts: dict[str, Rollout]) -> None:
    _, still = rollouts["off"]
    assert not np.diff(still.world.obstacles.spheres.position, axis=0).any()


@pytest.mark.slow
def test_fused_as_vmap() -> None:
    """A policy step, of one control step, in the kernel and without it."""
    options = {"control_hz": 50, "physics_hz": 50}
    results, tried = [], resets(make("off"), 33)
    for backend in ("vmap", "native"):
        environment, params = fraxenv.make(ID, backend=backend, **options)
        step = jax.jit(jax.vmap(environment.step_env, (0, 0, 0, None)))
        keys = jax.random.split(jax.random.key(0), 33)
        actions = jax.random.uniform(jax.random.key(1), (33, 6), minval=-1.0)
        results.append(step(keys, tried, actions, params))
    (obs, state, reward, _, info), (fused_obs, fused_state, fused_reward, _, fused_info) = results
    np.testing.assert_allclose(fused_obs, obs, atol=1e-3)
    np.testing.assert_allclose(fused_state.q, state.q, atol=1e-3)
    np.testing.assert_allclose(fused_reward, reward, atol=1e-3)
    np.testing.assert_allclose(
        fused_info["safety"]["min_barrier"], info["safety"]["min_barrier"], atol=1e-3
    )
    assert info["safety"]["intervened"].any()


# --- Options --------------------------------------------------------------------------------------

WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "unknown filter": (
        {"safety": "shield"},
        ConfigError,
        "safety of .*'shield'.*'cbf', 'robust', 'none'",
    ),
    "no filter": ({"safety": True}, ConfigError, "safety=True of .*SafetyFilter"),
    "a class": (
        {"safety": SafetyFilter},
        ConfigError,
        "safety=.* expected 'cbf', 'robust', 'none' or a",
    ),
    "options of none": (
        {"safety": "none", "safety_options": {"enabled": False}},
        ConfigError,
        "safety_options of .* without a safety filter",
    ),
    "unknown option": (
        {"safety_options": {"enable": False}},
        UnknownNameError,
        "safety option 'enable' of SafetyFilter. Did you mean 'enabled'",
    ),
    "barriers' option of none": (
        {"safety": "none", "safety_options": {"margin": 0.01}},
        ConfigError,
        "safety_options of .* without a safety filter",
    ),
    "barriers and their option": (
        {"safety_options": {"margin": 0.01, "barriers": ()}},
        ConfigError,
        "safety_options margin of .* barriers of its own, expected it with safety='cbf'",
    ),
    "option of own barriers": (
        {"safety": SafetyFilter(), "safety_options": {"obstacle_margin": 0.1}},
        ConfigError,
        "safety_options obstacle_margin of .* barriers of its own",
    ),
    "negative margin": (
        {"safety_options": {"obstacle_margin": -0.01}},
        ConfigError,
        "safety option obstacle_margin of .*: -0.01, expected one number, finite and at least",
    ),
    "margin of each": ({"safety_options": {"margin": (0.1, 0.2)}}, ConfigError, "expected one"),
    "margin in words": (
        {"safety_options": {"margin": "far"}},
        ConfigError,
        "'far', expected a num",
    ),
    "no dict": ({"safety_options": 3}, ConfigError, "safety_options=3, expected a dict"),
    "too many that move": ({"task_options": {"moving_count": 9}}, ConfigError, "moving_count=9"),
    "no obstacles": ({"task_options": {"sphere_count": 0}}, ConfigError, "sphere_count=0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_are_refused(name: str) -> None:
    options, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        fraxenv.make(ID, **options)


def test_filters_are_chosen_by_configuration() -> None:
    assert fraxenv.make("PandaReach-v0")[1].safety is None
    assert fraxenv.make(ID, safety="none")[1].safety is None
    chosen = fraxenv.make("PandaReach-v0", safety="cbf", safety_options={"task_weight": 3.0})[1]
    assert isinstance(chosen.safety, SafetyFilter)
    assert float(chosen.safety.task_weight) == 3.0
    assert chosen.safety.end_effectors == ("hand",)
    kept = {"obstacle_margin": 0.03, "bounded_curvature": True}
    robust = fraxenv.make(ID, safety="robust", safety_options={**kept, "nearest": 2})[1].safety
    assert robust.nearest == 2
    expected = default_barriers(**kept)
    assert [(b.name, float(b.margin)) for b in robust.barriers] == [
        (b.name, pytest.approx(b.margin)) for b in expected
    ]
    assert [b.function for b in robust.barriers] == [b.function for b in expected]
    own = SafetyFilter(max_active=4)
    assert fraxenv.make(ID, safety=own)[1].safety.max_active == 4


def test_few_obstacles_and_markers() -> None:
    env, params = fraxenv.make(ID, task_options={"sphere_count": 2}, backend="vmap")
    _, state = env.reset(jax.random.key(3), params)
    markers = env.markers(jax.tree.map(np.asarray, state), params)
    obstacles = state.world.obstacles
    assert len(markers) == 1 + int(obstacles.active.sum())
    for marker, radius in zip(markers[1:], obstacles.spheres.radius[obstacles.active], strict=True):
        assert marker.size == pytest.approx((float(radius),))
    assert jnp.all(obstacles.active)


@pytest.mark.slow
def test_gymnasium(recwarn: pytest.WarningsRecorder) -> None:
    register_envs()
    env = gym.make(f"fraxenv/{ID}", control_hz=100, physics_hz=100, max_episode_steps=4)
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=0)
    *_, info = env.step(env.action_space.sample())
    assert "min_barrier" in info["safety"]
    env.close()


# --- Limits of the motors ------------------------------------------------------------------------


def _hand_height(robot: dynamics.Robot, situation: Any, barrier: Barrier) -> Array:
    return dynamics.frame_pose(robot, situation.q, "hand", kin=situation.kin)[0][2:]


@pytest.mark.slow
@pytest.mark.parametrize("limited", with_slow([True, False], False))
def test_filter_keeps_the_limits_of_the_motors(limited: bool) -> None:
    """What is applied, not what the controller asked for, changes no faster than they say."""
    rate, floor = 100.0, Barrier(_hand_height, name="floor", parameters=(), margin=0.55)
    panda = dynamics.load_robot("panda")
    environment, params = fraxenv.make(
        "PandaReach-v0",
        robot=panda.replace(velocity_limits=np.full(7, np.inf)),  # which come before the rate
        policy_hz=1000,
        action="ee_delta_position",
        safety=SafetyFilter(barriers=(floor,)),
        backend="vmap",
    )
    if limited:
        params = params.replace(actuators=Actuators(effort_limit=80.0, rate_limit=rate))
    state = resets((environment, params), 1)
    state = jax.tree.map(lambda x: x[0], state)
    action = jnp.array([0.0, 0.0, -1.0])

    def step(state: EnvState, key: Array) -> tuple[EnvState, Any]:
        _, state, _, _, info = environment.step_env(key, state, action, params)
        return state, (info["controller"]["torque"], info["safety"]["intervened"])

    _, (tau, intervened) = jax.jit(partial(jax.lax.scan, step), compiler_options=QUICK)(
        state, jax.random.split(jax.random.key(0), 300)
    )
    assert np.mean(intervened) > 0.3
    fastest = np.abs(np.diff(tau, axis=0)).max() * 1000
    if limited:
        assert np.abs(tau).max() <= 80.0
        assert fastest <= rate * (1 + 1e-3)
    else:
        assert fastest > 2 * rate
