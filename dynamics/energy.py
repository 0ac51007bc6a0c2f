"""Kinetic and potential energy."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from .crba import crba
from .kinematics import Kinematics, checked_tangent
from .math.algebra import matmul
from .model.robot import Robot
from .momentum import body_com


def kinetic_energy(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    *,
    kin: Kinematics | None = None,
) -> Float[Array, ""]:
    """Kinetic energy `v^T M v / 2`, J, with the rotors (armature)."""
    v = checked_tangent(robot, "v", v)
    return 0.5 * jnp.sum(v * matmul(crba(robot, q, kin=kin), v))


def potential_energy(
    robot: Robot, q: Real[ArrayLike, " nq"], *, kin: Kinematics | None = None
) -> Float[Array, ""]:
    """Gravitational potential energy, J; zero with all centres of mass at the world's origin."""
    com = body_com(robot, q, kin=kin)
    mass, gravity = jnp.asarray(robot.mass, com.dtype), jnp.asarray(robot.gravity, com.dtype)
    return -jnp.sum(mass[:, None] * com * gravity)
