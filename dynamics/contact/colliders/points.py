"""What colliders take and return, and the vectors that they are made of."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ...math.pytree import pytree_dataclass

MINVAL = 1e-15
"""MuJoCo's smallest length, m, that has a direction."""


@pytree_dataclass
class Placed:
    """A geom in the world.

    Attributes:
        position: (3,), m.
        rotation: (3, 3), geom to world.
        size: (3,), m, as in `Geoms`.
    """

    position: Array
    rotation: Array
    size: Array


@pytree_dataclass
class Points:
    """The k contact slots of two geoms.

    Attributes:
        distance: (k,), m, negative where the geoms overlap.
        position: (k, 3), m, half way between the surfaces.
        normal: (k, 3), unit, from the first geom to the second.
        tangent: (k, 3), where the frame's second axis shall point; zero where it does not matter.
        exists: (k,) bool, whether there is a contact in the slot, if its distance allows it.
        separation: m, a distance that the geoms keep at least: none of the slots counts where the
            margin is smaller.
    """

    distance: Array
    position: Array
    normal: Array
    tangent: Array
    exists: Array
    separation: ArrayLike = -np.inf


def points(
    distance: Float[Array, " k"],
    position: Float[Array, "k 3"],
    normal: Float[Array, "k 3"] | Float[Array, " 3"],
    exists: Array | None = None,
) -> Points:
    """Contact slots without tangents; without `exists`, all do."""
    return Points(
        distance=distance,
        position=position,
        normal=jnp.broadcast_to(normal, position.shape),
        tangent=jnp.zeros_like(position),
        exists=jnp.ones(distance.shape, bool) if exists is None else exists,
    )


def flat_angle(dtype: np.dtype) -> float:
    """Angle, rad, below which the direction of what is left of a unit vector is rounding error."""
    return 1e-9 if np.dtype(dtype) == np.float64 else 1e-5


def dot(a: Array, b: Array) -> Array:
    """Scalar products along the last axis."""
    return jnp.sum(a * b, axis=-1)


def direction(
    x: Float[Array, " 3"], otherwise: Array, shortest: float = MINVAL
) -> tuple[Float[Array, " 3"], Float[Array, ""]]:
    """Unit vector along `x` and its length, m; `otherwise` and zero if shorter than `shortest`.

    Both have derivatives then, too: zero, and that of `otherwise`.
    """
    square = dot(x, x)
    is_short = square < shortest**2
    length = jnp.sqrt(jnp.where(is_short, 1.0, square))
    return jnp.where(is_short, otherwise, x / length), jnp.where(is_short, 0.0, length)


def unit_x(dtype: np.dtype) -> Array:
    """The unit vector (1, 0, 0)."""
    return jnp.array([1.0, 0.0, 0.0], dtype)


def first_largest(x: Float[Array, " n"]) -> Array:
    """(n,) bool, true at the largest entry, the first of equal ones."""
    largest = jnp.max(x)
    found = jnp.zeros((), bool)
    chosen = []
    for k in range(x.shape[0]):
        here = x[k] == largest
        chosen.append(here & ~found)
        found = found | here
    return jnp.stack(chosen)


def chosen(of: Array, x: Array) -> Array:
    """The entry of `x` (n, ...) where the (n,) bool `of` is true; zero if nowhere."""
    return jnp.sum(jnp.where(of.reshape(-1, *[1] * (x.ndim - 1)), x, 0.0), axis=0)
