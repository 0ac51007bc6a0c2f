"""A small quadratic program within bounds, with the gain of its minimiser.

Source: Tassa, Mansard and Todorov, "Control-limited differential dynamic programming" (ICRA 2014),
section III; Bertsekas (1982) for the projected Newton step.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.solvers.cholesky import cholesky, cholesky_solve

ROUNDS = 8
"""Of Newton's method; each may free or clamp any number of components."""

LENGTHS = (1.0, 0.5, 0.25, 0.1, 0.03)
"""Of the steps that a round tries."""


def box_qp(H: Array, g: Array, G: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """The minimiser of `x H x / 2 + g x` within bounds, and its derivative `-H^-1 G` by `g`'s `G`.

    Rows of components at a bound are zero in the derivative.

    Args:
        H: (n, n), positive definite.
        g: (n,).
        G: (n, m), derivative of `g` by what the gain is of.
        lower: (n,).
        upper: (n,), not below `lower`.
    """
    eye = jnp.eye(len(g), dtype=g.dtype)

    def free_at(x: Array) -> Array:
        slope = matmul(H, x) + g
        return ~(((x <= lower) & (slope > 0)) | ((x >= upper) & (slope < 0)))

    def factor_of(free: Array) -> Array:
        """Of the free components' block; that of the others is the identity."""
        return cholesky(jnp.where(free[:, None] & free, H, eye))

    def value(x: Array) -> Array:
        return jnp.sum(x * (0.5 * matmul(H, x) + g))

    def newton(_: Array, x: Array) -> Array:
        free = free_at(x)
        slope = jnp.where(free, matmul(H, x) + g, 0)
        step = cholesky_solve(factor_of(free), slope)
        tried = [jnp.clip(x - length * step, lower, upper) for length in LENGTHS]
        best, least = x, value(x)
        for candidate in tried:
            cost = value(candidate)
            better = cost < least
            best, least = jnp.where(better, candidate, best), jnp.where(better, cost, least)
        return best

    start = jnp.clip(-cholesky_solve(cholesky(H), g), lower, upper)
    x: Array = jax.lax.fori_loop(0, ROUNDS, newton, start)
    free = free_at(x)
    gain = -cholesky_solve(factor_of(free), jnp.where(free[:, None], G, 0))
    return x, jnp.where(free[:, None], gain, 0)
