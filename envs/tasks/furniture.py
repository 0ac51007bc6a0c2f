"""Furniture: a drawer and a door with a handle, and scenes of an arm's pads and one of them.

The frame of a mount is where the closed handle is: x into the furniture, y along the bar, z up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fraxenv.controllers.groups import only_finger_joint
from fraxenv.dynamics import (
    ContactGeom,
    Robot,
    Scene,
    SceneObject,
    box_geom,
    build_scene,
    capsule_geom,
    jointed_body,
)
from fraxenv.dynamics.geometry.shapes import Color
from fraxenv.dynamics.scene.build import shape_geoms

from .tabletop import STIFF

DRAWER, DOOR, HANDLE, FRONT = "drawer", "door", "handle", "front"

STANDOFF = 0.07
"""m, from the handle's axis to the front: an open finger fits between them."""

RADIUS, HALF_BAR = 0.01, 0.06
"""m, of the handle's bar."""

RIM = 0.03
"""m, from the handle's axis up to the upper rim: the palm above it clears what is behind."""

THICK = 0.01
"""m, half of a front's thickness."""

HINGE = (STANDOFF + THICK, 0.3)
"""(2,), m, from a door's closed handle to its hinge, along x and y."""

PLACE = (0.65, 0.0, 0.25)
"""(3,), m, of the closed handle by default, world."""

LIGHT: Color = (0.87, 0.74, 0.56, 1.0)
DARK: Color = (0.55, 0.4, 0.27, 1.0)
METAL: Color = (0.45, 0.47, 0.5, 1.0)

ALONG_Y = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
"""Capsule to mount, (3, 3)."""


def drawer(
    *,
    mass: float = 1.0,
    damping: float = 4.0,
    friction: float = 1.0,
    travel: float = 0.35,
) -> SceneObject:
    """A drawer in a cabinet, that slides out along the mount's -x.

    Args:
        mass: kg, of the drawer, without the cabinet.
        damping: N s/m.
        friction: N, Coulomb friction.
        travel: m, how far it opens.
    """
    deep, wide = 0.36, 0.2  # of what slides
    inside = STANDOFF + 2 * THICK
    tray = [
        _box("floor", (inside, inside + deep), (-wide + 0.01, wide - 0.01), (-0.14, -0.13), LIGHT),
        _box("left", (inside, inside + deep), (wide - 0.02, wide - 0.01), (-0.13, -0.02), LIGHT),
        _box("right", (inside, inside + deep), (0.01 - wide, 0.02 - wide), (-0.13, -0.02), LIGHT),
    ]
    front = _box(FRONT, (STANDOFF, inside), (-wide, wide), (-0.15, RIM), LIGHT)
    return jointed_body(
        DRAWER,
        front,
        *_handle(),
        *tray,
        kind="prismatic",
        axis=(-1.0, 0.0, 0.0),
        limits=(0.0, travel),
        mass=mass,
        damping=damping,
        friction=friction,
        mount=_cabinet((-wide, wide), -0.15, deep + 0.02),
        place=PLACE,
    )


def door(
    *,
    mass: float = 2.0,
    damping: float = 0.2,
    friction: float = 0.2,
    travel: float = 0.5 * np.pi,
) -> SceneObject:
    """A door of a cabinet, that turns about a vertical hinge on its left, at the mount's +y.

    Args:
        mass: kg, of the door, without the cabinet.
        damping: N m s/rad.
        friction: N m, Coulomb friction.
        travel: rad, how far it opens.
    """
    across = -0.1, HINGE[1]
    front = _box(FRONT, (STANDOFF, STANDOFF + 2 * THICK), across, (-0.2, RIM), LIGHT)
    return jointed_body(
        DOOR,
        front,
        *_handle(),
        kind="revolute",
        axis=(0.0, 0.0, -1.0),
        limits=(0.0, travel),
        mass=mass,
        pivot=(*HINGE, 0.0),
        damping=damping,
        friction=friction,
        mount=_cabinet(across, -0.2, 0.3),
        place=PLACE,
    )


def furniture_scene(
    robot: Robot, pads: tuple[str, ...], thing: SceneObject, *, friction: float = 1.0
) -> Scene:
    """A scene of a robot and a piece of furniture: pads may touch its handle and its front.

    Args:
        robot: the robot.
        pads: names of its collision shapes that touch things.
        thing: `drawer()` or `door()`.
        friction: coefficient of all contacts.
    """
    own: dict[str, Any] = {"friction": friction, **STIFF}

    def stiff(geoms: Iterable[ContactGeom]) -> tuple[ContactGeom, ...]:
        return tuple(dataclasses.replace(g, **own) for g in geoms)

    return build_scene(
        robot,
        [dataclasses.replace(thing, geoms=stiff(thing.geoms))],
        geoms=stiff(g for g in shape_geoms(robot) if g.name in pads),
        pairs=[(pad, part) for pad in pads for part in (HANDLE, FRONT)],
        name="furniture",
        impratio=10.0,
        # The dampers of fingers and mount are stiff: contacts have to be solved with them.
        integrator="discrete",
    )


def with_hand_across(robot: Robot) -> Robot:
    """The robot with the joint behind its hand a quarter turn on, to where its range is wider.

    Raises:
        ConfigError: the robot has no gripper, or several.
    """
    topology = robot.topology
    finger = [j.name for j in topology.joints].index(only_finger_joint(robot, "furniture"))
    wrist = int(topology.parent[finger])
    at, dof = int(topology.q_index[wrist]), int(topology.v_index[wrist])
    q = np.array(robot.q_default, float)
    low, high = np.asarray(robot.position_limits, float)[dof]
    q[at] += np.copysign(0.5 * np.pi, low + high - 2.0 * q[at])
    return robot.replace(q_default=q)


def _handle() -> list[ContactGeom]:
    """A bar, and the posts that hold it."""
    bar = capsule_geom(HANDLE, RADIUS, HALF_BAR, rotation=ALONG_Y, rgba=METAL)
    ends = HALF_BAR - 0.005, HALF_BAR + 0.005
    return [
        bar,
        _box("left_post", (0.0, STANDOFF), ends, (-0.005, 0.005), METAL),
        _box("right_post", (0.0, STANDOFF), (-ends[1], -ends[0]), (-0.005, 0.005), METAL),
    ]


def _cabinet(across: tuple[float, float], low: float, deep: float) -> list[ContactGeom]:
    """Walls around what moves, and a plinth that reaches into the table where that is low."""
    right, left = across[0] - 0.02, across[1] + 0.02
    near = STANDOFF + 0.002
    far = near + deep
    return [
        _box("cabinet_top", (near + 0.02, far), (right, left), (RIM - 0.01, RIM), DARK),
        _box("cabinet_left", (near, far), (left - 0.015, left), (low, RIM), DARK),
        _box("cabinet_right", (near, far), (right, right + 0.015), (low, RIM), DARK),
        _box("cabinet_back", (far - 0.01, far), (right, left), (low, RIM), DARK),
        _box("cabinet_plinth", (near, far), (right, left), (low - 0.15, low - 0.005), DARK),
    ]


def _box(
    name: str, x: Sequence[float], y: Sequence[float], z: Sequence[float], color: Color
) -> ContactGeom:
    """A box between two corners, m."""
    ends = np.array([x, y, z])
    half = 0.5 * (ends[:, 1] - ends[:, 0])
    return box_geom(name, tuple(half), position=ends.mean(axis=1), rgba=color)
