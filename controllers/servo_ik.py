"""Differential inverse kinematics for joints whose position servos have gains of their own."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms, compute_kinematics, difference, integrate
from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.errors import check_not_negative

from .base import Telemetry
from .differential_ik import DifferentialIK, differential_ik
from .hands import PoseTarget
from .impedance import broadcast_gain


@pytree_dataclass
class ServoIK:
    """Differential inverse kinematics of where the joints are told to be, which servos follow.

    Velocities `v_ref` of `differential_ik`, at the reference `q_ref` and not at the joints' own
    position, are integrated, and

        tau = stiffness (q_ref - q) + damping (v_ref - v) + bias

    is what servos of these gains give that are told `q_ref` and what they need besides against
    gravity and motion. The arm is as stiff as its servos, and targets are met exactly at rest.

    Attributes:
        ik: of the velocities; its `gain` and `interpolation_time` count for nothing.
        stiffness: N m/rad and N/m, scalar or (nv,).
        damping: N m s/rad and N s/m, scalar or (nv,).

    Raises:
        ConfigError: a gain is negative.
    """

    ik: DifferentialIK
    stiffness: ArrayLike = 0.0
    damping: ArrayLike = 0.0

    def __post_init__(self) -> None:
        check_not_negative(self, "stiffness", "damping")

    def init(self, robot: Robot, terms: Terms) -> Array:
        """The reference (nq,): where the joints are.

        Raises:
            UnknownNameError: the robot has no such end effector.
        """
        self.ik.hands.check(robot)
        return terms.q

    def __call__(
        self, robot: Robot, terms: Terms, target: PoseTarget, state: Array, dt: ArrayLike
    ) -> tuple[Array, Array, Telemetry]:
        """Torques (nv,), N m and N; the next reference (nq,); telemetry.

        Telemetry: that of `differential_ik`, of the reference; `joint_velocity` (nv,), the
        reference's; `target_finite` (bool; if not, the reference stays).

        Raises:
            UnknownNameError: the robot has no such end effector.
            ConfigError: the target is no `PoseTarget`, or has fields that velocities cannot follow.
            ArrayError: an array of the target, or a gain, has the wrong shape.
        """
        v, dtype = terms.v, terms.v.dtype
        still = jnp.zeros_like(v)
        there = Terms(state, still, compute_kinematics(robot, state), terms.mass_matrix, still)
        v_ref, telemetry = differential_ik(self.ik, robot, there, target)
        finite = jnp.isfinite(jnp.sum(v_ref))
        v_ref = jnp.where(finite, v_ref, 0.0)
        q_ref = integrate(robot, state, v_ref, jnp.asarray(dt, dtype))
        stiffness = broadcast_gain("stiffness", self.stiffness, v.shape, dtype)
        damping = broadcast_gain("damping", self.damping, v.shape, dtype)
        tau = stiffness * difference(robot, terms.q, q_ref) + damping * (v_ref - v) + terms.bias
        return tau, q_ref, telemetry | {"joint_velocity": v_ref, "target_finite": finite}
