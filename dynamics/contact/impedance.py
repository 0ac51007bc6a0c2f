"""How hard a constraint is: MuJoCo's `solref` and `solimp`.

"Computation: Solver parameters" in MuJoCo's documentation. A constraint of impedance `d` in (0, 1)
has the regularisation `R = (1 - d) / d A`, where `A` is how easily it moves, and is pulled towards
the reference acceleration `-B velocity - K d position`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ..math.tracing import traced_once

SMALLEST = 1e-15
"""Regularisation, and width of an impedance, that counts as none."""

LEAST_IMPEDANCE, GREATEST_IMPEDANCE = 1e-4, 0.9999

DEFAULT_SOLREF = (0.02, 1.0)
"""Taken for a `solref` of which one entry is positive and the other is not, as MuJoCo does."""


class Spring(NamedTuple):
    """Stiffness `K` (n,), 1/s^2, and damping `B` (n,), 1/s, of constraints."""

    stiffness: Array
    damping: Array


@traced_once
def spring(solref: Array, solimp: Array, timestep: Array) -> Spring:
    """Stiffness and damping of n constraints.

    Args:
        solref: (n, 2), time constant, s, and damping ratio; or, negative, stiffness and damping.
        solimp: (n, 5), of which the second entry, the largest impedance, counts.
        timestep: s; a time constant is at least twice as long ("refsafe").
    """
    first, second = solref[:, 0], solref[:, 1]
    standard, direct = (first > 0) & (second > 0), (first <= 0) & (second <= 0)
    largest = _clamped(solimp[:, 1])
    time = jnp.where(standard, first, DEFAULT_SOLREF[0])
    ratio = jnp.where(standard, second, DEFAULT_SOLREF[1])
    time = jnp.maximum(time, 2 * timestep)
    stiffness = 1 / (largest * largest * time * time * ratio * ratio)
    damping = 2 / (largest * time)
    return Spring(
        jnp.where(direct, -first / (largest * largest), stiffness),
        jnp.where(direct, -second / largest, damping),
    )


@traced_once
def impedance(solimp: Array, position: Array) -> Array:
    """Impedance `d` (n,) of constraints that are violated by `position` (n,), m or rad.

    It rises from d0 to dwidth within the width, along a sigmoid of two powers, and is flat beyond.

    Args:
        solimp: (n, 5), d0, dwidth, width, midpoint, power.
        position: (n,), the violation less the margin; only its size counts.
    """
    least, largest = _clamped(solimp[:, 0]), _clamped(solimp[:, 1])
    width, power = jnp.maximum(solimp[:, 2], 0), jnp.maximum(solimp[:, 4], 1)
    middle = _clamped(solimp[:, 3])
    flat = (least == largest) | (width <= SMALLEST)
    x = jnp.abs(position) * (1 / jnp.where(flat, 1, width))
    within = (x > 0) & (x < 1)
    inner = jnp.where(within, x, 0.5)  # away from the powers' singular ends
    rising = inner <= middle
    side = jnp.where(rising, middle, 1 - middle)
    share = jnp.where(rising, inner, 1 - inner) / side
    # The common powers need no exponential; where the power is known, none is computed.
    raised = jnp.where(power == 2, share * share, share**power)
    y = jnp.where(rising, side * raised, 1 - side * raised)
    y = jnp.where(power == 1, inner, y)
    y = jnp.where(within, y, jnp.where(x >= 1, 1.0, 0.0))
    return jnp.where(flat, 0.5 * (least + largest), least + y * (largest - least))


def weights(impedance: Array, inverse_weight: Array) -> Array:
    """Weights `D = 1 / R` (n,) of constraints; `R` is at least `SMALLEST`.

    Args:
        impedance: (n,).
        inverse_weight: (n,), `A`, 1/kg or 1/(kg m^2).
    """
    return impedance / jnp.maximum((1 - impedance) * inverse_weight, SMALLEST * impedance)


def _clamped(d: Array) -> Array:
    return jnp.clip(d, LEAST_IMPEDANCE, GREATEST_IMPEDANCE)
