"""The backward pass of differential dynamic programming: gains, and the value of every knot.

Source: Mastalli et al., "Crocoddyl: an efficient and versatile framework for multi-contact optimal
control" (ICRA 2020), section III; with limits Tassa, Mansard and Todorov, "Control-limited
differential dynamic programming" (ICRA 2014).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.solvers.cholesky import cholesky, cholesky_solve

from .box_qp import box_qp
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
    """

    A: Array
    B: Array
    gap: Array
    cost: Quadratic
    bend: Array | None
    lower: Array | None
    upper: Array | None


class Gains(NamedTuple):
    """How the torques change: by `step length k + K dx`.

    Attributes:
        k: (N, nv).
        K: (N, nv, 2 nv).
        curvature: (N + 1, 2 nv, 2 nv), second derivative of the value of a knot.
        slope: (), what a unit step improves, to first order; with gaps, without what depends on
            how far the states move.
        bend: (), the same to second order.
        fine: () bool, whether all factorisations succeeded.
    """

    k: Array
    K: Array
    curvature: Array
    slope: Array
    bend: Array
    fine: Array


def backward(knots: Knots, terminal: Quadratic, first_gap: Array, regularisation: Array) -> Gains:
    """Gains of all knots.

    Args:
        knots: the steps.
        terminal: the cost after the last.
        first_gap: (2 nv,), from the first knot to the state that the plan begins in.
        regularisation: (), added to the diagonals of the value's and the torques' Hessians.
    """
    n = knots.B.shape[-1]
    eye_x = jnp.eye(2 * n, dtype=first_gap.dtype) * regularisation
    eye_u = jnp.eye(n, dtype=first_gap.dtype) * regularisation

    def closed(Vx: Array, Vxx: Array, gap: Array) -> tuple[Array, Array, Array]:
        """The slope where the gap before a knot is closed; and what closing it improves."""
        bent = matmul(Vxx, gap)
        moved = Vx + bent
        return moved, -jnp.sum(moved * gap), jnp.sum(gap * bent)

    def knot(carry: tuple[Array, ...], at: Knots) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        Vx, Vxx, slope, bend, fine = carry
        Vx, first, second = closed(Vx, Vxx, at.gap)
        after = Vxx
        AV, BV = matmul(at.A.T, Vxx), matmul(at.B.T, Vxx)
        Qx, Qu = at.cost.x + matmul(at.A.T, Vx), at.cost.u + matmul(at.B.T, Vx)
        Qxx, Qux = at.cost.xx + matmul(AV, at.A), at.cost.ux + matmul(BV, at.A)
        Quu = at.cost.uu + matmul(BV, at.B) + eye_u
        if at.bend is not None:
            m = 2 * n
            Qxx, Qux, Quu = Qxx + at.bend[:m, :m], Qux + at.bend[m:, :m], Quu + at.bend[m:, m:]
        factor = cholesky(Quu)
        if at.lower is None or at.upper is None:
            k, K = -cholesky_solve(factor, Qu), -cholesky_solve(factor, Qux)
        else:
            k, K = box_qp(Quu, Qu, Qux, at.lower, at.upper)
        QK = matmul(Quu, K)
        Vx = Qx + matmul(K.T, Qu + matmul(Quu, k)) + matmul(Qux.T, k)
        Vxx = Qxx + matmul(K.T, QK) + matmul(K.T, Qux) + matmul(Qux.T, K)
        Vxx = 0.5 * (Vxx + Vxx.T) + eye_x
        slope = slope + first - jnp.sum(Qu * k)
        bend = bend + second - jnp.sum(k * matmul(Quu, k))
        fine = fine & jnp.all(jnp.isfinite(factor))
        return (Vx, Vxx, slope, bend, fine), (k, K, after)

    zero = jnp.zeros_like(regularisation)
    start: tuple[Array, ...] = terminal.x, terminal.xx + eye_x, zero, zero, jnp.array(True)
    (Vx, Vxx, slope, bend, fine), (k, K, after) = jax.lax.scan(knot, start, knots, reverse=True)
    _, first, second = closed(Vx, Vxx, first_gap)
    curvature = jnp.concatenate([Vxx[None], after])
    return Gains(k, K, curvature, slope + first, bend + second, fine)
