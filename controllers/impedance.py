"""Impedance: gains, damping ratios, compensation of gravity and of Coriolis forces."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms, gravity_forces
from fraxenv.errors import ArrayError


def broadcast_gain(what: str, value: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    """A gain as an array of this shape; its own shape may lack leading axes.

    Raises:
        ArrayError: the gain cannot be broadcast to the shape.
    """
    array = jnp.asarray(value, dtype)
    allowed = [shape[i:] for i in range(len(shape) + 1)]
    if array.shape not in allowed:
        expected = " or ".join(map(str, reversed(allowed)))
        raise ArrayError(
            f"{what} has shape {array.shape}, expected {expected}. Controllers take the numbers of "
            "one robot; batch them with jax.vmap."
        )
    return jnp.broadcast_to(array, shape)


def gains(
    what: str, own: ArrayLike, given: Array | None, shape: tuple[int, ...], dtype: jnp.dtype
) -> Array:
    """Gains of this shape: the target's, `given`, not below zero; or else the controller's, `own`.

    Raises:
        ArrayError: the controller's gains have the wrong shape.
    """
    return broadcast_gain(what, own, shape, dtype) if given is None else jnp.maximum(given, 0.0)


def damping(kp: Array, ratio: Array) -> Array:
    """Damping `kd` of a unit mass on a spring `kp`, from its damping ratio."""
    return 2.0 * ratio * jnp.sqrt(kp)


def compensation(robot: Robot, terms: Terms, *, gravity: bool, coriolis: bool) -> Array:
    """Torques (nv,) against gravity, and against Coriolis and centrifugal forces."""
    if gravity and coriolis:
        return terms.bias
    if not (gravity or coriolis):
        return jnp.zeros_like(terms.bias)
    weight = gravity_forces(robot, terms.q, kin=terms.kin)
    return weight if gravity else terms.bias - weight
