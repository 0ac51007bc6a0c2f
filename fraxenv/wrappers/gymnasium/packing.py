"""Many small arrays as one: each that a program takes or gives costs microseconds in JAX."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

_WORD = np.dtype(np.int32)


class Leaf(NamedTuple):
    """An array, and its words of all; `held` is the dtype that they are the bits of."""

    dtype: np.dtype[Any]
    held: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int


class Layout(NamedTuple):
    """How a tree of arrays lies in one."""

    leaves: tuple[Leaf, ...]
    structure: Any


def layout_of(tree: Any) -> Layout:
    """The layout of arrays, or of what is known of them (`jax.eval_shape`)."""
    arrays, structure = jax.tree.flatten(tree)
    leaves: list[Leaf] = []
    begin = 0
    for x in arrays:
        held = _held(x.dtype)
        words = int(np.prod(x.shape, dtype=int)) * (held.itemsize // _WORD.itemsize)
        leaves.append(Leaf(np.dtype(x.dtype), held, tuple(x.shape), begin, begin + words))
        begin += words
    return Layout(tuple(leaves), structure)


def _held(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype of whole words that has all numbers of another."""
    if dtype.itemsize >= _WORD.itemsize:
        return np.dtype(dtype)
    return np.dtype(np.float32) if jnp.issubdtype(dtype, np.floating) else _WORD


def pack(tree: Any, layout: Layout) -> Array:
    """One array (n,) int32 of a tree that has such a layout."""
    arrays = layout.structure.flatten_up_to(tree)
    parts = [
        jax.lax.bitcast_convert_type(jnp.asarray(x, leaf.dtype).astype(leaf.held), _WORD).ravel()
        for x, leaf in zip(arrays, layout.leaves, strict=True)
    ]
    return jnp.concatenate(parts)


def unpack(words: Array, layout: Layout) -> Any:
    """The tree again, in a program."""
    arrays = []
    for dtype, held, shape, begin, end in layout.leaves:
        part = words[begin:end]
        if held.itemsize > _WORD.itemsize:
            part = part.reshape(-1, held.itemsize // _WORD.itemsize)
        arrays.append(jax.lax.bitcast_convert_type(part, held).astype(dtype).reshape(shape))
    return jax.tree.unflatten(layout.structure, arrays)


def unpack_here(words: NDArray[np.int32], layout: Layout) -> Any:
    """The tree again in NumPy: fresh arrays, and Python values for scalars."""
    integers, floats = words.tolist(), words.view(np.float32).tolist()
    values: list[Any] = []
    for dtype, held, shape, begin, end in layout.leaves:
        if shape or held not in (_WORD, np.float32):
            array = words[begin:end].view(held).astype(dtype).reshape(shape)
            values.append(array if shape else array.item())
        else:
            number = floats[begin] if held.kind == "f" else integers[begin]
            values.append(bool(number) if dtype == np.bool_ else number)
    return jax.tree.unflatten(layout.structure, values)
