"""The arrays that a kernel reads and writes."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .errors import BuildError

WIDE = 512
"""Numbers of a buffer above which it is wide: it is moved by way of memory of a kernel's own."""


@dataclass(frozen=True)
class Buffer:
    """An array that a kernel reads: `shape` and `dtype` for one environment.

    `batched` says whether every environment has its own; `key` is the dtype of a typed key array,
    of which the buffer holds the bits.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    batched: bool
    key: Any = None

    @property
    def size(self) -> int:
        """Numbers of one environment."""
        return math.prod(self.shape)

    @staticmethod
    def of(aval: Any, batched: bool) -> Buffer:
        """The buffer of an array of that abstract value.

        Raises:
            BuildError: no kernel can hold the dtype.
        """
        if is_key(aval):
            shape = (*aval.shape, *key_shape(aval.dtype))
            return Buffer(shape, np.dtype(np.uint32), batched, aval.dtype)
        return Buffer(tuple(aval.shape), _held(aval.dtype), batched)


@functools.cache
def _held(dtype: Any) -> np.dtype[Any]:
    if dtype.name == "float8_e4m3b11fnuz":  # NumPy's letter for it is uint64's
        raise BuildError(f"no kernel holds {dtype}")
    made: np.dtype[Any] = np.dtype(dtype)
    return made


def is_key(x: Any) -> bool:
    """Whether an array, or its abstract value, is of typed random keys; numbers are not."""
    return hasattr(x, "dtype") and _of_keys(x.dtype)


@functools.cache
def _of_keys(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))


def key_shape(dtype: Any) -> tuple[int, ...]:
    """The shape of one typed key's bits."""
    return tuple(dtype._impl.key_shape)
