"""A projected Newton method for the least violation of infeasible rows.

Minimises `x^T H x / 2` and the squared violations of soft rows, weighed heavily, within hard
bounds.

Source: Bertsekas, "Projected Newton methods for optimization problems with simple
constraints", SIAM J. Control and Optimization 20(2), 1982.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..math.algebra import matmul, smallest
from ..math.tracing import traced_once
from .cholesky import cholesky, cholesky_solve, solve_upper_transposed
from .rows import FLOOR

HOPELESS = 1e-6
"""Squared length of a row below which its violation is ignored."""

VIOLATION_WEIGHT = 1e3
"""Weight of squared violations of rows of unit length, against `x^T H x`."""

NEWTON_STEPS = 16
NEWTON_LENGTHS = (1.0, 0.3, 0.1, 0.03, 0.01)
GRADIENT_LENGTHS = (1.0, 0.2)
"""Number of steps, and the lengths that each tries along Newton's step and the gradient."""

AT_BOUND = 1e-5
"""Relative distance to a bound below which a coordinate counts as at it."""

RIDGE = 1e-6
"""Regularisation of the Hessian, scaled to a unit diagonal."""


@traced_once
def least_violation(
    H: Array, A: Array, b: Array, C: Array, lower: Array, upper: Array, factor: Array, x: Array
) -> tuple[Array, Array, Array]:
    """`x`, slack and residual where the rows are infeasible within the bounds.

    Minimises `x^T H x / 2` plus the heavily weighted squared violations, within the hard bounds: a
    convex, piecewise quadratic function of `u = C x`, whose minimiser is unique and varies
    continuously. Each step is Newton's in the free coordinates, with the best of a few lengths.
    """
    there = jnp.isfinite(b)
    b = jnp.where(there, b, 0)
    image, units = cholesky(C), jnp.eye(len(x), dtype=x.dtype)

    # Columns one by one, in a loop: there may be hundreds of rows.
    whitened = jax.lax.map(lambda e: matmul(A, solve_upper_transposed(factor, e)), units)
    length = jnp.sum(whitened**2, axis=0) + FLOOR
    # The violation of a row of no length cannot be reduced, and would drown the others'.
    weight = jnp.where(there & (length > HOPELESS), VIOLATION_WEIGHT / length, 0)

    def rows(u: Array) -> Array:
        return jnp.where(there, matmul(A, cholesky_solve(image, u)), 0)

    def pulled(y: Array) -> Array:
        return cholesky_solve(image, matmul(A.T, jnp.where(there, y, 0)))

    def metric(u: Array) -> Array:
        return cholesky_solve(image, matmul(H, cholesky_solve(image, u)))

    def violation(u: Array) -> Array:
        return jnp.maximum(b - rows(u), 0)

    def cost(u: Array) -> Array:
        return 0.5 * jnp.sum(u * metric(u)) + 0.5 * jnp.sum(weight * violation(u) ** 2)

    def gradient(u: Array) -> Array:
        return metric(u) - pulled(weight * violation(u))

    def freed(u: Array, g: Array) -> Array:
        """Free coordinates (n,) bool: all but those at a bound that descent would cross."""
        near = AT_BOUND * (1 + jnp.abs(u))
        return ~(((u <= lower + near) & (g > 0)) | ((u >= upper - near) & (g < 0)))

    def step(_: Array, u: Array) -> Array:
        g = gradient(u)
        free = freed(u, g)
        curved = jnp.where(violation(u) > 0, weight, 0)
        hessian = jax.lax.map(lambda e: metric(e) + pulled(curved * rows(e)), units)
        # Scaled to a unit diagonal, as torques of different joints differ in size; regularised for
        # float32, in which the heavy rows leave few digits.
        root = jnp.where(free, jax.lax.rsqrt(jnp.diagonal(hessian)), 0)
        scaled = hessian * root[:, None] * root[None, :]
        scaled = scaled + jnp.diag(jnp.where(free, RIDGE, 1))
        change = root * cholesky_solve(cholesky(scaled), -root * g)
        to_bound = jnp.where(free, 0, jnp.where(g > 0, lower, upper) - u)
        trials = [jnp.clip(u + to_bound + t * change, lower, upper) for t in NEWTON_LENGTHS]
        # Where bounds that are near cut Newton's step short, the gradient's still leads down.
        trials += [
            jnp.clip(u - t * g / jnp.diagonal(hessian), lower, upper) for t in GRADIENT_LENGTHS
        ]
        costs = jax.lax.map(cost, jnp.stack(trials))
        # Costs are compared up to rounding. Where the system is singular, `u` stays.
        best = jnp.where(jnp.isfinite(costs), costs, jnp.inf)
        _, chosen = smallest(best)
        better = best[chosen] <= cost(u) * (1 + 4 * float(np.finfo(u.dtype).eps))
        return jnp.where(better, jnp.stack(trials)[chosen], u)

    start = jnp.clip(jnp.where(jnp.all(jnp.isfinite(x)), matmul(C, x), 0), lower, upper)
    found = jax.lax.fori_loop(0, NEWTON_STEPS, step, start)

    def missed(u: Array) -> Array:
        return jnp.sum(weight * violation(u) ** 2)

    # A finite weight may leave more violation than the start has: then the start is better.
    u = jnp.where(missed(found) < missed(start), found, start)
    g = gradient(u)
    free = freed(u, g)
    pushes = weight * violation(u)
    terms = jax.lax.map(lambda e: jnp.max(jnp.abs(rows(e)) * pushes, initial=0.0), units)
    pull = jnp.max(jnp.abs(metric(u)))
    residual = jnp.max(jnp.where(free, jnp.abs(g), 0)) / (1e-6 + pull + jnp.max(terms))
    return cholesky_solve(image, u), jnp.max(violation(u), initial=0.0), residual
