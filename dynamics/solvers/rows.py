"""The rows of a quadratic program: `A x >= b`, soft, and `lower <= C x <= upper`, hard.

All rows are numbered as those of `[A; C; -C] x >= [b; lower; -upper]`.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ..math.algebra import matmul

FLOOR = 1e-9
"""Squared length of a row, in the metric of `H^-1`, that counts as zero."""


def all_rows(A: Array, C: Array) -> Array:
    """`[A; C; -C]` (m + 2n, n)."""
    return jnp.concatenate([A, C, -C])


def constraint_values(A: Array, C: Array, x: Array) -> Array:
    """Left-hand sides `[A; C; -C] x` (m + 2n,) of all rows."""
    held = matmul(C, x)
    return jnp.concatenate([matmul(A, x), held, -held])


def allowance(rhs: Array, tolerance: float) -> Array:
    """Negligible violations (k,) of rows with right-hand sides `rhs` (k,)."""
    # Relative violations would take a division for every row.
    return tolerance * (1 + jnp.where(jnp.isfinite(rhs), jnp.abs(rhs), 0))
