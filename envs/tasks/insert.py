"""Insert: put a peg into a hole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics import Robot
from fraxenv.dynamics.math.algebra import matmul, norm
from fraxenv.dynamics.math.pytree import pytree_dataclass, static

from ..world import ObjectState, SceneState, World
from .base import Motion, Task
from .grasp_goals import GraspGoals
from .measures import Measure
from .object_goals import FINE, NEAR, ObjectGoalState
from .tabletop import PEG, SOCKET, WALLS

INSERT_WEIGHTS = {
    "reach": 0.1,
    "grasp": 0.1,
    "align": 0.2,
    "align_fine": 0.2,
    "insert": 0.3,
    "action_rate": -1e-3,
    "joint_velocity": -1e-4,
}

TAIL = 0.06
"""m, from the middle of the peg to where it should be held: there is room for the hand."""


@pytree_dataclass
class Insert(GraspGoals):
    """Grasp a peg and put its head into a hole, after ManiSkill's PegInsertionSide.

    Peg and block are put down anew in every episode. The head is the end of the peg at its own +x,
    the hole is along x of the block's frame, which is in its middle. Success is, as there, the head
    no further than `position_tolerance` before the middle of the hole, and within half of the
    hole's width of its axis, both ways across; and besides, a peg that is slow. Whether it is held
    does not matter.

    The goal is the pose of the block: its box is that of the middle of the hole, and its turn about
    the vertical, from x to y, is drawn from `goal_turn`.

    Attributes:
        position_tolerance: m, of the head before the middle of the hole.
        clearance: m, between each wall and a peg in the middle of the hole.
        half_height: m, of the peg, half of its thickness.
        half_length: m, of the peg.
        goal_turn: (2,), rad, the least and the greatest turn of the block.
        object_heading: rad, the turn of the peg about the vertical in the middle of its range.
        reward_weights: term -> weight; see `reward_terms`.
    """

    position_tolerance: ArrayLike = 0.015
    clearance: ArrayLike = 0.003
    object: str = static(default=PEG)
    half_length: ArrayLike = 0.1
    object_low: ArrayLike = (0.4, -0.25)
    object_high: ArrayLike = (0.55, -0.1)
    object_turn: ArrayLike = np.pi / 4
    object_heading: ArrayLike = np.pi / 2
    goal_low: ArrayLike = (0.42, 0.2, 0.06)
    goal_high: ArrayLike = (0.54, 0.3, 0.06)
    goal_turn: ArrayLike = (np.pi / 2 - np.pi / 9, np.pi / 2 + np.pi / 9)
    least_distance: ArrayLike = 0.0
    reward_weights: Any = field(default_factory=lambda: dict(INSERT_WEIGHTS))

    goal_terms: ClassVar[tuple[str, ...]] = ("goal_position", "goal_axis", "to_goal", "wall_force")

    observation_units: ClassVar[Mapping[str, str]] = {
        **GraspGoals.observation_units,
        "goal_position": "m, of the middle of the hole",
        "goal_axis": "1, x and y of the direction of the hole",
        "to_goal": "dm, from the head of the peg to the middle of the hole",
        "wall_force": "10 N, of each wall of the hole on the peg",
    }

    goals = Task.goals
    markers = Task.markers

    def with_goal(self, state: Any, i: int, position: ArrayLike, rotation: ArrayLike) -> Any:
        """Raises `ConfigError`: there is no goal that can be moved."""
        return Task.with_goal(self, state, i, jnp.asarray(position), jnp.asarray(rotation))

    resized = Task.resized

    def reset(self, key: Array, robot: Robot) -> tuple[Array, ObjectGoalState]:
        """Initial configuration (nq,) near the default one; a random peg and block."""
        q, drawn = super().reset(key, robot)
        dtype = q.dtype
        # Of keys that are folded in, the first are those of `split`.
        share = jax.random.uniform(jax.random.fold_in(key, 5), (), dtype)
        low, high = jnp.asarray(self.goal_turn, dtype)
        turn = low + (high - low) * share
        c, s, zero = jnp.cos(turn), jnp.sin(turn), jnp.zeros((), dtype)
        rotation = jnp.stack([c, -s, zero, s, c, zero, zero, zero, jnp.ones((), dtype)])
        heading = 0.5 * jnp.asarray(self.object_heading, dtype)
        a, b, w, z = jnp.cos(heading), jnp.sin(heading), drawn.start[3], drawn.start[6]
        start = drawn.start.at[3].set(w * a - z * b).at[6].set(w * b + z * a)
        return q, replace(drawn, rotation=rotation.reshape(1, 3, 3), start=start)

    def world(self, key: Array, robot: Robot, q: Array, state: Any) -> World:
        """Peg and block where the state says."""
        place, axis = state.position[0], state.rotation[0, :, 0]
        turn = jnp.arctan2(axis[1], axis[0])
        block = jnp.stack([place[2], place[0], place[1], turn])
        return World(
            scene=SceneState({self.object: ObjectState(state.start), SOCKET: ObjectState(block)})
        )

    def goal_observations(self, motion: Motion, state: Any) -> dict[str, Array]:
        """The hole, the head's way to its middle, and the forces of its walls."""
        goal = self.goal(motion, state)
        walls = motion.world.contacts.between(WALLS, self.object)
        return {
            "goal_position": goal,
            "goal_axis": state.rotation[0, :2, 0],
            "to_goal": 10.0 * (goal - self.end(motion, 1.0)),
            "wall_force": 0.1 * walls.normal_force,
        }

    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """As of `GraspGoals`, where the distance is the head's from the middle of the hole.

        And `head_aside` (m), the larger of its distances from the axis, along y and z of the block;
        `depth_lacking` (m), how much further it has to go along the hole, negative beyond that; and
        `wall_force` (N), the sum of all walls' on the peg.
        """
        head = self.in_hole(self.end(motion, 1.0), state)
        lacking = -jnp.asarray(self.position_tolerance) - head[0]
        aside = jnp.max(jnp.abs(head[1:]))
        measured = super().measures(robot, motion, state)
        speed = measured["object_speed"]
        there = (lacking < 0.0) & (aside < self.aside_tolerance)
        return {
            **measured,
            "object_distance": norm(head),
            "head_aside": aside,
            "depth_lacking": lacking,
            "wall_force": jnp.sum(motion.world.contacts.between(WALLS, self.object).normal_force),
            "success": there & (speed < jnp.asarray(self.speed_tolerance)),
        }

    @property
    def reported(self) -> tuple[Measure, ...]:
        """Where the head is in the hole, the speed of the peg, and the force of the walls."""
        _, speed = super().reported
        return (
            Measure("depth_lacking", "m", shown="mm", label="lacking"),
            Measure("head_aside", "m", shown="mm", label="aside", below="aside_tolerance"),
            speed,
            Measure("wall_force", "N", label="force"),
        )

    def reward_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Reward terms, in stages, after ManiSkill's, with a gradient everywhere.

        `reach` (1 - tanh(d / 0.2 m) of the hand from the peg's tail, 60 mm from its middle),
        `grasp` (tanh(f / 2 N) of the lesser of the pads' forces); of a peg that is in hand, or in
        the hole, `align` and `align_fine` (1 - tanh(d / 0.1 m), or 0.02 m, of the end that is
        further from the hole's axis), and, as far as it is aligned, `insert` (1 - tanh(lacking /
        0.1 m)); `action_rate` (squared change of the action), `joint_velocity` (squared,
        rad^2/s^2).
        """
        terms = super().reward_terms(robot, motion, state)
        # A straight way to the goal leads through the walls.
        return {
            k: v for k, v in terms.items() if k not in ("place", "place_fine", "object_distance")
        }

    def stages(
        self, robot: Robot, motion: Motion, state: Any
    ) -> tuple[Array, dict[str, Array], Array]:
        """The way to the peg's tail; `grasp`, `align`, `align_fine`, `insert`."""
        thing = self._object(motion)
        tail = thing.position - TAIL * thing.rotation[:, 0]
        head, end = (self.in_hole(self.end(motion, side), state) for side in (1.0, -1.0))
        aside = jnp.maximum(norm(head[1:]), norm(end[1:]))
        lacking = jnp.maximum(-jnp.asarray(self.position_tolerance) - head[0], 0.0)
        held = self.grip(motion)
        fine = held * (1.0 - jnp.tanh(aside / FINE))
        stages = {
            "grasp": held,
            "align": held * (1.0 - jnp.tanh(aside / NEAR)),
            "align_fine": fine,
            "insert": fine * (1.0 - jnp.tanh(lacking / NEAR)),
        }
        return tail - self.hand(robot, motion)[0], stages, held

    def done(self, motion: Motion, speed: Array) -> Array:
        """Whether the peg is slow."""
        return speed < jnp.asarray(self.speed_tolerance)

    def achieved_goal(self, robot: Robot, motion: Motion, state: Any) -> Array:
        """The head (3,), m, in the frame of the hole."""
        return self.in_hole(self.end(motion, 1.0), state)

    def desired_goal(self, state: Any) -> Array:
        """The nearest place in the hole that is deep enough (3,), m, in its frame."""
        zero = jnp.zeros((), state.position.dtype)
        return jnp.stack([zero - jnp.asarray(self.position_tolerance), zero, zero])

    def goal_distance(self, achieved: Array, desired: Array) -> Array:
        """Below one where the head is deep enough, and near enough to the axis; (...,).

        The larger of: one, and one more for each 0.1 m that lacks; and the distances across, in
        tolerances. Deeper is as good, and nearer than one.
        """
        left = desired - achieved
        along = 1.0 + left[..., 0] / NEAR
        across = jnp.abs(left[..., 1:]) / self.aside_tolerance
        return jnp.maximum(jnp.maximum(along, 0.0), jnp.max(across, axis=-1))

    @property
    def aside_tolerance(self) -> Array:
        """Half of the hole's width, m."""
        return jnp.asarray(self.half_height) + jnp.asarray(self.clearance)

    def end(self, motion: Motion, side: float) -> Array:
        """The middle of the peg's head (side 1) or tail (side -1); (3,), m, world."""
        thing = self._object(motion)
        ahead: Array = side * jnp.asarray(self.half_length) * thing.rotation[:, 0]
        return thing.position + ahead

    def in_hole(self, point: Array, state: Any) -> Array:
        """A point (3,), m, from the world to the frame of the hole."""
        return matmul(state.rotation[0].T, point - state.position[0])
