"""Operational space control: torques that move a frame as if it were a mass on a spring.

Khatib, "A unified approach for motion and force control of robot manipulators: the operational
space formulation", IEEE J. Robotics and Automation 3(1), 1987.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import (
    Robot,
    Terms,
    frame_jacobian,
    frame_jacobian_dot,
    frame_pose,
    gravity_forces,
    orientation_error,
    spd_solve,
)
from fraxenv.dynamics.algebra import matmul, norm
from fraxenv.dynamics.cholesky import cholesky, solve_upper
from fraxenv.dynamics.errors import check_choice

from .base import Telemetry, limit_effort

Decoupling = Literal["full", "partial", "none"]
Posture = Literal["default", "center", "zero", "none"]

FAR_POSITION = 0.05
"""Error, m, at which damping near a singularity is half of its greatest; see `OSC`."""

FAR_ORIENTATION = 0.25
"""Likewise, rad."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PoseTarget:
    """Where the hand should be.

    Attributes:
        position: (3,), m, world.
        rotation: (3, 3), hand to world.
        velocity: (6,), `[linear; angular]`, m/s and rad/s, world axes; zero if None.
        acceleration: (6,), m/s^2 and rad/s^2, world axes; zero if None.
    """

    position: Array
    rotation: Array
    velocity: Array | None = None
    acceleration: Array | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OSC:
    """Operational space controller.

    With `e` the pose error, `u = posture_kp (q_n - q) - posture_kd v` and the task-space inertia
    `Lambda = (J M^-1 J^T + damping)^-1`:

        tau = J^T Lambda (a_ref + kp e + kd (v_ref - J v) - Jdot v) + bias + N^T M u

    where `N^T M u = M u - J^T Lambda J u` moves the posture without moving the hand.

    The approach is limited in speed: the spring's pull never asks for more than
    `max_linear_velocity` and `max_angular_velocity`, so that a far target is approached at constant
    speed along a straight line instead of at full torque (Khatib 1987, section VI-D).

    Attributes:
        end_effector: name of the frame to steer.
        task: "pose" steers position and orientation, "position" leaves the orientation free.
        decoupling: "full" uses the whole task-space inertia, "partial" that of position and of
            orientation apart, "none" applies the spring's force as it is: then `kp` is in N/m and
            N m/rad.
        posture: configuration that the nullspace is pulled to: the robot's default, the centre of
            its position limits (the default where there is none), zero, or "none" for damping only.
        gravity_compensation: add gravity's torques.
        coriolis_compensation: add Coriolis and centrifugal torques, of the task too (`Jdot v`).
        kp: stiffness, scalar or (6,) `[linear; angular]`, 1/s^2.
        damping_ratio: scalar or (6,); `kd = 2 damping_ratio sqrt(kp)`.
        posture_kp: stiffness in the nullspace, scalar or (nv,), 1/s^2.
        posture_damping_ratio: scalar or (nv,); as `damping_ratio`.
        max_linear_velocity: m/s; infinite for a pure spring.
        max_angular_velocity: rad/s; infinite for a pure spring.
        singularity_damping: damping of `J M^-1 J^T` at a singularity and far from the target,
            relative to its mean diagonal. It vanishes with the error, so that a target near a
            singularity is reached exactly, and away from singularities.
        singularity_threshold: conditioning below which the damping sets in. It is the determinant
            of `J M^-1 J^T`, scaled to a unit diagonal on average: 1 where all directions are
            equally easy, 0 at a singularity, and 0.003 at the Panda's ready pose.
    """

    end_effector: str = field(metadata={"static": True})
    task: Literal["pose", "position"] = field(default="pose", metadata={"static": True})
    decoupling: Decoupling = field(default="full", metadata={"static": True})
    posture: Posture = field(default="default", metadata={"static": True})
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

    def __post_init__(self) -> None:
        check_choice("task", self.task, ("pose", "position"))
        check_choice("decoupling", self.decoupling, ("full", "partial", "none"))
        check_choice("posture", self.posture, ("default", "center", "zero", "none"))

    def init(self, robot: Robot, terms: Terms) -> tuple[()]:
        """No state."""
        return ()

    def __call__(
        self, robot: Robot, terms: Terms, target: PoseTarget, state: tuple[()]
    ) -> tuple[Array, tuple[()], Telemetry]:
        """Torques (nv,), N m, within the effort limits; the unchanged state; telemetry.

        Telemetry: `position_error` (m) and `orientation_error` (rad) of the hand, `conditioning`
        (as in `singularity_threshold`), `saturation` (fraction of the joints at their limit).
        """
        tau, telemetry = osc_torque(self, robot, terms, target)
        tau, limited = limit_effort(robot, tau)
        return tau, state, telemetry | limited


def osc_torque(osc: OSC, robot: Robot, terms: Terms, target: PoseTarget) -> tuple[Array, Telemetry]:
    """Torques (nv,), N m, of the control law before any limit, and telemetry."""
    q, v, kin, M = terms.q, terms.v, terms.kin, terms.mass_matrix
    dtype = v.dtype
    rows = slice(0, 6 if osc.task == "pose" else 3)

    J = frame_jacobian(robot, q, osc.end_effector, kin=kin)[rows]
    position, rotation = frame_pose(robot, q, osc.end_effector, kin=kin)
    position_error = jnp.asarray(target.position, dtype) - position
    rotation_error = orientation_error(jnp.asarray(target.rotation, dtype), rotation)
    error = jnp.concatenate([position_error, rotation_error])[rows]
    v_ref = jnp.zeros(6, dtype) if target.velocity is None else target.velocity
    a_ref = jnp.zeros(6, dtype) if target.acceleration is None else target.acceleration

    kp = jnp.broadcast_to(jnp.asarray(osc.kp, dtype), (6,))[rows]
    kd = _damping(kp, jnp.broadcast_to(jnp.asarray(osc.damping_ratio, dtype), (6,))[rows])
    pull = _limit_approach(osc, kp * error, kd)
    acceleration = a_ref[rows] + pull + kd * (v_ref[rows] - matmul(J, v))

    u = _posture_acceleration(osc, robot, q, v)
    posture_motion = matmul(J, u)
    inverse_inertia = _inverse_task_inertia(J, M)
    damped, conditioning = _damp_singularity(osc, inverse_inertia, error)

    if osc.coriolis_compensation:
        J_dot = frame_jacobian_dot(robot, q, v, osc.end_effector, kin=kin)[rows]
        acceleration = acceleration - matmul(J_dot, v)
    if osc.decoupling == "full":
        # One solve for both: the task's force, and what keeps the posture from moving the hand.
        force = spd_solve(damped, acceleration - posture_motion)
    elif osc.decoupling == "partial":
        n = len(error)
        blocks = jnp.kron(jnp.eye(n // 3, dtype=dtype), jnp.ones((3, 3), dtype))
        force = spd_solve(damped * blocks, acceleration) - spd_solve(damped, posture_motion)
    else:
        force = acceleration - spd_solve(damped, posture_motion)

    tau = matmul(J.T, force) + matmul(M, u) + _compensation(osc, robot, terms)
    return tau, {
        "position_error": norm(position_error),
        "orientation_error": norm(rotation_error),
        "conditioning": conditioning,
    }


def _damping(kp: Array, ratio: Array) -> Array:
    """`kd` that gives a unit mass on a spring `kp` the damping ratio `ratio`."""
    return 2.0 * ratio * jnp.sqrt(kp)


def _limit_approach(osc: OSC, pull: Array, kd: Array) -> Array:
    """Scale the spring's pull so that the speed at which damping balances it is within limits."""
    limits = (osc.max_linear_velocity, osc.max_angular_velocity)
    parts = []
    for part, damping, limit in zip(pull.reshape(-1, 3), kd.reshape(-1, 3), limits, strict=False):
        speed = norm(part / damping)
        limit = jnp.asarray(limit, pull.dtype)
        # Where the limit is infinite or the speed zero, nothing is scaled.
        parts.append(part * jnp.where(speed > limit, limit / jnp.where(speed > limit, speed, 1), 1))
    return jnp.concatenate(parts)


def _inverse_task_inertia(J: Array, M: Array) -> Array:
    """`J M^-1 J^T` as `X^T X` with `U X = J^T`, which keeps it symmetric and semi-definite."""
    X = solve_upper(cholesky(M), J.T)
    return matmul(X.T, X)


def _damp_singularity(osc: OSC, inverse_inertia: Array, error: Array) -> tuple[Array, Array]:
    """Add damping to `J M^-1 J^T` (k, k) near singularities, far from the target; and conditioning.

    In the singularity's direction the hand has infinite inertia: undamped, the force that a target
    out of reach asks for saturates every joint, and the arm thrashes. Nearness to the singularity
    is measured as in Nakamura and Hanafusa, "Inverse kinematic solutions with singularity
    robustness for robot manipulator control", ASME J. DSMC 108, 1986, eq. 24; the damping grows
    with the squared error as in Sugihara, "Solvability-unconcerned inverse kinematics by the
    Levenberg-Marquardt method", IEEE T-RO 27(5), 2011.
    """
    dtype = inverse_inertia.dtype
    k = inverse_inertia.shape[0]
    # Position and orientation have different units, so each is measured by its own mean.
    mean = jnp.mean(jnp.diagonal(inverse_inertia).reshape(-1, 3), axis=-1)
    scale = jnp.repeat(mean, 3, total_repeat_length=k)
    root = jnp.sqrt(scale)
    scaled = inverse_inertia / (root[:, None] * root[None, :])
    # A floor far below the threshold keeps the factorisation defined at the singularity itself.
    floor = jnp.asarray(1e-5, dtype)
    pivots = jnp.diagonal(cholesky(scaled + floor * jnp.eye(k, dtype=dtype)))
    conditioning = jnp.prod(pivots) ** 2
    closeness = jnp.clip(1.0 - conditioning / jnp.asarray(osc.singularity_threshold, dtype), 0.0)
    far = jnp.asarray([FAR_POSITION] * 3 + [FAR_ORIENTATION] * 3, dtype)[:k]
    distance = jnp.sum((error / far) ** 2)
    damping = jnp.asarray(osc.singularity_damping, dtype) * closeness**2 * distance / (1 + distance)
    return inverse_inertia + jnp.diag(damping * scale), conditioning


def _posture_acceleration(osc: OSC, robot: Robot, q: Array, v: Array) -> Array:
    kp = jnp.asarray(osc.posture_kp, v.dtype)
    kd = _damping(kp, jnp.asarray(osc.posture_damping_ratio, v.dtype))
    if osc.posture == "none":
        return -kd * v
    default = jnp.asarray(robot.q_default, v.dtype)
    limits = jnp.asarray(robot.position_limits, v.dtype)
    goal = {
        "default": default,
        "center": jnp.where(
            jnp.all(jnp.isfinite(limits), axis=1), jnp.mean(limits, axis=1), default
        ),
        "zero": jnp.zeros_like(default),
    }[osc.posture]
    return kp * (goal - q) - kd * v


def _compensation(osc: OSC, robot: Robot, terms: Terms) -> Array:
    if osc.gravity_compensation and osc.coriolis_compensation:
        return terms.bias
    if not (osc.gravity_compensation or osc.coriolis_compensation):
        return jnp.zeros_like(terms.bias)
    gravity = gravity_forces(robot, terms.q, kin=terms.kin)
    return gravity if osc.gravity_compensation else terms.bias - gravity
