"""Sums and exchanges along the kinematic tree, as products with constant masks.

What bodies pass on to each other is vectorised over the tree (Morton and Pavone, the frax paper):
arrays have one row per body (nb) or per joint axis (na).
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from ..math.algebra import einsum, matmul
from .robot import Robot, Topology


def tree_mask(robot: Robot, dtype: DTypeLike) -> Array:
    """The ancestor mask `U` (nb, na): `U @ x` sums over ancestors, `U.T @ x` over descendants."""
    return jnp.asarray(robot.topology.axes.moves, dtype)


def path_sums(topology: Topology, x: Array) -> Array:
    """Sums (nb, ...) of what bodies have over each body and those between it and the root."""
    return einsum("ij,j...->i...", jnp.asarray(topology.supported, x.dtype), x)


def subtree_sums(topology: Topology, x: Array) -> Array:
    """Sums (nb, ...) of what bodies have over each body and all that it carries.

    Begun at the leaves, so that the bodies of a chain have their partial sums in common.
    """
    supported = jnp.asarray(topology.supported[::-1], x.dtype)
    return einsum("ji,j...->i...", supported, x[::-1])


def of_parents(topology: Topology, x: Array, of_world: Array) -> Array:
    """What each body's parent has (nb, ...): rows of `x`, or `of_world` (...)."""
    if topology.is_chain:
        return jnp.concatenate([of_world[None], x[:-1]])
    return jnp.concatenate([x, of_world[None]])[topology.parent]


def child_sums(topology: Topology, x: Array) -> Array:
    """Sums (nb, ...) of what bodies have over each body's children."""
    if topology.is_chain:
        return jnp.concatenate([x[1:], jnp.zeros_like(x[:1])])
    bodies = np.arange(len(topology.parent))
    children = jnp.asarray(topology.parent == bodies[:, None], x.dtype)
    return einsum("ij,j...->i...", children, x)


def of_bases(topology: Topology, x: Array) -> Array:
    """What the base of each body's tree has (nb, ...), zero where the tree does not travel."""
    return jnp.concatenate([x, jnp.zeros_like(x[:1])])[topology.base]


def of_bodies(topology: Topology, x: Array) -> Array:
    """What the body that an axis moves has (na, ...)."""
    return x if topology.axes.one_per_body else x[topology.axes.body]


def of_carriers(topology: Topology, x: Array) -> Array:
    """What the body that an axis is fixed in has (na, ...), zero for the world."""
    axes = topology.axes
    if axes.carried_by_own_body:
        return x
    return jnp.concatenate([x, jnp.zeros_like(x[:1])])[axes.carrier]


def axis_sums(topology: Topology, x: Array) -> Array:
    """Sums (nb, ...) of what axes have over those of each body's joint."""
    axes = topology.axes
    if axes.one_per_body:
        return x
    own = jnp.asarray(axes.body == np.arange(len(topology.parent))[:, None], x.dtype)
    return einsum("ij,j...->i...", own, x)


def axis_rates(robot: Robot, v: Array) -> Array:
    """Rates (na,) of the joint axes for the velocity `v` (nv,): with those that mimic others."""
    axes = robot.topology.axes
    return matmul(jnp.asarray(axes.dof, v.dtype), v) if axes.has_mimics else v


def dof_forces(robot: Robot, forces: Array) -> Array:
    """Generalized forces (nv, ...) of forces along the joint axes (na, ...): of `axis_rates`."""
    axes = robot.topology.axes
    return matmul(jnp.asarray(axes.dof.T, forces.dtype), forces) if axes.has_mimics else forces
