"""The five-value `step` that clients written for gymnax < 1.0 expect."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..envs import EnvParams, EnvState
from .base import Wrapper


class FiveTuple(Wrapper):
    """Gives an environment the `step` of gymnax < 1.0: `(obs, state, reward, done, info)`.

    `done` is terminated or truncated; both are still in `info`. Everything else is the
    environment's own. rejax, PureJaxRL and Stoix take it.

    Args:
        env: an environment of the gymnax 1.0 protocol, as `fraxenv.make` returns it, or one in
            `EpisodeStatistics`.
    """

    @partial(jax.jit, static_argnums=0)
    def reset(self, key: Array, params: EnvParams | None = None) -> tuple[Array, EnvState]:
        """A new episode: observation and state."""
        return self.env.reset(key, params)

    @partial(jax.jit, static_argnums=0)
    def step(
        self, key: Array, state: EnvState, action: Array, params: EnvParams | None = None
    ) -> tuple[Array, EnvState, Array, Array, dict[str, Any]]:
        """One policy step with autoreset: observation, state, reward, done, info."""
        obs, state, reward, terminated, truncated, info = self.env.step(key, state, action, params)
        return obs, state, reward, jnp.logical_or(terminated, truncated), info
