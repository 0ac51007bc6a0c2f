"""rejax's PPO, to which an episode that ran out of time is not over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import rejax
from jax import Array

from ..wrappers.base import Wrapper


class PPO(rejax.PPO):  # type: ignore[misc]
    """Proximal policy optimisation that goes on counting on rewards beyond a time limit.

    rejax knows one `done`, and expects nothing after it. What the critic expects of the rest is
    added to the reward of a step at which time ran out, so that the advantages are those of an
    episode that went on. Takes the environments that `FiveTuple` makes, and none of rejax's
    normalisations.

    Source: Pardo et al., "Time limits in reinforcement learning", ICML 2018, eq. 6.
    """

    def collect_trajectories(self, ts: Any) -> tuple[Any, Any]:
        """Take `num_steps` in all environments: rejax's new state, and the transitions."""

        def rest(obs: Array) -> Array:
            worth: Array = self.gamma * self.critic.apply(ts.critic_ts.params, obs[None])[0]
            return worth

        continued = self.replace(env=Continued(self.env, rest))
        collected: tuple[Any, Any] = super(PPO, continued).collect_trajectories(ts)
        return collected


class Continued(Wrapper):
    """An environment whose time limit pays for the rest of the episode, by where it led."""

    def __init__(self, env: Any, rest: Callable[[Array], Array]) -> None:
        super().__init__(env)
        self.rest = rest

    def step(self, *args: Any) -> tuple[Any, ...]:
        """The environment's, with the reward of a step at which time ran out."""
        obs, state, reward, done, info = self.env.step(*args)
        ran_out = jnp.logical_and(done, jnp.logical_not(info["terminated"]))
        reward = reward + jnp.where(ran_out, self.rest(info["final_observation"]), 0.0)
        return obs, state, reward, done, info
