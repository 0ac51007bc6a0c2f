"""A function of one problem as a kernel, which XLA would compute operation by operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap

from fraxenv.kernels import fusible, resolve
from fraxenv.kernels.executors import ONE, default_platform

LARGEST = 600_000
"""Numbers of the arguments up to which a kernel is made of a function with large matrices."""


def one_by_one(fn: Callable[..., Any], backend: str) -> Callable[..., Any]:
    """The same of a function with large matrices: of several problems, one after the other.

    Args:
        fn: a pure function.
        backend: of the kernel, where there is one for large matrices; elsewhere JAX computes.
    """

    def call(*args: Any) -> Any:
        numbers = sum(jnp.size(x) for x in jax.tree.leaves(args))
        if resolve(backend) == "native" and default_platform() == "cpu" and numbers <= LARGEST:
            return alone(fn, ONE)(*args)
        return sequential_vmap(fn)(*args)

    return call


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
