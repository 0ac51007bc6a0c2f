"""Locking joints: the bodies that they move are merged into their parents."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from jax.typing import ArrayLike

from fraxenv.errors import ConfigError, unknown_name

from ..geometry.shapes import Shape
from .robot import WORLD, Frame, Joint, Mimic, Robot, Topology

PartT = TypeVar("PartT", Frame, Shape)

_PER_DOF = (
    "armature",
    "damping",
    "friction",
    "position_limits",
    "stop_stiffness",
    "stop_damping",
    "velocity_limits",
    "effort_limits",
    "effort_rate_limits",
)


def lock_joints(robot: Robot, joints: Sequence[str], q: ArrayLike | None = None) -> Robot:
    """The robot with some joints locked at their positions in `q`: a reduced model in Pinocchio.

    Their bodies are merged into the parents, with inertias, frames and shapes; those on the root
    link become fixed in the world. Joints that mimic a locked one are locked with it.

    Args:
        robot: the model, with concrete leaves (not traced).
        joints: names of revolute, continuous or prismatic joints, none of them a mimic.
        q: (nq,), rad and m, the locked positions; the default configuration if omitted.

    Raises:
        UnknownNameError: there is no such joint.
        ConfigError: a joint is of another kind, or mimics another one.
    """
    if not joints:
        return robot
    topology = robot.topology
    names = [j.name for j in topology.joints]
    for name in joints:
        if name not in names:
            raise unknown_name("joint", name, names, f"of robot {robot.name!r}")
    locked = np.array([n in set(joints) for n in names], bool)
    _check(robot, locked)
    locked |= [j.mimic is not None and bool(locked[j.mimic.joint]) for j in topology.joints]
    angles = np.asarray(robot.q_default if q is None else q, float)
    moves = [
        _displacement(j, _coordinate(topology, angles, i)) if locked[i] else None
        for i, j in enumerate(topology.joints)
    ]
    return merge_bodies(robot, moves)


def merge_bodies(robot: Robot, moves: Sequence[tuple[np.ndarray, np.ndarray] | None]) -> Robot:
    """The robot with some bodies merged into their parents, and their joints gone.

    Args:
        robot: the model, with concrete leaves (not traced).
        moves: of each body that is merged its position (3,), m, and rotation (3, 3), in its joint's
            frame; None of the others.
    """
    topology = robot.topology
    # The body that each one is merged into, itself if it is kept, and its pose there.
    nb = robot.nb
    locked = np.array([move is not None for move in moves], bool)
    holder = np.arange(nb)
    position, rotation = np.zeros((nb, 3)), np.tile(np.eye(3), (nb, 1, 1))
    for i, move in enumerate(moves):
        if move is None:
            continue
        shift, turn = move
        p = topology.position[i] + topology.rotation[i] @ shift
        R = topology.rotation[i] @ turn
        parent = int(topology.parent[i])
        holder[i] = WORLD if parent == WORLD else holder[parent]
        if parent != WORLD:
            p, R = position[parent] + rotation[parent] @ p, rotation[parent] @ R
        position[i], rotation[i] = p, R

    kept = np.flatnonzero(~locked)
    number = {int(i): k for k, i in enumerate(kept)} | {WORLD: WORLD}
    parents = [int(topology.parent[i]) for i in kept]
    origin = [
        (np.zeros(3), np.eye(3)) if p == WORLD else (position[p], rotation[p]) for p in parents
    ]

    def moved(part: PartT) -> PartT:
        if part.body == WORLD:
            return part
        p, R = position[part.body], rotation[part.body]
        return dataclasses.replace(
            part,
            body=number[int(holder[part.body])],
            position=p + R @ part.position,
            rotation=R @ part.rotation,
        )

    shapes = tuple(moved(s) for s in topology.collision_shapes)
    pairs = [p for p in topology.self_collision_pairs if shapes[p[0]].body != shapes[p[1]].body]
    masses, centres, inertias = _merged(robot, holder, position, rotation)
    dofs = _indices(topology.v_index, kept)
    return dataclasses.replace(
        robot,
        topology=dataclasses.replace(
            topology,
            joints=tuple(_renumbered(topology.joints[i], number) for i in kept),
            body_names=tuple(topology.body_names[i] for i in kept),
            parent=np.array(
                [number[WORLD if p == WORLD else int(holder[p])] for p in parents], np.int32
            ),
            position=np.array(
                [p + R @ topology.position[i] for i, (p, R) in zip(kept, origin, strict=True)]
            ).reshape(-1, 3),
            rotation=np.array(
                [R @ topology.rotation[i] for i, (_, R) in zip(kept, origin, strict=True)]
            ).reshape(-1, 3, 3),
            frames=tuple(moved(f) for f in topology.frames),
            collision_shapes=shapes,
            visual_shapes=tuple(moved(s) for s in topology.visual_shapes),
            self_collision_pairs=np.array(pairs, int).reshape(-1, 2),
        ),
        mass=masses[kept],
        com=centres[kept],
        inertia=inertias[kept],
        q_default=np.asarray(robot.q_default)[_indices(topology.q_index, kept)],
        **{name: np.asarray(getattr(robot, name))[dofs] for name in _PER_DOF},
    )


def _check(robot: Robot, locked: np.ndarray) -> None:
    for joint, is_locked in zip(robot.topology.joints, locked, strict=True):
        if is_locked and (joint.kind not in ("revolute", "continuous", "prismatic") or joint.mimic):
            what = "a mimic" if joint.mimic else f"a {joint.kind}"
            raise ConfigError(
                f"lock_joints: joint {joint.name!r} of robot {robot.name!r} is {what} joint, "
                "expected a revolute, continuous or prismatic one of its own. Make it fixed in the "
                "URDF."
            )


def _coordinate(topology: Topology, q: np.ndarray, i: int) -> float:
    """Position of joint i, rad or m, a mimic's included."""
    mimic = topology.joints[i].mimic
    if mimic is None:
        return float(q[int(topology.q_index[i])])
    return float(mimic.multiplier * q[int(topology.q_index[mimic.joint])] + mimic.offset)


def _displacement(joint: Joint, x: float) -> tuple[np.ndarray, np.ndarray]:
    """Position (3,) and rotation (3, 3) of the moved body in the joint's frame."""
    if joint.kind == "prismatic":
        return x * joint.axis, np.eye(3)
    a, b, c = joint.axis
    K = np.array([[0, -c, b], [c, 0, -a], [-b, a, 0]])
    return np.zeros(3), np.eye(3) + np.sin(x) * K + (1 - np.cos(x)) * K @ K


def _merged(
    robot: Robot, holder: np.ndarray, position: np.ndarray, rotation: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masses (nb,), centres of mass (nb, 3), inertias about them (nb, 3, 3), of merged bodies."""
    mass, com = np.asarray(robot.mass, float), np.asarray(robot.com, float)
    inertia = np.asarray(robot.inertia, float)
    total, first, second = (np.zeros((robot.nb, *s)) for s in ((), (3,), (3, 3)))
    for i, at in enumerate(holder):
        if at == WORLD:
            continue
        c = position[i] + rotation[i] @ com[i]
        total[at] += mass[i]
        first[at] += mass[i] * c
        own = rotation[i] @ inertia[i] @ rotation[i].T
        second[at] += own + mass[i] * (c @ c * np.eye(3) - np.outer(c, c))
    there = np.where(total > 0, total, 1.0)
    centre = first / there[:, None]
    square = np.sum(centre**2, axis=1)[:, None, None] * np.eye(3)
    outer = centre[:, :, None] * centre[:, None, :]
    return total, centre, second - total[:, None, None] * (square - outer)


def _indices(starts: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Indices into `q` or `v` of the joints that are kept."""
    parts = [np.arange(starts[i], starts[i + 1]) for i in kept]
    return np.concatenate(parts).astype(int) if parts else np.zeros(0, int)


def _renumbered(joint: Joint, number: dict[int, int]) -> Joint:
    if joint.mimic is None:
        return joint
    mimic = Mimic(number[joint.mimic.joint], joint.mimic.multiplier, joint.mimic.offset)
    return dataclasses.replace(joint, mimic=mimic)
