"""Torque pass-through."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms
from fraxenv.dynamics.math.pytree import pytree_dataclass, static

from .base import Telemetry, checked_array, finite_or
from .impedance import compensation
from .joint_velocity import joint_velocity_torque

BRAKING_GAIN = 20.0
"""Decay rate, 1/s, of the joints' velocities while the target is not finite."""


@pytree_dataclass
class Torque:
    """Pass-through of the target, joint torques (nv,), N m and N.

    Attributes:
        gravity_compensation: add gravity's torques.
        coriolis_compensation: add Coriolis and centrifugal torques.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    gravity_compensation: bool = static(default=False)
    coriolis_compensation: bool = static(default=False)

    def init(self, robot: Robot, terms: Terms) -> None:
        """No state."""

    def __call__(
        self, robot: Robot, terms: Terms, target: Array, state: None, dt: ArrayLike
    ) -> tuple[Array, None, Telemetry]:
        """Torques (nv,), N m and N; no state; telemetry.

        Telemetry: `target_finite` (bool; if not, the joints are slowed down, and gravity is
        compensated).

        Raises:
            ArrayError: the target has the wrong shape.
        """
        v = terms.v
        given = checked_array("Torque: the target", target, v.shape, v.dtype)
        added = compensation(
            robot, terms, gravity=self.gravity_compensation, coriolis=self.coriolis_compensation
        )
        brake = joint_velocity_torque(terms, jnp.zeros_like(v), BRAKING_GAIN)
        given, finite = finite_or(given, brake - added)
        return given + added, None, {"target_finite": finite}
