"""Values that take effect some steps after they were given: of motors, actions, observations."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from .math.pytree import pytree_dataclass


@pytree_dataclass
class Delay:
    """The last values, and how old the one is that takes effect.

    Attributes:
        values: (n, ...), the newest first.
        steps: (), int32, from 0 to n - 1.
    """

    values: Array
    steps: Array

    @property
    def due(self) -> Array:
        """The value (...) that takes effect now."""
        return self.values[self.steps]


def delay_of(value: Array, steps: Array, longest: int) -> Delay:
    """A delay of up to `longest` steps before which there was `value` (...) for a long time.

    Args:
        value: (...), before and now.
        steps: (), how many; rounded, and clipped to what there is room for.
        longest: how many there is room for.
    """
    count = jnp.clip(jnp.round(steps), 0, longest).astype(jnp.int32)
    return Delay(jnp.tile(value, (longest + 1, *(1,) * value.ndim)), count)


def pushed(delay: Delay, value: Array) -> Delay:
    """The delay one step later, with a new value (...)."""
    return Delay(jnp.concatenate([value[None], delay.values[:-1]]), delay.steps)
