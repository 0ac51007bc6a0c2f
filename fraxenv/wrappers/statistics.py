"""Statistics of episodes, kept inside a compiled training loop."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fraxenv.envs import pytree_dataclass

from ..envs import EnvParams, EnvState
from ..errors import ConfigError, EnvStateError
from .base import Wrapper
from .five_tuple import FiveTuple


@pytree_dataclass
class Totals:
    """Running totals of the episode under way.

    Attributes:
        reward: (), sum of the rewards.
        length: (), int32, policy steps.
        reward_terms: term -> (), sums of the terms before weighting.
    """

    reward: Array
    length: Array
    reward_terms: dict[str, Array]


@pytree_dataclass
class StatisticsState:
    """State of an environment with statistics.

    Attributes:
        env_state: the environment's own.
        totals: of the episode under way.
        episode: statistics of the last episode that ended, as in `info["episode"]`.
        successes: (), int32, how many ended well.
    """

    env_state: EnvState
    totals: Totals
    episode: dict[str, Any]
    successes: Array


class EpisodeStatistics(Wrapper):
    """Reports return, length, success and reward terms of finished episodes in `info["episode"]`.

    Each entry is of the last episode that ended, and stays until the next one does, so that every
    step has the same structure:

    - `return`: (), sum of its rewards.
    - `length`: (), int32, its policy steps.
    - `success`: (), bool, whether its last step was one of success.
    - `reward_terms`: name -> (), means over its steps, before weighting.
    - `count`: (), int32, how many episodes have ended since `reset`; zero if none, and all others
      are zero then.
    - `success_rate`: (), the part of these that were successes at their end.

    Works under `jit`, `vmap` and `scan`. For clients of gymnax < 1.0 put `FiveTuple` around it:

    >>> env, params = fraxenv.make("PandaReach-v0")
    >>> env = FiveTuple(EpisodeStatistics(env))

    Args:
        env: an environment of the gymnax 1.0 protocol, as `fraxenv.make` returns it.

    Raises:
        ConfigError: it has the protocol of gymnax < 1.0.
    """

    def __init__(self, env: Any) -> None:
        if isinstance(env, FiveTuple):
            raise ConfigError(
                "EpisodeStatistics was given a FiveTuple, expected an environment whose step "
                "returns terminated and truncated apart. Wrap the other way round: "
                "FiveTuple(EpisodeStatistics(env))."
            )
        super().__init__(env)

    @partial(jax.jit, static_argnums=0)
    def reset(self, key: Array, params: EnvParams | None = None) -> tuple[Array, StatisticsState]:
        """A new episode: observation and state; the statistics begin anew."""
        params = self.env.default_params if params is None else params
        obs, env_state = self.env.reset(key, params)
        action = jnp.zeros(self.env.action_space(params).shape, env_state.action.dtype)
        shapes = jax.eval_shape(self.env.step, key, env_state, action, params)
        reward, info = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), (shapes[2], shapes[5]))
        none = jnp.zeros((), jnp.int32)
        totals = Totals(reward, none, info["reward_terms"])
        episode = _summary(totals, info["success"], none, none)
        return obs, StatisticsState(env_state, totals, episode, none)

    @partial(jax.jit, static_argnums=0)
    def step(
        self,
        key: Array,
        state: StatisticsState,
        action: Array,
        params: EnvParams | None = None,
    ) -> tuple[Array, StatisticsState, Array, Array, Array, dict[str, Any]]:
        """One policy step with autoreset, as the environment's own.

        Raises:
            EnvStateError: the state is not one that this wrapper's `reset` or `step` returned.
            ActionError: the action has the wrong shape or dtype.
        """
        if not isinstance(state, StatisticsState):
            raise EnvStateError(
                f"{self.env.name}: the state is of type {type(state).__name__}, expected a "
                "StatisticsState. Use a state that the reset or step of EpisodeStatistics returned."
            )
        obs, env_state, reward, terminated, truncated, info = self.env.step(
            key, state.env_state, action, params
        )
        over = terminated | truncated
        totals = Totals(
            state.totals.reward + reward,
            state.totals.length + 1,
            jax.tree.map(jnp.add, state.totals.reward_terms, info["reward_terms"]),
        )
        successes = state.successes + (over & info["success"])
        ended = _summary(totals, info["success"], state.episode["count"] + 1, successes)
        episode = _where(over, ended, state.episode)
        totals = _where(over, jax.tree.map(jnp.zeros_like, totals), totals)
        new = StatisticsState(env_state, totals, episode, successes)
        return obs, new, reward, terminated, truncated, {**info, "episode": episode}


def _summary(totals: Totals, success: Array, count: Array, successes: Array) -> dict[str, Any]:
    """Statistics of an episode, as in `info["episode"]`, with the number of episodes so far."""

    def part(x: Array, whole: Array) -> Array:
        return x / jnp.maximum(whole, 1).astype(totals.reward.dtype)

    return {
        "return": totals.reward,
        "length": totals.length,
        "success": success,
        "reward_terms": jax.tree.map(lambda x: part(x, totals.length), totals.reward_terms),
        "count": count,
        "success_rate": part(successes, count),
    }


def _where(condition: Array, one: Any, other: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)
