"""Centre of mass, and momentum about it."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from .crba import composite_forces
from .kinematics import (
    Kinematics,
    checked_configuration,
    checked_tangent,
    compute_kinematics,
    forward_kinematics,
    relative_to_first,
)
from .math.algebra import cross, matmul, matvec
from .model.robot import Robot
from .model.tree import dof_forces, of_bodies


def center_of_mass(
    robot: Robot, q: Real[ArrayLike, " nq"], *, kin: Kinematics | None = None
) -> Float[Array, " 3"]:
    """Centre of mass, m, of the moving bodies, in the world.

    Args:
        robot: the model.
        q: rad and m.
        kin: kinematics at `q`, if already computed.
    """
    com = body_com(robot, q, kin=kin)
    mass = jnp.asarray(robot.mass, com.dtype)
    return jnp.sum(mass[:, None] * com, axis=0) / jnp.sum(mass)


def center_of_mass_jacobian(
    robot: Robot, q: Real[ArrayLike, " nq"], *, kin: Kinematics | None = None
) -> Float[Array, "3 nv"]:
    """Jacobian of `center_of_mass`: `J @ v` is its velocity, m/s, in world axes.

    Args:
        robot: the model.
        q: rad and m.
        kin: kinematics at `q`, if already computed.
    """
    momentum = centroidal_momentum_matrix(robot, q, kin=kin)
    return momentum[:3] / jnp.sum(jnp.asarray(robot.mass, momentum.dtype))


def centroidal_momentum(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    *,
    kin: Kinematics | None = None,
) -> Float[Array, " 6"]:
    """Momentum of the moving bodies, `[linear; angular about their centre of mass]`.

    In world axes, kg m/s and kg m^2/s; without the rotors (armature).

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        kin: kinematics at `q`, if already computed.

    Source: Orin, Goswami and Lee, "Centroidal dynamics of a humanoid robot" (2013).
    """
    return matmul(centroidal_momentum_matrix(robot, q, kin=kin), checked_tangent(robot, "v", v))


def centroidal_momentum_matrix(
    robot: Robot, q: Real[ArrayLike, " nq"], *, kin: Kinematics | None = None
) -> Float[Array, "6 nv"]:
    """The matrix that maps `v` to `centroidal_momentum`.

    Args:
        robot: the model.
        q: rad and m.
        kin: kinematics at `q`, if already computed.

    Source: Orin, Goswami and Lee (2013), eq. 12.
    """
    kin = compute_kinematics(robot, q) if kin is None else kin
    linear, moment = composite_forces(robot, kin)
    position = relative_to_first(robot.topology, kin)
    com = com_from_first(robot, kin)
    angular = moment + cross(of_bodies(robot.topology, position) - com, linear)
    return dof_forces(robot, jnp.concatenate([linear, angular], axis=-1)).T


def com_from_first(robot: Robot, kin: Kinematics) -> Array:
    """Centre of mass (3,), m, in world axes, from the origin of `relative_to_first`."""
    mass = jnp.asarray(robot.mass, kin.first_moment.dtype)[:, None]
    moment = mass * relative_to_first(robot.topology, kin) + kin.first_moment
    return jnp.sum(moment, axis=0) / jnp.sum(mass)


def body_com(robot: Robot, q: ArrayLike, *, kin: Kinematics | None = None) -> Array:
    """Centres of mass (nb, 3), m, of the moving bodies, in the world."""
    poses = forward_kinematics(robot, checked_configuration(robot, q)) if kin is None else kin
    local = jnp.asarray(robot.com, poses.position.dtype)
    return poses.position + matvec(poses.rotation, local)
