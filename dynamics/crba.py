"""Composite rigid body algorithm, as products with the ancestor mask.

Featherstone (2008), chapter 6; vectorised as in the frax paper (Morton and Pavone), but with every
composite inertia about its own joint: about a far point, light bodies lose digits to rounding.
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
from .math.tracing import traced_once
from .model.robot import Robot
from .model.tree import child_sums, dof_forces, of_bodies, subtree_sums


@traced_once
def crba(
    robot: Robot, q: Real[ArrayLike, " nq"], *, kin: Kinematics | None = None
) -> Float[Array, "nv nv"]:
    """Joint-space mass matrix, kg m^2 and kg: symmetric, with armature on its diagonal.

    Args:
        robot: the model.
        q: rad and m.
        kin: kinematics at `q`, if already computed.
    """
    kin = compute_kinematics(robot, q) if kin is None else kin
    topology, axes = robot.topology, robot.topology.axes
    force, moment = composite_forces(robot, kin)
    # All moments about one point. A far one costs digits of first moments, but not of inertias.
    moment = moment + cross(of_bodies(topology, kin.relative), force)
    S = spatial_axes(topology, kin)
    # Row i, column j: the force that accelerates the subtree of axis i, along its ancestor axis j.
    felt = matmul(jnp.concatenate([force, moment], axis=-1), S.T)
    lower = jnp.where(np.tril(axes.moves[axes.body]), felt, 0.0)
    M = lower + jnp.where(np.tri(len(lower), k=-1, dtype=bool), lower, 0.0).T
    if axes.has_mimics:
        M = dof_forces(robot, dof_forces(robot, M).T)
    return M + jnp.diag(jnp.asarray(robot.armature, M.dtype))


def composite_forces(robot: Robot, kin: Kinematics) -> tuple[Array, Array]:
    """Force and moment that accelerate each axis' subtree from rest, by one along the axis.

    Returns:
        force (na, 3) and moment (na, 3) about the origin of the body that the axis moves, in world
        axes; N and N m per rad/s^2 or m/s^2.
    """
    topology, axis = robot.topology, kin.axis
    mass = subtree_sums(topology, jnp.asarray(robot.mass, axis.dtype))[:, None]
    # A composite sums its bodies' moments, each shifted to the origin of the next body inwards
    # (parallel axis theorem).
    shift = mass * kin.offset
    h = subtree_sums(topology, kin.first_moment + child_sums(topology, shift))
    shift = parallel_axes(h + 0.5 * shift, kin.offset)
    inertia = subtree_sums(topology, kin.inertia + child_sums(topology, shift))

    mass, h, inertia = (of_bodies(topology, x) for x in (mass, h, inertia))
    rotates = topology.axes.rotates[:, None]
    force = jnp.where(rotates, cross(axis, h), mass * axis)
    moment = jnp.where(rotates, matvec(inertia, axis), cross(h, axis))
    return force, moment
