"""Several robots combined into one: a forest, whose trees share only the world and its gravity."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fraxenv.errors import ArrayError, ConfigError

from ..geometry.shapes import WORLD, Shape
from .robot import Frame, Joint, Robot, Topology

PartT = TypeVar("PartT", Frame, Shape)

_LISTED = 3
"""Number of clashing names that an error lists."""


@dataclass(frozen=True)
class MemberSlices:
    """One robot's slices of the arrays of a forest.

    Attributes:
        q: slice of `q` (nq,).
        v: slice of `v` (nv,) and of other arrays by degree of freedom.
        bodies: slice of arrays by body (nb, ...).
        axes: slice of arrays by joint axis (na, ...), as in `Kinematics`.
    """

    q: slice
    v: slice
    bodies: slice
    axes: slice

    def __hash__(self) -> int:
        # Slices are not hashable before Python 3.12.
        return hash(tuple((s.start, s.stop) for s in (self.q, self.v, self.bodies, self.axes)))


def combine(
    robot: Robot, *others: Robot, name: str | None = None, prefixes: Sequence[str] | None = None
) -> Robot:
    """Combine several robots, side by side in the world, into one: a forest.

    Coordinates, bodies and names are in the order of the arguments; `member_slices` gives each
    robot's entries. Each keeps its pose, its parameters, its end effectors and its own
    self-collision pairs; no pairs between robots are added. The mass matrix is block diagonal.

    A robot may be a forest itself, or a single free body (loaded with `floating_base=True`).

    Args:
        robot: the first robot.
        *others: the other robots.
        name: name of the forest; the robots' names, joined by "+", if omitted.
        prefixes: one for each robot, put before the names of its joints, links, shapes and end
            effectors; none if omitted.

    Raises:
        ConfigError: names of two robots clash, or their gravities differ (while one is traced, the
            first robot's is used), or the number of prefixes is wrong.
        ArrayError: parameters of a robot have the wrong shape, such as a batch's.
    """
    members = _prefixed((robot, *others), prefixes)
    _check_names(members)
    _check_gravity(members)
    topologies = [m.topology for m in members]
    leaves = [f.name for f in dataclasses.fields(Robot) if f.name not in ("topology", "gravity")]
    return Robot(
        topology=_joined("+".join(m.name for m in members) if name is None else name, topologies),
        gravity=robot.gravity,
        **{leaf: _concatenated([_checked(m, leaf) for m in members]) for leaf in leaves},
    )


def member_slices(robot: Robot, *others: Robot) -> tuple[MemberSlices, ...]:
    """Each robot's slices of the arrays of `combine(robot, *others)`."""
    members = (robot, *others)
    parts = (
        _slices(m.nq for m in members),
        _slices(m.nv for m in members),
        _slices(m.nb for m in members),
        _slices(len(m.topology.axes.body) for m in members),
    )
    return tuple(MemberSlices(*of_one) for of_one in zip(*parts, strict=True))


def tree_slices(robot: Robot) -> dict[str, MemberSlices]:
    """Slices of each tree of a forest, by the name of its root body.

    Raises:
        ConfigError: the bodies of a tree do not follow each other.
    """
    topology = robot.topology
    root = np.arange(robot.nb)
    for i, parent in enumerate(topology.parent):
        root[i] = i if parent == WORLD else root[parent]
    starts = np.flatnonzero(topology.parent == WORLD)
    ends = [*starts[1:], robot.nb]
    members = {}
    for start, end in zip(starts, ends, strict=True):
        if (root[start:end] != start).any():
            raise ConfigError(
                f"robot {robot.name!r}: the bodies of its trees are interleaved, expected those of "
                "a tree one after the other. Combine its trees by `combine`."
            )
        own_axes = np.flatnonzero((topology.axes.body >= start) & (topology.axes.body < end))
        members[topology.body_names[start]] = MemberSlices(
            q=slice(int(topology.q_index[start]), int(topology.q_index[end])),
            v=slice(int(topology.v_index[start]), int(topology.v_index[end])),
            bodies=slice(int(start), int(end)),
            axes=slice(int(own_axes[0]), int(own_axes[-1]) + 1),
        )
    return members


def extract(forest: Robot, member: MemberSlices, name: str) -> Robot:
    """One robot of a forest as a model of its own: the inverse of `combine`.

    It has all frames of the world, and of the shapes of the world those that its own pairs name.

    Args:
        forest: the forest.
        member: the robot's entries in it.
        name: name of the robot.
    """
    leaves = {leaf: _checked(forest, leaf)[own] for leaf, own in _entries(member).items()}
    topology = _extracted(forest.topology, member.bodies, name)
    return Robot(topology=topology, gravity=forest.gravity, **leaves)


def with_extracted(forest: Robot, member: MemberSlices, robot: Robot) -> Robot:
    """The forest with the numbers of one robot in place of its own, and with its gravity."""
    changes: dict[str, Any] = {}
    for leaf, own in _entries(member).items():
        old = _checked(forest, leaf)
        changes[leaf] = _concatenated([old[: own.start], _checked(robot, leaf), old[own.stop :]])
    return dataclasses.replace(forest, gravity=robot.gravity, **changes)


def _entries(member: MemberSlices) -> dict[str, slice]:
    """The robot's entries in each leaf but gravity."""
    by_dof = [f.name for f in dataclasses.fields(Robot) if f.name not in ("topology", "gravity")]
    own = dict.fromkeys(by_dof, member.v)
    return own | dict.fromkeys(("mass", "com", "inertia"), member.bodies) | {"q_default": member.q}


def _extracted(topology: Topology, bodies: slice, name: str) -> Topology:
    start, stop = bodies.start, bodies.stop

    def is_own(body: int) -> bool:
        return bool(start <= body < stop)

    def shifted(part: PartT) -> PartT:
        return part if part.body == WORLD else dataclasses.replace(part, body=part.body - start)

    frames = [i for i, f in enumerate(topology.frames) if f.body == WORLD or is_own(f.body)]
    shapes = topology.collision_shapes
    pairs = [p for p in topology.self_collision_pairs if any(is_own(shapes[i].body) for i in p)]
    named = {int(i) for p in pairs for i in p}
    kept = [i for i, s in enumerate(shapes) if is_own(s.body) or i in named]
    return Topology(
        name=name,
        joints=tuple(_shifted_joint(j, -start) for j in topology.joints[bodies]),
        body_names=topology.body_names[bodies],
        parent=np.where(
            topology.parent[bodies] == WORLD, WORLD, topology.parent[bodies] - start
        ).astype(np.int32),
        position=topology.position[bodies],
        rotation=topology.rotation[bodies],
        frames=tuple(shifted(topology.frames[i]) for i in frames),
        end_effectors={
            alias: frames.index(i) for alias, i in topology.end_effectors.items() if i in frames
        },
        collision_shapes=tuple(shifted(shapes[i]) for i in kept),
        visual_shapes=tuple(shifted(s) for s in topology.visual_shapes if is_own(s.body)),
        self_collision_pairs=np.array(
            [[kept.index(int(i)) for i in p] for p in pairs], int
        ).reshape(-1, 2),
    )


def _slices(sizes: Iterable[int]) -> list[slice]:
    ends = list(accumulate(sizes))
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


# --- topology -------------------------------------------------------------------------------------


def _joined(name: str, topologies: Sequence[Topology]) -> Topology:
    def starts(count: Callable[[Topology], int]) -> list[int]:
        return [0, *accumulate(count(t) for t in topologies[:-1])]

    def shifted(parts: Callable[[Topology], Iterable[PartT]]) -> tuple[PartT, ...]:
        return tuple(
            part if part.body == WORLD else dataclasses.replace(part, body=start + part.body)
            for t, start in zip(topologies, first_body, strict=True)
            for part in parts(t)
        )

    drawn = any(t.visual_shapes for t in topologies)
    first_body = starts(lambda t: len(t.joints))
    first_frame = starts(lambda t: len(t.frames))
    first_shape = starts(lambda t: len(t.collision_shapes))
    return Topology(
        name=name,
        joints=tuple(
            _shifted_joint(j, start)
            for t, start in zip(topologies, first_body, strict=True)
            for j in t.joints
        ),
        body_names=tuple(n for t in topologies for n in t.body_names),
        parent=np.concatenate(
            [
                np.where(t.parent == WORLD, WORLD, start + t.parent)
                for t, start in zip(topologies, first_body, strict=True)
            ],
            dtype=np.int32,
        ),
        position=np.concatenate([t.position for t in topologies]),
        rotation=np.concatenate([t.rotation for t in topologies]),
        frames=shifted(lambda t: t.frames),
        end_effectors={
            alias: start + frame
            for t, start in zip(topologies, first_frame, strict=True)
            for alias, frame in t.end_effectors.items()
        },
        collision_shapes=shifted(lambda t: t.collision_shapes),
        # A robot without visual shapes is drawn by its collision shapes, also in a forest.
        visual_shapes=shifted(lambda t: t.visual_shapes or t.collision_shapes if drawn else ()),
        self_collision_pairs=np.concatenate(
            [
                start + t.self_collision_pairs
                for t, start in zip(topologies, first_shape, strict=True)
            ]
        ),
    )


def _shifted_joint(joint: Joint, start: int) -> Joint:
    if joint.mimic is None:
        return joint
    mimic = dataclasses.replace(joint.mimic, joint=start + joint.mimic.joint)
    return dataclasses.replace(joint, mimic=mimic)


# --- names ----------------------------------------------------------------------------------------


def _prefixed(members: Sequence[Robot], prefixes: Sequence[str] | None) -> list[Robot]:
    if prefixes is None:
        return list(members)
    if isinstance(prefixes, str) or len(prefixes) != len(members):
        raise ConfigError(
            f"combine: prefixes={prefixes!r}, expected one for each of the {len(members)} robots "
            f"{', '.join(repr(m.name) for m in members)}; '' leaves its names as they are."
        )
    pairs = zip(members, prefixes, strict=True)
    return [_renamed(m, prefix) if prefix else m for m, prefix in pairs]


def _renamed(robot: Robot, prefix: str) -> Robot:
    """The robot with a prefix before every name."""
    topology = robot.topology

    def renamed(parts: tuple[PartT, ...]) -> tuple[PartT, ...]:
        return tuple(dataclasses.replace(p, name=prefix + p.name if p.name else "") for p in parts)

    return dataclasses.replace(
        robot,
        topology=dataclasses.replace(
            topology,
            name=prefix + topology.name,
            joints=tuple(dataclasses.replace(j, name=prefix + j.name) for j in topology.joints),
            body_names=tuple(prefix + n for n in topology.body_names),
            frames=renamed(topology.frames),
            end_effectors={prefix + n: i for n, i in topology.end_effectors.items()},
            collision_shapes=renamed(topology.collision_shapes),
            visual_shapes=renamed(topology.visual_shapes),
        ),
    )


def _check_names(members: Sequence[Robot]) -> None:
    for one, other in combinations(members, 2):
        for kind, names in _NAMES.items():
            theirs = set(names(other.topology))
            shared = [n for n in dict.fromkeys(names(one.topology)) if n in theirs]
            if shared:
                more = f" and {len(shared) - _LISTED} more" if len(shared) > _LISTED else ""
                raise ConfigError(
                    f"combine: robots {one.name!r} and {other.name!r} have {kind} of the same "
                    f"name: {', '.join(map(repr, shared[:_LISTED]))}{more}. Expected names that "
                    "are unique in the forest; give each robot a prefix of its own, as in "
                    "combine(one, other, prefixes=('left_', 'right_'))."
                )


_NAMES: dict[str, Callable[[Topology], tuple[str, ...]]] = {
    "joints": lambda t: tuple(j.name for j in t.joints),
    "bodies": lambda t: t.body_names,
    # Both are looked up by the same functions.
    "frames or end effectors": lambda t: (*t.frame_names, *t.end_effectors),
    "collision shapes": lambda t: tuple(s.name for s in t.collision_shapes if s.name),
}


# --- leaves ---------------------------------------------------------------------------------------


def _check_gravity(members: Sequence[Robot]) -> None:
    first, *others = members
    for other in others:
        if any(isinstance(r.gravity, jax.core.Tracer) for r in (first, other)):
            continue
        if not np.array_equal(np.asarray(first.gravity), np.asarray(other.gravity)):
            raise ConfigError(
                f"combine: robot {first.name!r} has the gravity {np.asarray(first.gravity)} and "
                f"{other.name!r} {np.asarray(other.gravity)}, m/s^2, expected one for all. Decide "
                "on one: other.replace(gravity=robot.gravity)."
            )


def _checked(robot: Robot, leaf: str) -> np.ndarray | jax.Array:
    """A leaf in its documented shape; a scalar is broadcast."""
    value: ArrayLike = getattr(robot, leaf)
    shape = _shape(robot, leaf)
    if np.shape(value) not in ((), shape):
        raise ArrayError(
            f"combine: {leaf} of robot {robot.name!r} has shape {np.shape(value)}, expected "
            f"{shape}. Combine robots before they are batched, or within jax.vmap."
        )
    if isinstance(value, jax.Array):
        return jnp.broadcast_to(value, shape)
    return np.broadcast_to(np.asarray(value), shape)


def _shape(robot: Robot, leaf: str) -> tuple[int, ...]:
    match leaf:
        case "mass":
            return (robot.nb,)
        case "com":
            return (robot.nb, 3)
        case "inertia":
            return (robot.nb, 3, 3)
        case "position_limits":
            return (robot.nv, 2)
        case "q_default":
            return (robot.nq,)
        case _:
            return (robot.nv,)


def _concatenated(parts: Sequence[np.ndarray | jax.Array]) -> np.ndarray | jax.Array:
    """Concatenated leaves; in NumPy if all are NumPy's, which keeps float64 without x64."""
    if any(isinstance(x, jax.Array) for x in parts):
        return jnp.concatenate(parts)
    return np.concatenate(parts)
