"""Differential dynamic programming with several shots: a plan from a guess.

Every knot has a state of its own, and gaps between where a step ends and where the next begins are
closed on the way, all at once by a full step. Ten step lengths are tried side by side; in a batch
nine of them only where the full step disappoints.

Source: Mastalli et al., "Crocoddyl: an efficient and versatile framework for multi-contact optimal
control" (ICRA 2020), section III. What is accepted and how it is regularised is as in its
`SolverFDDP`, but for two things: that takes the longest step that is good enough, this the best,
unless the full one improves most of what was expected; and that regularises more after steps of a
hundredth, this after those of a quarter. Where torques are at their limits no feedback keeps a
motion near what was expected of it, and steps stay short.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import compute_terms
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.errors import ConfigError, check_choice, check_count
from fraxenv.kernels import fusible

from .alone import alone, one_by_one
from .batches import alone_or_many, for_some, while_running
from .constraints import (
    Multipliers,
    augmented,
    beyond,
    first_multipliers,
    promised,
    updated,
    violation,
)
from .guess import guess as standing
from .held import at_limits, corrected
from .motion import advanced, curvature, linearised
from .problem import (
    Problem,
    Quadratic,
    at_knot,
    beginning,
    clipped,
    cost,
    cost_bend,
    of_dtype,
    quadratic_cost,
    shaped,
    spread,
)
from .residuals import Residual
from .riccati import Gains, Knots, backward
from .scheduled import with_contacts
from .states import Guess, between, moved

LENGTHS = tuple(2.0**-k for k in range(10))
"""Of the steps that are tried; of those that are good enough the best is taken."""

ENOUGH, ENOUGH_UPHILL = 0.1, 2.0
"""What a step has to improve, as a share of what was expected; and where a rise was expected, the
share of it that it may be."""

CONTENT = 0.75
"""Share of what was expected that a full step has to improve to be taken before any other is tried:
what half a step was expected to."""

FLAT = 1e-12
"""Slope below which any step is good enough."""

LEAST, MOST, FACTOR = 1e-9, 1e9, 10.0
"""Regularisation: its range, and by how much it changes."""

HANDED_ON = 1e-4
"""Most regularisation that a plan hands on to the next. With none a humanoid falls that is planned
an iteration at a time; with all of it plans that push stop short of the goal, at a kink."""

SHORT, LONG = 0.25, 0.5
"""Steps no longer than the first raise the regularisation, longer ones than the second lower it."""

PASSES = 10
"""At most, of finding which torques are at their limits in an iteration."""

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Of what exact Hessians have besides Gauss and Newton's: the most that leaves them positive
definite is taken."""

CONVERGED, ITERATIONS, REGULARISATION, NOT_FINITE = range(4)
STATUS = ("converged", "iterations", "regularisation", "not finite")
"""How a plan ended, by the number in `Plan.status`."""


@dataclass(frozen=True)
class Options:
    """Of `solve`; all decide the program.

    Attributes:
        iterations: at most.
        tolerance: of the improvement that a full step promises, below which a plan without gaps
            has converged.
        missing: of the problem's constraints, in their units, by how much a plan that has converged
            may miss them.
        hessian: "gauss-newton", or "exact": with the curvature of the dynamics and of the
            residuals, where it is positive definite.
        backend: of the kernels; see `fraxenv.fuse`.
    """

    iterations: int = 100
    tolerance: float = 1e-9
    missing: float = 1e-5
    hessian: str = "gauss-newton"
    backend: str = "auto"

    def __post_init__(self) -> None:
        check_count("Options: iterations", self.iterations)
        check_choice("Options: hessian", self.hessian, ("gauss-newton", "exact"))
        for name in ("tolerance", "missing"):
            if not getattr(self, name) >= 0:
                raise ConfigError(
                    f"Options: {name}={getattr(self, name)!r}, expected a number of at least 0."
                )


class Plan(NamedTuple):
    """A motion, and the feedback about it: `tau + K [difference(q_k, q); v - v_k]`.

    Differences of continuous joints are those of the short way round. Gains are of the last
    iteration, about the motion that it began with.

    Attributes:
        q: (N + 1, nq), rad and m.
        v: (N + 1, nv), rad/s and m/s.
        tau: (N, nv), N m and N.
        gains: (N, nv, 2 nv), K.
        cost: ().
        gap: (), the largest component of any gap that is left, on the tangent space.
        violation: (), by how much the problem's constraints are missed at most, in their units.
        multipliers: for each of the constraints (N + 1, rows), what it is worth: cost by unit.
        improvement: (), what a full step promised in the last iteration.
        iterations: (), how many there were.
        status: (), see `plan.STATUS`.
        regularisation: (), with which another iteration would be, as it is, up to a limit, where
            this plan is the guess: what failed is not tried again as it was.
    """

    q: Array
    v: Array
    tau: Array
    gains: Array
    cost: Array
    gap: Array
    violation: Array
    multipliers: tuple[Array, ...]
    improvement: Array
    iterations: Array
    status: Array
    regularisation: Array


class _Iterate(NamedTuple):
    """What an iteration changes.

    Attributes:
        gap: the largest component of any gap that is left.
        closed: whether there are no gaps left.
        near: whether the last step was a full one without gaps: then exact Hessians pay.
    """

    q: Array
    v: Array
    tau: Array
    gains: Array
    cost: Array
    gap: Array
    improvement: Array
    regularisation: Array
    closed: Array
    near: Array
    multipliers: Multipliers | None
    iterations: Array
    status: Array


class _Trial(NamedTuple):
    """A step of one length.

    Attributes:
        length: as a share of the full step.
        expected: what it was to improve.
        promised: what a full step would.
        good: whether it may be taken.
        content: whether it is so good that no other need be tried.
    """

    length: Array
    q: Array
    v: Array
    tau: Array
    cost: Array
    expected: Array
    promised: Array
    good: Array
    content: Array


WIDEST = 12
"""Degrees of freedom up to which a batch's backward passes are computed side by side: there a
kernel's text has each operation. More have large arrays, which are loops in a kernel of one."""

RUNNING = -1


def solve(
    problem: Problem,
    state: tuple[ArrayLike, ArrayLike],
    guess: Guess | Plan | None = None,
    options: Options = Options(),
) -> Plan:
    """The plan that costs least, near a guess.

    Args:
        problem: what moves, and what it costs.
        state: (q (nq,), v (nv,)) in which it begins.
        guess: `plan.guess(problem, *state)` if omitted; or an earlier plan.
        options: see `Options`.

    Raises:
        ArrayError: an array has the wrong shape.
    """
    robot, N, dtype = problem.robot, problem.horizon, jnp.result_type(float)
    problem = spread(of_dtype(problem, dtype))
    begin = beginning("solve", robot, state, dtype)
    first = standing(problem, *begin) if guess is None else guess
    wanted = ("q", (N + 1, robot.nq)), ("v", (N + 1, robot.nv)), ("tau", (N, robot.nv))
    q, v, tau = (
        shaped(f"solve: guess.{name}", getattr(first, name), shape, dtype) for name, shape in wanted
    )
    tau = clipped(problem, tau)
    known = getattr(first, "multipliers", ())
    multipliers = first_multipliers(problem, known, dtype) if problem.constraints else None

    def again(given: Any, now: _Iterate) -> _Iterate:
        problem, begin = given
        if now.multipliers is None:
            return _iteration(problem, options, begin, now)
        step = _iteration(augmented(problem, now.multipliers), options, begin, now)
        return _round(problem, options, step)

    zero, no = jnp.zeros((), dtype), jnp.array(False)
    count = jnp.zeros((), jnp.int32)
    start = _Iterate(
        q, v, tau, jnp.zeros((N, robot.nv, 2 * robot.nv), dtype), zero + jnp.inf, zero, zero,
        _regularisation(first, dtype), no, no, multipliers, count, count + RUNNING,
    )  # fmt: skip
    end = while_running(lambda now: now.status == RUNNING, again, (problem, begin), start)
    total, missed = end.cost, zero
    worth: tuple[Array, ...] = ()
    if end.multipliers is not None:
        at = end.multipliers
        total = _cost(problem, options, end)
        missed = violation(beyond(problem, options.backend, end.q, end.v))
        worth = tuple(shift * at.penalty for shift in at.shifts)
    return Plan(
        end.q, end.v, end.tau, end.gains, total, end.gap, missed, worth, end.improvement,
        end.iterations, end.status, end.regularisation,
    )  # fmt: skip


def _regularisation(guess: Guess | Plan, dtype: Any) -> Array:
    """That of an earlier plan, as far as it is handed on."""
    known = guess.regularisation if isinstance(guess, Plan) else LEAST
    return jnp.clip(jnp.asarray(known, dtype), LEAST, HANDED_ON)


def _round(problem: Problem, options: Options, step: _Iterate) -> _Iterate:
    """A step, after which constraints are worth something else where a round is over."""
    at = cast(Multipliers, step.multipliers)
    above = beyond(problem, options.backend, step.q, step.v)
    new = updated(at, above, step.cost, options.tolerance)
    running = step.status == RUNNING
    over = step.closed & (step.improvement < promised(at, step.cost, options.tolerance))
    converged = step.status == CONVERGED
    going = converged & (new.missing > options.missing)
    end = jnp.where(step.iterations >= options.iterations, ITERATIONS, RUNNING)
    taken = going | (running & over)
    return step._replace(
        multipliers=jax.tree.map(lambda x, y: jnp.where(taken, x, y), new, at),
        status=jnp.where(going, end.astype(step.status.dtype), step.status),
    )


def _cost(problem: Problem, options: Options, end: _Iterate) -> Array:
    """Without what constraints are worth."""
    robot, axes = problem.robot, _axes(problem.running)

    def knot(running: Any, q: Array, v: Array, tau: Array, contacts: Any) -> Array:
        here = with_contacts(running, contacts, problem.dt)
        return cost(robot, here, compute_terms(robot, q, v), tau)

    def last(terminal: Any, q: Array, v: Array) -> Array:
        return cost(robot, terminal, compute_terms(robot, q, v), jnp.zeros_like(v))

    many = jax.vmap(fusible(knot, options.backend), (axes, 0, 0, 0, 0))
    along = many(problem.running, end.q[:-1], end.v[:-1], end.tau, problem.contacts)
    at_end = alone(last, options.backend)(problem.terminal, end.q[-1], end.v[-1])
    # XLA's sums depend on the batch, those of a kernel do not.
    whole: Array = problem.dt * alone(jnp.sum, options.backend)(along) + at_end
    return whole


def _iteration(
    problem: Problem, options: Options, begin: tuple[Array, Array], now: _Iterate
) -> _Iterate:
    robot = problem.robot
    knots, terminal, own = _expanded(problem, options, now)
    first_gap = between(robot, now.q[0], now.v[0], *begin)
    by_velocities = not robot.topology.quaternions and problem.contacts is None
    dt = jnp.asarray(problem.dt, first_gap.dtype) if by_velocities else None
    given = options, terminal, own, first_gap, now, dt
    gains, settled = _gains_within(knots, *given)
    total = gains.value

    gaps = jnp.concatenate([first_gap[None], knots.gap])
    pulls = jax.vmap(matmul)(gains.curvature, gaps)
    best = _tried(problem, options, begin, now, gains, gaps, pulls)
    taken, promised = best.good, best.promised
    length = jnp.where(taken, best.length, 0)

    up = ~gains.fine | (length <= SHORT)
    down = length > LONG
    factor = jnp.where(up, FACTOR, jnp.where(down, 1 / FACTOR, 1.0))
    regularisation = jnp.clip(now.regularisation * factor, LEAST, MOST)

    count = now.iterations + 1
    converged = now.closed & gains.fine & settled & (promised < options.tolerance)
    stuck = up & (now.regularisation >= MOST)
    status = jnp.where(count >= options.iterations, ITERATIONS, RUNNING)
    status = jnp.where(stuck, REGULARISATION, status)
    status = jnp.where(converged, CONVERGED, status)
    status = jnp.where(jnp.isfinite(total), status, NOT_FINITE).astype(now.status.dtype)

    def chosen(new: Array, old: Array) -> Array:
        return jnp.where(taken, new, old)

    return _Iterate(
        chosen(best.q, now.q),
        chosen(best.v, now.v),
        chosen(best.tau, now.tau),
        jnp.where(gains.fine, gains.K, now.gains),
        chosen(best.cost, total),
        (1 - length) * jnp.max(jnp.abs(gaps)),
        promised,
        regularisation,
        now.closed | (length == 1),
        now.closed & (length == 1),
        now.multipliers,
        count,
        status,
    )


def _gains_within(
    knots: Knots,
    options: Options,
    terminal: Quadratic,
    own: Array | None,
    first_gap: Array,
    now: _Iterate,
    dt: Array | None,
) -> tuple[Gains, Array]:
    """With torques held at limits where they belong; and whether that was found out."""
    if knots.held is None:
        return _gains(knots, options, terminal, own, first_gap, now, dt), jnp.array(True)

    kernel = one_by_one if now.v.shape[-1] > WIDEST else alone

    def gains_with(held: Array) -> Gains:
        trial = knots._replace(held=held)
        return _gains(trial, options, terminal, own, first_gap, now, dt)

    def again(at: tuple[Any, ...]) -> tuple[Any, ...]:
        held, _, _, count = at
        gains, trial = gains_with(held), knots._replace(held=held)
        right = kernel(corrected, options.backend)(trial, gains, first_gap, now.regularisation)
        return right, gains, jnp.any(right != held), count + 1

    def unsettled(at: tuple[Any, ...]) -> Array:
        _, _, changed, count = at
        more: Array = changed & (count < PASSES)
        return more

    none = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(gains_with, knots.held)
    )
    start = knots.held, none, jnp.array(True), jnp.zeros((), jnp.int32)
    _, gains, changed, _ = jax.lax.while_loop(unsettled, again, start)
    return gains, ~changed


def _gains(
    knots: Knots,
    options: Options,
    terminal: Quadratic,
    own: Array | None,
    first_gap: Array,
    now: _Iterate,
    dt: Array | None,
) -> Gains:
    """By exact Hessians, or by as much of them as leaves them positive definite."""
    given = knots, terminal, first_gap, now.regularisation, dt
    wide = now.v.shape[-1] > WIDEST
    kernel = one_by_one if wide else alone

    if own is None or knots.bend is None:
        return kernel(backward, options.backend)(*given)  # type: ignore[no-any-return]
    m, shares = len(first_gap), np.asarray(SHARES, own.dtype)

    def of(
        share: Any, own: Array, knots: Knots, terminal: Quadratic, gap: Array, more: Array, dt: Any
    ) -> Gains:
        bent = terminal._replace(xx=terminal.xx + share * own[:m, :m])
        # Applied knot by knot: what is outside of the loop over them is written out for all.
        return backward(knots, bent, gap, more, dt, share)

    def less(given: Any) -> Gains:
        # Side by side, but for wide ones.
        many = one_by_one(of, options.backend) if wide else fusible(of, options.backend)
        # Each with arrays of its own, as the whole has: so they are the same kernel.
        alike = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(shares) - 1, *x.shape)), given)
        tried: Gains = jax.vmap(many)(shares[1:], *alike)
        which = jnp.where(jnp.any(tried.fine), jnp.argmax(tried.fine), len(SHARES) - 2)
        taken: Gains = jax.tree.map(lambda x: x[which], tried)
        return taken

    whole: Gains = kernel(of, options.backend)(shares[0], own, *given)
    # Side by side they would take several times as long, and the whole is fine nearly always.
    needed = ~whole.fine & (now.status == RUNNING)
    found: Gains = for_some(needed, less, (own, *given), whole)
    return found


def _expanded(
    problem: Problem, options: Options, now: _Iterate
) -> tuple[Knots, Quadratic, Array | None]:
    """All knots to second order, side by side; and what the end has besides, if exact."""
    robot, dt = problem.robot, problem.dt
    axes = _axes(problem.running)
    after = now.q[1:], now.v[1:]

    def knot(
        running: Any, q: Array, v: Array, tau: Array, q_next: Array, v_next: Array, contacts: Any
    ) -> Any:
        terms = compute_terms(robot, q, v)
        A, B = linearised(problem, terms, tau, contacts)
        gap = between(robot, q_next, v_next, *advanced(problem, terms, tau, contacts))
        here = with_contacts(running, contacts, dt)
        it = quadratic_cost(robot, here, terms, tau)
        return A, B, gap, jax.tree.map(lambda x: dt * x, it)

    def end(terminal: Any, q: Array, v: Array) -> Quadratic:
        return quadratic_cost(robot, terminal, compute_terms(robot, q, v), jnp.zeros_like(v))

    at = now.q[:-1], now.v[:-1], now.tau
    batch = jax.vmap(fusible(knot, options.backend), (axes, 0, 0, 0, 0, 0, 0))
    A, B, gap, it = batch(problem.running, *at, *after, problem.contacts)
    last: Quadratic = alone(end, options.backend)(problem.terminal, now.q[-1], now.v[-1])

    bend = own = None
    if options.hessian == "exact":
        bend, own = _bends(problem, options, now, A, it, last)
    lower = upper = held = None
    if problem.control_limits is not None:
        lower, upper = (x - now.tau for x in problem.control_limits)
        held = at_limits(now.tau, *problem.control_limits)
    return Knots(A, B, gap, it, bend, lower, upper, held), last, own


def _bends(
    problem: Problem, options: Options, now: _Iterate, A: Array, it: Quadratic, last: Quadratic
) -> tuple[Array, Array]:
    """What exact Hessians have besides, of all steps and of the end; zero far from a solution."""
    robot = problem.robot

    def back(after: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        A, slope = at
        return slope + matmul(A.T, after), after

    def costates(end: Array, A: Array, slope: Array) -> Array:
        return jax.lax.scan(back, end, (A, slope), reverse=True)[1]

    after = alone(costates, options.backend)(last.x, A, it.x)

    def knot(running: Any, q: Array, v: Array, tau: Array, costate: Array, contacts: Any) -> Array:
        terms = compute_terms(robot, q, v)
        here = with_contacts(running, contacts, problem.dt)
        of_cost = jnp.asarray(problem.dt) * cost_bend(robot, here, terms, tau)
        of_step = curvature(problem, terms, tau, costate, contacts)
        return of_cost + of_step

    def end(terminal: Any, q: Array, v: Array) -> Array:
        return cost_bend(robot, terminal, compute_terms(robot, q, v), jnp.zeros_like(v))

    axes = _axes(problem.running), 0, 0, 0, 0, 0
    at = problem.running, now.q[:-1], now.v[:-1], now.tau, after, problem.contacts
    bends = jax.vmap(fusible(knot, options.backend), axes)(*at)
    own = alone(end, options.backend)(problem.terminal, now.q[-1], now.v[-1])
    return jnp.where(now.near, bends, 0), jnp.where(now.near, own, 0)


def _tried(
    problem: Problem,
    options: Options,
    begin: tuple[Array, Array],
    now: _Iterate,
    gains: Gains,
    gaps: Array,
    pulls: Array,
) -> _Trial:
    """The best of all lengths; in a batch the shorter ones of those alone whom the full step fails.

    If none is good the shortest.
    """
    lengths = np.asarray(LENGTHS, gaps.dtype)

    def of(lengths: np.ndarray, given: Any) -> _Trial:
        def rollout(length: Any) -> _Trial:
            return _rolled(length, *given)

        tried: _Trial = jax.vmap(fusible(rollout, options.backend))(jnp.asarray(lengths))
        return tried

    def merit(trial: _Trial, full: _Trial) -> Array:
        # Where gaps cost something to close, those that are left count for as much as they may.
        most = ENOUGH_UPHILL * jnp.maximum(-full.expected, 0)
        return jnp.where(trial.good, trial.cost + most * (1 - trial.length), jnp.inf)

    def best_of(shorter: _Trial, full: _Trial) -> _Trial:
        best = jnp.argmin(merit(shorter, full))
        which = jnp.where(jnp.any(shorter.good), best, len(LENGTHS) - 2)
        return jax.tree.map(lambda x: x[which], shorter)  # type: ignore[no-any-return]

    def better(full: _Trial, other: _Trial) -> _Trial:
        stays = full.content | (full.good & (merit(full, full) <= merit(other, full)))
        return jax.tree.map(lambda x, y: jnp.where(stays, x, y), full, other)  # type: ignore[no-any-return]

    def at_once(given: Any) -> _Trial:
        tried = of(lengths, given)
        full, shorter = (jax.tree.map(lambda x, k=k: x[k], tried) for k in (0, slice(1, None)))
        return better(full, best_of(shorter, full))

    def in_turn(given: Any) -> _Trial:
        full = jax.tree.map(lambda x: x[0], of(lengths[:1], given))
        wanting = ~full.content & (given[2].status == RUNNING)

        def shorter(given: Any) -> _Trial:
            problem_and_all, full = given
            return best_of(of(lengths[1:], problem_and_all), full)

        return better(full, for_some(wanting, shorter, (given, full), full))

    given = problem, begin, now, gains, gaps, pulls
    best: _Trial = alone_or_many(at_once, in_turn, given)
    return best


def _rolled(
    length: Array,
    problem: Problem,
    begin: tuple[Array, Array],
    now: _Iterate,
    gains: Gains,
    gaps: Array,
    pulls: Array,
) -> _Trial:
    """A step of a length: the motion that follows, gaps closed by as much."""
    robot = problem.robot
    each = {k: (t.reference, t.weight) for k, t in problem.running.items() if t.each}
    left = length - 1

    def knot(carry: tuple[Array, ...], at: Any) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        q, v, total, pulled = carry
        (own, q_old, v_old, tau, k, K, gap, pull, contacts) = at
        dx = between(robot, q_old, v_old, q, v)
        tau = clipped(problem, tau + length * k + matmul(K, dx))
        terms = compute_terms(robot, q, v)
        running = {k: at_knot(term, own.get(k)) for k, term in problem.running.items()}
        here = with_contacts(running, contacts, problem.dt)
        total = total + problem.dt * cost(robot, here, terms, tau)
        after = advanced(problem, terms, tau, contacts)
        after = moved(robot, *after, left * gap)
        return (*after, total, pulled + jnp.sum(pull * dx)), (q, v, tau)

    zero = jnp.zeros_like(length)
    start: tuple[Array, ...] = (*moved(robot, *begin, left * gaps[0]), zero, zero)
    at = each, now.q[:-1], now.v[:-1], now.tau
    along: Any = (*at, gains.k, gains.K, gaps[1:], pulls[:-1], problem.contacts)
    (q, v, total, pulled), (qs, vs, taus) = jax.lax.scan(knot, start, along)
    terms = compute_terms(robot, q, v)
    total = total + cost(robot, problem.terminal, terms, jnp.zeros_like(v))
    # The gaps' curvature counts for as much as the states moved.
    pulled = pulled + jnp.sum(pulls[-1] * between(robot, now.q[-1], now.v[-1], q, v))
    slope, bend = gains.slope - pulled, gains.bend + 2 * pulled
    expected, found = length * (slope + 0.5 * length * bend), gains.value - total
    enough = jnp.where(
        expected >= 0,
        (slope < FLAT) | (found > ENOUGH * expected),
        found > ENOUGH_UPHILL * expected,
    )
    good = enough & jnp.isfinite(total) & gains.fine
    return _Trial(
        length,
        jnp.concatenate([qs, q[None]]),
        jnp.concatenate([vs, v[None]]),
        taus,
        total,
        expected,
        jnp.abs(slope + 0.5 * bend),
        good,
        good & (expected >= 0) & (found > CONTENT * expected),
    )


def _axes(terms: Mapping[str, Residual]) -> dict[str, Any]:
    """Of the terms at the knots, as `jax.vmap` takes them: those of every knot have one."""

    def of(term: Residual) -> Residual:
        here: Any = 0 if term.each else None
        along = jax.tree.map(lambda _: here, term.reference)
        norm = jax.tree.map(lambda _: None, term.norm)
        return dataclasses.replace(term, reference=along, weight=here, norm=norm)

    return {name: of(term) for name, term in terms.items()}
