"""Operational space control: torques that move a frame as if it were a mass on a spring.

Khatib, "A unified approach for motion and force control of robot manipulators: the operational
space formulation", IEEE J. Robotics and Automation 3(1), 1987.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms, frame_bias_acceleration, spd_solve
from fraxenv.dynamics.algebra import matmul
from fraxenv.dynamics.cholesky import cholesky, solve_upper
from fraxenv.dynamics.errors import check_choice

from .base import ControllerState, Telemetry, check_not_negative, configuration, finite_or, spread
from .impedance import compensation, damping, gains
from .limits import TorqueLimits, first_torque, limit_torque, speed_scales
from .pose import (
    EndEffectors,
    Errors,
    PoseTarget,
    check_end_effector,
    check_frames,
    error_lengths,
    first_ramp,
    interpolated,
    jacobians,
    measured_poses,
    names_of,
    per_end_effector,
    pose_errors,
    stacked,
    stay,
)
from .posture import POSTURES, Posture, posture_error
from .singularity import PRIORITIES, Priority, damp

Decoupling = Literal["full", "partial", "none"]


@configuration
@dataclass(frozen=True)
class OSC(TorqueLimits):
    """Operational space controller.

    With `e` the pose error, `u = posture_kp (q_n - q) - posture_kd v` and the task-space inertia
    `Lambda = (J M^-1 J^T + damping)^-1`:

        tau = J^T (Lambda (a_ref + kp e + kd (v_ref - J v) - Jdot v) + wrench) + bias + N^T M u

    where `N^T M u = M u - J^T Lambda J u` moves the posture without moving the hand.

    The approach is limited in speed: the spring's pull never asks for more than
    `max_linear_velocity` and `max_angular_velocity`, so that a far target is approached at constant
    speed along a straight line instead of at full torque (Khatib 1987, section VI-D).

    Several end effectors are steered at once: `J`, `e`, ... are then those of all, stacked.

    Attributes:
        end_effector: name of the frame to steer, or several in a tuple; then every array of the
            target has a leading axis, as have the errors and the conditioning in the telemetry.
        task: "pose" steers position and orientation, "position" leaves the orientation free.
        decoupling: "full" uses the whole task-space inertia, "partial" that of position and of
            orientation apart, "none" applies the spring's force as it is: then `kp` is in N/m and
            N m/rad.
        posture: configuration that the nullspace is pulled to: the robot's default, the centre of
            its position limits (the default where there is none), zero, or "none" for damping only.
        priority: of several end effectors that get into each other's way, "equal" lets all give
            way, "ordered" the later ones: they move in the nullspace of those before them.
        gravity_compensation: add gravity's torques.
        coriolis_compensation: add Coriolis and centrifugal torques, of the task too (`Jdot v`).
        kp: stiffness, scalar or (6,) `[linear; angular]`, 1/s^2; or one row per end effector.
        damping_ratio: scalar or (6,) or one row per end effector; `kd = 2 damping_ratio sqrt(kp)`.
        posture_kp: stiffness in the nullspace, scalar or (nv,), 1/s^2.
        posture_damping_ratio: scalar or (nv,); as `damping_ratio`.
        max_linear_velocity: m/s; infinite for a pure spring.
        max_angular_velocity: rad/s; infinite for a pure spring.
        singularity_damping: damping of `J M^-1 J^T` at a singularity and far from the target,
            relative to its mean diagonal. It vanishes with the error, so that a target near a
            singularity is reached exactly, and away from singularities.
        singularity_threshold: conditioning below which the damping sets in. It is the determinant
            of `J M^-1 J^T`, scaled to a unit diagonal on average: 1 where all directions are
            equally easy, 0 at a singularity, and 0.003 at the Panda's ready pose. A third of what
            it is in a comfortable posture is a good value: 0.03 for the hands of a G1.
        interpolation_time: s; a new target is reached by the set-point in this time, on a straight
            line from where the set-point is; None to jump.
        torque_limit: see `TorqueLimits`.
        torque_rate_limit: see `TorqueLimits`.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    end_effector: EndEffectors = field(metadata={"static": True})
    task: Literal["pose", "position"] = field(default="pose", metadata={"static": True})
    decoupling: Decoupling = field(default="full", metadata={"static": True})
    posture: Posture = field(default="default", metadata={"static": True})
    priority: Priority = field(default="equal", metadata={"static": True})
    gravity_compensation: bool = field(default=True, metadata={"static": True})
    coriolis_compensation: bool = field(default=True, metadata={"static": True})
    kp: ArrayLike = 150.0
    damping_ratio: ArrayLike = 1.0
    posture_kp: ArrayLike = 10.0
    posture_damping_ratio: ArrayLike = 1.0
    max_linear_velocity: ArrayLike = 1.0
    max_angular_velocity: ArrayLike = 2.5
    singularity_damping: ArrayLike = 0.3
    singularity_threshold: ArrayLike = 1e-3
    interpolation_time: ArrayLike | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_end_effector(self.end_effector)
        check_choice("task", self.task, ("pose", "position"))
        check_choice("decoupling", self.decoupling, ("full", "partial", "none"))
        check_choice("posture", self.posture, POSTURES)
        check_choice("priority", self.priority, PRIORITIES)
        check_not_negative(self, "kp", "damping_ratio", "posture_kp", "posture_damping_ratio")
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
        set-point, `conditioning` (as in `singularity_threshold`), `saturation` (fraction of the
        joints at their limit), `target_finite` (bool; if not, the hand is braked where it is).

        Raises:
            UnknownNameError: the robot has no such end effector.
            ConfigError: the target is no `PoseTarget`.
            ArrayError: an array of the target, or a gain, has the wrong shape.
        """
        check_frames(robot, self.end_effector)
        dt = jnp.asarray(dt, terms.v.dtype)
        goal = stacked(self, self.end_effector, target, terms.v.dtype)
        here = measured_poses(robot, terms, self.end_effector)
        rest = stay(goal, *here, kp=self.kp, damping_ratio=self.damping_ratio)
        goal, finite = finite_or(goal, rest)
        goal, ramp = interpolated(goal, state.ramp, self.interpolation_time, dt)
        tau, telemetry = _torque(self, robot, terms, goal)
        tau, torque, limited = limit_torque(self, robot, tau, state.torque, dt)
        reported = telemetry | limited | {"target_finite": finite}
        return tau, ControllerState(ramp, torque), reported


def osc_torque(osc: OSC, robot: Robot, terms: Terms, target: PoseTarget) -> tuple[Array, Telemetry]:
    """Torques (nv,), N m, of the control law for a set-point, before any limit; and telemetry.

    Raises:
        UnknownNameError: the robot has no such end effector.
        ConfigError: the target is no `PoseTarget`.
        ArrayError: an array of the target, or a gain, has the wrong shape.
    """
    return _torque(osc, robot, terms, stacked(osc, osc.end_effector, target, terms.v.dtype))


def _torque(osc: OSC, robot: Robot, terms: Terms, target: PoseTarget) -> tuple[Array, Telemetry]:
    """`osc_torque` for a stacked target."""
    M = terms.mass_matrix
    n = 6 if osc.task == "pose" else 3
    J = jacobians(robot, terms, osc.end_effector, n)
    errors = pose_errors(robot, terms, osc.end_effector, target)
    acceleration = _task_acceleration(osc, robot, terms, target, errors, J, n)
    u = _posture_acceleration(osc, robot, terms)

    inverse_inertia = _inverse_task_inertia(J, M)
    damped, conditioning = damp(
        inverse_inertia,
        jnp.concatenate(errors, axis=-1)[:, :n],
        osc.priority,
        osc.singularity_damping,
        osc.singularity_threshold,
    )
    force = _task_force(osc, inverse_inertia, damped, acceleration, matmul(J, u), n)
    if target.wrench is not None:
        force = force + target.wrench[:, :n].ravel()
    carried = compensation(
        robot, terms, gravity=osc.gravity_compensation, coriolis=osc.coriolis_compensation
    )
    tau = matmul(J.T, force) + matmul(M, u) + carried
    conditions = per_end_effector(osc.end_effector, {"conditioning": conditioning})
    return tau, error_lengths(osc.end_effector, errors) | conditions


def _task_acceleration(
    osc: OSC,
    robot: Robot,
    terms: Terms,
    target: PoseTarget,
    errors: Errors,
    J: Array,
    n: int,
) -> Array:
    """What springs, dampers and feed-forward ask of the end effectors, (k n,), less `Jdot v`."""
    v, dtype = terms.v, terms.v.dtype
    shape = (len(errors.position), 6)
    ratio = gains("damping_ratio", osc.damping_ratio, target.damping_ratio, shape, dtype)[:, :n]
    kp = gains("kp", osc.kp, target.kp, shape, dtype)[:, :n]
    kd = damping(kp, ratio)
    error = jnp.concatenate(errors, axis=-1)[:, :n]

    # The velocity at which damping balances the spring's pull; without damping there is none.
    is_damped = ratio > 0
    balance = jnp.where(is_damped, error * jnp.sqrt(kp) / jnp.where(is_damped, 2 * ratio, 1), 0)
    limits = (osc.max_linear_velocity, osc.max_angular_velocity)
    acceleration = kp * error * speed_scales(balance, limits)
    velocity_error = -matmul(J, v).reshape(acceleration.shape)
    if target.velocity is not None:
        velocity_error = target.velocity[:, :n] + velocity_error
    acceleration = acceleration + kd * velocity_error
    if target.acceleration is not None:
        acceleration = acceleration + target.acceleration[:, :n]
    acceleration = acceleration.ravel()
    if not osc.coriolis_compensation:
        return acceleration
    names = names_of(osc.end_effector)
    drift = [frame_bias_acceleration(robot, terms.q, v, f, kin=terms.kin)[:n] for f in names]
    return acceleration - jnp.concatenate(drift)


def _inverse_task_inertia(J: Array, M: Array) -> Array:
    """`J M^-1 J^T` as `X^T X` with `U X = J^T`, which keeps it symmetric and semi-definite."""
    X = solve_upper(cholesky(M), J.T)
    return matmul(X.T, X)


def _task_force(
    osc: OSC, inverse_inertia: Array, damped: Array, acceleration: Array, drift: Array, n: int
) -> Array:
    """Forces (k n,) at the end effectors that cause the acceleration.

    `drift` (k n,) is what the posture's torques would add to it, and what is taken away.
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
    """Forces (k n,), less what those of an end effector do to the ones before it."""
    for start in range(n, len(force), n):
        before, own = slice(0, start), slice(start, start + n)
        push = matmul(inverse_inertia[before, own], force[own])
        force = force.at[before].add(-spd_solve(damped[before, before], push))
    return force


def _posture_acceleration(osc: OSC, robot: Robot, terms: Terms) -> Array:
    v = terms.v
    kp = spread("posture_kp", osc.posture_kp, v.shape, v.dtype)
    ratio = spread("posture_damping_ratio", osc.posture_damping_ratio, v.shape, v.dtype)
    return kp * posture_error(osc.posture, robot, terms.q) - damping(kp, ratio) * v
