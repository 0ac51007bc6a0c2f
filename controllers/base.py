"""What all controllers have in common."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import jax.numpy as jnp
from jax import Array

from fraxenv.dynamics import Robot, Terms

Telemetry = dict[str, Array]
"""What a controller reports about one control step, by name."""

TargetT = TypeVar("TargetT", contravariant=True)


class Controller(Protocol[TargetT]):
    """A control law: joint torques from a target.

    A controller is an immutable pytree: options that decide the program are static, numbers are
    leaves and may be batched. What it remembers from step to step is in an explicit state.
    """

    def init(self, robot: Robot, terms: Terms) -> Any:
        """Initial controller state, a pytree of arrays."""

    def __call__(
        self, robot: Robot, terms: Terms, target: TargetT, state: Any
    ) -> tuple[Array, Any, Telemetry]:
        """Torques (nv,), N m and N, within the effort limits; the next state; telemetry."""


def limit_effort(robot: Robot, tau: Array) -> tuple[Array, Telemetry]:
    """Clip torques to the effort limits; reports the fraction of joints that were clipped."""
    limits = jnp.asarray(robot.effort_limits, tau.dtype)
    clipped = jnp.clip(tau, -limits, limits)
    return clipped, {"saturation": jnp.mean((clipped != tau).astype(tau.dtype))}
