"""Cholesky factorisation and solution of small symmetric positive definite systems.

The factor is upper triangular, `U U^T`, found from the last column to the first. For the mass
matrix of a tree, whose bodies are numbered from the root, this order has no fill-in: where the
matrix has structural zeros, so has the factor (Featherstone, "Rigid Body Dynamics Algorithms",
2008, 6.4 and 6.5, with `L = U^T`). Where only a solution is wanted, `ldl` takes no roots and half
the divisions. LAPACK's routines are not used: several batched ones at a time can
lock up XLA's threads on a CPU with few cores.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ..math.algebra import matmul
from ..math.tracing import traced_once


@traced_once
def cholesky(matrix: Array, floor: Array | None = None) -> Array:
    """The upper triangular `U` (n, n) with a positive diagonal and `U U^T = matrix`.

    NaN where the matrix is not positive definite.

    Args:
        matrix: (n, n), symmetric; only the upper triangle is read.
        floor: (n,), the least square of each diagonal entry, for matrices that are positive
            definite but for rounding; none if omitted.
    """
    n = matrix.shape[0]
    index = jnp.arange(n)

    def eliminate(step: Array, A: Array) -> Array:
        k = n - 1 - step
        if floor is not None:
            A = A.at[k, k].max(floor[k])
        column = jnp.where(index <= k, A[:, k], 0) * (1 / jnp.sqrt(A[k, k]))
        above = jnp.where(index < k, column, 0)
        A = A - above[:, None] * above[None, :]
        return A.at[:, k].set(column)

    factor: Array = jax.lax.fori_loop(0, n, eliminate, matrix)
    return factor


@traced_once
def solve_upper(factor: Array, rhs: Array) -> Array:
    """Solve `U x = rhs` for an upper triangular `U` (n, n); rhs (n,) or (n, k)."""
    n = factor.shape[0]
    inverse = 1 / jnp.diagonal(factor)
    above = jnp.triu(factor, 1)

    def substitute(step: Array, x: Array) -> Array:
        k = n - 1 - step
        known = x[k] * inverse[k]
        return (x - _outer(above[:, k], known)).at[k].set(known)

    solution: Array = jax.lax.fori_loop(0, n, substitute, rhs)
    return solution


@traced_once
def solve_upper_transposed(factor: Array, rhs: Array) -> Array:
    """Solve `U^T x = rhs` for an upper triangular `U` (n, n); rhs (n,) or (n, k)."""
    n = factor.shape[0]
    inverse = 1 / jnp.diagonal(factor)
    above = jnp.triu(factor, 1)

    def substitute(k: Array, x: Array) -> Array:
        known = x[k] * inverse[k]
        return (x - _outer(above[k], known)).at[k].set(known)

    solution: Array = jax.lax.fori_loop(0, n, substitute, rhs)
    return solution


@traced_once
def cholesky_solve(factor: Array, rhs: Array) -> Array:
    """Solve `U U^T x = rhs` with the factor `U` of `cholesky`; rhs (n,) or (n, k)."""
    return solve_upper_transposed(factor, solve_upper(factor, rhs))


@traced_once
def spd_inverse(matrix: Array) -> Array:
    """The inverse (n, n) of a symmetric positive definite matrix, symmetric to the last bit.

    Args:
        matrix: (n, n); only the upper triangle is read.
    """
    root = solve_upper(cholesky(matrix), jnp.eye(len(matrix), dtype=matrix.dtype))
    return matmul(root.T, root)


@traced_once
def ldl(matrix: Array) -> tuple[Array, Array]:
    """The `U` (n, n) and the inverse of `D` (n,) with `U D U^T = matrix`.

    `U` is upper triangular with a unit diagonal; its lower triangle and diagonal are not set. NaN
    where the matrix is not positive definite.

    Args:
        matrix: (n, n), symmetric; only the upper triangle is read.
    """
    n = matrix.shape[0]
    index = jnp.arange(n)

    def eliminate(step: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        A, inverse = carry
        k = n - 1 - step
        above = jnp.where(index < k, A[:, k], 0)
        inverse_pivot = jnp.where(A[k, k] > 0, 1 / A[k, k], jnp.nan)
        column = above * inverse_pivot
        A = A - column[:, None] * above[None, :]
        return A.at[:, k].set(column), inverse.at[k].set(inverse_pivot)

    factor: tuple[Array, Array] = jax.lax.fori_loop(
        0, n, eliminate, (matrix, jnp.zeros_like(matrix[0]))
    )
    return factor


@traced_once
def ldl_solve(factor: tuple[Array, Array], rhs: Array) -> Array:
    """Solve `U D U^T x = rhs` with the factors of `ldl`; rhs (n,) or (n, k)."""
    U, inverse = factor
    n = len(inverse)
    above = jnp.triu(U, 1)

    def backward(step: Array, x: Array) -> Array:
        k = n - 1 - step
        return x - _outer(above[:, k], x[k])

    def forward(k: Array, x: Array) -> Array:
        return x - _outer(above[k], x[k])

    x = jax.lax.fori_loop(0, n, backward, rhs)
    x = x * (inverse if rhs.ndim == 1 else inverse[:, None])
    solution: Array = jax.lax.fori_loop(0, n, forward, x)
    return solution


def _outer(column: Array, row: Array) -> Array:
    return column * row if row.ndim == 0 else column[:, None] * row[None, :]
