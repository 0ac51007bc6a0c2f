"""What happens to a commanded torque on its way to the joint: delay, rate, effort and speed limits.

Damping, friction, armature and soft stops are part of the joint, and of `step`.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from .kinematics import tangent
from .model.robot import Robot

SPEED_MARGIN = 0.02
"""Fraction of the velocity limit beyond it over which a motor loses its torque."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ActuatorState:
    """What the motors remember.

    Attributes:
        tau: (nv,), N m and N, last applied.
        commands: (k, nv), N m and N, the last k commands, the newest first; k is the longest delay.
    """

    tau: Array
    commands: Array


def actuator_state(robot: Robot, tau: ArrayLike, *, longest_delay: int = 0) -> ActuatorState:
    """Motors that have been applying `tau` (nv,) for a long time.

    Args:
        robot: the model.
        tau: (nv,), N m and N.
        longest_delay: steps; decides the size of the state.

    Raises:
        ArrayError: `tau` has the wrong shape.
    """
    tau = tangent(robot, "tau", tau)
    return ActuatorState(tau, jnp.tile(tau, (longest_delay, 1)))


def actuate(
    robot: Robot,
    tau: ArrayLike,
    v: ArrayLike,
    state: ActuatorState,
    dt: ArrayLike,
    delay: ArrayLike = 0,
) -> tuple[Array, ActuatorState]:
    """The torque (nv,) that the motors apply, and what they remember of it.

    The command is delayed, its change limited by `robot.effort_rate_limits`, and it is then clipped
    to `effort_bounds`, which always hold.

    Args:
        robot: the model.
        tau: (nv,), N m and N, commanded now.
        v: (nv,), rad/s and m/s.
        state: of the step before, from `actuator_state` at first.
        dt: s, since then.
        delay: steps, at most the state's longest; an integer, which may be traced.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    tau, v = tangent(robot, "tau", tau), tangent(robot, "v", v)
    history = jnp.concatenate([tau[None], state.commands])
    due = tau if len(history) == 1 else history[jnp.clip(delay, 0, len(history) - 1)]
    limited = limit_rate(due, state.tau, jnp.asarray(robot.effort_rate_limits, tau.dtype), dt)
    lower, upper = effort_bounds(robot, v)
    applied = jnp.clip(limited, lower, upper)
    return applied, ActuatorState(applied, history[: len(state.commands)])


def limit_rate(tau: Array, last: Array, rate: Array, dt: ArrayLike) -> Array:
    """The torque (nv,) nearest to `tau` that `last` (nv,) can change to within `dt`, s.

    Args:
        tau: (nv,), N m and N, wanted.
        last: (nv,), N m and N, before.
        rate: (nv,), N m/s and N/s, greatest; infinite where there is none.
        dt: s.
    """
    change = rate * jnp.asarray(dt, tau.dtype)
    return jnp.clip(tau, last - change, last + change)


def effort_bounds(robot: Robot, v: ArrayLike) -> tuple[Array, Array]:
    """Smallest and largest torque (nv,) that the motors can apply at the velocity `v`.

    The effort limits; but nothing that would speed up a joint beyond its velocity limit: the bound
    on that side falls to zero within 2 % above the limit.

    Args:
        robot: the model.
        v: (nv,), rad/s and m/s.

    Raises:
        ArrayError: `v` has the wrong shape.
    """
    v = tangent(robot, "v", v)
    effort = jnp.asarray(robot.effort_limits, v.dtype)
    limit = jnp.asarray(robot.velocity_limits, v.dtype)
    limited = jnp.isfinite(limit)
    width = jnp.where(limited, SPEED_MARGIN * jnp.maximum(limit, 1e-6), 1.0)

    def bound(v: Array) -> Array:
        left = jnp.clip((jnp.where(limited, limit, 0.0) + width - v) / width, 0.0, 1.0)
        # An unlimited effort times zero would not be a number.
        faded = jnp.where(left < 1, jnp.where(left > 0, left * effort, 0.0), effort)
        return jnp.where(limited, faded, effort)

    return -bound(-v), bound(v)
