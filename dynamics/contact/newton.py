"""Newton's method for accelerations under soft constraints.

The acceleration minimises the convex cost `(a - a_s)' M (a - a_s) / 2 + s(J a - aref)`, where
`M a_s = f` are the smooth forces and `s` is the sum of the constraints' costs: MuJoCo's primal
problem. Newton's direction with a safeguarded search along it converges from anywhere; on a convex,
piecewise quadratic function it ends in finitely many rounds.

Source: Nocedal and Wright, "Numerical optimization" (2006), chapters 3 and 6; MuJoCo's
documentation, "Computation: Constraint solver".
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..math.algebra import matmul
from ..math.pytree import pytree_dataclass
from ..solvers.cholesky import cholesky, cholesky_solve
from .model import Layout
from .rows import Rows, Values

UNROLLED = 0
"""Rounds that are written out before the loop of the others."""

SLOPE = 0.01
"""Part of its first slope at which a search along a direction ends."""

SEARCHES = 20
"""Most evaluations of a search."""


class Limits(NamedTuple):
    """When to stop: the gradient's norm over the trace of the mass matrix, and the most rounds."""

    tolerance: float
    rounds: int


def limits(dtype: np.dtype) -> Limits:
    """The limits of a precision."""
    return Limits(1e-10, 30) if dtype == np.float64 else Limits(1e-6, 15)


@pytree_dataclass
class Solution:
    """What the constraints do at one state.

    Attributes:
        force: (slots, 6), N and N m, of each contact slot, `[force; moment]` in the contact's axes,
            on the second body; zero where there is no contact.
        joint_force: (nv,), N m and N, of all constraints together, `J' f`.
        equality: (rows,), N and N m, of each equality's rows in turn: one of "joint", three of
            "connect", six of "weld".
        friction_loss: (k,), N m and N, of `Layout.friction_loss`.
        limit: (2 k + b,), N m and N, of the lower and upper limits of `Layout.limited` in turn, and
            of `Layout.limited_balls`.
        residual: norm of the gradient over the trace of the mass matrix, m/s^2 or rad/s^2.
        rounds: int, of Newton's method.
        converged: whether the residual is as small as asked.
    """

    force: Array
    joint_force: Array
    equality: Array
    friction_loss: Array
    limit: Array
    residual: Array
    rounds: Array
    converged: Array


class State(NamedTuple):
    """The loop's state: acceleration (nv,), gradient of the cost there (nv,), rounds so far."""

    a: Array
    gradient: Array
    rounds: Array


def minimise(
    metric: Array, force: Array, rows: Rows, warm_start: Array | None = None
) -> tuple[Array, Array, Array]:
    """The acceleration (nv,) of least cost, its residual, and the rounds (int32) that it took.

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
    free = State(smooth, jnp.zeros_like(smooth), jnp.zeros((), jnp.int32))

    def gradient(a: Array) -> Array:
        forces = rows.force(rows.violation(a))
        return matmul(metric, a) - force - rows.transpose(forces)

    def running(state: State) -> Array:
        return (_norm(state.gradient) * scale > tolerance) & (state.rounds < most)

    def one_round(state: State) -> State:
        a, g, rounds = state
        x = rows.violation(a)
        H = metric + rows.hessian(x)
        floor = float(np.finfo(H.dtype).eps) * jnp.max(jnp.diagonal(H))
        p = -cholesky_solve(cholesky(H, floor), g)
        a = a + _length(rows, x, p, jnp.sum(g * p), jnp.sum(p * matmul(metric, p))) * p
        return State(a, gradient(a), rounds + 1)

    def constrained(_: State) -> State:
        a = smooth
        if warm_start is not None:
            there = rows.cost(rows.violation(warm_start))
            away = warm_start - smooth
            there = there + 0.5 * jnp.sum(away * (matmul(metric, warm_start) - force))
            better = there < rows.cost(rows.violation(smooth))
            a = jnp.where(better, warm_start, smooth)
        state = State(a, gradient(a), free.rounds)
        for _round in range(UNROLLED):
            state = jax.lax.cond(running(state), one_round, lambda s: s, state)
        return jax.lax.while_loop(running, one_round, state)

    state: State = jax.lax.cond(_any_active(rows), constrained, lambda s: s, free)
    return state.a, _norm(state.gradient) * scale, state.rounds


def _length(rows: Rows, x: Values, p: Array, slope: Array, square: Array) -> Array:
    """Length of the step along `p` at which the cost hardly falls any more.

    The cost's slope along the way is `slope + t square - (f(x + t y) - f(x))' y` with `y = J p`. Its
    zero is searched by Newton's method, within a bracket. Slopes decide, not costs: differences of
    those drown in rounding.

    Args:
        rows: the constraints.
        x: violations at the start.
        p: (nv,), the direction.
        slope: at the start, negative.
        square: `p' M p`.
    """
    y = rows.apply(p)
    at_start = slope + _dot(rows.force(x), y)
    enough = SLOPE * jnp.abs(slope)

    def at(t: Array) -> Values:
        return tuple(u + t * w for u, w in zip(x, y, strict=True))

    def slope_at(t: Array) -> Array:
        return at_start + t * square - _dot(rows.force(at(t)), y)

    def running(s: tuple[Array, ...]) -> Array:
        _, _, _, now, count = s
        return (jnp.abs(now) > enough) & (count < SEARCHES)

    def narrow(s: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, t, now, count = s
        low, high = jnp.where(now < 0, t, low), jnp.where(now < 0, high, t)
        step = t - now / (square + rows.curvature(at(t), y))
        between = jnp.where(high < np.inf, 0.5 * (low + high), 2 * t)
        t = jnp.where((step > low) & (step < high), step, between)
        return low, high, t, slope_at(t), count + 1

    one = jnp.ones_like(slope)
    state = (0 * one, np.inf * one, one, slope_at(one), jnp.zeros((), jnp.int32))
    low, _, t, now, _ = jax.lax.while_loop(running, narrow, state)
    # Where the search was given up, the bracket's lower end lowers the cost for certain.
    return jnp.where((now > enough) & (low > 0), low, t)


def solution(
    layout: Layout, rows: Rows, a: Array, residual: Array, rounds: Array
) -> Solution:
    """The constraints' forces at the acceleration `a` (nv,)."""
    forces = rows.force(rows.violation(a))
    sizes = {"joint": 1, "connect": 3, "weld": 6}
    equalities = sum(sizes[e.kind] for e in layout.equalities)
    ends = np.cumsum([equalities, len(layout.friction_loss)])
    equality, friction_loss, limit = jnp.split(forces[0], ends)
    # Slots come in the order of groups; rolls and spin that a contact does not resist are zero.
    order = np.argsort(np.array([s for c in rows.contacts for s in c.slots], int))
    parts = [jnp.pad(f, ((0, 0), (0, 6 - f.shape[1]))) for f in forces[1:]]
    force = jnp.concatenate([*parts, jnp.zeros((0, 6), a.dtype)])[order]
    return Solution(
        force=force,
        joint_force=rows.transpose(forces),
        equality=equality,
        friction_loss=friction_loss,
        limit=limit,
        residual=residual,
        rounds=rounds.astype(jnp.int32),
        converged=residual <= limits(a.dtype).tolerance,
    )


def _any_active(rows: Rows) -> Array:
    """Whether some row has a weight."""
    active = jnp.any(rows.scalar.weight > 0)
    for c in rows.contacts:
        active = active | jnp.any(c.weight > 0)
    return active


def _dot(f: Values, y: Values) -> Array:
    total = jnp.sum(f[0] * y[0])
    for a, b in zip(f[1:], y[1:], strict=True):
        total = total + jnp.sum(a * b)
    return total


def _norm(g: Array) -> Array:
    return jnp.sqrt(jnp.sum(g * g))
