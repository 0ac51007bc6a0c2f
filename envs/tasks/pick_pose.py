"""Pick to a pose: grasp a box, lift it, turn it and hold it at a goal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics import Robot, orientation_error, rotation_exp
from fraxenv.dynamics.math.algebra import matmul, norm
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.dynamics.math.rotation import quaternion_to_matrix

from .base import Motion
from .measures import Measure
from .object_goals import ObjectGoals, ObjectGoalState
from .pick import PICK_WEIGHTS, Pick
from .pose_goals import PoseGoals

PICK_POSE_WEIGHTS = PICK_WEIGHTS | {"orientation_error": -0.05, "orientation_fine": 0.2}

TURN = 0.2
"""rad, of the object from its goal, at which the finer reward falls to a quarter."""


@pytree_dataclass
class PickPose(Pick):
    """Grasp a box that stands on the table, and hold it at a goal pose above.

    The goal's orientation is that of the box at first, turned about a random axis by up to
    `goal_rotation` about each of the world's. Faces count: a box that is turned by half a turn
    looks alike, but is not. Success is that of `Pick`, and the box within `orientation_tolerance`
    of its goal.

    Attributes:
        orientation_tolerance: rad.
        goal_rotation: rad, largest turn of the goal's orientation about each axis.
        reward_weights: term -> weight; see `reward_terms`.
    """

    orientation: bool = static(default=True)
    orientation_tolerance: ArrayLike = 0.2
    object: str = static(default="box")
    half_height: ArrayLike = 0.03
    goal_low: ArrayLike = (0.4, -0.1, 0.1)
    goal_high: ArrayLike = (0.6, 0.1, 0.3)
    goal_rotation: ArrayLike = 0.5
    reward_weights: Any = field(default_factory=lambda: dict(PICK_POSE_WEIGHTS))

    oriented: ClassVar[bool] = True
    goal_terms: ClassVar[tuple[str, ...]] = (*ObjectGoals.goal_terms, "turn_to_goal")

    observation_units: ClassVar[Mapping[str, str]] = {
        **ObjectGoals.observation_units,
        "turn_to_goal": PoseGoals.observation_units["turn_to_goal"],
    }

    def reset(self, key: Array, robot: Robot) -> tuple[Array, ObjectGoalState]:
        """Initial configuration (nq,) near the default one; a random object and goal pose."""
        q, drawn = super().reset(key, robot)
        # Of keys that are folded in, the first are those of `split`.
        turn = jax.random.uniform(jax.random.fold_in(key, 5), (3,), q.dtype, -1.0, 1.0)
        turn = jnp.asarray(self.goal_rotation, q.dtype) * turn
        rotation = matmul(rotation_exp(turn), quaternion_to_matrix(drawn.start[3:]))
        return q, replace(drawn, rotation=rotation[None])

    def goal_observations(self, motion: Motion, state: Any) -> dict[str, Array]:
        """As of `ObjectGoals`, and the turn that is left."""
        turn = self._turn(motion, state)
        return {**super().goal_observations(motion, state), "turn_to_goal": turn}

    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """As of `Pick`; and `object_turn` (rad), of the object from its goal."""
        measured = super().measures(robot, motion, state)
        turn = norm(self._turn(motion, state))
        success = measured["success"] & (turn < jnp.asarray(self.orientation_tolerance))
        return {**measured, "object_turn": turn, "success": success}

    @property
    def reported(self) -> tuple[Measure, ...]:
        """Distance, turn and speed of the box."""
        distance, *others = super().reported
        turn = Measure(
            "object_turn", "rad", shown="deg", label="turn", below="orientation_tolerance"
        )
        return (distance, turn, *others)

    def reward_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """As of `ObjectGoals`, with terms of the orientation.

        `orientation_error` (rad), and `orientation_fine` (1 - tanh(error / 0.2 rad), as far as the
        box is in hand).
        """
        terms = super().reward_terms(robot, motion, state)
        turn = norm(self._turn(motion, state))
        fine = terms["grasp"] * (1.0 - jnp.tanh(turn / TURN))
        return {**terms, "orientation_error": turn, "orientation_fine": fine}

    def _turn(self, motion: Motion, state: Any) -> Array:
        """Rotation vector (3,), rad, from the box to its goal."""
        return orientation_error(state.rotation[0], self._object(motion).rotation)
