"""PureJaxRL's PPO, with the wrappers that its users put around environments, on `FiveTuple`.

Lu et al., "Discovered policy optimisation", NeurIPS 2022; https://github.com/luchris429/purejaxrl.
Its code is copied into projects rather than installed: what follows is written after it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fraxenv
from fraxenv.wrappers import EpisodeStatistics, FiveTuple

nn = pytest.importorskip("flax.linen")


class Wrapper:
    def __init__(self, env: Any) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


class LogState(NamedTuple):
    env_state: Any
    episode_return: Any
    returned_episode_return: Any


class LogWrapper(Wrapper):
    def reset(self, key: Any, params: Any) -> Any:
        obs, state = self._env.reset(key, params)
        return obs, LogState(state, 0.0, 0.0)

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, env_state, reward, done, info = self._env.step(key, state.env_state, action, params)
        total = state.episode_return + reward
        returned = jnp.where(done, total, state.returned_episode_return)
        info["returned_episode_return"] = returned
        return obs, LogState(env_state, total * (1 - done), returned), reward, done, info


class ClipAction(Wrapper):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        return self._env.step(key, state, jnp.clip(action, -1.0, 1.0), params)


class VecEnv(Wrapper):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.reset = jax.vmap(env.reset, (0, None))
        self.step = jax.vmap(env.step, (0, 0, 0, None))


class Moments(NamedTuple):
    mean: Any
    var: Any
    count: Any

    def updated(self, batch: Any) -> Moments:
        mean, var, n = batch.mean(axis=0), batch.var(axis=0), batch.shape[0]
        delta, total = mean - self.mean, self.count + n
        m2 = self.var * self.count + var * n + delta**2 * self.count * n / total
        return Moments(self.mean + delta * n / total, m2 / total, total)


class NormalizeVecObservation(Wrapper):
    def reset(self, key: Any, params: Any) -> Any:
        obs, state = self._env.reset(key, params)
        moments = Moments(jnp.zeros_like(obs[0]), jnp.ones_like(obs[0]), 1e-4).updated(obs)
        return self._scaled(obs, moments), (state, moments)

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, env_state, reward, done, info = self._env.step(key, state[0], action, params)
        moments = state[1].updated(obs)
        return self._scaled(obs, moments), (env_state, moments), reward, done, info

    @staticmethod
    def _scaled(obs: Any, moments: Moments) -> Any:
        return (obs - moments.mean) / jnp.sqrt(moments.var + 1e-8)


class NormalizeVecReward(Wrapper):
    def __init__(self, env: Any, gamma: float) -> None:
        super().__init__(env)
        self.gamma = gamma

    def reset(self, key: Any, params: Any) -> Any:
        obs, state = self._env.reset(key, params)
        return obs, (state, jnp.zeros(obs.shape[0]), Moments(0.0, 1.0, 1e-4))

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        env_state, total, moments = state
        obs, env_state, reward, done, info = self._env.step(key, env_state, action, params)
        total = total * self.gamma * (1 - done) + reward
        moments = moments.updated(total)
        scaled = reward / jnp.sqrt(moments.var + 1e-8)
        return obs, (env_state, total, moments), scaled, done, info


class ActorCritic(nn.Module):  # type: ignore[misc]
    size: int

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, obs: Any) -> Any:
        actor = nn.tanh(nn.Dense(64)(nn.tanh(nn.Dense(64)(obs))))
        mean = nn.Dense(self.size, kernel_init=nn.initializers.orthogonal(0.01))(actor)
        log_std = self.param("log_std", nn.initializers.constant(-0.5), (self.size,))
        critic = nn.tanh(nn.Dense(64)(nn.tanh(nn.Dense(64)(obs))))
        return mean, log_std, nn.Dense(1)(critic)[..., 0]


def log_prob(mean: Any, log_std: Any, action: Any) -> Any:
    z = (action - mean) / jnp.exp(log_std)
    return jnp.sum(-0.5 * z * z - log_std - 0.5 * jnp.log(2 * jnp.pi), axis=-1)


GAMMA, LAMBDA, CLIP, NUM_ENVS, NUM_STEPS, MINIBATCHES, EPOCHS = 0.95, 0.9, 0.2, 128, 32, 8, 4


def make_train(env: Any, params: Any, updates: int) -> Any:
    """`train(key)`, which returns what `info` held in every step (updates, steps, envs)."""
    env = NormalizeVecObservation(VecEnv(ClipAction(LogWrapper(env))))
    env = NormalizeVecReward(env, GAMMA)
    network = ActorCritic(env.action_space(params).shape[0])
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3, eps=1e-5))

    def act(carry: Any, key: Any) -> Any:
        weights, state, obs = carry
        key_action, key_step = jax.random.split(key)
        mean, log_std, value = network.apply(weights, obs)
        action = mean + jnp.exp(log_std) * jax.random.normal(key_action, mean.shape)
        keys = jax.random.split(key_step, NUM_ENVS)
        new, state, reward, done, info = env.step(keys, state, action, params)
        step = obs, action, log_prob(mean, log_std, action), value, reward, done
        return (weights, state, new), (step, info)

    def loss(weights: Any, batch: Any) -> Any:
        obs, action, old, advantage, target = batch
        mean, log_std, value = network.apply(weights, obs)
        ratio = jnp.exp(log_prob(mean, log_std, action) - old)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage
        return (
            -jnp.minimum(ratio * advantage, clipped).mean() + 0.5 * ((value - target) ** 2).mean()
        )

    def update(carry: Any, key: Any) -> Any:
        weights, moments, state, obs = carry
        key_act, key_learn = jax.random.split(key)
        (_, state, obs), (steps, info) = jax.lax.scan(
            act, (weights, state, obs), jax.random.split(key_act, NUM_STEPS)
        )
        seen, action, old, value, reward, done = steps

        def advantage(carry: Any, x: Any) -> Any:
            ahead, following = carry
            value, reward, done = x
            delta = reward + GAMMA * following * (1 - done) - value
            ahead = delta + GAMMA * LAMBDA * (1 - done) * ahead
            return (ahead, value), ahead

        final = network.apply(weights, obs)[2]
        _, advantages = jax.lax.scan(
            advantage, (jnp.zeros_like(final), final), (value, reward, done), reverse=True
        )
        flat = jax.tree.map(
            lambda x: x.reshape(-1, *x.shape[2:]),
            (seen, action, old, advantages, advantages + value),
        )

        def minibatch(carry: Any, batch: Any) -> Any:
            weights, moments = carry
            changes, moments = optimizer.update(jax.grad(loss)(weights, batch), moments)
            return (optax.apply_updates(weights, changes), moments), None

        def epoch(carry: Any, key: Any) -> Any:
            order = jax.random.permutation(key, NUM_ENVS * NUM_STEPS)
            batches = jax.tree.map(lambda x: x[order].reshape(MINIBATCHES, -1, *x.shape[1:]), flat)
            return jax.lax.scan(minibatch, carry, batches)

        (weights, moments), _ = jax.lax.scan(
            epoch, (weights, moments), jax.random.split(key_learn, EPOCHS)
        )
        return (weights, moments, state, obs), info

    def train(key: Any) -> Any:
        key_reset, key_weights, key_train = jax.random.split(key, 3)
        obs, state = env.reset(jax.random.split(key_reset, NUM_ENVS), params)
        weights = network.init(key_weights, obs)
        carry = weights, optimizer.init(weights), state, obs
        return jax.lax.scan(update, carry, jax.random.split(key_train, updates))[1]

    return train


@pytest.mark.parametrize(
    ("updates", "action"),
    [(4, "joint_velocity"), pytest.param(60, "ee_delta_position", marks=pytest.mark.slow)],
)
def test_it_trains(updates: int, action: str) -> None:
    """Its own statistics of episodes and ours agree; in a minute, it learns."""
    env, params = fraxenv.make(
        "PandaReach-v0", action=action, control_hz=200, max_steps_in_episode=32
    )
    train = make_train(FiveTuple(EpisodeStatistics(env)), params, updates)
    info = jax.tree.map(np.asarray, jax.jit(train)(jax.random.key(0)))
    returns = info["returned_episode_return"][:, -1]  # (updates, envs), of episodes just over
    np.testing.assert_allclose(info["episode"]["return"][:, -1], returns, rtol=1e-4, atol=1e-4)
    assert (info["episode"]["length"][:, -1] == 32).all()
    assert (info["episode"]["count"][-1, -1] == updates).all()
    if updates == 60:
        success = info["episode"]["success"][:, -1].mean(axis=1)
        assert returns[-5:].mean() > returns[:5].mean() + 0.8
        assert success[-5:].mean() > success[:5].mean()  # of a policy that is still exploring
