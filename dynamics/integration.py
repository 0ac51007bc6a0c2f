"""One semi-implicit Euler step of the dynamics."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .forward_dynamics import acceleration
from .kinematics import tangent
from .manifold import integrate, scalar_coordinates
from .rnea import generalized_forces
from .robot import Robot
from .terms import Terms, compute_terms

FRICTION_VELOCITY = 0.01
"""Joint speed, rad/s or m/s, over which Coulomb friction is smoothed: `friction * tanh(v / it)`."""


def step(
    robot: Robot,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    dt: ArrayLike,
    external_forces: ArrayLike | None = None,
    *,
    terms: Terms | None = None,
) -> tuple[Array, Array]:
    """One step of semi-implicit Euler: new configuration (nq,) and velocity (nv,).

    `v+ = v + dt a`, then `q+ = integrate(q, v+, dt)`, where `a` solves
    `(M + dt D) a = tau - bias + J^T f - d(q, v)`. The joint force `d` is viscous damping, smoothed
    Coulomb friction and the position limits' soft stops, and `D` its slope by the velocity, so that
    all are implicit and stable for any coefficient; with damping alone this is MuJoCo's Euler
    integrator.

    Args:
        robot: the model.
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        tau: (nv,), N m and N.
        dt: time step, s.
        external_forces: (nb, 6), as in `rnea`; none if omitted.
        terms: `compute_terms(robot, q, v)`, if already computed.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    terms = compute_terms(robot, q, v) if terms is None else terms
    q, v, tau = terms.q, terms.v, tangent(robot, "tau", tau)
    dt = jnp.asarray(dt, v.dtype)
    bias = terms.bias
    if external_forces is not None:
        bias = bias - generalized_forces(robot, q, external_forces, kin=terms.kin)
    resistance = implicit_resistance(robot, q, v, dt)
    a = acceleration(
        robot, q, v, tau, external_forces, terms.kin, resistance, terms.mass_matrix, bias
    )
    v = v + dt * a
    return integrate(robot, q, v, dt), v


def implicit_resistance(robot: Robot, q: Array, v: Array, dt: Array) -> tuple[Array, Array]:
    """Joint forces (nv,) that oppose motion, and `dt` times their slope by the velocity (nv,)."""
    damping = jnp.asarray(robot.damping, v.dtype)
    friction = jnp.asarray(robot.friction, v.dtype)
    # The slope of friction is its secant through zero. Its derivative vanishes at speed, and what
    # is then explicit turns a joint around instead of stopping it: it chatters, or worse.
    slip = v / FRICTION_VELOCITY
    small = slip * slip < 0.1 * float(np.finfo(v.dtype).eps) ** 0.5
    secant = jnp.where(small, 1 - slip * slip / 3, jnp.tanh(slip) / jnp.where(small, 1.0, slip))
    slope = damping + friction * secant / FRICTION_VELOCITY

    lower, upper = jnp.asarray(robot.position_limits, v.dtype).T
    stiffness = jnp.asarray(robot.stop_stiffness, v.dtype)
    stop_damping = jnp.asarray(robot.stop_damping, v.dtype)
    # Positive above the upper limit, negative below the lower one, zero between.
    x = scalar_coordinates(robot, q)
    beyond = jnp.maximum(x - upper, 0) + jnp.minimum(x - lower, 0)
    touching = (beyond != 0).astype(v.dtype)
    slope = slope + touching * (stop_damping + dt * stiffness)
    return stiffness * beyond + slope * v, dt * slope
