"""Signed distances between a robot and obstacles, and between the parts of a robot.

A distance is positive between shapes that are apart, and minus the penetration depth (the length
of the shortest translation that parts them) between shapes that overlap. Capsules and spheres are
segments and points with a radius, so everything reduces to distances of points and segments.

Distances are closed forms: no iteration, no smoothing. They are twice differentiable, in forward
and reverse mode, by the parameters of both shapes, wherever the exact distance is; first and second
derivatives are finite everywhere. Where the exact distance has a kink, the first derivative is one
of those on its sides, or an average of them:

- spheres' centres, or capsules' axes, that meet: zero;
- a centre or an axis in a box, equally far from leaving it two ways: an average, or zero if the
  ways are opposite;
- capsules parallel to each other, or to a face or an edge of a box, or to a half-space, have many
  closest points, and turning one moves the contact to an end: that of a contact between the ends.

Three tolerances bound what is not exact:

- Segments within 1e-3 rad of parallel, to each other or to an edge of a box: the contact moves from
  one end to the other over that range, so that second derivatives stay bounded. The distance is
  overestimated by at most 1e-7 L^2 / d, where L is the length of a capsule and d the distance of
  its axis from the other's axis or the box (5e-8 m at L = 0.3 m, d = 0.2 m), and 4e-4 L at any d.
  Only if the axes all but meet as well, d < 1e-3 L, may a first derivative be larger than usual.
- Axes shorter than 1e-6 m: an error of at most their length.
- Points, axes and boxes within 1e-9 m (1.2e-6 m in float32) of each other: taken to meet.

Sources: Ericson, Real-Time Collision Detection (2005), 5.1.2 (point and segment), 5.1.9 (two
segments), 5.1.3 (point and box), 4.4.1 and 5.2.1 (separating axes). The segment and the box are
not there: the squared distance along the segment is convex and piecewise quadratic, and its
minimum is found from its slope at the breakpoints.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.errors import ArrayError, unknown_name

from ..kinematics import Kinematics, Poses, configuration, forward_kinematics, origins
from ..math.algebra import cross, einsum, matmul, smallest
from ..model.robot import WORLD, Robot, Topology
from ..model.robot import Shape as RobotShape

FAR = 1e3
"""Distance, m, of an obstacle that is not active; it has no derivative."""

_SHORT = 1e-6
"""Length, m, below which a direction is ill-defined."""

_PARALLEL = 1e-6
"""Squared sine of the angle below which two directions are taken for parallel."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sphere:
    """A sphere, or m of them in arrays with a leading axis m.

    Attributes:
        position: (3,), m, of the centre.
        radius: (), m.
    """

    position: ArrayLike
    radius: ArrayLike


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Capsule:
    """All points within a radius of a segment, or m capsules in arrays with a leading axis m.

    Attributes:
        start: (3,), m, one end of the segment.
        end: (3,), m, the other; may be the same point.
        radius: (), m.
    """

    start: ArrayLike
    end: ArrayLike
    radius: ArrayLike


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Box:
    """A box, or m of them in arrays with a leading axis m.

    Attributes:
        position: (3,), m, of the centre.
        rotation: (3, 3), box to world.
        half_extents: (3,), m, along the box's axes.
    """

    position: ArrayLike
    rotation: ArrayLike
    half_extents: ArrayLike


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class HalfSpace:
    """The solid points x with `normal . x <= offset`, or m of them with a leading axis m.

    Attributes:
        normal: (3,), unit, pointing out of the solid.
        offset: (), m, of the surface along the normal.
    """

    normal: ArrayLike
    offset: ArrayLike


_Shape = TypeVar("_Shape", Sphere, Capsule, Box, HalfSpace)

_DIMENSIONS: dict[str, tuple[int, ...]] = {
    "position": (3,),
    "rotation": (3, 3),
    "half_extents": (3,),
    "start": (3,),
    "end": (3,),
    "normal": (3,),
    "radius": (),
    "offset": (),
}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Obstacles:
    """What is in the world: arrays of shapes, each kind with its own leading axis.

    Everything is data: to move an obstacle changes no program, and distances can be differentiated
    by its pose (`jax.jvp` along its velocity, for one that moves; with `active` closed over, since
    a bool has no tangent).

    Attributes:
        spheres: m1 spheres.
        capsules: m2 capsules.
        boxes: m3 boxes.
        half_spaces: m4 half-spaces.
        active: (m1 + m2 + m3 + m4,) bool, in that order; None if all are. An obstacle that is not
            active is at the distance `FAR` from everything. Its numbers still have to be finite.
        velocity: (m1 + m2 + m3 + m4, 3), m/s, world axes, in that order; None if all are at rest.
        owners: None if every obstacle is in the way of all collision shapes of a robot. Otherwise
            the number of these shapes, and each is in the way of one: of each kind there are
            equally many for every shape, in the shapes' order. `nearest_obstacles` makes them.
    """

    spheres: Sphere | None = None
    capsules: Capsule | None = None
    boxes: Box | None = None
    half_spaces: HalfSpace | None = None
    active: ArrayLike | None = None
    velocity: ArrayLike | None = None
    owners: int | None = field(default=None, metadata={"static": True})


class RobotGeometry(NamedTuple):
    """A robot's collision shapes in the world.

    Attributes:
        spheres: its spheres, in the order they have in `collision_shapes`.
        capsules: the capsules that enclose its other shapes, likewise.
    """

    spheres: Sphere
    capsules: Capsule


def sphere_sphere(a: Sphere, b: Sphere) -> Array:
    """Signed distance, m, of two spheres.

    Raises:
        ArrayError: a field has the wrong shape.
    """
    centre_a, radius_a = _one(a)
    centre_b, radius_b = _one(b)
    return _norm(centre_a - centre_b) - radius_a - radius_b


def sphere_capsule(sphere: Sphere, capsule: Capsule) -> Array:
    """Signed distance, m, of a sphere and a capsule.

    Raises:
        ArrayError: a field has the wrong shape.
    """
    centre, radius = _one(sphere)
    start, end, thickness = _one(capsule)
    axis = end - start
    closest = start + _nearest(centre, start, axis) * axis
    return _norm(centre - closest) - radius - thickness


def sphere_box(sphere: Sphere, box: Box) -> Array:
    """Signed distance, m, of a sphere and a box; exact inside, too.

    Raises:
        ArrayError: a field has the wrong shape.
    """
    centre, radius = _one(sphere)
    position, rotation, half = _one(box)
    excess = jnp.abs(matmul(rotation.T, centre - position)) - half
    return _outside_or(jnp.maximum(excess, 0.0), jnp.max(excess)) - radius


def sphere_half_space(sphere: Sphere, half_space: HalfSpace) -> Array:
    """Signed distance, m, of a sphere and a half-space.

    Raises:
        ArrayError: a field has the wrong shape.
    """
    centre, radius = _one(sphere)
    normal, offset = _one(half_space)
    return jnp.sum(normal * centre) - offset - radius


def capsule_capsule(a: Capsule, b: Capsule) -> Array:
    """Signed distance, m, of two capsules.

    Raises:
        ArrayError: a field has the wrong shape.
    """
    start_a, end_a, radius_a = _one(a)
    start_b, end_b, radius_b = _one(b)
    axis_a, axis_b = end_a - start_a, end_b - start_b
    square_a, square_b = jnp.sum(axis_a * axis_a), jnp.sum(axis_b * axis_b)
    # The part of axis a at right angles to axis b moves the distance to b's infinite line.
    across = axis_a - axis_b * (jnp.sum(axis_a * axis_b) / jnp.maximum(square_b, _SHORT**2))
    pull = jnp.sum((start_b - start_a) * across)
    s = _minimiser(pull, jnp.sum(across * across), square_a, 0.5)
    on_a = start_a + jnp.clip(s, 0.0, 1.0) * axis_a
    on_b = start_b + _nearest(on_a, start_b, axis_b) * axis_b
    on_a = start_a + _nearest(on_b, start_a, axis_a) * axis_a
    return _norm(on_a - on_b) - radius_a - radius_b


def capsule_box(capsule: Capsule, box: Box) -> Array:
    """Signed distance, m, of a capsule and a box; exact where the axis enters the box, too.

    Raises:
        ArrayError: a field has the wrong shape.
    """
    start, end, radius = _one(capsule)
    position, rotation, half = _one(box)
    start, end = matmul(rotation.T, start - position), matmul(rotation.T, end - position)
    axis = end - start
    closest = start + _nearest_to_box(start, axis, half) * axis
    outside = jnp.maximum(jnp.abs(closest) - half, 0.0)
    return _outside_or(outside, _separation(start, axis, half)) - radius


def capsule_half_space(capsule: Capsule, half_space: HalfSpace) -> Array:
    """Signed distance, m, of a capsule and a half-space.

    Raises:
        ArrayError: a field has the wrong shape.
    """
    start, end, radius = _one(capsule)
    normal, offset = _one(half_space)
    return jnp.minimum(jnp.sum(normal * start), jnp.sum(normal * end)) - offset - radius


def robot_geometry(
    robot: Robot, q: ArrayLike, *, kin: Kinematics | Poses | None = None
) -> RobotGeometry:
    """The robot's collision shapes in the world, as spheres and capsules that enclose them.

    A sphere is itself. A cylinder becomes the capsule with its axis and its radius, which reaches
    further by the radius at both ends. A box becomes the capsule of least volume that encloses it,
    along its longest edge. So a distance is never larger than that of the shape itself.

    Args:
        robot: the model.
        q: (nq,).
        kin: kinematics at `q`, or the bodies' poses, if already computed.

    Raises:
        ArrayError: `q` is not of shape (nq,).
    """
    q = configuration(robot, q)
    layout = _layout(robot.topology)
    poses = kin if kin is not None else forward_kinematics(robot, q)
    # One more pose, the world's: it is the last, so that the index `WORLD` finds it.
    position = jnp.concatenate([poses.position, jnp.zeros((1, 3), q.dtype)])
    rotation = jnp.concatenate([poses.rotation, jnp.eye(3, dtype=q.dtype)[None]])

    def place(body: np.ndarray, point: np.ndarray) -> Array:
        turned = einsum("nij,nj->ni", rotation[body], jnp.asarray(point, q.dtype))
        return position[body] + turned

    spheres, capsules = layout.spheres, layout.capsules
    return RobotGeometry(
        Sphere(place(spheres.body, spheres.start), jnp.asarray(spheres.radius, q.dtype)),
        Capsule(
            place(capsules.body, capsules.start),
            place(capsules.body, capsules.end),
            jnp.asarray(capsules.radius, q.dtype),
        ),
    )


def robot_geometry_rate(
    robot: Robot, geometry: RobotGeometry, kin: Kinematics, twists: Array
) -> RobotGeometry:
    """Time derivative of `robot_geometry` when the bodies move.

    Args:
        robot: the model.
        geometry: at this configuration.
        kin: likewise.
        twists: (nb, 6), `body_twists` of the bodies.
    """
    layout = _layout(robot.topology)
    # One more row, the world's: it is the last, so that the index `WORLD` finds it.
    origin = jnp.pad(origins(robot.topology, kin), ((0, 1), (0, 0)))
    twists = jnp.concatenate([twists, jnp.zeros_like(twists[:1])])

    def rate(fixed: _Fixed, point: ArrayLike) -> Array:
        moving = twists[fixed.body]
        return moving[:, :3] + cross(moving[:, 3:], jnp.asarray(point) - origin[fixed.body])

    spheres, capsules = geometry
    return RobotGeometry(
        Sphere(rate(layout.spheres, spheres.position), jnp.zeros_like(spheres.radius)),
        Capsule(
            rate(layout.capsules, capsules.start),
            rate(layout.capsules, capsules.end),
            jnp.zeros_like(capsules.radius),
        ),
    )


def self_distances(
    robot: Robot,
    q: ArrayLike,
    *,
    kin: Kinematics | Poses | None = None,
    geometry: RobotGeometry | None = None,
) -> Array:
    """Signed distances (k,), m, of `robot.topology.self_collision_pairs`, in that order.

    The shapes are those of `robot_geometry`; `self_distance_names` names the pairs.

    Args:
        robot: the model.
        q: (nq,).
        kin: kinematics at `q`, or the bodies' poses, if already computed.
        geometry: `robot_geometry(robot, q)`, if already computed.

    Raises:
        ArrayError: `q` is not of shape (nq,).
    """
    q = configuration(robot, q)
    layout = _layout(robot.topology)
    geometry = robot_geometry(robot, q, kin=kin) if geometry is None else geometry
    pairs = np.asarray(robot.topology.self_collision_pairs, int).reshape(-1, 2)
    is_capsule = layout.is_capsule[pairs]
    # The sphere comes first, as `sphere_capsule` wants it.
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
            i, j = layout.place[ordered[member]].T
            distances.append(jax.vmap(distance)(_take(first, i), _take(second, j)))
            members.append(member)
    return _reorder(jnp.concatenate(distances), members)


def self_distance_names(robot: Robot) -> tuple[str, ...]:
    """Names of the k entries of `self_distances`: "hand_1 - link0_1"."""
    names = [s.name for s in robot.topology.collision_shapes]
    return tuple(f"{names[i]} - {names[j]}" for i, j in robot.topology.self_collision_pairs)


def obstacle_distances(
    robot: Robot,
    q: ArrayLike,
    obstacles: Obstacles,
    *,
    shapes: Sequence[str] | None = None,
    kin: Kinematics | Poses | None = None,
    geometry: RobotGeometry | None = None,
) -> Array:
    """Signed distances (r, m), m, of the robot's collision shapes (rows) and the obstacles.

    The shapes are those of `robot_geometry`; `obstacle_distance_names` names the entries. Columns:
    spheres, capsules, boxes, half-spaces; a shape's own, if obstacles have `owners`. Distances have
    the dtype of `q`.

    Args:
        robot: the model.
        q: (nq,).
        obstacles: what is in the world.
        shapes: names of the r collision shapes to use. Default: all that some joint moves, since
            the others may well stand in the table that they are screwed to, and nothing helps.
        kin: kinematics at `q`, or the bodies' poses, if already computed.
        geometry: `robot_geometry(robot, q)`, if already computed.

    Raises:
        ArrayError: `q` is not of shape (nq,), or arrays of obstacles do not fit together.
        UnknownNameError: there is no collision shape of that name.
    """
    q = configuration(robot, q)
    layout = _layout(robot.topology)
    rows = _rows(robot, shapes)
    kinds = _kinds(obstacles, q.dtype)
    faced = [_faced(robot, obstacles, shapes, rows) for _, shapes, _ in kinds]
    columns = obstacle_count(obstacles)
    geometry = robot_geometry(robot, q, kin=kin) if geometry is None else geometry

    members, blocks = [], [jnp.zeros((0, columns), q.dtype)]
    for capsule, mine in enumerate(geometry):
        member = np.flatnonzero(layout.is_capsule[rows] == capsule)
        if len(member) and kinds:
            chosen = _take(mine, layout.place[rows[member]])
            parts = [
                _table(_DISTANCE[type(mine), type(o)], chosen, _take(o, member)) for o in faced
            ]
            blocks.append(jnp.concatenate(parts, axis=1))
            members.append(member)
    if not members:
        return jnp.zeros((len(rows), columns), q.dtype)
    distances = _reorder(jnp.concatenate(blocks), members)
    active = _active(obstacles, sum(count for *_, count in kinds))
    if active is None:
        return distances
    there = [_faced(robot, obstacles, x, rows) for x in _split(active, kinds)]
    return jnp.where(jnp.concatenate(there, axis=1), distances, FAR)


def nearest_obstacles(
    robot: Robot,
    q: ArrayLike,
    obstacles: Obstacles,
    count: int,
    *,
    kin: Kinematics | Poses | None = None,
    geometry: RobotGeometry | None = None,
) -> Obstacles:
    """For each collision shape the obstacles of each kind that are nearest to it.

    A broad phase: while nothing moves far, only they matter, and there are fewer of them. Of s
    shapes and k obstacles of a kind for each, the arrays have a leading axis s k, the shapes' order
    first, and `owners` is s. Those that are not active are no longer called so, but further than
    any others, about `FAR`.

    Args:
        robot: the model.
        q: (nq,).
        obstacles: what is in the world.
        count: how many of each kind; all of a kind of which there are no more.
        kin: kinematics at `q`, or the bodies' poses, if already computed.
        geometry: `robot_geometry(robot, q)`, if already computed.

    Raises:
        ArrayError: `q` is not of shape (nq,), or arrays of obstacles do not fit together.
    """
    q = configuration(robot, q)
    kinds = _kinds(obstacles, q.dtype)
    if obstacles.owners is not None or all(n <= count for *_, n in kinds):
        return obstacles
    active = _active(obstacles, sum(n for *_, n in kinds))
    if active is not None:
        parts = zip(kinds, _split(active, kinds), strict=True)
        kinds = [(name, _away(shapes, ~there), n) for (name, shapes, n), there in parts]
        obstacles = dataclasses.replace(
            obstacles, **{name: shapes for name, shapes, _ in kinds}, active=None
        )
    names = [s.name for s in robot.topology.collision_shapes]
    distances = obstacle_distances(robot, q, obstacles, shapes=names, kin=kin, geometry=geometry)
    chosen: dict[str, Any] = {}
    columns, start = [], 0
    for name, shapes, n in kinds:
        first = _smallest(distances[:, start : start + n], min(n, count)).ravel()
        chosen[name] = _pick(shapes, first)
        columns.append(start + first)
        start += n
    column = jnp.concatenate(columns)
    velocity = obstacles.velocity
    return Obstacles(
        **chosen,
        velocity=None if velocity is None else _pick(_velocity(obstacles, start, q.dtype), column),
        owners=len(names),
    )


def obstacle_count(obstacles: Obstacles) -> int:
    """How many obstacles a collision shape faces, active or not: columns of `obstacle_distances`.

    Raises:
        ArrayError: arrays of obstacles do not fit together.
    """
    kinds = _kinds(obstacles, jnp.result_type(float))
    return sum(count for *_, count in kinds) // (obstacles.owners or 1)


def obstacle_rates(obstacles: Obstacles, dtype: Any = None) -> Obstacles:
    """Time derivatives of the obstacles' positions, ends and offsets, as `velocity` says.

    Its `active` and `velocity` are None: together with obstacles of which the same is true, it is a
    tangent for `jax.jvp`.

    Args:
        obstacles: what is in the world.
        dtype: of the result; that of floats by default.

    Raises:
        ArrayError: arrays of obstacles do not fit together.
    """
    dtype = jnp.result_type(float) if dtype is None else dtype
    kinds = _kinds(obstacles, dtype)
    velocity = _velocity(obstacles, sum(count for *_, count in kinds), dtype)
    rates: dict[str, Any] = {}
    for (name, shapes, _), v in zip(kinds, _split(velocity, kinds), strict=True):
        rate = dict.fromkeys(("position", "start", "end"), v)
        if isinstance(shapes, HalfSpace):
            rate["offset"] = jnp.sum(shapes.normal * v, axis=-1)
        fields = {f.name: getattr(shapes, f.name) for f in dataclasses.fields(shapes)}
        rates[name] = type(shapes)(**{k: rate.get(k, jnp.zeros_like(x)) for k, x in fields.items()})
    return Obstacles(**rates, owners=obstacles.owners)


def move_obstacles(obstacles: Obstacles, dt: ArrayLike) -> Obstacles:
    """The obstacles a time `dt`, s, later, at constant `velocity`.

    Raises:
        ArrayError: arrays of obstacles do not fit together.
    """
    if obstacles.velocity is None:
        return obstacles
    still = dataclasses.replace(obstacles, active=None, velocity=None)
    dtype = jnp.result_type(*jax.tree.leaves(still), float)
    moved: Obstacles = jax.tree.map(
        lambda x, rate: jnp.asarray(x, dtype) + jnp.asarray(dt, dtype) * rate,
        still,
        obstacle_rates(obstacles, dtype),
    )
    return dataclasses.replace(moved, active=obstacles.active, velocity=obstacles.velocity)


def obstacle_distance_names(
    robot: Robot, obstacles: Obstacles, *, shapes: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Names of the r m entries of `obstacle_distances(...).ravel()`: "hand_1 - boxes[0]".

    Raises:
        ArrayError: arrays of obstacles do not fit together.
        UnknownNameError: there is no collision shape of that name.
    """
    owners, kind = obstacles.owners or 1, "" if obstacles.owners is None else "nearest "
    columns = [
        f"{kind}{name}[{i}]"
        for name, _, count in _kinds(obstacles, jnp.result_type(float))
        for i in range(count // owners)
    ]
    rows = [robot.topology.collision_shapes[i].name for i in _rows(robot, shapes)]
    return tuple(f"{row} - {column}" for row in rows for column in columns)


class _Fixed(NamedTuple):
    """Spheres or capsules in their bodies' frames; of a sphere, `end` is `start`."""

    body: np.ndarray
    start: np.ndarray
    end: np.ndarray
    radius: np.ndarray


class _Layout(NamedTuple):
    """Where the collision shapes are among the spheres and the capsules of `RobotGeometry`."""

    spheres: _Fixed
    capsules: _Fixed
    is_capsule: np.ndarray
    place: np.ndarray
    moves: np.ndarray


@lru_cache(maxsize=64)
def _layout(topology: Topology) -> _Layout:
    shapes = topology.collision_shapes
    is_capsule = np.array([s.kind != "sphere" for s in shapes], bool)
    place = np.where(is_capsule, np.cumsum(is_capsule), np.cumsum(~is_capsule)) - 1

    def fixed(kind: bool) -> _Fixed:
        chosen = [s for s, capsule in zip(shapes, is_capsule, strict=True) if capsule == kind]
        segments = [_enclosing(s) for s in chosen]
        return _Fixed(
            # int32, which means the same with and without x64; JAX may remember the other.
            np.array([s.body for s in chosen], np.int32),
            np.array([start for start, _, _ in segments], float).reshape(-1, 3),
            np.array([end for _, end, _ in segments], float).reshape(-1, 3),
            np.array([radius for _, _, radius in segments], float),
        )

    moves = np.array([_moves(topology, shape) for shape in shapes], bool)
    return _Layout(fixed(False), fixed(True), is_capsule, place, moves)


def _moves(topology: Topology, shape: RobotShape) -> bool:
    """Whether any joint moves a shape: none does if it lies on every axis it turns about."""
    start, end, _ = _enclosing(shape)
    ends, body = np.stack([start, end]), shape.body
    while body != WORLD:
        joint = topology.joints[body]
        off_axis = ends - np.outer(ends @ joint.axis, joint.axis)
        if joint.kind not in ("revolute", "continuous") or np.abs(off_axis).max() > _SHORT:
            return True
        ends = topology.position[body] + ends @ topology.rotation[body].T
        body = int(topology.parent[body])
    return False


def _enclosing(shape: RobotShape) -> tuple[np.ndarray, np.ndarray, float]:
    """Ends, in the body's frame, and radius of the capsule that encloses a shape."""
    centre = np.asarray(shape.position, float)
    if shape.kind == "sphere":
        return centre, centre, shape.size[0]
    if shape.kind == "cylinder":
        radius, length = shape.size
        half = np.array([0.0, 0.0, length / 2])
    else:
        edges = np.array(shape.size) / 2
        longest = np.argmax(edges)
        # The axis may end short of the face, by `inset`, if the radius is enough for the corner.
        inset = np.linspace(0.0, edges[longest], 201)
        radii = np.sqrt(edges @ edges - edges[longest] ** 2 + inset**2)
        volume = radii**2 * (2 * (edges[longest] - inset) + 4 / 3 * radii)
        least = np.argmin(volume)
        radius = float(radii[least])
        half = np.where(np.arange(3) == longest, edges[longest] - inset[least], 0.0)
    along = np.asarray(shape.rotation, float) @ half
    return centre - along, centre + along, radius


def _rows(robot: Robot, names: Sequence[str] | None) -> np.ndarray:
    """Indices into `collision_shapes` of the rows of `obstacle_distances`."""
    shapes = robot.topology.collision_shapes
    if names is None:
        return np.array(
            [i for i in range(len(shapes)) if _layout(robot.topology).moves[i]], np.int32
        )
    known = [s.name for s in shapes]
    for name in names:
        if name not in known:
            raise unknown_name("collision shape", name, known, f"of robot {robot.name!r}")
    return np.array([known.index(name) for name in names], np.int32)


def _kinds(obstacles: Obstacles, dtype: Any) -> list[tuple[str, Any, int]]:
    """The kinds of obstacles there are: name of the field, checked shapes and their number."""
    kinds = []
    for name in ("spheres", "capsules", "boxes", "half_spaces"):
        shape = getattr(obstacles, name)
        if shape is not None:
            arrays = _fields(shape, f"obstacles.{name}", many=True)
            shapes = type(shape)(*(x.astype(dtype) for x in arrays))
            kinds.append((name, shapes, len(arrays[0])))
    return kinds


def _away(shapes: _Shape, which: Array) -> _Shape:
    """The same, some of them moved away by `FAR`."""
    changes: dict[str, Array] = {}
    for field_ in dataclasses.fields(shapes):
        x = jnp.asarray(getattr(shapes, field_.name))
        if field_.name in ("position", "start", "end"):
            changes[field_.name] = x.at[:, 0].set(jnp.where(which, x[:, 0] + FAR, x[:, 0]))
        elif field_.name == "offset":
            changes[field_.name] = jnp.where(which, x - FAR, x)
    return dataclasses.replace(shapes, **changes)


def _active(obstacles: Obstacles, count: int) -> Array | None:
    """The mask of the obstacles, checked."""
    if obstacles.active is None:
        return None
    active = jnp.asarray(obstacles.active)
    if active.shape != (count,) or active.dtype != bool:
        raise ArrayError(
            f"active of Obstacles has shape {active.shape} and dtype {active.dtype}, expected "
            f"({count},) and bool: one per sphere, capsule, box and half-space, in that order."
        )
    return active


def _velocity(obstacles: Obstacles, count: int, dtype: Any) -> Array:
    """The velocities of the obstacles, checked; zero if there are none."""
    if obstacles.velocity is None:
        return jnp.zeros((count, 3), dtype)
    velocity = jnp.asarray(obstacles.velocity, dtype)
    if velocity.shape != (count, 3):
        raise ArrayError(
            f"velocity of Obstacles has shape {velocity.shape}, expected ({count}, 3): one per "
            "sphere, capsule, box and half-space, in that order."
        )
    return velocity


def _one(shape: _Shape) -> tuple[Array, ...]:
    """The fields of a shape, checked to be those of one shape."""
    return _fields(shape, type(shape).__name__, many=False)


def _fields(shape: _Shape, where: str, *, many: bool) -> tuple[Array, ...]:
    """The fields of a shape, or of many, as arrays of floating-point numbers, checked."""
    arrays: list[Array] = []
    for one in dataclasses.fields(shape):
        array = jnp.asarray(getattr(shape, one.name))
        expected: tuple[int | str, ...] = _DIMENSIONS[one.name]
        if many:
            count = len(arrays[0]) if arrays else (array.shape or ("m",))[0]
            expected = (count, *expected)
        if array.shape != expected:
            if array.ndim != len(expected) and many:
                expected = ("m", *expected[1:])
            text = ", ".join(map(str, expected)) + ("," if len(expected) == 1 else "")
            raise ArrayError(
                f"{one.name} of {where} has shape {array.shape}, expected ({text}). Obstacles "
                "have a leading axis, of one length in all fields of a kind; the distance of two "
                "shapes takes one of each: batch it with jax.vmap."
            )
        arrays.append(array.astype(jnp.result_type(array.dtype, float)))
    return tuple(arrays)


def _take(shape: Any, index: np.ndarray) -> Any:
    return jax.tree.map(lambda x: x[index], shape)


def _pick(shape: Any, index: Array) -> Any:
    """Rows of arrays, at indices that are known to be there."""
    return jax.tree.map(lambda x: x.at[index].get(mode="promise_in_bounds"), shape)


def _split(x: Array, kinds: list[tuple[str, Any, int]]) -> list[Array]:
    """What `x` (m, ...) says of all obstacles, kind by kind."""
    ends = np.cumsum([count for *_, count in kinds], dtype=int)
    return [x[end - count : end] for end, (*_, count) in zip(ends, kinds, strict=True)]


def _faced(robot: Robot, obstacles: Obstacles, kind: Any, rows: np.ndarray) -> Any:
    """What is in the way of each of the collision shapes `rows`: arrays (n, ...) as (r, k, ...)."""
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
    """Distances (r, k) of every one of `rows` (r, ...) from each of its `columns` (r, k, ...)."""
    return jax.vmap(jax.vmap(distance, (None, 0)))(rows, columns)


def _smallest(x: Array, count: int) -> Array:
    """Indices (r, count) of the smallest entries of each row of `x` (r, m), ascending."""
    if count == x.shape[1]:
        return jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32), x.shape)
    found: list[Array] = []
    for _ in range(count):
        found.append(smallest(x)[1])
        x = jnp.where(jnp.arange(x.shape[1]) == found[-1][:, None], jnp.inf, x)
    return jnp.stack(found, axis=1)


def _reorder(x: Array, members: list[np.ndarray]) -> Array:
    """Undo a grouping: row i of `x` goes where the i-th of the concatenated members says."""
    return x[np.argsort(np.concatenate([np.zeros(0, int), *members]))]


def _outside_or(x: Array, inside: Array) -> Array:
    """Euclidean norm of `x` (3,), or `inside` where it is all but zero."""
    return jnp.where(_long(x), _norm(x), inside)


def _long(x: Array) -> Array:
    """Whether `x` (3,) is longer than 1e-9 m, 1e-6 in float32.

    The direction of a shorter difference of points is rounding; the square of a still shorter one
    has no reciprocal.
    """
    return jnp.sum(x * x) > _tiny(x)


def _tiny(x: Array) -> Array:
    return jnp.asarray(max(1e-9, 10 * float(np.finfo(x.dtype).eps)) ** 2, x.dtype)


# The norm and its slope, each with the others in its derivative: that takes a dot product per
# direction, where the chain rule would take a division as well.


@jax.custom_jvp
def _norm(x: Array) -> Array:
    """Euclidean norm of (3,), quadratic where `x` is all but zero."""
    return jnp.sum(x * x) * _inverse_norm(x)


@jax.custom_jvp
def _inverse_norm(x: Array) -> Array:
    return jax.lax.rsqrt(jnp.maximum(jnp.sum(x * x), _tiny(x)))


@jax.custom_jvp
def _slope(x: Array, dx: Array) -> Array:
    """Derivative of the norm of `x` (3,) along `dx` (3,)."""
    return jnp.sum(x * dx) * _inverse_norm(x)


@_norm.defjvp
def _norm_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    return _norm(x), _slope(x, dx)


@_inverse_norm.defjvp
def _inverse_norm_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    inverse = _inverse_norm(x)
    return inverse, -(inverse * inverse) * _slope(x, dx)


@_slope.defjvp
def _slope_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (x, dx), (ex, d2x) = primals, tangents
    slope = _slope(x, dx)
    across = jnp.sum(dx * ex) - slope * _slope(x, ex)
    return slope, _inverse_norm(x) * (across + jnp.sum(x * d2x))


def _nearest(point: Array, start: Array, axis: Array) -> Array:
    """Fraction of a segment, in [0, 1], at which it is closest to a point."""
    along = jnp.sum((point - start) * axis) / jnp.maximum(jnp.sum(axis * axis), _SHORT**2)
    return jnp.clip(along, 0.0, 1.0)


def _minimiser(pull: Array, curvature: Array, square: Array, middle: Array | float) -> Array:
    """Where `curvature s^2 / 2 - pull s`, m^2, is least, or near `middle` if it is all but flat.

    It is half the squared distance at the fraction s of a segment of squared length `square`.
    """
    floor = jnp.maximum(_PARALLEL * square, _SHORT**2)
    return middle + (pull - middle * curvature) / jnp.maximum(curvature, floor)


def _nearest_to_box(start: Array, axis: Array, half: Array) -> Array:
    """Fraction of a segment, in [0, 1], at which it is closest to the box [-half, half].

    Between the fractions at which the segment crosses the planes of the faces, the slope of the
    squared distance is linear, and it never decreases. Which of these pieces has its root is a
    discrete choice, without a derivative; the root itself, on that piece, has all of them.
    """
    fixed_start, fixed_axis, fixed_half = jax.lax.stop_gradient((start, axis, half))
    planes = jnp.concatenate([fixed_half, -fixed_half]) - jnp.tile(fixed_start, 2)
    divisor = jnp.tile(jnp.where(fixed_axis == 0, 1.0, fixed_axis), 2)
    ends = jnp.array([0.0, 1.0], start.dtype)
    s = jnp.concatenate([jnp.clip(planes / divisor, 0.0, 1.0), ends])
    points = fixed_start + s[:, None] * fixed_axis
    slope = jnp.sum((points - jnp.clip(points, -fixed_half, fixed_half)) * fixed_axis, axis=1)
    falling = jnp.max(jnp.where(slope <= 0, s, 0.0))
    rising = jnp.min(jnp.where(slope >= 0, s, 1.0))
    middle = 0.5 * (falling + rising)

    point = fixed_start + middle * fixed_axis
    outside = jnp.abs(point) > fixed_half
    across = jnp.where(outside, axis, 0.0)
    pull = jnp.sum(across * (jnp.sign(point) * half - start))
    root = _minimiser(pull, jnp.sum(across * across), jnp.sum(axis * axis), middle)
    return jnp.clip(root, jnp.minimum(falling, rising), jnp.maximum(falling, rising))


def _separation(start: Array, axis: Array, half: Array) -> Array:
    """Largest gap between the box [-half, half] and a segment along any separating axis.

    Candidates are the normals of the faces of their Minkowski difference: those of the box, and
    the cross products of its edges with the segment. Negative iff the two intersect, and then
    minus the length of the shortest translation that parts them.
    """
    centre, reach = start + 0.5 * axis, 0.5 * axis
    faces = jnp.abs(centre) - half - jnp.abs(reach)
    j, k = np.array([1, 2, 0]), np.array([2, 0, 1])
    square = reach[j] ** 2 + reach[k] ** 2
    defined = square > _SHORT**2
    gap = jnp.abs(reach[j] * centre[k] - reach[k] * centre[j])
    gap = gap - half[j] * jnp.abs(reach[k]) - half[k] * jnp.abs(reach[j])
    edges = jnp.where(defined, gap / jnp.sqrt(jnp.where(defined, square, 1.0)), faces)
    face, edge = jnp.max(faces), jnp.max(edges)
    # A segment along an edge of the box has cross products that are normals of faces as well, but
    # whose derivative is not that of the distance: beyond rounding, they have to be better.
    return jnp.where(edge > face + 16 * float(np.finfo(start.dtype).eps), edge, face)


_DISTANCE: dict[tuple[type, type], Callable[..., Array]] = {
    (Sphere, Sphere): sphere_sphere,
    (Sphere, Capsule): sphere_capsule,
    (Sphere, Box): sphere_box,
    (Sphere, HalfSpace): sphere_half_space,
    (Capsule, Sphere): lambda capsule, sphere: sphere_capsule(sphere, capsule),
    (Capsule, Capsule): capsule_capsule,
    (Capsule, Box): capsule_box,
    (Capsule, HalfSpace): capsule_half_space,
}
