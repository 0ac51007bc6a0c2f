"""Robust conditions: what barriers demand of a robot that is not quite the model.

The filter knows an estimate of the torques that act and are not in the model, and what they were in
the last control step, by which the estimate was off by `error`. Its conditions hold for both, and
for all that is between them, and as far beyond:

    d2h/dt2 + 2 rate dh/dt + rate^2 (h - margin) >= |A M^-1 error|

where `A` is the gradient of the barrier. So what is left is by how much these torques change until
the command has taken effect. A change `w` costs `|A M^-1 w| / rate^2` of the barrier and no more,
while it lasts: this is input-to-state safety. A change and a sensor's noise whose bounds are known
are allowed for: to the right side come

    |A M^-1| torque + |A| (rate^2 position_noise + 2 rate velocity_noise).

Sources: Kolathaya and Ames, "Input-to-state safety with control barrier functions", IEEE Control
Systems Letters 3(1), 2019; Jankovic, "Robust control barrier functions for constrained
stabilization of nonlinear systems", Automatica 96, 2018; Das and Murray, "Robust safe control
synthesis with disturbance observer-based control barrier functions", CDC 2022.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.dynamics.solvers.cholesky import cholesky_solve
from fraxenv.errors import check_not_negative

from .barriers import Barrier
from .conditions import Conditions


@pytree_dataclass
class Robustness:
    """What a filter allows for besides the error of an observer's estimate, and how much at most.

    Bounds that are set need the gradients of all rows, which the filter else does without.

    Attributes:
        reach: how many times as far as in the last control step the estimate may be off.
        torque: N m and N, scalar or (nv,), by which the torques that act and are not in the model
            may change until a command has taken effect; None for nothing.
        position_noise: rad and m, scalar or (nv,), that a measured position may be off; None for
            nothing.
        velocity_noise: rad/s and m/s, scalar or (nv,), likewise.
        widest: m and rad, the margin that all of it may come to, for barriers of the configuration.
        widest_speed: rad/s and m/s, likewise, for barriers of the velocity.

    Raises:
        ConfigError: a number is negative.
    """

    reach: ArrayLike = 1.5
    torque: ArrayLike | None = None
    position_noise: ArrayLike | None = None
    velocity_noise: ArrayLike | None = None
    widest: ArrayLike = 0.03
    widest_speed: ArrayLike = 1.0

    def __post_init__(self) -> None:
        check_not_negative(self, "reach", "torque", "position_noise", "velocity_noise")
        check_not_negative(self, "widest", "widest_speed")


def robust_demand(
    robustness: Robustness,
    barriers: Sequence[Barrier],
    conditions: Conditions,
    factor: Array,
    error: Array | None,
) -> Array:
    """How much more (m,) is demanded of each row, in its unit per s^2; per s, of the velocity.

    Args:
        robustness: what is allowed for.
        barriers: at least one.
        conditions: of these barriers.
        factor: (nv, nv), of `cholesky`, of the inertia that the accelerations are those of.
        error: (nv,), N m and N, `ObserverState.error`; None for none.
    """
    dtype, nv = conditions.b.dtype, len(factor)
    demand = jnp.zeros_like(conditions.b)
    if error is not None:
        off = jnp.asarray(robustness.reach, dtype) * error
        demand = jnp.abs(conditions.A(cholesky_solve(factor, off)))
    rates = [jnp.asarray(b.rate, dtype) for b in barriers]
    degrees = [b.relative_degree for b in barriers]
    torque, dq, dv = (
        None if x is None else jnp.broadcast_to(jnp.asarray(x, dtype), nv)
        for x in (robustness.torque, robustness.position_noise, robustness.velocity_noise)
    )
    if not (torque is dq is dv is None):
        A = conditions.matrix(nv)
        if torque is not None:
            by_torque = cholesky_solve(factor, A.T).T
            demand = demand + matmul(jnp.abs(by_torque), torque)
        if dq is not None:
            each = [
                r**2 if n == 2 else jnp.zeros_like(r) for r, n in zip(rates, degrees, strict=True)
            ]
            demand = demand + _by_row(each, conditions) * matmul(jnp.abs(A), dq)
        if dv is not None:
            each = [n * r for r, n in zip(rates, degrees, strict=True)]
            demand = demand + _by_row(each, conditions) * matmul(jnp.abs(A), dv)
    widest = {1: robustness.widest_speed, 2: robustness.widest}
    most = [jnp.asarray(widest[n], dtype) * r**n for r, n in zip(rates, degrees, strict=True)]
    return jnp.minimum(demand, _by_row(most, conditions))


def _by_row(each: Sequence[Array], conditions: Conditions) -> Array:
    """One number for each barrier, as (m,)."""
    return jnp.concatenate([jnp.full(n, x) for x, n in zip(each, conditions.rows, strict=True)])
