"""Newton's method for accelerations under soft constraints.

The acceleration minimises the convex cost `(a - a_s)' M (a - a_s) / 2 + s(J a - aref)`, where
`M a_s = f` are the smooth forces and `s` is the sum of the constraints' costs: MuJoCo's primal
problem. Newton's direction with a safeguarded search along it converges from anywhere; on a convex,
piecewise quadratic function it ends in finitely many rounds.

Source: Nocedal and Wright, "Numerical optimization" (2006), chapters 3 and 6; Boyd and
Vandenberghe, "Convex optimization" (2004), 9.5 (the decrement); MuJoCo's documentation,
"Computation: Constraint solver".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..kinematics import Kinematics
from ..math.algebra import matmul
from ..math.pytree import pytree_dataclass
from ..solvers.cholesky import cholesky, cholesky_solve, solve_upper
from .equality_rows import ROWS, in_world_axes
from .model import Layout
from .rows import Rows, Values

SLOPE = 0.1
"""Part of its first slope at which a search along a direction ends."""

ROUNDING = 64.0
"""Energy of a step that is noise, over that of the problem and squared precision.

Its root, 8, is to be compared with what is left where rounds gain nothing more: 0.1 to 4, and up to
8 for a moment where stiff pads hit each other.
"""

TRIALS = 20
"""Most evaluations of a search."""


class Limits(NamedTuple):
    """When to stop: the gradient's norm over the trace of the mass matrix, and the most rounds."""

    tolerance: float
    rounds: int


def limits(dtype: np.dtype) -> Limits:
    """The limits of a precision."""
    return Limits(1e-12, 30) if dtype == np.float64 else Limits(1e-6, 15)


@pytree_dataclass
class Solution:
    """What the constraints do at one state.

    Attributes:
        acceleration: (nv,), rad/s^2 and m/s^2, at which the forces are: the next warm start.
        force: (slots, 6), N and N m, of each contact slot, `[force; moment]` in the contact's axes,
            on the second body; zero where there is no contact.
        touching: (slots,) bool, whether there is a contact in the slot.
        velocity: (slots, 3), m/s, of the second body against the first at each contact slot, in the
            contact's axes; only where `touching`, and of frictionless contacts only the first.
        joint_force: (nv,), N m and N, of all constraints together, `J' f`.
        equality: (rows,), N and N m, of each equality's rows in turn: one of "joint", three of
            "connect", six of "weld"; the first three along the world's axes.
        friction_loss: (k,), N m and N, of `Layout.friction_loss`.
        limit: (2 k + b,), N m and N, of the lower and upper limits of `Layout.limited` in turn, and
            of `Layout.limited_balls`.
        residual: norm of the gradient over the trace of the mass matrix, m/s^2 or rad/s^2.
        rounds: int, of Newton's method.
        converged: whether the residual is as small as asked, or as rounding allows.
    """

    acceleration: Array
    force: Array
    touching: Array
    velocity: Array
    joint_force: Array
    equality: Array
    friction_loss: Array
    limit: Array
    residual: Array
    rounds: Array
    converged: Array


class Report(NamedTuple):
    """Residual, rounds, and whether it converged: `Solution`'s, as floating-point numbers."""

    residual: Array
    rounds: Array
    converged: Array


class State(NamedTuple):
    """The loop's state: acceleration (nv,), gradient of the cost there (nv,), rounds so far.

    `stalled` is whether what is left to go is within rounding.
    """

    a: Array
    gradient: Array
    stalled: Array
    rounds: Array


def minimise(
    metric: Array, force: Array, rows: Rows, warm_start: Array | None = None
) -> tuple[Array, Report]:
    """The acceleration (nv,) of least cost.

    Args:
        metric: (nv, nv), `M`, symmetric positive definite.
        force: (nv,), the smooth forces.
        rows: the constraints.
        warm_start: (nv,), where to begin if that is better than the smooth acceleration. The result
            does not depend on it, beyond the tolerance.
    """
    tolerance, most = limits(metric.dtype)
    scale = 1 / jnp.trace(metric)
    smooth = cholesky_solve(cholesky(metric), force)
    rounding = ROUNDING * float(np.finfo(metric.dtype).eps) ** 2
    driven = jnp.sum(smooth * force)

    def gradient(a: Array, forces: Values) -> Array:
        return matmul(metric, a) - force - rows.transpose(forces)

    def running(state: State) -> Array:
        small = (_norm(state.gradient) * scale <= tolerance) | state.stalled
        return ~small & (state.rounds < most)

    def one_round(state: State) -> State:
        a, g, _, rounds = state
        x = rows.violation(a)
        H = metric + rows.hessian(x)
        floor = float(np.finfo(H.dtype).eps) * jnp.diagonal(H)
        factor = cholesky(H, floor)
        p = -cholesky_solve(factor, g)
        along = rows.apply(p)
        t, forces = _search(rows, x, along, jnp.sum(g * p), jnp.sum(p * matmul(metric, p)))
        a = a + t * p
        g = gradient(a, forces)
        # Newton's decrement, squared: what is left to go after a step within one zone. It is twice
        # the energy of that step in the metric and in the constraints, which are stiffer: a step
        # that is short in the metric alone may still be seen in their forces. Rounding is relative
        # to what cancels in the gradient: the acceleration, as stiff as the step, which constraints
        # take back (`J a - aref`); and where it vanishes, smooth forces against constraints, and
        # constraints that oppose each other.
        left, stiff = solve_upper(factor, g), matmul(a, factor)
        # Costs are of second degree but beyond friction loss: `-f' x` is twice theirs, or less.
        energy = jnp.sum(stiff * stiff) + driven - _power(forces, _further(x, t, along))
        return State(a, g, jnp.sum(left * left) <= rounding * energy, rounds + 1)

    # In no branch for those whom something touches: in one, the loop's lanes are not refilled.
    active = _any_active(rows)
    x = rows.violation(smooth)
    start = smooth, rows.force(x)
    if warm_start is not None:
        y = rows.violation(warm_start)
        away = warm_start - smooth
        there = rows.cost(y) + 0.5 * jnp.sum(away * (matmul(metric, warm_start) - force))
        better = active & (there < rows.cost(x))
        warm = warm_start, rows.force(y)
        start = jax.tree.map(lambda one, other: jnp.where(better, one, other), warm, start)
    # What touches nothing has no residual, wherever it flies.
    g = jnp.where(active, gradient(*start), 0.0)
    state = State(start[0], g, jnp.zeros((), bool), jnp.zeros((), jnp.int32))
    state = jax.lax.while_loop(running, one_round, state)
    residual = _norm(state.gradient) * scale
    finite = jnp.all(jnp.abs(state.a) < jnp.inf)
    converged = finite & ((residual <= tolerance) | state.stalled)
    dtype = residual.dtype
    return state.a, Report(residual, state.rounds.astype(dtype), converged.astype(dtype))


def _search(
    rows: Rows, x: Values, along: Values, slope: Array, inertia: Array
) -> tuple[Array, Values]:
    """How far to go in a direction until the cost hardly falls any more, and the forces there.

    The slope of the cost grows along the way; its zero is bracketed, and searched by secants. The
    first trial is Newton's step, which nearly always ends the search. Slopes decide, not costs:
    differences of those drown in rounding. A trial looks at the rows alone, and at no joint.

    Args:
        rows: the constraints.
        x: their violations where the search begins.
        along: `J p`, what a step of length one in the direction `p` adds to them.
        slope: of the cost where it begins, negative.
        inertia: `p' M p`.
    """
    enough = SLOPE * jnp.abs(slope)
    forces = rows.force(x)
    begin = slope + _power(forces, along)

    def running(s: _Bracket) -> Array:
        return (jnp.abs(s.slope) > enough) & (s.trials < TRIALS)

    def narrow(s: _Bracket) -> _Bracket:
        t = s.following
        forces = rows.force(_further(x, t, along))
        slope = begin + t * inertia - _power(forces, along)
        falls, open_ended = slope < 0, s.high == 0
        # Beyond the last trial if the cost falls there still, else between the ends.
        secant = t + (t - s.low) * slope / jnp.where(slope == s.at_low, 1, s.at_low - slope)
        beyond = jnp.clip(secant, 1.5 * t, 8 * t)
        low, at_low = jnp.where(falls, t, s.low), jnp.where(falls, slope, s.at_low)
        high, at_high = jnp.where(falls, s.high, t), jnp.where(falls, s.at_high, slope)
        width = high - low
        secant = low + width * at_low / jnp.where(at_low == at_high, 1, at_low - at_high)
        between = jnp.clip(secant, low + 0.1 * width, high - 0.1 * width)
        following = jnp.where(falls & open_ended, beyond, between)
        return _Bracket(low, at_low, high, at_high, following, t, slope, forces, s.trials + 1)

    zero, one = jnp.zeros_like(slope), jnp.ones_like(slope)
    trials = jnp.zeros((), jnp.int32)
    start = _Bracket(zero, slope, zero, zero, one, zero, slope, forces, trials)
    last = jax.lax.while_loop(running, narrow, start)
    return last.t, last.forces


class _Bracket(NamedTuple):
    """A search: the ends of the bracket (no upper one yet: zero), the slopes there, what to try.

    `t`, `slope` and `forces` are of the last trial.
    """

    low: Array
    at_low: Array
    high: Array
    at_high: Array
    following: Array
    t: Array
    slope: Array
    forces: Values
    trials: Array


def _further(x: Values, t: Array, along: Values) -> Values:
    return tuple(y + t * dy for y, dy in zip(x, along, strict=True))


def _power(f: Values, x: Values) -> Array:
    """`f' x`, over all rows."""
    return sum((jnp.sum(a * b) for a, b in zip(f, x, strict=True)), jnp.zeros((), f[0].dtype))


def solution(
    layout: Layout, kin: Kinematics, rows: Rows, v: Array, a: Array, report: Report
) -> Solution:
    """The constraints' forces at the velocity `v` (nv,) and the acceleration `a` (nv,)."""
    forces = rows.force(rows.violation(a))
    equalities = sum(ROWS[e.kind] for e in layout.equalities)
    ends = np.cumsum([equalities, len(layout.friction_loss)])
    scalar = in_world_axes(layout, kin, forces[0])
    equality, friction_loss, limit = jnp.split(scalar, ends)
    # Slots come in the order of groups; rolls and spin that a contact does not resist are zero.
    order = np.argsort(np.array([s for c in rows.contacts for s in c.slots], int))

    def by_slot(parts: Iterable[Array], width: int) -> Array:
        wide = [jnp.pad(x, ((0, 0), (0, max(0, width - x.shape[1]))))[:, :width] for x in parts]
        return jnp.concatenate([*wide, jnp.zeros((0, width), a.dtype)])[order]

    touching = by_slot([(c.weight > 0).astype(a.dtype)[:, None] for c in rows.contacts], 1) > 0
    return Solution(
        acceleration=a,
        force=by_slot(forces[1:], 6),
        touching=touching[:, 0],
        velocity=by_slot(rows.apply(v)[1:], 3),
        joint_force=rows.transpose(forces),
        equality=equality,
        friction_loss=friction_loss,
        limit=limit,
        residual=report.residual,
        rounds=report.rounds.astype(jnp.int32),
        converged=report.converged > 0,
    )


def _any_active(rows: Rows) -> Array:
    """Whether some row has a weight."""
    active = jnp.any(rows.scalar.weight > 0)
    for c in rows.contacts:
        active = active | jnp.any(c.weight > 0)
    return active


def _norm(g: Array) -> Array:
    return jnp.sqrt(jnp.sum(g * g))
