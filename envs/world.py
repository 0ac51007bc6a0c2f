"""The world: the robot's surroundings, moved by the control loop."""

from __future__ import annotations

import dataclasses
from dataclasses import field

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Obstacles, Shape, move_obstacles, obstacle_shapes
from fraxenv.dynamics.geometry.obstacles import obstacle_centres
from fraxenv.dynamics.math.pytree import pytree_dataclass

OBSTACLE_COLOR = (0.85, 0.3, 0.2, 0.9)


@pytree_dataclass
class World:
    """The robot's surroundings.

    Attributes:
        obstacles: shapes that the robot should not touch, with their velocities.
        low: (3,), m, corner of the box whose walls turn moving obstacles back; None for no walls.
        high: (3,), m, the other corner.
    """

    obstacles: Obstacles = field(default_factory=Obstacles)
    low: ArrayLike | None = None
    high: ArrayLike | None = None


def move_world(world: World, dt: Array) -> World:
    """The world `dt` later, s.

    Obstacles move on, and those whose centres have left the box turn back.
    """
    if world.obstacles.velocity is None:
        return world
    moved = move_obstacles(world.obstacles, dt)
    if world.low is None or world.high is None:
        return dataclasses.replace(world, obstacles=moved)
    centre, velocity = obstacle_centres(moved), jnp.asarray(moved.velocity)
    low, high = (jnp.asarray(x, centre.dtype) for x in (world.low, world.high))
    velocity = jnp.where(centre < low, jnp.abs(velocity), velocity)
    velocity = jnp.where(centre > high, -jnp.abs(velocity), velocity)
    return dataclasses.replace(world, obstacles=dataclasses.replace(moved, velocity=velocity))


def world_shapes(world: World) -> dict[int, Shape]:
    """Shapes of the active obstacles by their index, to be drawn; the arrays are on the host."""
    return obstacle_shapes(world.obstacles, OBSTACLE_COLOR)
