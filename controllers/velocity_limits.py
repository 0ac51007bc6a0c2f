"""Limits of commanded velocities, of hands and of joints."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot
from fraxenv.dynamics.manifold import scalar_coordinates
from fraxenv.dynamics.math.tracing import traced_once


@traced_once
def speed_scales(velocity: Array, limits: tuple[ArrayLike, ArrayLike]) -> Array:
    """Factors (k, n), at most 1, that bring velocities (k, n) of k hands within limits of speed.

    Args:
        velocity: (k, 3) linear, or (k, 6) linear and angular, m/s and rad/s.
        limits: of the linear and of the angular speed, m/s and rad/s; may be infinite.
    """
    k, n = velocity.shape
    limit = jnp.stack([jnp.asarray(x, velocity.dtype) for x in limits])[: n // 3]
    square = jnp.sum(velocity.reshape(k, n // 3, 3) ** 2, axis=-1)
    fast = square > limit * limit
    # Where the limit is infinite or the speed zero, nothing is scaled.
    scale = jnp.where(fast, limit / jnp.sqrt(jnp.where(fast, square, 1.0)), 1.0)
    return jnp.repeat(scale, 3, axis=-1, total_repeat_length=n)


@traced_once
def joint_speed_scale(v: Array, limits: Array) -> Array:
    """Factor, at most 1, that brings all joint velocities (nv,) within limits (nv,).

    Where one joint is too fast all are slowed down, so that the hand keeps its direction.

    Args:
        v: rad/s and m/s.
        limits: of the speeds, rad/s and m/s; may be infinite.
    """
    # One division in all: limits are constants of most programs, and so are their inverses.
    inverse = 1 / jnp.maximum(limits, float(np.finfo(v.dtype).tiny))
    return 1 / jnp.maximum(jnp.max(jnp.abs(v) * inverse), 1)


def limit_velocity(robot: Robot, q: Array, v: Array, gain: ArrayLike) -> Array:
    """Joint velocities (nv,) within the robot's velocity and position limits.

    All are scaled alike until the fastest is within its velocity limit, so that the hand keeps its
    direction. Towards a position limit a joint is then held below `gain` times its distance from
    the limit, and it comes back from beyond the limit (the velocity damper of Faverjon and
    Tournassoud, "A local based approach for path planning of manipulators with a high number of
    degrees of freedom", ICRA 1987).

    Args:
        robot: the model.
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s, to be limited.
        gain: 1/s.
    """
    speed = jnp.asarray(robot.velocity_limits, v.dtype)
    left = jnp.asarray(robot.position_limits, v.dtype) - scalar_coordinates(robot, q)[:, None]
    lower, upper = jnp.clip(jnp.asarray(gain, v.dtype) * left, -speed[:, None], speed[:, None]).T
    return jnp.clip(joint_speed_scale(v, speed) * v, lower, upper)
