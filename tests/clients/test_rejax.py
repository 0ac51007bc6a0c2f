"""rejax on top of `FiveTuple`: it runs, and it learns."""

from __future__ import annotations

import copy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fraxenv
from fraxenv.training import PPOConfig, evaluate, read_metrics, train
from fraxenv.wrappers import FiveTuple


@pytest.mark.slow
def test_five_values() -> None:
    env, params = fraxenv.make("PandaReach-v0", control_hz=100, max_steps_in_episode=2)
    wrapped = FiveTuple(env)
    key = jax.random.key(0)
    _obs, state = wrapped.reset(key, params)
    _obs, state, _reward, done, _info = wrapped.step(key, state, jnp.zeros(6), params)
    assert not bool(done)
    _obs, state, _reward, done, info = wrapped.step(key, state, jnp.zeros(6), params)
    assert bool(done)
    assert done.dtype == jnp.bool_
    assert bool(info["truncated"])
    assert not bool(info["terminated"])
    six = env.step(key, env.reset(key, params)[1], jnp.zeros(6), params)
    five = wrapped.step(key, wrapped.reset(key, params)[1], jnp.zeros(6), params)
    np.testing.assert_array_equal(six[2], five[2])


def test_deepcopy_hash_and_attributes() -> None:
    env, params = fraxenv.make("PandaReach-v0")
    wrapped = FiveTuple(env)
    twin = copy.deepcopy(wrapped)
    assert twin == wrapped
    assert hash(twin) == hash(wrapped)
    assert wrapped != env
    assert wrapped.default_params is env.default_params
    assert wrapped.action_space(params).shape == (6,)
    with pytest.raises(AttributeError):
        _ = wrapped.no_such_attribute


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["PPO", "SAC"])
def test_rejax_trains(algorithm: str) -> None:
    """The library's own entry points, as its users call them."""
    rejax = pytest.importorskip("rejax")
    env, params = fraxenv.make("PandaReach-v0", control_hz=100, max_steps_in_episode=20)
    options = {"num_envs": 4, "total_timesteps": 512, "eval_freq": 256}
    if algorithm == "PPO":
        options |= {"num_steps": 16, "num_minibatches": 2, "num_epochs": 1}
    else:
        options |= {"buffer_size": 1024, "fill_buffer": 64, "batch_size": 32}
    algo = getattr(rejax, algorithm).create(env=FiveTuple(env), env_params=params, **options)
    _, (lengths, returns) = jax.jit(algo.train)(jax.random.key(0))
    assert np.all(np.asarray(lengths) == 20)
    assert np.all(np.isfinite(returns))


@pytest.mark.slow
def test_ppo_improves(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """A short budget on three numbers: the hand ends several times nearer than at first."""
    config = PPOConfig(
        overrides={"action": "ee_delta_position", "control_hz": 200, "max_steps_in_episode": 75},
        total_timesteps=131_072,
        num_envs=128,
        updates_per_round=8,
        num_minibatches=4,
        eval_episodes=64,
    )
    train(config, tmp_path / "run")
    metrics = read_metrics(tmp_path / "run")
    assert metrics[-1]["position_error"] < 0.5 * metrics[0]["position_error"]
    assert metrics[-1]["return"] > metrics[0]["return"]


@pytest.mark.slow
def test_sac_improves() -> None:
    """In about a minute: mean returns of episodes -2.4 at first, and -1.4 at the end."""
    rejax = pytest.importorskip("rejax")
    options = {"action": "ee_delta_position", "control_hz": 200, "max_steps_in_episode": 50}
    env, params = fraxenv.make("PandaReach-v0", **options)
    algo = rejax.SAC.create(
        env=FiveTuple(env),
        env_params=params,
        total_timesteps=60_000,
        eval_freq=60_000,
        num_envs=64,
        num_epochs=32,
        buffer_size=65_536,
        fill_buffer=4096,
        batch_size=256,
        gamma=0.95,
        learning_rate=1e-3,
        normalize_observations=True,
        agent_kwargs={"hidden_layer_sizes": (64, 64)},
    )
    _, (_, returns) = jax.jit(algo.train)(jax.random.key(0))
    first, *_, last = np.asarray(returns).mean(axis=1)
    assert last > first + 0.5


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_reaches_95_percent(algorithm: str, tmp_path: Path) -> None:
    """The main job as it ships: >= 95 % success and a median final distance <= 10 mm."""
    from fraxenv.training import evaluate_in_parts, join_evaluations, load_policy, preset

    config = preset("PandaReach-v0", algorithm)
    train(config, tmp_path / "run")
    policy, env, params, _ = load_policy(tmp_path / "run")
    result = join_evaluations(list(evaluate_in_parts(env, params, policy, config.final_episodes)))
    assert result.success.mean() >= 0.95
    assert np.median(result.measures["position_error"]) <= 0.010
    random_policy = jax.jit(
        lambda key: evaluate(env, params, lambda obs: jnp.tanh(10 * jnp.sin(obs[:6])), key, 256)
    )(jax.random.key(1))
    assert float(np.mean(random_policy.success)) < 0.2
