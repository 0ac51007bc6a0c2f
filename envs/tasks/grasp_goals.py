"""Grasp goals: the base of tasks in which the gripper holds the object."""

from __future__ import annotations

from collections.abc import Mapping
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

FIRM = 2.0
"""N, force on each pad at which a grasp counts for three quarters."""


@pytree_dataclass
class GraspGoals(ObjectGoals):
    """Bring an object that is held to a goal; the base of tasks with a grasp.

    Attributes:
        speed_tolerance: m/s, of the object.
    """

    speed_tolerance: ArrayLike = 0.05

    observation_units: ClassVar[Mapping[str, str]] = ObjectGoals.observation_units

    def grip(self, motion: Motion) -> Array:
        """How firmly the object is held, () in [0, 1): tanh(f / 2 N) of the lesser pad's force."""
        return jnp.tanh(jnp.min(self.pad_forces(motion)) / FIRM)

    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """As of `ObjectGoals`; and `grasped` (bool) and `slip_speed` (m/s), along the pads."""
        touch = motion.world.contacts, self.pads, self.object
        own = {"grasped": grasped(*touch), "slip_speed": slip_speed(*touch)}
        return {**super().measures(robot, motion, state), **own}

    @property
    def reported(self) -> tuple[Measure, ...]:
        """Distance from the goal, and speed of the object."""
        speed = Measure("object_speed", "m/s", shown="mm/s", label="speed", below="speed_tolerance")
        return (*super().reported, speed)
