"""Pick: grasp a cube, lift it and hold it at a goal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from fraxenv.controllers.groups import finger_dof, finger_joints
from fraxenv.dynamics import Robot
from fraxenv.dynamics.math.pytree import pytree_dataclass, static

from .base import Motion
from .grasp_goals import GraspGoals
from .object_goals import check_range

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
        lift_height: m, of the cube's centre, from which it is where it should be, as robosuite's
            Lift has it; zero where it should be at its goal.
        joint_speed_tolerance: rad/s, of the arm's joints; infinite where they may move.
        reward_weights: term -> weight; see `reward_terms`.
    """

    lift_height: float = static(default=0.0)
    joint_speed_tolerance: float = static(default=math.inf)
    reward_weights: Any = field(default_factory=lambda: dict(PICK_WEIGHTS))

    observation_units: ClassVar[Mapping[str, str]] = GraspGoals.observation_units

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "lift_height")
        check_range(self, "joint_speed_tolerance")

    def stages(
        self, robot: Robot, motion: Motion, state: Any
    ) -> tuple[Array, dict[str, Array], Array]:
        """The way to the cube; `grasp`, tanh(f / 2 N) of the lesser of the pads' forces."""
        way = self.subjects(robot, motion)[0][0] - self.hand(robot, motion)[0]
        grasp = self.grip(motion)
        return way, {"grasp": grasp}, grasp

    def there(self, motion: Motion, distance: Array) -> Array:
        """Whether the cube is at its goal, or as high as it should be."""
        if self.lift_height:
            return self._object(motion).position[2] > self.lift_height
        return super().there(motion, distance)

    def done(self, motion: Motion, speed: Array) -> Array:
        """Whether the cube rests."""
        return speed < jnp.asarray(self.speed_tolerance)

    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """As of `GraspGoals`; success is that the arm is at rest, too, where it has to be."""
        measured = super().measures(robot, motion, state)
        if not math.isfinite(self.joint_speed_tolerance):
            return measured
        fingers = [finger_dof(robot, joint) for joint in finger_joints(robot)]
        speeds = jnp.abs(jnp.delete(motion.v, np.array(fingers, int)))
        rests = jnp.max(speeds) < self.joint_speed_tolerance
        return {**measured, "success": measured["success"] & rests}
