"""Tabletops: an arm's pads, boxes, and the table that the arm stands on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from fraxenv.controllers.groups import finger_joints, only_finger_joint
from fraxenv.dynamics import (
    ContactGeom,
    Robot,
    Scene,
    SceneObject,
    box_geom,
    build_scene,
    cylinder_geom,
    free_body,
    lock_joints,
    placed_body,
    plane_geom,
    sphere_geom,
)
from fraxenv.dynamics.geometry.shapes import Color
from fraxenv.dynamics.scene.build import shape_geoms
from fraxenv.errors import ConfigError

CUBE, BASE, BOX, PEG, PUCK, TABLE = "cube", "base", "box", "peg", "puck", "table"
SOCKET, WALLS = "socket", ("left_wall", "right_wall", "upper_wall", "lower_wall")
STIFF: dict[str, Any] = {"solref": (0.004, 1.0), "solimp": (0.99, 0.999, 0.001, 0.5, 2.0)}
"""Contacts as stiff as two timesteps of 2 ms allow: what is held creeps by some um/s."""

CUBE_COLOR = (0.85, 0.45, 0.2, 1.0)
STACKED_COLOR, BASE_COLOR = (0.8, 0.15, 0.15, 1.0), (0.2, 0.6, 0.25, 1.0)
"""Of stacks, the upper cube's and the lower one's."""

HEAD_COLOR: Color = (0.95, 0.9, 0.8, 1.0)
SOCKET_COLOR: Color = (0.35, 0.45, 0.6, 1.0)
UNSEEN: Color = (0.0, 0.0, 0.0, 0.0)


def pad_names(robot: Robot) -> tuple[str, ...]:
    """Names of the collision shapes of the robot's fingers.

    Raises:
        ConfigError: the robot has no gripper, or several.
    """
    topology = robot.topology
    names = [j.name for j in topology.joints]
    first = names.index(only_finger_joint(robot, "a tabletop"))
    fingers = [
        i
        for i, j in enumerate(topology.joints)
        if i == first or (j.mimic and j.mimic.joint == first)
    ]
    return tuple(s.name for s in topology.collision_shapes if s.body in fingers)


def palm_names(robot: Robot) -> tuple[str, ...]:
    """Names of the collision shapes of the hand that is between arm and fingers.

    Without those that are around the hand's frame: they stand for fingers, and what fingers hold
    is within them.

    Raises:
        ConfigError: the robot has no gripper, or several.
    """
    topology = robot.topology
    first = [j.name for j in topology.joints].index(only_finger_joint(robot, "a tabletop"))
    palm = topology.parent[first]
    hands = [topology.frames[i] for i in topology.end_effectors.values()]
    between = [f.position for f in hands if f.body == palm]
    return tuple(
        s.name
        for s in topology.collision_shapes
        if s.body == palm and all(np.linalg.norm(s.position - p) > s.size[0] for p in between)
    )


def with_closed_fingers(robot: Robot) -> Robot:
    """The robot with its gripper closed, and locked."""
    return lock_joints(robot, finger_joints(robot), _closed(robot))


def _closed(robot: Robot) -> np.ndarray:
    q = np.array(robot.q_default)
    names = [j.name for j in robot.topology.joints]
    for joint in finger_joints(robot):
        i = names.index(joint)
        q[robot.topology.q_index[i]] = np.asarray(robot.position_limits)[
            robot.topology.v_index[i], 0
        ]
    return q


def block(
    name: str,
    half_extents: Sequence[float] = (0.02, 0.02, 0.02),
    *,
    mass: float = 0.064,
    place: tuple[float, float] = (0.5, 0.0),
    color: Color = CUBE_COLOR,
) -> SceneObject:
    """A box that moves freely, on the table by default.

    Args:
        name: its name, and that of its geom.
        half_extents: (3,), m.
        mass: kg, of all of it alike.
        place: (2,), m, where it is by default.
        color: its colour.
    """
    return free_body(
        name,
        box_geom("", half_extents, rgba=color),
        mass=mass,
        position=(*place, half_extents[2]),
    )


def peg(
    half_extents: Sequence[float] = (0.1, 0.02, 0.02),
    *,
    mass: float = 0.16,
    place: tuple[float, float] = (0.47, -0.17),
    color: Color = CUBE_COLOR,
) -> SceneObject:
    """A box that moves freely, lying on the table by default, whose end at +x looks otherwise.

    Args:
        half_extents: (3,), m.
        mass: kg, of all of it alike.
        place: (2,), m, where it is by default.
        color: its colour, but for its head.
    """
    length, *across = half_extents
    head = 0.2 * length, *(x + 1e-4 for x in across)
    squares = np.square(np.asarray(half_extents, float))
    return free_body(
        PEG,
        box_geom(PEG, half_extents, rgba=color),
        box_geom(f"{PEG}_head", head, position=(0.8 * length + 1e-4, 0.0, 0.0), rgba=HEAD_COLOR),
        mass=mass,
        inertia=mass / 3.0 * np.diag(squares.sum() - squares),
        position=(*place, half_extents[2]),
    )


def puck(
    name: str = PUCK,
    radius: float = 0.025,
    *,
    mass: float = 0.2,
    place: tuple[float, float] = (0.46, 0.0),
    color: Color = CUBE_COLOR,
) -> SceneObject:
    """A cylinder as high as it is wide that moves freely, standing on the table by default.

    It has two geoms: the cylinder, NAME_foot, for the table; and the largest ball in it, NAME, for
    boxes, which touch no cylinders: it has the cylinder's outline at half its height.

    Args:
        name: its name, and that of its ball.
        radius: m.
        mass: kg, of all of the cylinder alike.
        place: (2,), m, where it is by default.
        color: its colour.
    """
    across, along = (1 / 4 + 1 / 3) * mass * radius**2, mass * radius**2 / 2
    return free_body(
        name,
        sphere_geom(name, radius, rgba=color),
        cylinder_geom(f"{name}_foot", radius, radius, rgba=color),
        mass=mass,
        inertia=np.diag([across, across, along]),
        position=(*place, radius),
    )


def socket(
    half_width: float = 0.02,
    clearance: float = 0.003,
    half_depth: float = 0.1,
    half_size: float = 0.06,
    *,
    place: tuple[float, float] = (0.48, 0.25),
    turn: float = 0.5 * np.pi,
) -> SceneObject:
    """A block with a square hole, standing on the table, that nothing moves: see `placed_body`.

    Its frame is in the middle of the hole, which is along x, and z is up. It has five boxes: the
    walls of the hole, `WALLS`, for what goes in; and all of it, "socket", for what does not, which
    is not drawn.

    Args:
        half_width: m, of the peg that fits.
        clearance: m, between each wall and a peg in the middle.
        half_depth: m, of the block along the hole.
        half_size: m, of the block across.
        place: (2,), m, of its middle.
        turn: rad, of the hole about the vertical.

    Raises:
        ConfigError: the hole is no hole, or as wide as the block.
    """
    inner = half_width + clearance
    if not (0 < half_width < inner < half_size and half_depth > 0):
        raise ConfigError(
            f"socket: half_width={half_width:g}, clearance={clearance:g}, half_depth="
            f"{half_depth:g}, half_size={half_size:g} m; expected positive numbers, and half_width "
            "+ clearance < half_size."
        )
    middle, half = 0.5 * (half_size + inner), 0.5 * (half_size - inner)
    beside, above = (half_depth, half, half_size), (half_depth, inner, half)
    walls = (
        box_geom(name, size, position=position, rgba=SOCKET_COLOR)
        for name, size, position in zip(
            WALLS,
            (beside, beside, above, above),
            ((0, middle, 0), (0, -middle, 0), (0, 0, middle), (0, 0, -middle)),
            strict=True,
        )
    )
    whole = box_geom(SOCKET, (half_depth, half_size, half_size), rgba=UNSEEN)
    return placed_body(SOCKET, *walls, whole, place=(*place, half_size), turn=turn)


def tabletop_scene(
    robot: Robot,
    pads: tuple[str, ...],
    objects: Sequence[SceneObject] | None = None,
    *,
    palms: tuple[str, ...] = (),
    pairs: Sequence[tuple[str, str]] | None = None,
    friction: float = 1.0,
    pad_friction: float | None = None,
    frictions: Mapping[str, float] | None = None,
    solref: Sequence[float] = (0.01, 1.0),
    solimp: Sequence[float] = (0.95, 0.99, 0.001, 0.5, 2.0),
    impratio: float = 10.0,
) -> Scene:
    """A scene of a robot, objects and a table whose surface is the world's plane z = 0.

    Pads, objects and the table may touch each other, pads among themselves not; nothing else
    touches, but for the palms.

    Args:
        robot: stands on the table.
        pads: names of its collision shapes that touch things.
        objects: what is on the table; `block("cube")` alone if omitted.
        palms: of other collision shapes of its hand, `palm_names`, that touch them, too.
        pairs: names of geoms, or of things of one geom, that may touch; all those if omitted.
        friction: coefficient of contacts of objects and the table.
        pad_friction: of the pads with them, if it is more; the same if omitted.
        frictions: geom -> another coefficient; the larger of both geoms' counts.
        solref: (2,), of all contacts, as in MuJoCo.
        solimp: (5,), likewise.
        impratio: ratio of frictional to normal impedance.
    """
    soft: dict[str, Any] = {"solref": tuple(solref), "solimp": tuple(solimp)}
    own = dict(frictions or {})
    if pad_friction is not None:
        own = dict.fromkeys(pads, pad_friction) | own

    def softened(geoms: Iterable[ContactGeom]) -> tuple[ContactGeom, ...]:
        return tuple(
            dataclasses.replace(g, friction=own.get(g.name, friction), **soft) for g in geoms
        )

    things = [
        dataclasses.replace(thing, geoms=softened(thing.geoms))
        for thing in ([block(CUBE)] if objects is None else objects)
    ]
    names = [thing.name for thing in things]
    return build_scene(
        robot,
        things,
        softened([plane_geom(TABLE)]),
        geoms=softened(g for g in shape_geoms(robot) if g.name in (*pads, *palms)),
        pairs=pairs
        or [
            *combinations([*names, TABLE], 2),
            *((pad, thing) for pad in (*pads, *palms) for thing in (*names, TABLE)),
        ],
        name="tabletop",
        impratio=impratio,
        # The fingers' damping is stiff for their mass: contacts have to be solved with it.
        integrator="discrete",
    )
