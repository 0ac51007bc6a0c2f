"""Tasks with objects among obstacles, which move, and which the arm and the hand have to avoid.

Obstacles and objects pass through each other, and so do obstacles and the table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError

from .among_obstacles import OBSTACLE_UNITS, AmongObstacles
from .base import Task
from .insert import INSERT_WEIGHTS, Insert
from .pick import PICK_WEIGHTS, Pick
from .pick_pose import PICK_POSE_WEIGHTS, PickPose
from .push import PUSH_WEIGHTS, Push
from .stack import STACK_WEIGHTS, Stack
from .upright import UPRIGHT_WEIGHTS, Upright

COLLISION = {"collision": -1.0}


@pytree_dataclass
class TabletopObstacles(AmongObstacles):
    """Spheres that move about over a table; a base before that of a task with an object.

    At first they leave the object free, too. For the attributes see `AmongObstacles`.
    """

    sphere_count: int = static(default=3)
    moving_count: int = static(default=3)
    obstacle_low: ArrayLike = (0.3, -0.45, 0.2)
    obstacle_high: ArrayLike = (0.8, 0.45, 0.6)
    obstacle_radius: ArrayLike = (0.03, 0.06)
    obstacle_speed: ArrayLike = 0.05

    def kept_free(self, state: Any) -> Array:
        """Points (k, 3), m, that obstacles leave free at first: the goal, and the object."""
        return jnp.concatenate([state.position, state.start[None, :3]])


@pytree_dataclass
class PushObstacles(TabletopObstacles, Push):
    """`Push` among obstacles."""

    reward_weights: Any = field(default_factory=lambda: PUSH_WEIGHTS | COLLISION)
    observation_units: ClassVar[Mapping[str, str]] = {**Push.observation_units, **OBSTACLE_UNITS}


@pytree_dataclass
class PickObstacles(TabletopObstacles, Pick):
    """`Pick` among obstacles."""

    reward_weights: Any = field(default_factory=lambda: PICK_WEIGHTS | COLLISION)
    observation_units: ClassVar[Mapping[str, str]] = {**Pick.observation_units, **OBSTACLE_UNITS}


@pytree_dataclass
class PickPoseObstacles(TabletopObstacles, PickPose):
    """`PickPose` among obstacles."""

    reward_weights: Any = field(default_factory=lambda: PICK_POSE_WEIGHTS | COLLISION)
    observation_units: ClassVar[Mapping[str, str]] = {
        **PickPose.observation_units,
        **OBSTACLE_UNITS,
    }


@pytree_dataclass
class StackObstacles(TabletopObstacles, Stack):
    """`Stack` among obstacles."""

    reward_weights: Any = field(default_factory=lambda: STACK_WEIGHTS | COLLISION)
    observation_units: ClassVar[Mapping[str, str]] = {**Stack.observation_units, **OBSTACLE_UNITS}


@pytree_dataclass
class UprightObstacles(TabletopObstacles, Upright):
    """`Upright` among obstacles."""

    reward_weights: Any = field(default_factory=lambda: UPRIGHT_WEIGHTS | COLLISION)
    observation_units: ClassVar[Mapping[str, str]] = {**Upright.observation_units, **OBSTACLE_UNITS}


@pytree_dataclass
class InsertObstacles(TabletopObstacles, Insert):
    """`Insert` among obstacles."""

    reward_weights: Any = field(default_factory=lambda: INSERT_WEIGHTS | COLLISION)
    observation_units: ClassVar[Mapping[str, str]] = {**Insert.observation_units, **OBSTACLE_UNITS}


OBSTRUCTED: dict[type[Task], type[TabletopObstacles]] = {
    Insert: InsertObstacles,
    Pick: PickObstacles,
    PickPose: PickPoseObstacles,
    Push: PushObstacles,
    Stack: StackObstacles,
    Upright: UprightObstacles,
}
"""Task -> the same among obstacles."""


def among_obstacles(task: Task) -> TabletopObstacles:
    """The task with the same numbers, among obstacles.

    Raises:
        ConfigError: there is no such task.
    """
    kind = OBSTRUCTED.get(type(task))
    if kind is None:
        known = ", ".join(t.__name__ for t in OBSTRUCTED)
        raise ConfigError(
            f"{type(task).__name__} has no obstacles, expected one of {known}. To reach among them "
            "there is the task 'reach_obstacles'."
        )
    own: Any = task
    numbers = {f.name: getattr(own, f.name) for f in dataclasses.fields(own)}
    return kind(**{**numbers, "reward_weights": COLLISION | own.reward_weights})
