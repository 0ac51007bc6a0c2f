"""Time integration of the dynamics: semi-implicit Euler, and fourth-order Runge-Kutta."""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from fraxenv.errors import check_choice

from .forward_dynamics import implicit_acceleration
from .joint_resistance import implicit_resistance
from .kinematics import checked_tangent
from .manifold import displacement_rate, integrate
from .math.tracing import traced_once
from .model.robot import Robot
from .rnea import generalized_forces
from .terms import Terms, compute_terms

Integrator = Literal["euler", "rk4"]


@traced_once
def step(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    tau: Real[ArrayLike, " nv"],
    dt: Real[ArrayLike, ""],
    external_forces: Real[ArrayLike, "nb 6"] | None = None,
    *,
    integrator: Integrator = "euler",
    terms: Terms | None = None,
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """One step in time: the next configuration and velocity. Both integrators are MuJoCo's.

    "euler" is semi-implicit and of first order: `v+ = v + dt a`, then `q+ = integrate(q, v+, dt)`,
    where `a` solves `(M + dt D) a = tau - bias + J^T f - d(q, v)`. The joint force `d` is the sum
    of viscous damping, smoothed Coulomb friction and the soft stops of the position limits, and `D`
    is its slope by the velocity: all three are implicit, and stable for any coefficient.

    "rk4" is the classical Runge-Kutta method, of fourth order and four times as costly, with an
    explicit `d`. It conserves energy better by orders of magnitude, and is unstable where `d` would
    stop a joint within less than about `dt`.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        tau: N m and N, constant over the step.
        dt: time step, s.
        external_forces: as in `rnea`, constant in world axes; none if omitted.
        integrator: "euler" or "rk4".
        terms: `compute_terms(robot, q, v)`, if already computed.

    Raises:
        ArrayError: an argument has the wrong shape.
        ConfigError: there is no such integrator.
    """
    check_choice("integrator", integrator, get_args(Integrator))
    terms = compute_terms(robot, q, v) if terms is None else terms
    q, v, tau = terms.q, terms.v, checked_tangent(robot, "tau", tau)
    dt = jnp.asarray(dt, v.dtype)
    if integrator == "rk4":
        rate, a = _runge_kutta(robot, terms, tau, dt, external_forces)
        return integrate(robot, q, rate, dt), v + dt * a
    v = v + dt * _joint_acceleration(robot, terms, tau, dt, external_forces)
    return integrate(robot, q, v, dt), v


def _runge_kutta(
    robot: Robot, terms: Terms, tau: Array, dt: Array, external_forces: ArrayLike | None
) -> tuple[Array, Array]:
    """Displacement rate and acceleration, both (nv,), averaged over the stages of a step.

    The stages integrate the displacement from the start, not the configuration. For rotations this
    is the method of Munthe-Kaas, "Runge-Kutta methods on Lie groups" (1998).
    """
    explicit = jnp.zeros_like(dt)

    def stage(
        carry: tuple[Array, Array, Array, Array], ahead_and_weight: Array
    ) -> tuple[tuple[Array, Array, Array, Array], None]:
        rate, a, mean_rate, mean_a = carry
        ahead, weight = ahead_and_weight
        displacement, v = ahead * dt * rate, terms.v + ahead * dt * a
        there = compute_terms(robot, integrate(robot, terms.q, displacement, 1.0), v)
        rate = displacement_rate(robot, displacement, v)
        a = _joint_acceleration(robot, there, tau, explicit, external_forces)
        return (rate, a, mean_rate + weight * rate, mean_a + weight * a), None

    v, a = terms.v, _joint_acceleration(robot, terms, tau, explicit, external_forces)
    stages = jnp.asarray([[1 / 2, 1 / 3], [1 / 2, 1 / 3], [1, 1 / 6]], v.dtype)
    (_, _, rate, a), _ = jax.lax.scan(stage, (v, a, v / 6, a / 6), stages)
    return rate, a


def _joint_acceleration(
    robot: Robot, terms: Terms, tau: Array, dt: Array, external_forces: ArrayLike | None
) -> Array:
    """Acceleration (nv,) with joint resistance implicit over `dt`; explicit where `dt` is zero."""
    if external_forces is not None:
        force = generalized_forces(robot, terms.q, external_forces, kin=terms.kin)
        terms = dataclasses.replace(terms, bias=terms.bias - force)
    resistance = implicit_resistance(robot, terms.q, terms.v, dt)
    return implicit_acceleration(robot, terms, tau, external_forces, resistance)
