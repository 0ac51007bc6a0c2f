"""Distances between a robot and obstacles, and between the robot's own shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from fraxenv.errors import ArrayError, unknown_name

from .collision_geometry import RobotGeometry, robot_geometry, shape_layout
from .geometry.distance import (
    BENDING,
    DISTANCE,
    capsule_capsule,
    sphere_capsule,
    sphere_sphere,
)
from .geometry.obstacles import (
    FAR,
    Obstacles,
    checked_active,
    checked_kinds,
    checked_velocity,
    moved_away,
    obstacle_count,
    split_by_kind,
)
from .geometry.shapes import Capsule, Sphere
from .kinematics import Kinematics, Poses, checked_configuration
from .math.algebra import smallest
from .math.tracing import traced_once
from .model.robot import Robot


@traced_once
def self_distances(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    *,
    kin: Kinematics | Poses | None = None,
    geometry: RobotGeometry | None = None,
    bounded_curvature: bool = False,
) -> Float[Array, " k"]:
    """Signed distances, m, of the k pairs in `robot.topology.self_collision_pairs`, in that order.

    The shapes are those of `robot_geometry`; `self_distance_names` names the pairs.

    Args:
        robot: the model.
        q: rad and m.
        kin: kinematics at `q`, or the bodies' poses, if already computed.
        geometry: `robot_geometry(robot, q)`, if already computed.
        bounded_curvature: of second derivatives; see `fraxenv.dynamics.geometry.distance`.

    Raises:
        ArrayError: `q` has the wrong shape.
    """
    q = checked_configuration(robot, q)
    layout = shape_layout(robot.topology)
    geometry = robot_geometry(robot, q, kin=kin) if geometry is None else geometry
    pairs = np.asarray(robot.topology.self_collision_pairs, int).reshape(-1, 2)
    is_capsule = layout.is_capsule[pairs]
    # The sphere comes first, as in `sphere_capsule`.
    ordered = np.where((is_capsule[:, 0] & ~is_capsule[:, 1])[:, None], pairs[:, ::-1], pairs)
    kinds: list[tuple[Callable[..., Array], Sphere | Capsule, Sphere | Capsule]] = [
        (sphere_sphere, geometry.spheres, geometry.spheres),
        (sphere_capsule, geometry.spheres, geometry.capsules),
        (capsule_capsule, geometry.capsules, geometry.capsules),
    ]
    members, distances = [], [jnp.zeros((0,), q.dtype)]
    for count, (distance, first, second) in enumerate(kinds):
        member = np.flatnonzero(is_capsule.sum(axis=1) == count)
        if len(member):
            i, j = layout.row[ordered[member]].T
            distance = _bending(distance, bounded_curvature)
            distances.append(jax.vmap(distance)(_take(first, i), _take(second, j)))
            members.append(member)
    return _reorder(jnp.concatenate(distances), members)


def _bending(distance: Callable[..., Array], bounded: bool) -> Callable[..., Array]:
    """A distance, its curvature bounded if it is to be."""
    if bounded and distance in BENDING:
        return partial(distance, bounded_curvature=True)
    return distance


def self_distance_names(robot: Robot) -> tuple[str, ...]:
    """Names of the k entries of `self_distances`: "hand_1 - link0_1"."""
    names = [s.name for s in robot.topology.collision_shapes]
    return tuple(f"{names[i]} - {names[j]}" for i, j in robot.topology.self_collision_pairs)


@traced_once
def obstacle_distances(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    obstacles: Obstacles,
    *,
    shapes: Sequence[str] | None = None,
    kin: Kinematics | Poses | None = None,
    geometry: RobotGeometry | None = None,
    bounded_curvature: bool = False,
) -> Float[Array, "r m"]:
    """Signed distances, m, between r collision shapes (rows) and m obstacles (columns).

    The shapes are those of `robot_geometry`; `obstacle_distance_names` names the entries. Columns
    are in the order spheres, capsules, boxes, half-spaces; with `owners`, each row has its own
    obstacles. Distances have the dtype of `q`.

    Args:
        robot: the model.
        q: rad and m.
        obstacles: the obstacles in the world.
        shapes: names of the r collision shapes. Default: all that some joint moves; the others
            may overlap the table that they are mounted on, and no motion changes that.
        kin: kinematics at `q`, or the bodies' poses, if already computed.
        geometry: `robot_geometry(robot, q)`, if already computed.
        bounded_curvature: of second derivatives; see `fraxenv.dynamics.geometry.distance`.

    Raises:
        ArrayError: `q` has the wrong shape, or arrays of obstacles do not fit together.
        UnknownNameError: there is no collision shape of that name.
    """
    q = checked_configuration(robot, q)
    layout = shape_layout(robot.topology)
    rows = _rows(robot, shapes)
    kinds = checked_kinds(obstacles, q.dtype)
    faced = [_faced(robot, obstacles, shapes, rows) for _, shapes, _ in kinds]
    columns = obstacle_count(obstacles)
    geometry = robot_geometry(robot, q, kin=kin) if geometry is None else geometry

    members, blocks = [], [jnp.zeros((0, columns), q.dtype)]
    for capsule, mine in enumerate(geometry):
        member = np.flatnonzero(layout.is_capsule[rows] == capsule)
        if len(member) and kinds:
            chosen = _take(mine, layout.row[rows[member]])
            parts = []
            for o in faced:
                distance = _bending(DISTANCE[type(mine), type(o)], bounded_curvature)
                parts.append(_table(distance, chosen, _take(o, member)))
            blocks.append(jnp.concatenate(parts, axis=1))
            members.append(member)
    if not members:
        return jnp.zeros((len(rows), columns), q.dtype)
    distances = _reorder(jnp.concatenate(blocks), members)
    active = checked_active(obstacles, sum(count for *_, count in kinds))
    if active is None:
        return distances
    there = [_faced(robot, obstacles, x, rows) for x in split_by_kind(active, kinds)]
    return jnp.where(jnp.concatenate(there, axis=1), distances, FAR)


@traced_once
def end_distances(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    obstacles: Obstacles,
    *,
    shapes: Sequence[str] | None = None,
    kin: Kinematics | Poses | None = None,
    geometry: RobotGeometry | None = None,
) -> Float[Array, "e f"]:
    """Signed distances, m, of e ends of capsules (rows), as spheres, from f obstacles (columns).

    A capsule that is nearly parallel to an obstacle is nearest to it with one end or the other, in
    turn: who looks at its nearest point alone, as `obstacle_distances` does, sees nothing of the
    end that sinks meanwhile. Rows are the starts of the capsules among the shapes, then their ends;
    columns are those of `obstacle_distances` without spheres, which nothing is parallel to.

    Args:
        robot: the model.
        q: rad and m.
        obstacles: the obstacles in the world.
        shapes: as for `obstacle_distances`.
        kin: kinematics at `q`, or the bodies' poses, if already computed.
        geometry: `robot_geometry(robot, q)`, if already computed.

    Raises:
        ArrayError: `q` has the wrong shape, or arrays of obstacles do not fit together.
        UnknownNameError: there is no collision shape of that name.
    """
    q = checked_configuration(robot, q)
    layout = shape_layout(robot.topology)
    rows = _capsules(robot, shapes)
    kinds = checked_kinds(obstacles, q.dtype)
    active = checked_active(obstacles, sum(count for *_, count in kinds))
    there = [None] * len(kinds) if active is None else split_by_kind(active, kinds)
    geometry = robot_geometry(robot, q, kin=kin) if geometry is None else geometry
    capsules = _take(geometry.capsules, layout.row[rows])
    places = jnp.concatenate([capsules.start, capsules.end])
    ends = Sphere(places, jnp.concatenate([capsules.radius, capsules.radius]))
    rows = np.concatenate([rows, rows])
    columns = [jnp.zeros((len(rows), 0), q.dtype)]
    for (name, kind, _), here in zip(kinds, there, strict=True):
        if name != "spheres" and len(rows):
            distance = DISTANCE[Sphere, type(kind)]
            found = _table(distance, ends, _faced(robot, obstacles, kind, rows))
            if here is not None:
                found = jnp.where(_faced(robot, obstacles, here, rows), found, FAR)
            columns.append(found)
    return jnp.concatenate(columns, axis=1)


@traced_once
def nearest_obstacles(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    obstacles: Obstacles,
    count: int,
    *,
    kin: Kinematics | Poses | None = None,
    geometry: RobotGeometry | None = None,
) -> Obstacles:
    """The nearest obstacles of each kind, for each collision shape.

    A broad phase: while nothing moves far, only these matter, and they are fewer. With s shapes and
    k obstacles of a kind for each, the arrays have a leading axis s k, ordered by shape, and
    `owners` is s. Inactive obstacles are moved away by `FAR` instead of being marked. One whose
    place is not a number is nearest to everything, so that it is not overlooked.

    Args:
        robot: the model.
        q: rad and m.
        obstacles: the obstacles in the world.
        count: obstacles of each kind per shape; all, of a kind that has no more.
        kin: kinematics at `q`, or the bodies' poses, if already computed.
        geometry: `robot_geometry(robot, q)`, if already computed.

    Raises:
        ArrayError: `q` has the wrong shape, or arrays of obstacles do not fit together.
    """
    q = checked_configuration(robot, q)
    kinds = checked_kinds(obstacles, q.dtype)
    if obstacles.owners is not None or all(n <= count for *_, n in kinds):
        return obstacles
    active = checked_active(obstacles, sum(n for *_, n in kinds))
    if active is not None:
        parts = zip(kinds, split_by_kind(active, kinds), strict=True)
        kinds = [(name, moved_away(shapes, ~there), n) for (name, shapes, n), there in parts]
        obstacles = dataclasses.replace(
            obstacles, **{name: shapes for name, shapes, _ in kinds}, active=None
        )
    names = [s.name for s in robot.topology.collision_shapes]
    distances = obstacle_distances(robot, q, obstacles, shapes=names, kin=kin, geometry=geometry)
    distances = jnp.where(jnp.isnan(distances), -jnp.inf, distances)
    chosen: dict[str, Any] = {}
    columns, start = [], 0
    for name, shapes, n in kinds:
        first = _nearest_columns(distances[:, start : start + n], min(n, count)).ravel()
        chosen[name] = _pick(shapes, first)
        columns.append(start + first)
        start += n
    column = jnp.concatenate(columns)
    velocity = obstacles.velocity
    return Obstacles(
        **chosen,
        velocity=None
        if velocity is None
        else _pick(checked_velocity(obstacles, start, q.dtype), column),
        walls=obstacles.walls,
        owners=len(names),
    )


def obstacle_distance_names(
    robot: Robot, obstacles: Obstacles, *, shapes: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Names of the r m entries of `obstacle_distances(...).ravel()`: "hand_1 - boxes[0]".

    Raises:
        ArrayError: arrays of obstacles do not fit together.
        UnknownNameError: there is no collision shape of that name.
    """
    columns = [column for names in _columns(obstacles).values() for column in names]
    rows = [robot.topology.collision_shapes[i].name for i in _rows(robot, shapes)]
    return tuple(f"{row} - {column}" for row in rows for column in columns)


def end_distance_names(
    robot: Robot, obstacles: Obstacles, *, shapes: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Names of the entries of `end_distances(...).ravel()`: "hand_1 start - boxes[0]".

    Raises:
        ArrayError: arrays of obstacles do not fit together.
        UnknownNameError: there is no collision shape of that name.
    """
    kinds = _columns(obstacles)
    columns = [column for kind, names in kinds.items() if kind != "spheres" for column in names]
    capsules = [robot.topology.collision_shapes[i].name for i in _capsules(robot, shapes)]
    rows = [f"{name} {end}" for end in ("start", "end") for name in capsules]
    return tuple(f"{row} - {column}" for row in rows for column in columns)


def _columns(obstacles: Obstacles) -> dict[str, list[str]]:
    """Names of the obstacles that a collision shape faces, by kind."""
    owners, kind = obstacles.owners or 1, "" if obstacles.owners is None else "nearest "
    return {
        name: [f"{kind}{name}[{i}]" for i in range(count // owners)]
        for name, _, count in checked_kinds(obstacles, jnp.result_type(float))
    }


def _rows(robot: Robot, names: Sequence[str] | None) -> np.ndarray:
    """Indices into `collision_shapes` of the rows of `obstacle_distances`."""
    shapes = robot.topology.collision_shapes
    if names is None:
        return np.array(
            [i for i in range(len(shapes)) if shape_layout(robot.topology).moves[i]], np.int32
        )
    known = [s.name for s in shapes]
    for name in names:
        if name not in known:
            raise unknown_name("collision shape", name, known, f"of robot {robot.name!r}")
    return np.array([known.index(name) for name in names], np.int32)


def _capsules(robot: Robot, names: Sequence[str] | None) -> np.ndarray:
    """Those of `_rows` that are no spheres."""
    rows = _rows(robot, names)
    capsules: np.ndarray = rows[shape_layout(robot.topology).is_capsule[rows]]
    return capsules


def _faced(robot: Robot, obstacles: Obstacles, kind: Any, rows: np.ndarray) -> Any:
    """The k obstacles of a kind that each shape in `rows` faces: arrays (n, ...) as (r, k, ...)."""
    owners, shapes = obstacles.owners, len(robot.topology.collision_shapes)
    if owners is None:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (len(rows), *x.shape)), kind)
    if owners != shapes:
        raise ArrayError(
            f"The obstacles are divided among {owners} collision shapes, and robot {robot.name!r} "
            f"has {shapes}: they were chosen for another robot. Choose anew (`nearest_obstacles`)."
        )
    return jax.tree.map(lambda x: x.reshape(owners, -1, *x.shape[1:])[rows], kind)


def _table(distance: Callable[..., Array], rows: Any, columns: Any) -> Array:
    """Distances (r, k), m, of shapes `rows` (r, ...) from their obstacles `columns` (r, k, ...)."""
    return jax.vmap(jax.vmap(distance, (None, 0)))(rows, columns)


def _nearest_columns(x: Array, count: int) -> Array:
    """Indices (r, count) of the smallest entries of each row of `x` (r, m), ascending."""
    if count == x.shape[1]:
        return jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32), x.shape)
    found: list[Array] = []
    for _ in range(count):
        found.append(smallest(x)[1])
        x = jnp.where(jnp.arange(x.shape[1]) == found[-1][:, None], jnp.inf, x)
    return jnp.stack(found, axis=1)


def _take(shape: Any, index: np.ndarray) -> Any:
    return jax.tree.map(lambda x: x[index], shape)


def _pick(shape: Any, index: Array) -> Any:
    """Rows of arrays, at indices known to be in bounds."""
    return jax.tree.map(lambda x: x.at[index].get(mode="promise_in_bounds"), shape)


def _reorder(x: Array, members: list[np.ndarray]) -> Array:
    """Undo a grouping: row i of `x` goes where the i-th of the concatenated members says."""
    return x[np.argsort(np.concatenate([np.zeros(0, int), *members]))]
