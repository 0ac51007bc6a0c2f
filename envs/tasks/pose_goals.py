"""Pose goals: the observations, rewards and success of tasks that bring something to a pose."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.controllers.hands import EndEffectors, Hands
from fraxenv.dynamics import Robot, Shape, integrate, orientation_error
from fraxenv.dynamics.geometry.shapes import triad
from fraxenv.dynamics.kinematics import frame_poses
from fraxenv.dynamics.manifold import scalar_coordinates
from fraxenv.dynamics.math.algebra import norm
from fraxenv.dynamics.math.pytree import pytree_dataclass, static

from .base import GoalTask, Motion
from .measures import Measure

POSITION_WEIGHTS = {
    "position_error": -0.2,
    "position_near": 0.1,
    "position_fine": 0.2,
    "action_rate": -1e-3,
    "joint_velocity": -1e-4,
}
POSE_WEIGHTS = POSITION_WEIGHTS | {"orientation_error": -0.1, "orientation_fine": 0.1}

JOINT_UNITS = {
    "joint_position": "1: -1 and 1 are the limits; half turns or m where there are none",
    "joint_velocity": "1: part of the limit; rad/s or m/s where there is none",
}
"""Units of `joint_terms`."""

GOAL_COLOR = (0.1, 0.75, 0.3, 0.6)
_GOAL_AXES = 0.11  # m, least length of a goal's triad: longer than a hand's in pictures
_LEAST = 1e-12  # of a squared cosine, whose root has an infinite slope at zero


class Goals(Protocol):
    """A task's state with the goals of k subjects."""

    @property
    def position(self) -> Array:
        """(k, 3), m, world."""

    @property
    def rotation(self) -> Array:
        """(k, 3, 3), subject to world."""


@pytree_dataclass
class PoseGoals(GoalTask):
    """Bring k subjects to goal poses; the subjects are the hands, unless `subjects` is overridden.

    Episodes start near the default configuration, and end by time only. The reported errors are the
    largest of all subjects; success needs every subject at its goal.

    Attributes:
        end_effector: name of the frame that should reach its goal, or several in a tuple.
        orientation: whether the goal's orientation counts.
        start_noise: rad or m, largest deviation of each joint from the default configuration.
        position_tolerance: m, distance below which the goal counts as reached.
        orientation_tolerance: rad, likewise.
        reward_weights: term -> weight; see `reward_terms`.
    """

    end_effector: EndEffectors = static(default="hand")
    orientation: bool = static(default=False)
    start_noise: ArrayLike = 0.1
    position_tolerance: ArrayLike = 0.02
    orientation_tolerance: ArrayLike = 0.1
    reward_weights: Any = field(default_factory=lambda: dict(POSITION_WEIGHTS))

    goal_terms: ClassVar[tuple[str, ...]] = ("goal_position", "to_goal", "turn_to_goal")

    observation_units: ClassVar[Mapping[str, str]] = {
        **JOINT_UNITS,
        "hand_position": "m",
        "goal_position": "m",
        "to_goal": "dm, from the hand to the goal",
        "hand_axes": "1, two columns of the rotation matrix",
        "turn_to_goal": "rad, rotation vector",
        "last_action": "1",
    }

    def __post_init__(self) -> None:
        Hands.of(self.end_effector)

    @property
    def hands(self) -> Hands:
        """The end effectors."""
        return Hands.of(self.end_effector)

    def start(self, key: Array, robot: Robot) -> Array:
        """Initial configuration (nq,) near the default one, within the position limits."""
        return near_default(key, robot, self.start_noise)

    def observation_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Joints, subjects, goals, the way to the goals, and the last action.

        Joint positions are scaled to [-1, 1] within their limits where there are any, joint
        velocities to their limits; lengths are in metres, the way to the goal is in decimetres, and
        rotations are rotation vectors in radians.
        """
        position, rotation = self.subjects(robot, motion)
        terms = joint_terms(robot, motion)
        terms |= {
            "hand_position": position.ravel(),
            "goal_position": state.position.ravel(),
            "to_goal": (10.0 * (state.position - position)).ravel(),
        }
        if self.orientation:
            terms["hand_axes"] = jnp.swapaxes(rotation[:, :, :2], 1, 2).ravel()
            terms["turn_to_goal"] = orientation_errors(state.rotation, rotation).ravel()
        return terms | {"last_action": motion.action}

    def reward_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Reward terms, after IsaacLab's reach task, with a finer one near the goal.

        `position_error` (m), `position_near = 1 - tanh(error / 0.1 m)`, `position_fine` (same, with
        0.02 m), `action_rate` (squared change of the action), `joint_velocity` (squared,
        rad^2/s^2); with orientation `orientation_error` (rad) and
        `orientation_fine = 1 - tanh(error / 0.2 rad)`. Errors are means over the subjects.
        """
        position_error, rotation_error = self.errors(robot, motion, state)
        change = motion.action - motion.previous_action
        terms = {
            "position_error": jnp.mean(position_error),
            "position_near": jnp.mean(1.0 - jnp.tanh(position_error / 0.1)),
            "position_fine": jnp.mean(1.0 - jnp.tanh(position_error / 0.02)),
            "action_rate": jnp.sum(change * change),
            "joint_velocity": jnp.sum(motion.v * motion.v),
        }
        if self.orientation:
            terms["orientation_error"] = jnp.mean(rotation_error)
            terms["orientation_fine"] = jnp.mean(1.0 - jnp.tanh(rotation_error / 0.2))
        return terms

    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """`position_error` (m), `orientation_error` (rad), both the largest; `success` (bool)."""
        position_error, rotation_error = self.errors(robot, motion, state)
        success = position_error < jnp.asarray(self.position_tolerance)
        if self.orientation:
            success &= rotation_error < jnp.asarray(self.orientation_tolerance)
        return {
            "position_error": jnp.max(position_error),
            "orientation_error": jnp.max(rotation_error),
            "success": jnp.all(success),
        }

    @property
    def reported(self) -> tuple[Measure, ...]:
        """The position error, and the orientation error where the orientation counts."""
        position = Measure(
            "position_error", "m", shown="mm", label="distance", below="position_tolerance"
        )
        if not self.orientation:
            return (position,)
        orientation = Measure(
            "orientation_error", "rad", shown="deg", label="turn", below="orientation_tolerance"
        )
        return position, orientation

    def achieved_goal(self, robot: Robot, motion: Motion, state: Any) -> Array:
        """The subjects' poses (k 3,) or (k 9,): position, m, and two columns of a rotation."""
        return self._goal(*self.subjects(robot, motion))

    def desired_goal(self, state: Any) -> Array:
        """The goals' poses, in the form of `achieved_goal`."""
        return self._goal(state.position, state.rotation)

    def goal_distance(self, achieved: Array, desired: Array) -> Array:
        """The largest error (...,) of all subjects, as a fraction of its tolerance."""
        size = 9 if self.orientation else 3
        a, b = (x.reshape(*x.shape[:-1], -1, size) for x in (achieved, desired))
        distance = norm(a[..., :3] - b[..., :3]) / jnp.asarray(self.position_tolerance)
        if self.orientation:
            angle = _angle(a[..., 3:], b[..., 3:]) / jnp.asarray(self.orientation_tolerance)
            distance = jnp.maximum(distance, angle)
        return jnp.max(distance, axis=-1)

    def markers(self, state: Any) -> list[Shape]:
        """Goals as spheres of the tolerance's radius; with axes where the orientation counts."""
        radius = float(jnp.asarray(self.position_tolerance))
        shapes = []
        goals = (np.asarray(x, float) for x in (state.position, state.rotation))
        for position, rotation in zip(*goals, strict=True):
            shapes.append(Shape("sphere", (radius,), position, rgba=GOAL_COLOR))
            if self.orientation:
                shapes += triad(position, rotation, max(_GOAL_AXES, 3.0 * radius))
        return shapes

    def subjects(self, robot: Robot, motion: Motion) -> tuple[Array, Array]:
        """Positions (k, 3), m, and rotations (k, 3, 3), to world, of what should reach its goal."""
        return frame_poses(robot, motion.q, self.hands.names, kin=motion.poses)

    def errors(self, robot: Robot, motion: Motion, state: Goals) -> tuple[Array, Array]:
        """Distances (k,), m, and angles (k,), rad, between subjects and goals."""
        position, rotation = self.subjects(robot, motion)
        turn = orientation_errors(state.rotation, rotation)
        return _lengths(state.position - position), _lengths(turn)

    def _goal(self, position: Array, rotation: Array) -> Array:
        if not self.orientation:
            return position.ravel()
        columns = jnp.swapaxes(rotation[:, :, :2], 1, 2).reshape(-1, 6)
        return jnp.concatenate([position, columns], axis=1).ravel()


def near_default(key: Array, robot: Robot, deviation: ArrayLike) -> Array:
    """A configuration (nq,) near the default one, within the position limits.

    Args:
        key: of the random numbers.
        robot: the model.
        deviation: rad or m, largest, of each joint.
    """
    default = jnp.asarray(robot.q_default, float)
    dtype = default.dtype
    noise = jax.random.uniform(key, (robot.nv,), dtype, -1.0, 1.0)
    noise = jnp.asarray(deviation, dtype) * noise
    lower, upper = jnp.asarray(robot.position_limits, dtype).T
    x = scalar_coordinates(robot, default)
    return integrate(robot, default, jnp.clip(noise, lower - x, upper - x), 1.0)


def joint_terms(robot: Robot, motion: Motion) -> dict[str, Array]:
    """Observation terms `joint_position` and `joint_velocity`, scaled by the robot's limits.

    Positions within limits are in [-1, 1], others in half turns or metres; rotations in space are
    quaternions. Velocities are fractions of their limits, or rad/s and m/s where there are none.
    """
    dtype = motion.q.dtype
    topology = robot.topology
    lower, upper = jnp.asarray(robot.position_limits, dtype).T
    limited = jnp.isfinite(upper - lower)
    unit = jnp.where(jnp.asarray(topology.dof_rotates), jnp.asarray(jnp.pi, dtype), 1.0)
    middle = jnp.where(limited, 0.5 * (lower + upper), 0.0)
    half = jnp.where(limited, 0.5 * (upper - lower), unit)
    scaled = (scalar_coordinates(robot, motion.q) - middle) / half
    parts = [scaled[np.flatnonzero(topology.dof_coordinate >= 0)]]
    for body, _, _ in topology.quaternions:
        end = int(topology.q_index[body + 1])
        parts.append(motion.q[end - 4 : end])
    speed = jnp.asarray(robot.velocity_limits, dtype)
    return {
        "joint_position": jnp.concatenate(parts) if len(parts) > 1 else parts[0],
        "joint_velocity": motion.v / jnp.where(jnp.isfinite(speed), speed, 1.0),
    }


def orientation_errors(target: Array, rotation: Array) -> Array:
    """Rotation vectors (k, 3), rad, from rotations (k, 3, 3) to targets (k, 3, 3)."""
    return jnp.stack([orientation_error(*r) for r in zip(target, rotation, strict=True)])


def _lengths(rows: Array) -> Array:
    return jnp.stack([norm(x) for x in rows])


def _angle(a: Array, b: Array) -> Array:
    """Angles (...,), rad, between rotations, each given by its first two columns (..., 6)."""
    way = a - b
    third = jnp.cross(way[..., :3], a[..., 3:]) + jnp.cross(b[..., :3], way[..., 3:])
    # The matrices' distance is sqrt(8) sin(angle / 2): exactly zero where they are equal, where the
    # arc cosine of their trace would have an infinite slope.
    sine = norm(jnp.concatenate([way, third], axis=-1)) / math.sqrt(8.0)
    cosine = jnp.sqrt(jnp.maximum(1.0 - sine * sine, _LEAST))
    return 2.0 * jnp.arctan2(sine, cosine)
