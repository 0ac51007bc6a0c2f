"""Object goals: an object on a table is brought to a goal by a gripper's pads."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics import Robot, frame_pose
from fraxenv.dynamics.math.algebra import norm
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError, is_concrete

from ..world import ObjectState, SceneState, World
from .base import Motion
from .grasping import pad_forces
from .measures import Measure
from .pose_goals import JOINT_UNITS, PoseGoals, joint_terms
from .reachability import check_within_reach

FAR, NEAR, FINE = 0.2, 0.1, 0.02
"""m, distances at which rewards fall to a quarter: of approaches, of goals, and close to goals."""


@pytree_dataclass
class ObjectGoalState:
    """The goal and the beginning of an episode with one object.

    Attributes:
        position: (1, 3), m, goal of the object, world.
        rotation: (1, 3, 3), the object's to world; any will do.
        start: (7,), the object's pose at the beginning: position, m, and quaternion wxyz.
    """

    position: Array
    rotation: Array
    start: Array


@pytree_dataclass
class ObjectGoals(PoseGoals):
    """Bring an object to a goal position; the base of tasks with one object.

    The object lies in a box on the table, turned about the vertical. The goal is drawn from a box,
    and never nearer to the object than `least_distance`.

    Attributes:
        object: name of the object, which is one box, and of its geom.
        pads: names of the geoms that touch it.
        object_low: (2,), m, corner of where the object's centre is at first, world.
        object_high: (2,), m, the other corner.
        object_turn: rad, greatest turn about the vertical at first.
        half_height: m, of the object.
        goal_low: (3,), m, corner of the box of goals.
        goal_high: (3,), m, the other corner.
        least_distance: m, between the object at first and its goal, along x.
        goal_from_object: whether the box of goals is about the object at first, not the world's
            origin.
        table_share: of all goals, those at the height of the object at first; the others are in
            their box.
        success_ends: whether success ends the episode; otherwise time alone does.

    Raises:
        ConfigError: the hands are not one, or `orientation` is not the task's, or the share is not
            one.
    """

    start_noise: ArrayLike = 0.02
    position_tolerance: ArrayLike = 0.025
    object: str = static(default="cube")
    pads: tuple[str, ...] = static(default=("left_pad", "right_pad"))
    object_low: ArrayLike = (0.4, -0.1)
    object_high: ArrayLike = (0.6, 0.1)
    object_turn: ArrayLike = math.pi
    half_height: ArrayLike = 0.02
    goal_low: ArrayLike = (0.4, -0.1, 0.02)
    goal_high: ArrayLike = (0.6, 0.1, 0.32)
    least_distance: ArrayLike = 0.05
    goal_from_object: bool = static(default=False)
    table_share: float = static(default=0.0)
    success_ends: bool = static(default=False)

    oriented: ClassVar[bool] = False
    """Whether the goal's orientation counts, which `orientation` has to say as well."""

    goal_terms: ClassVar[tuple[str, ...]] = ("goal_position", "to_goal")
    state_type: ClassVar[type | None] = ObjectGoalState

    observation_units: ClassVar[Mapping[str, str]] = {
        **JOINT_UNITS,
        "hand_position": "m",
        "hand_axes": "1, two columns of the rotation matrix",
        "object_position": "m",
        "object_axes": "1, two columns of the rotation matrix",
        "object_velocity": "m/s",
        "to_object": "dm, from the hand to the object",
        "pad_force": "10 N, of each pad on the object",
        "goal_position": "m",
        "to_goal": "dm, from the object to the goal",
        "last_action": "1",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.orientation is not self.oriented or not self.hands.alone:
            counts = "poses count" if self.oriented else "positions count"
            raise ConfigError(
                f"{type(self).__name__}: orientation={self.orientation}, end_effector="
                f"{self.end_effector!r}, expected {self.oriented}, and one hand: {counts} here."
            )
        check_range(self, "table_share", 1.0)

    def check(self, robot: Robot) -> None:
        """Check that objects and goals are within reach, and that goals can be far enough.

        Raises:
            ConfigError: a box is not possible, or narrower along x than twice `least_distance`.
        """
        objects = self.object_low, self.object_high
        goals: tuple[ArrayLike, ArrayLike] = (self.goal_low, self.goal_high)
        if is_concrete(objects, goals, self.half_height):
            half = float(np.asarray(self.half_height))
            corners = [np.append(np.asarray(c, float), half) for c in objects]
            check_within_reach(robot, self.end_effector, "object", *corners)
            if self.goal_from_object and all(np.asarray(g).shape == (3,) for g in goals):
                low, high = (np.asarray(g) + c for g, c in zip(goals, corners, strict=True))
                goals = low, high
        self.check_goals(robot, *goals)
        box = self.goal_low, self.goal_high, self.least_distance
        if is_concrete(box):
            width = float(np.asarray(box[1])[0] - np.asarray(box[0])[0])
            least = float(np.asarray(self.least_distance))
            if not 0 <= 2 * least <= width + 1e-6:
                raise ConfigError(
                    f"{type(self).__name__}: least_distance={least:g} m, expected at least zero, "
                    f"and at most half of the goals' box along x, which is {width:g} m wide. "
                    "Choose a smaller distance, or a wider box."
                )

    def check_goals(self, robot: Robot, low: ArrayLike, high: ArrayLike) -> None:
        """Check that the box of goals, from corner (3,) to corner (3,), m, is within reach.

        Raises:
            ConfigError: it is not, or is no box.
        """
        check_within_reach(robot, self.end_effector, "goal", low, high)

    def resized(self, factors: Mapping[str, Array]) -> Any:
        """The task of an object of another size, which rests, and has its goals, as much higher."""
        half = jnp.asarray(self.half_height)
        own = factors[self.object] * half
        if self.goal_from_object:
            return replace(self, half_height=own)
        low, high = (
            jnp.asarray(corner).at[2].add(own - half) for corner in (self.goal_low, self.goal_high)
        )
        return replace(self, half_height=own, goal_low=low, goal_high=high)

    def reset(self, key: Array, robot: Robot) -> tuple[Array, ObjectGoalState]:
        """Initial configuration (nq,) near the default one; a random object and goal."""
        key_start, key_object, key_turn, key_goal = jax.random.split(key, 4)
        q = self.start(key_start, robot)
        dtype = q.dtype

        def between(key: Array, low: ArrayLike, high: ArrayLike, n: int) -> Array:
            a, b = jnp.asarray(low, dtype), jnp.asarray(high, dtype)
            return a + (b - a) * jax.random.uniform(key, (n,), dtype)

        place = between(key_object, self.object_low, self.object_high, 2)
        half = 0.5 * jax.random.uniform(key_turn, (), dtype, -1.0, 1.0)
        half = jnp.asarray(self.object_turn, dtype) * half
        zero = jnp.zeros((), dtype)
        height = jnp.asarray(self.half_height, dtype)
        start = jnp.stack([*place, height, jnp.cos(half), zero, zero, jnp.sin(half)])
        goal = between(key_goal, self.goal_low, self.goal_high, 3)
        goal = goal + start[:3] if self.goal_from_object else self._far_enough(goal, start[:3])
        if self.table_share:
            # Of keys that are folded in, the first are those of `split`.
            low = jax.random.bernoulli(jax.random.fold_in(key, 4), self.table_share)
            goal = goal.at[2].set(jnp.where(low, height, goal[2]))
        return q, ObjectGoalState(goal[None], jnp.eye(3, dtype=dtype)[None], start)

    def _far_enough(self, goal: Array, start: Array) -> Array:
        """The goal (3,), moved along x, inwards, where it is too near to the object."""
        low, high, least = (
            jnp.asarray(x, goal.dtype) for x in (self.goal_low, self.goal_high, self.least_distance)
        )
        inwards = jnp.where(start[0] < 0.5 * (low[0] + high[0]), 1.0, -1.0)
        moved = jnp.clip(start[0] + inwards * least, low[0], high[0])
        near = norm(goal - start) < least
        return goal.at[0].set(jnp.where(near, moved, goal[0]))

    def world(self, key: Array, robot: Robot, q: Array, state: Any) -> World:
        """The object where the state says."""
        return World(scene=SceneState({self.object: ObjectState(state.start)}))

    def subjects(self, robot: Robot, motion: Motion) -> tuple[Array, Array]:
        """Position (1, 3), m, and rotation (1, 3, 3), to world, of the object."""
        thing = self._object(motion)
        return thing.position[None], thing.rotation[None]

    def observation_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Joints, hand, object and goal, the ways between them, forces, and the last action."""
        thing, (hand, axes) = self._object(motion), self.hand(robot, motion)
        return {
            **joint_terms(robot, motion),
            "hand_position": hand,
            "hand_axes": axes[:, :2].T.ravel(),
            "object_position": thing.position,
            "object_axes": thing.rotation[:, :2].T.ravel(),
            "object_velocity": jnp.asarray(thing.v)[:3],
            "to_object": 10.0 * (thing.position - hand),
            "pad_force": 0.1 * self.pad_forces(motion),
            **self.goal_observations(motion, state),
            "last_action": motion.action,
        }

    def goal_observations(self, motion: Motion, state: Any) -> dict[str, Array]:
        """Observation terms of the goal, and of the object's way there."""
        goal = self.goal(motion, state)
        way = goal - self._object(motion).position
        return {"goal_position": goal, "to_goal": 10.0 * way}

    def goal(self, motion: Motion, state: Any) -> Array:
        """Where the object should be (3,), m, world."""
        position: Array = state.position[0]
        return position

    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """`object_distance` (m), of object and goal; `object_speed` (m/s); `success` (bool)."""
        thing = self._object(motion)
        distance = norm(self.goal(motion, state) - thing.position)
        speed = norm(jnp.asarray(thing.v)[:3])
        success = self.there(motion, distance) & self.done(motion, speed)
        return {"object_distance": distance, "object_speed": speed, "success": success}

    def there(self, motion: Motion, distance: Array) -> Array:
        """Whether the object is at its goal, () bool."""
        return distance < jnp.asarray(self.position_tolerance)

    def done(self, motion: Motion, speed: Array) -> Array:
        """What success needs besides an object at its goal, () bool."""
        return jnp.ones((), bool)

    def terminated(self, robot: Robot, motion: Motion, state: Any) -> Array:
        """Whether success ends the episode, () bool."""
        if not self.success_ends:
            return super().terminated(robot, motion, state)
        success: Array = self.measures(robot, motion, state)["success"]
        return success

    @property
    def reported(self) -> tuple[Measure, ...]:
        """The distance of the object from its goal."""
        distance = Measure(
            "object_distance", "m", shown="mm", label="distance", below="position_tolerance"
        )
        return (distance,)

    def reward_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Reward terms, in stages, after ManiSkill's tasks, with a gradient everywhere.

        `reach` (1 - tanh(d / 0.2 m) of the hand from where it is needed), the stages of the task,
        `place` and `place_fine` (1 - tanh(d / 0.1 m), or 0.02 m, of the object from its goal, as
        far as it is in hand), `object_distance` (m), `action_rate` (squared change of the action),
        `joint_velocity` (squared, rad^2/s^2).
        """
        position, _ = self.subjects(robot, motion)
        distance = norm(self.goal(motion, state) - position[0])
        way, stages, held = self.stages(robot, motion, state)
        change = motion.action - motion.previous_action
        return {
            "reach": 1.0 - jnp.tanh(norm(way) / FAR),
            **stages,
            "place": held * (1.0 - jnp.tanh(distance / NEAR)),
            "place_fine": held * (1.0 - jnp.tanh(distance / FINE)),
            "object_distance": distance,
            "action_rate": jnp.sum(change * change),
            "joint_velocity": jnp.sum(motion.v * motion.v),
        }

    @abstractmethod
    def stages(
        self, robot: Robot, motion: Motion, state: Any
    ) -> tuple[Array, dict[str, Array], Array]:
        """What comes before placing.

        Returns:
            The way (3,), m, of the hand to where it is needed; further reward terms, () each; and
            how far the object is in hand, () in [0, 1].
        """

    def hand(self, robot: Robot, motion: Motion) -> tuple[Array, Array]:
        """Position (3,), m, and rotation (3, 3), to world, of the hand."""
        return frame_pose(robot, motion.q, self.hands.names[0], kin=motion.poses)

    def pad_forces(self, motion: Motion) -> Array:
        """Normal forces (p,), N, of the pads on the object."""
        return pad_forces(motion.world.contacts, self.pads, self.object)

    def with_goal(self, state: Any, i: int, position: ArrayLike, rotation: ArrayLike) -> Any:
        """The state with the goal elsewhere."""
        return replace(
            state,
            position=jnp.asarray(state.position).at[i].set(jnp.asarray(position)),
            rotation=jnp.asarray(state.rotation).at[i].set(jnp.asarray(rotation)),
        )

    def goals(self, state: Any) -> list[tuple[Array, Array]]:
        """The object's goal."""
        return list(zip(state.position, state.rotation, strict=True))

    def _object(self, motion: Motion) -> ObjectState:
        return motion.world.objects[self.object]


def check_range(task: ObjectGoals, name: str, most: float = math.inf) -> None:
    """Check a field that decides what is computed: one number, from zero to `most`.

    Raises:
        ConfigError: it is not.
    """
    value = getattr(task, name)
    if not (isinstance(value, int | float) and 0 <= value <= most):
        raise ConfigError(
            f"{type(task).__name__}: {name}={value!r}, expected a number from 0 to {most:g}."
        )
