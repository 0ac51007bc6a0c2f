"""A small quadratic program with soft inequalities and hard bounds, by a dual active-set method.

    minimise    1/2 x^T H x + 1/2 sum_i s_i^2 / d_i
    subject to  A x + s >= b,    lower <= C x <= upper

The rows of `A` are soft: each has a slack `s_i`, so dear (`d_i` is `softness` times the row's
squared length in the metric of `H^-1`) that it vanishes where the rows can be met together. The
bounds are hard. So there always is a solution, and it varies continuously with the problem.

In coordinates `y = U^T x`, with `H = U U^T`, this is the projection of the origin on a polyhedron.
The dual method starts at the origin, takes in the row that is violated most, and drops rows whose
multiplier would become negative on the way. Every iterate is optimal for the rows it has; most
problems need one round per row that is active at the solution, and a round costs one product with
all the rows.

Source: Goldfarb and Idnani, "A numerically stable dual method for solving strictly convex quadratic
programs", Mathematical Programming 27, 1983, algorithm 2.2. The factors there are updated from
round to round; here, for few active rows, they are computed anew, so that no error accumulates.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fraxenv.dynamics.algebra import matmul, smallest
from fraxenv.dynamics.cholesky import (
    cholesky,
    cholesky_solve,
    solve_upper,
    solve_upper_transposed,
)
from fraxenv.dynamics.errors import ArrayError

TOLERANCE = {4: 1e-5, 8: 1e-10}
"""Violation of a row, relative to `1 + |b|`, that counts as none; by the size of a float."""

HARDENINGS = 3
"""Times that active rows are made to give less; see `_harden`."""

FEASIBLE = 1e-4
"""Slack, relative to `1 + |b|`, up to which the rows count as met."""

NONE, AGAIN = -1, -2
"""Instead of a row that enters: none, and the loop ends; none, but a row has left."""

FLOOR = 1e-6
"""Squared length of a row, in the metric of `H^-1`, below which nothing can be done about it."""


class QPSolution(NamedTuple):
    """What `solve_qp` returns. Only `x` has derivatives; those of the others are zero.

    Attributes:
        x: (n,), the minimiser.
        multipliers: (k,), of the active rows, not negative; zero where there is none.
        active: (k,), int32, rows of `[A; C; -C]` that the multipliers belong to; -1 for none.
        slack: (), largest violation of a soft row, in units of `b`.
        feasible: (), bool, whether all soft rows are met.
        residual: (), largest violation of the conditions of optimality: of rows that are not
            active (in units of `b`), of bounds (relative), and the product of a multiplier and what its row lacks of
            being an equality, beyond the slack.
        iterations: (), int32, rounds.
    """

    x: Array
    multipliers: Array
    active: Array
    slack: Array
    feasible: Array
    residual: Array
    iterations: Array


class _State(NamedTuple):
    """Active rows in slots, whitened (`U^-1 a`), with their Gram matrix; -1 in an empty slot."""

    rows: Array
    whitened: Array
    gram: Array
    give: Array
    rhs: Array
    multipliers: Array
    members: Array
    entering: Array
    excess: Array
    iterations: Array


def solve_qp(
    H: Array,
    A: Array,
    b: Array,
    C: Array,
    lower: Array,
    upper: Array,
    *,
    softness: float = 3e-5,
    max_active: int | None = None,
    max_iterations: int | None = None,
) -> QPSolution:
    """Minimise `x^T H x / 2` subject to soft rows `A x >= b` and hard bounds on `C x`.

    Finite for finite arguments, whatever they are. Differentiable forwards and backwards, by the
    conditions of optimality of the rows that are active.

    Args:
        H: (n, n), symmetric, positive definite.
        A: (m, n), soft rows.
        b: (m,); minus infinity for a row that does not count.
        C: (n, n), nonsingular.
        lower: (n,), infinite where there is none.
        upper: (n,), likewise; not below `lower`.
        softness: how much a soft row gives, relative to its own compliance.
        max_active: largest number of rows that are active at a time. Default: n + 3, at most 16.
        max_iterations: rounds after which the iterate is returned as it is, optimal for the rows
            taken in so far; `residual` says so. Default: 4 max_active.

    Raises:
        ArrayError: the shapes do not fit together.
    """
    n, m = H.shape[-1], A.shape[0]
    shapes = {"H": (n, n), "A": (m, n), "b": (m,), "C": (n, n), "lower": (n,), "upper": (n,)}
    for (name, expected), array in zip(shapes.items(), (H, A, b, C, lower, upper), strict=True):
        if array.shape != expected:
            raise ArrayError(
                f"{name} of the quadratic program has shape {array.shape}, expected {expected}."
            )
    capacity = min(n + 3, 16) if max_active is None else max_active
    rounds = 4 * capacity if max_iterations is None else max_iterations
    return QPSolution(*_solve(softness, capacity, rounds, H, A, b, C, lower, upper))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _solve(
    softness: float,
    capacity: int,
    rounds: int,
    H: Array,
    A: Array,
    b: Array,
    C: Array,
    lower: Array,
    upper: Array,
) -> tuple[Array, ...]:
    factor = cholesky(H)
    rows, rhs = jnp.concatenate([A, C, -C]), jnp.concatenate([b, lower, -upper])
    tolerance = TOLERANCE[H.dtype.itemsize]
    # Not relative violations, which would take a division for every row.
    allowed = tolerance * (1 + jnp.where(jnp.isfinite(rhs), jnp.abs(rhs), 0))

    def look(state: _State, violation: Array) -> _State:
        """The row that is violated most, if any is and there is room for it."""
        best, worst = smallest(-violation)
        largest = -best
        enters = (largest > 0) & jnp.any(state.rows < 0)
        return state._replace(
            entering=jnp.where(enters, worst, NONE), excess=jnp.maximum(largest, 0)
        )

    def advance(state: _State) -> _State:
        row = state.entering
        entered = _enter(state, row, rows[jnp.maximum(row, 0)], rhs[jnp.maximum(row, 0)], factor,
                         row < len(A), softness)
        goal = cholesky_solve(cholesky(_system(entered)), entered.rhs)
        blocked = (goal < 0) & (entered.rows >= 0)
        x = solve_upper_transposed(factor, _point(entered.whitened, goal))
        violation = rhs - matmul(rows, x) - allowed
        violation = jnp.where(_contains(entered.members, len(rhs)), -jnp.inf, violation)
        accepted = look(entered._replace(multipliers=goal), violation)
        new = _select(jnp.any(blocked), _retreat(entered, goal, blocked), accepted)
        # Beyond what the precision can resolve, the rows so far have to do.
        new = _select(jnp.all(jnp.isfinite(goal)), new, state._replace(entering=jnp.int32(NONE)))
        return new._replace(iterations=state.iterations + 1)

    def proceed(state: _State) -> Array:
        return (state.entering != NONE) & (state.iterations < rounds)

    final = jax.lax.while_loop(proceed, advance, look(_start(H, capacity, len(rhs)), rhs - allowed))
    multipliers = _harden(final)
    y = _point(final.whitened, multipliers)
    lacking = final.rhs - matmul(final.whitened, y)
    relative = lacking / (1 + jnp.abs(final.rhs))
    is_soft = (final.rows >= 0) & (final.rows < len(A))
    is_hard = final.rows >= len(A)
    loose = multipliers * jnp.maximum(-lacking, 0) / (1 + multipliers * jnp.abs(final.rhs))
    missed = final.excess
    return (
        solve_upper_transposed(factor, y),
        multipliers,
        final.rows,
        jnp.max(jnp.where(is_soft, jnp.maximum(lacking, 0), 0)),
        (jnp.max(jnp.where(is_soft, relative, 0)) <= FEASIBLE) & (missed == 0),
        jnp.maximum(
            jnp.max(jnp.maximum(loose, jnp.where(is_hard, jnp.abs(relative), 0))), missed
        ),
        final.iterations,
    )


@_solve.defjvp
def _solve_jvp(
    softness: float, capacity: int, rounds: int, primals: Any, tangents: Any
) -> tuple[tuple[Array, ...], tuple[Any, ...]]:
    """Differentiates `H x = A^T l`, `A x + D l = b`, over the active rows `A`."""
    H, A, b, C, lower, upper = primals
    d_H, d_A, d_b, d_C, d_lower, d_upper = tangents
    solution = _solve(softness, capacity, rounds, *primals)
    x, multipliers, active = solution[:3]
    there = (active >= 0).astype(x.dtype)

    def pick(soft: Array, hard: Array, opposite: Array) -> Array:
        taken = jnp.concatenate([soft, hard, opposite])[jnp.maximum(active, 0)]
        return taken * there.reshape(-1, *[1] * (taken.ndim - 1))

    def finite(bound: Array) -> Array:
        return jnp.where(jnp.isfinite(bound), bound, 0)

    rows, d_rows = pick(A, C, -C), pick(d_A, d_C, -d_C)
    d_rhs = pick(d_b, d_lower, -d_upper) * (finite(pick(b, lower, -upper)) == pick(b, lower, -upper))
    factor = cholesky(H)
    whitened = solve_upper(factor, rows.T).T
    length = jnp.sum(whitened**2, axis=1)
    give = jnp.where(active < len(A), softness * (length + FLOOR), 0) * there
    gram = matmul(whitened, whitened.T) + jnp.diag(give + (1 - there))

    pull = matmul(d_rows.T, multipliers) - matmul(d_H, x)
    change = d_rhs - matmul(d_rows, x)
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


def _start(H: Array, capacity: int, rows: int) -> _State:
    n, dtype = H.shape[0], H.dtype
    zeros = jnp.zeros(capacity, dtype)
    return _State(
        rows=jnp.full(capacity, -1, jnp.int32),
        whitened=jnp.zeros((capacity, n), dtype),
        gram=jnp.zeros((capacity, capacity), dtype),
        give=zeros,
        rhs=zeros,
        multipliers=zeros,
        members=jnp.zeros(-(-rows // 32), jnp.uint32),
        entering=jnp.full((), NONE, jnp.int32),
        excess=jnp.zeros((), dtype),
        iterations=jnp.zeros((), jnp.int32),
    )


def _point(whitened: Array, multipliers: Array) -> Array:
    """`y` (n,) that belongs to multipliers."""
    return matmul(whitened.T, multipliers)


def _system(state: _State) -> Array:
    """The active rows' Gram matrix with what they give; the unit matrix where there is none."""
    return state.gram + jnp.diag(jnp.where(state.rows >= 0, state.give, 1))


def _enter(
    state: _State,
    row: Array,
    normal: Array,
    rhs: Array,
    factor: Array,
    is_soft: Array,
    softness: float,
) -> _State:
    """One more active row, in an empty slot, its multiplier still zero; none if `row` is negative.

    Soft rows fill the slots from the first, bounds from the last, which `cholesky` eliminates
    first: by themselves they are well conditioned, and what is left of the soft rows is so by what
    they give.
    """
    new = solve_upper(factor, normal)
    square = jnp.sum(new * new)
    slots = len(state.rows)
    empty = jnp.where(is_soft, jnp.argmin(state.rows), slots - 1 - jnp.argmin(state.rows[::-1]))
    here = (jnp.arange(slots) == empty) & (row >= 0)
    give = jnp.where(is_soft, softness * (square + FLOOR), 0).astype(rhs.dtype)
    common = jnp.where(here, square, matmul(state.whitened, new))
    gram = jnp.where(here[None, :], common[:, None], state.gram)
    return state._replace(
        rows=jnp.where(here, row, state.rows),
        whitened=jnp.where(here[:, None], new, state.whitened),
        gram=jnp.where(here[:, None], common[None, :], gram),
        give=jnp.where(here, give, state.give),
        rhs=jnp.where(here, rhs, state.rhs),
        members=jnp.where(row >= 0, state.members | _bit(row, len(state.members)), state.members),
    )


def _retreat(state: _State, goal: Array, blocked: Array) -> _State:
    """Move towards `goal` until the first multiplier vanishes, and drop its row."""
    ratio = state.multipliers / jnp.where(blocked, state.multipliers - goal, 1)
    ratio = jnp.where(blocked, ratio, jnp.inf)
    first = jnp.argmin(ratio)
    multipliers = state.multipliers + ratio[first] * (goal - state.multipliers)
    here = jnp.arange(len(state.rows)) == first
    either = here[:, None] | here[None, :]
    return state._replace(
        rows=jnp.where(here, -1, state.rows),
        whitened=jnp.where(here[:, None], 0, state.whitened),
        gram=jnp.where(either, 0, state.gram),
        give=jnp.where(here, 0, state.give),
        rhs=jnp.where(here, 0, state.rhs),
        multipliers=jnp.where(here, 0, jnp.maximum(multipliers, 0)),
        members=state.members & ~_bit(state.rows[first], len(state.members)),
        entering=jnp.int32(AGAIN),
    )


def _harden(state: _State) -> Array:
    """Multipliers (k,) of the active rows with less slack (the method of multipliers).

    Each round asks for more by what the rows gave. Slacks vanish where the rows can be met
    together. Where they cannot, multipliers grow and nothing else changes, which is recognised by
    slacks that do not shrink; and a row that would have to pull ends it as well.
    """
    factor = cholesky(_system(state))

    def again(progress: tuple[Array, ...]) -> tuple[Array, ...]:
        multipliers, extra, lacking, rounds = progress
        given = state.give * multipliers
        new = cholesky_solve(factor, state.rhs + given)
        still = jnp.max(jnp.abs(given - extra))
        useful = jnp.all(new >= 0) & (still <= 0.5 * lacking)
        rounds = jnp.where(useful, rounds + 1, HARDENINGS)
        return jnp.where(useful, new, multipliers), given, still, rounds

    def useful(progress: tuple[Array, ...]) -> Array:
        return progress[-1] < HARDENINGS

    none = jnp.zeros_like(state.give)
    begin = jnp.where(jnp.any(state.rows >= 0), 0, HARDENINGS).astype(jnp.int32)
    start = (state.multipliers, none, jnp.full((), jnp.inf, none.dtype), begin)
    multipliers: Array = jax.lax.while_loop(useful, again, start)[0]
    return multipliers


def _contains(members: Array, count: int) -> Array:
    """Which of `count` rows are in a set kept as bits, 32 to a word: (count,) bool.

    A vector of booleans, or comparing each row with each active one, would cost more than the
    product with all the rows.
    """
    row = np.arange(count)
    return (members[row // 32] >> (row % 32).astype(np.uint32)) & 1 != 0


def _bit(row: Array, words: int) -> Array:
    """The set (words,) of one row."""
    bit = jnp.left_shift(jnp.uint32(1), (row % 32).astype(jnp.uint32))
    return jnp.where(jnp.arange(words) == row // 32, bit, jnp.uint32(0))


def _select(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
