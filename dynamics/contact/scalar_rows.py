"""Rows that are constraints on their own, from their parameters."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..math.algebra import matmul
from ..model.robot import Robot
from .impedance import weights
from .rows import ScalarRows


def soft_rows(
    jacobian: Array,
    v: Array,
    position: Array,
    pull: tuple[Array, Array, Array],
    inverse_weight: Array,
    bounds: tuple[Array | float, Array | float],
    bias: Array | float = 0.0,
) -> ScalarRows:
    """Scalar rows (m) from their parameters.

    Args:
        jacobian: (m, nv).
        v: (nv,).
        position: (m,), violation less the margin.
        pull: stiffness, damping and impedance, each (m,).
        inverse_weight: (m,).
        bounds: of the force.
        bias: (m,), `J_dot v`.
    """
    stiffness, damping, d = pull
    reference = -damping * matmul(jacobian, v) - stiffness * d * position - bias
    lower, upper = (jnp.broadcast_to(jnp.asarray(b, v.dtype), reference.shape) for b in bounds)
    return ScalarRows(jacobian, reference, weights(d, inverse_weight), lower, upper)


def units(robot: Robot, dofs: np.ndarray, v: Array) -> Array:
    """Rows (m, nv) of the identity."""
    return jnp.asarray(np.eye(robot.nv)[dofs], v.dtype)
