"""Set-points: interpolation between a pose target and the next one.

Linear in position, and along the geodesic in orientation (Shoemake, "Animating rotation with
quaternion curves", SIGGRAPH 1985).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import orientation_error, rotation_exp
from fraxenv.dynamics.math.algebra import einsum
from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.errors import ConfigError

from .hands import PoseTarget


@pytree_dataclass
class Ramp:
    """Set-points of k hands on their way to goals; a controller's state.

    Attributes:
        position: (k, 3), m, of the set-points, world.
        rotation: (k, 3, 3), of the set-points, to world.
        goal_position: (k, 3), m, world.
        goal_rotation: (k, 3, 3), to world.
        time_left: (), s, until the goals are reached.
    """

    position: Array
    rotation: Array
    goal_position: Array
    goal_rotation: Array
    time_left: Array


def ramp_at(position: Array, rotation: Array) -> Ramp:
    """Set-points at rest at these poses, (k, 3) and (k, 3, 3)."""
    return Ramp(position, rotation, position, rotation, jnp.zeros((), position.dtype))


def advance(ramp: Ramp, position: Array, rotation: Array, duration: ArrayLike, dt: Array) -> Ramp:
    """Set-points `dt`, s, later, on their way to goals, (k, 3) and (k, 3, 3).

    New goals are reached `duration`, s, later, from where the set-points are.
    """
    changed = jnp.any(position != ramp.goal_position) | jnp.any(rotation != ramp.goal_rotation)
    time_left = jnp.where(changed, jnp.asarray(duration, dt.dtype), ramp.time_left)
    # The tolerance is for what rounding leaves of the time after many steps.
    arrives = time_left <= 1.001 * dt
    fraction = dt / jnp.where(arrives, dt, time_left)
    turn = fraction * jax.vmap(orientation_error)(rotation, ramp.rotation)
    turned = einsum("kij,kjl->kil", jax.vmap(rotation_exp)(turn), ramp.rotation)
    return Ramp(
        jnp.where(arrives, position, ramp.position + fraction * (position - ramp.position)),
        jnp.where(arrives, rotation, turned),
        position,
        rotation,
        jnp.maximum(time_left - dt, 0.0),
    )


def interpolated(
    target: PoseTarget, ramp: Ramp | None, duration: ArrayLike, dt: Array
) -> tuple[PoseTarget, Ramp]:
    """The target of k hands with set-points as its poses, and the next ramp.

    New poses are reached after `duration`, s.

    Raises:
        ConfigError: the state has no ramp.
    """
    if ramp is None:
        raise ConfigError(
            "interpolation_time is set, and the state has no set-point, expected a state of this "
            "controller's init(robot, terms), or of its last step."
        )
    ramp = advance(ramp, target.position, target.rotation, duration, dt)
    return dataclasses.replace(target, position=ramp.position, rotation=ramp.rotation), ramp
