"""Torque pass-through."""

from __future__ import annotations

from dataclasses import dataclass

import jax
from jax import Array

from fraxenv.dynamics import Robot, Terms

from .base import Telemetry, limit_effort


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Torque:
    """Applies the target, joint torques (nv,) in N m and N, as it is, within the effort limits."""

    def init(self, robot: Robot, terms: Terms) -> tuple[()]:
        """No state."""
        return ()

    def __call__(
        self, robot: Robot, terms: Terms, target: Array, state: tuple[()]
    ) -> tuple[Array, tuple[()], Telemetry]:
        """Torques (nv,), the unchanged state, telemetry."""
        tau, telemetry = limit_effort(robot, target)
        return tau, state, telemetry
