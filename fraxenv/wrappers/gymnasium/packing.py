"""Many small results of a program as one array: each that JAX hands over takes microseconds."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

_WORD = np.dtype(np.int32)


class _Leaf(NamedTuple):
    """A result, and its words of all; `held` is the dtype that they are the bits of."""

    dtype: np.dtype[Any]
    held: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int


def packed(program: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
    """A compiled program whose first result is in NumPy: fresh arrays, Python values for scalars.

    Args:
        program: has two results, trees of arrays; as many words always mean the same.
    """
    layouts: dict[int, tuple[list[_Leaf], Any]] = {}

    @jax.jit
    @functools.wraps(program)
    def run(*args: Any) -> tuple[Array, Any]:
        result, rest = program(*args)
        words, layout = _pack(result)
        layouts[len(words)] = layout
        return words, rest

    def call(*args: Any) -> tuple[Any, Any]:
        words, rest = run(*args)
        found = np.asarray(words)
        return _unpack(found, *layouts[len(found)]), rest

    return call


def _pack(tree: Any) -> tuple[Array, tuple[list[_Leaf], Any]]:
    leaves, structure = jax.tree.flatten(tree)
    parts, places, begin = [], [], 0
    for x in leaves:
        held = _held(x.dtype)
        part = jax.lax.bitcast_convert_type(x.astype(held), _WORD).ravel()
        places.append(_Leaf(x.dtype, held, x.shape, begin, begin + len(part)))
        parts.append(part)
        begin += len(part)
    return jnp.concatenate(parts), (places, structure)


def _held(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype of whole words that has all numbers of another."""
    if dtype.itemsize >= _WORD.itemsize:
        return dtype
    return np.dtype(np.float32) if jnp.issubdtype(dtype, np.floating) else _WORD


def _unpack(words: NDArray[np.int32], leaves: list[_Leaf], structure: Any) -> Any:
    integers, floats = words.tolist(), words.view(np.float32).tolist()
    values: list[Any] = []
    for dtype, held, shape, begin, end in leaves:
        if shape or held not in (_WORD, np.float32):
            array = words[begin:end].view(held).astype(dtype).reshape(shape)
            values.append(array if shape else array.item())
        else:
            number = floats[begin] if held.kind == "f" else integers[begin]
            values.append(bool(number) if dtype == np.bool_ else number)
    return jax.tree.unflatten(structure, values)
