"""A sphere with a sphere, a capsule, a box or a cylinder."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ...math.algebra import cross, matmul
from .points import MINVAL, Placed, Points, chosen, direction, dot, first_largest, points, unit_x


def sphere_sphere(first: Placed, second: Placed) -> Points:
    """One contact.

    Where the centres meet, the normal is across both z axes; where these are parallel, the x axis.
    """
    return _spheres(first, second.position - first.position, second.size[0], second.rotation[:, 2])


def sphere_capsule(sphere: Placed, capsule: Placed) -> Points:
    """One contact, with the sphere around the axis's nearest point."""
    axis, half_length = capsule.rotation[:, 2], capsule.size[1]
    offset = capsule.position - sphere.position
    along = jnp.clip(-dot(axis, offset), -half_length, half_length)
    return _spheres(sphere, offset + along * axis, capsule.size[0], axis)


def sphere_box(sphere: Placed, box: Placed) -> Points:
    """One contact, at the box's nearest point.

    With the centre in the box, the nearest face, the first of -x, x, -y, y, -z, z.
    """
    offset = box.position - sphere.position
    distance, normal = point_box(-matmul(box.rotation.T, offset), box.size)
    distance = distance - sphere.size[0]
    normal = matmul(box.rotation, normal)
    position = sphere.position + (sphere.size[0] + 0.5 * distance) * normal
    return points(distance[None], position[None], normal)


def point_box(centre: Array, half: Array) -> tuple[Array, Array]:
    """Distance, m, of a point (3,) to the box [-half, half] (3,), negative inside.

    Returns:
        the distance, and the unit vector (3,) towards the box: to its surface, or, inside, from the
        nearest face.
    """
    gap = jnp.clip(centre, -half, half) - centre
    # Entries in the order -x, x, -y, y, -z, z, all positive inside.
    depth = jnp.stack([half + centre, half - centre], axis=1).reshape(6)
    nearest = jax.lax.stop_gradient(first_largest(-depth))
    faces = jnp.array([1.0, -1.0], centre.dtype)
    inwards = jnp.sum(jnp.where(nearest.reshape(3, 2), faces, 0.0), axis=1)
    normal, distance = direction(gap, inwards)
    is_inside = distance == 0
    return jnp.where(is_inside, -chosen(nearest, depth), distance), normal


def sphere_cylinder(sphere: Placed, cylinder: Placed) -> Points:
    """One contact, with the cylinder's side, a disk or a rim.

    With the centre in the cylinder, the nearer of side and disk, the side if they are as near.
    """
    axis, radius, half_length = cylinder.rotation[:, 2], cylinder.size[0], cylinder.size[1]
    offset = sphere.position - cylinder.position
    along = dot(axis, offset)
    across = offset - along * axis
    is_above = along > 0
    level = jnp.where(is_above, along, -along)
    outwards = jnp.where(is_above, axis, -axis)
    fallback, _ = direction(cross(sphere.rotation[:, 2], axis), unit_x(axis.dtype))
    inwards, from_axis = direction(-across, fallback)

    beside, over = level < half_length, from_axis < radius
    is_disk = over & ~(beside & (half_length - level >= radius - from_axis))
    is_side = beside & ~is_disk

    rim = (radius - from_axis) * -inwards - (level - half_length) * outwards
    to_rim, from_rim = direction(rim, fallback)
    normal = jnp.where(is_side, inwards, jnp.where(is_disk, -outwards, to_rim))
    side, disk = from_axis - radius, level - half_length
    distance = jnp.where(is_side, side, jnp.where(is_disk, disk, from_rim)) - sphere.size[0]
    position = sphere.position + (sphere.size[0] + 0.5 * distance) * normal
    return points(distance[None], position[None], normal)


def _spheres(sphere: Placed, offset: Array, radius: Array, axis: Array) -> Points:
    """Contact with a sphere of `radius` at `offset` (3,) from the first one's centre."""
    fallback, _ = direction(cross(sphere.rotation[:, 2], axis), unit_x(offset.dtype))
    normal, length = direction(offset, fallback, MINVAL)
    distance = length - sphere.size[0] - radius
    position = sphere.position + (sphere.size[0] + 0.5 * distance) * normal
    return points(distance[None], position[None], normal)
