"""Frame Jacobians and their time derivatives."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from .algebra import cross, matmul
from .kinematics import Kinematics, compute_kinematics, frame_pose, tangent, tree_mask
from .robot import WORLD, Robot
from .spatial import motion_cross


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
    S = _frame_axes(robot, kin, frame)
    position, _ = frame_pose(robot, q, frame, kin=kin)
    return _at_point(S, position).T


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
    V = matmul(tree_mask(robot, v.dtype), kin.S * v[:, None])
    S = _frame_axes(robot, kin, frame)
    S_dot = _frame_axes(robot, kin, frame, axes=motion_cross(V, kin.S))
    point_velocity = matmul(_at_point(S, position).T, v)[:3]
    linear = S_dot[:, :3] + cross(S_dot[:, 3:], position) + cross(S[:, 3:], point_velocity)
    return jnp.concatenate([linear, S_dot[:, 3:]], axis=-1).T


def _frame_axes(robot: Robot, kin: Kinematics, frame: str, axes: Array | None = None) -> Array:
    """Spatial axes (nv, 6) of the joints that move the frame, zero for the others."""
    axes = kin.S if axes is None else axes
    body = robot.frame(frame).body
    if body == WORLD:
        return jnp.zeros_like(axes)
    return axes * tree_mask(robot, axes.dtype)[body][:, None]


def _at_point(motion: Array, point: Array) -> Array:
    """Motion vectors (n, 6) with their linear part moved from the origin to a point (3,)."""
    linear = motion[:, :3] + cross(motion[:, 3:], point)
    return jnp.concatenate([linear, motion[:, 3:]], axis=-1)
