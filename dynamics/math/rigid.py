"""Rigid motions: the logarithm of a pose."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .algebra import matmul
from .rotation import right_jacobian_inverse, rotation_log
from .tracing import traced_once


@traced_once
def pose_log(position: Float[Array, " 3"], rotation: Float[Array, "3 3"]) -> Float[Array, " 6"]:
    """The motion `[linear; angular]`, m and rad, that takes a second to a pose at constant twist.

    The twist is in the axes of the body that moves: Pinocchio's `log6`.

    Args:
        position: m.
        rotation: turned by at most pi.

    Source: Sola et al., "A micro Lie theory" (2018), eqs. 173 and 174.
    """
    angular = rotation_log(rotation)
    return jnp.concatenate([matmul(right_jacobian_inverse(-angular), position), angular])


@traced_once
def pose_log_derivative(
    position: Float[Array, " 3"], rotation: Float[Array, "3 3"]
) -> Float[Array, "6 6"]:
    """Derivative of `pose_log` by a motion of the body in its own axes: Pinocchio's `Jlog6`.

    The inverse right Jacobian of SE(3): by the linear motion alone it is that of SO(3).
    """
    angular = rotation_log(rotation)
    turn = right_jacobian_inverse(angular)

    def linear(w: Array) -> Array:
        """The logarithm's linear part as the rotation moves on, by `w` in its own axes."""
        return matmul(right_jacobian_inverse(-(angular + matmul(turn, w))), position)

    coupled = jax.jacfwd(linear)(jnp.zeros_like(angular))
    zero = jnp.zeros_like(turn)
    # The body's linear motion is in its axes: R p in the target's, of which the logarithm takes
    # the inverse left Jacobian; that times R is the inverse right one.
    return jnp.block([[turn, coupled], [zero, turn]])
