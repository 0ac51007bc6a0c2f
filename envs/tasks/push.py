"""Push: slide a cube over the table to a goal, the gripper closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics import Robot
from fraxenv.dynamics.math.algebra import norm
from fraxenv.dynamics.math.pytree import pytree_dataclass

from .base import Motion
from .object_goals import ObjectGoals

PUSH_WEIGHTS = {
    "reach": 0.1,
    "place": 0.3,
    "place_fine": 0.2,
    "object_distance": -0.2,
    "action_rate": -1e-3,
    "joint_velocity": -1e-4,
}

BEHIND = 0.04
"""m, from the cube's centre to where the hand is needed, on the far side from the goal."""


@pytree_dataclass
class Push(ObjectGoals):
    """Slide a cube to a goal on the table, in any direction.

    Attributes:
        reward_weights: term -> weight; see `reward_terms`.
    """

    goal_low: ArrayLike = (0.38, -0.15, 0.02)
    goal_high: ArrayLike = (0.62, 0.15, 0.02)
    reward_weights: Any = field(default_factory=lambda: dict(PUSH_WEIGHTS))

    observation_units: ClassVar[Mapping[str, str]] = ObjectGoals.observation_units

    def stages(
        self, robot: Robot, motion: Motion, state: Any
    ) -> tuple[Array, dict[str, Array], Array]:
        """The way to the cube's far side; the cube needs no holding."""
        cube = self.subjects(robot, motion)[0][0]
        to_goal = self.goal(motion, state) - cube
        # At the goal the far side is anywhere.
        direction = to_goal / (norm(to_goal) + jnp.asarray(self.position_tolerance))
        way = cube - BEHIND * direction - self.hand(robot, motion)[0]
        return way, {}, jnp.ones((), way.dtype)
