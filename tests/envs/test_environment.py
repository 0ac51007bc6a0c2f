"""The environment core: protocol, semantics, isolation, determinism."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import chex
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.wrappers.purerl import LogWrapper
from jax import Array
from support import with_slow

import fraxenv
from fraxenv import dynamics
from fraxenv.envs import Environment, EnvParams, EnvState
from fraxenv.errors import ActionError

IDS = ("PandaReach-v0", "MobileTrack-v0")
"""test_ids.py has them all."""

INFO_KEYS = {
    "terminated",
    "truncated",
    "final_observation",
    "success",
    "diverged",
    "reward_terms",
    "safety",
    "controller",
    "position_error",
    "orientation_error",
}

Env = tuple[Environment, EnvParams]


@pytest.fixture(scope="module", params=with_slow(IDS, "MobileTrack-v0"))
def env(request: pytest.FixtureRequest) -> Env:
    return fraxenv.make(request.param)


@pytest.fixture(scope="module")
def reach() -> Env:
    """A small robot, for what is the same of every environment."""
    pendulum = dynamics.load_robot("double_pendulum").replace(q_default=np.array([0.5, 0.5]))
    return fraxenv.make(robot=pendulum, task="reach", action="joint_delta")


N = 1024
"""Environments at once: as many in most of the tests, which so share a program."""


@partial(jax.jit, static_argnums=0)
def reset_all(environment: Environment, keys: Array, params: EnvParams) -> tuple[Array, EnvState]:
    return jax.vmap(environment.reset, in_axes=(0, None))(keys, params)


@partial(jax.jit, static_argnums=0)
def step_all(
    environment: Environment, keys: Array, state: EnvState, actions: Array, params: EnvParams
) -> Any:
    return jax.vmap(environment.step, in_axes=(0, 0, 0, None))(keys, state, actions, params)


def batch(env: Env, n: int = N, seed: int = 0) -> tuple[Array, EnvState, Array, Array]:
    """Observations, states, random actions and keys of n environments."""
    environment, params = env
    keys = jax.random.split(jax.random.key(seed), n)
    obs, state = reset_all(environment, keys, params)
    size = environment.num_actions
    actions = jax.random.uniform(jax.random.key(seed + 1), (n, size), minval=-1.0, maxval=1.0)
    return obs, state, actions, keys


# --- protocol -----------------------------------------------------------------------------------


def test_gymnax_protocol(env: Env) -> None:
    environment, params = env
    assert isinstance(environment, gymnax.environments.environment.Environment)
    assert environment.name in IDS
    assert isinstance(environment.action_space(params), gymnax.environments.spaces.Box)
    key = jax.random.key(0)
    obs, state = environment.reset(key, params)
    action = environment.action_space(params).sample(key)
    assert environment.observation_space(params).contains(obs)
    step = environment.step(key, state, action, params)
    assert len(step) == 6
    obs, state, reward, terminated, truncated, info = step
    assert environment.observation_space(params).contains(obs)
    assert obs.shape == environment.observation_space(params).shape
    assert (reward.shape, terminated.shape, truncated.shape) == ((), (), ())
    assert (terminated.dtype, truncated.dtype) == (jnp.bool_, jnp.bool_)
    assert set(info) == INFO_KEYS
    assert len(jax.eval_shape(environment.step_env, key, state, action, params)) == 5
    assert int(state.replace(time=jnp.int32(3)).time) == 3
    assert int(params.replace(max_steps_in_episode=7).max_steps_in_episode) == 7


def test_params_are_optional(reach: Env) -> None:
    environment, params = reach
    key = jax.random.key(0)
    obs, state = environment.reset(key)
    chex.assert_trees_all_equal(obs, environment.reset(key, params)[0])
    assert len(environment.step(key, state, jnp.zeros(2))) == 6


def test_gymnax_wrappers_take_it(reach: Env) -> None:
    environment, params = reach
    wrapped = LogWrapper(environment)
    key = jax.random.key(0)
    _, state = wrapped.reset(key, params)
    *_, info = wrapped.step(key, state, jnp.zeros(2), params)
    assert "returned_episode_returns" in info


def test_identity_is_content() -> None:
    environment, _ = fraxenv.make("PandaReach-v0")
    twin, _ = fraxenv.make("PandaReach-v0")
    other, _ = fraxenv.make("PandaReach-v0", task_options={"position_tolerance": 0.01})
    assert environment == twin == copy.deepcopy(environment)
    assert hash(environment) == hash(twin) == hash(copy.deepcopy(environment))
    assert environment != other
    assert environment != fraxenv.make("PandaReach-v0", policy_hz=25)[0]
    assert environment != environment.with_transition_gradients()


def test_leaves_are_strongly_typed(env: Env) -> None:
    environment, params = env
    key = jax.random.key(0)
    action = jnp.zeros(environment.num_actions)
    out = jax.eval_shape(environment.step, key, environment.reset(key, params)[1], action, params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(out):
        assert not leaf.weak_type, jax.tree_util.keystr(path)


def test_step_compiles_once() -> None:
    """Through resets, autoresets, and a second environment made alike."""
    # Rates that no other test has, which may have compiled its own in this process.
    pendulum = dynamics.load_robot("double_pendulum")
    options = {"robot": pendulum, "task": "reach", "action": "joint_delta"} | {
        "max_steps_in_episode": 2, "control_hz": 150, "physics_hz": 300
    }  # fmt: skip
    environment, params = fraxenv.make(**options)
    _, state, actions, keys = batch((environment, params), 3)
    step = jax.jit(jax.vmap(environment.step, in_axes=(0, 0, 0, None)))
    for _ in range(5):
        _, state, *_ = step(keys, state, actions, params)
    twin, twin_params = fraxenv.make(**options)
    before = Environment.step._cache_size()
    single = jax.tree.map(lambda x: x[0], state)
    for e, p in ((environment, params), (twin, twin_params), (environment, params)):
        e.step(keys[0], single, actions[0], p)
    assert step._cache_size() == 1
    assert Environment.step._cache_size() == before + 1


# --- batches and determinism --------------------------------------------------------------------


def test_vmap_equals_loop(env: Env) -> None:
    """1024 environments at once against some of them alone, to float32 rounding."""
    environment, params = env
    _, state, actions, keys = batch(env)
    together = step_all(environment, keys, state, actions, params)
    for i in range(0, N, 8):
        one = jax.tree.map(lambda x, i=i: x[i], (keys, state, actions))
        alone = environment.step(*one, params)
        pick = jax.tree.map(lambda x, i=i: x[i], (together[0], together[1].q, together[2]))
        alone = (alone[0], alone[1].q, alone[2])
        chex.assert_trees_all_close(alone, pick, rtol=5e-5, atol=5e-5)


def test_same_seed_same_trajectory(env: Env) -> None:
    """Bitwise, twice, and whatever the other environments of the batch do."""

    def trajectory(actions: Array) -> Any:
        _, state, _, keys = batch(env)
        out = []
        for _ in range(5):
            obs, state, reward, *_ = step_all(env[0], keys, state, actions, env[1])
            out.append((obs, reward, state))
        return out

    _, _, actions, _ = batch(env)
    first = trajectory(actions)
    chex.assert_trees_all_equal(first, trajectory(actions))
    others = trajectory(actions.at[1:].set(-actions[1:]))
    pick = jax.tree.map(lambda x: x[0], (first, others))
    chex.assert_trees_all_equal(*pick)


def test_resets_differ() -> None:
    reach = fraxenv.make("PandaReach-v0")
    obs, state, *_ = batch(reach)
    assert len(np.unique(np.asarray(obs), axis=0)) == N
    goals = np.asarray(state.task_state.position)
    task = reach[1].task
    assert np.all((goals >= task.goal_low) & (goals <= task.goal_high))
    spread = np.asarray(task.goal_high) - np.asarray(task.goal_low)
    assert np.all(np.ptp(goals, axis=0) > 0.8 * spread)


# --- the ends of episodes -----------------------------------------------------------------------


def test_truncation_autoresets(reach: Env) -> None:
    environment, _ = reach
    params = reach[1].replace(max_steps_in_episode=3)
    key = jax.random.key(0)
    _, state = environment.reset(key, params)
    action = jnp.full(2, 0.5)
    step_env, reset_env = jax.jit(environment.step_env), jax.jit(environment.reset_env)
    for t in range(1, 4):
        key, key_step = jax.random.split(key)
        expected = step_env(jax.random.split(key_step)[0], state, action, params)
        obs, state, reward, terminated, truncated, info = environment.step(
            key_step, state, action, params
        )
        # Not to the bit: the two are compiled as different programs.
        np.testing.assert_allclose(info["final_observation"], expected[0], atol=1e-5)
        np.testing.assert_allclose(reward, expected[2], atol=1e-5)
        assert not bool(terminated)
        assert bool(truncated) == (t == 3)
        assert int(state.time) == (0 if t == 3 else t)
        if t < 3:
            np.testing.assert_array_equal(obs, info["final_observation"])
        else:
            fresh, _ = reset_env(jax.random.split(key_step)[1], params)
            np.testing.assert_allclose(obs, fresh, atol=1e-5)
            assert not np.allclose(obs, info["final_observation"], atol=1e-2)


@pytest.mark.parametrize("steps_left", [1, 5])
@pytest.mark.parametrize("what", ["q", "v", "action"])
def test_divergence_ends_the_episode(reach: Env, what: str, steps_left: int) -> None:
    """Terminated, and truncated too where time was up anyway; everything returned is finite."""
    environment, _ = reach
    params = reach[1].replace(max_steps_in_episode=steps_left)
    key = jax.random.key(0)
    _, state = environment.reset(key, params)
    action = jnp.zeros(2)
    if what == "action":
        action = action.at[1].set(jnp.nan)
    else:
        state = state.replace(**{what: getattr(state, what).at[0].set(jnp.inf)})
    obs, new, reward, terminated, truncated, info = environment.step(key, state, action, params)
    assert bool(terminated)
    assert bool(info["diverged"])
    assert bool(truncated) == (steps_left == 1)
    assert float(reward) == 0.0
    assert int(new.time) == 0
    chex.assert_tree_all_finite((obs, new.q, new.v))
    if what == "action":
        chex.assert_tree_all_finite({k: v for k, v in info.items() if k != "safety"})


def test_explosion_is_divergence(reach: Env) -> None:
    """A finite but absurd velocity counts too, before it becomes infinite."""
    environment, params = reach
    key = jax.random.key(0)
    _, state = environment.reset(key, params)
    state = state.replace(v=state.v.at[1].set(3e3))
    *_, terminated, _, info = environment.step(key, state, jnp.zeros(2), params)
    assert bool(terminated)
    assert bool(info["diverged"])


def test_a_diverged_environment_harms_no_neighbour(reach: Env) -> None:
    environment, params = reach
    _, state, actions, keys = batch(reach)
    healthy = step_all(environment, keys, state, actions, params)
    bad = state.replace(q=state.q.at[17].set(jnp.nan))
    poisoned = step_all(environment, keys, bad, actions, params)
    others = np.delete(np.arange(N), 17)
    pick = jax.tree.map(lambda x: np.asarray(x)[others], (healthy, poisoned))
    chex.assert_trees_all_equal(*pick)
    assert bool(poisoned[3][17])
    assert bool(jnp.all(jnp.isfinite(poisoned[0])))


# --- rewards, rates, parameters -----------------------------------------------------------------


def test_reward_is_the_weighted_sum(env: Env) -> None:
    environment, params = env
    _, state, actions, keys = batch(env)
    _, _, reward, _, _, info = step_all(environment, keys, state, actions, params)
    weights = params.task.reward_weights
    assert set(weights) == set(info["reward_terms"])
    total = sum(float(w) * np.asarray(info["reward_terms"][k]) for k, w in weights.items())
    # Some of them: where terms cancel, no digits are left.
    np.testing.assert_allclose(reward[:16], total[:16], rtol=1e-5)
    np.testing.assert_allclose(info["reward_terms"]["position_error"], info["position_error"])


def test_default_rates_and_length(env: Env) -> None:
    environment, params = env
    assert (environment.policy_hz, environment.control_hz, environment.physics_hz) == (
        50,
        1000,
        1000,
    )
    assert 2.0 <= int(params.max_steps_in_episode) / environment.policy_hz <= 4.0


@pytest.mark.slow
def test_rates_do_what_they_say() -> None:
    """A policy step takes 1 / policy_hz; finer physics converges to the same motion."""
    moved = {}
    for rates in (
        {"physics_hz": 2000},
        {"physics_hz": 4000},
        {"control_hz": 500},
        {"policy_hz": 25},
    ):
        environment, params = fraxenv.make("PandaReach-v0", action="torque", **rates)
        _, state = environment.reset(jax.random.key(0), params)
        action = 0.05 * jnp.ones(7)
        steps = 2 * environment.policy_hz // 50 or 1
        for _ in range(steps):
            _, state, *_ = environment.step_env(jax.random.key(0), state, action, params)
        moved[str(rates)] = np.asarray(state.q)
    reference = moved["{'physics_hz': 4000}"]
    for name, q in moved.items():
        np.testing.assert_allclose(q, reference, atol=3e-3, err_msg=name)


def test_parameters_can_be_batched(reach: Env) -> None:
    """A robot per environment: with the stronger gravity it falls faster."""
    robot = reach[0].robot
    environment, params = fraxenv.make(robot=robot, task="reach", action="torque")
    _, state = environment.reset(jax.random.key(0), params)
    gravity = jnp.array([[0.0, 0.0, 0.0], [0.0, 0.0, -9.81], [0.0, 0.0, -20.0]])

    def fall(g: Array) -> Array:
        batched = params.replace(robot=environment.robot.replace(gravity=g))
        return environment.step_env(jax.random.key(0), state, jnp.zeros(2), batched)[1].v

    v = jax.jit(jax.vmap(fall))(gravity)
    assert float(jnp.abs(v[0]).max()) < 1e-5
    assert np.all(np.abs(v[2]) > 1.5 * np.abs(v[1]))


@pytest.mark.slow
def test_gradients_through_a_step() -> None:
    """Detached unless asked for, as gymnax has it; equal to differences where asked for."""
    pendulum = dynamics.load_robot("double_pendulum").replace(q_default=np.array([0.5, 0.5]))
    environment, params = fraxenv.make(  # small, because reverse mode is slow to compile
        robot=pendulum, task="reach", action="joint_delta", control_hz=100, backend="vmap"
    )
    key = jax.random.key(0)
    _, state = environment.reset(key, params)
    action = jnp.array([0.2, 0.2])

    def joint(env: Environment) -> Any:
        return lambda a: env.step_env(key, state, a, params)[1].q[1]

    assert float(jnp.abs(jax.jit(jax.grad(joint(environment)))(action)).max()) == 0.0
    through = joint(environment.with_transition_gradients())
    gradient = jax.jit(jax.grad(through))(action)
    forward = jax.jit(jax.jacfwd(through))(action)
    np.testing.assert_allclose(gradient, forward, rtol=1e-4, atol=1e-7)
    eps, value = 1e-2, jax.jit(through)
    for i in range(2):
        plus, minus = (value(action.at[i].add(s)) for s in (eps, -eps))
        difference = float(plus - minus) / (2 * eps)
        assert abs(difference - float(gradient[i])) < 2e-2 * float(jnp.abs(gradient).max())


# --- wrong input --------------------------------------------------------------------------------


def test_wrong_actions_are_refused() -> None:
    environment, params = fraxenv.make("PandaReach-v0")
    key = jax.random.key(0)
    _, state = environment.reset(key, params)
    with pytest.raises(ActionError, match=r"shape \(7,\), expected \(6,\): dx, dy, dz, drx"):
        environment.step(key, state, jnp.zeros(7), params)
    with pytest.raises(ActionError, match=r"dtype int32, expected a floating-point one"):
        environment.step(key, state, jnp.zeros(6, int), params)


def test_actions_are_clipped(reach: Env) -> None:
    environment, params = reach
    key = jax.random.key(0)
    _, state = environment.reset(key, params)
    far = environment.step(key, state, 7.0 * jnp.ones(2), params)
    chex.assert_trees_all_equal(far, environment.step(key, state, jnp.ones(2), params))
