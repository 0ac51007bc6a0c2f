"""The rows of a quadratic program: `A x >= b`, soft, and `lower <= C x <= upper`, hard.

Instead of a matrix, the soft rows may be a linear function and its transpose. All rows are numbered
as those of `[A; C; -C] x >= [b; lower; -upper]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..math.algebra import matmul

FLOOR = 1e-9
"""Squared length of a row, in the metric of `H^-1`, that counts as zero."""


class Rows(NamedTuple):
    """The soft rows as linear functions: `A x`, and `A^T y`."""

    times: Callable[[Array], Array]
    transposed: Callable[[Array], Array]

    @staticmethod
    def of(product: Callable[..., Array], parameters: Sequence[Array], x: Array) -> Rows:
        """Rows of the linear function `product(x, *parameters)`, for arguments like `x`."""

        def times(x: Array) -> Array:
            return product(x, *parameters)

        transpose = jax.linear_transpose(times, x)
        return Rows(times, lambda y: transpose(y)[0])


def constraint_values(A: Rows, C: Array, x: Array) -> Array:
    """Left-hand sides `[A; C; -C] x` (m + 2n,) of all rows."""
    held = matmul(C, x)
    return jnp.concatenate([A.times(x), held, -held])


def closure_converted(
    A: Callable[[Array], Array], x: Array
) -> tuple[Callable[..., Array], list[Array]]:
    """`A` as a function of `x` and of the arrays that it closes over, and these arrays.

    `jax.closure_convert` would leave out arrays that are no floats, as a barrier's conditions.
    """
    closed = jax.make_jaxpr(A)(x)

    def product(x: Array, *parameters: Array) -> Array:
        result: Array = jax.core.eval_jaxpr(closed.jaxpr, parameters, x)[0]
        return result

    return product, list(closed.consts)


def matrix_product(x: Array, A: Array) -> Array:
    """`A x` as a function of `x` and of the matrix `A` (m, n)."""
    return matmul(A, x)


def allowance(rhs: Array, tolerance: float) -> Array:
    """Negligible violations (k,) of rows with right-hand sides `rhs` (k,)."""
    # Relative violations would take a division for every row.
    return tolerance * (1 + jnp.where(jnp.isfinite(rhs), jnp.abs(rhs), 0))
