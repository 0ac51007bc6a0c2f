"""Operational space control: torques that move a frame as if it were a mass on a spring.

Khatib, "A unified approach for motion and force control of robot manipulators: the operational
space formulation", IEEE J. Robotics and Automation 3(1), 1987.
"""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms, spd_solve
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.dynamics.solvers.cholesky import cholesky, solve_upper, solve_upper_transposed
from fraxenv.errors import check_choice, check_not_negative

from .base import Telemetry
from .hands import (
    PoseTarget,
    bias_accelerations,
    error_lengths,
    jacobians,
    pose_errors,
    turning,
)
from .impedance import broadcast_gain, compensation, damping, gains
from .pose_controller import PoseController
from .redundancy import damp, posture_error
from .velocity_limits import joint_speed_scale, speed_scales

Decoupling = Literal["full", "partial", "none"]

SPEED_SHARE = 0.9
"""Part of the joints' velocity limits that the springs ask for.

The rest is for what they do not ask for: motion in the nullspace, and a Jacobian that changes.
"""


@pytree_dataclass
class OSC(PoseController):
    """Operational space controller.

    With `e` the pose error, `u = posture_kp (q_n - q) - posture_kd v` and the task-space inertia
    `Lambda = (J M^-1 J^T + damping)^-1`:

        tau = J^T (Lambda (a_ref + kp e + kd (v_ref - J v) - Jdot v) + wrench) + bias + N^T M u

    where `N^T M u = M u - J^T Lambda J u` moves the posture without moving the hand.

    The approach is limited in speed: the spring's pull never asks for more than
    `max_linear_velocity` and `max_angular_velocity`, so that a far target is approached at constant
    speed along a straight line instead of at full torque (Khatib 1987, section VI-D). Nor does it
    ask for more than 0.9 of the robot's `velocity_limits` of any joint, and neither does the
    posture's: where a motor at its limit of speed lets go, the other torques push the hand away.

    With several end effectors, `J`, `e`, ... are stacked.

    Its `singularity_threshold` is for `J M^-1 J^T`, whose conditioning is 0.003 at the Panda's
    ready pose; 0.03 is a good value for the hands of a G1.

    Attributes:
        decoupling: "full" uses the whole task-space inertia, "partial" its blocks of position and
            of orientation, "none" applies the spring's force as it is: then `kp` is in N/m and
            N m/rad.
        gravity_compensation: add gravity's torques.
        coriolis_compensation: add Coriolis and centrifugal torques, of the task too (`Jdot v`).
        kp: stiffness, scalar or (6,) `[linear; angular]`, 1/s^2; or one row per end effector.
        damping_ratio: scalar or (6,) or one row per end effector; `kd = 2 damping_ratio sqrt(kp)`.
        posture_kp: stiffness in the nullspace, scalar or (nv,), 1/s^2.
        posture_damping_ratio: scalar or (nv,); as `damping_ratio`. With `posture="none"` there is
            damping only.

    For the other attributes see `PoseController`.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    decoupling: Decoupling = static(default="full")
    gravity_compensation: bool = static(default=True)
    coriolis_compensation: bool = static(default=True)
    kp: ArrayLike = 150.0
    damping_ratio: ArrayLike = 1.0
    posture_kp: ArrayLike = 10.0
    posture_damping_ratio: ArrayLike = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("decoupling", self.decoupling, ("full", "partial", "none"))
        check_not_negative(self, "kp", "damping_ratio", "posture_kp", "posture_damping_ratio")

    def _gains(self) -> dict[str, Any]:
        return {"kp": self.kp, "damping_ratio": self.damping_ratio}

    def _law(self, robot: Robot, terms: Terms, goal: PoseTarget) -> tuple[Array, Telemetry]:
        return _torque(self, robot, terms, goal)


def osc_torque(osc: OSC, robot: Robot, terms: Terms, target: PoseTarget) -> tuple[Array, Telemetry]:
    """Torques (nv,), N m, of the control law for a set-point; and telemetry.

    Raises:
        UnknownNameError: the robot has no such end effector.
        ConfigError: the target is no `PoseTarget`.
        ArrayError: an array of the target, or a gain, has the wrong shape.
    """
    return _torque(osc, robot, terms, osc.checked_target(target, terms.v.dtype))


def _torque(osc: OSC, robot: Robot, terms: Terms, target: PoseTarget) -> tuple[Array, Telemetry]:
    """`osc_torque` for a target with an axis of hands."""
    M = terms.mass_matrix
    n = 6 if osc.task == "pose" else 3
    J = jacobians(robot, terms, osc.hands, n)
    errors = pose_errors(robot, terms, osc.hands, target)
    error = jnp.concatenate(errors, axis=-1)[:, :n]

    # `J M^-1 J^T` as `X^T X` with `U X = J^T`, which keeps it symmetric and semi-definite.
    factor = cholesky(M)
    X = solve_upper(factor, J.T)
    inverse_inertia = matmul(X.T, X)
    damped, conditioning = damp(
        inverse_inertia,
        error,
        osc.priority,
        osc.singularity_damping,
        osc.singularity_threshold,
        turning(robot, osc.hands),
    )
    pull, kd, balance = _springs(osc, target, error)
    # The joint velocities of least kinetic energy at which the hands move at the speed of balance.
    v_joint = solve_upper_transposed(factor, matmul(X, spd_solve(damped, balance.ravel())))
    pull = pull * joint_speed_scale(v_joint, _speed_limits(robot, terms))
    acceleration = _task_acceleration(osc, robot, terms, target, pull, kd, J)
    u = _posture_acceleration(osc, robot, terms)
    force = _task_force(osc, inverse_inertia, damped, acceleration, matmul(J, u), n)
    if target.wrench is not None:
        force = force + target.wrench[:, :n].ravel()
    carried = compensation(
        robot, terms, gravity=osc.gravity_compensation, coriolis=osc.coriolis_compensation
    )
    tau = matmul(J.T, force) + matmul(M, u) + carried
    return tau, osc.hands.without_axis(error_lengths(errors) | {"conditioning": conditioning})


def _springs(osc: OSC, target: PoseTarget, error: Array) -> tuple[Array, Array, Array]:
    """The springs' pull, limited in speed, the dampers' `kd`, and the velocity of balance.

    All (k, n). At the velocity of balance damping makes up for the pull; without damping there is
    none, and it is zero.
    """
    n, dtype = error.shape[1], error.dtype
    shape = (len(error), 6)
    ratio = gains("damping_ratio", osc.damping_ratio, target.damping_ratio, shape, dtype)[:, :n]
    kp = gains("kp", osc.kp, target.kp, shape, dtype)[:, :n]
    balance = _balance(error, kp, ratio)
    limits = (osc.max_linear_velocity, osc.max_angular_velocity)
    scales = speed_scales(balance, limits)
    return kp * error * scales, damping(kp, ratio), balance * scales


def _balance(error: Array, kp: Array, ratio: Array) -> Array:
    """Velocity at which damping balances a spring's pull; zero without damping."""
    is_damped = ratio > 0
    per_error = jnp.where(is_damped, jnp.sqrt(kp) / jnp.where(is_damped, 2 * ratio, 1), 0)
    return error * per_error


def _speed_limits(robot: Robot, terms: Terms) -> Array:
    """Joint velocities (nv,) that the springs may ask for."""
    return SPEED_SHARE * jnp.asarray(robot.velocity_limits, terms.v.dtype)


def _task_acceleration(
    osc: OSC, robot: Robot, terms: Terms, target: PoseTarget, pull: Array, kd: Array, J: Array
) -> Array:
    """Task acceleration (k n,) of springs, dampers and feed-forward, less `Jdot v`."""
    v, n = terms.v, pull.shape[1]
    velocity_error = -matmul(J, v).reshape(pull.shape)
    if target.velocity is not None:
        velocity_error = target.velocity[:, :n] + velocity_error
    acceleration = pull + kd * velocity_error
    if target.acceleration is not None:
        acceleration = acceleration + target.acceleration[:, :n]
    acceleration = acceleration.ravel()
    if not osc.coriolis_compensation:
        return acceleration
    return acceleration - bias_accelerations(robot, terms, osc.hands, n)


def _task_force(
    osc: OSC, inverse_inertia: Array, damped: Array, acceleration: Array, drift: Array, n: int
) -> Array:
    """Forces (k n,) at the end effectors that cause the acceleration (k n,).

    They cancel `drift` (k n,), the acceleration that the posture's torques would add.
    """
    if osc.decoupling == "full":
        return spd_solve(damped, acceleration - drift)
    force = acceleration
    if osc.decoupling == "partial":
        blocks = jnp.kron(jnp.eye(len(force) // 3), jnp.ones((3, 3))).astype(force.dtype)
        force = spd_solve(damped * blocks, force)
    if osc.priority == "ordered":
        force = _in_nullspaces(inverse_inertia, damped, force, n)
    return force - spd_solve(damped, drift)


def _in_nullspaces(inverse_inertia: Array, damped: Array, force: Array, n: int) -> Array:
    """Forces (k n,) that leave the end effectors before each one alone: prioritised nullspaces."""
    for start in range(n, len(force), n):
        before, own = slice(0, start), slice(start, start + n)
        push = matmul(inverse_inertia[before, own], force[own])
        force = force.at[before].add(-spd_solve(damped[before, before], push))
    return force


def _posture_acceleration(osc: OSC, robot: Robot, terms: Terms) -> Array:
    """Joint accelerations (nv,) of the springs and dampers towards the posture."""
    v = terms.v
    kp = broadcast_gain("posture_kp", osc.posture_kp, v.shape, v.dtype)
    ratio = broadcast_gain("posture_damping_ratio", osc.posture_damping_ratio, v.shape, v.dtype)
    error = posture_error(osc.posture, robot, terms.q)
    scale = joint_speed_scale(_balance(error, kp, ratio), _speed_limits(robot, terms))
    return kp * error * scale - damping(kp, ratio) * v
