"""From Gymnasium's random generators to JAX's keys."""

from __future__ import annotations

from typing import Final

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

KEY: Final = "threefry2x32"  # fixed, so that a seed means the same under every JAX configuration

Words = NDArray[np.uint32]
"""The two words of a key, on the host."""


def draw_key(generator: np.random.Generator) -> Words:
    """An episode's key, as Gymnasium's generator, and so its seed, decides."""
    return generator.integers(2**32, size=2, dtype=np.uint32)


def key_of_step(words: Array, time: Array | int) -> Array:
    """The key of a step of the episode, of which `time` have been taken."""
    return jax.random.fold_in(jax.random.wrap_key_data(words, impl=KEY), time)
