"""Products of small arrays at full precision.

GPUs multiply float32 matrices in TF32 by default, with a relative error near 1e-3. These products
always run at the precision of their operands.
"""

from __future__ import annotations

from itertools import combinations, pairwise

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import Precision

from .tracing import traced_once


def matmul(a: Array, b: Array) -> Array:
    """Matrix product `a @ b` at full precision."""
    return jnp.matmul(a, b, precision=Precision.HIGHEST)


@traced_once
def einsum(subscripts: str, *operands: Array) -> Array:
    """Einstein summation at full precision."""
    return jnp.einsum(subscripts, *operands, precision=Precision.HIGHEST)


def matvec(matrices: Array, vectors: Array) -> Array:
    """Products (n, k) of matrices (n, k, m) and vectors (n, m) at full precision."""
    return einsum("nij,nj->ni", matrices, vectors)


@traced_once
def cross(a: Array, b: Array) -> Array:
    """Cross product along the last axis, (..., 3)."""
    a0, a1, a2 = jnp.unstack(a, axis=-1)
    b0, b1, b2 = jnp.unstack(b, axis=-1)
    return jnp.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axis=-1)


@traced_once
def norm(x: Array) -> Array:
    """Euclidean norms of vectors (..., n), with a zero, not a NaN, gradient at zero."""
    square = jnp.sum(x * x, axis=-1)
    is_zero = square == 0
    return jnp.where(is_zero, 0.0, jnp.sqrt(jnp.where(is_zero, 1.0, square)))


@traced_once
def smallest(x: Array) -> tuple[Array, Array]:
    """Smallest entries of (..., n) along the last axis, and their indices (int32).

    A tournament of comparisons: half the operations of `argmin` and `min`, which handle NaNs. Here
    a NaN may lose to any other entry.
    """
    index = jnp.broadcast_to(jnp.arange(x.shape[-1], dtype=jnp.int32), x.shape)
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        left, right, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        i, j, k = index[..., :half], index[..., half : 2 * half], index[..., 2 * half :]
        less = right < left
        x = jnp.concatenate([jnp.where(less, right, left), rest], axis=-1)
        index = jnp.concatenate([jnp.where(less, j, i), k], axis=-1)
    return x[..., 0], index[..., 0]


@traced_once
def determinant(matrix: Array) -> Array:
    """Determinant of a (3, 3) or (6, 6) matrix, by Laplace's expansion.

    A polynomial without divisions, so that its derivatives exist at singular matrices as well.
    """
    if matrix.shape[-1] == 3:
        return jnp.sum(matrix[0] * cross(matrix[1], matrix[2]))
    chosen = list(combinations(range(6), 3))
    rest = [tuple(sorted(set(range(6)) - set(c))) for c in chosen]
    sign = np.array([(-1.0) ** (sum(c) - 3) for c in chosen])
    top, bottom = matrix[:3, np.array(chosen)], matrix[3:, np.array(rest)]
    minors = [jnp.sum(m[0] * cross(m[1], m[2]), axis=-1) for m in (top, bottom)]
    return jnp.sum(jnp.asarray(sign, matrix.dtype) * minors[0] * minors[1])


_STRIP = 8
"""Rows of a symmetric product that are multiplied together."""


@traced_once
def symmetric_product(a: Array, b: Array) -> Array:
    """The upper triangle of `a.T @ b` (n, n), symmetric, of `a` and `b` (m, n): for `mirrored`.

    It comes in strips of rows, each from its first element of the diagonal on: a kernel's making
    takes time for whatever is multiplied, also where nothing needs it.
    """
    n = b.shape[1]
    strips = [
        jnp.pad(matmul(a[:, i:j].T, b[:, i:]), ((0, 0), (i, 0)))
        for i, j in pairwise([*range(0, n, _STRIP), n])
    ]
    return jnp.concatenate(strips)


@traced_once
def mirrored(matrix: Array) -> Array:
    """Symmetric matrices (..., n, n) by their upper triangles: in a kernel nothing computes the
    lower ones.
    """
    n = matrix.shape[-1]
    return jnp.where(np.tri(n, k=-1, dtype=bool), matrix.swapaxes(-1, -2), matrix)
