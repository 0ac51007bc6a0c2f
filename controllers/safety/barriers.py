"""Barriers: functions of the robot's motion that a safety filter keeps from becoming negative.

A barrier of relative degree two is a function `h` of the configuration, and of obstacles that may
move; one of relative degree one depends on the velocity too. The module `conditions` beside this
one says which accelerations keep a barrier, and takes the derivatives for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import (
    HalfSpace,
    Kinematics,
    Obstacles,
    Robot,
    RobotGeometry,
    Terms,
    compute_terms,
    crba,
    frame_jacobian,
    frame_pose,
    obstacle_distance_names,
    obstacle_distances,
    robot_geometry,
    self_distance_names,
    self_distances,
)
from fraxenv.dynamics import manipulability as manipulability_of
from fraxenv.dynamics.clearance import end_distance_names, end_distances
from fraxenv.dynamics.manifold import scalar_coordinates
from fraxenv.dynamics.math.algebra import matmul, norm
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.dynamics.solvers.cholesky import cholesky, cholesky_solve, solve_upper
from fraxenv.errors import ConfigError

from ..groups import finger_mask

NO_LIMIT = 1e3
"""Value of a barrier without a limit, such as that of a joint that turns for ever."""

SINGULAR = 1e-4
"""Damping of `J M^-1 J^T`, relative to its mean diagonal, that keeps its inverse defined."""

NO_OBSTACLES = Obstacles()
"""An empty world."""


class Situation(NamedTuple):
    """A robot's state and surroundings, the argument of barriers.

    Attributes:
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s; only barriers of relative degree one may use it.
        kin: kinematics at `q`; pass it on as `kin=`.
        geometry: the robot's collision shapes at `q`; pass it on as `geometry=`.
        obstacles: in the world.
        scene: in an environment of a scene `fraxenv.envs.SceneState`, with its `objects` and its
            `contacts` in the last physics step; else None. To derivatives it is constant.
    """

    q: Array
    v: Array
    kin: Kinematics
    geometry: RobotGeometry
    obstacles: Obstacles
    scene: Any = None


def situation(
    robot: Robot, terms: Terms, obstacles: Obstacles = NO_OBSTACLES, scene: Any = None
) -> Situation:
    """The situation of a robot among obstacles.

    Args:
        robot: the model.
        terms: its terms at this state.
        obstacles: in the world.
        scene: see `Situation`.
    """
    geometry = robot_geometry(robot, terms.q, kin=terms.kin)
    return Situation(terms.q, terms.v, terms.kin, geometry, obstacles, scene)


BarrierFunction = Callable[[Robot, Situation, "Barrier"], Array]
"""`h(robot, situation, barrier)` -> values (rows,), each safe where it is not negative."""


@pytree_dataclass
class Barrier:
    """A function that is to stay non-negative, and how fast it may approach zero.

    Attributes:
        function: `h(robot, situation, barrier)` -> (rows,); reads its numbers from
            `barrier.parameters`. Defined at the top level of a module, since compiled programs are
            looked up by it.
        relative_degree: 2 for a function of the configuration, 1 for one of the velocity.
        name: begins the names of its rows.
        row_names: `(robot, obstacles)` -> the names of its rows; numbered if None, which
            a function that reads the scene cannot have.
        parameters: a pytree for `function`; its leaves may be batched and differentiated.
        rate: 1/s, of the approach.
        margin: value of `h` at which the approach ends, in its unit: as much as the time between
            two control steps can cost.
    """

    function: BarrierFunction = static()
    relative_degree: Literal[1, 2] = static(default=2)
    name: str = static(default="barrier")
    row_names: Callable[[Robot, Obstacles], Sequence[str]] | None = static(default=None)
    parameters: Any = ()
    rate: ArrayLike = 10.0
    margin: ArrayLike = 0.0

    def __post_init__(self) -> None:
        if self.relative_degree not in (1, 2):
            raise ConfigError(
                f"relative_degree={self.relative_degree!r} of barrier {self.name!r}, expected 1 (a "
                "function of the velocity) or 2 (a function of the configuration)."
            )
        if isinstance(self.rate, int | float) and not 0 < self.rate < np.inf:
            raise ConfigError(
                f"rate={self.rate!r} of barrier {self.name!r}, expected a positive number, 1/s."
            )


def joint_position(rate: ArrayLike = 20.0, margin: ArrayLike = 0.0) -> Barrier:
    """Every joint but fingers within its position limits; rows in rad and m."""
    return Barrier(_joint_position, 2, "joint position", _limit_names, (), rate, margin)


def joint_velocity(rate: ArrayLike = 50.0, margin: ArrayLike = 0.0) -> Barrier:
    """Every joint but fingers within its velocity limits; rows in rad/s and m/s."""
    return Barrier(_joint_velocity, 1, "joint velocity", _limit_names, (), rate, margin)


def end_effector_box(
    frame: str, lower: ArrayLike, upper: ArrayLike, rate: ArrayLike = 10.0, margin: ArrayLike = 0.0
) -> Barrier:
    """A frame's origin within a box of the world; six rows, m.

    Args:
        frame: name of the frame.
        lower: (3,), m; infinite where there is no bound.
        upper: (3,), m, likewise.
        rate: see `Barrier`.
        margin: m.
    """
    bounds = (lower, upper)
    return Barrier(_InBox(frame), 2, f"{frame} box", _box_names, bounds, rate, margin)


def whole_body_box(
    lower: ArrayLike, upper: ArrayLike, rate: ArrayLike = 10.0, margin: ArrayLike = 0.0
) -> Barrier:
    """All collision shapes that move within a box of the world; m, the least of them per side.

    Args:
        lower: (3,), m; infinite where there is no bound.
        upper: (3,), m, likewise.
        rate: see `Barrier`.
        margin: m.
    """
    return Barrier(_body_in_box, 2, "body box", None, (lower, upper), rate, margin)


def half_space(
    normal: ArrayLike,
    offset: ArrayLike,
    rate: ArrayLike = 10.0,
    margin: ArrayLike = 0.0,
    shapes: Sequence[str] | None = None,
) -> Barrier:
    """Collision shapes where `normal . x >= offset`; a row for each shape, m.

    Args:
        normal: (3,), unit, into the permitted side.
        offset: (), m, of the plane along the normal.
        rate: see `Barrier`.
        margin: m.
        shapes: names of the collision shapes; None for all that some joint moves.
    """
    kind = _above_plane if shapes is None else _AbovePlane(tuple(shapes))
    return Barrier(kind, 2, "half-space", None, (normal, offset), rate, margin)


def obstacles(
    shapes: Sequence[str] | None = None,
    rate: ArrayLike = 10.0,
    margin: ArrayLike = 0.0,
    *,
    bounded_curvature: bool = False,
) -> Barrier:
    """The robot's collision shapes off the obstacles of the situation; a row for each pair, m.

    With `bounded_curvature` rows follow for both ends of each capsule, against what is no sphere:
    next to what it is nearly parallel to, a row of the nearest point alone lets the other end sink.

    Args:
        shapes: names of the collision shapes; None for all that some joint moves.
        rate: see `Barrier`.
        margin: m.
        bounded_curvature: of distances, for capsules on the robot; see
            `fraxenv.dynamics.geometry.distance`.
    """
    kind = _OffObstacles(None if shapes is None else tuple(shapes), bounded_curvature)
    return Barrier(kind, 2, "obstacles", kind.names, (), rate, margin)


def self_collision(
    rate: ArrayLike = 10.0, margin: ArrayLike = 0.0, *, bounded_curvature: bool = False
) -> Barrier:
    """The pairs of `robot.topology.self_collision_pairs` apart; a row each, m.

    Args:
        rate: see `Barrier`.
        margin: m.
        bounded_curvature: as for `obstacles`.
    """
    kind = _self_collision_bounded if bounded_curvature else _self_collision
    return Barrier(kind, 2, "self-collision", _pair_names, (), rate, margin)


def manipulability(
    frame: str,
    minimum: ArrayLike,
    rows: Literal["pose", "position", "orientation"] = "pose",
    rate: ArrayLike = 10.0,
) -> Barrier:
    """A frame's manipulability `sqrt(det(J J^T))` not below a minimum; one row.

    Args:
        frame: name of the frame.
        minimum: (), in the unit of the measure.
        rows: part of the Jacobian.
        rate: see `Barrier`.
    """
    return Barrier(_Manipulability(frame, rows), 2, f"{frame} manipulability", None, minimum, rate)


def contact_force(
    frame: str,
    limit: ArrayLike,
    shapes: Sequence[str],
    normal: Sequence[float] | ArrayLike = (0.0, 0.0, 1.0),
    offset: ArrayLike = 0.0,
    friction: ArrayLike = 0.0,
    rate: ArrayLike = 100.0,
    approach: ArrayLike = 5.0,
    share: ArrayLike = 0.5,
) -> Barrier:
    """A tool that presses on a plane with no more than a limit; two rows, m/s.

    Let `m = 1 / (n^T J M^-1 J^T n)` be the mass of the tool as the plane feels it. Its velocity
    along the normal has to be more than `-f / (rate m)`, where `f = share limit`, and may be less
    by `approach` times its distance. So where it touches, its acceleration satisfies

        -m n^T a <= f - rate m |n^T J v|:

    torques push with `f` at most, less what a contact adds that stops a tool at this speed, if the
    contact's damping is at most `rate` (of MuJoCo's, 2 / (dmax timeconst) of `solref`). One
    row is for a tool that touches at a point, the other for one that lies flat on the plane, whose
    mass is that of a tool that cannot turn.

    Args:
        frame: of the tool, a point of it that touches.
        limit: N.
        shapes: names of the collision shapes that touch; of distances, as in `obstacles`.
        normal: (3,), unit, from the plane to the tool.
        offset: (), m, of the plane along the normal.
        friction: coefficient of the contact. Where a tool slides, soft contacts as MuJoCo's press
            as if it came nearer at as much of its speed.
        rate: 1/s, see `Barrier`.
        approach: 1/s.
        share: of the limit, that torques push with. The rest is for what the contact's spring adds.
    """
    kind = _Pressing(frame, tuple(shapes))
    numbers = (limit, normal, offset, friction, approach, share)
    return Barrier(kind, 1, f"{frame} force", _force_names, numbers, rate)


def barrier_names(
    robot: Robot, barriers: Sequence[Barrier], obstacles: Obstacles = NO_OBSTACLES
) -> tuple[str, ...]:
    """Names of all barriers' rows, in order, such as "self-collision: hand_1 - link0_1"."""
    names: list[str] = []
    for barrier in barriers:
        if barrier.row_names is not None:
            rows = barrier.row_names(robot, obstacles)
        else:
            rows = [str(i) for i in range(_row_count(robot, barrier, obstacles))]
        names += [f"{barrier.name}: {row}" for row in rows]
    return tuple(names)


def _row_count(robot: Robot, barrier: Barrier, obstacles: Obstacles) -> int:
    def values(q: Array) -> Array:
        terms = compute_terms(robot, q, jnp.zeros(robot.nv))
        here = situation(robot, terms, obstacles)
        return barrier.function(robot, here, barrier)

    return int(jax.eval_shape(values, jnp.asarray(robot.q_default, float)).shape[0])


def _joint_position(robot: Robot, x: Situation, _: Barrier) -> Array:
    lower, upper = _arm_limits(robot, jnp.asarray(robot.position_limits, x.q.dtype).T)
    position = scalar_coordinates(robot, x.q)
    return jnp.concatenate([_above(position, lower), _above(-position, -upper)])


def _joint_velocity(robot: Robot, x: Situation, _: Barrier) -> Array:
    limit = jnp.asarray(robot.velocity_limits, x.v.dtype)
    lower, upper = _arm_limits(robot, (-limit, limit))
    return jnp.concatenate([_above(x.v, lower), _above(-x.v, -upper)])


def _arm_limits(robot: Robot, limits: Any) -> tuple[Array, Array]:
    """Lower and upper limits (nv,), none of fingers, which the filter leaves to their servo."""
    lower, upper = limits
    fingers = finger_mask(robot)
    if not fingers.any():
        return lower, upper
    return jnp.where(fingers, -jnp.inf, lower), jnp.where(fingers, jnp.inf, upper)


def _above(x: Array, lower: Array) -> Array:
    """`x - lower`, and `NO_LIMIT` where there is none."""
    limited = jnp.isfinite(lower)
    return jnp.where(limited, x - jnp.where(limited, lower, 0), NO_LIMIT)


def _limit_names(robot: Robot, _: Obstacles) -> list[str]:
    return [f"{joint} {side}" for side in ("lower", "upper") for joint in robot.topology.dof_names]


def _box_names(robot: Robot, _: Obstacles) -> list[str]:
    return [f"{axis} {side}" for side in ("lower", "upper") for axis in "xyz"]


def _pair_names(robot: Robot, _: Obstacles) -> tuple[str, ...]:
    return self_distance_names(robot)


@dataclass(frozen=True)
class _InBox:
    frame: str

    def __call__(self, robot: Robot, x: Situation, barrier: Barrier) -> Array:
        position, _ = frame_pose(robot, x.q, self.frame, kin=x.kin)
        lower, upper = (jnp.asarray(b, position.dtype) for b in barrier.parameters)
        return jnp.concatenate([_above(position, lower), _above(-position, -upper)])


def _body_in_box(robot: Robot, x: Situation, barrier: Barrier) -> Array:
    lower, upper = (jnp.asarray(b, x.q.dtype) for b in barrier.parameters)
    sides = [
        _plane_distances(robot, x, sign * axis, sign * bound[i])
        for sign, bound in ((1.0, lower), (-1.0, upper))
        for i, axis in enumerate(np.eye(3))
    ]
    return jnp.concatenate(sides)


def _above_plane(robot: Robot, x: Situation, barrier: Barrier) -> Array:
    normal, offset = (jnp.asarray(p, x.q.dtype) for p in barrier.parameters)
    return _plane_distances(robot, x, normal, offset)


@dataclass(frozen=True)
class _AbovePlane:
    shapes: tuple[str, ...]

    def __call__(self, robot: Robot, x: Situation, barrier: Barrier) -> Array:
        normal, offset = (jnp.asarray(p, x.q.dtype) for p in barrier.parameters)
        return _plane_distances(robot, x, normal, offset, self.shapes)


def _plane_distances(
    robot: Robot,
    x: Situation,
    normal: ArrayLike,
    offset: Array,
    shapes: tuple[str, ...] | None = None,
) -> Array:
    """Distances (r,), m, of collision shapes above a plane; `NO_LIMIT` at infinity."""
    there = jnp.isfinite(offset)
    normal = jnp.asarray(normal, x.q.dtype)[None]
    plane = HalfSpace(normal, jnp.where(there, offset, 0)[None])
    around = Obstacles(half_spaces=plane)
    distances = obstacle_distances(robot, x.q, around, shapes=shapes, geometry=x.geometry)[:, 0]
    return jnp.where(there, distances, NO_LIMIT)


@dataclass(frozen=True)
class _OffObstacles:
    shapes: tuple[str, ...] | None
    bounded_curvature: bool = False

    def __call__(self, robot: Robot, x: Situation, _: Barrier) -> Array:
        pairs = obstacle_distances(
            robot,
            x.q,
            x.obstacles,
            shapes=self.shapes,
            geometry=x.geometry,
            bounded_curvature=self.bounded_curvature,
        ).ravel()
        if not self.bounded_curvature:
            return pairs
        ends = end_distances(robot, x.q, x.obstacles, shapes=self.shapes, geometry=x.geometry)
        return jnp.concatenate([pairs, ends.ravel()])

    def names(self, robot: Robot, obstacles: Obstacles) -> tuple[str, ...]:
        pairs = obstacle_distance_names(robot, obstacles, shapes=self.shapes)
        if not self.bounded_curvature:
            return pairs
        return pairs + end_distance_names(robot, obstacles, shapes=self.shapes)


def _self_collision(robot: Robot, x: Situation, _: Barrier) -> Array:
    return self_distances(robot, x.q, geometry=x.geometry)


def _self_collision_bounded(robot: Robot, x: Situation, _: Barrier) -> Array:
    return self_distances(robot, x.q, geometry=x.geometry, bounded_curvature=True)


@dataclass(frozen=True)
class _Pressing:
    frame: str
    shapes: tuple[str, ...]

    def __call__(self, robot: Robot, x: Situation, barrier: Barrier) -> Array:
        dtype = x.v.dtype
        numbers = (jnp.asarray(p, dtype) for p in barrier.parameters)
        limit, normal, offset, friction, approach, share = numbers
        plane = Obstacles(half_spaces=HalfSpace(normal[None], offset[None]))
        distance = jnp.min(
            obstacle_distances(robot, x.q, plane, shapes=self.shapes, geometry=x.geometry)
        )
        # Along the normal, and turning.
        J = frame_jacobian(robot, x.q, self.frame, kin=x.kin)
        velocity = matmul(J[:3], x.v)
        slip = norm(velocity - jnp.dot(normal, velocity) * normal)
        J = jnp.concatenate([matmul(normal, J[:3])[None], J[3:]])
        # What is felt of them at a point, and flat on the plane, changes slowly.
        q, kin, rows = jax.lax.stop_gradient((x.q, x.kin, J))
        X = solve_upper(cholesky(crba(robot, q, kin=kin)), rows.T)
        compliance = matmul(X.T, X)
        turning = SINGULAR * jnp.mean(jnp.diagonal(compliance)[1:])
        damped = compliance + jnp.diag(jnp.array([0.0, 1.0, 1.0, 1.0], dtype)) * turning
        first = jnp.array([1.0, 0.0, 0.0, 0.0], dtype)
        flat = cholesky_solve(cholesky(damped), first)
        mass = jnp.stack([1.0 / compliance[0, 0], flat[0]])
        felt = jnp.stack([first, flat / flat[0]])
        speed = share * limit / (jnp.asarray(barrier.rate, dtype) * mass)
        nearer = matmul(felt, matmul(J, x.v)) - friction * slip
        return nearer + speed + approach * jnp.maximum(distance, 0.0)


def _force_names(robot: Robot, _: Obstacles) -> list[str]:
    return ["at a point", "flat on the plane"]


@dataclass(frozen=True)
class _Manipulability:
    frame: str
    rows: Literal["pose", "position", "orientation"]

    def __call__(self, robot: Robot, x: Situation, barrier: Barrier) -> Array:
        measure = manipulability_of(robot, x.q, self.frame, rows=self.rows, kin=x.kin)
        return (measure - jnp.asarray(barrier.parameters, measure.dtype))[None]
