"""Brax's training on `BraxEnv`. Needs the extra `brax`; skipped without it."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fraxenv
from fraxenv.errors import ConfigError, EnvStateError

pytest.importorskip("brax.envs")

from brax.envs import base
from brax.envs.wrappers import training
from brax.training.agents.ppo import networks as ppo_networks
from brax.training.agents.ppo import train as ppo

from fraxenv.wrappers import BraxEnv, RandomResetWrapper, wrap_for_brax

ID = "PandaReach-v0"
OPTIONS: dict[str, Any] = {"action": "ee_delta_position", "control_hz": 100, "physics_hz": 100}
STEPS = 4
NUM_ENVS = 3


def make(**options: Any) -> BraxEnv:
    env, _ = fraxenv.make(ID, **{"max_steps_in_episode": STEPS, **OPTIONS, **options})
    return BraxEnv(env)


def keys(seed: int, count: int = NUM_ENVS) -> jax.Array:
    return jax.random.split(jax.random.PRNGKey(seed), count)


def structure(tree: Any) -> list[Any]:
    leaves = [(x.shape, x.dtype, jnp.asarray(x).weak_type) for x in jax.tree.leaves(tree)]
    return [jax.tree.structure(tree), *leaves]


@pytest.fixture
def brax_knows_this_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brax 0.14.2 trains with `jax.device_put_replicated`, which JAX 0.10 no longer has."""
    if hasattr(jax, "device_put_replicated"):
        return

    def device_put_replicated(tree: Any, devices: list[Any]) -> Any:
        mesh = jax.sharding.Mesh(np.array(devices), ("i",))  # the name of Brax's axis
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
        return jax.tree.map(
            lambda x: jax.device_put(jnp.stack([jnp.asarray(x)] * len(devices)), sharding), tree
        )

    monkeypatch.setattr(jax, "device_put_replicated", device_put_replicated, raising=False)


def test_it_is_an_environment_of_brax() -> None:
    env = make()
    assert isinstance(env, base.Env)
    assert env.unwrapped is env
    assert (env.observation_size, env.action_size, env.backend, env.dt) == (26, 3, "fraxenv", 0.02)
    state = jax.jit(env.reset)(jax.random.PRNGKey(0))
    assert isinstance(state, base.State)
    new = jax.jit(env.step)(state, jnp.zeros(3))
    assert structure(state) == structure(new)
    for x in (new.reward, new.done, *new.metrics.values()):
        assert (x.shape, x.dtype) == ((), jnp.float32)
    assert {"success", "position_error", "reward/action_rate", "safety/slack"} <= set(new.metrics)


def test_step_is_the_environments_own() -> None:
    env = make(randomisation={"observation_noise": 0.01})
    state = jax.jit(env.reset)(jax.random.PRNGKey(0))
    action = jnp.array([0.5, -0.2, 1.0])
    step = jax.jit(env.step)
    new = step(state, action)
    _, key = jax.random.split(state.info["rng"])
    own = jax.jit(env.env.step_env)(key, state.pipeline_state, action, env.params)
    obs, _, reward, _, info = own
    np.testing.assert_allclose(new.obs, obs, atol=1e-6)
    np.testing.assert_allclose(new.reward, reward, rtol=1e-6)
    np.testing.assert_allclose(new.metrics["position_error"], info["position_error"], rtol=1e-6)
    again = step(new, action)
    assert not np.array_equal(again.info["rng"], new.info["rng"])  # noise is drawn anew


def test_goal_environments_have_several_observations() -> None:
    env = make(goal_env=True)
    shapes = {"observation": (20,), "achieved_goal": (3,), "desired_goal": (3,)}
    assert env.observation_size == shapes
    state = env.reset(jax.random.PRNGKey(0))
    assert {name: x.shape for name, x in state.obs.items()} == shapes
    new = wrap_for_brax(env).reset(keys(0))
    assert new.obs["observation"].shape == (NUM_ENVS, 20)


@pytest.mark.parametrize("wrap", [training.wrap, wrap_for_brax])
def test_episodes_are_truncated_and_begin_again(wrap: Any) -> None:
    envs = wrap(make(), episode_length=STEPS)
    step = jax.jit(envs.step)
    first = state = jax.jit(envs.reset)(keys(0))
    for t in range(1, 2 * STEPS + 1):
        before, state = state, step(state, jnp.zeros((NUM_ENVS, 3)))
        assert structure(before) == structure(state)
        over = t % STEPS == 0
        np.testing.assert_array_equal(state.done, [float(over)] * NUM_ENVS)
        np.testing.assert_array_equal(state.info["truncation"], [float(over)] * NUM_ENVS)
        np.testing.assert_array_equal(state.info["steps"], [float((t - 1) % STEPS + 1)] * NUM_ENVS)
    same = np.all(np.asarray(state.obs) == np.asarray(first.obs), axis=1)
    assert same.tolist() == [wrap is training.wrap] * NUM_ENVS  # what Brax's users complain of


def test_random_resets_keep_the_last_observation() -> None:
    """Of environments that end at different times."""
    env = make()
    envs = wrap_for_brax(env, episode_length=STEPS)
    assert isinstance(envs, RandomResetWrapper)
    state = envs.reset(keys(0))
    broken = state.pipeline_state.v.at[1, 0].set(1e20)
    state = state.replace(pipeline_state=state.pipeline_state.replace(v=broken))
    step = jax.jit(envs.step)
    new = step(state, jnp.zeros((NUM_ENVS, 3)))
    assert new.done.tolist() == [0.0, 1.0, 0.0]
    assert new.info["truncation"].tolist() == [0.0, 0.0, 0.0]
    assert new.metrics["diverged"].tolist() == [0.0, 1.0, 0.0]
    assert new.pipeline_state.time.tolist() == [1, 0, 1]
    alike = np.all(np.asarray(new.obs) == np.asarray(new.info["final_observation"]), axis=1)
    assert alike.tolist() == [True, False, True]
    last = jax.jit(jax.vmap(env.step))(state, jnp.zeros((NUM_ENVS, 3))).obs
    np.testing.assert_allclose(new.info["final_observation"], last, atol=1e-5)
    for _ in range(1, STEPS):
        new = step(new, jnp.zeros((NUM_ENVS, 3)))
    assert new.info["steps"].tolist() == [STEPS, STEPS - 1, STEPS]
    assert new.done.tolist() == [1.0, 0.0, 1.0]


def test_episode_length_is_the_environments_by_default() -> None:
    assert wrap_for_brax(make()).episode_length == STEPS


def test_wrong_input_is_refused() -> None:
    env = make()
    with pytest.raises(ConfigError, match=r"randomization_fn=.*expected None.*randomisation="):
        wrap_for_brax(env, randomization_fn=lambda sys: (sys, None))
    state = env.reset(jax.random.PRNGKey(0))
    other, _ = fraxenv.make("UR10Reach-v0", **OPTIONS)
    foreign = BraxEnv(other).reset(jax.random.PRNGKey(0)).pipeline_state
    with pytest.raises(EnvStateError, match="another environment's"):
        env.step(state.replace(pipeline_state=foreign), jnp.zeros(3))


def learn(steps: int, **options: Any) -> tuple[BraxEnv, Any, list[dict[str, Any]]]:
    """Brax's PPO on 256 environments: the environment, the policy, and its evaluations."""
    env = make(control_hz=200, physics_hz=1000, max_steps_in_episode=75)
    evaluations: list[dict[str, Any]] = []
    make_policy, parameters, _ = ppo.train(
        env,
        num_timesteps=steps,
        episode_length=75,
        num_envs=256,
        unroll_length=16,
        batch_size=256,
        num_minibatches=8,
        num_updates_per_batch=4,
        discounting=0.95,
        learning_rate=1e-3,
        entropy_cost=1e-3,
        normalize_observations=True,
        deterministic_eval=True,
        network_factory=functools.partial(
            ppo_networks.make_ppo_networks,
            policy_hidden_layer_sizes=(64, 64),
            value_hidden_layer_sizes=(128, 128),
        ),
        progress_fn=lambda _, metrics: evaluations.append(metrics),
        num_evals=2,
        **options,
    )
    return env, make_policy(parameters, deterministic=True), evaluations


@pytest.mark.slow
@pytest.mark.usefixtures("brax_knows_this_jax")
@pytest.mark.parametrize("options", [{"wrap_env_fn": wrap_for_brax}, {}])
def test_ppo_improves(options: dict[str, Any]) -> None:
    """With random resets, and with Brax's own wrappers."""
    _, _, (first, last) = learn(400_000, **options)
    assert last["eval/episode_reward"] > first["eval/episode_reward"] + 2.0
    assert last["eval/episode_position_error"] < 0.7 * first["eval/episode_position_error"]


@pytest.mark.slow
@pytest.mark.usefixtures("brax_knows_this_jax")
def test_ppo_reaches_95_percent() -> None:
    env, policy, _ = learn(2_500_000, wrap_env_fn=wrap_for_brax)

    def episode(key: jax.Array) -> jax.Array:
        def step(state: base.State, _: None) -> tuple[base.State, None]:
            return env.step(state, policy(state.obs, key)[0]), None

        return jax.lax.scan(step, env.reset(key), None, 75)[0].metrics["success"]

    success = jax.jit(jax.vmap(episode))(keys(1, 512))
    assert float(jnp.mean(success)) >= 0.95
