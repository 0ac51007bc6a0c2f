"""Mounting: the pose of a robot's root link in the world."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ..geometry.shapes import Shape
from ..math.rotation import check_point, check_rotation
from .robot import WORLD, Frame, Robot

PartT = TypeVar("PartT", Frame, Shape)


def mount(robot: Robot, position: ArrayLike, rotation: ArrayLike | None = None) -> Robot:
    """The robot with its root link at another pose, such as on a table or a wall.

    Everything fixed to the root link moves with it; gravity stays. A floating or planar base then
    moves relative to the new pose. A forest moves as a whole: to place its robots one by one, mount
    them before they are combined.

    Args:
        robot: the model.
        position: (3,), m, of the root link in the world.
        rotation: (3, 3), root link to world; the identity if omitted.

    Raises:
        ArrayError: the position is not (3,) and finite, or the rotation is no rotation matrix.
    """
    p = check_point("mount: position", position)
    R = check_rotation("mount: rotation", np.eye(3) if rotation is None else rotation)
    topology = robot.topology
    at_root = np.flatnonzero(topology.parent == WORLD)
    positions, rotations = topology.position.copy(), topology.rotation.copy()
    positions[at_root] = p + positions[at_root] @ R.T
    rotations[at_root] = R @ rotations[at_root]

    def moved(part: PartT) -> PartT:
        if part.body != WORLD:
            return part
        return dataclasses.replace(part, position=p + R @ part.position, rotation=R @ part.rotation)

    return dataclasses.replace(
        robot,
        topology=dataclasses.replace(
            topology,
            position=positions,
            rotation=rotations,
            frames=tuple(moved(f) for f in topology.frames),
            collision_shapes=tuple(moved(s) for s in topology.collision_shapes),
            visual_shapes=tuple(moved(s) for s in topology.visual_shapes),
        ),
    )
