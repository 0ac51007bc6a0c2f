"""Derivative of the momentum about the centre of mass, in closed form, on the tangent space.

Displaced along an axis, the momentum of all that the axis moves turns with it; what moves the axis
itself does not turn, and adds the momentum of `psi_dot` of `displaced_motion`.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from .crba import composite_forces
from .derivatives import moved_sums, spatial_inertias
from .displaced_motion import displaced_motion
from .kinematics import Kinematics, checked_tangent, compute_kinematics, relative_to_first
from .math.algebra import cross, einsum
from .math.spatial import apply_inertia, force_cross
from .model.robot import Robot
from .model.tree import dof_forces, of_bodies
from .momentum import com_from_first


def centroidal_momentum_derivative(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    *,
    kin: Kinematics | None = None,
) -> Float[Array, "6 nv"]:
    """Derivative of `centroidal_momentum` by `q`, at a fixed `v`.

    By `v` it is `centroidal_momentum_matrix`.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        kin: kinematics at `q`, if already computed.

    Raises:
        ArrayError: an argument has the wrong shape.

    Source: Carpentier and Mansard, "Analytical derivatives of rigid body dynamics algorithms"
    (RSS 2018), for the terms of a displaced body.
    """
    kin = compute_kinematics(robot, q) if kin is None else kin
    v = checked_tangent(robot, "v", v)
    topology = robot.topology
    motion = displaced_motion(robot, kin, v, jnp.zeros_like(v), jnp.zeros(6, v.dtype))
    inertia = spatial_inertias(robot, kin)
    momentum = apply_inertia(inertia, motion.V)
    carried, composite = (moved_sums(topology, x) for x in (momentum, inertia))
    displaced = force_cross(motion.S, carried) + einsum("jkl,jl->jk", composite, motion.psi_dot)
    linear, angular = displaced[:, :3], displaced[:, 3:]

    # From about each tree's own point to about the centre of mass, which moves as well.
    origin = of_bodies(topology, relative_to_first(topology, kin) - kin.relative)
    angular = angular + cross(origin - com_from_first(robot, kin), linear)
    moved = composite_forces(robot, kin)[0] / jnp.sum(jnp.asarray(robot.mass, linear.dtype))
    angular = angular - cross(moved, jnp.sum(momentum[:, :3], axis=0))
    return dof_forces(robot, jnp.concatenate([linear, angular], axis=-1)).T
