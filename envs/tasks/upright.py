"""Upright: stand a peg that lies on the table on its end, and let go of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics import Robot
from fraxenv.dynamics.math.algebra import norm
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError, is_concrete

from .base import Motion
from .measures import Measure
from .object_goals import ObjectGoalState
from .release_goals import ReleaseGoals

UPRIGHT_WEIGHTS = {
    "reach": 0.1,
    "grasp": 0.1,
    "upright": 0.2,
    "place": 0.1,
    "place_fine": 0.1,
    "release": 0.3,
    "object_distance": -0.1,
    "action_rate": -1e-3,
    "joint_velocity": -1e-4,
}

STRAIGHT = 0.2
"""rad, of the peg from the vertical, at which the finer half of a reward falls to a quarter."""


@pytree_dataclass
class Upright(ReleaseGoals):
    """Stand a peg on either of its ends, anywhere, and let go of it.

    Success is the peg within `tilt_tolerance` of the vertical, its centre within
    `position_tolerance` of the height that it then has, at rest, and touched by no pad. The peg has
    the size of the one of ManiSkill's LiftPegUpright, and half of its mass; there it lies in one
    direction at first, and may move, and be held, at the end.

    Goals of a goal environment are the height of the peg's centre, and its angle from the vertical.
    The box of goals counts for nothing.

    Attributes:
        half_height: m, of the peg that lies.
        half_length: m, of the peg, along its own x axis.
        position_tolerance: m, of the height of its centre.
        reward_weights: term -> weight; see `stages`.
    """

    position_tolerance: ArrayLike = 0.005
    tilt_tolerance: ArrayLike = 0.08
    object: str = static(default="peg")
    half_height: ArrayLike = 0.025
    half_length: ArrayLike = 0.12
    reward_weights: Any = field(default_factory=lambda: dict(UPRIGHT_WEIGHTS))

    observation_units: ClassVar[Mapping[str, str]] = {
        **ReleaseGoals.observation_units,
        "to_goal": "dm, from the height of the object's centre to that of one that stands",
    }

    def check(self, robot: Robot) -> None:
        """As of `ObjectGoals`, and that the peg is longer than it is high.

        Raises:
            ConfigError: it is not.
        """
        super().check(robot)
        if is_concrete(self.half_height, self.half_length):
            height, length = (float(np.asarray(x)) for x in (self.half_height, self.half_length))
            if not length > height:
                raise ConfigError(
                    f"{type(self).__name__}: half_length={length:g} m, expected more than "
                    f"half_height={height:g} m: standing, the peg is higher than lying."
                )

    def resized(self, factors: Mapping[str, Array]) -> Any:
        """The task of a peg of another size."""
        length = factors[self.object] * jnp.asarray(self.half_length)
        return replace(super().resized(factors), half_length=length)

    def reset(self, key: Array, robot: Robot) -> tuple[Array, ObjectGoalState]:
        """Initial configuration (nq,) near the default one; the peg at random, lying."""
        q, drawn = super().reset(key, robot)
        return q, replace(drawn, position=drawn.start[:3].at[2].set(self._height(q.dtype))[None])

    def goal(self, motion: Motion, state: Any) -> Array:
        """Where the peg would stand (3,), m, world, of where it is now."""
        position = self._object(motion).position
        return position.at[2].set(self._height(position.dtype))

    def goal_observations(self, motion: Motion, state: Any) -> dict[str, Array]:
        """What is left of the height."""
        return {"to_goal": 10.0 * (self.goal(motion, state) - self._object(motion).position)[2:]}

    def achieved_goal(self, robot: Robot, motion: Motion, state: Any) -> Array:
        """Height of the peg's centre, m, and its angle from the vertical, rad; (2,)."""
        return jnp.stack([self._object(motion).position[2], self.tilt(motion)])

    def desired_goal(self, state: Any) -> Array:
        """The height of a peg that stands, m, and zero; (2,)."""
        height = state.position[0, 2]
        return jnp.stack([height, jnp.zeros_like(height)])

    def goal_distance(self, achieved: Array, desired: Array) -> Array:
        """The larger of both errors (...,), as fractions of their tolerances."""
        tolerances = jnp.stack(
            [jnp.asarray(x) for x in (self.position_tolerance, self.tilt_tolerance)]
        )
        return jnp.max(jnp.abs(achieved - desired) / tolerances, axis=-1)

    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """As of `ReleaseGoals`, where the distance is one of heights; and `object_tilt` (rad)."""
        return {**super().measures(robot, motion, state), "object_tilt": self.tilt(motion)}

    @property
    def reported(self) -> tuple[Measure, ...]:
        """Height, tilt and speed of the peg."""
        distance, *others = super().reported
        tilt = Measure("object_tilt", "rad", shown="deg", label="tilt", below="tilt_tolerance")
        return (distance, tilt, *others)

    def stages(
        self, robot: Robot, motion: Motion, state: Any
    ) -> tuple[Array, dict[str, Array], Array]:
        """As of `ReleaseGoals`; and `upright`, as far as the peg is in hand.

        That is half the cosine of its angle from the vertical, and half 1 - tanh(angle / 0.2 rad).
        """
        way, terms, held = super().stages(robot, motion, state)
        tilt = self.tilt(motion)
        upright = 0.5 * (jnp.cos(tilt) + 1.0 - jnp.tanh(tilt / STRAIGHT))
        return way, {**terms, "upright": held * upright}, held

    def placed(self, motion: Motion) -> Array:
        """Whether the peg is upright, and as high as if it stood; () bool."""
        height = self._object(motion).position[2]
        error = jnp.abs(height - self._height(height.dtype))
        return (error < jnp.asarray(self.position_tolerance)) & (
            self.tilt(motion) < jnp.asarray(self.tilt_tolerance)
        )

    def tilt(self, motion: Motion) -> Array:
        """Angle (), rad, of the peg's long axis from the vertical."""
        along = self._object(motion).rotation[:, 0]
        return jnp.arctan2(norm(along[:2]), jnp.abs(along[2]))

    def _height(self, dtype: Any) -> Array:
        return jnp.asarray(self.half_length, dtype)
