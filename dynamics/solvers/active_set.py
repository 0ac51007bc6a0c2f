"""A dual active-set method for quadratic programs: projection on a polyhedron.

    minimise    1/2 x^T H x + 1/2 sum_i s_i^2 / d_i
    subject to  A x + s >= b,    lower <= C x <= upper

In coordinates `y = U^T x`, with `H = U U^T`, this is the projection of the origin on a polyhedron.
The dual method starts at the origin, activates the row that is farthest away, and drops rows whose
multiplier would become negative on the way. Every iterate is optimal for its active rows; most
problems need one round per row that is active at the solution, and a round costs one product with
all the rows, unless it drops one, and one row, unless none enters.

Source: Goldfarb and Idnani, "A numerically stable dual method for solving strictly convex quadratic
programs", Mathematical Programming 27, 1983, algorithm 2.2. There, factors are updated from
round to round; here, for few active rows, they are computed anew, so that no error accumulates.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..math.algebra import matmul, smallest
from ..math.tracing import traced_once
from .cholesky import ldl, ldl_solve, solve_upper, solve_upper_transposed
from .rows import FLOOR, all_rows, allowance, constraint_values

HARDENINGS = 8
"""Largest number of rounds that reduce the slack of active rows; see `_harden`."""

REFINEMENTS = 3
"""Corrections of the solution by the rows in original coordinates; see `_refine`."""

NONE, AGAIN = -1, -2
"""In place of an entering row: none, and the loop ends; none, but a row was dropped."""


class Next(NamedTuple):
    """What the next round begins with.

    Attributes:
        entering: (), int32, the row that enters, or `NONE` or `AGAIN`.
        extra: (c,), added to the active rows' right-hand sides to make up for slack; see `_harden`.
        lacking: (), largest relative slack that the last `_harden` found; infinite before.
        hardenings: (), int32, number of `_harden` so far.
    """

    entering: Array
    extra: Array
    lacking: Array
    hardenings: Array


class ActiveSet(NamedTuple):
    """Active rows in c slots; an empty slot is zero, with the row number -1.

    Attributes:
        rows: (c,) int32, row numbers in `[A; C; -C]`.
        normals: (c, n), the rows `a`.
        whitened: (c, n), `U^-1 a`.
        gram: (c, c), Gram matrix of `whitened`.
        give: (c,), compliance: slack per multiplier.
        rhs: (c,), right-hand sides.
        multipliers: (c,), not negative.
        members: uint32 words, the set of active rows as bits.
        next: what the next round begins with.
        iterations: (), int32.
    """

    rows: Array
    normals: Array
    whitened: Array
    gram: Array
    give: Array
    rhs: Array
    multipliers: Array
    members: Array
    next: Next
    iterations: Array


@traced_once
def find_active_set(
    A: Array,
    C: Array,
    factor: Array,
    rhs: Array,
    tolerance: float,
    *,
    softness: float,
    capacity: int,
    rounds: int,
) -> tuple[Array, Array, ActiveSet]:
    """The minimiser (n,), the multipliers (capacity,) and the active rows.

    Args:
        A: (m, n), the soft rows.
        C: (n, n), the matrix of the bounds.
        factor: (n, n), `U`.
        rhs: (m + 2n,), `[b; lower; -upper]`.
        tolerance: negligible violation, relative to `1 + |rhs|`.
        softness: compliance of a soft row, relative to its squared length in the metric of `H^-1`.
        capacity: largest number of rows that are active at a time.
        rounds: number after which the iterate is returned as it is.
    """
    n = C.shape[-1]
    m = len(rhs) - 2 * n
    rows, wanted = all_rows(A, C), rhs - allowance(rhs, tolerance)
    # Any scale would do; by rows' lengths, as the diagonal of `H` has them, most rounds are saved.
    diagonal = jnp.sum(factor**2, axis=1)
    scale = jax.lax.rsqrt(matmul(rows**2, 1 / diagonal) + FLOOR)

    def worst(violation: Array, active: Array) -> Array:
        """The row that is farthest away, if one is violated and a slot is empty."""
        best, row = smallest(-violation * scale)
        return jnp.where((best < 0) & jnp.any(active < 0), row, NONE).astype(jnp.int32)

    def look(state: ActiveSet) -> Next:
        x = solve_upper_transposed(factor, _point(state.whitened, state.multipliers))
        violation = wanted - constraint_values(A, C, x)
        violation = jnp.where(contains(state.members, len(rhs)), -jnp.inf, violation)
        entering = worst(violation, state.rows)
        kept = state.next._replace(entering=entering)
        return _select(entering == NONE, _harden(state, tolerance), kept)

    def advance(state: ActiveSet) -> ActiveSet:
        row = state.next.entering
        # A round that drops a row looks at no others, and in the one after it none enters.
        nothing = jnp.zeros(n, rhs.dtype)
        normal = jax.lax.cond(row >= 0, lambda: _at(rows, row), lambda: nothing)
        own = _at(rhs, jnp.maximum(row, 0))
        entered = _enter(state, row, normal, own, factor, row < m, softness)
        goal = ldl_solve(ldl(_system(entered)), entered.rhs + entered.next.extra)
        blocked = (goal < 0) & (entered.rows >= 0)
        back = jnp.any(blocked)
        again = entered.next._replace(entering=jnp.full((), AGAIN, jnp.int32))
        there = entered._replace(multipliers=goal)
        there = there._replace(next=jax.lax.cond(back, lambda: again, lambda: look(there)))
        new: ActiveSet = jax.lax.cond(
            back, lambda: _retreat(there, state.multipliers, blocked), lambda: there
        )
        # Where the precision does not suffice, stop at the previous multipliers.
        sound = jnp.all(jnp.isfinite(goal))
        stop = new.next._replace(entering=jnp.full((), NONE, jnp.int32))
        return new._replace(
            multipliers=jnp.where(sound, new.multipliers, state.multipliers),
            next=_select(sound, new.next, stop),
            iterations=state.iterations + 1,
        )

    def proceed(state: ActiveSet) -> Array:
        return (state.next.entering != NONE) & (state.iterations < rounds)

    begin = _start(n, capacity, rhs)
    begin = begin._replace(next=begin.next._replace(entering=worst(wanted, begin.rows)))
    final = jax.lax.while_loop(proceed, advance, begin)
    return *_refine(final, factor, tolerance), final


def _start(n: int, capacity: int, rhs: Array) -> ActiveSet:
    dtype = rhs.dtype
    zeros = jnp.zeros(capacity, dtype)
    return ActiveSet(
        rows=jnp.full(capacity, -1, jnp.int32),
        normals=jnp.zeros((capacity, n), dtype),
        whitened=jnp.zeros((capacity, n), dtype),
        gram=jnp.zeros((capacity, capacity), dtype),
        give=zeros,
        rhs=zeros,
        multipliers=zeros,
        members=jnp.zeros(-(-len(rhs) // 32), jnp.uint32),
        next=Next(
            entering=jnp.full((), NONE, jnp.int32),
            extra=zeros,
            lacking=jnp.full((), jnp.inf, dtype),
            hardenings=jnp.zeros((), jnp.int32),
        ),
        iterations=jnp.zeros((), jnp.int32),
    )


def _point(whitened: Array, multipliers: Array) -> Array:
    """The whitened point `y` (n,) of the multipliers (c,)."""
    return matmul(whitened.T, multipliers)


def _system(state: ActiveSet) -> Array:
    """The active rows' Gram matrix plus compliances (c, c); the unit matrix in empty slots."""
    return state.gram + jnp.diag(jnp.where(state.rows >= 0, state.give, 1))


def _enter(
    state: ActiveSet,
    row: Array,
    normal: Array,
    rhs: Array,
    factor: Array,
    is_soft: Array,
    softness: float,
) -> ActiveSet:
    """Add an active row in an empty slot, with a zero multiplier; none if `row` is negative.

    Soft rows fill the slots from the first, bounds from the last, which `ldl` eliminates
    first: bounds are well conditioned by themselves, and the rest, of soft rows, by its compliance.
    """
    new = solve_upper(factor, normal)
    square = jnp.sum(new * new)
    powers = 1 << np.arange(len(state.rows), dtype=np.int32)
    bits = jnp.where(is_soft, powers, powers[::-1])
    empty = jnp.sum(jnp.where(state.rows < 0, bits, 0), dtype=jnp.int32)
    here = (bits == empty & -empty) & (row >= 0)  # the lowest bit is the first empty slot's
    give = jnp.where(is_soft, softness * (square + FLOOR), 0).astype(rhs.dtype)
    common = jnp.where(here, square, matmul(state.whitened, new))
    gram = jnp.where(here[None, :], common[:, None], state.gram)
    return state._replace(
        rows=jnp.where(here, row, state.rows),
        normals=jnp.where(here[:, None], normal, state.normals),
        whitened=jnp.where(here[:, None], new, state.whitened),
        gram=jnp.where(here[:, None], common[None, :], gram),
        give=jnp.where(here, give, state.give),
        rhs=jnp.where(here, rhs, state.rhs),
        next=state.next._replace(lacking=jnp.where(row >= 0, jnp.inf, state.next.lacking)),
        members=jnp.where(row >= 0, state.members | bit(row, len(state.members)), state.members),
    )


def _retreat(state: ActiveSet, before: Array, blocked: Array) -> ActiveSet:
    """The state without the first row whose multiplier vanishes on the way to the state's.

    Args:
        state: some of its multipliers are negative.
        before: (c,), the multipliers before, which move until one vanishes.
        blocked: (c,) bool, which are negative.
    """
    goal = state.multipliers
    least, first = smallest(
        jnp.where(blocked, before / jnp.where(blocked, before - goal, 1), jnp.inf)
    )
    gone = jnp.arange(len(state.rows)) == first
    either = gone[:, None] | gone[None, :]
    return state._replace(
        rows=jnp.where(gone, -1, state.rows),
        normals=jnp.where(gone[:, None], 0, state.normals),
        whitened=jnp.where(gone[:, None], 0, state.whitened),
        gram=jnp.where(either, 0, state.gram),
        give=jnp.where(gone, 0, state.give),
        rhs=jnp.where(gone, 0, state.rhs),
        multipliers=jnp.where(gone, 0, jnp.maximum(before + least * (goal - before), 0)),
        members=state.members & ~bit(state.rows[first], len(state.members)),
        next=state.next._replace(extra=jnp.where(gone, 0, state.next.extra)),
    )


def _harden(state: ActiveSet, tolerance: float) -> Next:
    """Raise the right-hand sides by the slack of the active rows (method of multipliers), or end.

    Slacks vanish where the rows are feasible together. Where they are not, only multipliers grow,
    which shows as slacks that do not shrink.
    """
    given, before = state.give * state.multipliers, state.next
    lacking = jnp.max(jnp.abs(given - before.extra) / (1 + jnp.abs(state.rhs)))
    useful = (lacking <= 0.9 * before.lacking) & (before.hardenings < HARDENINGS)
    entering = jnp.where((lacking > tolerance) & useful, AGAIN, NONE).astype(jnp.int32)
    return Next(entering, given, lacking, before.hardenings + 1)


def _refine(state: ActiveSet, factor: Array, tolerance: float) -> tuple[Array, Array]:
    """`x` and multipliers, corrected by the residuals of the rows in original coordinates.

    The coordinates `y` are ill-conditioned where the inertia is: in float32 up to 1e-4 of a row.
    Feasible rows are met without slack: a multiplier may be so large that slack within the
    tolerance would show in the objective.
    """
    met = state.next.lacking <= tolerance
    system, multipliers = ldl(_system(state)), state.multipliers
    x = solve_upper_transposed(factor, _point(state.whitened, multipliers))
    for _ in range(REFINEMENTS):
        wanted = jnp.where(met, 0, state.give * multipliers - state.next.extra)
        left = state.rhs - matmul(state.normals, x) - wanted
        change = ldl_solve(system, left)
        change = jnp.where(jnp.all(multipliers + change >= 0), change, 0)
        x = x + solve_upper_transposed(factor, _point(state.whitened, change))
        multipliers = multipliers + change
    return x, multipliers


def contains(members: Array, count: int) -> Array:
    """Membership (count,) bool of rows in a set of bits, 32 to a word.

    A vector of booleans, or comparing each row with each active one, would cost more than the
    product with all the rows.
    """
    row = np.arange(count)
    return (members[row // 32] >> (row % 32).astype(np.uint32)) & 1 != 0


def bit(row: Array, words: int) -> Array:
    """The set of one row, as words (words,) of bits."""
    bit = jnp.left_shift(jnp.uint32(1), (row & 31).astype(jnp.uint32))
    return jnp.where(np.arange(words, dtype=np.int32) == row >> 5, bit, jnp.uint32(0))


def _at(x: Array, index: Array) -> Array:
    """A row, at an index known to be in bounds."""
    return x.at[index].get(mode="promise_in_bounds")


def _select(condition: Array, yes: Next, no: Next) -> Next:
    chosen: Next = jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
    return chosen
