"""A box with a box: separating axes, and the polygon in which two faces overlap.

MuJoCo's rules for which of the axes, of the faces and of the vertices count, and the same contacts
up to rounding, in eight slots without lists: the overlap of two convex quadrilaterals has as its
sides at most a part of each of their eight edges, so that each edge has the slot of one vertex.
They differ where two choices are as good to within rounding: edges that are flush, faces that are
as near.

Sources: Gottschalk, Lin and Manocha, "OBBTree", SIGGRAPH 1996, 5 (separating axes); Liang and
Barsky, "A new concept and method for line clipping", ACM Transactions on Graphics 3 (1984);
Ericson, Real-Time Collision Detection (2005), 5.1.9 (two edges); MuJoCo's `mjc_BoxBox`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...math.algebra import matmul
from .points import Placed, Points, chosen, dot, first_largest

EDGE_BIAS = 1e-6
"""By how much, of its depth, an axis across two edges has to be better than the others."""

ALIAS_COSINE, ALIAS_GAIN = 0.99, 0.05
"""An axis across two edges this near to the best face's has to be better by this much of its depth:
a face holds with more than one point."""


class _Precision(NamedTuple):
    """What is rounding error, as MuJoCo has it in double and in single precision."""

    separation: float  # of a separation, in sums of half extents
    parallel: float  # of the squared sine of an angle
    duplicate: float  # of a vertex, in diagonals of the face
    flush: float  # of an edge along another, in sums of half extents


_DOUBLE = _Precision(separation=1e-13, parallel=1e-16, duplicate=1e-7, flush=1e-12)
_SINGLE = _Precision(separation=1e-6, parallel=1e-7, duplicate=1e-5, flush=1e-6)


class _Axis(NamedTuple):
    """The axis along which two boxes are the least deep in each other, or the farthest apart."""

    separation: Array  # the largest along any axis, m
    is_edge: Array  # whether it is across two edges
    of_second: Array  # whether it is the normal of a face of the second box
    own: Array  # (3,) bool, the axis of the box whose face it is; of the first, if across edges
    other: Array  # (3,) bool, the axis of the other box: of its opposite face, or its edge


class _View(NamedTuple):
    """One box seen from the other, the reference, with the axes that matter first in both."""

    half: Array  # (3,), m, of the reference
    other_half: Array  # (3,), m
    centre: Array  # (3,), m, of the other box
    turn: Array  # (3, 3), axes of the other box, as columns


def box_box(first: Placed, second: Placed) -> Points:
    """One contact of two edges, in the first slot, or up to eight of two faces."""
    precision = _DOUBLE if first.size.dtype == np.float64 else _SINGLE
    offset = second.position - first.position
    turn = matmul(first.rotation.T, second.rotation)
    centre = matmul(first.rotation.T, offset)
    back = -matmul(second.rotation.T, offset)
    axis = _separating_axis(
        *jax.lax.stop_gradient((turn, centre, back, first.size, second.size)), precision
    )

    def choose(if_second: Array, if_first: Array) -> Array:
        return jnp.where(axis.of_second, if_second, if_first)

    view = _View(
        half=_leading(axis.own, choose(second.size, first.size)),
        other_half=_leading(axis.other, choose(first.size, second.size)),
        centre=_leading(axis.own, choose(back, centre)),
        turn=_leading(axis.other, _leading(axis.own, choose(turn.T, turn)).T).T,
    )
    rotation = _leading(axis.own, choose(second.rotation, first.rotation).T).T

    distance, position, exists, side = _faces(view, precision)
    edge_distance, edge_position, across = _edges(view, precision)
    is_first = np.arange(8) == 0
    normal = jnp.stack([choose(-side, side), jnp.zeros_like(side), jnp.zeros_like(side)])
    normal = matmul(rotation, jnp.where(axis.is_edge, across, normal))
    position = jnp.where(axis.is_edge, edge_position, position)
    return Points(
        distance=jnp.where(axis.is_edge, edge_distance, distance),
        position=choose(second.position, first.position) + matmul(position, rotation.T),
        normal=jnp.broadcast_to(normal, (8, 3)),
        tangent=jnp.zeros_like(position),
        exists=jnp.where(axis.is_edge, is_first, exists),
        separation=axis.separation - precision.separation * _scale(view),
    )


def _separating_axis(
    turn: Array, centre: Array, back: Array, half1: Array, half2: Array, precision: _Precision
) -> _Axis:
    """The best of fifteen axes: the normals of three faces each, and nine across two edges.

    Args:
        turn: (3, 3), axes of the second box in the first's frame, as columns.
        centre: (3,), m, of the second box in the first's frame.
        back: (3,), m, of the first box in the second's frame.
        half1: (3,), m, half extents of the first box.
        half2: (3,), m, of the second.
        precision: what is rounding error.
    """
    size = jnp.abs(turn)
    faces = jnp.concatenate(
        [
            jnp.abs(centre) - half1 - matmul(size, half2),
            jnp.abs(back) - half2 - matmul(size.T, half1),
        ]
    )
    best_face = jnp.max(faces)
    face = first_largest(faces)

    # Entry (i, j): the cross product of the first's axis i and the second's j, whose entry i is 0.
    y, z = -_rolled(turn, 2), _rolled(turn, 1)
    square = y * y + z * z
    is_axis = square >= precision.parallel
    inverse = jax.lax.rsqrt(jnp.where(is_axis, square, 1.0))
    y, z = y * inverse, z * inverse
    reach1 = _rolled(half1, 1)[:, None] * jnp.abs(y) + _rolled(half1, 2)[:, None] * jnp.abs(z)
    u, v = (
        y * _rolled(_rolled(turn.T, n).T, 1) + z * _rolled(_rolled(turn.T, n).T, 2) for n in (1, 2)
    )
    reach2 = _rolled(half2, 1) * jnp.abs(u) + _rolled(half2, 2) * jnp.abs(v)
    gap = jnp.abs(y * _rolled(centre, 1)[:, None] + z * _rolled(centre, 2)[:, None])
    edges = jnp.where(is_axis, gap - reach1 - reach2, -np.inf).reshape(9)

    best, code = best_face, jnp.asarray(-1, jnp.int32)
    for k in range(9):
        is_better = edges[k] - EDGE_BIAS * jnp.abs(edges[k]) > best
        best, code = jnp.where(is_better, edges[k], best), jnp.where(is_better, k, code)
    edge = code == np.arange(9)
    edge_pair = edge.reshape(3, 3)
    own_edge, other_edge = jnp.any(edge_pair, axis=1), jnp.any(edge_pair, axis=0)

    y, z = chosen(edge, y.reshape(9)), chosen(edge, z.reshape(9))
    across = jnp.where(_rolled(own_edge, 2), y, jnp.where(_rolled(own_edge, 1), z, 0.0))
    cosine = chosen(face, jnp.abs(jnp.concatenate([across, matmul(turn.T, across)])))
    # Boxes that lie flat on each other are as deep along both: rounding shall not decide.
    slack = precision.separation * (jnp.sum(half1) + jnp.sum(half2))
    is_alias = cosine > ALIAS_COSINE
    is_alias &= best < best_face + ALIAS_GAIN * jnp.abs(best_face) + slack
    is_edge = (code >= 0) & ~is_alias

    of_second = ~is_edge & jnp.any(face[3:])
    own = jnp.where(is_edge, own_edge, face[:3] | face[3:])
    opposite = first_largest(chosen(own, jnp.where(of_second, size.T, size)))
    return _Axis(
        separation=jnp.maximum(best_face, jnp.max(edges)),
        is_edge=is_edge,
        of_second=of_second,
        own=own,
        other=jnp.where(is_edge, other_edge, opposite),
    )


def _edges(view: _View, precision: _Precision) -> tuple[Array, Array, Array]:
    """Contact of the first axis's edges: distance, m, position (3,), m, and unit normal (3,)."""
    y, z = -view.turn[2, 0], view.turn[1, 0]
    square = y * y + z * z
    square = jnp.where(square < precision.parallel, 1.0, square)
    inverse = jax.lax.rsqrt(square)
    inverse = jnp.where(y * view.centre[1] + z * view.centre[2] < 0, -inverse, inverse)
    across = jnp.stack([jnp.zeros_like(y), y * inverse, z * inverse])
    of_other = matmul(view.turn.T, across)

    # The middles of the edges that reach the farthest towards the other box.
    is_edge = np.array([True, False, False])
    start = jnp.where(is_edge, 0.0, jnp.where(across < 0, -view.half, view.half))
    reach = jnp.where(is_edge, 0.0, jnp.where(of_other < 0, view.other_half, -view.other_half))
    along = view.turn[:, 0]
    between = view.centre + matmul(view.turn, reach) - start
    cosine, own, other = along[0], between[0], dot(along, between)
    half, other_half = view.half[0], view.other_half[0]
    s = jnp.clip((own - cosine * other) / square, -half, half)
    t = jnp.clip(cosine * s - other, -other_half, other_half)
    s = jnp.clip(own + cosine * t, -half, half)

    gap = between + t * along - jnp.where(is_edge, s, 0.0)
    return dot(gap, across), start + jnp.where(is_edge, s, 0.0) + 0.5 * gap, across


def _faces(view: _View, precision: _Precision) -> tuple[Array, Array, Array, Array]:
    """Contacts of the first axes' faces.

    Returns:
        distances (8,), m, positions (8, 3), m, whether there is such a vertex (8,), and the side
        of the reference on which the other box is, 1.0 or -1.0.
    """
    one = jnp.ones_like(view.half[0])
    side = jnp.where(view.centre[0] < 0, -one, one)
    far = jnp.where(side * view.turn[0, 0] > 0, -one, one)
    # Coordinates from here: two along the reference's face, then the height above it.
    middle, *sides = (
        jnp.stack([x[1], x[2], side * x[0]])
        for x in (
            view.centre + far * view.other_half[0] * view.turn[:, 0],
            view.other_half[1] * view.turn[:, 1],
            view.other_half[2] * view.turn[:, 2],
        )
    )
    u, v = sides
    middle = middle - jnp.stack([0.0 * one, 0.0 * one, view.half[0]])
    determinant = u[0] * v[1] - u[1] * v[0]
    # Counter-clockwise, as the reference's.
    is_flipped = determinant < 0
    u, v = jnp.where(is_flipped, v, u), jnp.where(is_flipped, u, v)
    # Of opposite faces it is at least 0.57 of the face; what two edges meet in is not looked at.
    area, face = jnp.abs(determinant), view.other_half[1] * view.other_half[2]
    inverse = 1 / jnp.where(area < 0.5 * face, face, area)
    scale = _scale(view)
    half_u = jnp.where(is_flipped, view.other_half[2], view.other_half[1])
    half_v = jnp.where(is_flipped, view.other_half[1], view.other_half[2])

    start = middle + jnp.stack([u + v, v - u, -u - v, u - v])
    direction = 2 * jnp.stack([-u, -v, u, v])
    flush = jnp.stack([scale, scale]) * precision.flush
    begin, end = _clipped(start[:, :2], direction[:, :2], view.half[1:], flush, flush)
    is_vertex = begin <= end
    vertices = start + jnp.minimum(begin, 1.0)[:, None] * direction

    # The reference's edges in units of the other face's sides: there it is the square.
    x, y = view.half[1], view.half[2]
    corner = jnp.stack(
        [jnp.stack([x, y]), jnp.stack([-x, y]), jnp.stack([-x, -y]), jnp.stack([x, -y])]
    )
    to_square = jnp.stack([jnp.stack([v[1], -v[0]]), jnp.stack([-u[1], u[0]])]) * inverse
    x, y = 2 * x * to_square[:, 0], 2 * y * to_square[:, 1]
    direction = jnp.stack([-x, -y, x, y])
    start = matmul(corner - middle[:2], to_square.T)
    flush = scale * precision.flush / jnp.stack([half_u, half_v])
    begin, end = _clipped(start, direction, jnp.stack([one, one]), flush, 0.0 * flush)
    is_corner = begin < end
    begin = jnp.minimum(begin, 1.0)[:, None]
    at = start + begin * direction
    corners = middle + at[:, :1] * u + at[:, 1:] * v

    found = jnp.concatenate([vertices, corners])
    exists = jnp.concatenate([is_vertex, is_corner])
    radius = precision.duplicate**2 * dot(view.half[1:], view.half[1:])
    exists = exists & ~_repeated(jax.lax.stop_gradient(found[:, :2]), exists, radius)
    height = found[:, 2]
    position = jnp.stack([side * (view.half[0] + 0.5 * height), found[:, 0], found[:, 1]], axis=1)
    return height, position, exists, side


def _clipped(
    start: Array, direction: Array, half: Array, parallel: Array, slack: Array
) -> tuple[Array, Array]:
    """The part of each edge in a rectangle, by Liang and Barsky, as two fractions of its length.

    Args:
        start: (4, 2), where the edges begin.
        direction: (4, 2), from there to where they end.
        half: (2,), half extents of the rectangle.
        parallel: (2,), entries of `direction` below which an edge is parallel to a side,
        slack: (2,), and how far outside of the side it may be then.

    Returns:
        (4,) fractions where the part begins, at least 0, and ends, at most 1; nothing of an edge is
        inside where they are in the other order.
    """
    is_parallel = jnp.abs(direction) <= parallel
    inverse = 1 / jnp.where(is_parallel, 1.0, direction)
    far = jnp.where(direction < 0, -half, half)
    is_inside = jnp.abs(start) <= half + slack
    enter = jnp.where(is_parallel, jnp.where(is_inside, -1.0, 2.0), (-far - start) * inverse)
    leave = jnp.where(is_parallel, jnp.where(is_inside, 2.0, -1.0), (far - start) * inverse)
    begin = _larger(_larger(enter[:, 0], enter[:, 1]), jnp.zeros_like(enter[:, 0]))
    end = -_larger(_larger(-leave[:, 0], -leave[:, 1]), -jnp.ones_like(leave[:, 0]))
    return begin, end


def _repeated(found: Array, exists: Array, square: Array) -> Array:
    """(n,) whether an existing point before is nearer than the root of `square`."""
    repeated = [jnp.zeros((), bool)]
    for k in range(1, found.shape[0]):
        step = found[:k] - found[k]
        repeated.append(jnp.any(exists[:k] & (dot(step, step) < square)))
    return jnp.stack(repeated)


def _scale(view: _View) -> Array:
    """Sum of all half extents, m."""
    return jax.lax.stop_gradient(jnp.sum(view.half) + jnp.sum(view.other_half))


def _larger(a: Array, b: Array) -> Array:
    """`jnp.maximum`, with the derivative of `b` where they are equal."""
    return jnp.where(a > b, a, b)


def _rolled(x: Array, n: int) -> Array:
    """Rows (3, ...) from row `n` on, cyclically."""
    return jnp.concatenate([x[n:], x[:n]])


def _leading(axis: Array, x: Array) -> Array:
    """Rows (3, ...) from the row of the (3,) bool `axis` on, cyclically."""
    axis = axis.reshape(3, *[1] * x.ndim)
    return jnp.where(axis[0], x, jnp.where(axis[1], _rolled(x, 1), _rolled(x, 2)))
