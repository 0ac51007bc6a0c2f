"""Joint velocity control: the error of every joint's velocity decays exponentially."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.errors import check_not_negative

from .base import (
    Telemetry,
    checked_array,
    finite_or,
)
from .impedance import broadcast_gain
from .velocity_limits import limit_velocity


@pytree_dataclass
class JointVelocity:
    """Joint velocity controller; the target is a velocity (nv,), rad/s and m/s.

        tau = M gain (v_ref - v) + bias

    where `v_ref` is the target within the robot's velocity and position limits, see
    `fraxenv.controllers.velocity_limits.limit_velocity`.

    Attributes:
        gain: decay rate of the velocity error, 1/s, scalar or (nv,).
        limit_gain: greatest decay rate of a joint's distance from a position limit, 1/s; at most a
            quarter of `gain`, or the joint overshoots.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    gain: ArrayLike = 100.0
    limit_gain: ArrayLike = 10.0

    def __post_init__(self) -> None:
        check_not_negative(self, "gain", "limit_gain")

    def init(self, robot: Robot, terms: Terms) -> None:
        """No state."""

    def __call__(
        self, robot: Robot, terms: Terms, target: Array, state: None, dt: ArrayLike
    ) -> tuple[Array, None, Telemetry]:
        """Torques (nv,), N m and N; no state; telemetry.

        Telemetry: `velocity_error` ((nv,), of the limited target), `target_finite` (bool; if not,
        the joints are stopped).

        Raises:
            ArrayError: the target, or a gain, has the wrong shape.
        """
        v = terms.v
        goal = checked_array("JointVelocity: the target", target, v.shape, v.dtype)
        goal, finite = finite_or(goal, jnp.zeros_like(v))
        v_ref = limit_velocity(robot, terms.q, goal, self.limit_gain)
        tau = joint_velocity_torque(terms, v_ref, self.gain)
        return tau, None, {"velocity_error": v_ref - v, "target_finite": finite}


def joint_velocity_torque(terms: Terms, v_ref: Array, gain: ArrayLike) -> Array:
    """Torques (nv,), N m and N, for a velocity error that decays at the rate `gain`, 1/s.

    Raises:
        ArrayError: `gain` has the wrong shape.
    """
    v = terms.v
    rate = broadcast_gain("gain", gain, v.shape, v.dtype)
    return matmul(terms.mass_matrix, rate * (v_ref - v)) + terms.bias
