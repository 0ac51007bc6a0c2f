"""SHAC and APG: their gradients, what they count as an end, and that they learn."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments import environment as gymnax_environment
from gymnax.environments import spaces
from jax import Array

import fraxenv
from fraxenv.envs import Measure, pytree_dataclass
from fraxenv.envs.gradients import with_finite_gradients
from fraxenv.errors import CheckpointError, ConfigError
from fraxenv.training import (
    APGConfig,
    SHACConfig,
    TrainConfig,
    evaluate,
    load_policy,
    read_metrics,
    train,
)
from fraxenv.training.algorithms import create_algorithm, init_state
from fraxenv.training.apg import Window, limited, returns

Toy = Callable[..., "Point"]


@pytree_dataclass
class PointParams:
    """Numbers of `Point`."""

    max_steps_in_episode: Any = 12
    lost_gradients: Any = None

    def replace(self, **changes: Any) -> PointParams:
        return dataclasses.replace(self, **changes)


@pytree_dataclass
class PointState:
    """Position, m, and velocity, m/s, (2,) each; policy steps so far."""

    position: Array
    velocity: Array
    time: Array


class Point(gymnax_environment.Environment):  # type: ignore[misc]
    """A mass in the plane that has to come to the origin; beyond `wall` it is lost."""

    _supports_transition_gradients = True
    default_params = PointParams()
    reported = (Measure("distance", "m"),)
    num_actions = 2

    def __init__(self, wall: float = np.inf, bad: bool = False) -> None:
        self.wall, self.bad = wall, bad

    def action_space(self, params: Any = None) -> spaces.Box:
        return spaces.Box(-1.0, 1.0, (2,))

    def observation_space(self, params: Any = None) -> spaces.Box:
        return spaces.Box(-10.0, 10.0, (4,))

    def reset_env(self, key: Array, params: Any) -> tuple[Array, PointState]:
        position = jax.random.uniform(key, (2,), float, -1.0, 1.0)
        state = PointState(position, jnp.zeros_like(position), jnp.zeros((), jnp.int32))
        return self.observe(key, state, None, params), state

    def step_env(
        self, key: Array, state: PointState, action: Array, params: Any
    ) -> tuple[Array, PointState, Array, Array, dict[str, Any]]:
        state, action, params = with_finite_gradients(state, action, params)
        velocity = 0.8 * state.velocity + 0.4 * action
        position = state.position + 0.4 * velocity + 0.05 * velocity**3
        new = PointState(position, velocity, state.time + 1)
        distance = jnp.sum(position * position)
        terminated = position[0] > self.wall
        reward = -distance
        if self.bad:  # finite, but above the middle its derivative is not
            reward += jnp.sqrt(jnp.where(position[1] > 0, 0.0 * distance, 1.0))
        success = distance < 0.05**2
        info = {"success": success, "diverged": jnp.zeros((), bool), "distance": distance}
        obs = self.observe(key, new, action, params)
        obs, new = self._apply_transition_gradient_policy(obs, new)
        return obs, new, reward, terminated, info

    def observe(self, key: Array, state: PointState, action: Any, params: Any) -> Array:
        return jnp.concatenate([state.position, state.velocity])

    def is_truncated(self, state: PointState, params: Any) -> Array:
        return state.time >= params.max_steps_in_episode


SMALL = SHACConfig(
    env="Point",
    num_envs=16,
    num_steps=8,
    updates_per_round=15,
    total_timesteps=150 * 16 * 8,
    learning_rate=1e-2,
    hidden_layer_sizes=(16,),
    eval_episodes=32,
)
SMALL_APG = APGConfig(
    **{
        f.name: getattr(SMALL, f.name)
        for f in dataclasses.fields(APGConfig)
        if f.name != "algorithm"
    }
)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Toy:
    """Makes `Point` what every configuration trains on."""

    def install(**options: Any) -> Point:
        env = Point(**options)
        for module in ("rounds", "runs"):
            made = f"fraxenv.training.{module}.make_env"
            monkeypatch.setattr(made, lambda config: (env, env.default_params))
        return env

    return install


def begun(config: TrainConfig, env: Point, updates: int = 4) -> tuple[Any, Any]:
    """The algorithm, and its state after some updates, in the middle of episodes."""
    algorithm = create_algorithm(config, env, env.default_params)
    state = init_state(algorithm, 0)
    update = jax.jit(algorithm.train_iteration)
    for _ in range(updates):
        state = update(state)
    return algorithm, state


@pytest.mark.parametrize(
    "config",
    [pytest.param(SMALL, id="shac"), pytest.param(SMALL_APG, id="apg", marks=pytest.mark.slow)],
)
def test_the_gradient_is_that_of_central_differences(config: TrainConfig, x64: None) -> None:
    """Of windows in which some episodes are over, by time or by the wall, and others go on."""
    algorithm, state = begun(config, Point(wall=0.3))
    # Networks are float32 whatever the precision of the environment.
    state = jax.tree.map(lambda x: x.astype(float) if x.dtype == jnp.float32 else x, state)
    weights, key = state.actor_ts.params, jax.random.key(1)
    noise = jax.random.split(jax.random.key(2), config.num_steps)

    # The loss told step by step; no function of the learner's is called but its networks.
    def loss(weights: Any) -> float:
        params, total = algorithm.env_params, 0.0
        keys = jax.random.split(key, config.num_steps)
        obs, env_state = state.last_obs, state.env_state
        discount = np.ones(config.num_envs)
        for t, key_t in enumerate(keys):
            action = np.tanh(act(weights, obs, noise[t])[0])
            obs, env_state, reward, done, info = step(
                jax.random.split(key_t, config.num_envs), env_state, action, params
            )
            total += np.sum(discount * reward)
            discount = discount * config.gamma
            if config.algorithm == "shac":
                worth = judge(state.critic_target_params, info["final_observation"])
                ended = done | (t == config.num_steps - 1)
                total += np.sum(discount * worth * (ended & ~info["terminated"]))
            discount = np.where(done, 1.0, discount)
            seen.update(zip(np.asarray(info["terminated"]), np.asarray(done), strict=True))
        return -total / (config.num_envs * config.num_steps)

    seen: set[tuple[Any, Any]] = set()
    act = jax.jit(algorithm.actor.apply)
    judge = jax.jit(algorithm.critic.apply) if config.algorithm == "shac" else None
    step = jax.jit(jax.vmap(algorithm.env.step, in_axes=(0, 0, 0, None)))
    lanes, lost, (_, window, _) = jax.jit(algorithm.lane_gradients)(state, noise, key)
    gradient = jax.jit(algorithm.policy_gradient)(weights, window.obs, noise, lanes)
    assert lost == 0
    flat, unflatten = jax.flatten_util.ravel_pytree(weights)
    found, _ = jax.flatten_util.ravel_pytree(gradient)
    rng = np.random.default_rng(0)
    for _ in range(4):
        direction = rng.standard_normal(flat.size)
        h = 1e-6
        ahead, behind = (loss(unflatten(flat + s * direction)) for s in (h, -h))
        np.testing.assert_allclose(found @ direction, (ahead - behind) / (2 * h), rtol=1e-5)
    assert seen == {(False, False), (False, True), (True, True)}


def test_returns_are_those_of_a_plain_loop() -> None:
    """The weighted mean of all n-step returns, as the definition has it."""
    rng = np.random.default_rng(0)
    shape, gamma, lam = (9, 200), 0.9, 0.7
    reward, worth = rng.standard_normal((2, *shape))
    terminated, truncated = rng.random((2, *shape)) < 0.15
    nothing = np.zeros(shape)
    window = Window(nothing, reward, nothing, terminated, truncated)
    got = returns(window, worth, gamma, lam)
    for i in range(shape[1]):
        for t in range(shape[0]):
            so_far, discount, expected, left = 0.0, 1.0, 0.0, 1.0
            for n in range(t, shape[0]):
                so_far += discount * reward[n, i]
                discount *= gamma
                rest = 0.0 if terminated[n, i] else discount * worth[n, i]
                over = terminated[n, i] or truncated[n, i] or n == shape[0] - 1
                expected += (left if over else left * (1 - lam)) * (so_far + rest)
                left *= lam
                if over:
                    break
            np.testing.assert_allclose(got[t, i], expected, rtol=1e-4, atol=1e-5)


def test_gradients_that_are_not_finite_are_left_out_and_counted() -> None:
    algorithm, state = begun(SMALL_APG, Point(bad=True))
    assert 0 < state.lost_gradients < 4 * SMALL_APG.update_timesteps
    noise = jax.random.split(jax.random.key(2), SMALL_APG.num_steps)
    differentiate = jax.jit(algorithm.lane_gradients)
    lanes, lost, (_, window, _) = differentiate(state, noise, jax.random.key(1))
    assert lost == np.sum(window.next_obs[..., 1] > 0)
    assert np.isfinite(lanes).all()
    assert np.asarray(lanes).any()


def test_no_environment_silences_the_others() -> None:
    """Gradients of seven environments: two that are too large, two that are none."""
    lanes = np.random.default_rng(0).standard_normal((5, 7, 2))
    lanes /= np.linalg.norm(lanes, axis=(0, 2), keepdims=True)
    given = lanes * np.array([1.0, 1e15, 1.5, 0.0, 1.0, 30.0, np.nan])[:, None]
    kept, lost = limited(jnp.asarray(given))
    assert lost == 1
    # The median is of those that are anything: 1, 1, 1.5, 30 and 1e15.
    expected = lanes * np.array([1.0, 3.0, 1.5, 0.0, 1.0, 3.0, 0.0])[:, None]
    np.testing.assert_allclose(kept, expected, rtol=1e-5)
    kept, lost = limited(jnp.zeros((5, 7, 2)))
    assert lost == 0
    assert not np.asarray(kept).any()


def learnt(env: Point, run: Path) -> float:
    """The success of the policy of a run."""
    policy, *_ = load_policy(run)
    assert policy.squashed
    result = evaluate(env, env.default_params, policy, jax.random.key(9), 200)
    return float(np.mean(result.success))


@pytest.mark.slow
def test_learns_in_seconds_and_resuming_equals_an_uninterrupted_run(
    toy: Toy, tmp_path: Path
) -> None:
    """Bitwise: stopped after two rounds of ten, by Ctrl-C as a user does."""
    env = toy()
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert train(SMALL, whole)
    assert learnt(env, whole) >= 0.95

    def stop(metrics: Any) -> None:
        if metrics["round"] == 2:
            signal.raise_signal(signal.SIGINT)

    assert not train(SMALL, cut, on_round=stop)
    with pytest.raises(CheckpointError, match=r"total_timesteps: only final_episodes may"):
        train(dataclasses.replace(SMALL, total_timesteps=1 << 20), cut, resume=True)
    assert train(SMALL, cut, resume=True)
    for name in ("policy.npz", "checkpoint.npz"):
        with np.load(whole / name) as a, np.load(cut / name) as b:
            assert set(a.files) == set(b.files)
            for leaf in set(a.files) - {"__metadata__"}:
                np.testing.assert_array_equal(a[leaf], b[leaf], err_msg=leaf)
    assert [m["lost_gradients"] for m in read_metrics(cut)] == [0.0] * SMALL.rounds


def test_learns_without_a_critic(toy: Toy, tmp_path: Path) -> None:
    env = toy()
    assert train(SMALL_APG, tmp_path)
    assert learnt(env, tmp_path) >= 0.95


def test_what_cannot_be_trained_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    env, params = fraxenv.make("PandaReach-v0")
    monkeypatch.setattr(env, "_supports_transition_gradients", False)
    for algorithm, config in (("shac", SHACConfig()), ("apg", APGConfig())):
        with pytest.raises(ConfigError, match=f"'{algorithm}' .*PandaReach-v0 has no gradients"):
            create_algorithm(config, env, params)
