"""Functions that are traced once, however often a program calls them.

JAX runs a function's Python again for each call in a program that it traces, at some 70 us an
operation: an environment calls `cross` two hundred times, and everything but that is soon done.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

P = ParamSpec("P")
T = TypeVar("T")

MOST = 256
"""Of programs that are kept of one function: of robots, shapes, and numbers that are known."""


def traced_once(fn: Callable[P, T]) -> Callable[P, T]:
    """The same function, whose equations later calls copy instead of running it again.

    A program has the same equations with it: numbers that are known stay known, and derivatives and
    batches are those of the equations. Where nothing is traced it is `fn` itself.

    Args:
        fn: of pytrees, and of nothing else: what it reads besides must not change.
    """
    kept: dict[Any, Callable[..., T]] = {}
    _all_kept.append(kept)

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        leaves, tree = jax.tree.flatten((args, kwargs))
        traced = [x for x in leaves if isinstance(x, jax.core.Tracer)]
        if not traced:
            return fn(*args, **kwargs)
        _forget_others()
        key = tree, tuple(map(_known, leaves))
        try:
            equations = kept.get(key)
        except TypeError:  # what has no hash cannot be found again
            return fn(*args, **kwargs)
        if equations is None:
            if len(kept) >= MOST:
                oldest, *_ = tuple(kept)  # at once: other threads may add to them
                kept.pop(oldest, None)
            equations = kept[key] = _of_traced(fn, leaves, tree)
        return equations(*traced)

    return call


_all_kept: list[dict[Any, Any]] = []
_precision = [False]


def _forget_others() -> None:
    """Forget what was traced in the other precision.

    As long as its equations are kept JAX 0.10 takes their arrays, of 64 bits, for what NumPy's
    arrays that they were made of are in this one.
    """
    config: Any = jax.config
    x64 = bool(config.jax_enable_x64)
    if _precision[0] != x64:
        _precision[0] = x64
        for kept in _all_kept:
            kept.clear()


def _known(leaf: Any) -> Any:
    """What tells a leaf that is not traced from others."""
    if isinstance(leaf, jax.core.Tracer):
        return None
    if isinstance(leaf, (np.ndarray, np.generic, float)):
        array = np.asarray(leaf)
        return type(leaf), array.dtype, array.shape, array.tobytes()
    if isinstance(leaf, jax.Array):
        return id(leaf)  # it does not change, and is kept
    return type(leaf), leaf


def _of_traced(fn: Callable[..., T], leaves: list[Any], tree: Any) -> Callable[..., T]:
    """`fn` as a function of those leaves that are traced."""
    traced = [isinstance(x, jax.core.Tracer) for x in leaves]
    numbers = [
        None if t else x.copy() if isinstance(x, np.ndarray) else x
        for t, x in zip(traced, leaves, strict=True)
    ]

    def of_traced(*values: Any) -> T:
        following = iter(values)
        filled = [next(following) if t else x for t, x in zip(traced, numbers, strict=True)]
        args, kwargs = jax.tree.unflatten(tree, filled)
        return fn(*args, **kwargs)

    of_traced.__name__ = getattr(fn, "__name__", "of_traced")
    return jax.jit(of_traced, inline=True)
