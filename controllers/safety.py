"""What the safety filter reports on every step, and what is reported where there is none."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def no_safety_report(dtype: jnp.dtype) -> dict[str, Array]:
    """The report of a step without a filter: no barrier, and nothing changed.

    Keys: `min_barrier` (smallest barrier value over the policy step; infinite, as there is none),
    `min_barrier_row` (its index; -1), `slack`, `deviation` (from the nominal torque, N m),
    `intervened`, `residual`, `feasible`.
    """
    zero = jnp.zeros((), dtype)
    return {
        "min_barrier": jnp.full((), jnp.inf, dtype),
        "min_barrier_row": jnp.full((), -1, jnp.int32),
        "slack": zero,
        "deviation": zero,
        "intervened": jnp.zeros((), bool),
        "residual": zero,
        "feasible": jnp.ones((), bool),
    }
