"""Derivatives of a frame's velocity and acceleration, in closed form, on the tangent space.

Displaced along an axis, a frame's velocity and acceleration turn with all that the axis moves; what
moves the axis itself does not turn, and adds `psi_dot` and `psi_ddot` of `displaced_motion`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Real

from .displaced_motion import DisplacedMotion, displaced_motion
from .kinematics import Kinematics, checked_tangent, compute_kinematics
from .math.algebra import cross, matmul
from .model.robot import WORLD, Frame, Robot
from .model.tree import dof_forces


class FrameDerivatives(NamedTuple):
    """Derivatives (6, nv) of `[linear; angular]` of a frame's motion.

    Attributes:
        velocity_dq: of its velocity by `q`, on the tangent space; by `v` it is the Jacobian.
        acceleration_dq: of its acceleration by `q`, on the tangent space.
        acceleration_dv: by `v`; by `a` it is the Jacobian.
    """

    velocity_dq: Array
    acceleration_dq: Array
    acceleration_dv: Array


def frame_derivatives(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    a: Real[ArrayLike, " nv"],
    *frames: str,
    kin: Kinematics | None = None,
) -> tuple[FrameDerivatives, ...]:
    """Derivatives of `frame_velocity` and `frame_acceleration` of frames.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        a: rad/s^2 and m/s^2.
        *frames: names of links or of end effectors.
        kin: kinematics at `q`, if already computed.

    Raises:
        UnknownNameError: the robot has no such frame.
        ArrayError: an argument has the wrong shape.
    """
    kin = compute_kinematics(robot, q) if kin is None else kin
    v, a = checked_tangent(robot, "v", v), checked_tangent(robot, "a", a)
    motion = displaced_motion(robot, kin, v, a, jnp.zeros(6, v.dtype))
    return tuple(_of_frame(robot, kin, motion, robot.frame(name)) for name in frames)


def _of_frame(
    robot: Robot, kin: Kinematics, motion: DisplacedMotion, frame: Frame
) -> FrameDerivatives:
    if frame.body == WORLD:
        none = jnp.zeros((6, robot.nv), kin.axis.dtype)
        return FrameDerivatives(none, none, none)
    place = jnp.asarray(frame.position, kin.axis.dtype)
    lever = kin.relative[frame.body] + matmul(kin.rotation[frame.body], place)

    def at_frame(twists: Array) -> tuple[Array, Array]:
        linear, angular = twists[..., :3], twists[..., 3:]
        return linear + cross(angular, lever), angular

    velocity, omega = at_frame(motion.V[frame.body])
    acceleration, alpha = at_frame(motion.A[frame.body])
    acceleration = acceleration + cross(omega, velocity)
    w = motion.S[:, 3:]
    dot, turned_dot = at_frame(motion.psi_dot)
    ddot, turned_ddot = at_frame(motion.psi_ddot)
    rate, turned_rate = at_frame(motion.S_dot + motion.psi_dot)

    def columns(linear: Array, angular: Array) -> Array:
        moves = robot.topology.axes.moves[frame.body][:, None]
        both = jnp.concatenate([linear, angular], axis=-1)
        return dof_forces(robot, jnp.where(moves, both, 0.0)).T

    return FrameDerivatives(
        columns(cross(w, velocity) + dot, cross(w, omega) + turned_dot),
        columns(
            cross(w, acceleration) + ddot + 2 * cross(turned_dot, velocity),
            cross(w, alpha) + turned_ddot + cross(turned_dot, omega),
        ),
        columns(rate + 2 * cross(w, velocity), turned_rate + cross(w, omega)),
    )
