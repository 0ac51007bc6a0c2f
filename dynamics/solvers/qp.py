"""A small quadratic program with soft inequalities and hard bounds.

    minimise    1/2 x^T H x + 1/2 sum_i s_i^2 / d_i
    subject to  A x + s >= b,    lower <= C x <= upper

The rows of `A` are soft: each has a slack `s_i`, so costly (`d_i` is `softness` times the row's
squared length in the metric of `H^-1`) that it vanishes where the rows are feasible together. The
bounds are hard. So there always is a solution, and it varies continuously with the problem.

A dual active-set method (`active_set`) finds it. Where the rows are infeasible, a projected Newton
method (`projected_newton`) minimises their violation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fraxenv.errors import ArrayError

from ..math.algebra import matmul, smallest
from ..math.tracing import traced_once
from .active_set import find_active_set
from .cholesky import cholesky, cholesky_solve, solve_upper, solve_upper_transposed
from .projected_newton import least_violation
from .rows import FLOOR, all_rows, allowance, constraint_values

TOLERANCE = {4: 1e-5, 8: 1e-10}
"""Negligible violation of a row, relative to `1 + |b|`, by the bytes of a float."""

SOFTNESS = {4: 1e-6, 8: 1e-9}
"""Compliance of a soft row, likewise: what rows that conflict need to be told apart."""

FEASIBLE = 1e-4
"""Slack, relative to `1 + |b| + slack`, up to which the rows count as feasible."""


class QP(NamedTuple):
    """`minimise 1/2 x^T H x, A x >= b softly, lower <= C x <= upper`; see `solve_qp`.

    Attributes:
        H: (n, n), symmetric, positive definite.
        A: (m, n), soft rows; or the linear function `x -> A x`, as of `jax.jvp`.
        b: (m,); minus infinity for a row to be ignored.
        C: (n, n), symmetric, positive definite.
        lower: (n,), infinite where there is none.
        upper: (n,), likewise; not below `lower`.
    """

    H: Array
    A: Array | Callable[[Array], Array]
    b: Array
    C: Array
    lower: Array
    upper: Array


class QPSolution(NamedTuple):
    """Solution of a quadratic program. Only `x` has derivatives; those of the others are zero.

    Attributes:
        x: (n,), the minimiser.
        multipliers: (k,), of the active rows, not negative; zero in empty slots.
        active: (k,), int32, the multipliers' rows of `[A; C; -C]`; -1 in empty slots.
        slack: (), largest violation of a soft row, in units of `b`.
        feasible: (), bool, whether all soft rows are met, to 1e-4 of their size.
        residual: (), largest relative violation of the optimality conditions apart from slack: of
            bounds and inactive rows, relative to their terms, and of complementarity.
        iterations: (), int32, rounds.
    """

    x: Array
    multipliers: Array
    active: Array
    slack: Array
    feasible: Array
    residual: Array
    iterations: Array


@traced_once
def solve_qp(
    problem: QP,
    *,
    softness: float | None = None,
    max_active: int | None = None,
    max_iterations: int | None = None,
) -> QPSolution:
    """Solve a quadratic program.

    Finite for all finite arguments. Differentiable in forward and reverse mode, through the
    optimality conditions of the active rows.

    Args:
        problem: the quadratic program.
        softness: compliance of a soft row, relative to its squared length in the metric of `H^-1`;
            constant in the derivatives. Default: 1e-6, in float64 1e-9.
        max_active: largest number of rows that are active at a time. Default: n + 3, at most 16.
        max_iterations: rounds after which the iterate is returned as it is, optimal for the rows
            taken in so far; `residual` says so. Default: 6 max_active.

    Raises:
        ArrayError: the shapes do not fit together.
    """
    H, A, b, C, lower, upper = problem
    H, b, C, lower, upper = map(jnp.asarray, (H, b, C, lower, upper))
    n, m = H.shape[-1], b.shape[-1]
    A = jax.vmap(A, out_axes=1)(jnp.eye(n, dtype=H.dtype)) if callable(A) else jnp.asarray(A)
    shapes = {"H": H.shape, "A": A.shape, "b": b.shape, "C": C.shape}
    shapes |= {"lower": lower.shape, "upper": upper.shape}
    expected = ((n, n), (m, n), (m,), (n, n), (n,), (n,))
    for (name, shape), wanted in zip(shapes.items(), expected, strict=True):
        if shape != wanted:
            raise ArrayError(
                f"{name} of the quadratic program has shape {shape}, expected {wanted}. Batch "
                "problems with jax.vmap."
            )
    capacity = min(n + 3, 16) if max_active is None else max_active
    rounds = 6 * capacity if max_iterations is None else max_iterations
    softness = SOFTNESS[H.dtype.itemsize] if softness is None else softness
    options = _Options(softness, capacity, rounds)
    return QPSolution(*_solve(options, H, A, b, C, lower, upper))


class _Options(NamedTuple):
    """Static options of `_solve`."""

    softness: float
    capacity: int
    rounds: int


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _solve(
    options: _Options,
    H: Array,
    A: Array,
    b: Array,
    C: Array,
    lower: Array,
    upper: Array,
) -> tuple[Array, ...]:
    softness, capacity, rounds = options
    m = len(b)
    factor = cholesky(H)
    rhs = jnp.concatenate([b, lower, -upper])
    tolerance = TOLERANCE[H.dtype.itemsize]
    x, multipliers, final = find_active_set(
        A,
        C,
        factor,
        rhs,
        tolerance,
        softness=softness,
        capacity=capacity,
        rounds=rounds,
    )

    gap = jnp.where(jnp.isfinite(rhs), rhs - constraint_values(A, C, x), 0)
    size = allowance(rhs, tolerance) / tolerance + jnp.abs(gap)
    is_soft = np.arange(len(rhs)) < m
    # Bounds are violated only by rounding, or for want of a slot.
    beyond, worst = smallest(jnp.where(is_soft, FEASIBLE, 10 * FEASIBLE) * size - gap)
    feasible = beyond >= 0
    over = jnp.maximum(matmul(final.normals, x) - final.rhs, 0)
    work = 1 + jnp.sum(multipliers * jnp.abs(final.rhs))
    residual = jnp.maximum(gap[worst] / size[worst], jnp.max(multipliers * over) / work)
    slack = jnp.max(jnp.where(is_soft, gap, 0), initial=0.0)

    def met() -> tuple[Array, ...]:
        return x, slack, residual

    def missed() -> tuple[Array, ...]:
        return least_violation(H, A, b, C, lower, upper, factor, x)

    x, slack, residual = jax.lax.cond(feasible, met, missed)
    return x, multipliers, final.rows, slack, feasible, residual, final.iterations


@_solve.defjvp
def _solve_jvp(
    options: _Options, primals: Any, tangents: Any
) -> tuple[tuple[Array, ...], tuple[Any, ...]]:
    """Differentiates `H x = A^T l`, `A x + D l = b`, over the active rows `A`."""
    H, A, b, C, lower, upper = primals
    d_H, d_A, d_b, d_C, d_lower, d_upper = tangents
    m = len(b)
    solution = _solve(options, *primals)
    x, multipliers, active = solution[:3]
    there = (active >= 0).astype(x.dtype)

    def pick(soft: Array, hard: Array, opposite: Array) -> Array:
        return jnp.concatenate([soft, hard, opposite])[jnp.maximum(active, 0)] * there

    def finite(bound: Array) -> Array:
        return jnp.where(jnp.isfinite(bound), bound, 0)

    # Both the pull `A^T l` at `x` and the values `A x` change with the rows.
    each = jnp.zeros(m + 2 * len(x), x.dtype).at[active].add(multipliers * there)
    soft, hard = each[:m], each[m : m + len(x)] - each[m + len(x) :]

    held = matmul(d_C, x)
    d_rhs = pick(d_b, d_lower, -d_upper) * (
        finite(pick(b, lower, -upper)) == pick(b, lower, -upper)
    )
    rows = all_rows(A, C)[jnp.maximum(active, 0)] * there[:, None]
    factor = cholesky(H)
    whitened = solve_upper(factor, rows.T).T
    length = jnp.sum(whitened**2, axis=1)
    # In float32 a little more than the rows' compliance, so that conflicting rows can be solved.
    least = 100 * float(np.finfo(x.dtype).eps)
    give = jnp.maximum(jnp.where(active < m, options.softness, 0), least) * (length + FLOOR) * there
    gram = matmul(whitened, whitened.T) + jnp.diag(give + (1 - there))

    pull = matmul(d_A.T, soft) + matmul(d_C.T, hard) - matmul(d_H, x)
    change = d_rhs - pick(matmul(d_A, x), held, -held)
    y = solve_upper(factor, pull)
    d_multipliers = cholesky_solve(cholesky(gram), change - matmul(whitened, y))
    d_x = solve_upper_transposed(factor, y + matmul(whitened.T, d_multipliers))
    nothing = [
        jnp.zeros_like(s) if jnp.issubdtype(s.dtype, jnp.floating) else _float0(s)
        for s in solution[1:]
    ]
    return solution, (d_x, *nothing)


def _float0(x: Array) -> np.ndarray[Any, Any]:
    return np.zeros(x.shape, jax.dtypes.float0)
