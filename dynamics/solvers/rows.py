"""The rows of a quadratic program: `A x >= b`, soft, and `lower <= C x <= upper`, hard.

The soft rows need not be a matrix: the linear function and its transpose will do. All of them are
counted as the rows of `[A; C; -C] x >= [b; lower; -upper]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..math.algebra import matmul

FLOOR = 1e-9
"""Squared length of a row, in the metric of `H^-1`, below which nothing can be done about it."""


class Rows(NamedTuple):
    """The soft rows as linear functions: `A x`, and `A^T y`."""

    times: Callable[[Array], Array]
    transposed: Callable[[Array], Array]

    @staticmethod
    def of(product: Callable[..., Array], parameters: Sequence[Array], x: Array) -> Rows:
        """For arguments like `x`."""

        def times(x: Array) -> Array:
            return product(x, *parameters)

        transpose = jax.linear_transpose(times, x)
        return Rows(times, lambda y: transpose(y)[0])


def constraint_values(A: Rows, C: Array, x: Array) -> Array:
    """`[A; C; -C] x` (m + 2n,)."""
    held = matmul(C, x)
    return jnp.concatenate([A.times(x), held, -held])


def closure_converted(
    A: Callable[[Array], Array], x: Array
) -> tuple[Callable[..., Array], list[Array]]:
    """`A` as a function of `x` and of all that it closes over, and that.

    `jax.closure_convert` would leave out what is not a float, such as a barrier's conditions.
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
    """Violations of rows that count as none, by their right-hand sides."""
    # Not relative violations, which would take a division for every row.
    return tolerance * (1 + jnp.where(jnp.isfinite(rhs), jnp.abs(rhs), 0))
