"""Pick: grasp a cube, lift it and hold it at a goal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics import Robot
from fraxenv.dynamics.math.pytree import pytree_dataclass

from .base import Motion
from .grasping import grasped, slip_speed
from .measures import Measure
from .object_goals import ObjectGoals

PICK_WEIGHTS = {
    "reach": 0.1,
    "grasp": 0.1,
    "place": 0.2,
    "place_fine": 0.2,
    "object_distance": -0.1,
    "action_rate": -1e-3,
    "joint_velocity": -1e-4,
}

FIRM = 2.0
"""N, force on each pad at which a grasp counts for three quarters."""


@pytree_dataclass
class Pick(ObjectGoals):
    """Grasp a cube that lies on the table, and hold it at a goal, up to 0.3 m above.

    Success is the cube within `position_tolerance` of its goal, and slower than `speed_tolerance`.

    Attributes:
        speed_tolerance: m/s, of the cube.
        reward_weights: term -> weight; see `reward_terms`.
    """

    speed_tolerance: ArrayLike = 0.05
    reward_weights: Any = field(default_factory=lambda: dict(PICK_WEIGHTS))

    observation_units: ClassVar[Mapping[str, str]] = ObjectGoals.observation_units

    def stages(
        self, robot: Robot, motion: Motion, state: Any
    ) -> tuple[Array, dict[str, Array], Array]:
        """The way to the cube; `grasp`, tanh(f / 2 N) of the lesser of the pads' forces."""
        way = self.subjects(robot, motion)[0][0] - self.hand(robot, motion)[0]
        grasp = jnp.tanh(jnp.min(self.pad_forces(motion)) / FIRM)
        return way, {"grasp": grasp}, grasp

    def done(self, motion: Motion, speed: Array) -> Array:
        """Whether the cube rests."""
        return speed < jnp.asarray(self.speed_tolerance)

    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """As of `ObjectGoals`; and `grasped` (bool) and `slip_speed` (m/s), along the pads."""
        touch = motion.world.contacts, self.pads, self.object
        own = {"grasped": grasped(*touch), "slip_speed": slip_speed(*touch)}
        return {**super().measures(robot, motion, state), **own}

    @property
    def reported(self) -> tuple[Measure, ...]:
        """Distance and speed of the cube."""
        speed = Measure("object_speed", "m/s", shown="mm/s", label="speed", below="speed_tolerance")
        return (*super().reported, speed)
