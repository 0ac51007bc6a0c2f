"""Energy and centre of mass."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from .algebra import einsum, matmul
from .crba import crba
from .kinematics import Kinematics, configuration, forward_kinematics, tangent
from .robot import Robot


def kinetic_energy(
    robot: Robot, q: ArrayLike, v: ArrayLike, *, kin: Kinematics | None = None
) -> Array:
    """Kinetic energy, J, rotors (armature) included: `v^T M v / 2`."""
    v = tangent(robot, "v", v)
    return 0.5 * jnp.sum(v * matmul(crba(robot, q, kin=kin), v))


def potential_energy(robot: Robot, q: ArrayLike, *, kin: Kinematics | None = None) -> Array:
    """Potential energy of gravity, J, zero with all centres of mass at the world's origin."""
    com = _body_com(robot, configuration(robot, q), kin)
    mass, gravity = jnp.asarray(robot.mass, com.dtype), jnp.asarray(robot.gravity, com.dtype)
    return -jnp.sum(mass[:, None] * com * gravity)


def center_of_mass(robot: Robot, q: ArrayLike, *, kin: Kinematics | None = None) -> Array:
    """Centre of mass (3,), m, of the moving bodies, in the world."""
    com = _body_com(robot, configuration(robot, q), kin)
    mass = jnp.asarray(robot.mass, com.dtype)
    return jnp.sum(mass[:, None] * com, axis=0) / jnp.sum(mass)


def _body_com(robot: Robot, q: Array, kin: Kinematics | None) -> Array:
    poses = forward_kinematics(robot, q) if kin is None else kin
    local = jnp.asarray(robot.com, poses.position.dtype)
    return poses.position + einsum("nij,nj->ni", poses.rotation, local)
