"""The second derivative of a step in time, weighted: what exact Hessians of plans need.

Of the acceleration it follows from inverse dynamics, which is linear in it: `F(q, v, a) = tau`
differentiated twice, with the multiplier `mu` that solves `(M + dt D) mu = -weight`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from .derivatives import inverse_dynamics_derivatives, inverse_dynamics_second_derivatives
from .forward_dynamics import spd_solve
from .joint_resistance import implicit_resistance
from .kinematics import checked_tangent
from .manifold import difference, integrate, integrate_derivatives
from .math.algebra import matmul
from .model.robot import Robot
from .terms import Terms, compute_terms


def transition_hessian(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    tau: Real[ArrayLike, " nv"],
    dt: Real[ArrayLike, ""],
    weight: Real[ArrayLike, " 2*nv"],
    *,
    terms: Terms | None = None,
) -> Float[Array, "3*nv 3*nv"]:
    """Second derivative of `weight . x+`, by the tangent vectors `[dq; dv]` and the torques.

    `x+` is the state after `step(robot, q, v, tau, dt)` with the integrator "euler", as a tangent
    vector `[difference(q+, .); v+]` from where the step ends. Symmetric.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        tau: N m and N.
        dt: time step, s.
        weight: of the components of the state after the step.
        terms: `compute_terms(robot, q, v)`, if already computed.

    Raises:
        ArrayError: an argument has the wrong shape.

    Source: Nganga and Wensing, "Accelerating second-order differential dynamic programming for
    rigid-body systems" (RA-L 2021), section III, for inverse dynamics with joint resistance.
    """
    terms = compute_terms(robot, q, v) if terms is None else terms
    q, v, tau = terms.q, terms.v, checked_tangent(robot, "tau", tau)
    dt = jnp.asarray(dt, v.dtype)
    weight = jnp.asarray(weight, v.dtype)
    n = robot.nv

    def resistance(d: Array, v: Array) -> tuple[Array, Array]:
        return implicit_resistance(robot, integrate(robot, q, d, 1.0), v, dt)

    zero, one = jnp.zeros_like(v), jnp.ones_like(v)
    force, slope = resistance(zero, v)
    inverse = spd_solve(terms.mass_matrix + jnp.diag(slope), jnp.eye(n, dtype=v.dtype))
    a = matmul(inverse, tau - terms.bias - force)

    # A joint's resistance `f + slope a` depends on that joint alone: its derivatives are diagonal.
    def resisted(d: Array, v: Array, a: Array) -> Array:
        force, slope = resistance(d, v)
        return force + slope * a

    def along(fn: object, x: Array) -> Array:
        return jax.jvp(fn, (x,), (one,))[1]  # type: ignore[arg-type, no-any-return]

    def by_q(d: Array, v: Array, a: Array) -> Array:
        return along(lambda d: resisted(d, v, a), d)

    def by_v(d: Array, v: Array, a: Array) -> Array:
        return along(lambda v: resisted(d, v, a), v)

    ID = inverse_dynamics_derivatives(robot, q, v, a, kin=terms.kin)
    a_q = -matmul(inverse, ID.dq + jnp.diag(by_q(zero, v, a)))
    a_v = -matmul(inverse, ID.dv + jnp.diag(by_v(zero, v, a)))
    a_x = jnp.concatenate([a_q, a_v, inverse], axis=1)

    _, turned = integrate_derivatives(robot, q, v + dt * a, dt)
    of_velocity = weight[n:] + matmul(turned.T, weight[:n])
    mu = -matmul(inverse, dt * of_velocity)

    S = inverse_dynamics_second_derivatives(robot, q, v, a, mu)
    qq = S.qq + jnp.diag(mu * along(lambda d: by_q(d, v, a), zero))
    vv = S.vv + jnp.diag(mu * along(lambda v: by_v(zero, v, a), v))
    qv = S.qv + jnp.diag(mu * along(lambda v: by_q(zero, v, a), v))
    aq = S.aq + jnp.diag(mu * along(lambda a: by_q(zero, v, a), a))
    av = jnp.diag(mu * along(lambda a: by_v(zero, v, a), a))

    none = jnp.zeros_like(qq)
    own = jnp.block([[qq, qv, none], [qv.T, vv, none], [none, none, none]])
    mixed = matmul(jnp.concatenate([aq.T, av.T, none]), a_x)
    hessian = own + mixed + mixed.T
    if not robot.topology.quaternions:
        return hessian

    end = integrate(robot, q, v + dt * a, dt)

    def moved(z: Array) -> Array:
        """The weighted configuration after the step, from displacements before it and of `v+`."""
        start = integrate(robot, q, z[:n], 1.0)
        after = integrate(robot, start, v + dt * a + z[n:], dt)
        return jnp.sum(weight[:n] * difference(robot, end, after))

    bent = jax.hessian(moved)(jnp.zeros(2 * n, v.dtype))
    eye = jnp.eye(n, dtype=v.dtype)
    v_x = dt * a_x + jnp.concatenate([none, eye, none], axis=1)
    z_x = jnp.concatenate([jnp.concatenate([eye, none, none], axis=1), v_x])
    return hessian + matmul(z_x.T, matmul(bent, z_x))
