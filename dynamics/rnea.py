"""Recursive Newton-Euler algorithm, as products with the ancestor mask.

Featherstone (2008), chapter 5; vectorised as in the frax paper (Morton and Pavone).
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from .algebra import cross, matmul
from .errors import ArrayError
from .kinematics import (
    Kinematics,
    axes_rate,
    axis_rates,
    compute_kinematics,
    dof_forces,
    tangent,
    tree_mask,
)
from .robot import Robot
from .spatial import apply_inertia, force_cross


def rnea(
    robot: Robot,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    external_forces: ArrayLike | None = None,
    *,
    kin: Kinematics | None = None,
) -> Array:
    """Inverse dynamics: the generalized forces (nv,), N m and N, that cause the acceleration `a`.

    Args:
        robot: the model.
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        a: (nv,), rad/s^2 and m/s^2.
        external_forces: (nb, 6), forces `[force; moment]` that act on each moving body, in world
            axes, with moments about the origin of the body's frame; none if omitted.
        kin: kinematics at `q`, if already computed.

    Returns:
        `M(q) a + bias(q, v) - J^T f`, armature included in `M`; without joint damping or friction.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    v, a = tangent(robot, "v", v), tangent(robot, "a", a)
    kin = compute_kinematics(robot, q) if kin is None else kin
    U = tree_mask(robot, kin.S.dtype)
    gravity = jnp.asarray(robot.gravity, kin.S.dtype)

    rates = axis_rates(robot, v)[:, None]
    V = matmul(U, kin.S * rates)
    S_dot = axes_rate(robot, kin, V)
    # The world accelerates upwards: gravity then acts on every body without being named again.
    A = matmul(U, kin.S * axis_rates(robot, a)[:, None] + S_dot * rates)
    A = A - jnp.concatenate([gravity, jnp.zeros_like(gravity)])
    F = apply_inertia(kin.inertia, A) + force_cross(V, apply_inertia(kin.inertia, V))
    if external_forces is not None:
        F = F - body_forces_about_origin(robot, external_forces, kin)
    tau = dof_forces(robot, jnp.sum(kin.S * matmul(U.T, F), axis=-1))
    return tau + jnp.asarray(robot.armature, a.dtype) * a


def bias_forces(
    robot: Robot,
    q: ArrayLike,
    v: ArrayLike,
    external_forces: ArrayLike | None = None,
    *,
    kin: Kinematics | None = None,
) -> Array:
    """Coriolis, centrifugal and gravity forces (nv,), N m and N: `rnea` at zero acceleration."""
    v = tangent(robot, "v", v)
    return rnea(robot, q, v, jnp.zeros_like(v), external_forces, kin=kin)


def gravity_forces(robot: Robot, q: ArrayLike, *, kin: Kinematics | None = None) -> Array:
    """Generalized forces (nv,), N m and N, that hold the robot still against gravity at `q`."""
    kin = compute_kinematics(robot, q) if kin is None else kin
    zero = jnp.zeros(robot.nv, kin.S.dtype)
    return rnea(robot, q, zero, zero, kin=kin)


def generalized_forces(
    robot: Robot, q: ArrayLike, external_forces: ArrayLike, *, kin: Kinematics | None = None
) -> Array:
    """Generalized forces `J^T f` (nv,), N m and N, of forces that act on the bodies.

    Args:
        robot: the model.
        q: (nq,), rad and m.
        external_forces: (nb, 6), `[force; moment]` on each moving body, in world axes, with moments
            about the origin of the body's frame.
        kin: kinematics at `q`, if already computed.

    Raises:
        ArrayError: `external_forces` is not of shape (nb, 6).
    """
    kin = compute_kinematics(robot, q) if kin is None else kin
    F = body_forces_about_origin(robot, external_forces, kin)
    along_axes = jnp.sum(kin.S * matmul(tree_mask(robot, F.dtype).T, F), axis=-1)
    return dof_forces(robot, along_axes)


def body_forces_about_origin(robot: Robot, external_forces: ArrayLike, kin: Kinematics) -> Array:
    """External forces (nb, 6) with their moments about the kinematics' origin."""
    f = jnp.asarray(external_forces, kin.S.dtype)
    if f.shape != (robot.nb, 6):
        raise ArrayError(
            f"external_forces of robot {robot.name!r} has shape {f.shape}, expected "
            f"{(robot.nb, 6)}: one [force; moment] per moving body {robot.topology.body_names}."
        )
    moment = f[:, 3:] + cross(kin.position - kin.origin, f[:, :3])
    return jnp.concatenate([f[:, :3], moment], axis=-1)
