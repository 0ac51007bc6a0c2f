"""Gathering and summing rows along the kinematic tree, as products with constant masks.

Recursions over bodies are vectorised over the tree (Morton and Pavone, the frax paper): arrays have
one row per body (nb) or per joint axis (na). `of_...` gathers rows, `..._sums` adds them up.
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
    """Sum of per-body rows (nb, ...) over each body and its ancestors."""
    return einsum("ij,j...->i...", jnp.asarray(topology.supported, x.dtype), x)


def subtree_sums(topology: Topology, x: Array) -> Array:
    """Sum of per-body rows (nb, ...) over each body's subtree.

    Summed from the leaves, so that the bodies of a chain share their partial sums.
    """
    supported = jnp.asarray(topology.supported[::-1], x.dtype)
    return einsum("ji,j...->i...", supported, x[::-1])


def of_parents(topology: Topology, x: Array, of_world: Array) -> Array:
    """Rows (nb, ...) of each body's parent; `of_world` (...) for roots."""
    if topology.is_chain:
        return jnp.concatenate([of_world[None], x[:-1]])
    return jnp.concatenate([x, of_world[None]])[topology.parent]


def child_sums(topology: Topology, x: Array) -> Array:
    """Sum of per-body rows (nb, ...) over each body's children."""
    if topology.is_chain:
        return jnp.concatenate([x[1:], jnp.zeros_like(x[:1])])
    bodies = np.arange(len(topology.parent))
    children = jnp.asarray(topology.parent == bodies[:, None], x.dtype)
    return einsum("ij,j...->i...", children, x)


def of_bases(topology: Topology, x: Array) -> Array:
    """Rows (nb, ...) of the base of each body's tree; zero where the tree does not travel."""
    return jnp.concatenate([x, jnp.zeros_like(x[:1])])[topology.base]


def of_bodies(topology: Topology, x: Array) -> Array:
    """Rows (na, ...) of the body that each axis moves."""
    return x if topology.axes.one_per_body else x[topology.axes.body]


def of_carriers(topology: Topology, x: Array) -> Array:
    """Rows (na, ...) of the body that each axis is fixed in; zero for the world."""
    axes = topology.axes
    if axes.carried_by_own_body:
        return x
    return jnp.concatenate([x, jnp.zeros_like(x[:1])])[axes.carrier]


def axis_sums(topology: Topology, x: Array) -> Array:
    """Sum of per-axis rows (na, ...) over the axes of each body's joint: (nb, ...)."""
    axes = topology.axes
    if axes.one_per_body:
        return x
    own = jnp.asarray(axes.body == np.arange(len(topology.parent))[:, None], x.dtype)
    return einsum("ij,j...->i...", own, x)


def axis_rates(robot: Robot, v: Array) -> Array:
    """Rates (na,) of all joint axes, mimics included, at the velocity `v` (nv,)."""
    axes = robot.topology.axes
    return matmul(jnp.asarray(axes.dof, v.dtype), v) if axes.has_mimics else v


def dof_forces(robot: Robot, forces: Array) -> Array:
    """Generalized forces (nv, ...) of forces (na, ...) along joint axes: dual to `axis_rates`."""
    axes = robot.topology.axes
    return matmul(jnp.asarray(axes.dof.T, forces.dtype), forces) if axes.has_mimics else forces
