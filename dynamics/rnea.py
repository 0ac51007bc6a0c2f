"""Recursive Newton-Euler algorithm, as products with the ancestor mask.

Luh, Walker and Paul (1980), in world axes and about each body's origin; vectorised as in the frax
paper (Morton and Pavone).
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Float, Real

from fraxenv.errors import ArrayError

from .body_motion import body_motion
from .kinematics import Kinematics, checked_tangent, compute_kinematics
from .math.algebra import cross, matvec
from .math.tracing import traced_once
from .model.robot import Robot
from .model.tree import (
    child_sums,
    dof_forces,
    of_bodies,
    subtree_sums,
)


@traced_once
def rnea(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    a: Real[ArrayLike, " nv"],
    external_forces: Real[ArrayLike, "nb 6"] | None = None,
    *,
    kin: Kinematics | None = None,
) -> Float[Array, " nv"]:
    """Inverse dynamics: the generalized forces, N m and N, that cause the acceleration `a`.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        a: rad/s^2 and m/s^2.
        external_forces: `[force; moment]` on each moving body, N and N m, in world axes, moments
            about the origin of the body's frame; none if omitted.
        kin: kinematics at `q`, if already computed.

    Returns:
        `M(q) a + bias(q, v) - J^T f`, with armature in `M`, without joint damping and friction.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    v, a = checked_tangent(robot, "v", v), checked_tangent(robot, "a", a)
    kin = compute_kinematics(robot, q) if kin is None else kin
    m = body_motion(robot, kin, v, a)
    # Gravity as an upward acceleration of the world.
    acceleration = m.acceleration - jnp.asarray(robot.gravity, v.dtype)

    # Newton's and Euler's equations: force, and moment about the body's origin.
    force = jnp.asarray(robot.mass, v.dtype)[:, None] * acceleration
    force = force + matvec(m.gradient, kin.first_moment)
    moment = cross(kin.first_moment, acceleration)
    moment = moment + matvec(kin.inertia, m.angular_acceleration)
    moment = moment + cross(m.angular_velocity, matvec(kin.inertia, m.angular_velocity))
    if external_forces is not None:
        external = checked_external_forces(robot, external_forces, v.dtype)
        force, moment = force - external[:, :3], moment - external[:, 3:]
    tau = joint_forces(robot, kin, force, moment)
    return tau + jnp.asarray(robot.armature, a.dtype) * a


@traced_once
def bias_forces(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    external_forces: Real[ArrayLike, "nb 6"] | None = None,
    *,
    kin: Kinematics | None = None,
) -> Float[Array, " nv"]:
    """Coriolis, centrifugal and gravity forces, N m and N: `rnea` at zero acceleration."""
    v = checked_tangent(robot, "v", v)
    return rnea(robot, q, v, jnp.zeros_like(v), external_forces, kin=kin)


def gravity_forces(
    robot: Robot, q: Real[ArrayLike, " nq"], *, kin: Kinematics | None = None
) -> Float[Array, " nv"]:
    """Generalized forces, N m and N, that hold the robot still against gravity at `q`."""
    kin = compute_kinematics(robot, q) if kin is None else kin
    zero = jnp.zeros(robot.nv, kin.axis.dtype)
    return rnea(robot, q, zero, zero, kin=kin)


@traced_once
def generalized_forces(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    external_forces: Real[ArrayLike, "nb 6"],
    *,
    kin: Kinematics | None = None,
) -> Float[Array, " nv"]:
    """Generalized forces `J^T f`, N m and N, of external forces on the bodies.

    Args:
        robot: the model.
        q: rad and m.
        external_forces: as in `rnea`.
        kin: kinematics at `q`, if already computed.

    Raises:
        ArrayError: `external_forces` is not of shape (nb, 6).
    """
    kin = compute_kinematics(robot, q) if kin is None else kin
    f = checked_external_forces(robot, external_forces, kin.axis.dtype)
    return joint_forces(robot, kin, f[:, :3], f[:, 3:])


def joint_forces(robot: Robot, kin: Kinematics, force: Array, moment: Array) -> Array:
    """Generalized forces (nv,) of forces (nb, 3) on the bodies, moments about their origins."""
    topology = robot.topology
    force = subtree_sums(topology, force)
    moment = subtree_sums(topology, moment + child_sums(topology, cross(kin.offset, force)))
    force, moment = of_bodies(topology, force), of_bodies(topology, moment)
    felt = jnp.where(topology.axes.rotates[:, None], moment, force)
    return dof_forces(robot, jnp.sum(kin.axis * felt, axis=-1))


def checked_external_forces(robot: Robot, external_forces: ArrayLike, dtype: DTypeLike) -> Array:
    """`external_forces` (nb, 6) as an array, its shape checked."""
    f = jnp.asarray(external_forces, dtype)
    if f.shape != (robot.nb, 6):
        raise ArrayError(
            f"external_forces of robot {robot.name!r} has shape {f.shape}, expected "
            f"{(robot.nb, 6)}: one [force; moment] per moving body {robot.topology.body_names}."
        )
    return f
