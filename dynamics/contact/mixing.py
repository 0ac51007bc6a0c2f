"""Parameters of a contact from those of its two geoms."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from .colliders.points import MINVAL
from .model import Constraints, PairParameters

MIN_FRICTION = 1e-5
"""MuJoCo's least friction."""


def mixed_parameters(constraints: Constraints, dtype: np.dtype) -> PairParameters:
    """Parameters of all pairs of `Layout.pairs`, in their order.

    The geom of higher priority decides. Of equal ones, friction is the larger, entry by entry;
    solimp is averaged, weighted by solmix, and so is solref if both are time constants (else the
    smaller, entry by entry). Margins and gaps are summed. A pair's own parameters are taken as they
    are. Friction is at least `MIN_FRICTION`.

    Source: MuJoCo, "Computation", "Contact parameters"; `mj_contactParam`.

    Args:
        constraints: geoms, pairs, and their numbers.
        dtype: of the result.
    """
    layout = constraints.layout
    indices = np.array([p.geoms for p in layout.pairs], int).reshape(-1, 2)
    own = np.array([p.parameters for p in layout.pairs], int)
    priority = np.array([g.priority for g in layout.geoms], int)[indices]
    first = (priority[:, 0] > priority[:, 1])[:, None]
    second = (priority[:, 0] < priority[:, 1])[:, None]

    def both(x: object) -> tuple[Array, Array]:
        array = jnp.asarray(x, dtype)
        return array[indices[:, 0]], array[indices[:, 1]]

    def decided(x: tuple[Array, Array], mixed: Array) -> Array:
        return jnp.where(first, x[0], jnp.where(second, x[1], mixed))

    geoms = constraints.geoms
    weight1, weight2 = both(geoms.solmix)
    none1, none2 = weight1 < MINVAL, weight2 < MINVAL
    share = weight1 / jnp.where(none1 & none2, 1.0, weight1 + weight2)
    share = jnp.where(none1 & none2, 0.5, jnp.where(none1, 0.0, jnp.where(none2, 1.0, share)))
    share = share[:, None]

    friction = both(geoms.friction)
    solref, solimp = both(geoms.solref), both(geoms.solimp)
    is_time = (solref[0][:, :1] > 0) & (solref[1][:, :1] > 0)
    averaged = share * solref[0] + (1 - share) * solref[1]
    mixed = PairParameters(
        friction=decided(friction, jnp.maximum(*friction))[:, np.array([0, 0, 1, 2, 2])],
        solref=decided(solref, jnp.where(is_time, averaged, jnp.minimum(*solref))),
        solref_friction=jnp.zeros((len(indices), 2), dtype),
        solimp=decided(solimp, share * solimp[0] + (1 - share) * solimp[1]),
        margin=jnp.add(*both(geoms.margin)),
        gap=jnp.add(*both(geoms.gap)),
    )

    def parameter(name: str) -> Array:
        value: Array = getattr(mixed, name)
        if not (own >= 0).any():
            return value
        given = jnp.asarray(getattr(constraints.pairs, name), dtype)[np.maximum(own, 0)]
        return jnp.where((own >= 0).reshape(-1, *[1] * (value.ndim - 1)), given, value)

    return PairParameters(
        friction=jnp.maximum(parameter("friction"), MIN_FRICTION),
        solref=parameter("solref"),
        solref_friction=parameter("solref_friction"),
        solimp=parameter("solimp"),
        margin=parameter("margin"),
        gap=parameter("gap"),
    )
