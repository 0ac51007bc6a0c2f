"""A trained policy, as a function of the observation."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from fraxenv.envs import pytree_dataclass, static


@pytree_dataclass
class Policy:
    """A deterministic policy: the mean of the trained Gaussian, brought into the action space.

    Attributes:
        actor: rejax's policy network.
        weights: its parameters.
        squashed: whether the hyperbolic tangent brings it there, as SAC does, or clipping.
    """

    actor: Any = static()
    weights: Any
    squashed: bool = static(default=False)

    def __call__(self, obs: Array) -> Array:
        """Action (k,) in [-1, 1] for an observation (n,)."""

        def mean(actor: Any, x: Array) -> Array:
            return actor.action_mean(actor.features(x))  # type: ignore[no-any-return]

        action = self.actor.apply(self.weights, obs[None], method=mean)[0]
        return jnp.tanh(action) if self.squashed else jnp.clip(action, -1.0, 1.0)
