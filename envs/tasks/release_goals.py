"""Release goals: the base of tasks in which the object is put somewhere, and let go of."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics import Robot
from fraxenv.dynamics.math.algebra import norm
from fraxenv.dynamics.math.pytree import pytree_dataclass

from .base import Motion, Task
from .grasp_goals import FIRM, GraspGoals

SLOW = 0.05
"""m/s, of the object, at which a release counts for a quarter."""


@pytree_dataclass
class ReleaseGoals(GraspGoals):
    """Put an object down and let go of it; the base of tasks with a release.

    Success is the object at its goal, `placed`, at rest, and touched by no pad. Where it should be
    is seen from the scene, and no marker that could be dragged.

    Attributes:
        tilt_tolerance: rad, of the object's axes from the vertical.
        spin_tolerance: rad/s, of the object.
    """

    speed_tolerance: ArrayLike = 0.01
    tilt_tolerance: ArrayLike = 0.1
    spin_tolerance: ArrayLike = 0.5

    goal_terms: ClassVar[tuple[str, ...]] = ("to_goal",)

    observation_units: ClassVar[Mapping[str, str]] = {
        k: u for k, u in GraspGoals.observation_units.items() if k != "goal_position"
    }

    goals = Task.goals
    markers = Task.markers

    def with_goal(self, state: Any, i: int, position: ArrayLike, rotation: ArrayLike) -> Any:
        """Raises `ConfigError`: there is no goal that can be moved."""
        return Task.with_goal(self, state, i, jnp.asarray(position), jnp.asarray(rotation))

    @abstractmethod
    def placed(self, motion: Motion) -> Array:
        """Whether the object is where and as it should be, moving or not, held or not; () bool."""

    def stages(
        self, robot: Robot, motion: Motion, state: Any
    ) -> tuple[Array, dict[str, Array], Array]:
        """The way to the object; `grasp`, `release`; and how far it is in hand, or placed.

        `grasp` is tanh(f / 2 N) of the lesser of the pads' forces, `release` (1 - tanh(f / 2 N))
        (1 - tanh(speed / 0.05 m/s)) of the greater, once placed, and zero elsewhere. A placed
        object is reached and grasped, whatever the hand does.
        """
        thing, forces = self._object(motion), self.pad_forces(motion)
        there = self.placed(motion)
        speed = norm(jnp.asarray(thing.v)[:3])
        way = jnp.where(there, 0.0, thing.position - self.hand(robot, motion)[0])
        held = jnp.where(there, 1.0, self.grip(motion))
        release = (1.0 - jnp.tanh(jnp.max(forces) / FIRM)) * (1.0 - jnp.tanh(speed / SLOW))
        return way, {"grasp": held, "release": jnp.where(there, release, 0.0)}, held

    def done(self, motion: Motion, speed: Array) -> Array:
        """Whether the object is placed and rests, and no pad touches it."""
        spin = norm(jnp.asarray(self._object(motion).v)[3:])
        rests = (speed < jnp.asarray(self.speed_tolerance)) & (
            spin < jnp.asarray(self.spin_tolerance)
        )
        pads = motion.world.contacts.between(self.pads, self.object)
        return self.placed(motion) & rests & ~jnp.any(pads.active)
