"""A capsule with a capsule."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ...math.algebra import cross
from .points import Placed, Points, direction, dot, points, unit_x

PARALLEL = 1e-4
"""Angle of the axes, rad, below which there are two contacts."""


def capsule_capsule(first: Placed, second: Placed) -> Points:
    """One contact at the axes' nearest points; two if the axes are parallel.

    Those are at both ends of the part where the capsules are beside each other, and the same point
    twice if they are not.

    Source: Ericson, Real-Time Collision Detection (2005), 5.1.9.
    """
    axis1, axis2 = first.rotation[:, 2], second.rotation[:, 2]
    radius, half1, half2 = first.size[0] + second.size[0], first.size[1], second.size[1]
    offset = second.position - first.position
    along1, along2, cosine = dot(axis1, offset), dot(axis2, offset), dot(axis1, axis2)
    normal = cross(axis1, axis2)
    square = dot(normal, normal)
    is_parallel = square < PARALLEL**2

    # The axes' points are s and t, m, from the centres: first where infinite lines come closest.
    s = (along1 - cosine * along2) / jnp.where(is_parallel, 1.0, square)
    s = jnp.clip(s, -half1, half1)
    t = jnp.clip(cosine * s - along2, -half2, half2)
    s = jnp.clip(along1 + cosine * t, -half1, half1)

    s_ends = jnp.stack([half1, -half1])
    t_ends = cosine * s_ends - along2
    is_beyond = jnp.abs(t_ends) > half2
    t_ends = jnp.clip(t_ends, -half2, half2)
    s_ends = jnp.where(is_beyond, jnp.clip(along1 + cosine * t_ends, -half1, half1), s_ends)

    s = jnp.stack([jnp.where(is_parallel, s_ends[0], s), s_ends[1]])[:, None]
    t = jnp.stack([jnp.where(is_parallel, t_ends[0], t), t_ends[1]])[:, None]
    fallback, _ = direction(normal, unit_x(offset.dtype))

    def spheres(s: Array, t: Array) -> tuple[Array, Array, Array]:
        between, length = direction(offset + t * axis2 - s * axis1, fallback)
        distance = length - radius
        return distance, s * axis1 + (first.size[0] + 0.5 * distance) * between, between

    distance, position, between = jax.vmap(spheres)(s, t)
    exists = jnp.stack([jnp.ones((), bool), is_parallel])
    return points(distance, first.position + position, between, exists)
