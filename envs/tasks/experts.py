"""Experts: waypoints of a hand that handles objects, as functions of one observation.

They remember nothing: what to do next follows from where hand, object and goal are, so that a
cube that is lost is fetched again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax.numpy as jnp
from jax import Array

from fraxenv.dynamics import orientation_error
from fraxenv.dynamics.math.algebra import norm

from .grasping import LEAST_FORCE
from .object_goals import ObjectGoals
from .pick import Pick
from .push import Push

Terms = Mapping[str, Array]
"""Observation terms by name."""

Expert = Callable[[Terms, ObjectGoals], tuple[Array, Array, Array]]
"""(terms, task) -> displacement (3,), m, and turn (3,), rad, of the hand, world axes; width (), m,
of the gripper."""

OPEN = 0.08
"""m, width of an open gripper."""

ALIGNED = 0.006
"""m, across the table, within which the hand is over the cube."""

LEVEL = 0.008
"""m, between the heights of hand and cube, from which the gripper closes."""

HOVER = 0.08
"""m, of the hand above the cube on its way there."""

CLEAR = 0.06
"""m, of the closed hand above the cube on its way around it."""


def pick(terms: Terms, task: ObjectGoals) -> tuple[Array, Array, Array]:
    """Over the cube, fingers along its faces; down; close; to the goal."""
    to_cube, to_goal = 0.1 * terms["to_object"], 0.1 * terms["to_goal"]
    across = norm(to_cube[:2])
    turn = _downwards(terms, _face_angle(terms["object_axes"]))
    beside = jnp.maximum(across - ALIGNED, 0.1 * jnp.abs(turn[2]) - ALIGNED)
    above = jnp.clip(10.0 * beside, 0.0, HOVER)
    over = to_cube.at[2].add(above)
    held = jnp.all(10.0 * terms["pad_force"] >= LEAST_FORCE)
    closes = (across < 2.0 * ALIGNED) & (jnp.abs(to_cube[2]) < LEVEL)
    move = jnp.where(held, to_goal, over)
    return move, jnp.where(held, 0.0, turn), jnp.where(held | closes, 0.0, OPEN)


def push(terms: Terms, task: ObjectGoals) -> tuple[Array, Array, Array]:
    """Around the cube to its far side from the goal, down, and through it to the goal."""
    to_cube, to_goal = 0.1 * terms["to_object"], 0.1 * terms["to_goal"]
    distance = norm(to_goal[:2])
    ahead = to_goal[:2] / jnp.maximum(distance, 1e-6)
    aside = jnp.stack([-ahead[1], ahead[0]])
    # Of the cube as the hand sees it: along the way to the goal, and across.
    along, across = jnp.dot(to_cube[:2], ahead), jnp.dot(to_cube[:2], aside)
    away = jnp.stack([ahead[0], ahead[1], 0.0])
    sideways = jnp.stack([aside[0], aside[1], 0.0])
    down = to_cube[2]
    # Where it touches, the hand recentres as it pushes.
    behind = (along > 0.02) & (jnp.abs(across) < jnp.where(along < 0.045, 0.018, 0.01))
    # No further down while it pushes: friction would press the cube on the table, and jam it.
    forwards = away * jnp.clip(2.0 * distance, 0.02, 0.045) + sideways * 1.5 * across
    forwards = forwards.at[2].set(jnp.maximum(down, -0.004))
    station = (along - 0.055) * away + across * sideways
    over = norm(station) < 0.012
    around = 2.0 * station.at[2].set(jnp.where(over, down, to_cube[2] + CLEAR))
    low = jnp.abs(down) < jnp.where(along < 0.045, 0.016, 0.01)
    move = jnp.where(behind & low, forwards, around)
    move = jnp.where(distance < 0.006, 0.0, move)
    return move, _downwards(terms, jnp.arctan2(ahead[1], ahead[0])), jnp.zeros(())


EXPERTS: dict[type[ObjectGoals], Expert] = {Pick: pick, Push: push}
"""Task -> its expert."""


def _face_angle(columns: Array) -> Array:
    """Angle (), rad, about the vertical of one of a box's faces, from two columns (6,)."""
    return jnp.arctan2(columns[1], columns[0])


def _downwards(terms: Terms, angle: Array) -> Array:
    """Turn (3,), rad, to a hand that points down, its fingers along or across an angle, rad.

    Of the four such poses the nearest.
    """
    x, y = terms["hand_axes"].reshape(2, 3)
    now = jnp.arctan2(x[1], x[0])
    quarter = 0.5 * jnp.pi
    goal = now + (angle - now + 0.5 * quarter) % quarter - 0.5 * quarter
    c, s, zero, one = jnp.cos(goal), jnp.sin(goal), jnp.zeros(()), jnp.ones(())
    target = jnp.stack(
        [jnp.stack([c, s, zero]), jnp.stack([s, -c, zero]), jnp.stack([zero, zero, -one])]
    )
    rotation = jnp.stack([x, y, jnp.cross(x, y)], axis=1)
    return orientation_error(target.astype(rotation.dtype), rotation)
