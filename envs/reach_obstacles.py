"""Reach among obstacles: bring the hand to a goal without touching what is in the way."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics import (
    Obstacles,
    Robot,
    Sphere,
    frame_pose,
    obstacle_distances,
    robot_geometry,
    self_distances,
)
from fraxenv.dynamics.errors import ConfigError

from .reach import POSITION_WEIGHTS, Reach
from .task import Marker, Motion

OBSTACLE_WEIGHTS = POSITION_WEIGHTS | {"collision": -1.0}

CANDIDATES = 4
"""Places drawn for each obstacle, of which the first that is free is taken."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ReachObstaclesState:
    """The goal of an episode, and the n spheres in the way.

    Attributes:
        position: (3,), m, of the goal.
        rotation: (3, 3), of the goal.
        centre: (n, 3), m, of the spheres.
        radius: (n,), m.
        active: (n,), bool; False for spheres that have been left out.
        velocity: (n, 3), m/s; None where none moves.
    """

    position: Array
    rotation: Array
    centre: Array
    radius: Array
    active: Array
    velocity: Array | None

    @property
    def obstacles(self) -> Obstacles:
        """The spheres, for distances and barriers."""
        spheres = Sphere(self.centre, self.radius)
        return Obstacles(spheres, active=self.active, velocity=self.velocity)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ReachObstacles(Reach):
    """Bring the hand to a random goal among spheres that are placed anew for every episode.

    No sphere is nearer than `clearance` to the robot, or to the goal, when an episode begins; one
    for which there is no such place is left out. Some may move: at constant velocity, and back when
    they leave the box in which they are drawn.

    Attributes:
        obstacle_count: spheres.
        moving_count: how many of them move.
        obstacle_low: (3,), m, corner of the box of their centres, world.
        obstacle_high: (3,), m, the other corner.
        obstacle_radius: (2,), m, smallest and largest.
        obstacle_speed: m/s, largest along each axis.
        clearance: m.
    """

    obstacle_count: int = field(default=8, metadata={"static": True})
    moving_count: int = field(default=0, metadata={"static": True})
    obstacle_low: ArrayLike = (0.25, -0.6, 0.05)
    obstacle_high: ArrayLike = (0.8, 0.6, 0.8)
    obstacle_radius: ArrayLike = (0.03, 0.08)
    obstacle_speed: ArrayLike = 0.1
    clearance: ArrayLike = 0.05
    reward_weights: Any = field(default_factory=lambda: dict(OBSTACLE_WEIGHTS))

    def __post_init__(self) -> None:
        if not 0 <= self.moving_count <= self.obstacle_count or self.obstacle_count < 1:
            raise ConfigError(
                f"obstacle_count={self.obstacle_count!r} and moving_count={self.moving_count!r}, "
                "expected at least one obstacle, and no more that move than there are."
            )

    def reset(self, key: Array, robot: Robot) -> tuple[Array, Any]:
        """Initial configuration (nq,), a random goal, and obstacles that leave both free."""
        key_reach, key_place, key_size, key_velocity = jax.random.split(key, 4)
        q, goal = super().reset(key_reach, robot)
        n, dtype = self.obstacle_count, q.dtype
        low, high = jnp.asarray(self.obstacle_low, dtype), jnp.asarray(self.obstacle_high, dtype)
        smallest, largest = jnp.asarray(self.obstacle_radius, dtype)
        radius = smallest + (largest - smallest) * jax.random.uniform(key_size, (n,), dtype)
        places = low + (high - low) * jax.random.uniform(key_place, (CANDIDATES, n, 3), dtype)

        geometry = robot_geometry(robot, q)
        drawn = Obstacles(Sphere(places.reshape(-1, 3), jnp.tile(radius, CANDIDATES)))
        shapes = [s.name for s in robot.topology.collision_shapes]
        gap = jnp.min(
            obstacle_distances(robot, q, drawn, shapes=shapes, geometry=geometry), axis=0
        ).reshape(CANDIDATES, n)
        from_goal = jnp.sqrt(jnp.sum((places - goal.position) ** 2, axis=-1)) - radius
        free = jnp.minimum(gap, from_goal) > jnp.asarray(self.clearance, dtype)
        first = jnp.argmax(free, axis=0)
        taken = jnp.arange(CANDIDATES)[:, None] == first
        position = jnp.sum(jnp.where(taken[..., None], places, 0.0), axis=0)

        speed = jnp.asarray(self.obstacle_speed, dtype)
        moves = (jnp.arange(n) < self.moving_count)[:, None]
        velocity = speed * jax.random.uniform(key_velocity, (n, 3), dtype, -1.0, 1.0)
        return q, ReachObstaclesState(
            goal.position,
            goal.rotation,
            position,
            radius,
            jnp.any(free, axis=0),
            jnp.where(moves, velocity, 0.0) if self.moving_count else None,
        )

    def observation_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Those of `Reach`, and for each obstacle the way from the hand (m) and its radius.

        Of an obstacle that was left out, all are zero.
        """
        hand, _ = frame_pose(robot, motion.q, self.end_effector, kin=motion.poses)
        there = state.active
        terms = super().observation_terms(robot, motion, state)
        terms["to_obstacles"] = jnp.where(there[:, None], state.centre - hand, 0.0).ravel()
        terms["obstacle_radius"] = jnp.where(there, state.radius, 0.0)
        if self.moving_count:
            terms["obstacle_velocity"] = state.velocity[: self.moving_count].ravel()
        return terms

    def reward_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Those of `Reach`, and `collision`: 1 where the robot touches an obstacle or itself."""
        terms = super().reward_terms(robot, motion, state)
        clearance = self._clearance(robot, motion, state)
        return terms | {"collision": (clearance < 0).astype(motion.q.dtype)}

    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Those of `Reach`, and `clearance`, m: the least distance to an obstacle or itself."""
        measures = super().measures(robot, motion, state)
        return measures | {"clearance": self._clearance(robot, motion, state)}

    def obstacles(self, state: Any) -> Obstacles:
        """The spheres."""
        obstacles: Obstacles = state.obstacles
        return obstacles

    def advance(self, state: Any, dt: Array) -> Any:
        """The spheres move on, and turn back where they have left their box."""
        if not self.moving_count:
            return state
        centre = state.centre + dt * state.velocity
        low = jnp.asarray(self.obstacle_low, centre.dtype)
        high = jnp.asarray(self.obstacle_high, centre.dtype)
        velocity = jnp.where(centre < low, jnp.abs(state.velocity), state.velocity)
        velocity = jnp.where(centre > high, -jnp.abs(velocity), velocity)
        return dataclasses.replace(state, centre=centre, velocity=velocity)

    def markers(self, state: Any) -> list[Marker]:
        """The goal, and the obstacles."""
        balls = zip(state.centre, state.radius, state.active, strict=True)
        return super().markers(state) + [
            Marker(centre, None, float(radius), (0.85, 0.3, 0.2, 0.9))
            for centre, radius, active in balls
            if active
        ]

    def _clearance(self, robot: Robot, motion: Motion, state: Any) -> Array:
        geometry = robot_geometry(robot, motion.q, kin=motion.poses)
        around = obstacle_distances(robot, motion.q, state.obstacles, geometry=geometry)
        between = self_distances(robot, motion.q, geometry=geometry)
        return jnp.minimum(jnp.min(around), jnp.min(between, initial=jnp.inf))
