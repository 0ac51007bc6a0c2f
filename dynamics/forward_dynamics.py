"""Forward dynamics by Cholesky factorisation of the mass matrix."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from .crba import crba
from .kinematics import Kinematics, checked_configuration, checked_tangent, compute_kinematics
from .math.algebra import matmul
from .math.tracing import traced_once
from .model.robot import Robot
from .rnea import bias_forces, rnea
from .solvers.cholesky import ldl, ldl_solve
from .terms import Terms


@traced_once
def forward_dynamics(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    tau: Real[ArrayLike, " nv"],
    external_forces: Real[ArrayLike, "nb 6"] | None = None,
    *,
    kin: Kinematics | None = None,
) -> Float[Array, " nv"]:
    """Joint accelerations, rad/s^2 and m/s^2, caused by the generalized forces `tau`.

    Solves `M(q) a = tau - bias(q, v) + J^T f` with a Cholesky factorisation. Joint damping and
    friction are not included: `step` applies them, implicitly.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        tau: N m and N.
        external_forces: as in `rnea`; none if omitted.
        kin: kinematics at `q`, if already computed.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    q, v = checked_configuration(robot, q), checked_tangent(robot, "v", v)
    tau = checked_tangent(robot, "tau", tau)
    kin = compute_kinematics(robot, q) if kin is None else kin
    M, bias = crba(robot, q, kin=kin), bias_forces(robot, q, v, external_forces, kin=kin)
    no_resistance = (jnp.zeros_like(v), jnp.zeros_like(v))
    return implicit_acceleration(
        robot, Terms(q, v, kin, M, bias), tau, external_forces, no_resistance
    )


@traced_once
def implicit_acceleration(
    robot: Robot,
    terms: Terms,
    tau: Array,
    external_forces: ArrayLike | None,
    resistance: tuple[Array, Array],
) -> Array:
    """Joint acceleration (nv,): the solution of `(M + diag(s)) a = tau - bias - r`.

    Its derivative is exact, and reuses the Cholesky factor: differentiating
    `ID(q, v, a) + r + s a = tau` at the solution `a` gives
    `(M + diag(s)) da = dtau - d(ID)(q, v; a) - dr - a ds`, where nothing differentiates a
    factorisation.

    Args:
        robot: the model.
        terms: at the state, with the external forces in `bias`; the tangents of `mass_matrix` and
            `bias` are not used.
        tau: N m and N.
        external_forces: (nb, 6), as in `rnea`, or None.
        resistance: joint force `r` (nv,), N m and N, and its slope `s` (nv,), kg m^2 and kg.

    Source: Carpentier and Mansard, "Analytical derivatives of rigid body dynamics algorithms"
    (RSS 2018).
    """
    # Cast to the precision of the state: JAX (0.10) caches the conversion of a NumPy float64 array,
    # and returns the cached one even after x64 has been switched.
    robot = jax.tree.map(lambda x: jnp.asarray(x, terms.v.dtype), robot)
    return _implicit_acceleration(robot, terms, tau, external_forces, resistance)


@jax.custom_jvp
def _implicit_acceleration(
    robot: Robot,
    terms: Terms,
    tau: Array,
    external_forces: ArrayLike | None,
    resistance: tuple[Array, Array],
) -> Array:
    force, slope = resistance
    return spd_solve(terms.mass_matrix + jnp.diag(slope), tau - terms.bias - force)


@_implicit_acceleration.defjvp
def _implicit_acceleration_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:  # type: ignore[type-arg]
    robot, terms, tau, external_forces, (force, slope) = primals
    d_robot, d_terms, d_tau, d_external, (d_force, d_slope) = tangents
    matrix = terms.mass_matrix + jnp.diag(slope)
    factor = ldl(jax.lax.stop_gradient(matrix))
    a = _solve_with(matrix, factor, tau - terms.bias - force)

    def inverse_dynamics(
        robot: Robot, v: Array, external_forces: ArrayLike | None, kin: Kinematics
    ) -> Array:
        return rnea(robot, terms.q, v, a, external_forces, kin=kin)

    _, d_residual = jax.jvp(
        inverse_dynamics,
        (robot, terms.v, external_forces, terms.kin),
        (d_robot, d_terms.v, d_external, d_terms.kin),
    )
    return a, _solve_with(matrix, factor, d_tau - d_residual - d_force - a * d_slope)


@traced_once
def spd_solve(matrix: Float[Array, "n n"], rhs: Float[Array, " n *k"]) -> Float[Array, " n *k"]:
    """Solve `matrix @ x = rhs` for a symmetric positive definite matrix, by Cholesky.

    Derivatives follow from the equation, not from its factorisation.
    """
    factor = ldl(jax.lax.stop_gradient(matrix))
    return _solve_with(matrix, factor, rhs)


def _solve_with(matrix: Array, factor: tuple[Array, Array], rhs: Array) -> Array:
    """Solution of `matrix @ x = rhs`, given the factors of the matrix, of `ldl`."""
    solution: Array = jax.lax.custom_linear_solve(
        lambda x: matmul(matrix, x), rhs, lambda _, b: ldl_solve(factor, b), symmetric=True
    )
    return solution
