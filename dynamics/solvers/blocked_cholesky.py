"""Cholesky factorisation and solution of larger symmetric positive definite systems, by blocks.

All but a few small blocks are products of matrices. The blocks on the diagonal are inverted: their
inverses are multiplied by, so that nothing goes row by row.

Source: Golub and Van Loan, "Matrix Computations", 4th edition, 2013, 4.2.9.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ..math.algebra import matmul
from ..math.tracing import traced_once
from .cholesky import cholesky, solve_upper

BLOCK = 8
"""Rows of the largest block."""


class BlockedFactor(NamedTuple):
    """`G` with `G G^T = matrix`, block by block of columns.

    Attributes:
        inverses: of each block on the diagonal, (b, b).
        below: what is below each of them, (rest, b).
    """

    inverses: tuple[Array, ...]
    below: tuple[Array, ...]


@traced_once
def blocked_cholesky(matrix: Array) -> BlockedFactor:
    """The factor of a matrix (n, n), symmetric; NaN where it is not positive definite."""
    inverses, belows = [], []
    for size in _sizes(matrix.shape[0]):
        block, below, rest = matrix[:size, :size], matrix[size:, :size], matrix[size:, size:]
        inverse = solve_upper(cholesky(block), jnp.eye(size, dtype=matrix.dtype))
        below = matmul(below, inverse.T)
        inverses.append(inverse)
        belows.append(below)
        matrix = rest - matmul(below, below.T)
    return BlockedFactor(tuple(inverses), tuple(belows))


@traced_once
def blocked_cholesky_solve(factor: BlockedFactor, rhs: Array) -> Array:
    """Solve `G G^T x = rhs` (n, k)."""
    found = []
    for inverse, below in zip(*factor, strict=True):
        size = len(inverse)
        found.append(matmul(inverse, rhs[:size]))
        rhs = rhs[size:] - matmul(below, found[-1])
    solution = rhs
    for inverse, below, known in zip(*(x[::-1] for x in (*factor, found)), strict=True):
        known = known - matmul(below.T, solution)
        solution = jnp.concatenate([matmul(inverse.T, known), solution])
    return solution


def _sizes(n: int) -> list[int]:
    """Of as few blocks as there can be, as alike as they can be."""
    count = -(-n // BLOCK)
    return [n // count + (k < n % count) for k in range(count)]
