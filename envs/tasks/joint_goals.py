"""Joint goals: a piece of furniture is opened by its handle."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.controllers.hands import EndEffectors, Hands
from fraxenv.dynamics import Robot, Shape, frame_pose
from fraxenv.dynamics.math.algebra import norm
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError, is_concrete

from ..world import ObjectState, SceneState, World
from .base import GoalTask, Motion
from .furniture import HANDLE
from .grasp_goals import FIRM
from .grasping import grasped, pad_forces, slip_speed
from .measures import Measure
from .object_goals import FAR
from .pose_goals import GOAL_COLOR, JOINT_UNITS, joint_terms, near_default
from .reachability import check_within_reach

OPEN_WEIGHTS = {
    "reach": 0.1,
    "grasp": 0.1,
    "open": 0.4,
    "open_fine": 0.3,
    "action_rate": -1e-3,
    "joint_velocity": -1e-4,
}

FINE = 0.1
"""Of the opening that is asked for, what lacks where the finer reward falls to a quarter."""

MARKER = 0.015
"""m, radius of the marker of where the handle has to be."""


@pytree_dataclass
class JointGoalState:
    """The beginning of an episode with a piece of furniture.

    Attributes:
        start: (5,), its coordinates: the height z, x and y of its closed handle, m, its turn about
            the vertical, rad, and how far it is open, m or rad; see `dynamics.jointed_body`.
    """

    start: Array


@pytree_dataclass
class JointGoals(GoalTask):
    """Open something by its handle; the base of tasks with a joint.

    Where the furniture stands, and how it is turned, is drawn anew, and how far it is open already.
    Episodes end by time only. Success is the joint open by `opening` or more, and slower than
    `speed_tolerance`. The joint's friction and damping are numbers of the scene.

    Attributes:
        end_effector: name of the frame of the hand.
        object: name of the furniture.
        handle: name of its handle's geom.
        pads: names of the geoms that touch it.
        start_noise: rad or m, largest deviation of each joint from the default configuration.
        object_low: (3,), m, corner of where the closed handle is, world.
        object_high: (3,), m, the other corner.
        object_turn: rad, greatest turn of the furniture, either way.
        start_opening: m or rad, how far it is open at first, at most.
        opening: m or rad, how far it has to be opened.
        speed_tolerance: m/s or rad/s, of the joint.
        reward_weights: term -> weight; see `reward_terms`.
    """

    end_effector: EndEffectors = static(default="hand")
    object: str = static(default="")
    handle: str = static(default=HANDLE)
    pads: tuple[str, ...] = static(default=("left_pad", "right_pad"))
    start_noise: ArrayLike = 0.02
    object_low: ArrayLike = (0.62, -0.1, 0.2)
    object_high: ArrayLike = (0.7, 0.1, 0.3)
    object_turn: ArrayLike = 0.3
    start_opening: ArrayLike = 0.0
    opening: ArrayLike = 1.0
    speed_tolerance: ArrayLike = 0.05
    reward_weights: Any = None

    unit: ClassVar[str] = "rad"
    """Of the joint, m or rad."""

    goal_terms: ClassVar[tuple[str, ...]] = ("to_goal",)
    state_type: ClassVar[type | None] = JointGoalState

    observation_units: ClassVar[Mapping[str, str]] = {
        **JOINT_UNITS,
        "hand_position": "m",
        "hand_axes": "1, two columns of the rotation matrix",
        "object_position": "m, of the handle",
        "object_facing": "1, x and y of the direction from the front to the handle",
        "opened": "m or rad, of the joint",
        "opening_velocity": "m/s or rad/s, of the joint",
        "to_object": "dm, from the hand to the handle",
        "pad_force": "10 N, of each pad on the handle",
        "to_goal": "1: part of the opening that lacks; negative beyond it",
        "last_action": "1",
    }

    def __post_init__(self) -> None:
        if not self.hands.alone:
            raise ConfigError(
                f"{type(self).__name__}: end_effector={self.end_effector!r}, expected one hand."
            )

    @property
    def hands(self) -> Hands:
        """The end effector."""
        return Hands.of(self.end_effector)

    def check(self, robot: Robot) -> None:
        """Check that handles are within reach, and that nothing is open enough at first.

        Raises:
            ConfigError: the box is not possible, or `start_opening` is not below `opening`.
        """
        check_within_reach(robot, self.end_effector, "object", self.object_low, self.object_high)
        numbers = self.start_opening, self.opening
        if is_concrete(numbers):
            first, goal = (float(np.asarray(x)) for x in numbers)
            if not 0 <= first < goal:
                raise ConfigError(
                    f"{type(self).__name__}: start_opening={first:g}, opening={goal:g} "
                    f"{self.unit}, expected 0 <= start_opening < opening, so that no episode is "
                    "solved where it begins."
                )

    def reset(self, key: Array, robot: Robot) -> tuple[Array, JointGoalState]:
        """Initial configuration (nq,) near the default one; furniture somewhere, hardly open."""
        key_start, key_place, key_turn, key_open = jax.random.split(key, 4)
        q = near_default(key_start, robot, self.start_noise)
        dtype = q.dtype
        low, high = jnp.asarray(self.object_low, dtype), jnp.asarray(self.object_high, dtype)
        x, y, z = low + (high - low) * jax.random.uniform(key_place, (3,), dtype)
        turn = jax.random.uniform(key_turn, (), dtype, -1.0, 1.0)
        ajar = jax.random.uniform(key_open, (), dtype)
        turn = jnp.asarray(self.object_turn, dtype) * turn
        ajar = jnp.asarray(self.start_opening, dtype) * ajar
        return q, JointGoalState(jnp.stack([z, x, y, turn, ajar]))

    def world(self, key: Array, robot: Robot, q: Array, state: Any) -> World:
        """The furniture where the state says."""
        return World(scene=SceneState({self.object: ObjectState(state.start)}))

    def observation_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Joints, hand, handle, how far it is open, the ways to go, forces, the last action."""
        thing = self._object(motion)
        hand, axes = self.hand(robot, motion)
        position, facing = self.handle_pose(thing.q)
        return {
            **joint_terms(robot, motion),
            "hand_position": hand,
            "hand_axes": axes[:, :2].T.ravel(),
            "object_position": position,
            "object_facing": facing,
            "opened": thing.q[4:],
            "opening_velocity": thing.v[4:],
            "to_object": 10.0 * (position - hand),
            "pad_force": 0.1 * self.pad_forces(motion),
            "to_goal": self._lacking(thing)[None],
            "last_action": motion.action,
        }

    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """`opened` (m or rad), `opening_speed`, `grasped` (bool), `slip_speed`, `success` (bool).

        `slip_speed` (m/s) is the handle's along the pads.
        """
        thing, touch = self._object(motion), (motion.world.contacts, self.pads, self.handle)
        opened, speed = thing.q[4], jnp.abs(thing.v[4])
        still = speed < jnp.asarray(self.speed_tolerance)
        return {
            "opened": opened,
            "opening_speed": speed,
            "grasped": grasped(*touch),
            "slip_speed": slip_speed(*touch),
            "success": (opened >= jnp.asarray(self.opening)) & still,
        }

    @property
    def reported(self) -> tuple[Measure, ...]:
        """How far it is open, and the speed."""
        shown = {"m": "mm", "rad": "deg"}[self.unit]
        return (
            Measure("opened", self.unit, shown=shown),
            Measure(
                "opening_speed",
                f"{self.unit}/s",
                shown=f"{shown}/s",
                label="speed",
                below="speed_tolerance",
            ),
        )

    def reward_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Reward terms, in stages, with a gradient everywhere.

        `reach` (1 - tanh(d / 0.2 m) of the hand from the handle), `grasp` (tanh(f / 2 N) of the
        lesser of the pads' forces), `open` (how much of the opening there is), `open_fine`
        (1 - tanh(lacking part / 0.1)), `action_rate` (squared change of the action),
        `joint_velocity` (squared, rad^2/s^2). To hold the handle is not necessary: a finger behind
        it does.
        """
        thing = self._object(motion)
        way = self.handle_pose(thing.q)[0] - self.hand(robot, motion)[0]
        lacking = jnp.maximum(self._lacking(thing), 0.0)
        change = motion.action - motion.previous_action
        return {
            "reach": 1.0 - jnp.tanh(norm(way) / FAR),
            "grasp": jnp.tanh(jnp.min(self.pad_forces(motion)) / FIRM),
            "open": 1.0 - lacking,
            "open_fine": 1.0 - jnp.tanh(lacking / FINE),
            "action_rate": jnp.sum(change * change),
            "joint_velocity": jnp.sum(motion.v * motion.v),
        }

    def achieved_goal(self, robot: Robot, motion: Motion, state: Any) -> Array:
        """How far it is open (1,), m or rad."""
        opened: Array = self._object(motion).q[4:]
        return opened

    def desired_goal(self, state: Any) -> Array:
        """How far it has to be opened (1,), m or rad."""
        return jnp.asarray(self.opening, state.start.dtype)[None]

    def goal_distance(self, achieved: Array, desired: Array) -> Array:
        """One (...,) where goals (..., 1) are just reached, one more for each `opening` that lacks.

        Further open is as good, and nearer than one.
        """
        lacking = (desired - achieved)[..., 0] / jnp.asarray(self.opening)
        return jnp.maximum(1.0 + lacking, 0.0)

    def markers(self, state: Any) -> list[Shape]:
        """A sphere where the handle has to be."""
        q = jnp.asarray(state.start).at[4].set(jnp.asarray(self.opening))
        return [Shape("sphere", (MARKER,), np.asarray(self.handle_pose(q)[0]), rgba=GOAL_COLOR)]

    @abstractmethod
    def handle_pose(self, q: Array) -> tuple[Array, Array]:
        """The handle's position (3,), m, world, and facing (2,), of the coordinates `q` (5,).

        It faces from the front to the handle: x and y of a unit vector.
        """

    def hand(self, robot: Robot, motion: Motion) -> tuple[Array, Array]:
        """Position (3,), m, and rotation (3, 3), to world, of the hand."""
        return frame_pose(robot, motion.q, self.hands.names[0], kin=motion.poses)

    def pad_forces(self, motion: Motion) -> Array:
        """Normal forces (p,), N, of the pads on the handle."""
        return pad_forces(motion.world.contacts, self.pads, self.handle)

    def _lacking(self, thing: Any) -> Array:
        """Part () of the opening that lacks, negative beyond it."""
        lacking: Array = 1.0 - thing.q[4] / jnp.asarray(self.opening)
        return lacking

    def _object(self, motion: Motion) -> Any:
        return motion.world.objects[self.object]
