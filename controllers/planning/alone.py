"""A function of one problem as a kernel, which XLA would compute operation by operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap

from fraxenv.kernels import fusible
from fraxenv.kernels.executors import ONE, default_platform
from fraxenv.kernels.fuse import resolve


def in_turn(fn: Callable[..., Any], backend: str) -> Callable[..., Any]:
    """The same of functions with large matrices: of several problems, one after the other.

    Args:
        fn: a pure function.
        backend: of the kernel, if it is one; where there is none for large matrices JAX computes.
    """
    if resolve(backend) == "native" and default_platform() == "cpu":
        return alone(fn, ONE)
    return sequential_vmap(fn)  # type: ignore[no-any-return]


def alone(fn: Callable[..., Any], backend: str) -> Callable[..., Any]:
    """The function as a batch of one.

    Args:
        fn: a pure function.
        backend: of the kernel; see `fraxenv.fuse`.
    """
    batch = jax.vmap(fusible(fn, backend))

    def call(*args: Any) -> Any:
        return jax.tree.map(
            lambda x: x[0], batch(*jax.tree.map(lambda x: jnp.asarray(x)[None], args))
        )

    return call
