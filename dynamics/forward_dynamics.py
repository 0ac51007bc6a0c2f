"""Forward dynamics by Cholesky factorisation of the mass matrix."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from .crba import crba
from .kinematics import Kinematics, checked_tangent, compute_kinematics
from .math.algebra import matmul
from .model.robot import Robot
from .rnea import bias_forces, rnea
from .solvers.cholesky import cholesky, cholesky_solve


def forward_dynamics(
    robot: Robot,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    external_forces: ArrayLike | None = None,
    *,
    kin: Kinematics | None = None,
) -> Array:
    """Accelerations (nv,), rad/s^2 and m/s^2, that the generalized forces `tau` cause.

    Solves `M(q) a = tau - bias(q, v) + J^T f` with a Cholesky factorisation. Joint damping and
    friction are no part of it: they act in `step`, implicitly.

    Args:
        robot: the model.
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        tau: (nv,), N m and N.
        external_forces: (nb, 6), as in `rnea`; none if omitted.
        kin: kinematics at `q`, if already computed.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    v, tau = checked_tangent(robot, "v", v), checked_tangent(robot, "tau", tau)
    kin = compute_kinematics(robot, q) if kin is None else kin
    M, bias = crba(robot, q, kin=kin), bias_forces(robot, q, v, external_forces, kin=kin)
    no_resistance = (jnp.zeros_like(v), jnp.zeros_like(v))
    return acceleration(robot, q, v, tau, external_forces, kin, no_resistance, M, bias)


def acceleration(
    robot: Robot,
    q: ArrayLike,
    v: Array,
    tau: Array,
    external_forces: ArrayLike | None,
    kin: Kinematics,
    resistance: tuple[Array, Array],
    mass_matrix: Array,
    bias: Array,
) -> Array:
    """Acceleration (nv,) that solves `(M + diag(s)) a = tau - bias - r`, exactly differentiable.

    Differentiating `ID(q, v, a) + r + s a = tau`, with the residual at the solution `a`, gives
    `(M + diag(s)) da = dtau - d(ID)(q, v; a) - dr - a ds`: the tangent needs the same factor as
    the solution, and never the derivative of a factorisation (Carpentier and Mansard, "Analytical
    derivatives of rigid body dynamics algorithms", RSS 2018).

    Args:
        robot: the model.
        q: (nq,).
        v: (nv,).
        tau: (nv,).
        external_forces: (nb, 6) or None.
        kin: kinematics at `q`.
        resistance: the joint force `r` (nv,) and the slope `s` (nv,).
        mass_matrix: (nv, nv), at `q`; its tangent is not used.
        bias: (nv,), with the external forces in it; its tangent is not used.
    """
    # In the precision of the state: JAX (0.10) remembers what a NumPy array of float64 became when
    # it met it, and gives the same again when x64 has been switched since.
    robot = jax.tree.map(lambda x: jnp.asarray(x, v.dtype), robot)
    return _acceleration(robot, q, v, tau, external_forces, kin, resistance, mass_matrix, bias)


@jax.custom_jvp
def _acceleration(
    robot: Robot,
    q: ArrayLike,
    v: Array,
    tau: Array,
    external_forces: ArrayLike | None,
    kin: Kinematics,
    resistance: tuple[Array, Array],
    mass_matrix: Array,
    bias: Array,
) -> Array:
    force, slope = resistance
    return spd_solve(mass_matrix + jnp.diag(slope), tau - bias - force)


@_acceleration.defjvp
def _acceleration_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:  # type: ignore[type-arg]
    robot, q, v, tau, external_forces, kin, (force, slope), mass_matrix, bias = primals
    d_robot, _, d_v, d_tau, d_external, d_kin, (d_force, d_slope), _, _ = tangents
    matrix = mass_matrix + jnp.diag(slope)
    factor = cholesky(jax.lax.stop_gradient(matrix))
    a = _solve_with(matrix, factor, tau - bias - force)

    def inverse_dynamics(
        robot: Robot, v: Array, external_forces: ArrayLike | None, kin: Kinematics
    ) -> Array:
        return rnea(robot, q, v, a, external_forces, kin=kin)

    _, d_residual = jax.jvp(
        inverse_dynamics,
        (robot, v, external_forces, kin),
        (d_robot, d_v, d_external, d_kin),
    )
    return a, _solve_with(matrix, factor, d_tau - d_residual - d_force - a * d_slope)


def spd_solve(matrix: Array, rhs: Array) -> Array:
    """Solve `matrix @ x = rhs` for a symmetric positive definite matrix (n, n), by Cholesky.

    Derivatives follow from the equation, not from its factorisation.

    Args:
        matrix: (n, n), symmetric.
        rhs: (n,) or (n, k).
    """
    factor = cholesky(jax.lax.stop_gradient(matrix))
    return _solve_with(matrix, factor, rhs)


def _solve_with(matrix: Array, factor: Array, rhs: Array) -> Array:
    """Solve with the Cholesky factor of the matrix already known."""
    solution: Array = jax.lax.custom_linear_solve(
        lambda x: matmul(matrix, x), rhs, lambda _, b: cholesky_solve(factor, b), symmetric=True
    )
    return solution
