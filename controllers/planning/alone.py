"""A function of one problem as a kernel, which XLA would compute operation by operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fraxenv.kernels import fusible


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
