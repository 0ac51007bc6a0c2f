"""Frame Jacobians, their time derivatives, and what follows from them."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from .algebra import cross, determinant, matmul
from .errors import check_choice
from .kinematics import (
    Kinematics,
    axes_rate,
    axis_rates,
    compute_kinematics,
    dof_forces,
    frame_pose,
    tangent,
    tree_mask,
)
from .robot import WORLD, Robot


def frame_jacobian(
    robot: Robot, q: ArrayLike, frame: str, *, kin: Kinematics | None = None
) -> Array:
    """Jacobian (6, nv) of a frame: `J @ v` is its velocity `[linear; angular]`.

    Linear velocity of the frame's origin and angular velocity, both in world axes
    ("local world aligned" in Pinocchio).

    Args:
        robot: the model.
        q: (nq,), rad and m.
        frame: name of a link or of an end effector.
        kin: kinematics at `q`, if already computed.

    Raises:
        UnknownNameError: the robot has no such frame.
    """
    kin = compute_kinematics(robot, q) if kin is None else kin
    position, _ = frame_pose(robot, q, frame, kin=kin)
    return dof_forces(robot, _at_point(_frame_axes(robot, kin.S, frame), position - kin.origin)).T


def frame_jacobian_dot(
    robot: Robot, q: ArrayLike, v: ArrayLike, frame: str, *, kin: Kinematics | None = None
) -> Array:
    """Time derivative (6, nv) of `frame_jacobian` along the velocity `v`.

    The acceleration of the frame is `J @ a + J_dot @ v`, with the classical (not the spatial)
    acceleration of its origin.

    Args:
        robot: the model.
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        frame: name of a link or of an end effector.
        kin: kinematics at `q`, if already computed.

    Raises:
        UnknownNameError: the robot has no such frame.
    """
    v = tangent(robot, "v", v)
    kin = compute_kinematics(robot, q) if kin is None else kin
    position, _ = frame_pose(robot, q, frame, kin=kin)
    position = position - kin.origin
    rates = axis_rates(robot, v)
    V = matmul(tree_mask(robot, v.dtype), kin.S * rates[:, None])
    S = _frame_axes(robot, kin.S, frame)
    S_dot = _frame_axes(robot, axes_rate(robot, kin, V), frame)
    point_velocity = matmul(rates, _at_point(S, position))[:3]
    linear = S_dot[:, :3] + cross(S_dot[:, 3:], position) + cross(S[:, 3:], point_velocity)
    return dof_forces(robot, jnp.concatenate([linear, S_dot[:, 3:]], axis=-1)).T


def frame_velocity(
    robot: Robot, q: ArrayLike, v: ArrayLike, frame: str, *, kin: Kinematics | None = None
) -> Array:
    """Velocity (6,) of a frame, `[linear; angular]`, m/s and rad/s: `frame_jacobian @ v`.

    Of the frame's origin, in world axes.

    Args:
        robot: the model.
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        frame: name of a link or of an end effector.
        kin: kinematics at `q`, if already computed.

    Raises:
        UnknownNameError: the robot has no such frame.
    """
    return matmul(frame_jacobian(robot, q, frame, kin=kin), tangent(robot, "v", v))


def frame_acceleration(
    robot: Robot,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    frame: str,
    *,
    kin: Kinematics | None = None,
) -> Array:
    """Acceleration (6,) of a frame, `[linear; angular]`, m/s^2 and rad/s^2: `J a + J_dot v`.

    The classical acceleration of the frame's origin, and the angular one, in world axes; gravity
    is no part of it.

    Args:
        robot: the model.
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        a: (nv,), rad/s^2 and m/s^2.
        frame: name of a link or of an end effector.
        kin: kinematics at `q`, if already computed.

    Raises:
        UnknownNameError: the robot has no such frame.
    """
    v, a = tangent(robot, "v", v), tangent(robot, "a", a)
    kin = compute_kinematics(robot, q) if kin is None else kin
    J = frame_jacobian(robot, q, frame, kin=kin)
    return matmul(J, a) + frame_bias_acceleration(robot, q, v, frame, kin=kin)


def frame_bias_acceleration(
    robot: Robot, q: ArrayLike, v: ArrayLike, frame: str, *, kin: Kinematics | None = None
) -> Array:
    """Acceleration (6,) of a frame while no joint accelerates, `[linear; angular]`: `J_dot v`.

    Without `J_dot`: the spatial acceleration is summed over the joints first, and then taken to
    the frame's origin. Classical, m/s^2 and rad/s^2, in world axes; gravity is no part of it.

    Args:
        robot: the model.
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        frame: name of a link or of an end effector.
        kin: kinematics at `q`, if already computed.

    Raises:
        UnknownNameError: the robot has no such frame.
    """
    v = tangent(robot, "v", v)
    kin = compute_kinematics(robot, q) if kin is None else kin
    position, _ = frame_pose(robot, q, frame, kin=kin)
    rates = axis_rates(robot, v)
    V = matmul(tree_mask(robot, v.dtype), kin.S * rates[:, None])
    acceleration = matmul(rates, _frame_axes(robot, axes_rate(robot, kin, V), frame))
    velocity = matmul(rates, _frame_axes(robot, kin.S, frame))
    linear, angular = acceleration[:3], acceleration[3:]
    arm = position - kin.origin
    point_velocity = velocity[:3] + cross(velocity[3:], arm)
    linear = linear + cross(angular, arm) + cross(velocity[3:], point_velocity)
    return jnp.concatenate([linear, angular])


def manipulability(
    robot: Robot,
    q: ArrayLike,
    frame: str,
    *,
    rows: Literal["pose", "position", "orientation"] = "pose",
    kin: Kinematics | None = None,
) -> Array:
    """Yoshikawa's manipulability `sqrt(det(J J^T))` of a frame, zero at a singularity.

    Args:
        robot: the model.
        q: (nq,), rad and m.
        frame: name of a link or of an end effector.
        rows: the part of the Jacobian: all six rows, the linear three, or the angular three.
        kin: kinematics at `q`, if already computed.

    Returns:
        (), with a zero gradient where it is zero.

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


def _frame_axes(robot: Robot, axes: Array, frame: str) -> Array:
    """Spatial axes (na, 6) of the joints that move the frame, zero for the others."""
    body = robot.frame(frame).body
    if body == WORLD:
        return jnp.zeros_like(axes)
    return axes * tree_mask(robot, axes.dtype)[body][:, None]


def _at_point(motion: Array, point: Array) -> Array:
    """Motion vectors (n, 6) with their linear part moved from the reference to a point (3,)."""
    linear = motion[:, :3] + cross(motion[:, 3:], point)
    return jnp.concatenate([linear, motion[:, 3:]], axis=-1)
