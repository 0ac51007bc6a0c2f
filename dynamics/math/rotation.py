"""Rotations: matrices, unit quaternions (wxyz) and rotation vectors.

Every function takes one rotation and is differentiable wherever it is defined, also at the zero
angle: the double-`where` trick guards norms and quotients near singular points, so that the
untaken branch never produces a NaN gradient.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from fraxenv.errors import ArrayError

from .algebra import cross, matmul
from .tracing import traced_once


@traced_once
def skew(w: Array) -> Array:
    """Cross-product matrices `[w]x` of vectors (..., 3): `skew(w) @ u == cross(w, u)`."""
    return cross(jnp.eye(3, dtype=w.dtype), w[..., None, :])


@traced_once
def quaternion_multiply(a: Float[Array, " 4"], b: Float[Array, " 4"]) -> Float[Array, " 4"]:
    """Hamilton product of two quaternions wxyz: the rotation `a` after `b`."""
    w = a[0] * b[0] - jnp.sum(a[1:] * b[1:])
    xyz = a[0] * b[1:] + b[0] * a[1:] + cross(a[1:], b[1:])
    return jnp.concatenate([w[None], xyz])


def quaternion_conjugate(a: Float[Array, " 4"]) -> Float[Array, " 4"]:
    """Conjugate of a quaternion wxyz: of a unit quaternion, the inverse rotation."""
    return jnp.concatenate([a[:1], -a[1:]])


@traced_once
def quaternion_normalize(a: Float[Array, " 4"]) -> Float[Array, " 4"]:
    """Scale a quaternion wxyz to unit length; the zero quaternion becomes the identity."""
    square = jnp.sum(a * a)
    is_zero = square < np.finfo(a.dtype).tiny
    unit = a / jnp.sqrt(jnp.where(is_zero, 1.0, square))
    return jnp.where(is_zero, jnp.array([1.0, 0.0, 0.0, 0.0], a.dtype), unit)


@traced_once
def quaternion_to_matrix(a: Float[Array, " 4"]) -> Float[Array, "3 3"]:
    """Rotation matrix of a unit quaternion wxyz."""
    w, x, y, z = a
    return jnp.stack(
        [
            jnp.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]),
            jnp.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]),
            jnp.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]),
        ]
    )


@traced_once
def matrix_to_quaternion(rotation: Float[Array, "3 3"]) -> Float[Array, " 4"]:
    """Unit quaternion wxyz of a rotation matrix, with a non-negative real part.

    Of the four ways to extract a quaternion, it takes the one with the largest pivot, which keeps
    full precision at every angle.

    Source: Shepperd, "Quaternion from rotation matrix", 1978.
    """
    m = rotation
    trace = m[0, 0] + m[1, 1] + m[2, 2]
    one = jnp.ones((), m.dtype)
    candidates = jnp.stack(
        [
            jnp.stack([one + trace, m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]]),
            jnp.stack(
                [
                    m[2, 1] - m[1, 2],
                    one + 2 * m[0, 0] - trace,
                    m[1, 0] + m[0, 1],
                    m[0, 2] + m[2, 0],
                ]
            ),
            jnp.stack(
                [
                    m[0, 2] - m[2, 0],
                    m[1, 0] + m[0, 1],
                    one + 2 * m[1, 1] - trace,
                    m[2, 1] + m[1, 2],
                ]
            ),
            jnp.stack(
                [
                    m[1, 0] - m[0, 1],
                    m[0, 2] + m[2, 0],
                    m[2, 1] + m[1, 2],
                    one + 2 * m[2, 2] - trace,
                ]
            ),
        ]
    )
    pivots = jnp.stack([trace, m[0, 0], m[1, 1], m[2, 2]])
    best = jnp.argmax(pivots)
    a = jnp.sum(jnp.where(jnp.arange(4)[:, None] == best, candidates, 0.0), axis=0)
    a = jnp.where(a[0] < 0, -a, a)
    return quaternion_normalize(a)


@traced_once
def quaternion_exp(w: Float[Array, " 3"]) -> Float[Array, " 4"]:
    """Unit quaternion wxyz (4,) of a rotation vector (3,), rad."""
    square = jnp.sum(w * w)
    small = square < _small(w)
    angle = jnp.sqrt(jnp.where(small, 1.0, square))
    # sin(angle / 2) / angle, by its Taylor series where the quotient is 0 / 0
    scale = jnp.where(small, 0.5 - square / 48.0, jnp.sin(0.5 * angle) / angle)
    real = jnp.where(small, 1.0 - square / 8.0, jnp.cos(0.5 * angle))
    return jnp.concatenate([real[None], scale * w])


@traced_once
def quaternion_log(a: Float[Array, " 4"]) -> Float[Array, " 3"]:
    """Rotation vector, rad, of a unit quaternion wxyz; its norm is at most pi.

    `a` and `-a` are the same rotation and give the same vector. Unlike the sum of cross products
    of axes, it does not vanish as the angle reaches pi.
    """
    a = jnp.where(a[0] < 0, -a, a)
    square = jnp.sum(a[1:] * a[1:])
    small = square < _small(a)
    sine = jnp.sqrt(jnp.where(small, 1.0, square))
    # angle / sin(angle / 2); 2 + angle^2 / 12 near zero
    scale = jnp.where(small, 2.0 + square / 3.0, 2.0 * jnp.arctan2(sine, a[0]) / sine)
    return scale * a[1:]


@traced_once
def rotation_log(rotation: Float[Array, "3 3"]) -> Float[Array, " 3"]:
    """Rotation vector, rad, of a rotation matrix; its norm is at most pi."""
    return quaternion_log(matrix_to_quaternion(rotation))


@traced_once
def rotation_exp(w: Float[Array, " 3"]) -> Float[Array, "3 3"]:
    """Rotation matrix of a rotation vector, rad."""
    return quaternion_to_matrix(quaternion_exp(w))


@traced_once
def orientation_error(
    desired: Float[Array, "3 3"], actual: Float[Array, "3 3"]
) -> Float[Array, " 3"]:
    """Rotation vector, rad, in world axes, that turns `actual` into `desired`.

    It is the logarithm of `desired @ actual.T`, well defined up to an angle of pi.
    """
    return rotation_log(matmul(desired, actual.T))


@traced_once
def right_jacobian(w: Array) -> Array:
    """Right Jacobian (3, 3) of SO(3) at a rotation vector (3,).

    `exp(w + d) = exp(w) exp(right_jacobian(w) @ d)` to first order.

    Source: Sola et al., "A micro Lie theory" (2018), eq. 143.
    """
    square = jnp.sum(w * w)
    small = square < _small(w)
    angle = jnp.sqrt(jnp.where(small, 1.0, square))
    # (1 - cos x) / x^2 = 2 (sin(x / 2) / x)^2, without cancellation
    half = jnp.sin(0.5 * angle) / angle
    first = jnp.where(small, 0.5 - square / 24.0, 2 * half * half)
    second = jnp.where(small, 1 / 6 - square / 120.0, (angle - jnp.sin(angle)) / angle**3)
    W = skew(w)
    return jnp.eye(3, dtype=w.dtype) - first * W + second * matmul(W, W)


@traced_once
def right_jacobian_inverse(w: Array) -> Array:
    """Inverse (3, 3) of `right_jacobian(w)`, for rotation vectors (3,) shorter than 2 pi.

    Source: Sola et al., "A micro Lie theory" (2018), eq. 144.
    """
    square = jnp.sum(w * w)
    small = square < _small(w)
    angle = jnp.sqrt(jnp.where(small, 1.0, square))
    half = 0.5 * angle
    series = 1 / 12 + square / 720.0
    second = jnp.where(small, series, (1 - half * jnp.cos(half) / jnp.sin(half)) / angle**2)
    W = skew(w)
    return jnp.eye(3, dtype=w.dtype) + 0.5 * W + second * matmul(W, W)


def rotation_to(z: np.ndarray) -> np.ndarray:
    """A rotation (3, 3) whose third column is along `z` (3,), in NumPy on the host."""
    third = z / np.linalg.norm(z)
    first = np.cross(np.eye(3)[np.argmin(np.abs(third))], third)
    first /= np.linalg.norm(first)
    return np.stack([first, np.cross(third, first), third], axis=1)


def check_point(what: str, value: ArrayLike) -> NDArray[np.float64]:
    """The coordinates (3,), m, of a point; on the host.

    Raises:
        ArrayError: it has another shape, or is not finite.
    """
    p = np.asarray(value, float)
    if p.shape != (3,) or not np.isfinite(p).all():
        raise ArrayError(f"{what}={value!r}, expected three finite numbers, m.")
    return p


def check_rotation(what: str, value: ArrayLike) -> NDArray[np.float64]:
    """A rotation matrix (3, 3), orthogonal to 1e-6; on the host.

    Raises:
        ArrayError: it has another shape, or is none.
    """
    R = np.asarray(value, float)
    orthogonal = R.shape == (3, 3) and np.allclose(R @ R.T, np.eye(3), atol=1e-6)
    if not (orthogonal and np.linalg.det(R) > 0):
        raise ArrayError(
            f"{what}={value!r}, expected a rotation matrix (3, 3): orthogonal, with determinant 1."
        )
    return R


def _small(x: Array) -> float:
    """Square of the angle below which a second-order series is exact to rounding."""
    return 0.1 * float(np.sqrt(np.finfo(x.dtype).eps))
