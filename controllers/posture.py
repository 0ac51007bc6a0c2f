"""Postures: configurations that the joints are pulled to in the nullspace of the hands' tasks."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
import numpy as np
from jax import Array

from fraxenv.dynamics import Robot, difference, neutral

Posture = Literal["default", "center", "zero", "none"]

POSTURES: tuple[Posture, ...] = ("default", "center", "zero", "none")

LARGEST_ERROR = np.pi
"""Bound, rad or m, of a joint's distance from the posture.

The pull is multiplied by the inertia, so it is not a potential's: without a bound, joints that have
turned far beyond their limits may gain speed from it for ever.
"""


def posture_error(posture: Posture, robot: Robot, q: Array) -> Array:
    """Displacements (nv,) from `q` to a posture, rad and m, at most `LARGEST_ERROR` each.

    "default" is the robot's default configuration, "center" the centre of its position limits (the
    default of joints without limits), "zero" the neutral configuration; "none" has no error.
    """
    if posture == "none":
        return jnp.zeros(robot.nv, q.dtype)
    goal = jnp.asarray(neutral(robot) if posture == "zero" else robot.q_default, q.dtype)
    if posture == "center":
        coordinate = robot.topology.dof_coordinate
        scalar = coordinate >= 0
        limits = jnp.asarray(robot.position_limits, q.dtype)[scalar]
        limited = jnp.all(jnp.isfinite(limits), axis=1)
        middle = jnp.mean(jnp.where(limited[:, None], limits, 0.0), axis=1)
        there = goal[coordinate[scalar]]
        goal = goal.at[coordinate[scalar]].set(jnp.where(limited, middle, there))
    return jnp.clip(difference(robot, q, goal), -LARGEST_ERROR, LARGEST_ERROR)
