"""Reach: bring the hand to a random position, or to a random pose."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics import Obstacles, Robot, frame_pose, orientation_error, rotation_exp
from fraxenv.dynamics.algebra import matmul, norm

from .task import Marker, Motion

POSITION_WEIGHTS = {
    "position_error": -0.2,
    "position_near": 0.1,
    "position_fine": 0.2,
    "action_rate": -1e-3,
    "joint_velocity": -1e-4,
}
POSE_WEIGHTS = POSITION_WEIGHTS | {"orientation_error": -0.1, "orientation_fine": 0.1}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ReachState:
    """The goal of an episode: `position` (3,), m, and `rotation` (3, 3), in the world."""

    position: Array
    rotation: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Reach:
    """Bring the hand to a goal that is drawn anew for every episode.

    The goal's position is uniform in a box; its orientation, if it counts, is the hand's at the
    default configuration, turned about a random axis by up to `goal_rotation`. Episodes start near
    the default configuration and end by time only.

    Attributes:
        end_effector: name of the frame that should reach.
        orientation: whether the goal's orientation counts.
        goal_low: (3,), m, corner of the box of goals, world.
        goal_high: (3,), m, the other corner.
        goal_rotation: rad, largest turn of the goal's orientation about each axis.
        start_noise: rad or m, largest deviation of each joint from the default configuration.
        position_tolerance: m, distance below which the goal counts as reached.
        orientation_tolerance: rad, likewise.
        reward_weights: term -> weight; see `reward_terms`.
    """

    end_effector: str = field(default="hand", metadata={"static": True})
    orientation: bool = field(default=False, metadata={"static": True})
    goal_low: ArrayLike = (0.3, -0.3, 0.15)
    goal_high: ArrayLike = (0.6, 0.3, 0.6)
    goal_rotation: ArrayLike = 0.5
    start_noise: ArrayLike = 0.1
    position_tolerance: ArrayLike = 0.02
    orientation_tolerance: ArrayLike = 0.1
    reward_weights: Any = field(default_factory=lambda: dict(POSITION_WEIGHTS))

    def reset(self, key: Array, robot: Robot) -> tuple[Array, ReachState]:
        """Initial configuration (nq,) near the default one, and a random goal."""
        key_start, key_position, key_rotation = jax.random.split(key, 3)
        default = jnp.asarray(robot.q_default, float)
        dtype = default.dtype
        noise = jax.random.uniform(key_start, default.shape, dtype, -1.0, 1.0)
        lower, upper = jnp.asarray(robot.position_limits, dtype).T
        q = jnp.clip(default + jnp.asarray(self.start_noise, dtype) * noise, lower, upper)

        low, high = jnp.asarray(self.goal_low, dtype), jnp.asarray(self.goal_high, dtype)
        position = low + (high - low) * jax.random.uniform(key_position, (3,), dtype)
        _, rotation = frame_pose(robot, default, self.end_effector)
        if self.orientation:
            turn = jax.random.uniform(key_rotation, (3,), dtype, -1.0, 1.0)
            turn = jnp.asarray(self.goal_rotation, dtype) * turn
            rotation = matmul(rotation_exp(turn), rotation)
        return q, ReachState(position, rotation)

    def observation_terms(
        self, robot: Robot, motion: Motion, state: ReachState
    ) -> dict[str, Array]:
        """Joints, hand, goal and the way to it, and the last action.

        Joint positions are scaled to [-1, 1] within their limits where there are any, joint
        velocities to their limits; lengths are in metres, the way to the goal is in decimetres, and
        rotations are rotation vectors in radians.
        """
        dtype = motion.q.dtype
        position, rotation = frame_pose(robot, motion.q, self.end_effector, kin=motion.poses)
        lower, upper = jnp.asarray(robot.position_limits, dtype).T
        limited = jnp.isfinite(upper - lower)
        middle = jnp.where(limited, 0.5 * (lower + upper), 0.0)
        half = jnp.where(limited, 0.5 * (upper - lower), jnp.pi)
        speed = jnp.asarray(robot.velocity_limits, dtype)
        terms = {
            "joint_position": (motion.q - middle) / half,
            "joint_velocity": motion.v / jnp.where(jnp.isfinite(speed), speed, 1.0),
            "hand_position": position,
            "goal_position": state.position,
            "to_goal": 10.0 * (state.position - position),
        }
        if self.orientation:
            terms["hand_axes"] = rotation[:, :2].T.reshape(-1)
            terms["turn_to_goal"] = orientation_error(state.rotation, rotation)
        return terms | {"last_action": motion.action}

    def reward_terms(self, robot: Robot, motion: Motion, state: ReachState) -> dict[str, Array]:
        """Reward terms, after IsaacLab's reach task, with a finer one near the goal.

        `position_error` (m), `position_near = 1 - tanh(error / 0.1 m)`, `position_fine` (same, with
        0.02 m), `action_rate` (squared change of the action), `joint_velocity` (squared,
        rad^2/s^2); with orientation `orientation_error` (rad) and
        `orientation_fine = 1 - tanh(error / 0.2 rad)`.
        """
        position_error, rotation_error = self._errors(robot, motion, state)
        change = motion.action - motion.previous_action
        terms = {
            "position_error": position_error,
            "position_near": 1.0 - jnp.tanh(position_error / 0.1),
            "position_fine": 1.0 - jnp.tanh(position_error / 0.02),
            "action_rate": jnp.sum(change * change),
            "joint_velocity": jnp.sum(motion.v * motion.v),
        }
        if self.orientation:
            terms["orientation_error"] = rotation_error
            terms["orientation_fine"] = 1.0 - jnp.tanh(rotation_error / 0.2)
        return terms

    def measures(self, robot: Robot, motion: Motion, state: ReachState) -> dict[str, Array]:
        """`position_error` (m), `orientation_error` (rad) and `success` (bool)."""
        position_error, rotation_error = self._errors(robot, motion, state)
        success = position_error < jnp.asarray(self.position_tolerance)
        if self.orientation:
            success &= rotation_error < jnp.asarray(self.orientation_tolerance)
        return {
            "position_error": position_error,
            "orientation_error": rotation_error,
            "success": success,
        }

    def obstacles(self, state: ReachState) -> Obstacles:
        """None."""
        return Obstacles()

    def advance(self, state: ReachState, dt: Array) -> ReachState:
        """The goal stays where it is."""
        return state

    def markers(self, state: ReachState) -> list[Marker]:
        """The goal, as large as its tolerance."""
        rotation = state.rotation if self.orientation else None
        radius = float(jnp.asarray(self.position_tolerance))
        return [Marker(state.position, rotation, radius, (0.1, 0.75, 0.3, 0.6))]

    def _errors(self, robot: Robot, motion: Motion, state: ReachState) -> tuple[Array, Array]:
        position, rotation = frame_pose(robot, motion.q, self.end_effector, kin=motion.poses)
        return norm(state.position - position), norm(orientation_error(state.rotation, rotation))
