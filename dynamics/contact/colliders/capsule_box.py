"""A capsule with a box."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...math.algebra import matmul
from .points import MINVAL, Placed, Points, dot, first_largest
from .sphere import point_box

EDGE_MIDDLES = np.array(
    [
        [0 if k == axis else (1 if corner >> k & 1 else -1) for k in range(3)]
        for axis in range(3)
        for corner in range(8)
        if not corner >> axis & 1
    ]
)
"""Middles of the twelve edges of a box, in half extents: four along x, along y, along z."""


def capsule_box(capsule: Placed, box: Placed) -> Points:
    """Two contacts: at the axis's point nearest to the box, and farther along over the same face.

    The first is MuJoCo's. The second is at the other end of the part of the axis that is over the
    face. (MuJoCo's is found by an analysis of cases, and is elsewhere on some edges and corners.)
    """
    centre = matmul(box.rotation.T, capsule.position - box.position)
    radius, reach = (
        capsule.size[0],
        capsule.size[1] * matmul(box.rotation.T, capsule.rotation[:, 2]),
    )
    nearest = _nearest(centre, reach, box.size)
    distance, normal = point_box(centre + nearest * reach, box.size)
    face = jax.lax.stop_gradient(first_largest(jnp.abs(normal)))
    farthest, exists = _other_end(nearest, centre, reach, box.size, face)
    other_distance, other_normal = point_box(centre + farthest * reach, box.size)

    distance = jnp.stack([distance, other_distance]) - radius
    normal = jnp.stack([normal, other_normal])
    position = centre + jnp.stack([nearest, farthest])[:, None] * reach
    position = position + (radius + 0.5 * distance)[:, None] * normal
    return Points(
        distance=distance,
        position=box.position + matmul(position, box.rotation.T),
        normal=matmul(normal, box.rotation.T),
        tangent=jnp.zeros_like(position),
        exists=jnp.stack([jnp.ones((), bool), exists]),
    )


def _nearest(centre: Array, reach: Array, half: Array) -> Array:
    """Where on the segment, from -1 to 1, is the point nearest to the box [-half, half].

    It is one of the ends, over a face or in the box, or the nearest to one of the edges.

    Args:
        centre: (3,), m, of the segment.
        reach: (3,), m, from there to its end.
        half: (3,), m.
    """
    ends = jnp.array([-1.0, 1.0], centre.dtype)
    points = centre + ends[:, None] * reach
    outside = points - jnp.clip(points, -half, half)
    is_over = jnp.sum(outside != 0, axis=1) <= 1
    end_square = jnp.where(is_over, dot(outside, outside), np.inf)

    axis = np.repeat(np.eye(3, dtype=bool), 4, axis=0)
    between = jnp.asarray(EDGE_MIDDLES, half.dtype) * half - centre
    length, along = _picked(axis, half), _picked(axis, reach)
    # Fractions of half an edge, from its middle, and of half the segment.
    ma, mb, mc = length * length, -length * along, dot(reach, reach)
    u, v = -length * jnp.sum(jnp.where(axis, between, 0.0), axis=1), dot(between, reach)
    determinant = ma * mc - mb * mb
    is_crossing = jnp.abs(determinant) >= MINVAL
    x = jnp.clip((mc * u - mb * v) / jnp.where(is_crossing, determinant, 1.0), -1.0, 1.0)
    s = jnp.clip((v - mb * x) / mc, -1.0, 1.0)
    x = jnp.clip((u - mb * s) / ma, -1.0, 1.0)
    gap = between - s[:, None] * reach + jnp.where(axis, (length * x)[:, None], 0.0)
    square = jnp.where(is_crossing, dot(gap, gap), np.inf)

    is_second = end_square[1] < end_square[0]
    nearest = jnp.where(is_second, ends[1], ends[0])
    least = jnp.where(is_second, end_square[1], end_square[0])
    for k in range(12):
        is_nearer = square[k] < least - MINVAL
        nearest, least = jnp.where(is_nearer, s[k], nearest), jnp.where(is_nearer, square[k], least)
    return nearest


def _other_end(
    nearest: Array, centre: Array, reach: Array, half: Array, face: Array
) -> tuple[Array, Array]:
    """Where on the segment, from -1 to 1, the part over a face ends that is farther from `nearest`.

    Args:
        nearest: from -1 to 1.
        centre: (3,), m, of the segment.
        reach: (3,), m, from there to its end.
        half: (3,), m.
        face: (3,) bool, the axis that the face is across.

    Returns:
        the place, and whether it is another one than `nearest`.
    """
    is_across = face | (jnp.abs(reach) <= MINVAL)
    is_over = jnp.all(face | (jnp.abs(reach) > MINVAL) | (jnp.abs(centre) <= half))
    inverse = 1 / jnp.where(is_across, 1.0, reach)
    far = jnp.where(reach < 0, -half, half)
    begin = jnp.max(jnp.where(is_across, -1.0, jnp.maximum((-far - centre) * inverse, -1.0)))
    end = jnp.min(jnp.where(is_across, 1.0, jnp.minimum((far - centre) * inverse, 1.0)))
    farther = jnp.where(end - nearest > nearest - begin, end, begin)
    is_another = jnp.abs(farther - nearest) > 1e-6
    return jnp.clip(farther, -1.0, 1.0), is_over & (begin < end) & is_another


def _picked(axis: np.ndarray, x: Array) -> Array:
    """(n,) entries of `x` (3,) where the rows of the (n, 3) bool `axis` are true."""
    return jnp.sum(jnp.where(axis, x, 0.0), axis=1)
