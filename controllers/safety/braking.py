"""Braking: the answer of the safety filter where it does not know what it has to keep.

All joints slow down together, `dv/dt = -RATE v`, so that the robot goes straight on, and not far:
along a straight way a barrier of the configuration, of an obstacle at rest, falls no faster than
its own condition allows, if its rate is at most half of `RATE`. Where torques do not suffice all
joints slow down less, and still together.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from fraxenv.dynamics import Robot, Terms, gravity_forces
from fraxenv.dynamics.math.algebra import matmul

RATE = 20.0
"""1/s, at which the robot slows down."""


def braking_torque(robot: Robot, terms: Terms, lower: Array, upper: Array) -> Array:
    """Torque (nv,), N m and N, within bounds, that stops the robot on its way.

    A robot whose velocity is not finite is held against gravity; one whose configuration is not
    either has no torque.

    Args:
        robot: the model.
        terms: its terms at this state.
        lower: (nv,), smallest torque.
        upper: (nv,), largest torque.
    """
    known = jnp.all(jnp.isfinite(terms.bias))
    hold = jnp.where(known, terms.bias, gravity_forces(robot, terms.q))
    hold = jnp.clip(jnp.where(jnp.isfinite(hold), hold, 0.0), lower, upper)
    push = -RATE * matmul(terms.mass_matrix, terms.v)
    torque = hold + largest_share(push, hold, lower, upper) * push
    return jnp.where(jnp.all(jnp.isfinite(torque)), torque, hold)


def largest_share(push: Array, hold: Array, lower: Array, upper: Array) -> Array:
    """The largest share, (), up to 1, of a push that may be added within bounds.

    Args:
        push: (nv,), N m and N.
        hold: (nv,), N m and N, to which it is added.
        lower: (nv,), smallest torque.
        upper: (nv,), largest torque.
    """
    room = jnp.where(push > 0, upper - hold, hold - lower)
    size = jnp.abs(push)
    return jnp.min(jnp.where(size > room, room / size, 1.0), initial=1.0)
