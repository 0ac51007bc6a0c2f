"""What bounds the torques and velocities that controllers command."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms
from fraxenv.dynamics.manifold import scalar_coordinates

from .base import ControllerState, Telemetry, check_not_negative, remembered, spread


@dataclass(frozen=True, kw_only=True)
class TorqueLimits:
    """Limits that a controller sets itself, within those of the robot.

    Attributes:
        torque_limit: N m and N, scalar or (nv,); None for the robot's `effort_limits` alone.
        torque_rate_limit: N m/s and N/s, scalar or (nv,); with one, infinity for example, the
            robot's `effort_rate_limits` hold as well; None for torques that may jump.
    """

    torque_limit: ArrayLike | None = None
    torque_rate_limit: ArrayLike | None = None

    def __post_init__(self) -> None:
        check_not_negative(self, "torque_limit", "torque_rate_limit")


def first_torque(limits: TorqueLimits, robot: Robot, terms: Terms) -> Array | None:
    """Torque (nv,) that holds the robot still, for `limit_torque` to begin with; None if unused."""
    if limits.torque_rate_limit is None:
        return None
    bound = _bound(limits, robot, terms.bias.dtype)
    return jnp.clip(terms.bias, -bound, bound)


def limit_torque(
    limits: TorqueLimits, robot: Robot, tau: Array, last: Array | None, dt: Array
) -> tuple[Array, Array | None, Telemetry]:
    """Torques (nv,) within the limits of rate and size; what to remember of them; telemetry.

    Telemetry: `saturation`, the fraction of the joints whose torque was changed.

    Args:
        limits: the controller's own.
        robot: the model, with its limits.
        tau: (nv,), N m and N, asked for.
        last: (nv,), of the step before; None if rates are not limited.
        dt: s, since then.
    """
    lower, upper = torque_range(limits, robot, last, dt)
    limited = jnp.clip(tau, lower.astype(tau.dtype), upper.astype(tau.dtype))
    memory = None if limits.torque_rate_limit is None else limited
    return limited, memory, {"saturation": jnp.mean((limited != tau).astype(tau.dtype))}


def torque_range(
    limits: TorqueLimits, robot: Robot, last: Array | None, dt: Array
) -> tuple[Array, Array]:
    """Smallest and largest torque (nv,), N m and N, within the limits of rate and size.

    Args:
        limits: the controller's own.
        robot: the model, with its limits.
        last: (nv,), of the step before; None if rates are not limited.
        dt: s, since then.
    """
    dtype = dt.dtype
    bound = _bound(limits, robot, dtype)
    if limits.torque_rate_limit is None:
        return -bound, bound
    own = spread("torque_rate_limit", limits.torque_rate_limit, bound.shape, dtype)
    change = jnp.minimum(own, jnp.asarray(robot.effort_rate_limits, dtype)) * dt
    before = jnp.clip(remembered("torque_rate_limit", last), -bound, bound)
    return jnp.maximum(before - change, -bound), jnp.minimum(before + change, bound)


def with_torque(state: ControllerState, tau: Array) -> ControllerState:
    """The state of a controller in place of whose torque `tau` (nv,) was applied."""
    return state if state.torque is None else dataclasses.replace(state, torque=tau)


def _bound(limits: TorqueLimits, robot: Robot, dtype: jnp.dtype) -> Array:
    bound = jnp.asarray(robot.effort_limits, dtype)
    if limits.torque_limit is None:
        return bound
    own = spread("torque_limit", limits.torque_limit, bound.shape, dtype)
    return jnp.minimum(own, bound)


def speed_scales(velocity: Array, limits: tuple[ArrayLike, ArrayLike]) -> Array:
    """Factors (k, n), at most 1, that bring velocities (k, n) of k hands within limits of speed.

    Args:
        velocity: 3 linear and perhaps 3 angular numbers for each hand, m/s and rad/s.
        limits: of the linear and of the angular speed; may be infinite.
    """
    k, n = velocity.shape
    limit = jnp.stack([jnp.asarray(x, velocity.dtype) for x in limits])[: n // 3]
    square = jnp.sum(velocity.reshape(k, n // 3, 3) ** 2, axis=-1)
    fast = square > limit * limit
    # Where the limit is infinite or the speed zero, nothing is scaled.
    scale = jnp.where(fast, limit / jnp.sqrt(jnp.where(fast, square, 1.0)), 1.0)
    return jnp.repeat(scale, 3, axis=-1, total_repeat_length=n)


def limit_velocity(robot: Robot, q: Array, v: Array, gain: ArrayLike) -> Array:
    """Joint velocities (nv,) that respect the robot's velocity and position limits.

    All are scaled alike until the fastest is within its velocity limit, so that the hand keeps its
    direction. Towards a position limit a joint is then held below `gain` times what is left of the
    way, and it comes back from beyond the limit (the velocity damper of Faverjon and Tournassoud,
    "A local based approach for path planning of manipulators with a high number of degrees of
    freedom", ICRA 1987).

    Args:
        robot: the model.
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        gain: 1/s.
    """
    speed = jnp.asarray(robot.velocity_limits, v.dtype)
    fast = jnp.abs(v) > speed
    scale = jnp.min(jnp.where(fast, speed / jnp.where(fast, jnp.abs(v), 1.0), 1.0))
    left = jnp.asarray(robot.position_limits, v.dtype) - scalar_coordinates(robot, q)[:, None]
    lower, upper = jnp.clip(jnp.asarray(gain, v.dtype) * left, -speed[:, None], speed[:, None]).T
    return jnp.clip(scale * v, lower, upper)
