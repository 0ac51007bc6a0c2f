"""Goal environments, and resets from a pool."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy.spatial.transform import Rotation

import fraxenv
from fraxenv.envs import Environment, EnvParams, GoalEnvironment
from fraxenv.envs.observation import task_inputs
from fraxenv.errors import ArrayError, ConfigError

Env = tuple[Environment, EnvParams]
KEY = jax.random.key(0)


def make(**options: Any) -> Any:
    """A small environment, as what is said here does not depend on the robot."""
    pendulum = fraxenv.dynamics.load_robot("double_pendulum")
    pendulum = pendulum.replace(q_default=np.array([0.5, 0.5]))
    rates = {"control_hz": 100, "physics_hz": 100}
    options = {"task": "reach", "action": "joint_delta"} | rates | options
    return fraxenv.make(robot=pendulum, **options)


@pytest.fixture(scope="module")
def goals() -> tuple[GoalEnvironment, EnvParams]:
    env, params = make(goal_env=True)
    assert isinstance(env, GoalEnvironment)
    return env, params


def test_observations_have_goals_and_do_not_show_them_twice(goals: Any) -> None:
    env, params = goals
    plain, _ = make()
    obs, state = env.reset(KEY, params)
    task_state = state.task_state
    assert set(obs) == {"observation", "achieved_goal", "desired_goal"}
    np.testing.assert_array_equal(obs["desired_goal"], state.task_state.position[0])
    space = env.observation_space(params)
    assert all(space.spaces[k].contains(x) for k, x in obs.items())
    size = plain.observation_space().shape[0] - 6
    assert obs["observation"].shape == space.spaces["observation"].shape == (size,)
    other = state.replace(task_state=dataclasses.replace(task_state, position=jnp.ones((1, 3))))
    moved = jax.jit(lambda state: env.observe(KEY, state, None, params))(other)
    np.testing.assert_allclose(moved["observation"], obs["observation"], atol=1e-6)
    assert not np.array_equal(moved["desired_goal"], obs["desired_goal"])
    assert env != plain
    assert env != make(goal_env=True, goal_reward="dense")[0]


@pytest.mark.slow
@pytest.mark.parametrize("reward", ["sparse", "dense"])
def test_step_returns_what_compute_reward_does(reward: Any) -> None:
    env, params = fraxenv.make(
        "PandaReach-v0",
        goal_env=True,
        goal_reward=reward,
        control_hz=100,
        task_options={"position_tolerance": 0.2},
    )
    assert isinstance(env, GoalEnvironment)
    keys = jax.random.split(KEY, 64)
    _, state = jax.vmap(env.reset, (0, None))(keys, params)
    actions = jax.random.uniform(KEY, (64, 6), minval=-1.0)
    _, _, rewards, _, _, info = jax.vmap(env.step, (0, 0, 0, None))(keys, state, actions, params)
    final = info["final_observation"]
    computed = env.compute_reward(final["achieved_goal"], final["desired_goal"], {})
    np.testing.assert_allclose(rewards, computed, rtol=1e-5)
    one = env.compute_reward(final["achieved_goal"][0], final["desired_goal"][0])
    np.testing.assert_allclose(one, rewards[0], rtol=1e-5)
    if reward == "sparse":
        assert set(np.unique(rewards)) == {-1.0, 0.0}
        np.testing.assert_array_equal(rewards == 0, info["success"])
    else:
        np.testing.assert_allclose(rewards, -info["position_error"] / 0.2, rtol=1e-5)


def test_the_dense_reward_has_a_slope_where_hand_and_goal_meet() -> None:
    """Zero in its maximum, of position and of orientation; elsewhere the slope of the distance."""
    env, params = fraxenv.make(
        "PandaReach-v0",
        goal_env=True,
        goal_reward="dense",
        task_options={"orientation": True, "position_tolerance": 0.1, "orientation_tolerance": 0.5},
    )
    assert isinstance(env, GoalEnvironment)
    rotation = Rotation.from_euler("xyz", (0.4, -1.0, 2.0)).as_matrix()
    goal = jnp.asarray([0.4, 0.1, 0.3, *rotation.T[:2].ravel()], jnp.float32)

    @jax.jit
    def reward(achieved: Array) -> Array:
        return env.compute_reward(achieved, goal, params=params)

    slope = jax.jit(jax.grad(reward))
    np.testing.assert_allclose(slope(goal), 0, atol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.vmap(slope))(goal[None]), 0, atol=1e-6)
    for angle in (1e-3, 1.0, 3.0):
        turned = Rotation.from_rotvec((0, angle, 0)).as_matrix() @ rotation
        beside = goal.at[3:].set(turned.T[:2].ravel())
        np.testing.assert_allclose(reward(beside), -angle / 0.5, rtol=1e-3)
    away = goal.at[0].add(0.5)
    np.testing.assert_allclose(slope(away)[:3], (-10, 0, 0), atol=1e-4)


@pytest.mark.slow
def test_divergence_is_not_success(goals: Any) -> None:
    env, params = goals
    _, state = env.reset(KEY, params)
    for bad in ("action", "state"):
        action = jnp.full(2, jnp.nan) if bad == "action" else jnp.zeros(2)
        given = state if bad == "action" else state.replace(q=state.q.at[1].set(jnp.nan))
        _, _, reward, terminated, _, info = env.step(KEY, given, action, params)
        assert bool(terminated)
        assert float(reward) == -1.0
        assert bool(jnp.isfinite(info["final_observation"]["observation"]).all())


@pytest.mark.slow
def test_goals_with_orientation(x64: None) -> None:
    env, params = fraxenv.make("PandaReachPose-v0", goal_env=True, goal_reward="dense")
    assert isinstance(env, GoalEnvironment)
    obs, state = env.reset_env(KEY, params)
    assert obs["desired_goal"].shape == (9,)
    measured = params.task.measures(*task_inputs(env.robot, state))
    worst = max(measured["position_error"] / 0.02, measured["orientation_error"] / 0.1)
    reward = env.compute_reward(obs["achieved_goal"], obs["desired_goal"])
    np.testing.assert_allclose(reward, -worst, rtol=1e-6)


def test_wrong_goals_and_tasks(goals: Any) -> None:
    env, _ = goals
    with pytest.raises(ArrayError, match=r"achieved_goal of shape \(4,\), expected \(..., 3\)"):
        env.compute_reward(np.zeros(4), np.zeros(3))
    from fraxenv.envs import Task

    class Nothing(Task):
        def reset(self, key: Array, robot: Any) -> Any:
            return jnp.asarray(robot.q_default), ()

        def observation_terms(self, robot: Any, motion: Any, state: Any) -> Any:
            return {"q": motion.q}

        def reward_terms(self, robot: Any, motion: Any, state: Any) -> Any:
            return {}

        def measures(self, robot: Any, motion: Any, state: Any) -> Any:
            return {"success": jnp.zeros((), bool)}

    jax.tree_util.register_static(Nothing)
    with pytest.raises(ConfigError, match=r"the task Nothing has no goals.*GoalTask"):
        fraxenv.make(robot="panda", task=Nothing(), goal_env=True, reset_pool=4)
    with pytest.raises(ConfigError, match="goal_reward='shaped'"):
        fraxenv.make("PandaReach-v0", goal_env=True, goal_reward="shaped")


# --- Pools ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pooled() -> Env:
    return make(reset_pool=64, max_steps_in_episode=2)


def test_resets_come_from_the_pool_at_random(pooled: Env) -> None:
    env, params = pooled
    obs, pool = params.reset_pool
    assert pool.q.shape == (64, 2)
    assert len(np.unique(pool.q[:, 0])) == 64
    keys = jax.random.split(KEY, 1000)
    drawn, state = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)
    which = [int(np.argmin(np.abs(pool.q - q).sum(1))) for q in np.asarray(state.q)]
    np.testing.assert_array_equal(state.q, pool.q[which])
    np.testing.assert_array_equal(drawn, obs[which])
    np.testing.assert_array_equal(state.task_state.position, pool.task_state.position[which])
    count = np.bincount(which, minlength=64)
    assert count.min() > 0
    assert count.max() < 40


def test_autoreset_from_the_pool(pooled: Env) -> None:
    env, params = pooled
    keys = jax.random.split(KEY, 32)
    step = jax.jit(jax.vmap(env.step, (0, 0, 0, None)))
    _, state = jax.vmap(env.reset, (0, None))(keys, params)
    actions = jnp.full((32, 2), 0.5)
    for t in (1, 2):
        obs, state, _, terminated, truncated, info = step(keys, state, actions, params)
        assert not terminated.any()
        assert bool(truncated.all()) == (t == 2)
    pool = np.asarray(params.reset_pool[0])
    assert all((pool == o).all(1).any() for o in np.asarray(obs))
    assert not any((pool == o).all(1).any() for o in np.asarray(info["final_observation"]))
    assert not state.time.any()
    assert len(np.unique(np.asarray(obs)[:, 0])) > 10


@pytest.mark.slow
def test_the_motion_does_not_depend_on_the_pool(pooled: Env) -> None:
    env, params = pooled
    plain, plain_params = make(max_steps_in_episode=2)
    _, state = env.reset(KEY, params)
    action = 0.3 * jnp.ones(2)
    a = env.step(KEY, state, action, params)
    b = plain.step(KEY, state, action, plain_params)
    for i in (0, 2, 3, 4):
        np.testing.assert_allclose(a[i], b[i], atol=1e-6)


def test_a_new_pool_for_new_parameters(pooled: Env) -> None:
    env, params = pooled
    task: Any = params.task
    near = dataclasses.replace(task, goal_high=task.goal_low + 0.01)
    changed = params.replace(task=near)
    changed = changed.replace(reset_pool=env.draw_pool(KEY, changed, 8))
    _, state = env.reset(KEY, changed)
    assert (np.asarray(state.task_state.position) <= near.goal_high + 1e-6).all()
    with pytest.raises(ConfigError, match="reset_pool=0"):
        env.draw_pool(KEY, params, 0)
