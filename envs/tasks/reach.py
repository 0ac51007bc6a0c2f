"""Reach: bring the hand to a random position, or to a random pose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics import Robot, frame_pose, rotation_exp
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.math.pytree import pytree_dataclass

from .pose_goals import PoseGoals
from .reachability import check_within_reach


@pytree_dataclass
class ReachState:
    """Goals of k hands, world: `position` (k, 3), m, and `rotation` (k, 3, 3)."""

    position: Array
    rotation: Array


@pytree_dataclass
class Reach(PoseGoals):
    """Bring the hand to a goal that is drawn anew for every episode.

    The goal's position is uniform in a box; its orientation, if it counts, is the hand's at the
    default configuration, turned about a random axis by up to `goal_rotation`. Episodes start near
    the default configuration and end by time only. Several hands have a goal each.

    Attributes:
        goal_low: (3,), m, corner of the box of goals, world; or one row per hand.
        goal_high: (3,), m, the other corner.
        goal_rotation: rad, largest turn of the goal's orientation about each axis.
    """

    goal_low: ArrayLike = (0.3, -0.3, 0.15)
    goal_high: ArrayLike = (0.6, 0.3, 0.6)
    goal_rotation: ArrayLike = 0.5

    state_type: ClassVar[type | None] = ReachState

    def check(self, robot: Robot) -> None:
        """Check that the box of goals is finite, not inside out, and within reach.

        Raises:
            ConfigError: the box is not possible; names the corner, and how far the robot reaches.
        """
        check_within_reach(robot, self.end_effector, "goal", self.goal_low, self.goal_high)

    def reset(self, key: Array, robot: Robot) -> tuple[Array, ReachState]:
        """Initial configuration (nq,) near the default one, and a random goal."""
        key_start, key_position, key_rotation = jax.random.split(key, 3)
        q = self.start(key_start, robot)
        dtype, names = q.dtype, self.hands.names
        shape = (len(names), 3)
        low, high = jnp.asarray(self.goal_low, dtype), jnp.asarray(self.goal_high, dtype)
        position = low + (high - low) * jax.random.uniform(key_position, shape, dtype)
        default = jnp.asarray(robot.q_default, dtype)
        rotation = jnp.stack([frame_pose(robot, default, n)[1] for n in names])
        if self.orientation:
            turns = jax.random.uniform(key_rotation, shape, dtype, -1.0, 1.0)
            turns = jnp.asarray(self.goal_rotation, dtype) * turns
            rotation = jnp.stack(
                [matmul(rotation_exp(t), r) for t, r in zip(turns, rotation, strict=True)]
            )
        return q, ReachState(position, rotation)

    def goals(self, state: Any) -> list[tuple[Array, Array]]:
        """The hands' goals."""
        return list(zip(state.position, state.rotation, strict=True))

    def with_goal(self, state: Any, i: int, position: ArrayLike, rotation: ArrayLike) -> Any:
        """The state with the goal of hand `i` elsewhere."""
        return replace(
            state,
            position=jnp.asarray(state.position).at[i].set(jnp.asarray(position)),
            rotation=jnp.asarray(state.rotation).at[i].set(jnp.asarray(rotation)),
        )
