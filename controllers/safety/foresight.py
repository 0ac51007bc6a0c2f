"""Foresight: whether the robot has a way out of what moves, and which.

A way out is a motion that the robot can begin now, at a velocity `w` that it comes to as it brakes,

    dv/dt = share RATE (w - v),

with a share of the rate that torques suffice for. So where it will be is known in closed form, and
so is where obstacles will be, at their velocities: a way is as good as the least value that a
barrier has at some moments of it. To brake is the first way; where that does not keep off what
moves, more are tried, in directions drawn once for all, and the best one is bent up the gradient.
It is taken at once: who goes on until no other way is left comes to where none is left at all.
Where none keeps a margin off what moves, another one is searched without.

Sources: Gurriet, Mote, Singletary, Nilsson, Feron and Ames, "A scalable safety critical control
framework for nonlinear systems", IEEE Access 8, 2020 (backup policies); Agrawal, Chen and Panagou,
"gatekeeper: online safety verification and control for nonlinear systems in dynamic environments",
IEEE T-RO 40, 2024.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import (
    Obstacles,
    Robot,
    Terms,
    compute_kinematics,
    grown_obstacles,
    integrate,
    move_obstacles,
    robot_geometry,
)
from fraxenv.dynamics.manifold import scalar_coordinates
from fraxenv.dynamics.math.algebra import matmul, norm
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError, check_count, check_not_negative, is_concrete

from ..groups import finger_mask
from .barriers import Barrier, Situation
from .braking import RATE, largest_share

MOMENTS = np.array([0.09, 0.2, 0.34, 0.51, 0.71, 1.0])
"""Of the horizon, at which a way is looked at: closer together at first."""

FASTEST = 2.0
"""rad/s and m/s, of a way, and no more than `LIMIT` times a joint's limit of speed."""

LIMIT = 0.9

SIZES = (0.7, 1.5, 3.0, 6.0)
"""Of the ways that are drawn, in turns, relative to `FASTEST` along one joint."""

LEAST_SHARE = 0.05
"""Of the rate, however little torque there is left."""

SOFTNESS = 0.02
"""Over which of its values a barrier counts besides the least one, where ways are compared."""

STEPS = 24
"""Up the gradient, of the best way."""

STEP, LONGER, SHORTER = 0.5, 1.5, 0.4
"""The first step, relative to `FASTEST` along one joint, and what becomes of it."""


@pytree_dataclass
class Foresight:
    """How a filter looks for ways out of what moves; see `SafetyFilter.look_ahead`.

    Attributes:
        margin: m, that a way has to keep off obstacles that move, since they may turn.
        reaction: s; the margin is no more than an obstacle moves in this time.
        horizon: s, that a way is foreseen.
        ways: how many are tried where to brake is none.

    Raises:
        ConfigError: a number is negative, `horizon` is zero, or `ways` is not a whole number.
    """

    margin: ArrayLike = 0.06
    reaction: ArrayLike = 0.2
    horizon: ArrayLike = 0.35
    ways: int = static(default=64)

    def __post_init__(self) -> None:
        check_not_negative(self, "margin", "reaction", "horizon")
        if is_concrete(self.horizon) and not np.all(np.asarray(self.horizon) > 0):
            raise ConfigError(f"Foresight: horizon={self.horizon!r}, expected a positive time, s.")
        check_count("Foresight: ways", self.ways)


class WayOut(NamedTuple):
    """The best way that was found; all ways are those of arms, and fingers stay where they are.

    Attributes:
        velocity: (nv,), rad/s and m/s, that the robot comes to; zero for a robot that brakes.
        taken: whether it is taken now, since to brake does not keep the margin.
        wide: whether it keeps the margin.
    """

    velocity: Array
    taken: Array
    wide: Array


def way_out(
    robot: Robot,
    terms: Terms,
    barriers: Sequence[Barrier],
    obstacles: Obstacles,
    foresight: Foresight,
    scene: Any = None,
) -> WayOut:
    """The best way out with the margin, for barriers that approach at a `rate` of at most `RATE`.

    Args:
        robot: the model, each of whose joints has a motor.
        terms: its terms at this state.
        barriers: at least one.
        obstacles: in the world.
        foresight: how to look.
        scene: see `Situation`.

    Raises:
        ConfigError: the robot has joints that no motor drives, such as a floating base.
    """
    if len(robot.topology.driven) != robot.nv:
        raise ConfigError(
            f"foresight of robot {robot.name!r}, {robot.nv - len(robot.topology.driven)} of whose "
            f"{robot.nv} degrees of freedom have no motor, expected a robot that can take up any "
            "velocity. Leave `foresight` of the filter at None."
        )
    # A way is a constant to derivatives: another one is not a little different.
    terms, obstacles, foresight = jax.lax.stop_gradient((terms, obstacles, foresight))
    dtype = terms.v.dtype
    wider = grown_obstacles(obstacles, _allowances(obstacles, foresight, dtype))
    values = _Values(robot, terms, barriers, foresight, scene)
    braking = _braking(values, wider)
    best: _Found = jax.lax.cond(
        braking.room >= 0, lambda: braking, lambda: _better(values, wider, braking)
    )
    return WayOut(best.velocity, braking.room < 0, ~(best.room < 0))


def closer_way(
    robot: Robot,
    terms: Terms,
    barriers: Sequence[Barrier],
    obstacles: Obstacles,
    foresight: Foresight,
    way: WayOut,
    scene: Any = None,
) -> WayOut:
    """The best way out without a margin, where none keeps it; see `way_out`, whose result `way` is.

    The best of those that do not keep it may go through what rests to keep far from what moves.
    """
    terms, obstacles, foresight, way = jax.lax.stop_gradient((terms, obstacles, foresight, way))
    if obstacles.velocity is None:
        return way
    values = _Values(robot, terms, barriers, foresight, scene)
    velocity = jax.lax.cond(
        way.wide,
        lambda: way.velocity,
        lambda: _better(values, obstacles, _braking(values, obstacles)).velocity,
    )
    return way._replace(velocity=velocity)


def is_clear(
    robot: Robot,
    terms: Terms,
    barriers: Sequence[Barrier],
    obstacles: Obstacles,
    foresight: Foresight,
    velocity: Array,
    scene: Any = None,
) -> Array:
    """Whether all barriers stay positive on the way out at a velocity (nv,); see `way_out`."""
    terms, obstacles, foresight = jax.lax.stop_gradient((terms, obstacles, foresight))
    values = _Values(robot, terms, barriers, foresight, scene)
    return values.least(velocity, obstacles) > 0


def escape_torque(robot: Robot, terms: Terms, velocity: Array) -> Array:
    """Torque (nv,), N m and N, that takes up a way out at `velocity` (nv,), rad/s and m/s."""
    push, share = _push(robot, terms, velocity)
    return terms.bias + share * push


def _push(robot: Robot, terms: Terms, velocity: Array) -> tuple[Array, Array]:
    """Torque (nv,) of a way at the full rate, and the share of it for which there is enough."""
    limit = jnp.asarray(robot.effort_limits, velocity.dtype)
    change = jnp.where(finger_mask(robot), 0.0, RATE * (velocity - terms.v))
    push = matmul(terms.mass_matrix, change)
    share = largest_share(push, terms.bias, -limit, limit)
    return push, jnp.clip(share, LEAST_SHARE, 1.0)


def _allowances(obstacles: Obstacles, foresight: Foresight, dtype: Any) -> Array | None:
    """By how much (m,), m, a way has to keep off each obstacle; None if none moves."""
    if obstacles.velocity is None:
        return None
    margin, reaction = (jnp.asarray(x, dtype) for x in (foresight.margin, foresight.reaction))
    speed = jax.vmap(norm)(jnp.asarray(obstacles.velocity, dtype))
    return jnp.minimum(margin, reaction * speed)


@dataclasses.dataclass(frozen=True)
class _Values:
    """Values of barriers along ways."""

    robot: Robot
    terms: Terms
    barriers: Sequence[Barrier]
    foresight: Foresight
    scene: Any

    def least(self, velocity: Array, obstacles: Obstacles) -> Array:
        """The least value along the way at a velocity (nv,)."""
        start = jnp.full((), jnp.inf, velocity.dtype)

        def more(least: Array, new: Array) -> Array:
            return jnp.minimum(least, jnp.min(new, initial=jnp.inf))

        return self._along(velocity, obstacles, start, more)

    def soft(self, velocity: Array, obstacles: Obstacles) -> Array:
        """A smooth function that is about the least value."""

        def more(total: Array, new: Array) -> Array:
            return total + jnp.sum(jnp.exp(-jnp.clip(new / SOFTNESS, -60.0, 20.0)))

        start = jnp.full((), 1e-9, velocity.dtype)
        return -SOFTNESS * jnp.log(self._along(velocity, obstacles, start, more))

    def _along(
        self,
        velocity: Array,
        obstacles: Obstacles,
        start: Array,
        more: Callable[[Array, Array], Array],
    ) -> Array:
        robot, q, v = self.robot, self.terms.q, self.terms.v
        arm = ~finger_mask(robot)
        _, share = _push(robot, self.terms, velocity)
        rate = RATE * share

        def at(total: Array, t: Array) -> tuple[Array, None]:
            left = jnp.exp(-rate * t)
            way = velocity * t + (v - velocity) * (1 - left) / rate
            there = integrate(robot, q, jnp.where(arm, way, 0.0), 1.0)
            moving = jnp.where(arm, velocity + (v - velocity) * left, v)
            kin = compute_kinematics(robot, there)
            geometry = robot_geometry(robot, there, kin=kin)
            around = move_obstacles(obstacles, t)
            seen = Situation(there, moving, kin, geometry, around, self.scene)
            for barrier in self.barriers:
                total = more(total, barrier.function(robot, seen, barrier).astype(q.dtype))
            return total, None

        moments = jnp.asarray(self.foresight.horizon, q.dtype) * jnp.asarray(MOMENTS, q.dtype)
        total: Array = jax.lax.scan(at, start, moments)[0]
        return total


def _braking(values: _Values, obstacles: Obstacles) -> _Found:
    rest = jnp.zeros_like(values.terms.v)
    return _Found(rest, values.least(rest, obstacles))


class _Found(NamedTuple):
    """The best velocity (nv,), rad/s and m/s, that was found, and the least value of a barrier, in
    its own unit, along its way.
    """

    velocity: Array
    room: Array


def _better(values: _Values, obstacles: Obstacles, found: _Found) -> _Found:
    """The better of what was found and the best of more ways, bent up the gradient."""
    robot, v, foresight = values.robot, values.terms.v, values.foresight
    dtype = v.dtype
    speed = jnp.asarray(robot.velocity_limits, dtype)
    fastest = jnp.minimum(LIMIT * speed, FASTEST)
    # At no such velocity does a joint go beyond its limits within the horizon.
    limits = jnp.asarray(robot.position_limits, dtype).T
    left = (limits - scalar_coordinates(robot, values.terms.q)) / foresight.horizon
    lower, upper = jnp.maximum(-LIMIT * speed, left[0]), jnp.minimum(LIMIT * speed, left[1])

    def drawn(best: _Climb, way: Array) -> tuple[_Climb, None]:
        velocity = jnp.clip(way * fastest, lower, upper)
        value = values.soft(velocity, obstacles)
        wins = value > best.value
        return best._replace(
            velocity=jnp.where(wins, velocity, best.velocity),
            value=jnp.where(wins, value, best.value),
        ), None

    def climbed(best: _Climb, _: None) -> tuple[_Climb, None]:
        velocity = jnp.clip(best.velocity + best.step * best.up, lower, upper)
        value, slope = jax.value_and_grad(values.soft)(velocity, obstacles)
        slope = slope * fastest
        length = norm(slope)
        up = jnp.where(length > 0, slope / jnp.where(length > 0, length, 1.0), 0.0) * fastest
        wins = value > best.value
        return _Climb(
            jnp.where(wins, velocity, best.velocity),
            jnp.where(wins, value, best.value),
            jnp.where(wins, up, best.up),
            best.step * jnp.where(wins, LONGER, SHORTER),
        ), None

    rest, lowest = jnp.zeros_like(v), jnp.full((), -jnp.inf, dtype)
    start = _Climb(rest, lowest, rest, jnp.full((), STEP, dtype))
    ways = jnp.asarray(_directions(foresight.ways, len(v)), dtype)
    best: _Climb = jax.lax.scan(drawn, start, ways)[0]
    # The first step is none: it finds the slope.
    best = jax.lax.scan(climbed, best._replace(value=lowest), None, STEPS + 1)[0]
    room = values.least(best.velocity, obstacles)
    wins = room > found.room
    return _Found(jnp.where(wins, best.velocity, found.velocity), jnp.where(wins, room, found.room))


class _Climb(NamedTuple):
    """The best way so far, how good it is, which way is up (nv,) and how far to step."""

    velocity: Array
    value: Array
    up: Array
    step: Array


def _directions(count: int, nv: int) -> np.ndarray:
    """Ways (count, nv), in all directions, the same ones always."""
    drawn = np.random.default_rng(0).standard_normal((count, nv))
    length = np.linalg.norm(drawn, axis=1, keepdims=True)
    ways: np.ndarray = np.resize(SIZES, count)[:, None] * drawn / length
    return ways
