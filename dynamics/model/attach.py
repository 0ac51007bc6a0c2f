"""Attaching: a robot, such as a hand, fixed to a frame of another one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fraxenv.errors import ConfigError

from ..math.rotation import check_point, check_rotation
from .combine import combine
from .lock import merge_bodies
from .robot import WORLD, Robot


def attach(
    robot: Robot,
    tool: Robot,
    frame: str,
    position: ArrayLike = (0.0, 0.0, 0.0),
    rotation: ArrayLike | None = None,
    *,
    name: str | None = None,
    pairs: Sequence[tuple[str, str]] = (),
) -> Robot:
    """One robot of two: a tool, such as a hand with fingers, fixed to a frame of an arm.

    >>> attach(arm, load_urdf("hand.urdf", floating_base=True), "flange")

    Coordinates and bodies are the arm's, then the tool's. The tool's root link is merged into the
    arm's body, with its inertia: so the tool is given with a base that floats.

    Args:
        robot: the arm, with concrete leaves (not traced).
        tool: one tree, whose root floats.
        frame: of the arm, that the tool's root link is fixed to.
        position: (3,), m, of the tool's root link in that frame.
        rotation: (3, 3), root link to frame; the identity if omitted.
        name: of both together; their names, joined by "+", if omitted.
        pairs: names of collision shapes to keep apart, besides the pairs that either has.

    Raises:
        ConfigError: the tool's root does not float, names clash, or a pair names no shape.
        UnknownNameError: the arm has no such frame.
        ArrayError: the position is not (3,) and finite, or the rotation is no rotation matrix.
    """
    p = check_point("attach: position", position)
    R = check_rotation("attach: rotation", np.eye(3) if rotation is None else rotation)
    joints = tool.topology.joints
    roots = np.flatnonzero(tool.topology.parent == WORLD)
    if len(roots) != 1 or joints[roots[0]].kind != "floating":
        raise ConfigError(
            f"attach: the tool {tool.name!r} is fixed in the world, expected one tree whose root "
            "link floats, so that its mass is known. Load it with floating_base=True."
        )
    at = robot.frame(frame)
    # The root's joint will be gone; until then, the arm's may have its name.
    own = int(roots[0])
    joints = (*joints[:own], dataclasses.replace(joints[own], name=""), *joints[own + 1 :])
    unnamed = dataclasses.replace(tool.topology, joints=joints)
    whole = combine(robot, tool.replace(topology=unnamed, gravity=robot.gravity), name=name)
    topology = whole.topology
    root = robot.nb + own
    parent, positions, rotations = (
        x.copy() for x in (topology.parent, topology.position, topology.rotation)
    )
    parent[root] = at.body
    positions[root], rotations[root] = at.position + at.rotation @ p, at.rotation @ R
    names = [s.name for s in topology.collision_shapes]
    for shape in (shape for pair in pairs for shape in pair):
        if names.count(shape) != 1:
            raise ConfigError(
                f"attach: pairs names {shape!r}, but {names.count(shape)} collision shapes have "
                f"that name. Expected one of: {', '.join(names)}."
            )
    added = [[names.index(a), names.index(b)] for a, b in pairs]
    joined = dataclasses.replace(
        topology,
        parent=parent,
        position=positions,
        rotation=rotations,
        self_collision_pairs=np.concatenate(
            [topology.self_collision_pairs, np.array(added, int).reshape(-1, 2)]
        ),
    )
    moves = [(np.zeros(3), np.eye(3)) if i == root else None for i in range(whole.nb)]
    return merge_bodies(whole.replace(topology=joined), moves)
