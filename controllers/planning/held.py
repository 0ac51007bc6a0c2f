"""Which torques of a plan are at their limits: the active set of its quadratic program.

Over all knots at once. A program of each knot's own, as control-limited DDP has it, bounds what is
planned there but not what feedback adds to it; then it is cut off, and steps become short.

Source: Hintermüller, Ito and Kunisch, "The primal-dual active set strategy as a semismooth Newton
method" (SIAM Journal on Optimization 13, 2003), algorithm (II).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fraxenv.dynamics.math.algebra import matmul

from .riccati import Gains, Knots

CLOSE = 16.0
"""Roundings of a torque within which it is at its limit."""


def at_limits(tau: Array, lower: Array, upper: Array) -> Array:
    """(N, nv): 1 at the upper limit, or where there is no room, -1 at the lower, 0 between."""
    eps = CLOSE * float(np.finfo(tau.dtype).eps)
    high = (tau >= upper - eps * jnp.abs(upper)) | (lower >= upper)
    low = tau <= lower + eps * jnp.abs(lower)
    held: Array = jnp.where(high, 1, jnp.where(low, -1, 0)).astype(jnp.int8)
    return held


def corrected(knots: Knots, gains: Gains, first_gap: Array, regularisation: Array) -> Array:
    """What is to be held instead, (N, nv).

    A free torque is that goes beyond its limit, where all steps are what they are to first order;
    one that is held is free if the cost falls on the way back. If nothing changes the gains are
    those of the program's minimiser.

    Args:
        knots: the steps, with what is held now.
        gains: of `backward` with them.
        first_gap: as `backward` has it.
        regularisation: likewise.
    """
    n = knots.B.shape[-1]

    def knot(dx: Array, at: Any) -> tuple[Array, Array]:
        it, k, K, Vx, Vxx = at
        du = k + matmul(K, dx)
        after = matmul(it.A, dx) + matmul(it.B, du) + it.gap
        own = it.cost.u + matmul(it.cost.ux, dx) + matmul(it.cost.uu, du) + regularisation * du
        if it.bend is not None:
            own = (
                own + matmul(it.bend[2 * n :, : 2 * n], dx) + matmul(it.bend[2 * n :, 2 * n :], du)
            )
        slope = own + matmul(it.B.T, Vx + matmul(Vxx, after))
        above, below = du > it.upper, du < it.lower
        free = jnp.where(above, 1, jnp.where(below, -1, 0))
        # With no room between the limits it is held for good.
        stays = (it.held * slope <= 0) | (it.lower >= it.upper)
        held = jnp.where(it.held == 0, free, jnp.where(stays, it.held, 0))
        return after, held.astype(it.held.dtype)

    along: Any = knots, gains.k, gains.K, gains.gradient[1:], gains.curvature[1:]
    held: Array = jax.lax.scan(knot, first_gap, along)[1]
    return held
