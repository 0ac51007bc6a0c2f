"""Exact derivatives of the dynamics, on the tangent space.

A displacement `d` of the configuration is a tangent vector (nv,): it moves `q` to
`integrate(q, d, 1)`. For robots without quaternions that is `q + d`.

First order: the closed form of Singh, Russell and Wensing, "Efficient analytical derivatives of
rigid-body dynamics using spatial vector algebra" (RA-L 2022), as products with ancestor masks, and
extended to joints with several axes. The mask `carried` marks the axes that move along with a
displacement along another axis: for joints of one degree of freedom, all axes of its descendants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from .crba import crba
from .displaced_motion import AxisMasks, axis_masks, displaced_motion
from .forward_dynamics import spd_solve
from .joint_resistance import resistance_slopes
from .kinematics import (
    Kinematics,
    checked_configuration,
    checked_tangent,
    compute_kinematics,
    spatial_axes,
)
from .manifold import integrate, integrate_derivatives
from .math.algebra import cross, einsum, matmul
from .math.spatial import (
    apply_inertia,
    coriolis_inertia,
    force_cross,
    motion_cross,
    parallel_axes,
    spatial_inertia,
)
from .model.robot import Robot, Topology
from .model.tree import axis_rates, dof_forces, of_bodies, of_carriers, subtree_sums, tree_mask
from .rnea import bias_forces, checked_external_forces, rnea
from .terms import Terms, compute_terms


class ForwardDynamicsDerivatives(NamedTuple):
    """Derivatives (nv, nv) of the accelerations by `q` (on the tangent space), `v` and `tau`.

    `dtau` is the inverse of the mass matrix.
    """

    dq: Array
    dv: Array
    dtau: Array


class InverseDynamicsDerivatives(NamedTuple):
    """Derivatives (nv, nv) of the forces by `q` (on the tangent space), `v` and `a`.

    `da` is the mass matrix.
    """

    dq: Array
    dv: Array
    da: Array


class TransitionDerivatives(NamedTuple):
    """Linearisation of one step: `x+ = A x + B tau` for tangent vectors `x = [dq; dv]`.

    Attributes:
        A: (2 nv, 2 nv).
        B: (2 nv, nv).
    """

    A: Array
    B: Array


class SecondDerivatives(NamedTuple):
    """Blocks (nv, nv) of the second derivative of `multiplier . ID(q, v, a)`.

    Attributes:
        qq: by `q` twice; symmetric.
        vv: by `v` twice; symmetric.
        qv: rows by `q`, columns by `v`.
        aq: rows by `a`, columns by `q`.
    """

    qq: Array
    vv: Array
    qv: Array
    aq: Array


def inverse_dynamics_derivatives(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    a: Real[ArrayLike, " nv"],
    external_forces: Real[ArrayLike, "nb 6"] | None = None,
    *,
    kin: Kinematics | None = None,
) -> InverseDynamicsDerivatives:
    """Derivatives of `rnea(robot, q, v, a, external_forces)`.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        a: rad/s^2 and m/s^2.
        external_forces: as in `rnea`, constant in world axes; none if omitted.
        kin: kinematics at `q`, if already computed.

    Raises:
        ArrayError: an argument has the wrong shape.

    Source: Singh, Russell and Wensing (2022), eqs. 27 to 34.
    """
    kin = compute_kinematics(robot, q) if kin is None else kin
    dq, dv = _residual_derivatives(robot, kin, v, a, external_forces)
    return InverseDynamicsDerivatives(dq, dv, crba(robot, q, kin=kin))


def forward_dynamics_derivatives(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    tau: Real[ArrayLike, " nv"],
    external_forces: Real[ArrayLike, "nb 6"] | None = None,
    *,
    kin: Kinematics | None = None,
) -> ForwardDynamicsDerivatives:
    """Derivatives of `forward_dynamics(robot, q, v, tau, external_forces)`.

    `da/dq = -M^-1 dID(q, v, a)/dq`, `da/dv = -M^-1 dID/dv`, `da/dtau = M^-1`, at the acceleration
    `a` that `tau` causes, all with one factorisation.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        tau: N m and N.
        external_forces: as in `rnea`, constant in world axes; none if omitted.
        kin: kinematics at `q`, if already computed.

    Raises:
        ArrayError: an argument has the wrong shape.

    Source: Carpentier and Mansard, "Analytical derivatives of rigid body dynamics algorithms"
    (RSS 2018), eqs. 10 to 12.
    """
    v, tau = checked_tangent(robot, "v", v), checked_tangent(robot, "tau", tau)
    kin = compute_kinematics(robot, q) if kin is None else kin
    bias = bias_forces(robot, q, v, external_forces, kin=kin)
    inverse = _inverse(crba(robot, q, kin=kin))
    a = matmul(inverse, tau - bias)
    dq, dv = _residual_derivatives(robot, kin, v, a, external_forces)
    return ForwardDynamicsDerivatives(-matmul(inverse, dq), -matmul(inverse, dv), inverse)


def transition_derivatives(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    tau: Real[ArrayLike, " nv"],
    dt: Real[ArrayLike, ""],
    external_forces: Real[ArrayLike, "nb 6"] | None = None,
    *,
    terms: Terms | None = None,
) -> TransitionDerivatives:
    """Derivatives of `step(robot, q, v, tau, dt, external_forces)` with the integrator "euler".

    Implicit damping, smoothed friction and soft stops are included. On the tangent spaces before
    and after the step.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        tau: N m and N.
        dt: time step, s.
        external_forces: as in `rnea`, constant in world axes; none if omitted.
        terms: `compute_terms(robot, q, v)`, if already computed.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    terms = compute_terms(robot, q, v) if terms is None else terms
    q, v, tau = terms.q, terms.v, checked_tangent(robot, "tau", tau)
    dt = jnp.asarray(dt, v.dtype)
    bias = terms.bias
    if external_forces is not None:
        bias = bias_forces(robot, q, v, external_forces, kin=terms.kin)

    (force, slope), (force_q, slope_q), (force_v, slope_v) = resistance_slopes(robot, q, v, dt)
    inverse = _inverse(terms.mass_matrix + jnp.diag(slope))
    a = matmul(inverse, tau - bias - force)
    dq, dv = _residual_derivatives(robot, terms.kin, v, a, external_forces)
    a_q = -matmul(inverse, dq + jnp.diag(force_q + a * slope_q))
    a_v = -matmul(inverse, dv + jnp.diag(force_v + a * slope_v))

    eye = jnp.eye(robot.nv, dtype=v.dtype)
    v_q, v_v, v_tau = dt * a_q, eye + dt * a_v, dt * inverse
    by_q, by_v = integrate_derivatives(robot, q, v + dt * a, dt)
    top = jnp.concatenate([by_q + matmul(by_v, v_q), matmul(by_v, v_v)], axis=1)
    A = jnp.concatenate([top, jnp.concatenate([v_q, v_v], axis=1)])
    return TransitionDerivatives(A, jnp.concatenate([matmul(by_v, v_tau), v_tau]))


def residual_derivatives(
    robot: Robot,
    residual: Callable[[Array, Array, Array], Array],
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    tau: Real[ArrayLike, " nv"],
) -> tuple[Float[Array, "m 2*nv"], Float[Array, "m nv"]]:
    """Derivatives `C` and `D` of a residual `y`: `dy = C [dq; dv] + D dtau`.

    Args:
        robot: the model.
        residual: maps `q` (nq,), `v` (nv,) and `tau` (nv,) to `y` (m,), such as a cost's residual
            or a sensor's reading at one instant.
        q: rad and m.
        v: rad/s and m/s.
        tau: N m and N.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    q, v, tau = (
        checked_configuration(robot, q),
        checked_tangent(robot, "v", v),
        checked_tangent(robot, "tau", tau),
    )

    def moved(displacement: Array, v: Array, tau: Array) -> Array:
        return residual(integrate(robot, q, displacement, 1.0), v, tau)

    # One after the other: what does not depend on one of them costs nothing for it.
    by_q, by_v, by_tau = (jax.jacfwd(moved, i)(jnp.zeros_like(v), v, tau) for i in range(3))
    return jnp.concatenate([by_q, by_v], axis=1), by_tau


def inverse_dynamics_second_derivatives(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    a: Real[ArrayLike, " nv"],
    multiplier: Real[ArrayLike, " nv"],
) -> SecondDerivatives:
    """Second derivatives of `multiplier . rnea(robot, q, v, a)`, on the tangent space.

    The third-order tensor of inverse dynamics, contracted with one direction: the part that
    Hessians of trajectory optimisation need.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        a: rad/s^2 and m/s^2.
        multiplier: one weight for each generalized force.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    q, v, a = (
        checked_configuration(robot, q),
        checked_tangent(robot, "v", v),
        checked_tangent(robot, "a", a),
    )
    multiplier = checked_tangent(robot, "multiplier", multiplier)

    def projected(d: Array, v: Array, a: Array) -> Array:
        return jnp.sum(multiplier * rnea(robot, integrate(robot, q, d, 1.0), v, a))

    gradient = jax.grad(projected, (0, 1))
    zero, eye = jnp.zeros_like(v), jnp.eye(robot.nv, dtype=v.dtype)

    def along(direction: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        _, of_q = jax.jvp(lambda d: gradient(d, v, a), (zero,), (direction,))
        _, of_v = jax.jvp(lambda v: gradient(zero, v, a), (v,), (direction,))
        return of_q, of_v

    (qq, qv), (_, vv) = jax.vmap(along)(eye)
    # By `a` the residual is linear: its derivative is M(q) times the multiplier.
    weighted = jax.jacfwd(lambda d: matmul(crba(robot, integrate(robot, q, d, 1.0)), multiplier))
    return SecondDerivatives(qq, vv, qv, weighted(zero))


def coriolis_matrix(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    *,
    kin: Kinematics | None = None,
) -> Float[Array, "nv nv"]:
    """Coriolis matrix `C` of Christoffel symbols: `C v` are Coriolis and centrifugal forces.

    `dM/dt = C + C^T`, so that `dM/dt - 2 C` is skew-symmetric (for joints without quaternions;
    for those, whose velocities are no rates of coordinates, `dM/dt = C + C^T` still holds).

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        kin: kinematics at `q`, if already computed.

    Raises:
        ArrayError: an argument has the wrong shape.

    Source: Echeandia and Wensing, "Numerical methods to compute the Coriolis matrix and Christoffel
    symbols for rigid-body systems" (2021), algorithm 1.
    """
    v = checked_tangent(robot, "v", v)
    kin = compute_kinematics(robot, q) if kin is None else kin
    U, masks = tree_mask(robot, v.dtype), axis_masks(robot.topology)
    S, inertia = spatial_axes(robot.topology, kin), spatial_inertias(robot, kin)
    V = matmul(U, S * axis_rates(robot, v)[:, None])
    S_dot = motion_cross(of_carriers(robot.topology, V), S)
    composite = _Composites.of(robot.topology, inertia, coriolis_inertia(inertia, V))
    matrix = _project(masks, S, composite.inertia, 0.5 * composite.coriolis, S_dot, S)
    return _to_dofs(robot, matrix)


# --- parts ----------------------------------------------------------------------------------------


def spatial_inertias(robot: Robot, kin: Kinematics) -> Array:
    """Spatial inertias (nb, 6, 6) about `reference_points`, as `spatial_axes`."""
    mass = jnp.asarray(robot.mass, kin.axis.dtype)
    shift = mass[:, None] * kin.relative
    moved = parallel_axes(kin.first_moment + 0.5 * shift, kin.relative)
    return spatial_inertia(mass, kin.first_moment + shift, kin.inertia + moved)


class _Composites(NamedTuple):
    """Sums (na, 6, 6) of per-body matrices over each axis' subtree."""

    inertia: Array
    coriolis: Array

    @classmethod
    def of(cls, topology: Topology, inertia: Array, coriolis: Array) -> _Composites:
        return cls(moved_sums(topology, inertia), moved_sums(topology, coriolis))


def moved_sums(topology: Topology, x: Array) -> Array:
    """Sum of per-body rows (nb, ...) over the subtree that each axis moves (na, ...)."""
    return of_bodies(topology, subtree_sums(topology, x))


def _project(
    masks: AxisMasks, S: Array, inertia: Array, coriolis: Array, second: Array, first: Array
) -> Array:
    """`S_i . (I second_j + C first_j)` (na, na), with the composites of the axis further out."""
    lower = masks.above
    upper = masks.above.T & ~masks.above
    at_i = matmul(einsum("ik,ikl->il", S, inertia), second.T)
    at_i = at_i + matmul(einsum("ik,ikl->il", S, coriolis), first.T)
    wrench = einsum("jkl,jl->jk", inertia, second) + einsum("jkl,jl->jk", coriolis, first)
    return jnp.where(lower, at_i, jnp.where(upper, matmul(S, wrench.T), 0.0))


def _to_dofs(robot: Robot, matrix: Array) -> Array:
    """Matrix over the degrees of freedom (nv, nv) from one over the axes (na, na)."""
    if not robot.topology.axes.has_mimics:
        return matrix
    return dof_forces(robot, dof_forces(robot, matrix).T).T


def _residual_derivatives(
    robot: Robot,
    kin: Kinematics,
    v: ArrayLike,
    a: ArrayLike,
    external_forces: ArrayLike | None,
) -> tuple[Array, Array]:
    """Derivatives (nv, nv) of inverse dynamics by `q`, on the tangent space, and by `v`."""
    v, a = checked_tangent(robot, "v", v), checked_tangent(robot, "a", a)
    masks, inertia = axis_masks(robot.topology), spatial_inertias(robot, kin)
    dtype = inertia.dtype
    gravity = jnp.asarray(robot.gravity, dtype)
    lift = -jnp.concatenate([gravity, jnp.zeros_like(gravity)])
    S, V, A, S_dot, psi_dot, psi_ddot = displaced_motion(robot, kin, v, a, lift)
    F = apply_inertia(inertia, A) + force_cross(V, apply_inertia(inertia, V))

    composite = _Composites.of(robot.topology, inertia, coriolis_inertia(inertia, V))
    dv = _project(masks, S, composite.inertia, composite.coriolis, S_dot + psi_dot, S)
    dq = _project(masks, S, composite.inertia, composite.coriolis, psi_ddot, psi_dot)

    if external_forces is not None:
        external = checked_external_forces(robot, external_forces, dtype)
        moment = external[:, 3:] + cross(kin.relative, external[:, :3])
        F = F - jnp.concatenate([external[:, :3], moment], axis=-1)
        dq = dq + _fixed_in_the_world(robot.topology, masks, S, external, kin)
    # Forces on displaced bodies turn with them; carried axes turn as well, and see no change.
    turned = force_cross(S, moved_sums(robot.topology, F))
    dq = dq + jnp.where(masks.above.T & ~masks.carried, matmul(S, turned.T), 0.0)
    return _to_dofs(robot, dq), _to_dofs(robot, dv)


def _fixed_in_the_world(
    topology: Topology, masks: AxisMasks, S: Array, external: Array, kin: Kinematics
) -> Array:
    """Part (na, na) of `dq` from external forces (nb, 6), which do not turn with their bodies.

    A force `f` and its moment `m` about a body's origin `p` change relative to the body as if it
    turned backwards: by `-[w x f; w x m + p x (w x f)]` for a displacement with the rotation `w`.
    """
    force, moment, p = external[:, :3], external[:, 3:], kin.relative
    eye = jnp.eye(3, dtype=S.dtype)[None]
    turned_force = cross(eye, force[:, None])  # (nb, 3, 3): row k for a turn about axis k
    turned_moment = cross(eye, moment[:, None]) + cross(p[:, None], turned_force)
    turned = jnp.concatenate([turned_force, turned_moment], axis=-1)
    composite = moved_sums(topology, turned)
    at_i = matmul(einsum("il,ikl->ik", S, composite), S[:, 3:].T)
    at_j = matmul(S, einsum("jk,jkl->jl", S[:, 3:], composite).T)
    return jnp.where(masks.above, at_i, jnp.where(masks.above.T, at_j, 0.0))


def _inverse(matrix: Array) -> Array:
    """Inverse (n, n) of a mass matrix, to be multiplied with many right-hand sides."""
    return spd_solve(matrix, jnp.eye(len(matrix), dtype=matrix.dtype))
