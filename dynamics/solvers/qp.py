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
all the rows, and one row. So the rows need not be a matrix: the linear function and its transpose
will do.

Source: Goldfarb and Idnani, "A numerically stable dual method for solving strictly convex quadratic
programs", Mathematical Programming 27, 1983, algorithm 2.2. The factors there are updated from
round to round; here, for few active rows, they are computed anew, so that no error accumulates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fraxenv.dynamics.math.algebra import matmul, smallest
from fraxenv.dynamics.solvers.cholesky import (
    cholesky,
    cholesky_solve,
    solve_upper,
    solve_upper_transposed,
)
from fraxenv.errors import ArrayError

TOLERANCE = {4: 1e-5, 8: 1e-10}
"""Violation of a row, relative to `1 + |b|`, that counts as none; by the size of a float."""

HARDENINGS = 8
"""Times, at most, that active rows are made to give less; see `_harden`."""

REFINEMENTS = 3
"""Corrections of the solution by the rows as they are; see `_refine`."""

FEASIBLE = 1e-4
"""Slack, relative to `1 + |b| + slack`, up to which the rows count as met."""

HOPELESS = 1e-6
"""Squared length of a row below which its violation is not minimised."""

VIOLATION_WEIGHT = 1e3
"""Of squared violations of rows of unit length, against `x^T H x`, where rows cannot be met."""

NEWTON_STEPS = 16
STEPS = (1.0, 0.3, 0.1, 0.03, 0.01)
SHORT = (1.0, 0.2)
NEAR, RIDGE = 1e-5, 1e-6
"""Of `_least_violation`: steps, their lengths, how near a bound counts as at it, regularisation."""

NONE, AGAIN = -1, -2
"""Instead of a row that enters: none, and the loop ends; none, but a row has left."""

FLOOR = 1e-9
"""Squared length of a row, in the metric of `H^-1`, below which nothing can be done about it."""


class QP(NamedTuple):
    """`minimise 1/2 x^T H x, A x >= b softly, lower <= C x <= upper`; see `solve_qp`.

    Attributes:
        H: (n, n), symmetric, positive definite.
        A: (m, n), soft rows; or the linear function `x -> A x`, as `jax.jvp` gives it, which is
            often cheaper than all the rows.
        b: (m,); minus infinity for a row that does not count.
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
    """What `solve_qp` returns. Only `x` has derivatives; those of the others are zero.

    Attributes:
        x: (n,), the minimiser.
        multipliers: (k,), of the active rows, not negative; zero where there is none.
        active: (k,), int32, rows of `[A; C; -C]` that the multipliers belong to; -1 for none.
        slack: (), largest violation of a soft row, in units of `b`.
        feasible: (), bool, whether all soft rows are met, to 1e-4 of their size.
        residual: (), largest relative violation of the conditions of optimality, apart from slack:
            of bounds and of rows that are not active, by the size of their terms, and of
            complementarity.
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
    """Active rows in slots, as they are and whitened (`U^-1 a`), and their Gram matrix.

    In an empty slot all is zero but the number of the row, which is -1.
    """

    rows: Array
    normals: Array
    whitened: Array
    gram: Array
    give: Array
    rhs: Array
    multipliers: Array
    members: Array
    extra: Array
    lacking: Array
    hardenings: Array
    entering: Array
    iterations: Array


def solve_qp(
    problem: QP,
    *,
    softness: float = 1e-6,
    max_active: int | None = None,
    max_iterations: int | None = None,
) -> QPSolution:
    """Solve a quadratic program.

    Finite for finite arguments, whatever they are. Differentiable forwards and backwards, by the
    conditions of optimality of the rows that are active.

    Args:
        problem: what to solve.
        softness: how much a soft row gives, relative to its own compliance.
        max_active: largest number of rows that are active at a time. Default: n + 3, at most 16.
        max_iterations: rounds after which the iterate is returned as it is, optimal for the rows
            taken in so far; `residual` says so. Default: 6 max_active.

    Raises:
        ArrayError: the shapes do not fit together.
    """
    H, A, b, C, lower, upper = problem
    H, b, C, lower, upper = map(jnp.asarray, (H, b, C, lower, upper))
    n, m = H.shape[-1], b.shape[-1]
    if callable(A):
        product, parameters = _closed(A, jnp.zeros(n, H.dtype))
        have = (*jax.eval_shape(A, jnp.zeros(n, H.dtype)).shape, n)
    else:
        product, parameters = _of_matrix, [jnp.asarray(A)]
        have = parameters[0].shape
    shapes = {"H": H.shape, "A": have, "b": b.shape, "C": C.shape}
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
    options = _Options(product, softness, capacity, rounds)
    return QPSolution(*_solve(options, H, b, C, lower, upper, *parameters))


class _Options(NamedTuple):
    """Of `_solve`: `product(x, *parameters)` is `A x`."""

    product: Callable[..., Array]
    softness: float
    capacity: int
    rounds: int


class _Rows(NamedTuple):
    """The soft rows as linear functions: `A x`, and `A^T y`."""

    times: Callable[[Array], Array]
    transposed: Callable[[Array], Array]

    @staticmethod
    def of(product: Callable[..., Array], parameters: Sequence[Array], x: Array) -> _Rows:
        """For arguments like `x`."""

        def times(x: Array) -> Array:
            return product(x, *parameters)

        transpose = jax.linear_transpose(times, x)
        return _Rows(times, lambda y: transpose(y)[0])


def _closed(A: Callable[[Array], Array], x: Array) -> tuple[Callable[..., Array], list[Array]]:
    """`A` as a function of `x` and of all that it closes over, and that.

    `jax.closure_convert` would leave out what is not a float, such as a barrier's conditions.
    """
    closed = jax.make_jaxpr(A)(x)

    def product(x: Array, *parameters: Array) -> Array:
        result: Array = jax.core.eval_jaxpr(closed.jaxpr, parameters, x)[0]
        return result

    return product, list(closed.consts)


def _of_matrix(x: Array, A: Array) -> Array:
    return matmul(A, x)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _solve(
    options: _Options,
    H: Array,
    b: Array,
    C: Array,
    lower: Array,
    upper: Array,
    *parameters: Array,
) -> tuple[Array, ...]:
    product, softness, capacity, rounds = options
    n, m = len(lower), len(b)
    A = _Rows.of(product, parameters, lower)
    factor = cholesky(H)
    rhs, bounds = jnp.concatenate([b, lower, -upper]), jnp.concatenate([C, -C])
    tolerance = TOLERANCE[H.dtype.itemsize]
    # Not relative violations, which would take a division for every row.
    allowed = tolerance * (1 + jnp.where(jnp.isfinite(rhs), jnp.abs(rhs), 0))

    def reached(x: Array) -> Array:
        held = matmul(C, x)
        return jnp.concatenate([A.times(x), held, -held])

    def look(state: _State, violation: Array) -> _State:
        """The row that is violated most, if any is and there is room for it."""
        best, worst = smallest(-violation)
        enters = (best < 0) & jnp.any(state.rows < 0)
        return state._replace(entering=jnp.where(enters, worst, NONE))

    def advance(state: _State) -> _State:
        row = jnp.maximum(state.entering, 0)
        is_soft = state.entering < m
        own = A.transposed((jnp.arange(m) == row).astype(rhs.dtype))
        normal = jnp.where(is_soft, own, bounds[jnp.maximum(row - m, 0)])
        entered = _enter(state, state.entering, normal, rhs[row], factor, is_soft, softness)
        goal = cholesky_solve(cholesky(_system(entered)), entered.rhs + entered.extra)
        blocked = (goal < 0) & (entered.rows >= 0)
        x = solve_upper_transposed(factor, _point(entered.whitened, goal))
        violation = rhs - reached(x) - allowed
        violation = jnp.where(_contains(entered.members, len(rhs)), -jnp.inf, violation)
        accepted = look(entered._replace(multipliers=goal), violation)
        accepted = _select(accepted.entering == NONE, _harden(accepted, tolerance), accepted)
        new = _retreat(entered, accepted, goal, blocked)
        # Beyond what the precision can resolve, the multipliers so far have to do.
        sound = jnp.all(jnp.isfinite(goal))
        return new._replace(
            multipliers=jnp.where(sound, new.multipliers, state.multipliers),
            entering=jnp.where(sound, new.entering, NONE),
            iterations=state.iterations + 1,
        )

    def proceed(state: _State) -> Array:
        return (state.entering != NONE) & (state.iterations < rounds)

    final = jax.lax.while_loop(proceed, advance, look(_start(n, capacity, rhs), rhs - allowed))
    x, multipliers = _refine(final, factor, tolerance)

    gap = jnp.where(jnp.isfinite(rhs), rhs - reached(x), 0)
    size = allowed / tolerance + jnp.abs(gap)
    is_soft = np.arange(len(rhs)) < m
    # What is missed of a bound is a matter of rounding, or of rows that found no room.
    beyond, worst = smallest(jnp.where(is_soft, FEASIBLE, 10 * FEASIBLE) * size - gap)
    feasible = beyond >= 0
    over = jnp.maximum(matmul(final.normals, x) - final.rhs, 0)
    work = 1 + jnp.sum(multipliers * jnp.abs(final.rhs))
    residual = jnp.maximum(gap[worst] / size[worst], jnp.max(multipliers * over) / work)
    slack = jnp.max(jnp.where(is_soft, gap, 0), initial=0.0)

    def met() -> tuple[Array, ...]:
        return x, slack, residual

    def missed() -> tuple[Array, ...]:
        return _least_violation(H, A, b, C, lower, upper, factor, x)

    x, slack, residual = jax.lax.cond(feasible, met, missed)
    return x, multipliers, final.rows, slack, feasible, residual, final.iterations


def _least_violation(
    H: Array, A: _Rows, b: Array, C: Array, lower: Array, upper: Array, factor: Array, x: Array
) -> tuple[Array, Array, Array]:
    """`x`, slack and residual where the rows cannot be met together within the bounds.

    Minimises `x^T H x / 2` and the squared violations, weighed heavily, within the bounds, which
    are hard: a convex function of `u = C x`, quadratic in pieces, whose minimiser is unique and
    varies continuously. The step is Newton's among the free coordinates, the best of a few lengths.

    Source: Bertsekas, "Projected Newton methods for optimization problems with simple
    constraints", SIAM J. Control and Optimization 20(2), 1982.
    """
    there = jnp.isfinite(b)
    b = jnp.where(there, b, 0)
    image, units = cholesky(C), jnp.eye(len(x), dtype=x.dtype)

    # Columns one by one, in a loop: there may be hundreds of rows.
    whitened = jax.lax.map(lambda e: A.times(solve_upper_transposed(factor, e)), units)
    length = jnp.sum(whitened**2, axis=0) + FLOOR
    # Nothing can be done about a row of no length; its violation would drown the others'.
    weight = jnp.where(there & (length > HOPELESS), VIOLATION_WEIGHT / length, 0)

    def rows(u: Array) -> Array:
        return jnp.where(there, A.times(cholesky_solve(image, u)), 0)

    def pulled(y: Array) -> Array:
        return cholesky_solve(image, A.transposed(jnp.where(there, y, 0)))

    def metric(u: Array) -> Array:
        return cholesky_solve(image, matmul(H, cholesky_solve(image, u)))

    def violation(u: Array) -> Array:
        return jnp.maximum(b - rows(u), 0)

    def cost(u: Array) -> Array:
        return 0.5 * jnp.sum(u * metric(u)) + 0.5 * jnp.sum(weight * violation(u) ** 2)

    def gradient(u: Array) -> Array:
        return metric(u) - pulled(weight * violation(u))

    def freed(u: Array, g: Array) -> Array:
        """Coordinates that are not all but at a bound and pulled against it."""
        near = NEAR * (1 + jnp.abs(u))
        return ~(((u <= lower + near) & (g > 0)) | ((u >= upper - near) & (g < 0)))

    def step(_: Array, u: Array) -> Array:
        g = gradient(u)
        free = freed(u, g)
        curved = jnp.where(violation(u) > 0, weight, 0)
        hessian = jax.lax.map(lambda e: metric(e) + pulled(curved * rows(e)), units)
        # To a unit diagonal, as torques of different joints differ in size; a little more for
        # float32, in which the heavy rows leave few digits.
        root = jnp.where(free, jax.lax.rsqrt(jnp.diagonal(hessian)), 0)
        scaled = hessian * root[:, None] * root[None, :]
        scaled = scaled + jnp.diag(jnp.where(free, RIDGE, 1))
        change = root * cholesky_solve(cholesky(scaled), -root * g)
        to_bound = jnp.where(free, 0, jnp.where(g > 0, lower, upper) - u)
        trials = [jnp.clip(u + to_bound + t * change, lower, upper) for t in STEPS]
        # Where bounds that are near cut Newton's step short, the gradient's still leads down.
        trials += [jnp.clip(u - t * g / jnp.diagonal(hessian), lower, upper) for t in SHORT]
        costs = jax.lax.map(cost, jnp.stack(trials))
        # The cost is known to its rounding only. Where the system is singular, `u` stays.
        best = jnp.where(jnp.isfinite(costs), costs, jnp.inf)
        _, chosen = smallest(best)
        better = best[chosen] <= cost(u) * (1 + 4 * float(np.finfo(u.dtype).eps))
        return jnp.where(better, jnp.stack(trials)[chosen], u)

    start = jnp.clip(jnp.where(jnp.all(jnp.isfinite(x)), matmul(C, x), 0), lower, upper)
    found = jax.lax.fori_loop(0, NEWTON_STEPS, step, start)

    def missed(u: Array) -> Array:
        return jnp.sum(weight * violation(u) ** 2)

    # Heavy as it is, the weight leaves some violation where little of it was necessary.
    u = jnp.where(missed(found) < missed(start), found, start)
    g = gradient(u)
    free = freed(u, g)
    pushes = weight * violation(u)
    terms = jax.lax.map(lambda e: jnp.max(jnp.abs(rows(e)) * pushes, initial=0.0), units)
    pull = jnp.max(jnp.abs(metric(u)))
    residual = jnp.max(jnp.where(free, jnp.abs(g), 0)) / (1e-6 + pull + jnp.max(terms))
    return cholesky_solve(image, u), jnp.max(violation(u), initial=0.0), residual


@_solve.defjvp
def _solve_jvp(
    options: _Options, primals: Any, tangents: Any
) -> tuple[tuple[Array, ...], tuple[Any, ...]]:
    """Differentiates `H x = A^T l`, `A x + D l = b`, over the active rows `A`."""
    product, softness, _, _ = options
    H, b, C, lower, upper, *parameters = primals
    d_H, d_b, d_C, d_lower, d_upper, *d_parameters = tangents
    m = len(b)
    solution = _solve(options, *primals)
    x, multipliers, active = solution[:3]
    there = (active >= 0).astype(x.dtype)

    def pick(soft: Array, hard: Array, opposite: Array) -> Array:
        return jnp.concatenate([soft, hard, opposite])[jnp.maximum(active, 0)] * there

    def finite(bound: Array) -> Array:
        return jnp.where(jnp.isfinite(bound), bound, 0)

    def row(i: Array) -> Array:
        soft = _Rows.of(product, parameters, x).transposed((jnp.arange(m) == i).astype(x.dtype))
        return jnp.where(i < m, soft, jnp.concatenate([C, -C])[jnp.maximum(i - m, 0)])

    # What the multipliers pull at `x` with, and where the rows bring it, change with the rows.
    each = jnp.zeros(m + 2 * len(x), x.dtype).at[active].add(multipliers * there)
    soft, hard = each[:m], each[m : m + len(x)] - each[m + len(x) :]

    def pulled(*parameters: Array) -> Array:
        return _Rows.of(product, parameters, x).transposed(soft)

    changed = _tangent(lambda *p: product(x, *p), parameters, d_parameters)
    held = matmul(d_C, x)
    d_rhs = pick(d_b, d_lower, -d_upper) * (
        finite(pick(b, lower, -upper)) == pick(b, lower, -upper)
    )
    rows = jax.vmap(row)(active) * there[:, None]
    factor = cholesky(H)
    whitened = solve_upper(factor, rows.T).T
    length = jnp.sum(whitened**2, axis=1)
    # In float32 a little more than the rows give, so that rows that conflict can be solved for.
    least = 100 * float(np.finfo(x.dtype).eps)
    give = jnp.maximum(jnp.where(active < m, softness, 0), least) * (length + FLOOR) * there
    gram = matmul(whitened, whitened.T) + jnp.diag(give + (1 - there))

    pull = _tangent(pulled, parameters, d_parameters) + matmul(d_C.T, hard) - matmul(d_H, x)
    change = d_rhs - pick(changed, held, -held)
    y = solve_upper(factor, pull)
    d_multipliers = cholesky_solve(cholesky(gram), change - matmul(whitened, y))
    d_x = solve_upper_transposed(factor, y + matmul(whitened.T, d_multipliers))
    nothing = [
        jnp.zeros_like(s) if jnp.issubdtype(s.dtype, jnp.floating) else _float0(s)
        for s in solution[1:]
    ]
    return solution, (d_x, *nothing)


def _tangent(f: Callable[..., Array], parameters: Any, d_parameters: Any) -> Array:
    if not parameters:
        return jnp.zeros_like(f())
    tangent: Array = jax.jvp(f, tuple(parameters), tuple(d_parameters))[1]
    return tangent


def _float0(x: Array) -> np.ndarray[Any, Any]:
    return np.zeros(x.shape, jax.dtypes.float0)


def _start(n: int, capacity: int, rhs: Array) -> _State:
    dtype = rhs.dtype
    zeros = jnp.zeros(capacity, dtype)
    return _State(
        rows=jnp.full(capacity, -1, jnp.int32),
        normals=jnp.zeros((capacity, n), dtype),
        whitened=jnp.zeros((capacity, n), dtype),
        gram=jnp.zeros((capacity, capacity), dtype),
        give=zeros,
        rhs=zeros,
        multipliers=zeros,
        members=jnp.zeros(-(-len(rhs) // 32), jnp.uint32),
        extra=zeros,
        lacking=jnp.full((), jnp.inf, dtype),
        hardenings=jnp.zeros((), jnp.int32),
        entering=jnp.full((), NONE, jnp.int32),
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
        normals=jnp.where(here[:, None], normal, state.normals),
        whitened=jnp.where(here[:, None], new, state.whitened),
        gram=jnp.where(here[:, None], common[None, :], gram),
        give=jnp.where(here, give, state.give),
        rhs=jnp.where(here, rhs, state.rhs),
        lacking=jnp.where(row >= 0, jnp.inf, state.lacking),
        members=jnp.where(row >= 0, state.members | _bit(row, len(state.members)), state.members),
    )


def _retreat(state: _State, accepted: _State, goal: Array, blocked: Array) -> _State:
    """`accepted`, unless multipliers would become negative at `goal`.

    Then those of `state` move towards it until the first vanishes, and its row is dropped.
    """
    back = jnp.any(blocked)
    ratio = state.multipliers / jnp.where(blocked, state.multipliers - goal, 1)
    least, first = smallest(jnp.where(blocked, ratio, jnp.inf))
    moved = jnp.maximum(state.multipliers + least * (goal - state.multipliers), 0)
    gone = back & (jnp.arange(len(state.rows)) == first)
    either = gone[:, None] | gone[None, :]
    dropped = jnp.where(back, _bit(state.rows[first], len(state.members)), jnp.uint32(0))
    return accepted._replace(
        rows=jnp.where(gone, -1, state.rows),
        normals=jnp.where(gone[:, None], 0, state.normals),
        whitened=jnp.where(gone[:, None], 0, state.whitened),
        gram=jnp.where(either, 0, state.gram),
        give=jnp.where(gone, 0, state.give),
        rhs=jnp.where(gone, 0, state.rhs),
        extra=jnp.where(gone, 0, jnp.where(back, state.extra, accepted.extra)),
        multipliers=jnp.where(gone, 0, jnp.where(back, moved, goal)),
        members=state.members & ~dropped,
        lacking=jnp.where(back, state.lacking, accepted.lacking),
        hardenings=jnp.where(back, state.hardenings, accepted.hardenings),
        entering=jnp.where(back, AGAIN, accepted.entering).astype(jnp.int32),
    )


def _harden(state: _State, tolerance: float) -> _State:
    """Ask for more by what the active rows gave (the method of multipliers), or end.

    Slacks vanish where the rows can be met together. Where they cannot, multipliers grow and
    nothing else changes, which is recognised by slacks that do not shrink.
    """
    given = state.give * state.multipliers
    lacking = jnp.max(jnp.abs(given - state.extra) / (1 + jnp.abs(state.rhs)))
    useful = (lacking <= 0.9 * state.lacking) & (state.hardenings < HARDENINGS)
    return state._replace(
        extra=given,
        lacking=lacking,
        hardenings=state.hardenings + 1,
        entering=jnp.where((lacking > tolerance) & useful, AGAIN, NONE).astype(jnp.int32),
    )


def _refine(state: _State, factor: Array, tolerance: float) -> tuple[Array, Array]:
    """`x` and multipliers, corrected by what the rows themselves, not whitened, say of `x`.

    The coordinates `y` are ill-conditioned where the inertia is: in float32 up to 1e-4 of a row.
    Rows that can be met are met as they stand: a multiplier may be so large that what is left of
    their slack, within the tolerance, would show in the objective.
    """
    met = state.lacking <= tolerance
    system, multipliers = cholesky(_system(state)), state.multipliers
    x = solve_upper_transposed(factor, _point(state.whitened, multipliers))
    for _ in range(REFINEMENTS):
        wanted = jnp.where(met, 0, state.give * multipliers - state.extra)
        left = state.rhs - matmul(state.normals, x) - wanted
        change = cholesky_solve(system, left)
        change = jnp.where(jnp.all(multipliers + change >= 0), change, 0)
        x = x + solve_upper_transposed(factor, _point(state.whitened, change))
        multipliers = multipliers + change
    return x, multipliers


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


def _select(condition: Array, yes: _State, no: _State) -> _State:
    chosen: _State = jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
    return chosen
