"""A step in time of a robot some of whose frames are held, or hit something; and its derivatives.

The derivatives are those of the equations that a step fulfils, with one inverse of the mass matrix:
of inverse dynamics (`derivatives`) and of the frames' accelerations (`frame_derivatives`).
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from .constrained_dynamics import (
    ROWS,
    FrameConstraints,
    Reaction,
    constraint_jacobian,
    delassus,
    frames_acceleration,
    reaction,
)
from .derivatives import inverse_dynamics_derivatives
from .forward_dynamics import spd_solve
from .frame_derivatives import frame_derivatives
from .jacobian import frame_jacobian
from .joint_resistance import implicit_resistance, resistance_slopes
from .kinematics import checked_tangent
from .manifold import integrate, integrate_derivatives
from .math.algebra import cross, matmul, mirrored, symmetric_product
from .math.rotation import skew
from .model.robot import WORLD, Robot
from .terms import Terms, compute_terms


class ConstrainedStepDerivatives(NamedTuple):
    """Linearisation of `constrained_step` for tangent vectors `x = [dq; dv]`.

    Attributes:
        A: (2 nv, 2 nv), of the state after the step by the one before.
        B: (2 nv, nv), by `tau`.
        force_x: (n, k, 2 nv), of the forces on the frames by the state before.
        force_tau: (n, k, nv), by `tau`.
    """

    A: Array
    B: Array
    force_x: Array
    force_tau: Array


def constrained_step(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    tau: Real[ArrayLike, " nv"],
    dt: Real[ArrayLike, ""],
    constraints: FrameConstraints,
    impact: ArrayLike = False,
    *,
    damping: ArrayLike = 0.0,
    terms: Terms | None = None,
) -> tuple[Float[Array, " nq"], Float[Array, " nv"], Float[Array, "n k"]]:
    """One step in time with frames held, or the impact of frames, which takes no time.

    As `step` with the integrator "euler", joint resistance included, at the acceleration of
    `constrained_dynamics`; at an impact, the velocities of `impulse_dynamics`.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        tau: N m and N; of no effect at an impact.
        dt: time step, s.
        constraints: what is held, or hit.
        impact: () bool.
        damping: as of `constrained_dynamics`.
        terms: `compute_terms(robot, q, v)`, if already computed.

    Returns:
        The configuration and velocity after it, and on each frame the force (3,) or with the
        moment (6,), N and N m, or at an impact impulses, N s and N m s.

    Raises:
        ArrayError: an argument has the wrong shape.
        UnknownNameError: the robot has no such frame.
    """
    terms = compute_terms(robot, q, v) if terms is None else terms
    now = _equations(robot, terms, tau, dt, constraints, impact)
    _, found = _solved(now, damping)
    v_after = terms.v + now.share * found.motion
    q_after = integrate(robot, terms.q, v_after, now.duration)
    return q_after, v_after, found.reaction.reshape(len(constraints.frames), -1)


def constrained_step_derivatives(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    tau: Real[ArrayLike, " nv"],
    dt: Real[ArrayLike, ""],
    constraints: FrameConstraints,
    impact: ArrayLike = False,
    *,
    damping: ArrayLike = 0.0,
    terms: Terms | None = None,
) -> ConstrainedStepDerivatives:
    """Derivatives of `constrained_step`, with the same arguments.

    Raises:
        ArrayError: an argument has the wrong shape.
        UnknownNameError: the robot has no such frame.
    """
    terms = compute_terms(robot, q, v) if terms is None else terms
    now = _equations(robot, terms, tau, dt, constraints, impact)
    q, v, n = terms.q, terms.v, robot.nv
    eye = jnp.eye(n, dtype=v.dtype)
    M_J, found = _solved(now, damping)
    y, v_after = found.motion, v + now.share * found.motion

    force_q, force_v = _force_slopes(robot, terms, now, constraints, found)
    frames_q, frames_v = _frame_slopes(robot, terms, now, constraints, y, v_after)

    # `M dy - J^T df = -force_x` and `J dy = -frames_x`.
    G = delassus(now.J, now.held, M_J, damping)
    G_J = spd_solve(G, M_J.T)
    free = mirrored(spd_solve(now.matrix, eye) - symmetric_product(M_J.T, G_J))

    def along(force_x: Array, frames_x: Array) -> tuple[Array, Array]:
        return (
            -matmul(free, force_x) - matmul(G_J.T, frames_x),
            matmul(G_J, force_x) - spd_solve(G, frames_x),
        )

    (y_q, f_q), (y_v, f_v) = along(force_q, frames_q), along(force_v, frames_v)
    driven = 1 - now.impact
    v_q, v_v, v_tau = now.share * y_q, eye + now.share * y_v, now.share * driven * free
    by_q, by_v = integrate_derivatives(robot, q, v_after, now.duration)
    top = jnp.concatenate([by_q + matmul(by_v, v_q), matmul(by_v, v_v)], axis=1)
    shape = len(constraints.frames), ROWS[constraints.rows], -1
    return ConstrainedStepDerivatives(
        jnp.concatenate([top, jnp.concatenate([v_q, v_v], axis=1)]),
        jnp.concatenate([matmul(by_v, v_tau), v_tau]),
        jnp.concatenate([f_q, f_v], axis=1).reshape(shape),
        (-driven * G_J).reshape(shape),
    )


def _solved(now: _Equations, damping: ArrayLike) -> tuple[Array, Reaction]:
    """`matrix^-1 J^T` (nv, m), and what moves and holds."""
    both = spd_solve(now.matrix, jnp.concatenate([now.J.T, now.force[:, None]], axis=1))
    found = reaction(now.J, now.held, both[:, :-1], both[:, -1], now.wanted, damping)
    return both[:, :-1], found


class _Equations(NamedTuple):
    """`matrix y - J^T f = force` and `J y = wanted`, of the acceleration or the jump `y`.

    Attributes:
        share: (), of `y` that velocities change by: the time step, or one at an impact.
        duration: (), s, of the step.
        impact: (), 0 or 1.
        slope: (nv,), of joint resistance, in `matrix`.
    """

    matrix: Array
    force: Array
    J: Array
    held: Array
    wanted: Array
    share: Array
    duration: Array
    impact: Array
    slope: Array


def _equations(
    robot: Robot,
    terms: Terms,
    tau: ArrayLike,
    dt: ArrayLike,
    constraints: FrameConstraints,
    impact: ArrayLike,
) -> _Equations:
    v, tau = terms.v, checked_tangent(robot, "tau", tau)
    dt = jnp.asarray(dt, v.dtype)
    hits = jnp.asarray(impact, bool)
    duration = jnp.where(hits, 0, dt)
    resisted, slope = implicit_resistance(robot, terms.q, v, duration)
    J, held = constraint_jacobian(robot, terms, constraints)
    rest = frames_acceleration(robot, terms, jnp.zeros_like(v), constraints)
    return _Equations(
        terms.mass_matrix + jnp.diag(slope),
        jnp.where(hits, 0, tau - terms.bias - resisted),
        J,
        held,
        -held * jnp.where(hits, matmul(J, v), rest),
        jnp.where(hits, 1, dt),
        duration,
        hits.astype(v.dtype),
        slope,
    )


def _force_slopes(
    robot: Robot, terms: Terms, now: _Equations, constraints: FrameConstraints, found: Reaction
) -> tuple[Array, Array]:
    """Derivatives (nv, nv) of `matrix y - J^T f - force` by `q` and `v`, at fixed `y` and `f`."""
    q, v, y, moves = terms.q, terms.v, found.motion, 1 - now.impact
    forces = found.reaction.reshape(len(constraints.frames), -1)
    external = jnp.zeros((robot.nb, 6), v.dtype)
    turning = jnp.zeros((robot.nv, robot.nv), v.dtype)
    for name, force in zip(constraints.frames, forces, strict=True):
        frame = robot.frame(name)
        if frame.body == WORLD:
            continue
        place = jnp.asarray(frame.position, v.dtype)
        lever = matmul(terms.kin.rotation[frame.body], place)
        moment = cross(lever, force[:3]) + (force[3:] if len(force) > 3 else 0)
        external = external.at[frame.body].add(jnp.concatenate([force[:3], moment]))
        # The lever turns with the body, where the force does not.
        w = frame_jacobian(robot, q, name, kin=terms.kin)[3:]
        turning = turning + matmul(w.T, matmul(matmul(skew(force[:3]), skew(lever)), w))

    # At an impact it is inverse dynamics at rest, without gravity.
    gravity = moves * jnp.asarray(robot.gravity, v.dtype)
    weightless = dataclasses.replace(robot, gravity=gravity)
    slopes = inverse_dynamics_derivatives(weightless, q, moves * v, y, external, kin=terms.kin)
    _, by_q, by_v = resistance_slopes(robot, q, v, now.duration)
    (resisted_q, slope_q), (resisted_v, slope_v) = by_q, by_v
    return (
        slopes.dq - turning + jnp.diag(moves * resisted_q + slope_q * y),
        slopes.dv + jnp.diag(moves * resisted_v + slope_v * y),
    )


def _frame_slopes(
    robot: Robot,
    terms: Terms,
    now: _Equations,
    constraints: FrameConstraints,
    y: Array,
    v_after: Array,
) -> tuple[Array, Array]:
    """Derivatives (m, nv) of `J y - wanted` by `q` and by `v`, at a fixed `y`."""
    k, hits = ROWS[constraints.rows], now.impact > 0
    gain = jnp.asarray(constraints.gain, y.dtype)
    # Of an impact it is the velocity after it, as an acceleration at rest.
    fading = jnp.where(hits, v_after, y + gain * terms.v)
    v = jnp.where(hits, 0, terms.v)
    slopes = frame_derivatives(robot, terms.q, v, fading, *constraints.frames, kin=terms.kin)
    by_q = jnp.concatenate([s.acceleration_dq[:k] for s in slopes])
    by_v = jnp.concatenate([s.acceleration_dv[:k] for s in slopes])
    by_v = jnp.where(hits, now.J, by_v + gain * now.J)
    return now.held[:, None] * by_q, now.held[:, None] * by_v
