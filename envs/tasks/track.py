"""Track: keep the hand on a reference that moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Shape, frame_pose
from fraxenv.dynamics.math.pytree import pytree_dataclass

from .base import Motion
from .pose_goals import GOAL_COLOR, PoseGoals
from .references import FigureEight, Reference

_BEAD_TIMES = 0.1 * np.arange(1, 41)  # s ahead
_BEAD_RADIUS = 0.006  # m


@pytree_dataclass
class TrackState:
    """The reference at one time, and the path that it is on.

    Attributes:
        position: (k, 3), m, of the reference, world.
        rotation: (k, 3, 3), to world, that the hands should keep.
        velocity: (k, 3), m/s.
        time: (), s, since the episode began.
        path: of this episode, as `Reference.sample` draws it.
    """

    position: Array
    rotation: Array
    velocity: Array
    time: Array
    path: Any


@pytree_dataclass
class Track(PoseGoals):
    """Keep the hand on a reference: a figure eight, minimum-jerk way-points, or one's own.

    The policy sees where the reference is, how fast it moves, and where it will be. Success is to
    be within the tolerance at the end of a step. The orientation is that of the default
    configuration.

    Attributes:
        reference: the family of paths; see `fraxenv.envs.tasks.references`.
        lookahead: s, how far ahead the policy sees.
    """

    reference: Reference = field(default_factory=FigureEight)
    lookahead: ArrayLike = 0.2

    goal_terms: ClassVar[tuple[str, ...]] = (
        "goal_position",
        "to_goal",
        "turn_to_goal",
        "to_goal_ahead",
        "goal_velocity",
    )

    observation_units: ClassVar[Mapping[str, str]] = {
        **PoseGoals.observation_units,
        "to_goal_ahead": "dm, to where the goal will be",
        "goal_velocity": "m/s",
    }

    state_type: ClassVar[type | None] = TrackState

    def reset(self, key: Array, robot: Robot) -> tuple[Array, TrackState]:
        """Initial configuration (nq,) near the default one, and a path."""
        key_start, key_path = jax.random.split(key)
        q = self.start(key_start, robot)
        default = jnp.asarray(robot.q_default, q.dtype)
        poses = [frame_pose(robot, default, n) for n in self.hands.names]
        path = self.reference.sample(key_path, jnp.stack([p for p, _ in poses]))
        time = jnp.zeros((), q.dtype)
        position, velocity = self.reference.at(path, time)
        return q, TrackState(position, jnp.stack([r for _, r in poses]), velocity, time, path)

    def advance(self, state: TrackState, dt: Array) -> TrackState:
        """The reference moves on."""
        time = state.time + dt
        position, velocity = self.reference.at(state.path, time)
        return replace(state, position=position, velocity=velocity, time=time)

    def observation_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """The terms of `PoseGoals`, and the reference's lookahead and velocity.

        `to_goal_ahead` (dm) is the way to where the reference will be, `goal_velocity` is in m/s.
        """
        terms = super().observation_terms(robot, motion, state)
        ahead = state.time + jnp.asarray(self.lookahead, motion.q.dtype)
        position, _ = self.reference.at(state.path, ahead)
        terms["to_goal_ahead"] = (10.0 * (position - self.subjects(robot, motion)[0])).ravel()
        terms["goal_velocity"] = state.velocity.ravel()
        return terms

    def markers(self, state: TrackState) -> list[Shape]:
        """The reference, as large as the tolerance, and beads where it will be in the next 4 s."""
        step = _BEAD_TIMES[0]
        times = (
            step * np.floor(state.time / step) + _BEAD_TIMES
        )  # so that beads stay where they are
        times = times.astype(state.time.dtype)
        ahead: Any = np.asarray(_positions(self.reference, state.path, times), float).reshape(-1, 3)
        beads = [Shape("sphere", (_BEAD_RADIUS,), p, rgba=GOAL_COLOR) for p in ahead]
        return super().markers(state) + beads


@jax.jit
def _positions(reference: Reference, path: Any, times: Array) -> Array:
    """Positions (n, k, 3), m, of a path at times (n,), s."""
    return jax.vmap(lambda time: reference.at(path, time)[0])(times)
