"""Torque pass-through."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms

from .base import ControllerState, Telemetry, configuration, finite_or, numbers
from .impedance import compensation
from .joint_velocity import joint_velocity_torque
from .limits import TorqueLimits, first_torque, limit_torque

BRAKING_GAIN = 20.0
"""Rate, 1/s, at which the joints are slowed down while the target is not finite."""


@configuration
@dataclass(frozen=True)
class Torque(TorqueLimits):
    """Applies the target, joint torques (nv,) in N m and N, as it is, within the limits.

    Attributes:
        gravity_compensation: add gravity's torques.
        coriolis_compensation: add Coriolis and centrifugal torques.
        torque_limit: see `TorqueLimits`.
        torque_rate_limit: see `TorqueLimits`.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    gravity_compensation: bool = field(default=False, metadata={"static": True})
    coriolis_compensation: bool = field(default=False, metadata={"static": True})

    def init(self, robot: Robot, terms: Terms) -> ControllerState:
        """At rest."""
        return ControllerState(torque=first_torque(self, robot, terms))

    def __call__(
        self, robot: Robot, terms: Terms, target: Array, state: ControllerState, dt: ArrayLike
    ) -> tuple[Array, ControllerState, Telemetry]:
        """Torques (nv,), the next state, telemetry.

        Telemetry: `saturation` (fraction of the joints at their limit), `target_finite` (bool; if
        not, the joints are slowed down, and gravity is compensated).

        Raises:
            ArrayError: the target has the wrong shape.
        """
        v = terms.v
        dt = jnp.asarray(dt, v.dtype)
        given = numbers("Torque: the target", target, v.shape, v.dtype)
        added = compensation(
            robot, terms, gravity=self.gravity_compensation, coriolis=self.coriolis_compensation
        )
        brake = joint_velocity_torque(terms, jnp.zeros_like(v), BRAKING_GAIN)
        given, finite = finite_or(given, brake - added)
        tau, torque, limited = limit_torque(self, robot, given + added, state.torque, dt)
        return tau, ControllerState(torque=torque), limited | {"target_finite": finite}
