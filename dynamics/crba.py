"""Composite rigid body algorithm, as products with the ancestor mask.

Featherstone (2008), chapter 6; vectorised as in the frax paper (Morton and Pavone), but with every
composite inertia about its own joint: about a far point light bodies lose their digits.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from .kinematics import Kinematics, compute_kinematics, spatial_axes
from .math.algebra import cross, matmul, matvec
from .math.spatial import parallel_axes
from .model.robot import Robot
from .model.tree import child_sums, dof_forces, of_bodies, subtree_sums


def crba(
    robot: Robot, q: Real[ArrayLike, " nq"], *, kin: Kinematics | None = None
) -> Float[Array, "nv nv"]:
    """Joint-space mass matrix (nv, nv), kg m^2 and kg: symmetric, armature on its diagonal.

    Args:
        robot: the model.
        q: (nq,), rad and m.
        kin: kinematics at `q`, if already computed.
    """
    kin = compute_kinematics(robot, q) if kin is None else kin
    topology, axes = robot.topology, robot.topology.axes
    force, moment = composite_forces(robot, kin)
    # About one point, all: how far away that is costs digits of first moments, not of second ones.
    moment = moment + cross(of_bodies(topology, kin.relative), force)
    S = spatial_axes(topology, kin)
    # Row i, column j: the force that moves i's subtree along axis i, felt at its ancestor j.
    felt = matmul(jnp.concatenate([force, moment], axis=-1), S.T)
    lower = jnp.where(np.tril(axes.moves[axes.body]), felt, 0.0)
    M = lower + jnp.where(np.tri(len(lower), k=-1, dtype=bool), lower, 0.0).T
    if axes.has_mimics:
        M = dof_forces(robot, dof_forces(robot, M).T)
    return M + jnp.diag(jnp.asarray(robot.armature, M.dtype))


def composite_forces(robot: Robot, kin: Kinematics) -> tuple[Array, Array]:
    """What accelerates from rest all that an axis moves, along it and by one.

    Returns:
        force (na, 3), and its moment (na, 3) about the origin of the body that the axis moves, in
        world axes; N and N m per rad/s^2 or m/s^2.
    """
    topology, axis = robot.topology, kin.axis
    mass = subtree_sums(topology, jnp.asarray(robot.mass, axis.dtype))[:, None]
    # A composite is the sum of what all its bodies have, and of what these have more about the
    # origin of the next body inwards.
    more = mass * kin.offset
    h = subtree_sums(topology, kin.first_moment + child_sums(topology, more))
    more = parallel_axes(h + 0.5 * more, kin.offset)
    inertia = subtree_sums(topology, kin.inertia + child_sums(topology, more))

    mass, h, inertia = (of_bodies(topology, x) for x in (mass, h, inertia))
    rotates = topology.axes.rotates[:, None]
    force = jnp.where(rotates, cross(axis, h), mass * axis)
    moment = jnp.where(rotates, matvec(inertia, axis), cross(h, axis))
    return force, moment
