"""Evaluation of a policy on whole episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fraxenv.envs import pytree_dataclass

from ..envs import Environment, EnvParams, EnvState

SIDE_BY_SIDE = 250
"""Episodes of one part of a long evaluation."""

FRESH_GOALS = 0x5EED
"""Seed of the episodes that policies are judged by; training never draws from it."""


@pytree_dataclass
class Evaluation:
    """The results of n episodes, (n,) each.

    Attributes:
        episode_return: sum of rewards.
        success: whether the goal was reached at the end of the episode.
        diverged: whether the environment diverged.
        measures: what the task reports, by name, at the end of the episode; `env.reported` says
            in which units.
    """

    episode_return: Array
    success: Array
    diverged: Array
    measures: dict[str, Array]


def evaluate(
    env: Environment,
    params: EnvParams,
    policy: Callable[[Array], Array],
    key: Array,
    episodes: int,
) -> Evaluation:
    """Run whole episodes with a policy; jittable.

    Args:
        env: the environment.
        params: its parameters.
        policy: action (k,) of an observation (n,).
        key: decides the episodes.
        episodes: how many.
    """
    return evaluate_each(env, params, policy, jax.random.split(key, episodes))


def evaluate_each(
    env: Environment, params: EnvParams, policy: Callable[[Array], Array], keys: Array
) -> Evaluation:
    """Run an episode for each key, side by side; jittable."""
    # A static length, so that the rollout is a scan; the episode's own end is honoured below.
    length = int(np.asarray(env.default_params.max_steps_in_episode))
    reported = [measure.name for measure in env.reported]
    names = ["success", "diverged", *reported]

    def episode(key: Array) -> Evaluation:
        key_reset, key_steps = jax.random.split(key)
        obs, state = env.reset(key_reset, params)

        def step(
            carry: tuple[Array, EnvState, Array], key: Array
        ) -> tuple[tuple[Array, EnvState, Array], tuple[Array, Array, dict[str, Array]]]:
            obs, state, ended = carry
            obs, state, reward, terminated, info = env.step_env(key, state, policy(obs), params)
            measures = {name: info[name] for name in names}
            reward = jnp.where(ended, 0.0, reward)
            return (obs, state, ended | terminated), (reward, ended, measures)

        start = (obs, state, jnp.zeros((), bool))
        steps = jax.random.split(key_steps, length)
        _, (rewards, over, measures) = jax.lax.scan(step, start, steps)
        last = jnp.sum(~over) - 1  # step of the episode
        end = {name: x[last] for name, x in measures.items()}
        return Evaluation(
            episode_return=jnp.sum(rewards),
            success=end["success"] & ~end["diverged"],
            diverged=end["diverged"],
            measures={name: end[name] for name in reported},
        )

    return jax.vmap(episode)(keys)


def evaluate_in_parts(
    env: Environment, params: EnvParams, policy: Any, episodes: int, seed: int = FRESH_GOALS
) -> Iterator[Evaluation]:
    """`evaluate` part by part, NumPy arrays, for long evaluations that show how far they are.

    Args:
        env: the environment.
        params: its parameters.
        policy: action (k,) of an observation (n,); a pytree.
        episodes: how many; the first ones are the same for every number.
        seed: decides the episodes.
    """
    size = min(SIDE_BY_SIDE, episodes)
    run = jax.jit(lambda policy, keys: evaluate_each(env, params, policy, keys))
    for start in range(0, episodes, size):
        # Keys of their own, and as many in the last part, so that one program serves all.
        keys = jax.vmap(jax.random.fold_in, (None, 0))(
            jax.random.PRNGKey(seed), jnp.arange(start, start + size)
        )
        wanted = min(size, episodes - start)
        yield jax.tree.map(lambda x, n=wanted: np.asarray(x)[:n], run(policy, keys))


def join_evaluations(parts: Sequence[Evaluation]) -> Evaluation:
    """One evaluation of the episodes of several, one after the other."""
    return jax.tree.map(lambda *x: np.concatenate(x), *parts)  # type: ignore[no-any-return]
