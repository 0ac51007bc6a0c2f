"""Exact derivatives of a scene's step, on the tangent space: the matrices A and B of one step.

The acceleration `a` under constraints fulfils `ID(q, v, a) = f + J' f_c(J a - aref)`. All columns
of its derivatives share one factorisation, of `M + J' H J`, and both sides' are closed forms: of
inverse dynamics (`fraxenv.dynamics.derivatives`), and of contacts (`contact.derivatives`).
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Real

from fraxenv.errors import check_choice, is_concrete

from ..body_motion import body_twists, kinematics_rate
from ..contact.acceleration import contact_acceleration
from ..contact.constraint_rows import constraint_rows, scalar_rows
from ..contact.derivatives import contact_force_derivatives, moved_contacts
from ..contact.model import Layout
from ..contact.rows import Rows
from ..derivatives import InverseDynamicsDerivatives, inverse_dynamics_derivatives
from ..kinematics import Kinematics, checked_tangent
from ..manifold import coordinate_rates, integrate, integrate_derivatives
from ..math.algebra import matmul
from ..solvers.cholesky import cholesky, cholesky_solve, spd_inverse
from ..terms import Terms, compute_terms
from .forces import (
    actuator_forces,
    checked_controls,
    passive_forces,
    position_slopes,
    velocity_slopes,
)
from .parts import Integrator
from .scene import Scene, check_precision
from .step import is_zero, lone_bodies, with_gyroscopic_derivative


class ContactTransitionDerivatives(NamedTuple):
    """Linearisation of a scene's step: `x+ = A x + B tau + B_ctrl ctrl`, `x = [dq; dv]`.

    Attributes:
        A: (2 nv, 2 nv).
        B: (2 nv, nv), by generalized forces.
        B_ctrl: (2 nv, nu), by the actuators' controls.
    """

    A: Array
    B: Array
    B_ctrl: Array


class _Slopes(NamedTuple):
    """Derivatives of a vector (nv,) by `q`, `v`, the forces `tau` and `ctrl`: (nv, nv or nu)."""

    q: Array
    v: Array
    tau: Array
    ctrl: Array


def contact_transition_derivatives(
    scene: Scene,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    tau: Real[ArrayLike, " nv"],
    dt: Real[ArrayLike, ""] | None = None,
    warm_start: Real[ArrayLike, " nv"] | None = None,
    integrator: Integrator | None = None,
    ctrl: Real[ArrayLike, " nu"] | None = None,
) -> ContactTransitionDerivatives:
    """Derivatives of `scene_step(scene, q, v, tau, dt)`, with contacts and all other constraints.

    On the tangent spaces before and after the step, as MuJoCo's `mjd_transitionFD` has them by
    differences. They are those on one side at borders: where a contact begins, or begins to slip,
    or where another face of a box is the nearest, the step has a kink or a jump.

    Args:
        scene: the scene.
        q: rad and m.
        v: rad/s and m/s.
        tau: N m and N, constant over the step.
        dt: time step, s; the scene's if omitted.
        warm_start: as in `constrained_acceleration`.
        integrator: the scene's if omitted.
        ctrl: controls of the actuators; zeros if omitted.

    Raises:
        ArrayError: an argument has the wrong shape.
        ConfigError: there is no such integrator, or the scene is not for this precision
            (`check_precision`).
    """
    integrator = scene.integrator if integrator is None else integrator
    check_choice("integrator", integrator, get_args(Integrator))
    system, constraints = scene.system, scene.constraints
    terms = compute_terms(system, q, v)
    q, v, kin = terms.q, terms.v, terms.kin
    dt = jnp.asarray(scene.timestep if dt is None else dt, v.dtype)
    tau = checked_tangent(system, "tau", tau).astype(v.dtype)
    ctrl = checked_controls(scene, ctrl, v)
    check_precision(scene, v.dtype)
    if warm_start is not None:
        warm_start = checked_tangent(system, "warm_start", warm_start).astype(v.dtype)

    moved = moved_contacts(system, constraints, kin)
    rows = constraint_rows(system, constraints, kin, q, v, moved.contacts, dt)
    force = tau + passive_forces(scene, q, v, kin=kin) + actuator_forces(scene, q, v, ctrl)
    metric = _Metric(jnp.zeros_like(v), jnp.zeros_like(v))
    if integrator == "discrete":
        metric = _discrete(scene, q, v, ctrl, dt)
    force = force - metric.pull * v
    a, _ = contact_acceleration(system, terms, force, rows, warm_start, metric.slope)

    # How the balance of forces and inertia changes at a fixed acceleration.
    inertial = inverse_dynamics_derivatives(system, q, v, a, kin=kin)
    of_contacts = contact_force_derivatives(system, constraints, kin, v, a, moved, dt)
    others = _other_forces(scene, terms, ctrl, a, dt)
    eye = jnp.eye(system.nv, dtype=v.dtype)
    by_ctrl = others.ctrl
    if integrator == "discrete":
        of_ctrl = jax.jacfwd(lambda ctrl: _discrete(scene, q, v, ctrl, dt))(ctrl)
        by_ctrl = by_ctrl - a[:, None] * of_ctrl.slope - v[:, None] * of_ctrl.pull
    felt = _Slopes(
        others.q + of_contacts.dq - inertial.dq,
        others.v + of_contacts.dv - inertial.dv - jnp.diag(metric.pull),
        eye,
        by_ctrl,
    )
    of_scalar = rows.scalar.gram(rows.violation(a)[0])
    hessian = terms.mass_matrix + jnp.diag(metric.slope) + of_scalar - of_contacts.da
    inverse = spd_inverse(hessian)

    if integrator == "euler" and not is_zero(system.damping):
        slope = dt * jnp.asarray(system.damping, v.dtype)
        a, a_by = _implicit(scene, terms, a, felt, inverse, slope)
    elif integrator == "implicitfast":
        a, a_by = _implicitfast(scene, terms, ctrl, a, felt, inverse, inertial, dt)
    else:
        a_by = _Slopes(*(matmul(inverse, x) for x in felt))

    by_q, by_v = integrate_derivatives(system, q, v + dt * a, dt)
    v_by = _Slopes(*(dt * x for x in a_by))
    v_by = v_by._replace(v=eye + v_by.v)
    q_by = _Slopes(*(matmul(by_v, x) for x in v_by))
    q_by = q_by._replace(q=by_q + q_by.q)
    whole = [jnp.concatenate([upper, lower]) for upper, lower in zip(q_by, v_by, strict=True)]
    return ContactTransitionDerivatives(jnp.concatenate(whole[:2], axis=1), *whole[2:])


class _Metric(NamedTuple):
    """What the integrator "discrete" adds: to the diagonal of `M`; and `pull v` to the forces."""

    slope: Array
    pull: Array


def _discrete(scene: Scene, q: Array, v: Array, ctrl: Array, dt: Array) -> _Metric:
    damping = jnp.maximum(-velocity_slopes(scene, q, v, ctrl), 0)
    stiffness = jnp.maximum(-position_slopes(scene, q, v, ctrl), 0)
    return _Metric(dt * (damping + dt * stiffness), dt * stiffness)


def _implicit(
    scene: Scene, terms: Terms, a: Array, felt: _Slopes, inverse: Array, slope: Array
) -> tuple[Array, _Slopes]:
    """The solution `b` of `(M + diag(slope)) b = M a`, and its derivatives.

    Those of `a` are `inverse` times `felt`.
    """
    system, M = scene.system, terms.mass_matrix
    # By what is left of `a`, b = a - P diag(slope) a: `M` is not needed again.
    P = spd_inverse(M + jnp.diag(slope))
    lost = matmul(P, slope * a)
    # What M does to a fixed vector changes as inverse dynamics does without gravity and velocity.
    weightless = system.replace(gravity=np.zeros(3))
    turned = inverse_dynamics_derivatives(
        weightless, terms.q, jnp.zeros_like(a), lost, kin=terms.kin
    ).dq
    onwards = inverse - matmul(P, slope[:, None] * inverse)
    by = _Slopes(*(matmul(onwards, x) for x in felt))
    return a - lost, by._replace(q=by.q + matmul(P, turned))


def _implicitfast(
    scene: Scene,
    terms: Terms,
    ctrl: Array,
    a: Array,
    felt: _Slopes,
    inverse: Array,
    inertial: InverseDynamicsDerivatives,
    dt: Array,
) -> tuple[Array, _Slopes]:
    """The acceleration with which the integrator "implicitfast" steps, and its derivatives.

    Those of `a`, of the forces alone, are `inverse` times `felt`.
    """
    system, q, v, M = scene.system, terms.q, terms.v, terms.mass_matrix
    slope = -dt * velocity_slopes(scene, q, v, ctrl)
    b, b_by = _implicit(scene, terms, a, felt, inverse, slope)
    # Of the state, the slopes are constants but at bounds; of the controls, gains are factors.
    of_ctrl = jax.jacfwd(lambda ctrl: -dt * velocity_slopes(scene, q, v, ctrl))(ctrl)
    pulled = cholesky_solve(cholesky(M + jnp.diag(slope)), b[:, None] * of_ctrl)
    b_by = b_by._replace(ctrl=b_by.ctrl - pulled)
    lone = lone_bodies(system.topology)
    if not lone:
        return b, b_by
    own = np.concatenate([system.topology.v_index[i] + np.arange(6) for i in lone])

    def spun(displacement: Array, v: Array, force: Array) -> Array:
        at = compute_terms(system, integrate(system, q, displacement, 1.0), v)
        return with_gyroscopic_derivative(system, at, force, slope, b, dt)[own]

    force = matmul(M, a) + terms.bias
    by_q, by_v, by_force = jax.jacfwd(spun, (0, 1, 2))(jnp.zeros_like(v), v, force)
    force_by = _Slopes(*(matmul(M, matmul(inverse, x)) for x in felt))
    force_by = force_by._replace(q=force_by.q + inertial.dq, v=force_by.v + inertial.dv)
    spun_by = _Slopes(*(matmul(by_force, x) for x in force_by))
    spun_by = spun_by._replace(q=spun_by.q + by_q, v=spun_by.v + by_v)
    b = with_gyroscopic_derivative(system, terms, force, slope, b, dt)
    return b, _Slopes(*(x.at[own].set(y) for x, y in zip(b_by, spun_by, strict=True)))


def _other_forces(scene: Scene, terms: Terms, ctrl: Array, a: Array, dt: Array) -> _Slopes:
    """Derivatives at a fixed `a` of passive, actuator and constraint forces, contacts apart."""
    system, q, v, kin = scene.system, terms.q, terms.v, terms.kin
    nv, layout = system.nv, scene.constraints.layout
    single = dataclasses.replace(layout, pairs=(), equalities=(), limited_balls=())
    coupled = dataclasses.replace(layout, pairs=(), limited=(), friction_loss=())
    # Springs of quaternions couple their three directions.
    quaternions = system.topology.dof_coordinate < 0
    sprung = not is_concrete(scene.stiffness) or np.any(np.asarray(scene.stiffness)[quaternions])
    hung = sprung and bool(quaternions.any())
    unsupported = dataclasses.replace(scene, gravity_compensation=None)
    slack = dataclasses.replace(
        scene, stiffness=np.zeros(nv), system=system.replace(damping=np.zeros(nv))
    )

    def constrained(layout: Layout, q: Array, kin: Kinematics, v: Array) -> Array:
        c = dataclasses.replace(scene.constraints, layout=layout)
        rows = Rows(scalar_rows(system, c, kin, q, v, dt), ())
        return rows.transpose(rows.force(rows.violation(a)))

    def joint_by_joint(q: Array, v: Array) -> Array:
        force = constrained(single, q, kin, v) + actuator_forces(scene, q, v, ctrl)
        return force if hung else force + passive_forces(unsupported, q, v, kin=kin)

    def together(q: Array, kin: Kinematics, v: Array) -> Array:
        force = constrained(coupled, q, kin, v)
        if not hung and scene.gravity_compensation is None:
            return force
        return force + passive_forces(scene if hung else slack, q, v, kin=kin)

    # Of forces that depend on their own joint only, one tangent has all derivatives.
    one = jnp.ones_like(v)
    rates = coordinate_rates(system, q)
    _, by_q = jax.jvp(lambda q: joint_by_joint(q, v), (q,), (matmul(rates, one),))
    _, by_v = jax.jvp(lambda v: joint_by_joint(q, v), (v,), (one,))
    by_ctrl = jax.jacfwd(lambda ctrl: actuator_forces(scene, q, v, ctrl))(ctrl)
    slopes = _Slopes(jnp.diag(by_q), jnp.diag(by_v), jnp.eye(nv, dtype=v.dtype), by_ctrl)
    if not (hung or scene.gravity_compensation is not None or _couple(coupled)):
        return slopes

    def along(direction: Array) -> tuple[Array, Array]:
        turned = kinematics_rate(system, kin, body_twists(system, kin, direction))
        moved = (matmul(rates, direction), turned)
        _, by_q = jax.jvp(lambda q, kin: together(q, kin, v), (q, kin), moved)
        _, by_v = jax.jvp(lambda v: together(q, kin, v), (v,), (direction,))
        return by_q, by_v

    by_q, by_v = jax.vmap(along, out_axes=-1)(jnp.eye(nv, dtype=v.dtype))
    return slopes._replace(q=slopes.q + by_q, v=slopes.v + by_v)


def _couple(layout: Layout) -> bool:
    return bool(layout.equalities or layout.limited_balls)
