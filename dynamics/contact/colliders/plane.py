"""A plane with a sphere, a capsule, a box or a cylinder.

A plane's normal is the z axis of its frame; what is below is inside.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax import Array

from ...math.algebra import cross, matmul
from .points import Placed, Points, direction, dot, flat_angle, points, unit_x

BOX_CORNERS = np.array([[1, 1, 1], [-1, 1, 1], [1, -1, 1], [1, 1, -1]])
"""Corners of a box, in half extents, one of each of the four opposite pairs."""


def plane_sphere(plane: Placed, sphere: Placed) -> Points:
    """One contact: the sphere's lowest point."""
    return _below(plane, sphere.position[None], jnp.zeros((1, 3)), sphere.size[0])


def plane_capsule(plane: Placed, capsule: Placed) -> Points:
    """Two contacts, of the spheres at both ends; frames are aligned with the capsule's axis."""
    axis = capsule.rotation[:, 2]
    reach = capsule.size[1] * axis
    ends = _below(plane, capsule.position, jnp.stack([reach, -reach]), capsule.size[0])
    return dataclasses.replace(ends, tangent=jnp.stack([axis, axis]))


def plane_box(plane: Placed, box: Placed) -> Points:
    """Four contacts: of each pair of opposite corners, the lower one.

    MuJoCo has the first four corners that are not above the centre: others where an edge or a face
    is exactly at right angles to the plane.
    """
    normal = plane.rotation[:, 2]
    corners = jnp.asarray(BOX_CORNERS, box.size.dtype) * box.size
    offset = matmul(corners, box.rotation.T)
    sign = jnp.where(dot(offset, normal) > 0, -1.0, 1.0)
    whole, rest = _cosines(matmul(normal, box.rotation))
    distance = dot(box.position - plane.position, normal) + sign * dot(corners, whole)
    distance += sign * dot(corners, rest)
    return _halfway(distance, box.position, sign[:, None] * offset, normal)


def _cosines(cosines: Array) -> tuple[Array, Array]:
    """A unit vector (3,) as whole numbers and what is left, each to rounding of its own size.

    Of what lies or stands, what is left is small. A depth is some thousandths of the geom: to round
    its height and its half size, each by itself, would cost float32 three digits of a contact's
    force.
    """
    squares = cosines * cosines
    others = jnp.roll(squares, 1) + jnp.roll(squares, 2)
    nearly_one = jnp.abs(cosines) > 0.75  # of at most one
    whole = jnp.where(nearly_one, jnp.sign(cosines), 0.0)
    return whole, jnp.where(nearly_one, -whole * others / (1 + jnp.abs(cosines)), cosines)


def plane_cylinder(plane: Placed, cylinder: Placed) -> Points:
    """Four contacts: three of the lower disk's rim, at 120 degrees, and one of the upper's.

    The first is the lowest point, the second is above it on the other disk.
    """
    normal, radius, half_length = plane.rotation[:, 2], cylinder.size[0], cylinder.size[1]
    cosines = matmul(normal, cylinder.rotation)
    # The normal's part along the disk, downwards; any direction will do if the disk lies flat.
    # MuJoCo takes it as what a projection onto the axis leaves of the normal. Nearly flat, by an
    # angle t, that is rounding by 1e-16 / t, and its distances by as much of the radius: in the
    # cylinder's own axes nothing cancels.
    across = cosines * jnp.array([-1.0, -1.0, 0.0], normal.dtype)
    down, _ = direction(across, unit_x(normal.dtype), flat_angle(normal.dtype))
    axis = jnp.array([0.0, 0.0, 1.0], normal.dtype) * jnp.where(cosines[2] > 0, -1.0, 1.0)
    axes = jnp.stack([down, cross(down, axis), axis])
    half = 0.5 * np.sqrt(3.0)
    rim = jnp.array([[1, 0, 1], [1, 0, -1], [-0.5, half, 1], [-0.5, -half, 1]], normal.dtype)
    rim = rim * jnp.stack([radius, radius, half_length])
    whole, rest = _cosines(matmul(axes, cosines))
    distance = dot(cylinder.position - plane.position, normal) + dot(rim, whole) + dot(rim, rest)
    offset = matmul(matmul(rim, axes), cylinder.rotation.T)
    return _halfway(distance, cylinder.position, offset, normal)


def _below(plane: Placed, centre: Array, offset: Array, radius: Array | float) -> Points:
    """Contacts of spheres at `centre + offset` (k, 3); the difference to the centre comes first."""
    normal = plane.rotation[:, 2]
    distance = dot(centre - plane.position, normal) + dot(offset, normal) - radius
    return _halfway(distance, centre, offset - radius * normal, normal)


def _halfway(distance: Array, centre: Array, offset: Array, normal: Array) -> Points:
    """Contacts halfway between the plane and the points `centre + offset` (k, 3)."""
    return points(distance, centre + (offset - 0.5 * distance[:, None] * normal), normal)
