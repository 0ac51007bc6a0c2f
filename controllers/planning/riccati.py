"""The backward pass of differential dynamic programming: gains, and the value of every knot.

Source: Mastalli et al., "Crocoddyl: an efficient and versatile framework for multi-contact optimal
control" (ICRA 2020), section III.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.solvers.blocked_cholesky import (
    BLOCK,
    blocked_cholesky,
    blocked_cholesky_solve,
)
from fraxenv.dynamics.solvers.cholesky import cholesky, cholesky_solve

from .problem import Quadratic


class Knots(NamedTuple):
    """The steps of a plan to second order, each with a leading axis of N.

    Attributes:
        A: (2 nv, 2 nv), derivative of a step by the tangent vector where it begins.
        B: (2 nv, nv), by the torques.
        gap: (2 nv,), from the next knot to where the step ends.
        cost: of a knot, to second order.
        bend: (3 nv, 3 nv), what an exact Hessian has besides; None for Gauss and Newton's.
        lower: (nv,), least change of the torques; None without limits.
        upper: (nv,), largest one.
        held: (nv,), 1 where a torque is at its upper limit whatever happens, -1 at its lower, 0
            where it is free, and nothing keeps it from going beyond.
    """

    A: Array
    B: Array
    gap: Array
    cost: Quadratic
    bend: Array | None
    lower: Array | None
    upper: Array | None
    held: Array | None


class Gains(NamedTuple):
    """How the torques change: by `step length k + K dx`.

    Attributes:
        value: (), the cost as it is.
        k: (N, nv).
        K: (N, nv, 2 nv).
        gradient: (N + 1, 2 nv), derivative of the value of a knot, at the state that it is
            planned in.
        curvature: (N + 1, 2 nv, 2 nv), second derivative of it.
        slope: (), what a unit step improves, to first order; with gaps, without what depends on
            how far the states move.
        bend: (), the same to second order.
        fine: () bool, whether all factorisations succeeded.
    """

    value: Array
    k: Array
    K: Array
    gradient: Array
    curvature: Array
    slope: Array
    bend: Array
    fine: Array


def backward(
    knots: Knots,
    terminal: Quadratic,
    first_gap: Array,
    regularisation: Array,
    dt: Array | None = None,
    share: ArrayLike = 1.0,
) -> Gains:
    """Gains of all knots.

    Args:
        knots: the steps.
        terminal: the cost after the last.
        first_gap: (2 nv,), from the first knot to the state that the plan begins in.
        regularisation: (), added to the diagonals of the value's and the torques' Hessians.
        dt: (), s, where positions are what they were and `dt` times the velocities after a step:
            where no joint has a quaternion. Then there is less to compute.
        share: (), of `bend` that counts.
    """
    n = knots.B.shape[-1]
    eye_x = jnp.eye(2 * n, dtype=first_gap.dtype) * regularisation
    eye_u = jnp.eye(n, dtype=first_gap.dtype) * regularisation

    def closed(Vx: Array, Vxx: Array, gap: Array) -> tuple[Array, Array, Array]:
        """The slope where the gap before a knot is closed; and what closing it improves."""
        bent = matmul(Vxx, gap)
        moved = Vx + bent
        return moved, -jnp.sum(moved * gap), jnp.sum(gap * bent)

    def knot(carry: tuple[Array, ...], at: Knots) -> tuple[tuple[Array, ...], Any]:
        V, Vx, Vxx, slope, bend, fine = carry
        after = Vx, Vxx
        Vx, first, second = closed(Vx, Vxx, at.gap)
        xx, ux, uu = _before(at.A, at.B, Vxx, dt)
        Qx, Qu = at.cost.x + matmul(at.A.T, Vx), at.cost.u + matmul(at.B.T, Vx)
        Qxx, Qux, Quu = at.cost.xx + xx, at.cost.ux + ux, at.cost.uu + uu + eye_u
        if at.bend is not None:
            m, own = 2 * n, share * at.bend
            Qxx, Qux, Quu = Qxx + own[:m, :m], Qux + own[m:, :m], Quu + own[m:, m:]
        if at.held is None or at.lower is None or at.upper is None:
            k, K, solved = _solutions(Quu, Qu, Qux, None)
        else:
            free = at.held == 0
            k = jnp.where(free, 0, jnp.where(at.held > 0, at.upper, at.lower))
            more, K, solved = _solutions(Quu, Qu + matmul(Quu, k), Qux, free)
            k = k + more
        # `K^T (Quu K + Qux)` is zero: rows of `K` that are held are, and the others solve for it.
        Vx = Qx + matmul(Qux.T, k)
        Vxx = Qxx + _symmetric(Qux, K) + eye_x
        slope = slope + first - jnp.sum(Qu * k)
        bend = bend + second - jnp.sum(k * matmul(Quu, k))
        fine = fine & solved
        return (V + at.cost.value, Vx, Vxx, slope, bend, fine), (k, K, after)

    zero = jnp.zeros_like(regularisation)
    end = terminal.value, terminal.x, terminal.xx + eye_x
    start: tuple[Array, ...] = *end, zero, zero, jnp.array(True)
    (V, Vx, Vxx, slope, bend, fine), (k, K, after) = jax.lax.scan(knot, start, knots, reverse=True)
    _, first, second = closed(Vx, Vxx, first_gap)
    gradient, curvature = (
        jnp.concatenate([x[None], y]) for x, y in zip((Vx, Vxx), after, strict=True)
    )
    return Gains(V, k, K, gradient, curvature, slope + first, bend + second, fine)


def _solutions(H: Array, x: Array, X: Array, free: Array | None) -> tuple[Array, Array, Array]:
    """`-H^-1 x`, `-H^-1 X`, of what is free, and whether there is one; the rest is zero."""
    n, eye = len(H), jnp.eye(len(H), dtype=H.dtype)
    if n <= BLOCK:
        if free is not None:
            H = jnp.where(free[:, None] & free, H, eye)
            x, X = jnp.where(free, x, 0), jnp.where(free[:, None], X, 0)
        factor = cholesky(H)
        k, K = -cholesky_solve(factor, x), -cholesky_solve(factor, X)
        return k, K, jnp.all(jnp.isfinite(factor))
    if free is not None:
        one = free.astype(H.dtype)  # products of large arrays are loops in a kernel
        H = H * one[:, None] * one + eye * (1 - one)
        x, X = one * x, X * one[:, None]
    blocks = blocked_cholesky(H)
    found = -blocked_cholesky_solve(blocks, jnp.concatenate([x[:, None], X], axis=1))
    fine = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in blocks.inverses]))
    return found[:, 0], found[:, 1:], fine


def _before(A: Array, B: Array, P: Array, dt: Array | None) -> tuple[Array, Array, Array]:
    """`A^T P A`, `B^T P A` and `B^T P B`."""
    if dt is None:
        PA, PB = matmul(P, A), matmul(P, B)
        return _symmetric(A, PA), matmul(B.T, PA), matmul(B.T, PB)
    n = B.shape[1]
    # A is `[I 0; 0 0] + [dt I; I] V`, and B `[dt I; I] T`.
    V, T = A[n:], B[n:]
    qq, qv, vv = P[:n, :n], P[:n, n:], P[n:, n:]
    mixed = dt * qq + qv.T
    moved = dt * (mixed + qv) + vv
    W = matmul(moved, V)
    along = matmul(mixed.T, V)
    own = _symmetric(V, W)
    top = own[:n] + along + jnp.concatenate([qq + along[:, :n].T, jnp.zeros_like(qq)], axis=1)
    xx = jnp.concatenate([top, jnp.concatenate([top[:, n:].T, own[n:, n:]], axis=1)])
    ux = matmul(T.T, W + jnp.concatenate([mixed, jnp.zeros_like(qq)], axis=1))
    return xx, ux, matmul(T.T, matmul(moved, T))


def _symmetric(X: Array, Y: Array) -> Array:
    """`X^T Y`, which is symmetric, but for the half of it that the other half says."""
    n = X.shape[1] // 2
    top = matmul(X[:, :n].T, Y)
    low = jnp.concatenate([top[:, n:].T, matmul(X[:, n:].T, Y[:, n:])], axis=1)
    half = jnp.concatenate([top, low])
    return 0.5 * (half + half.T)
