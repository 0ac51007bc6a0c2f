"""Spatial vector algebra in one fixed frame (Featherstone, "Rigid Body Dynamics Algorithms", 2).

Motion vectors are `[linear; angular]`: the velocity of the body-fixed point at the frame's origin,
then the angular velocity. Force vectors are `[force; moment about the origin]`.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from .algebra import cross, einsum
from .rotation import skew
from .tracing import traced_once


@traced_once
def motion_cross(v: Array, m: Array) -> Array:
    """Spatial cross product `v x m` of motion vectors (..., 6): the rate of `m` carried by `v`."""
    linear = cross(v[..., 3:], m[..., :3]) + cross(v[..., :3], m[..., 3:])
    return jnp.concatenate([linear, cross(v[..., 3:], m[..., 3:])], axis=-1)


@traced_once
def force_cross(v: Array, f: Array) -> Array:
    """Spatial cross product `v x* f` of a motion and a force vector (..., 6)."""
    moment = cross(v[..., 3:], f[..., 3:]) + cross(v[..., :3], f[..., :3])
    return jnp.concatenate([cross(v[..., 3:], f[..., :3]), moment], axis=-1)


@traced_once
def parallel_axes(moment: Array, offset: Array) -> Array:
    """Parallel-axis terms (n, 3, 3), kg m^2, to add to inertias to move their reference point.

    For a body of mass `m` with first moment `h` about the old point, pass the moment
    `h + m offset / 2`. Neither point has to be the centre of mass; if the old one is, `h` is zero.

    Args:
        moment: (n, 3), kg m.
        offset: (n, 3), m, from the new point to the old one.
    """
    twice = 2 * jnp.sum(moment * offset, axis=-1)[:, None, None] * jnp.eye(3, dtype=moment.dtype)
    outer = moment[:, :, None] * offset[:, None, :]
    return twice - (outer + outer.swapaxes(-1, -2))


@traced_once
def spatial_inertia(mass: Array, first_moment: Array, inertia: Array) -> Array:
    """Spatial inertias (n, 6, 6), kg, kg m, kg m^2.

    Args:
        mass: (n,), kg.
        first_moment: (n, 3), kg m, mass times centre of mass.
        inertia: (n, 3, 3), kg m^2, about the frame's origin.

    Source: Featherstone (2008), eq. 2.63, with linear and angular parts exchanged.
    """
    hx = skew(first_moment)
    top = jnp.concatenate([mass[:, None, None] * jnp.eye(3, dtype=mass.dtype), -hx], axis=-1)
    return jnp.concatenate([top, jnp.concatenate([hx, inertia], axis=-1)], axis=-2)


@traced_once
def apply_inertia(inertia: Array, motion: Array) -> Array:
    """Products `I_i m_i` of spatial inertias (n, 6, 6) and motion vectors (n, 6); (n, 6)."""
    return einsum("nij,nj->ni", inertia, motion)


@traced_once
def coriolis_inertia(inertia: Array, velocity: Array) -> Array:
    """Matrices `N` (n, 6, 6) with `N m = I (m x V) + m x* (I V) + V x* (I m)`.

    `N m` is the change of the force on a body for a change `m` of its velocity. `N / 2` is the
    body's Coriolis matrix: `N V / 2 = V x* (I V)`, and `(N + N^T) / 2` is the rate of the inertia.

    Args:
        inertia: (n, 6, 6), spatial inertias.
        velocity: (n, 6), motion vectors.

    Source: Echeandia and Wensing (2021), eq. 20.
    """
    eye = jnp.eye(6, dtype=inertia.dtype)
    # Rows are the images of the basis, so that matrices below are transposed.
    moved = motion_cross(velocity[:, None, :], eye)  # V x e_k
    momentum = apply_inertia(inertia, velocity)
    images = -einsum("nkj,nij->nki", moved, inertia)
    images = images + force_cross(eye, momentum[:, None, :])
    images = images + force_cross(velocity[:, None, :], inertia)  # I is symmetric
    return images.swapaxes(-1, -2)
