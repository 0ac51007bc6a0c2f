"""Initial states worked out once, for resets to draw from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fraxenv.errors import ConfigError


def draw_pool(begin: Callable[[Array], Any], key: Array, size: int) -> Any:
    """Observations and states (size, ...) at the beginnings of episodes, as `begin` draws them.

    Raises:
        ConfigError: the size is not possible.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ConfigError(f"reset_pool={size!r}, expected a whole number >= 1 of states.")
    return jax.jit(jax.vmap(begin))(jax.random.split(key, size))


def draw_from_pool(key: Array, pool: Any) -> Any:
    """One observation and state of a pool."""
    size = jax.tree.leaves(pool)[0].shape[0]
    index = jax.random.randint(key, (), 0, size)
    return jax.tree.map(lambda x: jnp.asarray(x)[index], pool)
