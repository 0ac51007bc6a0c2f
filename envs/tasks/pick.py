"""Pick: grasp a cube, lift it and hold it at a goal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from fraxenv.dynamics import Robot
from fraxenv.dynamics.math.pytree import pytree_dataclass

from .base import Motion
from .grasp_goals import GraspGoals

PICK_WEIGHTS = {
    "reach": 0.1,
    "grasp": 0.1,
    "place": 0.2,
    "place_fine": 0.2,
    "object_distance": -0.1,
    "action_rate": -1e-3,
    "joint_velocity": -1e-4,
}


@pytree_dataclass
class Pick(GraspGoals):
    """Grasp a cube that lies on the table, and hold it at a goal, up to 0.3 m above.

    Success is the cube within `position_tolerance` of its goal, and slower than `speed_tolerance`.

    Attributes:
        reward_weights: term -> weight; see `reward_terms`.
    """

    reward_weights: Any = field(default_factory=lambda: dict(PICK_WEIGHTS))

    observation_units: ClassVar[Mapping[str, str]] = GraspGoals.observation_units

    def stages(
        self, robot: Robot, motion: Motion, state: Any
    ) -> tuple[Array, dict[str, Array], Array]:
        """The way to the cube; `grasp`, tanh(f / 2 N) of the lesser of the pads' forces."""
        way = self.subjects(robot, motion)[0][0] - self.hand(robot, motion)[0]
        grasp = self.grip(motion)
        return way, {"grasp": grasp}, grasp

    def done(self, motion: Motion, speed: Array) -> Array:
        """Whether the cube rests."""
        return speed < jnp.asarray(self.speed_tolerance)
