"""Forward dynamics by Cholesky factorisation of the mass matrix."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_solve
from jax.typing import ArrayLike

from .crba import crba
from .kinematics import Kinematics, compute_kinematics, tangent
from .rnea import bias_forces
from .robot import Robot


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
        external_forces: (n, 6), as in `rnea`; none if omitted.
        kin: kinematics at `q`, if already computed.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    tau = tangent(robot, "tau", tau)
    kin = compute_kinematics(robot, q) if kin is None else kin
    bias = bias_forces(robot, q, v, external_forces, kin=kin)
    return spd_solve(crba(robot, q, kin=kin), tau - bias)


def spd_solve(matrix: Array, rhs: Array) -> Array:
    """Solve `matrix @ x = rhs` for a symmetric positive definite matrix (n, n), by Cholesky.

    Args:
        matrix: (n, n), only its lower triangle is read.
        rhs: (n,) or (n, k).
    """
    return cho_solve((jnp.linalg.cholesky(matrix, symmetrize_input=False), True), rhs)
