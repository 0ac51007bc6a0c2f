"""Delays of motors, actions and observations, by a number of steps."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from .math.pytree import pytree_dataclass


@pytree_dataclass
class Delay:
    """The most recent values, and the age of the one that takes effect.

    Attributes:
        values: (n, ...), the newest first.
        steps: (), int32, the delay, from 0 to n - 1.
    """

    values: Array
    steps: Array

    @property
    def due(self) -> Array:
        """The value (...) that takes effect now."""
        return self.values[self.steps]


def delay_of(value: Array, steps: Array, longest: int) -> Delay:
    """A delay in which `value` (...) has been held for a long time.

    Args:
        value: (...), every value so far.
        steps: (), the delay; rounded, and clipped to `longest`.
        longest: capacity, in steps.
    """
    count = jnp.clip(jnp.round(steps), 0, longest).astype(jnp.int32)
    return Delay(jnp.tile(value, (longest + 1, *(1,) * value.ndim)), count)


def pushed(delay: Delay, value: Array) -> Delay:
    """The delay one step later, with a new value (...)."""
    return Delay(jnp.concatenate([value[None], delay.values[:-1]]), delay.steps)
