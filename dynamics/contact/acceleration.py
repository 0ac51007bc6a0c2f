"""Accelerations under soft constraints, and their derivatives.

The derivative is that of the stationarity condition at the solution (implicit function theorem):
with `H = J' (s'') J`, `(M + H) da = -d(ID(q, v, a) - tau - J' f(J a - aref))` at fixed `a`. Nothing
differentiates a round of Newton's method or a factorisation, and the rule is linear in the tangents
without a loop among them, so that it transposes.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ..kinematics import Kinematics
from ..math.algebra import matmul
from ..model.robot import Robot
from ..rnea import rnea
from ..solvers.cholesky import cholesky, cholesky_solve
from ..terms import Terms
from .newton import Report, minimise
from .rows import Rows


def contact_acceleration(
    robot: Robot, terms: Terms, tau: Array, rows: Rows, warm_start: Array | None, slope: Array
) -> tuple[Array, Report]:
    """The acceleration (nv,) under constraints, and how it was found.

    Derivatives, forward and reverse, are exact; those of second order within a zone of the
    constraints' costs: that they jump at its borders is not seen.

    Args:
        robot: the forest.
        terms: at the state; tangents of `mass_matrix` and `bias` are not used.
        tau: (nv,), N m and N, all smooth forces but the bias.
        rows: the constraints.
        warm_start: (nv,), where to begin, or None; the derivative by it is zero.
        slope: (nv,), kg m^2 and kg, adds to the diagonal of the mass matrix.
    """
    # Cast to the precision of the state: see `implicit_acceleration`.
    robot = jax.tree.map(lambda x: jnp.asarray(x, terms.v.dtype), robot)
    result: tuple[Array, Report] = _acceleration(robot, terms, tau, rows, warm_start, slope)
    return result


@jax.custom_jvp
def _acceleration(
    robot: Robot, terms: Terms, tau: Array, rows: Rows, warm_start: Array | None, slope: Array
) -> tuple[Array, Report]:
    metric = terms.mass_matrix + jnp.diag(slope)
    return minimise(metric, tau - terms.bias, rows, warm_start)


@_acceleration.defjvp
def _acceleration_jvp(primals: tuple, tangents: tuple) -> tuple:  # type: ignore[type-arg]
    robot, terms, tau, rows, _, slope = primals
    d_robot, d_terms, d_tau, d_rows, _, d_slope = tangents
    # The decorated function: so that this rule can be differentiated in its turn.
    a, report = _acceleration(*primals)
    metric = terms.mass_matrix + jnp.diag(slope) + rows.hessian(rows.violation(a))
    factor = cholesky(jax.lax.stop_gradient(metric))

    def unbalanced(
        robot: Robot, v: Array, kin: Kinematics, tau: Array, rows: Rows, slope: Array
    ) -> Array:
        felt = rows.transpose(rows.force(rows.violation(a)))
        return rnea(robot, terms.q, v, a, kin=kin) + slope * a - tau - felt

    _, d_unbalanced = jax.jvp(
        unbalanced,
        (robot, terms.v, terms.kin, tau, rows, slope),
        (d_robot, d_terms.v, d_terms.kin, d_tau, d_rows, d_slope),
    )
    d_a = jax.lax.custom_linear_solve(
        lambda x: matmul(metric, x),
        -d_unbalanced,
        lambda _, b: cholesky_solve(factor, b),
        symmetric=True,
    )
    return (a, report), (d_a, jax.tree.map(jnp.zeros_like, report))
