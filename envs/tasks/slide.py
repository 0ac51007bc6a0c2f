"""Slide: strike a puck so that it comes to rest at a goal that the hand does not get to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics import Robot
from fraxenv.dynamics.math.algebra import norm
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import is_concrete

from .base import Motion
from .measures import Measure
from .object_goals import NEAR, ObjectGoals
from .push import PUSH_WEIGHTS, Push
from .reachability import check_box

SLIDE_WEIGHTS = PUSH_WEIGHTS | {"aim": 0.4}

GRAVITY = 9.81
"""m/s^2."""


@pytree_dataclass
class Slide(Push):
    """Strike a puck on a slippery table, so that it comes to rest at a goal.

    The goals are where the hand hardly gets, or not at all, and a box of them may be out of its
    reach. Success is the puck within `position_tolerance`
    of its goal, and slower than `speed_tolerance`. As FetchSlide and PandaSlide of panda-gym, where
    the puck may pass by.

    Attributes:
        speed_tolerance: m/s, of the puck.
        sliding_friction: coefficient of the puck on the table, for the reward: the scene has its
            own.
        reward_weights: term -> weight; see `stages`.
    """

    position_tolerance: ArrayLike = 0.05
    object: str = static(default="puck")
    object_low: ArrayLike = (0.42, -0.08)
    object_high: ArrayLike = (0.5, 0.08)
    half_height: ArrayLike = 0.025
    goal_low: ArrayLike = (0.8, -0.15, 0.025)
    goal_high: ArrayLike = (0.95, 0.15, 0.025)
    speed_tolerance: ArrayLike = 0.02
    sliding_friction: ArrayLike = 0.04
    reward_weights: Any = field(default_factory=lambda: dict(SLIDE_WEIGHTS))

    observation_units: ClassVar[Mapping[str, str]] = ObjectGoals.observation_units

    def check_goals(self, robot: Robot, low: ArrayLike, high: ArrayLike) -> None:
        """Check that the box of goals is one; the hand need not get there."""
        if is_concrete(low, high):
            check_box(self.hands.names, "goal", low, high)

    def stages(
        self, robot: Robot, motion: Motion, state: Any
    ) -> tuple[Array, dict[str, Array], Array]:
        """As of `Push`; and `aim`, 1 - tanh(d / 0.1 m) of where the puck will stop from its goal.

        It stops v^2 / (2 mu g) ahead, if nothing touches it.
        """
        way, terms, held = super().stages(robot, motion, state)
        thing = self._object(motion)
        velocity = jnp.asarray(thing.v)[:3]
        slowing = 2.0 * GRAVITY * jnp.asarray(self.sliding_friction)
        stop = thing.position + norm(velocity) / slowing * velocity
        off = norm((self.goal(motion, state) - stop)[:2])
        return way, {**terms, "aim": 1.0 - jnp.tanh(off / NEAR)}, held

    def done(self, motion: Motion, speed: Array) -> Array:
        """Whether the puck rests."""
        return speed < jnp.asarray(self.speed_tolerance)

    @property
    def reported(self) -> tuple[Measure, ...]:
        """Distance from the goal, and speed of the puck."""
        speed = Measure("object_speed", "m/s", shown="mm/s", label="speed", below="speed_tolerance")
        return (*super().reported, speed)
