"""Differential inverse kinematics: joint velocities that take the hand to its target.

Damped least squares: Nakamura and Hanafusa, "Inverse kinematic solutions with singularity
robustness for robot manipulator control", ASME J. DSMC 108, 1986; posture in the nullspace:
Siciliano and Slotine, "A general framework for managing multiple tasks in highly redundant robotic
systems", ICAR 1991.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms, spd_solve
from fraxenv.dynamics.algebra import matmul
from fraxenv.dynamics.errors import ConfigError, check_choice

from .base import ControllerState, Telemetry, check_not_negative, configuration, finite_or, spread
from .impedance import gains
from .joint_velocity import joint_velocity_torque
from .limits import TorqueLimits, first_torque, limit_torque, limit_velocity, speed_scales
from .pose import (
    EndEffectors,
    PoseTarget,
    check_end_effector,
    check_frames,
    error_lengths,
    first_ramp,
    interpolated,
    jacobians,
    measured_poses,
    per_end_effector,
    pose_errors,
    stacked,
    stay,
)
from .posture import POSTURES, Posture, posture_error
from .singularity import PRIORITIES, Priority, damp


@configuration
@dataclass(frozen=True)
class DifferentialIK(TorqueLimits):
    """Differential inverse kinematics, with a velocity controller for the joints below it.

    With `e` the pose error and `u = posture_kp (q_n - q)`:

        v = J^T (J J^T + damping)^-1 (v_ref + kp e - J u) + u

    is brought within the robot's velocity and position limits, see
    `fraxenv.controllers.limits.limit_velocity`, and `tau = M gain (v - v_measured) + bias`. Where
    torques reach their limits, as when a far target comes suddenly, the joints need not follow;
    `interpolation_time` avoids it.

    Attributes:
        end_effector: name of the frame to steer, or several in a tuple; then every array of the
            target has a leading axis, as have the errors and the conditioning in the telemetry.
        task: "pose" steers position and orientation, "position" leaves the orientation free.
        posture: configuration that the nullspace is pulled to: the robot's default, the centre of
            its position limits (the default where there is none), zero, or "none" for no pull.
        priority: of several end effectors that get into each other's way, "equal" lets all give
            way, "ordered" the later ones: they move in the nullspace of those before them.
        kp: 1/s, scalar or (6,) `[linear; angular]` or one row per end effector: the error decays
            as fast.
        posture_kp: 1/s, scalar or (nv,): likewise, in the nullspace.
        max_linear_velocity: m/s, of the approach; may be infinite.
        max_angular_velocity: rad/s; may be infinite.
        singularity_damping: damping of `J J^T` at a singularity and far from the target, relative
            to its mean diagonal. It vanishes with the error and away from singularities.
        singularity_threshold: conditioning below which the damping sets in: the determinant of
            `J J^T`, scaled to a unit diagonal on average; 0.03 at the Panda's ready pose, and
            0.026 at a G1's default posture, for which 0.01 is a good value.
        interpolation_time: s; a new target is reached by the set-point in this time, on a straight
            line from where the set-point is; None to jump.
        gain: 1/s, scalar or (nv,), of the joints' velocity controller; at least four times `kp`,
            or the hand overshoots.
        limit_gain: 1/s, how fast what is left of the way to a position limit may decay; at most a
            quarter of `gain`.
        torque_limit: see `TorqueLimits`.
        torque_rate_limit: see `TorqueLimits`.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    end_effector: EndEffectors = field(metadata={"static": True})
    task: Literal["pose", "position"] = field(default="pose", metadata={"static": True})
    posture: Posture = field(default="default", metadata={"static": True})
    priority: Priority = field(default="equal", metadata={"static": True})
    kp: ArrayLike = 10.0
    posture_kp: ArrayLike = 2.0
    max_linear_velocity: ArrayLike = 1.0
    max_angular_velocity: ArrayLike = 2.5
    singularity_damping: ArrayLike = 0.3
    singularity_threshold: ArrayLike = 1e-3
    interpolation_time: ArrayLike | None = None
    gain: ArrayLike = 100.0
    limit_gain: ArrayLike = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_end_effector(self.end_effector)
        check_choice("task", self.task, ("pose", "position"))
        check_choice("posture", self.posture, POSTURES)
        check_choice("priority", self.priority, PRIORITIES)
        check_not_negative(self, "kp", "posture_kp", "gain", "limit_gain")
        check_not_negative(self, "max_linear_velocity", "max_angular_velocity")
        check_not_negative(self, "singularity_damping", "singularity_threshold")
        check_not_negative(self, "interpolation_time")

    def init(self, robot: Robot, terms: Terms) -> ControllerState:
        """At rest where the end effectors are.

        Raises:
            UnknownNameError: the robot has no such end effector.
        """
        check_frames(robot, self.end_effector)
        interpolates = self.interpolation_time is not None
        ramp = first_ramp(robot, terms, self.end_effector) if interpolates else None
        return ControllerState(ramp, first_torque(self, robot, terms))

    def __call__(
        self,
        robot: Robot,
        terms: Terms,
        target: PoseTarget,
        state: ControllerState,
        dt: ArrayLike,
    ) -> tuple[Array, ControllerState, Telemetry]:
        """Torques (nv,), N m, within the limits; the next state; telemetry.

        Telemetry: `position_error` (m) and `orientation_error` (rad) of the hand from the
        set-point, `conditioning` (as in `singularity_threshold`), `joint_velocity` ((nv,), what is
        commanded), `saturation` (fraction of the joints at their limit of torque), `target_finite`
        (bool; if not, the hand is braked where it is).

        Raises:
            UnknownNameError: the robot has no such end effector.
            ConfigError: the target is no `PoseTarget`, or has what velocities cannot follow.
            ArrayError: an array of the target, or a gain, has the wrong shape.
        """
        check_frames(robot, self.end_effector)
        dt = jnp.asarray(dt, terms.v.dtype)
        goal = _stacked(self, target, terms.v.dtype)
        here = measured_poses(robot, terms, self.end_effector)
        goal, finite = finite_or(goal, stay(goal, *here, kp=self.kp))
        goal, ramp = interpolated(goal, state.ramp, self.interpolation_time, dt)
        v_ref, telemetry = _velocity(self, robot, terms, goal)
        tau = joint_velocity_torque(terms, v_ref, self.gain)
        tau, torque, limited = limit_torque(self, robot, tau, state.torque, dt)
        reported = telemetry | limited | {"joint_velocity": v_ref, "target_finite": finite}
        return tau, ControllerState(ramp, torque), reported


def differential_ik(
    controller: DifferentialIK, robot: Robot, terms: Terms, target: PoseTarget
) -> tuple[Array, Telemetry]:
    """Joint velocities (nv,), rad/s and m/s, within the limits, for a set-point; and telemetry.

    For robots that take velocities. Uses the kinematics in `terms` alone.

    Raises:
        UnknownNameError: the robot has no such end effector.
        ConfigError: the target is no `PoseTarget`, or has what velocities cannot follow.
        ArrayError: an array of the target, or a gain, has the wrong shape.
    """
    return _velocity(controller, robot, terms, _stacked(controller, target, terms.v.dtype))


def _stacked(controller: DifferentialIK, target: PoseTarget, dtype: jnp.dtype) -> PoseTarget:
    goal = stacked(controller, controller.end_effector, target, dtype)
    for name in ("acceleration", "wrench", "damping_ratio"):
        if getattr(goal, name) is not None:
            raise ConfigError(
                f"DifferentialIK: the target has {name!r}, expected None: it commands velocities. "
                "Use OSC for it."
            )
    return goal


def _velocity(
    controller: DifferentialIK, robot: Robot, terms: Terms, target: PoseTarget
) -> tuple[Array, Telemetry]:
    """`differential_ik` for a stacked target."""
    q, dtype = terms.q, terms.v.dtype
    n = 6 if controller.task == "pose" else 3
    J = jacobians(robot, terms, controller.end_effector, n)
    errors = pose_errors(robot, terms, controller.end_effector, target)
    error = jnp.concatenate(errors, axis=-1)[:, :n]

    kp = gains("kp", controller.kp, target.kp, (len(error), 6), dtype)[:, :n]
    twist = kp * error
    limits = (controller.max_linear_velocity, controller.max_angular_velocity)
    twist = twist * speed_scales(twist, limits)
    if target.velocity is not None:
        twist = target.velocity[:, :n] + twist

    posture_kp = spread("posture_kp", controller.posture_kp, terms.v.shape, dtype)
    u = posture_kp * posture_error(controller.posture, robot, q)
    damped, conditioning = damp(
        matmul(J, J.T),
        error,
        controller.priority,
        controller.singularity_damping,
        controller.singularity_threshold,
    )
    v = matmul(J.T, spd_solve(damped, twist.ravel() - matmul(J, u))) + u
    conditions = per_end_effector(controller.end_effector, {"conditioning": conditioning})
    telemetry = error_lengths(controller.end_effector, errors) | conditions
    return limit_velocity(robot, q, v, controller.limit_gain), telemetry
