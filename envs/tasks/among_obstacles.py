"""Among obstacles: what a task of hands has besides where something is in the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics import (
    Box,
    Capsule,
    Obstacles,
    Robot,
    Sphere,
    frame_pose,
    obstacle_distances,
    robot_geometry,
    rotation_exp,
    self_distances,
)
from fraxenv.dynamics.geometry.obstacles import (
    bounded,
    obstacle_centres,
    place_obstacles,
)
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError

from ..world import World
from .base import GoalTask, Motion
from .measures import Measure
from .pose_goals import PoseGoals

OBSTACLE_UNITS: Mapping[str, str] = {
    "to_obstacles": "m, from the hand to each obstacle",
    "obstacle_radius": "m",
    "obstacle_axes": "m",
    "obstacle_velocity": "m/s",
}
"""Observation terms of obstacles -> their units."""

if TYPE_CHECKING:
    _Beside = PoseGoals
else:  # without its fields, whose defaults are those of the task beside
    _Beside = GoalTask

CANDIDATES = 4
"""Places drawn for each obstacle; the first free one is taken."""


@pytree_dataclass
class AmongObstacles(_Beside):
    """Obstacles that are placed anew for every episode; a base before that of a task of hands.

    When an episode begins, no obstacle is nearer than `clearance` to the robot, nor than
    `goal_clearance` to a goal; one for which there is no such place is left out. Some may move: at
    constant velocity, and back when they leave the box in which they are drawn. All are counted in
    the order spheres, capsules, boxes.

    Attributes:
        sphere_count: spheres.
        capsule_count: capsules, of random direction.
        box_count: boxes, of random orientation.
        moving_count: obstacles that move, the first ones of all.
        obstacle_low: (3,), m, corner of the box of their centres, world.
        obstacle_high: (3,), m, the other corner.
        obstacle_radius: (2,), m, smallest and largest, of spheres, of capsules, and of boxes' half
            extents.
        capsule_length: (2,), m, shortest and longest, of the axis.
        obstacle_speed: m/s, largest along each axis.
        clearance: m.
        goal_clearance: m; hands are thick, so that they need more than a point does.
        collision_ends: whether a collision ends the episode.

    Raises:
        ConfigError: a number of obstacles is not possible.
    """

    sphere_count: int = static(default=8)
    capsule_count: int = static(default=0)
    box_count: int = static(default=0)
    moving_count: int = static(default=0)
    obstacle_low: ArrayLike = (0.25, -0.6, 0.05)
    obstacle_high: ArrayLike = (0.8, 0.6, 0.8)
    obstacle_radius: ArrayLike = (0.03, 0.08)
    capsule_length: ArrayLike = (0.1, 0.3)
    obstacle_speed: ArrayLike = 0.1
    clearance: ArrayLike = 0.05
    goal_clearance: ArrayLike = 0.1
    collision_ends: bool = static(default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = {n: getattr(self, n) for n in ("sphere_count", "capsule_count", "box_count")}
        whole = all(type(n) is int and n >= 0 for n in (*counts.values(), self.moving_count))
        if (
            not whole
            or not 0 <= self.moving_count <= self.obstacle_count
            or self.obstacle_count < 1
        ):
            given = ", ".join(f"{k}={v!r}" for k, v in counts.items())
            raise ConfigError(
                f"{given} and moving_count={self.moving_count!r}, expected whole numbers, at least "
                "one obstacle, and no more that move than there are."
            )

    @property
    def obstacle_count(self) -> int:
        """The number of obstacles."""
        return self.sphere_count + self.capsule_count + self.box_count

    def kept_free(self, state: Any) -> Array:
        """Points (k, 3), m, that obstacles leave free at first: the goals."""
        position: Array = state.position
        return position

    def seen_from(self, robot: Robot, motion: Motion) -> Array:
        """Position (3,), m, of the first hand."""
        return frame_pose(robot, motion.q, self.hands.names[0], kin=motion.poses)[0]

    def reset(self, key: Array, robot: Robot) -> tuple[Array, Any]:
        """Initial configuration (nq,), and the task's state."""
        return super().reset(jax.random.split(key, 4)[0], robot)  # type: ignore[safe-super]

    def world(self, key: Array, robot: Robot, q: Array, state: Any) -> World:
        """The task's world, with random obstacles that leave robot and goals free."""
        _, key_place, key_size, key_velocity = jax.random.split(key, 4)
        n, dtype = self.obstacle_count, q.dtype
        low, high = jnp.asarray(self.obstacle_low, dtype), jnp.asarray(self.obstacle_high, dtype)
        places = low + (high - low) * jax.random.uniform(key_place, (CANDIDATES, n, 3), dtype)
        drawn = self._draw_obstacles(key_size, dtype)
        outer = jnp.concatenate([kind.bounding_radius for kind in bounded(drawn).values()])

        free_points = self.kept_free(state)
        geometry = robot_geometry(robot, q)
        shapes = [s.name for s in robot.topology.collision_shapes]

        def gaps(centre: Array) -> Array:
            there = place_obstacles(drawn, centre)
            to_robot = obstacle_distances(robot, q, there, shapes=shapes, geometry=geometry)
            way = jnp.sqrt(jnp.sum((free_points[:, None] - centre) ** 2, axis=-1))
            from_robot = jnp.min(to_robot, axis=0) - jnp.asarray(self.clearance, dtype)
            from_goal = jnp.min(way, axis=0) - outer - jnp.asarray(self.goal_clearance, dtype)
            return jnp.minimum(from_robot, from_goal)

        free = jnp.stack([gaps(centre) for centre in places]) > 0
        taken = jnp.arange(CANDIDATES)[:, None] == jnp.argmax(free, axis=0)
        centre = jnp.sum(jnp.where(taken[..., None], places, 0.0), axis=0)

        velocity = walls = None
        if self.moving_count:
            walls = jnp.stack([low, high])
            speed = jnp.asarray(self.obstacle_speed, dtype)
            moves = (jnp.arange(n) < self.moving_count)[:, None]
            any_way = speed * jax.random.uniform(key_velocity, (n, 3), dtype, -1.0, 1.0)
            velocity = jnp.where(moves, any_way, 0.0)
        obstacles = dataclasses.replace(
            place_obstacles(drawn, centre),
            active=jnp.any(free, axis=0),
            velocity=velocity,
            walls=walls,
        )
        bare = super().world(key, robot, q, state)
        return dataclasses.replace(bare, obstacles=obstacles)

    def observation_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """The task's terms; and each obstacle's way from the first hand, m, and its size, m.

        Capsules have a half axis (3,), m, and boxes half axes (9,), m; moving obstacles have a
        velocity, m/s. All numbers of an obstacle that was left out are zero.
        """
        hand = self.seen_from(robot, motion)
        around = motion.world.obstacles
        there = jnp.asarray(around.active)
        kinds = bounded(around).values()
        centre = obstacle_centres(around)
        radius = [jnp.asarray(k.bounding_radius if isinstance(k, Box) else k.radius) for k in kinds]
        terms = super().observation_terms(robot, motion, state)
        terms["to_obstacles"] = jnp.where(there[:, None], centre - hand, 0.0).ravel()
        terms["obstacle_radius"] = jnp.where(there, jnp.concatenate(radius), 0.0)
        axes, start = [], 0
        for kind in kinds:
            half_axes = kind.half_axes
            shown = there[start : start + len(half_axes), None, None]
            start += len(half_axes)
            if half_axes.size:
                axes.append(jnp.where(shown, half_axes, 0.0).ravel())
        if axes:
            terms["obstacle_axes"] = jnp.concatenate(axes)
        if self.moving_count:
            moving = there[: self.moving_count, None]
            velocity = jnp.asarray(around.velocity)[: self.moving_count]
            velocity = jnp.where(moving, velocity, 0.0)
            terms["obstacle_velocity"] = velocity.ravel()
        return terms

    def reward_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """The task's terms, and `collision`: 1 where it touches an obstacle or itself."""
        terms = super().reward_terms(robot, motion, state)
        clearance = self._clearance(robot, motion)
        return terms | {"collision": (clearance < 0).astype(motion.q.dtype)}

    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """The task's measures, and `clearance`, m: negative at a collision."""
        measures = super().measures(robot, motion, state)
        return measures | {"clearance": self._clearance(robot, motion)}

    @property
    def reported(self) -> tuple[Measure, ...]:
        """The task's measures, and the clearance."""
        return (*super().reported, Measure("clearance", "m", shown="mm"))

    def terminated(self, robot: Robot, motion: Motion, state: Any) -> Array:
        """Whether the robot collides, if `collision_ends`; and as of the task."""
        ends = super().terminated(robot, motion, state)
        if not self.collision_ends:
            return ends
        return ends | (self._clearance(robot, motion) < 0)

    def _clearance(self, robot: Robot, motion: Motion) -> Array:
        """The least distance (), m, of the robot from an obstacle, or between its own links."""
        geometry = robot_geometry(robot, motion.q, kin=motion.poses)
        around = obstacle_distances(robot, motion.q, motion.world.obstacles, geometry=geometry)
        between = self_distances(robot, motion.q, geometry=geometry)
        return jnp.minimum(jnp.min(around), jnp.min(between, initial=jnp.inf))

    def _draw_obstacles(self, key: Array, dtype: Any) -> Obstacles:
        """Obstacles of random size and direction, around the origin."""
        smallest, largest = jnp.asarray(self.obstacle_radius, dtype)
        n, (s, m, b) = self.obstacle_count, (self.sphere_count, self.capsule_count, self.box_count)
        radius = smallest + (largest - smallest) * jax.random.uniform(key, (n,), dtype)
        spheres = capsules = boxes = None
        if s:
            spheres = Sphere(jnp.zeros((s, 3), dtype), radius[:s])
        if m:
            key_axis, key_length = jax.random.split(jax.random.fold_in(key, 1))
            shortest, longest = jnp.asarray(self.capsule_length, dtype)
            length = shortest + (longest - shortest) * jax.random.uniform(key_length, (m, 1), dtype)
            turns = jax.random.uniform(key_axis, (m, 3), dtype, -jnp.pi, jnp.pi)
            half_axis = 0.5 * length * jnp.stack([rotation_exp(t)[:, 2] for t in turns])
            capsules = Capsule(-half_axis, half_axis, radius[s : s + m])
        if b:
            key_turn, key_extents = jax.random.split(jax.random.fold_in(key, 2))
            extents = jax.random.uniform(key_extents, (b, 3), dtype)
            half_extents = smallest + (largest - smallest) * extents
            turns = jax.random.uniform(key_turn, (b, 3), dtype, -jnp.pi, jnp.pi)
            rotation = jnp.stack([rotation_exp(t) for t in turns])
            boxes = Box(jnp.zeros((b, 3), dtype), rotation, half_extents)
        return Obstacles(spheres, capsules, boxes)
