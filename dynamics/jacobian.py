"""Frame Jacobians, their time derivatives, and velocities and accelerations of frames."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from fraxenv.errors import check_choice

from .body_motion import angular_velocity, body_motion
from .kinematics import Kinematics, checked_tangent, compute_kinematics
from .math.algebra import cross, determinant, matmul
from .math.tracing import traced_once
from .model.robot import WORLD, Frame, Robot
from .model.tree import (
    axis_rates,
    axis_sums,
    dof_forces,
    of_bodies,
    of_carriers,
    of_parents,
    path_sums,
)


@traced_once
def frame_jacobian(
    robot: Robot, q: Real[ArrayLike, " nq"], frame: str, *, kin: Kinematics | None = None
) -> Float[Array, "6 nv"]:
    """Jacobian of a frame: `J @ v` is its velocity `[linear; angular]`.

    Linear velocity of the frame's origin and angular velocity, both in world axes
    ("local world aligned" in Pinocchio).

    Args:
        robot: the model.
        q: rad and m.
        frame: name of a link or of an end effector.
        kin: kinematics at `q`, if already computed.

    Raises:
        UnknownNameError: the robot has no such frame.
    """
    kin = compute_kinematics(robot, q) if kin is None else kin
    rotates, f = robot.topology.axes.rotates[:, None], robot.frame(frame)
    lever = _from_body(kin, f) + kin.relative[f.body] - of_bodies(robot.topology, kin.relative)
    linear = jnp.where(rotates, cross(kin.axis, lever), kin.axis)
    return _columns(robot, f, linear, jnp.where(rotates, kin.axis, 0.0))


@traced_once
def frame_jacobian_dot(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    frame: str,
    *,
    kin: Kinematics | None = None,
) -> Float[Array, "6 nv"]:
    """Time derivative of `frame_jacobian` along the velocity `v`.

    The acceleration of the frame is `J @ a + J_dot @ v`, with the classical (not the spatial)
    acceleration of its origin.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        frame: name of a link or of an end effector.
        kin: kinematics at `q`, if already computed.

    Raises:
        UnknownNameError: the robot has no such frame.
    """
    v = checked_tangent(robot, "v", v)
    kin = compute_kinematics(robot, q) if kin is None else kin
    topology, f = robot.topology, robot.frame(frame)
    rotates = topology.axes.rotates[:, None]
    along = kin.axis * axis_rates(robot, v)[:, None]
    omega = angular_velocity(topology, along)
    of_next = of_parents(topology, omega, jnp.zeros_like(omega[0]))
    shifted = axis_sums(topology, jnp.where(rotates, 0.0, along))
    velocity = path_sums(topology, shifted + cross(of_next, kin.offset))  # of the bodies' origins

    from_body = _from_body(kin, f)
    lever = from_body + kin.relative[f.body] - of_bodies(topology, kin.relative)
    lever_dot = cross(omega[f.body], from_body) + velocity[f.body] - of_bodies(topology, velocity)
    axis_dot = cross(of_carriers(topology, omega), kin.axis)
    turning = cross(axis_dot, lever) + cross(kin.axis, lever_dot)
    linear = jnp.where(rotates, turning, axis_dot)
    return _columns(robot, f, linear, jnp.where(rotates, axis_dot, 0.0))


@traced_once
def frame_velocity(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    frame: str,
    *,
    kin: Kinematics | None = None,
) -> Float[Array, " 6"]:
    """Velocity of a frame, `[linear; angular]`, m/s and rad/s: `frame_jacobian @ v`.

    Of the frame's origin, in world axes.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        frame: name of a link or of an end effector.
        kin: kinematics at `q`, if already computed.

    Raises:
        UnknownNameError: the robot has no such frame.
    """
    return matmul(frame_jacobian(robot, q, frame, kin=kin), checked_tangent(robot, "v", v))


def frame_acceleration(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    a: Real[ArrayLike, " nv"],
    frame: str,
    *,
    kin: Kinematics | None = None,
) -> Float[Array, " 6"]:
    """Acceleration of a frame, `[linear; angular]`, m/s^2 and rad/s^2: `J a + J_dot v`.

    Classical acceleration of the frame's origin, and angular acceleration, in world axes; without
    gravity.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        a: rad/s^2 and m/s^2.
        frame: name of a link or of an end effector.
        kin: kinematics at `q`, if already computed.

    Raises:
        UnknownNameError: the robot has no such frame.
    """
    v, a = checked_tangent(robot, "v", v), checked_tangent(robot, "a", a)
    kin = compute_kinematics(robot, q) if kin is None else kin
    f = robot.frame(frame)
    if f.body == WORLD:
        return jnp.zeros(6, v.dtype)
    motion = body_motion(robot, kin, v, a)
    linear = motion.acceleration[f.body] + matmul(motion.gradient[f.body], _from_body(kin, f))
    return jnp.concatenate([linear, motion.angular_acceleration[f.body]])


def frame_bias_acceleration(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    frame: str,
    *,
    kin: Kinematics | None = None,
) -> Float[Array, " 6"]:
    """Acceleration of a frame at zero joint acceleration, `[linear; angular]`: `J_dot v`.

    m/s^2 and rad/s^2, in world axes, as `frame_acceleration`; cheaper than `frame_jacobian_dot`.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        frame: name of a link or of an end effector.
        kin: kinematics at `q`, if already computed.

    Raises:
        UnknownNameError: the robot has no such frame.
    """
    v = checked_tangent(robot, "v", v)
    return frame_acceleration(robot, q, v, jnp.zeros_like(v), frame, kin=kin)


@traced_once
def manipulability(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    frame: str,
    *,
    rows: Literal["pose", "position", "orientation"] = "pose",
    kin: Kinematics | None = None,
) -> Float[Array, ""]:
    """Yoshikawa's manipulability `sqrt(det(J J^T))` of a frame, zero at a singularity.

    Args:
        robot: the model.
        q: rad and m.
        frame: name of a link or of an end effector.
        rows: the part of the Jacobian: all six rows, the linear three, or the angular three.
        kin: kinematics at `q`, if already computed.

    Its gradient is zero where it is zero.

    Raises:
        UnknownNameError: the robot has no such frame.
        ConfigError: `rows` is none of the three.

    Source: Yoshikawa, "Manipulability of robotic mechanisms", 1985.
    """
    check_choice("rows of manipulability", rows, tuple(_ROWS))
    J = frame_jacobian(robot, q, frame, kin=kin)[_ROWS[rows]]
    square = determinant(matmul(J, J.T))
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)


_ROWS = {"pose": slice(0, 6), "position": slice(0, 3), "orientation": slice(3, 6)}


def _from_body(kin: Kinematics, frame: Frame) -> Array:
    """Position (3,), m, of the frame from its body's origin, in world axes."""
    return matmul(kin.rotation[frame.body], jnp.asarray(frame.position, kin.rotation.dtype))


def _columns(robot: Robot, frame: Frame, linear: Array, angular: Array) -> Array:
    """Jacobian (6, nv) from columns by axis (na, 3); zero for axes that do not move the frame."""
    axes = jnp.concatenate([linear, angular], axis=-1)
    if frame.body == WORLD:
        return dof_forces(robot, jnp.zeros_like(axes)).T
    moves = robot.topology.axes.moves[frame.body][:, None]
    return dof_forces(robot, jnp.where(moves, axes, 0.0)).T
