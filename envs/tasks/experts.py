"""Experts: waypoints of a hand that handles objects, as functions of one observation.

They remember nothing: what to do next follows from where hand, object and goal are, so that a
cube that is lost is fetched again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import orientation_error
from fraxenv.dynamics.math.algebra import norm

from .base import GoalTask
from .door import Door
from .drawer import Drawer
from .grasping import LEAST_FORCE
from .insert import TAIL, Insert
from .joint_goals import JointGoals
from .object_goals import ObjectGoals
from .pick import Pick
from .pick_pose import PickPose
from .push import Push
from .slide import GRAVITY, Slide
from .stack import Stack
from .upright import Upright
from .wipe import Wipe

Terms = Mapping[str, Array]
"""Observation terms by name."""

Expert = Callable[[Terms, Any], tuple[Array, Array, Array]]
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

PLACED = 0.006, 0.002
"""m, across the table and in height, within which a cube is at its place on another."""

CARRY = 0.03
"""m, of a cube above its place on another on its way there."""

NEIGHBOUR = 0.1
"""m, between the centres of cubes, within which the open fingers would be in the other's way."""

PULL, PULL_AT_MOST = 0.6, 0.05
"""m of the hand, by the part of an opening that lacks, and at most."""

BESIDE, ABOVE = 0.08, 0.022
"""m, from the hand to a handle, across and upwards, from which the open fingers are clear of it."""

BEYOND = 0.05
"""Of the opening that is asked for, how much further it is opened."""

CLEAR = 0.06
"""m, of the closed hand above the cube on its way around it."""

STRAIGHT = 0.08, 0.2
"""Sines of a peg's lean from the vertical below which it is lowered, and turned by its own axis."""

STOOD = 0.004, 0.004, 0.008
"""Sine of a peg's lean, m of its height, m/s: below these it is let go of."""

SAG = 0.018
"""m, that a peg's weight draws the hand down while it is lowered."""

LIFT = 0.03
"""m, of a peg above the table while it is turned; its weight takes some of it."""

STAND = 0.38
"""m, from the arm's first axis to where a peg is stood: the hand points back to the arm."""

IN_LINE = 0.0005, 0.35, 10.0
"""m, and part of the clearance, from a hole's axis, within which a peg is put in; rad per m."""

SOFTLY = 0.25
"""Of the stiffness across, what is left in the hole."""

PEG_SAG = 0.0032
"""m, that the peg's weight draws the hand down."""

BEFORE, DEEP = 0.03, -0.005
"""m, of a peg's head before the hole until it is in line; and where it ends, from the middle."""

STATION = 0.05
"""m, of the closed hand behind a puck, from where it strikes."""

TOUCHES = 0.037
"""m, between hand and puck, where they are about to touch."""

STRIKE_SPEED = 0.15
"""m/s, of the hand when it meets the puck; a slower puck rests."""

PER_SPEED = 0.16
"""s, of a target ahead of the hand by its speed: 2 / sqrt(kp) of the controller."""

PAD_TIP = 0.0077
"""m, of the hand's frame above the tips of its pads."""

PRESS, LANDING = 0.012, 0.006
"""m, of a target below the hand while the pads press on the table, and before, at least."""

UP = np.array([0.0, 0.0, 1.0], np.float32)
"""The vertical, world."""

QUARTER = 0.5 * math.pi
"""rad, between the poses of a gripper that fit a cube."""


def pick(terms: Terms, task: ObjectGoals) -> tuple[Array, Array, Array]:
    """Over the object, fingers along its faces; down; close; to the goal, and turned as it is."""
    to_goal = 0.1 * terms["to_goal"]
    turn = _downwards(terms, _face_angle(terms["object_axes"]))
    over, closes = _fetch(0.1 * terms["to_object"], turn)
    held = _held(terms)
    move = jnp.where(held, to_goal, over)
    onwards = terms.get("turn_to_goal", jnp.zeros_like(turn))
    return move, jnp.where(held, onwards, turn), jnp.where(held | closes, 0.0, OPEN)


def stack(terms: Terms, task: ObjectGoals) -> tuple[Array, Array, Array]:
    """As `pick`, fingers beside the base; up, over the base, down on it; open; up."""
    to_goal = 0.1 * terms["to_goal"]
    turn = _downwards(terms, _free_angle(terms), 2.0)
    over, closes = _fetch(0.1 * terms["to_object"], turn)
    held = _held(terms)
    across = norm(to_goal[:2])
    placed = (across < PLACED[0]) & (jnp.abs(to_goal[2]) < PLACED[1])
    # Over the base only from above it: from 2 mm on, and freely from 12 mm.
    up = to_goal[2] + jnp.clip(5.0 * (across - 0.5 * PLACED[0]), 0.0, CARRY)
    sideways = jnp.clip(-100.0 * to_goal[2] - 0.2, 0.0, 1.0)
    near = across < 2.0 * PLACED[0]
    carried = (to_goal * jnp.where(near, 1.0, sideways)).at[2].set(up)
    # Away once it is let go of.
    height = -0.1 * terms["to_object"][2]
    free = jnp.all(terms["pad_force"] == 0.0)
    away = jnp.zeros_like(over).at[2].set(jnp.where(free, HOVER - height, 0.0))
    move = jnp.where(placed, away, jnp.where(held, carried, over))
    turn = jnp.where(held | placed, 0.0, turn)
    return move, turn, jnp.where((held | closes) & ~placed, 0.0, OPEN)


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
    # Nor where it is too low: fingers that tilt jam on the table, and are lifted first.
    free = jnp.clip(2.0 - down / 0.004, 0.0, 1.0)
    forwards = away * free * jnp.clip(2.0 * distance, 0.02, 0.045) + sideways * 1.5 * across
    forwards = forwards.at[2].set(jnp.maximum(down, -0.004))
    station = (along - 0.055) * away + across * sideways
    over = norm(station) < 0.012
    around = 2.0 * station.at[2].set(jnp.where(over, down, to_cube[2] + CLEAR))
    low = jnp.abs(down) < jnp.where(along < 0.045, 0.016, 0.01)
    move = jnp.where(behind & low, forwards, around)
    move = jnp.where(distance < 0.006, 0.0, move)
    return move, _downwards(terms, jnp.arctan2(ahead[1], ahead[0])), jnp.zeros(())


def open_up(terms: Terms, task: JointGoals) -> tuple[Array, Array, Array]:
    """Over the handle, a finger on either side; down; close; back, as the handle faces; stop."""
    facing = terms["object_facing"]
    turn = _downwards(terms, jnp.arctan2(facing[0], -facing[1]), 2.0)
    over, closes = _fetch(0.1 * terms["to_object"], turn)
    # Beside the handle until the fingers are above it.
    across = norm(over[:2])
    blocked = (0.1 * terms["to_object"][2] > -ABOVE) & (across > 0.5 * BESIDE)
    onwards = jnp.where(blocked, 1.0 - BESIDE / jnp.maximum(across, ALIGNED), 1.0)
    over = over.at[:2].multiply(onwards)
    engaged = closes & jnp.any(10.0 * terms["pad_force"] >= LEAST_FORCE)
    ahead = jnp.clip(PULL * (terms["to_goal"][0] + BEYOND), 0.0, PULL_AT_MOST)
    back = jnp.concatenate([ahead * facing, jnp.zeros(1)])
    move = jnp.where(engaged, over + back, 2.0 * over)
    return move, turn, jnp.where(closes, 0.0, OPEN)


def upright(terms: Terms, task: Any, sag: float = SAG) -> tuple[Array, Array, Array]:
    """As `pick`, in the middle; up, nearer to the arm, and turned; down on the table; open."""
    rise, axis, here = 0.1 * terms["to_goal"][0], terms["object_axes"][:3], terms["object_position"]
    length = here[2] + rise
    half = length * (jnp.asarray(task.half_height) / jnp.asarray(task.half_length))
    lean = norm(axis[:2])
    turn = _downwards(terms, _face_angle(axis), 2.0)
    over, closes = _fetch(0.1 * terms["to_object"], turn)
    stands = (lean < STRAIGHT[1]) & (jnp.abs(rise) < STOOD[1])
    loose = jnp.all(terms["pad_force"] == 0.0)
    calm = (lean < STOOD[0]) & (norm(terms["object_velocity"]) < STOOD[2])
    lets_go = stands & (calm | loose)
    held = _held(terms) | stands

    distance = norm(here[:2])
    away = here[:2] / jnp.maximum(distance, 1e-6)
    # No lower than the end of a peg that leans so.
    free = here[2] - length * jnp.abs(axis[2]) - half * lean
    slowly = 0.5 * rise - 0.005
    lower = sag + slowly + 0.3 * (6.0 * slowly - terms["object_velocity"][2])
    up = jnp.where(lean < STRAIGHT[0], lower, 3.0 * (rise + LIFT))
    carried = jnp.append(away * (STAND - distance), up) * jnp.where(stands, 0.0, 1.0)
    onwards = _turn(terms, -UP, -jnp.append(away, 0.0))
    # What the hand has of the turn the peg may lack: it slips between the pads.
    own = jnp.cross(jnp.sign(axis[2]) * axis, UP)
    freely = onwards * jnp.clip(free / (0.2 * LIFT), 0.0, 1.0)
    onwards = 6.0 * jnp.where(lean < STRAIGHT[1], own.at[2].set(onwards[2]), freely)

    move = jnp.where(lets_go, 0.0, jnp.where(held, carried, 2.0 * over))
    turn = jnp.where(lets_go, 0.0, jnp.where(held, onwards, 3.0 * turn))
    return move, turn, jnp.where((held | closes) & ~lets_go, 0.0, OPEN)


def insert(terms: Terms, task: Any, sag: float = PEG_SAG) -> tuple[Array, Array, Array]:
    """As `pick`, by the tail; up, before the hole, in line with it; in; hold still."""
    axis = terms["object_axes"][:3]
    ahead = jnp.append(terms["goal_axis"], 0.0)
    turn = _downwards(terms, _face_angle(axis), 2.0)
    to_tail = 0.1 * terms["to_object"] - TAIL * axis
    over, closes = _fetch(to_tail, turn)
    held = _held(terms)

    # Of the head: along the hole, from its middle, and what lacks across.
    way = 0.1 * terms["to_goal"]
    along = -jnp.dot(way, ahead)
    across = way + along * ahead
    askew = jnp.cross(axis, ahead)
    mouth = -jnp.asarray(task.half_length)
    near = IN_LINE[0] + IN_LINE[1] * jnp.asarray(task.clearance)
    straight = (norm(across) < near) & (norm(askew) < IN_LINE[2] * near)
    enters = (along > mouth) | straight
    onwards = jnp.clip(4.0 * (jnp.where(enters, DEEP, mouth - BEFORE) - along), -0.05, 0.05)
    drift = terms["object_velocity"]
    drift = drift - jnp.dot(drift, ahead) * ahead
    # Softly in the hole, where the walls lead.
    stiff = jnp.where(along > mouth + 0.01, SOFTLY, 1.0)
    carried = stiff * (8.0 * across - 0.15 * drift) + onwards * ahead + sag * UP
    now_x, now_y = terms["hand_axes"].reshape(2, 3)
    roll = jnp.dot(jnp.cross(jnp.cross(now_x, now_y), -UP), ahead)

    move = jnp.where(held, carried, 4.0 * over)
    turn = jnp.where(held, stiff * 4.0 * askew + 4.0 * roll * ahead, 3.0 * turn)
    return move, turn, jnp.where(held | closes, 0.0, OPEN)


def slide(terms: Terms, task: Any) -> tuple[Array, Array, Array]:
    """Behind the puck, as `push`; forwards until it is fast enough to slide to its goal; stop."""
    to_puck, to_goal = 0.1 * terms["to_object"], 0.1 * terms["to_goal"]
    distance = norm(to_goal[:2])
    ahead = jnp.append(to_goal[:2] / jnp.maximum(distance, 1e-6), 0.0)
    aside = jnp.stack([-ahead[1], ahead[0], jnp.zeros(())])
    along, across, down = jnp.dot(to_puck, ahead), jnp.dot(to_puck, aside), to_puck[2]
    speed = jnp.dot(terms["object_velocity"], ahead)
    enough = jnp.sqrt(2.0 * GRAVITY * jnp.asarray(task.sliding_friction) * distance)
    moves = speed > STRIKE_SPEED
    level = jnp.abs(down) < jnp.where(along < STATION - 0.005, 0.01, 0.006)
    behind = (along > 0.02) & (jnp.abs(across) < ALIGNED) & level
    # The hand's speed is in proportion to how far ahead its target is.
    faster = jnp.where(moves | (along < TOUCHES), 1.2 * enough, STRIKE_SPEED)
    strike = (PER_SPEED * faster * ahead + 1.5 * across * aside).at[2].set(down)
    station = (along - STATION) * ahead + across * aside
    over = norm(station) < 0.012
    around = 2.0 * station.at[2].set(jnp.where(over, down, down + CLEAR))
    # What has left the hand is not struck again while it moves.
    gone = (speed > 0.97 * enough) | (moves & (along > 0.96 * TOUCHES))
    there = (distance < 0.8 * jnp.asarray(task.position_tolerance)) & ~moves
    move = jnp.where(gone | there, 0.0, jnp.where(behind, strike, around))
    return move, _downwards(terms, jnp.arctan2(ahead[1], ahead[0]), 2.0), jnp.zeros(())


def wipe(terms: Terms, task: Any) -> tuple[Array, Array, Array]:
    """To the nearer end of the marks that are left, down, and along them, pressing."""
    ways, force = 0.1 * terms["to_marks"].reshape(-1, 2), terms["force"][0]
    left = jnp.any(ways != 0.0, axis=1)
    first, last = ways[jnp.argmax(left)], ways[len(ways) - 1 - jnp.argmax(left[::-1])]
    way = jnp.where(norm(first) < norm(last), first, last)
    distance = norm(way)
    above = terms["hand_position"][2] - PAD_TIP
    touches = (force > 0.0) | (above < 0.001)
    # Slowly at the end: the less the speed is when they meet, the less the force.
    landing = -jnp.clip(above, LANDING, 0.05)
    hover = jnp.clip(4.0 * (distance - 0.01), 0.0, 0.02) - above
    near = touches | (distance < 0.015)
    down = jnp.where(touches, -PRESS, jnp.where(near, landing, 2.0 * hover))
    along = way * jnp.minimum(6.0, 0.05 / jnp.maximum(distance, 1e-6))
    move = jnp.append(along, down)
    turn = 4.0 * _downwards(terms, jnp.zeros(()))
    return jnp.where(jnp.any(left), move, 0.0), turn, jnp.zeros(())


EXPERTS: dict[type[GoalTask], Expert] = {
    Door: open_up,
    Drawer: open_up,
    Insert: insert,
    Pick: pick,
    PickPose: pick,
    Push: push,
    Slide: slide,
    Stack: stack,
    Upright: upright,
    Wipe: wipe,
}
"""Task -> its expert."""

CARRYING: dict[type[GoalTask], Expert] = {
    **EXPERTS,
    Insert: partial(insert, sag=0.0),
    Upright: partial(upright, sag=0.0),
}
"""Task -> its expert where the controller knows what the hand holds, so that nothing sags."""


def _held(terms: Terms) -> Array:
    """Whether every pad presses on the object, () bool."""
    return jnp.all(10.0 * terms["pad_force"] >= LEAST_FORCE)


def _fetch(to_cube: Array, turn: Array) -> tuple[Array, Array]:
    """The way (3,), m, over the cube and down to it; whether to close the gripper there."""
    across = norm(to_cube[:2])
    beside = jnp.maximum(across - ALIGNED, 0.1 * jnp.abs(turn[2]) - ALIGNED)
    above = jnp.clip(10.0 * beside, 0.0, HOVER)
    over = to_cube.at[2].add(above)
    return over, (across < 2.0 * ALIGNED) & (jnp.abs(to_cube[2]) < LEVEL)


def _face_angle(columns: Array) -> Array:
    """Angle (), rad, about the vertical of one of a box's faces, from two columns (6,)."""
    return jnp.arctan2(columns[1], columns[0])


def _free_angle(terms: Terms) -> Array:
    """Angle (), rad, of a face of the cube along which fingers do not meet the base."""
    angle = _nearest(terms, _face_angle(terms["object_axes"]), 1.0)
    way = terms["base_position"][:2] - terms["object_position"][:2]
    # The fingers are beside the hand's x axis.
    along = jnp.cos(angle) * way[0] + jnp.sin(angle) * way[1]
    aside = jnp.cos(angle) * way[1] - jnp.sin(angle) * way[0]
    blocked = (jnp.abs(aside) > jnp.abs(along)) & (norm(way) < NEIGHBOUR)
    return jnp.where(blocked, angle + QUARTER, angle)


def _nearest(terms: Terms, angle: Array, quarters: float) -> Array:
    """Of the angles (), rad, that differ by some quarter turns, the nearest to the hand's."""
    x = terms["hand_axes"][:3]
    now = jnp.arctan2(x[1], x[0])
    period = quarters * QUARTER
    return now + (angle - now + 0.5 * period) % period - 0.5 * period


def _downwards(terms: Terms, angle: Array, quarters: float = 1.0) -> Array:
    """Turn (3,), rad, to a hand that points down, its fingers at an angle, rad.

    Of the poses that differ by some quarter turns the nearest.
    """
    goal = _nearest(terms, angle, quarters)
    return _turn(terms, jnp.stack([jnp.cos(goal), jnp.sin(goal), jnp.zeros(())]), -UP)


def rotation_of(axes: Array) -> Array:
    """The rotation matrix (3, 3) of which these (6,) are the first two columns."""
    x, y = axes.reshape(2, 3)
    return jnp.stack([x, y, jnp.cross(x, y)], axis=1)


def _turn(terms: Terms, x: ArrayLike, z: ArrayLike) -> Array:
    """Turn (3,), rad, to a hand whose x and z axes are these unit vectors (3,)."""
    rotation = rotation_of(terms["hand_axes"])
    x, z = jnp.asarray(x), jnp.asarray(z)
    target = jnp.stack([x, jnp.cross(z, x), z], axis=1)
    return orientation_error(target.astype(rotation.dtype), rotation)
