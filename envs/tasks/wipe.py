"""Wipe: press the closed gripper on the table, and wipe marks off it, but not too hard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics import Robot, Shape, frame_pose
from fraxenv.dynamics.math.algebra import norm
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError, check_count, is_concrete

from .base import Motion
from .measures import Measure
from .object_goals import NEAR
from .pose_goals import GOAL_COLOR, JOINT_UNITS, PoseGoals, joint_terms
from .reachability import check_within_reach

WIPE_WEIGHTS = {
    "near": 0.2,
    "press": 0.2,
    "wiped": 0.6,
    "excess": -1.0,
    "action_rate": -1e-3,
    "joint_velocity": -1e-4,
}

MARK_SIZE = 0.004
"""m, radius of a mark as it is drawn."""


@pytree_dataclass
class WipeState:
    """The marks, and what has become of them.

    Attributes:
        marks: (k, 2), m, on the table, world.
        wiped: (k,) bool.
        peak: (), N, the greatest force on the table that was seen at the end of a policy step.
    """

    marks: Array
    wiped: Array
    peak: Array


@pytree_dataclass
class Wipe(PoseGoals):
    """Wipe marks off a table: they are in a row along a random arc.

    A mark is wiped when the pads are over it at the end of a policy step, and press on the table
    with at least `least_force` and at most `most_force`. Success is nearly all of them wiped, and
    never more than `most_force`. After robosuite's Wipe. The tolerances of `PoseGoals` count for
    nothing; the goal of a goal environment is all marks wiped.

    Attributes:
        pads: names of the geoms that wipe.
        table: name of the geom they wipe.
        count: number of marks.
        length: m, of the arc.
        curvature: 1/m, greatest of the arc, to either side.
        middle_low: (2,), m, corner of where the arc's middle is, world.
        middle_high: (2,), m, the other corner.
        tool: (2,), m, half extents of the closed pads, along the hand's x and y axes.
        least_force: N, sum of the normal forces of the pads.
        most_force: N, likewise.
        share: of the marks that have to be wiped.
        force_ends: whether an episode ends where the force was more than `most_force`.
        reward_weights: term -> weight; see `reward_terms`.
    """

    start_noise: ArrayLike = 0.02
    pads: tuple[str, ...] = static(default=("left_pad", "right_pad"))
    table: str = static(default="table")
    count: int = static(default=30)
    length: ArrayLike = 0.24
    curvature: ArrayLike = 5.0
    middle_low: ArrayLike = (0.45, -0.1)
    middle_high: ArrayLike = (0.55, 0.1)
    tool: ArrayLike = (0.00875, 0.0152)
    least_force: ArrayLike = 1.0
    most_force: ArrayLike = 60.0
    share: ArrayLike = 0.95
    force_ends: bool = static(default=False)
    reward_weights: Any = field(default_factory=lambda: dict(WIPE_WEIGHTS))

    goal_terms: ClassVar[tuple[str, ...]] = ()
    state_type: ClassVar[type | None] = WipeState

    observation_units: ClassVar[Mapping[str, str]] = {
        **JOINT_UNITS,
        "hand_position": "m",
        "hand_axes": "1, two columns of the rotation matrix",
        "force": "10 N, of the pads on the table",
        "to_marks": "dm, from the hand to each mark along x and y; zero of wiped ones",
        "wiped": "1, share of the marks",
        "last_action": "1",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("Wipe: count", self.count, of="marks")
        if not self.hands.alone:
            raise ConfigError(f"Wipe: end_effector={self.end_effector!r}, expected one hand.")

    def check(self, robot: Robot) -> None:
        """Check that all marks are within reach, and that there are forces that wipe.

        Raises:
            ConfigError: they are not, or there are none.
        """
        numbers = self.middle_low, self.middle_high, self.length, self.least_force, self.most_force
        if not is_concrete(numbers):
            return
        half = 0.5 * float(np.asarray(self.length))
        low, high = (np.append(np.asarray(c, float), 0.0) for c in numbers[:2])
        beyond = np.array([half, half, 0.0])
        check_within_reach(robot, self.end_effector, "middle", low - beyond, high + beyond)
        least, most = (float(np.asarray(f)) for f in (self.least_force, self.most_force))
        if not 0 < least < most:
            raise ConfigError(
                f"Wipe: least_force={least:g} N and most_force={most:g} N, expected a positive "
                "number, and a larger one."
            )

    def reset(self, key: Array, robot: Robot) -> tuple[Array, WipeState]:
        """Initial configuration (nq,) near the default one; a random arc of marks."""
        key_start, key_middle, key_way, key_curve = jax.random.split(key, 4)
        q = self.start(key_start, robot)
        dtype = q.dtype
        low, high = (jnp.asarray(x, dtype) for x in (self.middle_low, self.middle_high))
        middle = low + (high - low) * jax.random.uniform(key_middle, (2,), dtype)
        way = jax.random.uniform(key_way, (), dtype, -jnp.pi, jnp.pi)
        curve = jax.random.uniform(key_curve, (), dtype, -1.0, 1.0)
        length = jnp.asarray(self.length, dtype)
        along = jnp.asarray(np.linspace(-0.5, 0.5, self.count), dtype) * length
        # Of an angle a the chord, 2 sin(a / 2) / curvature, points along half of it.
        half = 0.5 * jnp.asarray(self.curvature, dtype) * curve * along
        straight = jnp.abs(half) < 1e-4
        safe = jnp.where(straight, 1.0, half)
        chord = along * jnp.where(straight, 1.0, jnp.sin(safe) / safe)
        offsets = jnp.stack([jnp.cos(way + half), jnp.sin(way + half)], axis=1)
        marks = middle + chord[:, None] * offsets
        return q, WipeState(marks, jnp.zeros(self.count, bool), jnp.zeros((), dtype))

    def after(self, robot: Robot, motion: Motion, state: Any) -> WipeState:
        """The marks under the pads are wiped, if the force is one that wipes."""
        position, rotation = self._hand(robot, motion)
        force = self.force(motion)
        x, y = (state.marks - position[:2]).T
        tool = jnp.asarray(self.tool)
        over = jnp.abs(x * rotation[0, 0] + y * rotation[1, 0]) < tool[0]
        over &= jnp.abs(x * rotation[0, 1] + y * rotation[1, 1]) < tool[1]
        wipes = (force >= jnp.asarray(self.least_force)) & (force <= jnp.asarray(self.most_force))
        peak = jnp.maximum(state.peak, force)
        return WipeState(state.marks, state.wiped | (over & wipes), peak)

    def observation_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Joints, hand, force, the ways to the marks that are left, and the last action."""
        position, rotation = self._hand(robot, motion)
        ways = jnp.where(state.wiped[:, None], 0.0, 10.0 * (state.marks - position[:2]))
        return {
            **joint_terms(robot, motion),
            "hand_position": position,
            "hand_axes": rotation[:, :2].T.ravel(),
            "force": 0.1 * self.force(motion)[None],
            "to_marks": ways.ravel(),
            "wiped": self.wiped(state)[None],
            "last_action": motion.action,
        }

    def reward_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Reward terms, after robosuite's.

        `near` (1 - tanh(d / 0.1 m) of the hand from the nearest mark that is left, one if none is),
        `press` (of the force: tanh(f / least_force), zero above `most_force`), `wiped` (share),
        `excess` (whether the force is above `most_force`), `action_rate` (squared change of the
        action), `joint_velocity` (squared, rad^2/s^2).
        """
        position, _ = self._hand(robot, motion)
        force = self.force(motion)
        ways = jnp.concatenate([state.marks, jnp.zeros_like(state.marks[:, :1])], axis=1) - position
        nearest = jnp.min(jnp.where(state.wiped, jnp.inf, norm(ways)))
        done = jnp.all(state.wiped)
        near = 1.0 - jnp.tanh(jnp.where(done, 0.0, nearest) / NEAR)
        excess = force > jnp.asarray(self.most_force)
        press = jnp.tanh(force / jnp.asarray(self.least_force))
        change = motion.action - motion.previous_action
        return {
            "near": near,
            "press": jnp.where(excess, 0.0, jnp.where(done, 1.0, press)),
            "wiped": self.wiped(state),
            "excess": excess.astype(force.dtype),
            "action_rate": jnp.sum(change * change),
            "joint_velocity": jnp.sum(motion.v * motion.v),
        }

    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """`unwiped` (share of the marks); `force` and `peak_force` (N); `success` (bool)."""
        wiped = self.wiped(state)
        gentle = state.peak <= jnp.asarray(self.most_force)
        return {
            "unwiped": 1.0 - wiped,
            "force": self.force(motion),
            "peak_force": state.peak,
            "success": (wiped >= jnp.asarray(self.share)) & gentle,
        }

    @property
    def reported(self) -> tuple[Measure, ...]:
        """Share of marks left, and force."""
        return (
            Measure("unwiped", "1", shown="%", label="left"),
            Measure("peak_force", "N", label="force", below="most_force"),
        )

    def terminated(self, robot: Robot, motion: Motion, state: Any) -> Array:
        """Whether the force was too much, if that ends episodes."""
        if not self.force_ends:
            return super().terminated(robot, motion, state)
        ends: Array = state.peak > jnp.asarray(self.most_force)
        return ends

    def achieved_goal(self, robot: Robot, motion: Motion, state: Any) -> Array:
        """Share (1,) of the marks that are wiped; zero where the force was too much."""
        gentle = state.peak <= jnp.asarray(self.most_force)
        return jnp.where(gentle, self.wiped(state), 0.0)[None]

    def desired_goal(self, state: Any) -> Array:
        """One, (1,)."""
        return jnp.ones_like(state.peak)[None]

    def goal_distance(self, achieved: Array, desired: Array) -> Array:
        """What is left (...,), as a fraction of what may be."""
        left: Array = (desired - achieved)[..., 0] / (1.0 - jnp.asarray(self.share))
        return left

    def markers(self, state: Any) -> list[Shape]:
        """The marks that are left."""
        left = np.asarray(state.marks, float)[~np.asarray(state.wiped)]
        return [
            Shape("sphere", (MARK_SIZE,), np.append(mark, 0.0), rgba=GOAL_COLOR) for mark in left
        ]

    def force(self, motion: Motion) -> Array:
        """Normal force (), N, of the pads on the table."""
        return jnp.sum(motion.world.contacts.between(self.pads, self.table).normal_force)

    def wiped(self, state: Any) -> Array:
        """Share () of the marks that are wiped."""
        return jnp.mean(state.wiped.astype(state.peak.dtype))

    def _hand(self, robot: Robot, motion: Motion) -> tuple[Array, Array]:
        return frame_pose(robot, motion.q, self.hands.names[0], kin=motion.poses)
