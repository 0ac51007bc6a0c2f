"""Pools of initial states, computed once, for resets to draw from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from fraxenv.errors import check_count

PoolT = TypeVar("PoolT")


def draw_pool(reset: Callable[[Array], PoolT], key: Array, size: int) -> PoolT:
    """Initial observations and states (size, ...), as `reset` draws them.

    Raises:
        ConfigError: the size is not possible.
    """
    check_count("reset_pool", size, of="states")
    pool: PoolT = jax.jit(jax.vmap(reset))(jax.random.split(key, size))
    return pool


def draw_from_pool(key: Array, pool: PoolT) -> PoolT:
    """One observation and state of a pool."""
    size = jax.tree.leaves(pool)[0].shape[0]
    index = jax.random.randint(key, (), 0, size)
    drawn: PoolT = jax.tree.map(lambda x: jnp.asarray(x)[index], pool)
    return drawn
