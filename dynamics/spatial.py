"""Spatial vector algebra in one fixed frame (Featherstone, "Rigid Body Dynamics Algorithms", 2).

Motion vectors are `[linear; angular]`: the velocity of the body-fixed point that is at the frame's
origin, then the angular velocity. Force vectors are `[force; moment about the origin]`.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from .algebra import cross, einsum


def motion_cross(v: Array, m: Array) -> Array:
    """Spatial cross product `v x m` of motion vectors (..., 6): the rate of `m` carried by `v`."""
    linear = cross(v[..., 3:], m[..., :3]) + cross(v[..., :3], m[..., 3:])
    return jnp.concatenate([linear, cross(v[..., 3:], m[..., 3:])], axis=-1)


def force_cross(v: Array, f: Array) -> Array:
    """Spatial cross product `v x* f` of a motion and a force vector (..., 6)."""
    moment = cross(v[..., 3:], f[..., 3:]) + cross(v[..., :3], f[..., :3])
    return jnp.concatenate([cross(v[..., 3:], f[..., :3]), moment], axis=-1)


def spatial_inertia(mass: Array, com: Array, inertia: Array) -> Array:
    """Spatial inertias (n, 6, 6), kg, kg m, kg m^2, about the frame's origin.

    Args:
        mass: (n,), kg.
        com: (n, 3), centres of mass in the frame, m.
        inertia: (n, 3, 3), rotational inertias about the centres of mass in the frame's axes.

    Source: Featherstone (2008), eq. 2.63, with linear and angular parts exchanged.
    """
    h = mass[:, None] * com
    zero = jnp.zeros_like(mass)
    hx = jnp.stack(
        [
            jnp.stack([zero, -h[:, 2], h[:, 1]], axis=-1),
            jnp.stack([h[:, 2], zero, -h[:, 0]], axis=-1),
            jnp.stack([-h[:, 1], h[:, 0], zero], axis=-1),
        ],
        axis=-2,
    )
    eye = jnp.eye(3, dtype=mass.dtype)
    steiner = jnp.sum(h * com, axis=-1)[:, None, None] * eye - h[:, :, None] * com[:, None, :]
    top = jnp.concatenate([mass[:, None, None] * eye, -hx], axis=-1)
    bottom = jnp.concatenate([hx, inertia + steiner], axis=-1)
    return jnp.concatenate([top, bottom], axis=-2)


def apply_inertia(inertia: Array, motion: Array) -> Array:
    """Products `I_i m_i` of spatial inertias (n, 6, 6) and motion vectors (n, 6); (n, 6)."""
    return einsum("nij,nj->ni", inertia, motion)


def coriolis_inertia(inertia: Array, velocity: Array) -> Array:
    """The matrices `N` (n, 6, 6) with `N m = I (m x V) + m x* (I V) + V x* (I m)`.

    How the force on a body changes when its velocity does by `m`. Half of it is the body's Coriolis
    matrix: `N V / 2 = V x* (I V)`, and `(N + N^T) / 2` is the rate of the inertia.

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
