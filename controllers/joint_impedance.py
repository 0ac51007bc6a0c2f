"""Joint impedance control: every joint on a spring and a damper, with gravity compensated.

Albu-Schaeffer, Ott, Frese and Hirzinger, "Cartesian impedance control of redundant robots: recent
results with the DLR-light-weight-arms", ICRA 2003, for the damping of springs by inertia.
"""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms, difference
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import check_choice, check_not_negative

from .base import (
    Telemetry,
    check_target,
    checked_array,
    finite_or,
)
from .impedance import broadcast_gain, compensation, damping, gains


@pytree_dataclass
class JointTarget:
    """A configuration for the joints, with feed-forward motion, torque and gains.

    Attributes:
        position: (nq,), rad and m.
        velocity: (nv,), rad/s and m/s; zero if None.
        acceleration: (nv,), rad/s^2 and m/s^2; zero if None.
        torque: (nv,), N m and N, feed-forward; zero if None.
        kp: (nv,), stiffness; the controller's if None; negative numbers count as zero.
        damping_ratio: (nv,); the controller's if None; negative numbers count as zero.
    """

    position: Array
    velocity: Array | None = None
    acceleration: Array | None = None
    torque: Array | None = None
    kp: Array | None = None
    damping_ratio: Array | None = None


@pytree_dataclass
class JointImpedance:
    """Joint impedance controller.

    With full decoupling every joint is a unit mass on a spring,

        tau = M (a_ref + kp (q_ref - q) + kd (v_ref - v)) + bias + tau_ref

    with `kd = 2 damping_ratio sqrt(kp)`; without decoupling `kp` is the stiffness to the touch,

        tau = M a_ref + kp (q_ref - q) + kd (v_ref - v) + bias + tau_ref

    with `kd = 2 damping_ratio sqrt(kp diag(M))`.

    Attributes:
        decoupling: "full" or "none".
        gravity_compensation: add gravity's torques.
        coriolis_compensation: add Coriolis and centrifugal torques.
        kp: stiffness, scalar or (nv,), 1/s^2; without decoupling N m/rad and N/m.
        damping_ratio: scalar or (nv,).

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    decoupling: Literal["full", "none"] = static(default="full")
    gravity_compensation: bool = static(default=True)
    coriolis_compensation: bool = static(default=True)
    kp: ArrayLike = 150.0
    damping_ratio: ArrayLike = 1.0

    def __post_init__(self) -> None:
        check_choice("decoupling", self.decoupling, ("full", "none"))
        check_not_negative(self, "kp", "damping_ratio")

    def init(self, robot: Robot, terms: Terms) -> None:
        """No state."""

    def __call__(
        self,
        robot: Robot,
        terms: Terms,
        target: JointTarget,
        state: None,
        dt: ArrayLike,
    ) -> tuple[Array, None, Telemetry]:
        """Torques (nv,), N m and N; no state; telemetry.

        Telemetry: `joint_error` ((nv,), rad and m), `target_finite` (bool; if not, the joints are
        braked where they are).

        Raises:
            ConfigError: the target is no `JointTarget`.
            ArrayError: an array of the target, or a gain, has the wrong shape.
        """
        goal = self._checked(terms, target)
        goal, finite = finite_or(goal, self._hold(terms, goal))
        tau, telemetry = joint_impedance_torque(self, robot, terms, goal)
        return tau, None, telemetry | {"target_finite": finite}

    def _checked(self, terms: Terms, target: JointTarget) -> JointTarget:
        check_target(self, target, JointTarget)
        q, v = terms.q, terms.v
        arrays = {
            name: checked_array(
                f"JointImpedance: target.{name}",
                value,
                q.shape if name == "position" else v.shape,
                v.dtype,
            )
            for name, value in vars(target).items()
            if value is not None
        }
        return JointTarget(**arrays)

    def _hold(self, terms: Terms, target: JointTarget) -> JointTarget:
        """A target with another one's fields that brings the joints to rest where they are."""
        zero = jnp.zeros_like(terms.v)
        gains = {
            name: broadcast_gain(name, getattr(self, name), zero.shape, zero.dtype)
            for name in ("kp", "damping_ratio")
        }
        instead = {"position": terms.q, **gains}
        arrays = {n: instead.get(n, zero) for n, x in vars(target).items() if x is not None}
        return JointTarget(**arrays)


def joint_impedance_torque(
    controller: JointImpedance, robot: Robot, terms: Terms, target: JointTarget
) -> tuple[Array, Telemetry]:
    """Torques (nv,), N m and N, of the control law; and telemetry.

    Raises:
        ArrayError: a gain has the wrong shape.
    """
    q, v, M = terms.q, terms.v, terms.mass_matrix
    own, given = controller, target
    kp = gains("kp", own.kp, given.kp, v.shape, v.dtype)
    ratio = gains("damping_ratio", own.damping_ratio, given.damping_ratio, v.shape, v.dtype)
    kd = damping(kp if own.decoupling == "full" else kp * jnp.diagonal(M), ratio)

    error = difference(robot, q, target.position)
    v_ref = jnp.zeros_like(v) if target.velocity is None else target.velocity
    pull = kp * error + kd * (v_ref - v)
    if own.decoupling == "full":
        a = pull if target.acceleration is None else target.acceleration + pull
        tau = matmul(M, a)
    else:
        tau = pull if target.acceleration is None else matmul(M, target.acceleration) + pull
    if target.torque is not None:
        tau = tau + target.torque
    tau = tau + compensation(
        robot,
        terms,
        gravity=own.gravity_compensation,
        coriolis=own.coriolis_compensation,
    )
    return tau, {"joint_error": error}
