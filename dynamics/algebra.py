"""Products of small arrays at full precision.

GPUs multiply float32 matrices in TF32 by default, with a relative error near 1e-3. These products
always run at the precision of their operands.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.lax import Precision


def matmul(a: Array, b: Array) -> Array:
    """Matrix product `a @ b` at full precision."""
    return jnp.matmul(a, b, precision=Precision.HIGHEST)


def einsum(subscripts: str, *operands: Array) -> Array:
    """Einstein summation at full precision."""
    return jnp.einsum(subscripts, *operands, precision=Precision.HIGHEST)


def cross(a: Array, b: Array) -> Array:
    """Cross product along the last axis, (..., 3)."""
    return jnp.stack(
        [
            a[..., 1] * b[..., 2] - a[..., 2] * b[..., 1],
            a[..., 2] * b[..., 0] - a[..., 0] * b[..., 2],
            a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0],
        ],
        axis=-1,
    )


def norm(x: Array) -> Array:
    """Euclidean norm of a vector (n,), with a zero, not a NaN, gradient at zero."""
    square = jnp.sum(x * x)
    is_zero = square == 0
    return jnp.where(is_zero, 0.0, jnp.sqrt(jnp.where(is_zero, 1.0, square)))
