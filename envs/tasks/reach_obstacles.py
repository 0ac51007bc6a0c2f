"""Reach among obstacles: bring the hand to a goal without touching what is in the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

from jax import Array

from fraxenv.dynamics import Robot
from fraxenv.dynamics.math.pytree import pytree_dataclass

from .among_obstacles import OBSTACLE_UNITS, AmongObstacles
from .base import Motion
from .pose_goals import POSITION_WEIGHTS
from .reach import Reach

OBSTACLE_WEIGHTS = POSITION_WEIGHTS | {"collision": -1.0}


@pytree_dataclass
class ReachObstacles(AmongObstacles, Reach):
    """Bring the hand to a random goal among obstacles that are placed anew for every episode.

    For its attributes see `AmongObstacles`.
    """

    reward_weights: Any = field(default_factory=lambda: dict(OBSTACLE_WEIGHTS))

    observation_units: ClassVar[Mapping[str, str]] = {**Reach.observation_units, **OBSTACLE_UNITS}

    def seen_from(self, robot: Robot, motion: Motion) -> Array:
        """Position (3,), m, of the first hand."""
        return self.subjects(robot, motion)[0][0]
