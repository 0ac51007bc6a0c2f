"""Differential inverse kinematics: joint velocities that bring the hand to its target.

Damped least squares: Nakamura and Hanafusa, "Inverse kinematic solutions with singularity
robustness for robot manipulator control", ASME J. DSMC 108, 1986; posture in the nullspace:
Siciliano and Slotine, "A general framework for managing multiple tasks in highly redundant robotic
systems", ICAR 1991.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms, spd_solve
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.errors import ConfigError, check_not_negative

from .base import Telemetry
from .hands import PoseTarget, error_lengths, jacobians, pose_errors, turning
from .impedance import broadcast_gain, gains
from .joint_velocity import joint_velocity_torque
from .pose_controller import PoseController
from .redundancy import damp, posture_error
from .velocity_limits import limit_velocity, speed_scales


@pytree_dataclass
class DifferentialIK(PoseController):
    """Differential inverse kinematics on top of a velocity controller of the joints.

    With `e` the pose error and `u = posture_kp (q_n - q)`:

        v = J^T (J J^T + damping)^-1 (v_ref + kp e - J u) + u

    is brought within the robot's velocity and position limits, see
    `fraxenv.controllers.velocity_limits.limit_velocity`, and
    `tau = M gain (v - v_measured) + bias`. Where torques reach their limits, as when a far target
    comes suddenly, the joints need not follow; `interpolation_time` avoids it.

    Its `singularity_threshold` is for `J J^T`, whose conditioning is 0.03 at the Panda's ready
    pose, and 0.026 at a G1's default posture, for which 0.01 is a good value. In the telemetry
    `joint_velocity` (nv,) is the commanded one.

    Attributes:
        kp: decay rate of the pose error, 1/s, scalar or (6,) `[linear; angular]` or one row per end
            effector.
        posture_kp: decay rate of the posture error in the nullspace, 1/s, scalar or (nv,).
        gain: of the joints' velocity controller, 1/s, scalar or (nv,); at least four times `kp`, or
            the hand overshoots.
        limit_gain: greatest decay rate of a joint's distance from a position limit, 1/s; at most a
            quarter of `gain`.

    For the other attributes see `PoseController`.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    kp: ArrayLike = 10.0
    posture_kp: ArrayLike = 2.0
    gain: ArrayLike = 100.0
    limit_gain: ArrayLike = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(self, "kp", "posture_kp", "gain", "limit_gain")

    def checked_target(self, target: PoseTarget, dtype: jnp.dtype) -> PoseTarget:
        """As in `PoseController`; accelerations, wrenches and damping ratios are refused."""
        goal = super().checked_target(target, dtype)
        for name in ("acceleration", "wrench", "damping_ratio"):
            if getattr(goal, name) is not None:
                raise ConfigError(
                    f"DifferentialIK: the target has {name!r}, expected None: it commands "
                    "velocities. Use OSC for it."
                )
        return goal

    def _gains(self) -> dict[str, Any]:
        return {"kp": self.kp}

    def _law(self, robot: Robot, terms: Terms, goal: PoseTarget) -> tuple[Array, Telemetry]:
        v, telemetry = _velocity(self, robot, terms, goal)
        return joint_velocity_torque(terms, v, self.gain), telemetry | {"joint_velocity": v}


def differential_ik(
    controller: DifferentialIK, robot: Robot, terms: Terms, target: PoseTarget
) -> tuple[Array, Telemetry]:
    """Joint velocities (nv,), rad/s and m/s, within the limits, for a set-point; and telemetry.

    For robots that are commanded in velocities. Uses the kinematics in `terms` alone.

    Raises:
        UnknownNameError: the robot has no such end effector.
        ConfigError: the target is no `PoseTarget`, or has fields that velocities cannot follow.
        ArrayError: an array of the target, or a gain, has the wrong shape.
    """
    return _velocity(controller, robot, terms, controller.checked_target(target, terms.v.dtype))


def _velocity(
    controller: DifferentialIK, robot: Robot, terms: Terms, target: PoseTarget
) -> tuple[Array, Telemetry]:
    """`differential_ik` for a target with an axis of hands."""
    q, dtype = terms.q, terms.v.dtype
    n = 6 if controller.task == "pose" else 3
    J = jacobians(robot, terms, controller.hands, n)
    errors = pose_errors(robot, terms, controller.hands, target)
    error = jnp.concatenate(errors, axis=-1)[:, :n]

    kp = gains("kp", controller.kp, target.kp, (len(error), 6), dtype)[:, :n]
    twist = kp * error
    limits = (controller.max_linear_velocity, controller.max_angular_velocity)
    twist = twist * speed_scales(twist, limits)
    if target.velocity is not None:
        twist = target.velocity[:, :n] + twist

    posture_kp = broadcast_gain("posture_kp", controller.posture_kp, terms.v.shape, dtype)
    u = posture_kp * posture_error(controller.posture, robot, q)
    damped, conditioning = damp(
        matmul(J, J.T),
        error,
        controller.priority,
        controller.singularity_damping,
        controller.singularity_threshold,
        turning(robot, controller.hands),
    )
    v = matmul(J.T, spd_solve(damped, twist.ravel() - matmul(J, u))) + u
    rows = error_lengths(errors) | {"conditioning": conditioning}
    telemetry = controller.hands.without_axis(rows)
    return limit_velocity(robot, q, v, controller.limit_gain), telemetry
