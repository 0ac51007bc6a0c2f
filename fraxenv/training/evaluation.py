"""Evaluation of a policy on whole episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

if TYPE_CHECKING:
    from ..envs import Environment, EnvParams, EnvState


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Evaluation:
    """What n episodes gave, each (n,).

    Attributes:
        episode_return: sum of rewards.
        success: whether the goal was reached at the end of the episode.
        position_error: m, at the end of the episode.
        orientation_error: rad, at the end of the episode.
        diverged: whether the environment diverged.
    """

    episode_return: Array
    success: Array
    position_error: Array
    orientation_error: Array
    diverged: Array


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
    # A static length, so that the rollout is a scan; the episode's own end is honoured below.
    length = int(np.asarray(env.default_params.max_steps_in_episode))

    def episode(key: Array) -> Evaluation:
        key_reset, key_steps = jax.random.split(key)
        obs, state = env.reset(key_reset, params)

        def step(
            carry: tuple[Array, EnvState, Array], key: Array
        ) -> tuple[tuple[Array, EnvState, Array], tuple[Array, dict[str, Array]]]:
            obs, state, ended = carry
            obs, state, reward, terminated, info = env.step_env(key, state, policy(obs), params)
            measures = {
                k: info[k] for k in ("success", "position_error", "orientation_error", "diverged")
            }
            reward = jnp.where(ended, 0.0, reward)
            return (obs, state, ended | terminated), (reward, measures)

        start = (obs, state, jnp.zeros((), bool))
        _, (rewards, measures) = jax.lax.scan(step, start, jax.random.split(key_steps, length))
        diverged = jnp.any(measures["diverged"])
        return Evaluation(
            episode_return=jnp.sum(rewards),
            success=measures["success"][-1] & ~diverged,
            position_error=measures["position_error"][-1],
            orientation_error=measures["orientation_error"][-1],
            diverged=diverged,
        )

    return jax.vmap(episode)(jax.random.split(key, episodes))
