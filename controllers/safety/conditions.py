"""Conditions: what barriers demand of the robot's accelerations, or of its velocities.

The accelerations that keep a barrier of relative degree two safe satisfy

    d2h/dt2 + 2 rate dh/dt + rate^2 (h - margin) >= 0,

so that `h` approaches its margin no faster than a critically damped system does. Those of a barrier
of relative degree one satisfy

    dh/dt + rate (h - margin) >= 0.

The derivatives are found by `jax.jvp` along the robot's motion: a barrier is one function, and
needs none of its own.

Sources: Ames, Xu, Grizzle and Tabuada, "Control barrier function based quadratic programs for
safety critical systems", IEEE TAC 62(8), 2017; Xiao and Belta, "High-order control barrier
functions", IEEE TAC 67(7), 2022.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fraxenv.dynamics import (
    Kinematics,
    Obstacles,
    Robot,
    RobotGeometry,
    coordinate_rates,
    obstacle_rates,
    robot_geometry_rate,
)
from fraxenv.dynamics.body_motion import body_twists, kinematics_rate
from fraxenv.dynamics.math.algebra import matmul

from .barriers import Barrier, Situation


class Conditions(NamedTuple):
    """The safe changes of acceleration, or of velocity, `x` (nv,) at one state: `A x >= b`.

    Attributes:
        values: (m,), of the barriers.
        A: the linear function `x -> A x`, (nv,) -> (m,).
        b: (m,), positive where the state is not safe without a change.
        rows: how many of them are each barrier's.
    """

    values: Array
    A: Callable[[Array], Array]
    b: Array
    rows: tuple[int, ...] = ()

    def matrix(self, nv: int) -> Array:
        """`A` (m, nv)."""
        return jax.vmap(self.A)(jnp.eye(nv, dtype=self.b.dtype)).T


def barrier_conditions(
    robot: Robot, barriers: Sequence[Barrier], situation: Situation, a: Array
) -> Conditions:
    """Values of barriers, and the safe changes of the acceleration `a` (nv,).

    With the motion `x(t)` of the situation, `h''` is linear in the acceleration: `h` is
    differentiated twice along the motion, and once along a change of acceleration as if it were a
    velocity.

    Args:
        robot: the model.
        barriers: at least one.
        situation: the robot's state and surroundings.
        a: (nv,), rad/s^2 and m/s^2, to be changed.
    """
    return _concatenated([_acceleration_conditions(robot, b, situation, a) for b in barriers])


def velocity_conditions(
    robot: Robot, barriers: Sequence[Barrier], situation: Situation, v: Array
) -> Conditions:
    """Values of barriers of relative degree two, and the safe changes of the velocity `v` (nv,).

    The barriers are kept as if they were of degree one: `dh/dt + rate (h - margin) >= 0`.
    """
    return _concatenated([_velocity_conditions(robot, b, situation, v) for b in barriers])


def _concatenated(parts: Sequence[Conditions]) -> Conditions:
    return Conditions(
        jnp.concatenate([p.values for p in parts]),
        lambda x: jnp.concatenate([p.A(x) for p in parts]),
        jnp.concatenate([p.b for p in parts]),
        tuple(len(p.b) for p in parts),
    )


def _acceleration_conditions(
    robot: Robot, barrier: Barrier, situation: Situation, a: Array
) -> Conditions:
    v = situation.v
    h, place, moving, rest = _along_motion(robot, barrier, situation)
    rate, margin = jnp.asarray(barrier.rate, v.dtype), jnp.asarray(barrier.margin, v.dtype)
    motion = _rate(robot, place, v, moving)
    if barrier.relative_degree == 1:
        (value, value_rate) = jax.jvp(h, (place, v), (motion, a))

        def by_velocity(da: Array) -> Array:
            change: Array = jax.jvp(lambda v: h(place, v), (v,), (da,))[1]
            return change

        return Conditions(value, by_velocity, -value_rate - rate * (value - margin))

    def h_and_rate(place: _Place, v: Array, moving: Obstacles) -> tuple[Array, Array]:
        moved = _rate(robot, place, v, moving)
        value, rate = jax.jvp(lambda place: h(place, situation.v), (place,), (moved,))
        return value, rate

    # If the motion itself grows at `2 rate`, the rate changes by h'' + 2 rate h'.
    growing = a + 2 * rate * v, jax.tree.map(lambda x: 2 * rate * x, moving)
    (value, _), (_, change) = jax.jvp(h_and_rate, (place, v, moving), (motion, *growing))
    derivative = _directional_derivative(robot, h, place, v, rest)
    return Conditions(value, derivative, -change - rate**2 * (value - margin))


def _velocity_conditions(
    robot: Robot, barrier: Barrier, situation: Situation, v: Array
) -> Conditions:
    h, place, moving, rest = _along_motion(robot, barrier, situation)
    rate, margin = jnp.asarray(barrier.rate, v.dtype), jnp.asarray(barrier.margin, v.dtype)
    motion = _rate(robot, place, v, moving)
    value, value_rate = jax.jvp(lambda place: h(place, situation.v), (place,), (motion,))
    derivative = _directional_derivative(robot, h, place, situation.v, rest)
    return Conditions(value, derivative, -rate * (value - margin) - value_rate)


def _directional_derivative(
    robot: Robot,
    h: Callable[[_Place, Array], Array],
    place: _Place,
    v: Array,
    rest: Obstacles,
) -> Callable[[Array], Array]:
    """Derivative of a barrier of the configuration along a velocity (nv,), in a world at rest."""

    def derivative(direction: Array) -> Array:
        motion = _rate(robot, place, direction, rest)
        change: Array = jax.jvp(lambda place: h(place, v), (place,), (motion,))[1]
        return change

    return derivative


def _along_motion(
    robot: Robot, barrier: Barrier, situation: Situation
) -> tuple[Callable[[_Place, Array], Array], _Place, Obstacles, Obstacles]:
    """The barrier as a function of place and velocity, the place, the world's motion and rest.

    The obstacles' mask is no part of the place, since it has no derivative; nor are their
    velocities, which are constant.
    """
    dtype = situation.v.dtype
    world = situation.obstacles
    still = dataclasses.replace(world, active=None, velocity=None, walls=None)
    parts = (situation.q, situation.kin, situation.geometry)
    place = _Place(*parts, jax.tree.map(lambda x: jnp.asarray(x, dtype), still))
    moving = obstacle_rates(world, dtype)

    def h(place: _Place, v: Array) -> Array:
        around = dataclasses.replace(place.obstacles, active=world.active, velocity=world.velocity)
        seen = Situation(place.q, v, place.kin, place.geometry, around, situation.scene)
        return barrier.function(robot, seen, barrier).astype(dtype)

    return h, place, moving, jax.tree.map(jnp.zeros_like, moving)


class _Place(NamedTuple):
    """The part of a situation that moves."""

    q: Array
    kin: Kinematics
    geometry: RobotGeometry
    obstacles: Obstacles


def _rate(robot: Robot, place: _Place, v: Array, world: Obstacles) -> _Place:
    """Time derivative of a place: the robot moves with `v` (nv,), the obstacles with `world`."""
    twists = body_twists(robot, place.kin, v)
    return _Place(
        matmul(coordinate_rates(robot, place.q), v),
        kinematics_rate(robot, place.kin, twists),
        robot_geometry_rate(robot, place.geometry, place.kin, twists),
        world,
    )
