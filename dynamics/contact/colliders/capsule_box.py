"""A capsule with a box.

The nearest point of the capsule's axis, and a second one that keeps a capsule from rocking that
lies on a face, across an edge or along it. Where that one is, is MuJoCo's rule.

Source: MuJoCo's `mjraw_CapsuleBox`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...math.algebra import matmul
from .points import MINVAL, Placed, Points, chosen, dot
from .sphere import point_box

EDGES = [(axis, sign) for axis in range(3) for sign in range(8) if not sign >> axis & 1]
MIDDLES = np.array([[(k != a) * (1 if s >> k & 1 else -1) for k in range(3)] for a, s in EDGES])
"""Middles of the twelve edges of a box, in half extents: four along x, along y, along z."""
ALONG = np.array([[k == axis for k in range(3)] for axis, _ in EDGES])
"""Which axis each is along."""
UNBOUNDED = 1e9
"""More than any step; finite, since zero times infinity is no derivative."""


class _Nearest(NamedTuple):
    """The point of a segment that is nearest to a box, and the box's feature that it is nearest to.

    That is a face (or the inside) for one of the segment's ends, else an edge or its end, a corner.
    """

    place: Array  # on the segment, from -1 to 1
    is_end: Array  # whether it is an end of the segment, over a face or in the box
    face: Array  # (3,) bool, the axis across that face; false inside
    edge: Array  # (3,) bool, the axis along the edge
    on_edge: Array  # place on the edge, from -1 to 1
    is_corner: Array  # whether that is an end of the edge
    is_positive: Array  # (3,) bool, signs of the corner's coordinates


def capsule_box(capsule: Placed, box: Placed) -> Points:
    """Two contacts of spheres on the capsule's axis: the nearest, and one farther along the box."""
    centre = matmul(box.rotation.T, capsule.position - box.position)
    reach = capsule.size[1] * matmul(box.rotation.T, capsule.rotation[:, 2])
    nearest = _nearest(centre, reach, box.size)
    step, exists = _step_to_second(nearest, centre, reach, box.size)
    places = jnp.stack([nearest.place, nearest.place + jnp.where(exists, step, 0.0)])

    axis_points = centre + places[:, None] * reach
    distance, normal = jax.vmap(point_box, (0, None))(axis_points, box.size)
    distance = distance - capsule.size[0]
    position = axis_points + (capsule.size[0] + 0.5 * distance)[:, None] * normal
    return Points(
        distance=distance,
        position=box.position + matmul(position, box.rotation.T),
        normal=matmul(normal, box.rotation.T),
        tangent=jnp.zeros_like(position),
        exists=jnp.stack([jnp.ones((), bool), exists]),
    )


def _nearest(centre: Array, reach: Array, half: Array) -> _Nearest:
    """The point of a segment nearest to the box [-half, half].

    It is one of the ends, over a face or in the box, or the nearest to one of the edges.

    Args:
        centre: (3,), m, of the segment.
        reach: (3,), m, from there to its end.
        half: (3,), m.
    """
    ends = jnp.array([-1.0, 1.0], centre.dtype)
    end_points = centre + ends[:, None] * reach
    outside = end_points - jnp.clip(end_points, -half, half)
    is_over = jnp.sum(outside != 0, axis=1) <= 1
    end_square = jnp.where(is_over, dot(outside, outside), np.inf)
    is_second = end_square[1] < end_square[0]
    end_square = jnp.where(is_second, end_square[1], end_square[0])

    # Fractions x of half an edge, from its middle, and s of half the segment.
    between = jnp.asarray(MIDDLES, half.dtype) * half - centre
    length, along = (jnp.sum(jnp.where(ALONG, x, 0.0), axis=1) for x in (half, reach))
    ma, mb, mc = length * length, -length * along, dot(reach, reach)
    u, v = -length * jnp.sum(jnp.where(ALONG, between, 0.0), axis=1), dot(between, reach)
    determinant = ma * mc - mb * mb
    is_crossing = jnp.abs(determinant) >= MINVAL
    x_lines = (mc * u - mb * v) / jnp.where(is_crossing, determinant, 1.0)
    s_free = (v - mb * jnp.clip(x_lines, -1.0, 1.0)) / mc
    s = jnp.clip(s_free, -1.0, 1.0)
    x_free = (u - mb * s) / ma
    x = jnp.clip(x_free, -1.0, 1.0)
    # MuJoCo calls it a corner, too, if only the line through the segment is nearest to one.
    is_clipped = jnp.abs(s_free) > 1
    is_upper = jnp.where(is_clipped & (jnp.abs(x_free) > 1), x_free > 1, x_lines > 1)
    is_corner = (jnp.abs(x_lines) > 1) | (is_clipped & (jnp.abs(x_free) > 1))
    gap = between - s[:, None] * reach + jnp.where(ALONG, (length * x)[:, None], 0.0)
    square = jnp.where(is_crossing, dot(gap, gap), np.inf)

    least, code = end_square, jnp.asarray(-1, jnp.int32)
    for k in range(12):
        is_nearer = square[k] < least - MINVAL
        least, code = jnp.where(is_nearer, square[k], least), jnp.where(is_nearer, k, code)
    edge = code == np.arange(12)
    is_end = code < 0
    end_place = jnp.where(is_second, ends[1], ends[0])
    return _Nearest(
        place=jnp.where(is_end, end_place, chosen(edge, s)),
        is_end=is_end,
        face=jnp.where(is_second, outside[1], outside[0]) != 0,
        edge=jnp.any(edge[:, None] & ALONG, axis=0),
        on_edge=chosen(edge, x),
        is_corner=jnp.any(edge & is_corner),
        is_positive=jnp.any(
            edge[:, None] & jnp.where(ALONG, is_upper[:, None], MIDDLES > 0), axis=0
        ),
    )


def _step_to_second(
    nearest: _Nearest, centre: Array, reach: Array, half: Array
) -> tuple[Array, Array]:
    """How much farther along the segment the second contact is, and whether there is one.

    Args:
        nearest: the first contact.
        centre: (3,), m, of the segment.
        reach: (3,), m, from there to its end.
        half: (3,), m, half extents of the box.
    """
    size = jnp.abs(reach)
    is_square = size <= MINVAL
    across = jnp.where(is_square, UNBOUNDED, 2 * half / jnp.where(is_square, 1.0, size))
    to_end, to_start = 1 - nearest.place, 1 + nearest.place

    # From an end, over the face: until the segment leaves it.
    forwards = nearest.place < 0
    end = centre + jnp.where(forwards, -reach, reach)
    towards = jnp.where(forwards, reach, -reach)
    safe = jnp.where(is_square, 1.0, towards)
    leave = jnp.stack([(half - end) / safe, (-half - end) / safe])
    leave = jnp.where((leave > 0) & ~nearest.face & ~is_square, leave, 2.0)
    from_end = jnp.minimum(jnp.min(leave), 2.0)
    from_end = jnp.where(forwards, from_end, -from_end)

    # Axes in which the segment points from the corner, or from the edge, into the box's slab.
    inwards = (reach > 0) != nearest.is_positive
    count = jnp.sum(inwards)
    # From a corner: along the edge that the segment is the nearest to, or over the face.
    single = jnp.where(count == 1, inwards, ~inwards)
    along, back = jnp.where(count == 1, to_end, to_start), jnp.where(count == 1, to_start, to_end)
    is_steep = chosen(single, size) ** 2 > 0.5 * dot(reach, reach)
    along = jnp.minimum(along, _smallest(single, across))
    back = -jnp.minimum(back, _smallest(~single, across))
    from_corner = jnp.where(is_steep, along, back) * jnp.where(count == 1, 1.0, -1.0)

    # From within an edge: over the face that the segment is the flatter to.
    inwards = inwards & ~nearest.edge
    is_crossing = jnp.sum(inwards) == 1
    flat = ~nearest.edge & (size == jnp.max(jnp.where(nearest.edge, -1.0, size)))
    is_ahead = jnp.any(inwards & flat)
    is_same = jnp.any((reach > 0) & nearest.edge) == is_ahead
    rest = 0.5 * (1 - jnp.where(is_same, nearest.on_edge, -nearest.on_edge))
    from_edge = jnp.minimum(jnp.where(is_ahead, to_end, to_start), _smallest(flat, across))
    from_edge = jnp.minimum(from_edge, _smallest(nearest.edge, across) * rest)
    from_edge = jnp.where(is_ahead, from_edge, -from_edge)

    step = jnp.where(nearest.is_corner, from_corner, from_edge)
    exists = jnp.where(nearest.is_corner, (count > 0) & (count < 3), is_crossing)
    return (
        jnp.where(nearest.is_end, from_end, step),
        jnp.where(nearest.is_end, jnp.any(nearest.face), exists),
    )


def _smallest(of: Array, x: Array) -> Array:
    """The smallest of the entries of `x` (3,) where the (3,) bool `of` is true."""
    return jnp.min(jnp.where(of, x, UNBOUNDED))
