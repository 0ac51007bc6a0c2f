"""Trot and track: a hand on a robot that trots on the spot follows a reference in the world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics import Robot, Shape, frame_pose
from fraxenv.dynamics.math.algebra import matmul, norm
from fraxenv.dynamics.math.pytree import pytree_dataclass, static

from .base import Motion
from .measures import Measure
from .pose_goals import GOAL_COLOR
from .references import FigureEight, Reference
from .trot import TROT_WEIGHTS, Trot, TrotState

TROT_TRACK_WEIGHTS = {**TROT_WEIGHTS, "hand": 0.3, "hand_fine": 0.3}

FAR, NEAR = 0.2, 0.02
"""m, of the hand from the reference, where the rewards for it fall to a quarter."""


@pytree_dataclass
class TrotTrackState(TrotState):
    """Where to go, the gait, and where the hand should be.

    Attributes:
        position: (3,), m, of the reference, world.
        velocity: (3,), m/s.
        begun: (), s, since the episode began.
        path: of this episode, as `Reference.sample` draws it.
    """

    position: Array
    velocity: Array
    begun: Array
    path: Any


@pytree_dataclass
class TrotTrack(Trot):
    """Keep the hand on a reference in the world, and trot on the spot.

    Success is that of `Trot`, and the hand near the reference.

    Attributes:
        hand: name of the frame that follows the reference.
        reference: the family of paths; see `fraxenv.envs.tasks.references`.
        lookahead: s, how far ahead the policy sees.
        hand_tolerance: m, of the hand from the reference.
    """

    goal_low: ArrayLike = (0.0, 0.0)
    goal_high: ArrayLike = (0.0, 0.0)
    hand: str = static(default="hand")
    reference: Reference = field(
        default_factory=lambda: FigureEight(size=(0.15, 0.075), offset=0.0)
    )
    lookahead: ArrayLike = 0.2
    hand_tolerance: ArrayLike = 0.02
    reward_weights: Any = field(default_factory=lambda: dict(TROT_TRACK_WEIGHTS))

    state_type: ClassVar[type | None] = TrotTrackState

    observation_units: ClassVar[Mapping[str, str]] = {
        **Trot.observation_units,
        "to_hand_goal": "m, from the hand to the reference, trunk's axes",
        "to_hand_goal_ahead": "m, to where the reference will be, trunk's axes",
        "hand_goal_velocity": "m/s, trunk's axes",
    }

    def check(self, robot: Robot) -> None:
        """Check that the robot has these frames, and that the numbers are possible.

        Raises:
            UnknownNameError: it lacks one.
            ConfigError: a number is not positive, the duty no share, or a box inside out.
        """
        super().check(robot)
        robot.frame(self.hand)

    def reset(self, key: Array, robot: Robot) -> tuple[Array, TrotTrackState]:
        """As of `Trot`, and a path."""
        key_trot, key_path = jax.random.split(key)
        q, trot = super().reset(key_trot, robot)
        home, _ = frame_pose(robot, jnp.asarray(robot.q_default, q.dtype), self.hand)
        path = self.reference.sample(key_path, home[None])
        begun = jnp.zeros((), q.dtype)
        position, velocity = self.reference.at(path, begun)
        state = TrotTrackState(
            **vars(trot), position=position[0], velocity=velocity[0], begun=begun, path=path
        )
        return q, state

    def advance(self, state: Any, dt: Array) -> Any:
        """The gait goes on, and the reference moves."""
        begun = state.begun + dt
        position, velocity = self.reference.at(state.path, begun)
        walked: Any = super().advance(state, dt)
        return replace(walked, begun=begun, position=position[0], velocity=velocity[0])

    def observation_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """The terms of `Trot`, and the ways of the hand to where the reference is and will be."""
        _, R = frame_pose(robot, motion.q, self.trunk, kin=motion.poses)
        hand, _ = frame_pose(robot, motion.q, self.hand, kin=motion.poses)
        ahead = state.begun + jnp.asarray(self.lookahead, motion.q.dtype)
        position, _ = self.reference.at(state.path, ahead)
        return {
            **super().observation_terms(robot, motion, state),
            "to_hand_goal": matmul(R.T, state.position - hand),
            "to_hand_goal_ahead": matmul(R.T, position[0] - hand),
            "hand_goal_velocity": matmul(R.T, state.velocity),
        }

    def reward_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """The terms of `Trot`, and `hand` and `hand_fine`.

        1 - tanh(d / 0.2 m) and 1 - tanh(d / 0.02 m) of the hand from the reference.
        """
        off = self._hand_off(robot, motion, state)
        return {
            **super().reward_terms(robot, motion, state),
            "hand": 1.0 - jnp.tanh(off / FAR),
            "hand_fine": 1.0 - jnp.tanh(off / NEAR),
        }

    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """The measures of `Trot`, and `hand_error` (m)."""
        off = self._hand_off(robot, motion, state)
        trots = super().measures(robot, motion, state)
        near = off < jnp.asarray(self.hand_tolerance)
        return {**trots, "hand_error": off, "success": trots["success"] & near}

    @property
    def reported(self) -> tuple[Measure, ...]:
        """The hand's distance besides."""
        own = Measure("hand_error", "m", shown="mm", label="hand off", below="hand_tolerance")
        return (own, *super().reported)

    def markers(self, state: Any) -> list[Shape]:
        """The reference, as large as the tolerance, besides."""
        place, radius = np.asarray(state.position, float), float(np.asarray(self.hand_tolerance))
        return [*super().markers(state), Shape("sphere", (radius,), place, rgba=GOAL_COLOR)]

    def _hand_off(self, robot: Robot, motion: Motion, state: Any) -> Array:
        """Distance () of the hand from the reference, m."""
        hand, _ = frame_pose(robot, motion.q, self.hand, kin=motion.poses)
        return norm(state.position - hand)
