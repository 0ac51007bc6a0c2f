"""Motions among obstacles: paths from several seeds, of which the shortest that is free is taken.

A path is a cubic B-spline in joint space whose control points stay within the joint limits, and so
does all of it. From each seed, gradients of its length and of how near it comes to obstacles move
them.

Source: Zucker et al., "CHOMP: covariant Hamiltonian optimization for motion planning" (IJRR 32,
2013), section 3, of the cost; Kingma and Ba, "Adam: a method for stochastic optimization" (ICLR
2015), of the steps; several seeds as in Sundaralingam et al., "cuRobo" (ICRA 2023).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import (
    Obstacles,
    Robot,
    forward_kinematics,
    obstacle_distances,
    random_configuration,
    self_distances,
)
from fraxenv.dynamics.kinematics import checked_configuration
from fraxenv.dynamics.math.algebra import matmul, norm
from fraxenv.errors import ConfigError, check_count
from fraxenv.kernels import fusible

from ..hands import EndEffectors
from ..safety.barriers import NO_OBSTACLES
from .inverse_kinematics import inverse_kinematics
from .splines import b_spline
from .states import displacement

RATE = 0.1
"""Of the first step, rad and m; it falls to zero with the last."""

KEEP, KEEP_SQUARE, SMALL = 0.9, 0.99, 1e-6
"""Of Adam's means of the gradient and of its square, and what its root does not fall below."""

WEIGHT = 30.0
"""Of what is nearer than the margin, beside the square of the path's length, rad^2 and m^2."""

TRIES = 4
"""Configurations at a target that are looked for, for each seed."""

FINER = 4
"""Points at which a path is judged, for each of those that move it."""

LEAST_DURATION = 0.01
"""Of a motion, s."""


class Motion(NamedTuple):
    """A motion from rest to rest.

    Attributes:
        q: (n + 1, nq), rad and m, at equal intervals of time.
        v: (n + 1, nv), rad/s and m/s.
        duration: (), s.
        clearance: (), m, the least distance from obstacles, and of the robot from itself.
        found: () bool, whether nothing touches anything.
    """

    q: Array
    v: Array
    duration: Array
    clearance: Array
    found: Array


def reach(
    robot: Robot,
    q: ArrayLike,
    goal: ArrayLike | tuple[ArrayLike, ArrayLike | None],
    obstacles: Obstacles = NO_OBSTACLES,
    *,
    end_effector: EndEffectors | None = None,
    key: Array | None = None,
    seeds: int = 16,
    controls: int = 8,
    points: int = 32,
    iterations: int = 60,
    margin: ArrayLike = 0.03,
    speed: ArrayLike = 0.5,
    backend: str = "auto",
) -> Motion:
    """A motion to a configuration, or to a pose, that touches no obstacle, nor the robot itself.

    Of the paths that the seeds lead to it is the shortest that is free; where none is, it is that
    which is nearest to being so. Joint limits are kept exactly. It is looked at in as many places
    as `Motion.q` has: thin obstacles want more `points`. One motion at a time: `jax.vmap` makes
    motions and seeds the lanes of one kernel.

    Args:
        robot: the model, with collision shapes; without joints of quaternions.
        q: (nq,), rad and m, where it begins, at rest; within the limits.
        goal: (nq,), rad and m, where it ends, at rest; within the limits. Continuous joints take
            the short way round. With `end_effector` the target of `inverse_kinematics`; seeds then
            end in configurations of their own that reach it.
        obstacles: in the world, at rest.
        end_effector: name of the frame that the target is of; or several in a tuple.
        key: for the seeds, which go by way of random configurations, the first of them straight;
            `jax.random.key(0)` if omitted.
        seeds: how many.
        controls: control points of the spline, of which two at either end do not move.
        points: of the path at which gradients are computed; `Motion.q` has four times as many.
        iterations: of each seed.
        margin: distance, m, below which paths are pushed away.
        speed: share of the robot's velocity limits that the fastest joint reaches; a joint without
            one moves at as many rad/s or m/s.
        backend: of the kernels; see `fraxenv.fuse`.

    Raises:
        ArrayError: an array has the wrong shape.
        UnknownNameError: the robot has no such frame.
        ConfigError: the robot has quaternions, or a number is not possible.
    """
    if robot.topology.quaternions:
        raise ConfigError(
            f"reach: robot {robot.name!r} has joints of quaternions, expected one with joints of "
            "one axis each, such as an arm on a fixed base."
        )
    check_count("reach: seeds", seeds)
    check_count("reach: controls", controls, least=5)
    check_count("reach: points", points, least=2)
    check_count("reach: iterations", iterations)
    dtype = jnp.result_type(float)
    begin = checked_configuration(robot, q).astype(dtype)
    if isinstance(goal, tuple) and end_effector is None:
        raise ConfigError(
            "reach: goal is a tuple, a target, expected a configuration (nq,), or `end_effector`, "
            "the frame whose target it is."
        )
    target: Any = goal
    width = jnp.asarray(margin, dtype)
    lower, upper = jnp.asarray(robot.position_limits, dtype).T

    rough, rough_slope = (jnp.asarray(x, dtype) for x in _basis(points, controls))
    fine, fine_slope = (jnp.asarray(x, dtype) for x in _basis(FINER * points + 1, controls))

    def whole(free: Array, end: Array) -> Array:
        """All control points: two at either end keep it at rest there."""
        return jnp.concatenate([jnp.stack([begin, begin]), free, jnp.stack([end, end])])

    def clearance(q: Array) -> Array:
        """All distances at a configuration, m."""
        poses = forward_kinematics(robot, q)
        around = obstacle_distances(robot, q, obstacles, kin=poses).ravel()
        return jnp.concatenate([around, self_distances(robot, q, kin=poses)])

    key = jax.random.key(0) if key is None else key
    tries = seeds if end_effector is None else TRIES * seeds
    drawn = jax.vmap(lambda k: random_configuration(robot, k))(jax.random.split(key, tries))
    drawn = jnp.clip(drawn.astype(dtype), lower, upper)

    def turned(goal: ArrayLike) -> Array:
        """A goal, its continuous joints the short way round."""
        return begin + displacement(robot, begin, checked_configuration(robot, goal).astype(dtype))

    def nearest(q: Array) -> Array:
        return jnp.min(clearance(q), initial=jnp.inf)

    def reached(hand: EndEffectors, near: Array) -> tuple[Array, Array]:
        """A configuration at the target, and how far it is from the first; infinitely, if bad."""
        at = inverse_kinematics(robot, hand, target, near=near, seeds=1, backend=backend)
        end = turned(at.q)
        good = at.found & (fusible(nearest, backend)(end) > 0)
        return end, jnp.where(good, norm(end - begin), jnp.inf)

    if end_effector is None:
        ends, any_end = jnp.broadcast_to(turned(target), (seeds, robot.nv)), jnp.array(True)
    else:
        found, away = jax.vmap(partial(reached, end_effector))(drawn.at[0].set(begin))
        good = jnp.sum(jnp.isfinite(away))
        # The nearest first; where they are few, several seeds end in one.
        ends = found[jnp.argsort(away)[jnp.arange(seeds) % jnp.maximum(good, 1)]]
        any_end = good > 0

    def nearness(q: Array) -> Array:
        below = jnp.maximum(1 - clearance(q) / width, 0.0)
        return WEIGHT / points * jnp.sum(below * below)

    def slope(free: Array, end: Array) -> Array:
        """Of a path's cost, by its free control points."""
        path = whole(free, end)
        moving = matmul(rough_slope, path)

        def point(total: Array, at: tuple[Array, Array]) -> tuple[Array, None]:
            row, q = at
            return total + row[:, None] * jax.grad(nearness)(q), None

        short = matmul(rough_slope.T, moving) / points
        return jax.lax.scan(point, short, (rough, matmul(rough, path)))[0][2:-2]

    def refined(free: Array, end: Array) -> tuple[Array, Array, Array]:
        """A path from a seed; its clearance, m; and the square of its length."""

        def advanced(now: tuple[Array, ...], count: Array) -> tuple[tuple[Array, ...], None]:
            free, mean, square = now
            g = slope(free, end)
            mean = KEEP * mean + (1 - KEEP) * g
            square = KEEP_SQUARE * square + (1 - KEEP_SQUARE) * g * g
            unbiased = mean / (1 - KEEP ** (count + 1))
            size = jnp.sqrt(square / (1 - KEEP_SQUARE ** (count + 1))) + SMALL
            rate = RATE * (1 - count / iterations)
            return (jnp.clip(free - rate * unbiased / size, lower, upper), mean, square), None

        zero = jnp.zeros_like(free)
        start: tuple[Array, ...] = free, zero, zero
        count = jnp.arange(iterations, dtype=dtype)
        last, _ = jax.lax.scan(advanced, start, count)
        path = whole(last[0], end)

        def look(least: Array, q: Array) -> tuple[Array, None]:
            return jnp.minimum(least, nearest(q)), None

        far = jnp.full((), jnp.inf, dtype)
        least = jax.lax.scan(look, far, matmul(fine, path))[0]
        return path, least, jnp.sum(matmul(fine_slope, path) ** 2) / len(fine)

    first = _seeds(begin, ends, drawn[:seeds], controls - 4)
    paths, least, length = jax.vmap(fusible(refined, backend))(first, ends)

    least = jnp.where(jnp.isnan(least), -jnp.inf, least)
    free = any_end & (least > 0)
    short = jnp.argmin(jnp.where(free, length, jnp.inf))
    which = jnp.where(jnp.any(free), short, jnp.argmax(least))
    path = paths[which]
    along, limits = matmul(fine_slope, path), jnp.asarray(robot.velocity_limits, dtype)
    limited = jnp.isfinite(limits)
    fastest = jnp.max(jnp.abs(along) / jnp.where(limited, limits, 1.0))
    duration = jnp.maximum(fastest / jnp.asarray(speed, dtype), LEAST_DURATION)
    return Motion(matmul(fine, path), along / duration, duration, least[which], free[which])


def _basis(points: int, controls: int) -> tuple[np.ndarray, np.ndarray]:
    return b_spline(np.linspace(0, 1, points), controls)


def _seeds(begin: Array, ends: Array, by: Array, count: int) -> Array:
    """Free control points (seeds, count, nv): by way of other configurations, the first straight.

    Later ones go further out of their way.
    """
    s = jnp.linspace(0, 1, count + 2, dtype=begin.dtype)[1:-1, None]
    straight = begin + s * (ends - begin)[:, None]
    share = jnp.linspace(0, 1, len(by), dtype=begin.dtype)[:, None, None]
    out = share * (4 * s * (1 - s))
    return (1 - out) * straight + out * by[:, None]
