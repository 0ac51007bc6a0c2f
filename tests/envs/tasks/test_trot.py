"""Trot: the robot, the ground, what is seen and counts, and plans that walk."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import episode_of

import fraxenv
from fraxenv import dynamics
from fraxenv.controllers.planning.legs import swing_heights
from fraxenv.dynamics import Robot, compute_terms, frame_pose
from fraxenv.dynamics.math.rotation import quaternion_multiply
from fraxenv.envs import (
    Environment,
    EnvParams,
    Motion,
    Trot,
    TrotState,
    foot_names,
    mpc_policy,
    walking_scene,
)
from fraxenv.envs.observation import task_inputs
from fraxenv.envs.observed import terms_of
from fraxenv.envs.predictive_gait import seen_state, seen_time
from fraxenv.errors import ConfigError, UnknownNameError

A1 = Path(__file__).parents[3] / "scripts" / "measure" / "benchmark" / "scenes" / "a1.xml"
RADIUS = 0.02

Env = tuple[Environment, EnvParams]


@pytest.fixture(scope="module")
def env() -> Env:
    return fraxenv.make("A1Trot-v0")


@pytest.fixture(scope="module")
def begun(env: Env) -> Any:
    environment, params = env
    keys = jax.random.split(jax.random.key(0), 64)
    return jax.jit(jax.vmap(environment.reset_env, (0, None)))(keys, params)


@pytest.fixture(scope="module")
def stepped(env: Env, begun: Any) -> Any:
    """After 60 steps: half of the robots stand as they are, the others are shaken."""
    environment, params = env
    half = jnp.repeat(jnp.array([0.0, 1.0]), 32)[:, None]

    def step(state: Any, key: Any) -> Any:
        actions = half * jax.random.uniform(key, (64, 12), minval=-1.0)
        keys = jax.random.split(key, 64)
        advance = jax.vmap(environment.step_env, (0, 0, 0, None))
        obs, state, reward, terminated, info = advance(keys, state, actions, params)
        return state, (obs, reward, terminated, info)

    run = jax.jit(lambda state, keys: jax.lax.scan(step, state, keys))
    return run(begun[1], jax.random.split(jax.random.key(1), 60))


# --- the robot and the ground ---------------------------------------------------------------------


@partial(jax.jit, static_argnums=1)
def feet_heights(robot: Robot, feet: tuple[str, ...], q: Any) -> Any:
    """Heights (n, 4) of the feet's middles, m."""
    return jax.vmap(lambda q: jnp.stack([frame_pose(robot, q, f)[0][2] for f in feet]))(q)


def test_the_robot_is_that_of_the_benchmark(x64: None) -> None:
    """MuJoCo reads its inertias as principal moments, we as those in the links' axes."""
    pytest.importorskip("mujoco")
    robot, other = dynamics.load_robot("a1"), dynamics.load_mjcf(A1).system
    rng = np.random.default_rng(0)
    q, v = np.array(robot.q_default), rng.normal(size=18)
    q[3:7] = rng.normal(size=4)
    q[3:7] /= np.linalg.norm(q[3:7])
    q[7:] += 0.3 * rng.normal(size=12)
    ours, theirs = (jax.jit(compute_terms)(r, q, v) for r in (robot, other))
    pose = jax.jit(frame_pose, static_argnums=2)
    np.testing.assert_allclose(ours.mass_matrix, theirs.mass_matrix, atol=1e-9)
    np.testing.assert_allclose(ours.bias, theirs.bias, atol=1e-9)
    for foot in ("FL", "FR", "RL", "RR"):
        there = (pose(r, q, f)[0] for r, f in ((robot, f"{foot}_foot"), (other, foot)))
        np.testing.assert_allclose(*there, atol=1e-12)
    for name in ("damping", "friction", "armature", "position_limits"):
        np.testing.assert_allclose(getattr(robot, name), getattr(other, name), atol=1e-12)


def test_it_begins_on_its_feet(env: Env, begun: Any) -> None:
    """The lowest foot touches the floor, and the place to go to is in the box."""
    environment, params = env
    _, state = begun
    robot, task = environment.robot, params.task
    feet = feet_heights(robot, task.feet, state.q)
    np.testing.assert_allclose(feet.min(axis=1), RADIUS, atol=1e-6)
    way = state.task_state.goal - jnp.array([0.3, 0.0])
    assert (way >= np.asarray(task.goal_low) - 1e-6).all()
    assert (way <= np.asarray(task.goal_high) + 1e-6).all()
    assert float(jnp.ptp(way[:, 0])) > 0.7
    assert float(jnp.ptp(state.task_state.time)) > 0.4


def test_the_floor_carries_the_robot(env: Env, stepped: Any) -> None:
    environment, _ = env
    forces = stepped[1][3]["contacts"]["normal_force"][-1, :32]
    weight = 9.81 * float(np.sum(environment.robot.mass))
    np.testing.assert_allclose(forces.sum(axis=1), weight, rtol=0.02)
    assert (forces > 0.05 * weight).all()


def test_feet_that_stand_stand_on_the_floor(env: Env, stepped: Any) -> None:
    """Not in it: about a millimetre deep."""
    environment, params = env
    state, robot = stepped[0], environment.robot
    depth = RADIUS - feet_heights(robot, params.task.feet, state.q)[:32]
    assert float(depth.max()) < 1.5e-3
    assert float(depth.min()) > 0


# --- what is seen ---------------------------------------------------------------------------------


def test_the_observation_tells_the_state(env: Env, stepped: Any) -> None:
    """All of it but where on the floor: where the place is, is all that it says of that."""
    environment, params = env
    state, (obs, *_) = stepped

    @jax.jit
    @jax.vmap
    def seen(obs: Any) -> Any:
        terms = terms_of(environment, obs)
        return *seen_state(environment, params.task, terms), seen_time(params.task, terms)

    q, v, time = seen(obs[-1])
    moved = state.q.at[:, :2].add(-state.task_state.goal)
    sign = jnp.sign(jnp.sum(q[:, 3:7] * moved[:, 3:7], axis=1, keepdims=True))
    np.testing.assert_allclose(q.at[:, 3:7].multiply(sign), moved, atol=2e-5)
    np.testing.assert_allclose(v, state.v, atol=2e-4)
    away = (time - state.task_state.time) * float(params.task.cadence)
    np.testing.assert_allclose(away, jnp.round(away), atol=1e-4)


def test_observations_do_not_depend_on_the_way_it_faces(env: Env, begun: Any) -> None:
    """But for the trunk's axes: a robot that is turned, with its place, sees the same."""
    environment, params = env
    state = jax.tree.map(lambda x: x[0], begun[1])
    state = state.replace(v=jax.random.normal(jax.random.key(0), (18,)))
    c, s = np.cos(1.0), np.sin(1.0)
    R = jnp.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    turn = jnp.array([np.cos(0.5), 0, 0, np.sin(0.5)])
    q = state.q.at[:3].set(R @ state.q[:3])
    q = q.at[3:7].set(quaternion_multiply(turn, state.q[3:7]))
    place = R[:2, :2] @ state.task_state.goal
    goal = dataclasses.replace(state.task_state, goal=place)
    turned = state.replace(q=q, v=state.v.at[:3].set(R @ state.v[:3]), task_state=goal)
    seen = jax.jit(lambda x: params.task.observation_terms(*task_inputs(environment.robot, x)))
    one, other = seen(state), seen(turned)
    for name in one:
        if name != "trunk_axes":
            np.testing.assert_allclose(one[name], other[name], atol=1e-5, err_msg=name)


# --- what counts ----------------------------------------------------------------------------------


def test_to_stand_is_not_to_trot(env: Env, stepped: Any) -> None:
    """The feet's mean distance from their heights is known of one that stands."""
    _, params = env
    info, task = stepped[1][3], params.task
    gait = (task.phases, task.cadence, task.amplitude, task.duty)
    wanted = float(jnp.mean(swing_heights(np.linspace(0, 0.5, 1000), *gait)))
    left = (1 - 2.0 / 50) ** 60  # of the height of a step, with which it begins
    expected = wanted + left * (0.03 - wanted)
    assert float(info["foot_error"][-1, :32].mean()) == pytest.approx(expected, rel=0.08)
    assert not info["success"].any()


def test_a_robot_that_lies_has_fallen(env: Env, stepped: Any) -> None:
    environment, params = env
    state = jax.tree.map(lambda x: x[0], stepped[0])
    task: Any = params.task

    def fallen(q: Any) -> bool:
        robot, motion, task_state = task_inputs(environment.robot, state.replace(q=q))
        return bool(task.terminated(robot, motion, task_state))

    over = jnp.array([np.cos(0.6), np.sin(0.6), 0.0, 0.0])  # by 1.2 rad
    assert not fallen(state.q)
    assert fallen(state.q.at[2].set(0.1))
    assert fallen(state.q.at[3:7].set(over))


def test_a_fall_ends_the_episode_without_success(stepped: Any) -> None:
    _, _, terminated, info = stepped[1]
    assert terminated[:, 32:].any()
    assert not terminated[:, :32].any()
    assert (terminated == info["fallen"]).all()
    assert not (info["success"] & info["fallen"]).any()


def test_the_error_of_feet_forgets(env: Env) -> None:
    """By a share of what is new that is the share of a period that has gone by."""
    environment, params = env
    robot, task = environment.robot, params.task
    state = TrotState(jnp.zeros(2), jnp.array(0.3), jnp.array(0.2), jnp.array(0.03))
    q = jnp.asarray(robot.q_default, float)
    poses = dynamics.forward_kinematics(robot, q)
    motion = Motion(q, jnp.zeros(18), poses, None, jnp.zeros(12), jnp.zeros(12))  # type: ignore[arg-type]
    gait = (task.phases, task.cadence, task.amplitude, task.duty)
    now = jnp.mean(swing_heights(0.3, *gait))
    after = task.after(robot, motion, state)
    assert float(after.foot_error) == pytest.approx(0.8 * 0.03 + 0.2 * float(now), abs=1e-4)
    assert float(after.seen) == pytest.approx(0.3)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"id": "A1Trot-v0", "action": "ee_delta_pose"}, ConfigError, "walks.*joint_position"),
        ({"robot": "a1", "task": "reach"}, ConfigError, "walks.*trot"),
        ({"robot": "a1", "task": "pick"}, ConfigError, "no gripper"),
        ({"robot": "panda", "task": "trot"}, ConfigError, "floats|feet"),
        ({"id": "A1Trot-v0", "task_options": {"duty": 0.0}}, ConfigError, "duty=.*above 0"),
        ({"id": "A1Trot-v0", "task_options": {"cadence": 0.0}}, ConfigError, "cadence.*positive"),
        ({"id": "A1Trot-v0", "task_options": {"goal_low": (1.0, 0.0)}}, ConfigError, "lower ones"),
        ({"id": "A1Trot-v0", "task_options": {"trunk": "trunc"}}, UnknownNameError, "trunk"),
        ({"id": "A1Trot-v0", "scene_options": {"frict": 1.0}}, UnknownNameError, "friction"),
    ],
)
def test_what_cannot_be_is_told(options: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        fraxenv.make(**options)


def test_a_number_for_each_foot() -> None:
    with pytest.raises(ConfigError, match=r"phases.*one number for each of the feet"):
        Trot(phases=(0.0, 0.5))


def test_ground_is_for_feet_on_a_base_that_floats() -> None:
    with pytest.raises(ConfigError, match="welded"):
        walking_scene(dynamics.load_robot("a1", floating_base=False))
    with pytest.raises(ConfigError, match="expected feet"):
        foot_names(dynamics.load_robot("panda"))
    g1 = dynamics.load_robot("g1")
    assert foot_names(g1) == ("left_foot", "right_foot")
    with pytest.raises(ConfigError, match=r"left_foot.*no sphere in its middle"):
        walking_scene(g1)


def test_another_frame_may_be_sent_to_places() -> None:
    env, params = fraxenv.make("A1Trot-v0", end_effector="trunk")
    assert params.task.hands.names == ("trunk",)
    assert params.controller.decoupling == "none"
    assert env.num_actions == 12


def test_a_robot_of_ones_own_may_trot() -> None:
    """Its joints are springs, as those of the bundled one, by their own stiffness."""
    robot = dynamics.load_robot("a1").replace(mass=2 * np.asarray(dynamics.load_robot("a1").mass))
    env, params = fraxenv.make(robot=robot, task="trot", end_effector="head")
    assert params.controller.decoupling == "none"
    assert not params.controller.gravity_compensation
    assert float(np.sum(env.robot.mass)) == pytest.approx(2 * 12.453)


# --- plans that walk ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("action", ["torque", "joint_position"])
def test_it_trots_by_plans(action: str) -> None:
    torque: Any = {"policy_hz": 100, "control_hz": 500, "max_steps_in_episode": 300}
    options = torque if action == "torque" else {}
    env, params = fraxenv.make("A1Trot-v0", action=action, **options)
    episode = episode_of(env, params, mpc_policy(env, params))
    for k in range(6):
        terminated, info = episode(jax.random.key(k))
        assert not terminated.any()
        assert bool(info["success"][-1])
        assert float(info["position_error"][-50:].max()) < 0.03
        assert float(info["foot_error"][-1]) < 0.006


def test_plans_are_for_what_can_be_planned(env: Env) -> None:
    environment, params = fraxenv.make("A1Trot-v0", action="joint_delta")
    with pytest.raises(ConfigError, match=r"no policy 'mpc'.*JointDelta.*joint_position"):
        mpc_policy(environment, params)
