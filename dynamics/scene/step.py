"""A scene's step in time: MuJoCo's, with its soft constraints solved to convergence."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from fraxenv.errors import check_choice, is_concrete

from ..contact.acceleration import contact_acceleration
from ..contact.constraint_rows import constraint_rows
from ..contact.narrowphase import find_contacts
from ..contact.newton import Solution, solution
from ..contact.rows import Rows
from ..forward_dynamics import implicit_acceleration
from ..kinematics import checked_tangent
from ..manifold import integrate
from ..math.algebra import cross, matmul
from ..math.rotation import skew
from ..model.robot import WORLD, Robot, Topology
from ..terms import Terms, compute_terms
from .forces import actuator_forces, passive_forces, position_slopes, velocity_slopes
from .scene import Scene, check_precision

Integrator = Literal["euler", "implicitfast", "discrete"]


class _Problem(NamedTuple):
    """What is solved at one state: terms, smooth forces but the bias, contacts, rows."""

    terms: Terms
    force: Array
    rows: Rows


def constrained_acceleration(
    scene: Scene,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    tau: Real[ArrayLike, " nv"],
    warm_start: Real[ArrayLike, " nv"] | None = None,
    ctrl: Real[ArrayLike, " nu"] | None = None,
) -> tuple[Float[Array, " nv"], Solution]:
    """Acceleration under contacts, limits, friction and equalities, and their forces.

    MuJoCo's `qacc`: the minimiser of a strongly convex cost, found by Newton's method, with exact
    derivatives, forward and reverse (`contact_acceleration`).

    Args:
        scene: the scene.
        q: rad and m.
        v: rad/s and m/s.
        tau: N m and N, in addition to passive and actuators' forces.
        warm_start: acceleration from which to begin, if it is better than that without constraints;
            the last step's saves rounds. Results do not depend on it beyond the tolerance.
        ctrl: controls of the actuators; zeros if omitted.

    Raises:
        ArrayError: an argument has the wrong shape.
        ConfigError: the scene is not for this precision (`check_precision`).
    """
    problem = _problem(scene, compute_terms(scene.system, q, v), tau, ctrl, scene.timestep)
    return _solve(scene, problem, warm_start, jnp.zeros_like(problem.force))


def scene_step(
    scene: Scene,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    tau: Real[ArrayLike, " nv"],
    dt: Real[ArrayLike, ""] | None = None,
    warm_start: Real[ArrayLike, " nv"] | None = None,
    integrator: Integrator | None = None,
    ctrl: Real[ArrayLike, " nu"] | None = None,
    terms: Terms | None = None,
) -> tuple[Float[Array, " nq"], Float[Array, " nv"], Solution]:
    """One step in time: the next configuration and velocity, and what the constraints did.

    "euler" is MuJoCo's: constraint forces are found with the mass matrix `M`, then
    `v+ = v + dt (M + dt B)^-1 (f + J' f_c)` with the joints' damping `B`, and
    `q+ = integrate(q, v+, dt)`. "implicitfast", MuJoCo's as well, has the derivatives of all
    passive and actuator forces by the velocity in place of `B`, and for free bodies that of
    gyroscopic forces. "discrete" solves once, in the metric `M + dt D + dt^2 K` of damping and
    stiffness of joints and actuators, so that these are stable for any stiffness; it is not
    MuJoCo's integrator of that name, whose constraint rows are implicit as well.

    `solution.acceleration` is the `warm_start` of the next step.

    Args:
        scene: the scene.
        q: rad and m.
        v: rad/s and m/s.
        tau: N m and N, constant over the step, in addition to passive and actuators' forces.
        dt: time step, s; the scene's if omitted.
        warm_start: as in `constrained_acceleration`.
        integrator: the scene's if omitted.
        ctrl: controls of the actuators; zeros if omitted.
        terms: `compute_terms(scene.system, q, v)`, if they are known.

    Raises:
        ArrayError: an argument has the wrong shape.
        ConfigError: there is no such integrator; the scene is not for this precision
            (`check_precision`).
    """
    integrator = scene.integrator if integrator is None else integrator
    check_choice("integrator", integrator, get_args(Integrator))
    system = scene.system
    dt = scene.timestep if dt is None else dt
    terms = compute_terms(system, q, v) if terms is None else terms
    problem = _problem(scene, terms, tau, ctrl, dt)
    force = problem.force
    dt = jnp.asarray(dt, force.dtype)
    slope = jnp.zeros_like(force)
    if integrator == "discrete":
        damping = jnp.maximum(-velocity_slopes(scene, terms.q, terms.v, ctrl), 0)
        stiffness = jnp.maximum(-position_slopes(scene, terms.q, terms.v, ctrl), 0)
        slope = dt * (damping + dt * stiffness)
        problem = problem._replace(force=force - dt * stiffness * terms.v)
    a, solved = _solve(scene, problem, warm_start, slope)
    if integrator == "euler" and not is_zero(system.damping):
        slope = dt * jnp.asarray(system.damping, force.dtype)
        a = _implicit(system, terms, force + solved.joint_force, slope)
    elif integrator == "implicitfast":
        slope = -dt * velocity_slopes(scene, terms.q, terms.v, ctrl)
        total = force + solved.joint_force
        a = _implicit(system, terms, total, slope)
        a = with_gyroscopic_derivative(system, terms, total, slope, a, dt)
    v_next = terms.v + dt * a
    return integrate(system, terms.q, v_next, dt), v_next, solved


def _problem(
    scene: Scene, terms: Terms, tau: ArrayLike, ctrl: ArrayLike | None, dt: ArrayLike
) -> _Problem:
    system, constraints = scene.system, scene.constraints
    q, v, kin = terms.q, terms.v, terms.kin
    check_precision(scene, v.dtype)
    force = checked_tangent(system, "tau", tau).astype(v.dtype)
    force = force + passive_forces(scene, q, v, kin=kin) + actuator_forces(scene, q, v, ctrl)
    contacts = find_contacts(system, constraints, kin)
    dt = jnp.asarray(dt, v.dtype)
    rows = constraint_rows(system, constraints, kin, q, v, contacts, dt)
    return _Problem(terms, force, rows)


def _solve(
    scene: Scene, problem: _Problem, warm_start: ArrayLike | None, slope: Array
) -> tuple[Array, Solution]:
    terms, force, rows = problem
    if warm_start is not None:
        warm_start = checked_tangent(scene.system, "warm_start", warm_start).astype(force.dtype)
    a, report = contact_acceleration(scene.system, terms, force, rows, warm_start, slope)
    layout = scene.constraints.layout
    return a, solution(layout, terms.kin, rows, terms.v, a, report)


def _implicit(system: Robot, terms: Terms, force: Array, slope: Array) -> Array:
    """The solution of `(M + diag(slope)) a = force - bias`."""
    resistance = (jnp.zeros_like(force), slope)
    return implicit_acceleration(system, terms, force, None, resistance)


def with_gyroscopic_derivative(
    system: Robot, terms: Terms, force: Array, slope: Array, a: Array, dt: Array
) -> Array:
    """`a` (nv,) where free bodies without jointed descendants feel their spin's change at once.

    Their rows of `(M + diag(slope)) a = force - bias` are solved again, with `dt` times the
    derivative of the bias by the velocity. With the mass m, the centre of mass c and the inertia I
    about the origin in the body's axes, and its angular velocity w, the bias is
    `(m R (w x (w x c)), w x I w)`, besides gravity.

    Source: MuJoCo's documentation, "Computation: Gyroscopic derivatives for free bodies".
    """
    topology = system.topology
    for body in lone_bodies(topology):
        start = int(topology.v_index[body])
        own = slice(start, start + 6)
        w = terms.v[start + 3 : start + 6]
        rotation = terms.kin.rotation[body]
        mass = jnp.asarray(system.mass, w.dtype)[body]
        com = jnp.asarray(system.com, w.dtype)[body]
        inertia = matmul(matmul(rotation.T, terms.kin.inertia[body]), rotation)
        spin = skew(w)
        carried = -skew(cross(w, com)) - matmul(spin, skew(com))
        # The joint's frame has axes of its own, in which linear velocities are.
        axes = jnp.asarray(topology.rotation[body], w.dtype).T
        linear = mass * matmul(axes, matmul(rotation, carried))
        angular = matmul(spin, inertia) - skew(matmul(inertia, w))
        block = terms.mass_matrix[own, own] + jnp.diag(slope[own])
        rhs = (force - terms.bias)[own]
        A, B = jnp.diagonal(block)[:3], block[:3, 3:] + dt * linear
        C, D = block[3:, :3], block[3:, 3:] + dt * angular
        ratio = C / A
        turned = _solve3(D - matmul(ratio, B), rhs[3:] - matmul(ratio, rhs[:3]))
        moved = (rhs[:3] - matmul(B, turned)) / A
        a = a.at[own].set(jnp.concatenate([moved, turned]))
    return a


def lone_bodies(topology: Topology) -> list[int]:
    """Free bodies that nothing hangs on."""
    return [
        body
        for body, joint in enumerate(topology.joints)
        if joint.kind == "floating"
        and topology.parent[body] == WORLD
        and not (topology.parent == body).any()
    ]


def _solve3(matrix: Array, rhs: Array) -> Array:
    """Solution of a (3, 3) system by Cramer's rule."""
    x, y, z = matrix.T
    cofactors = jnp.stack([cross(y, z), cross(z, x), cross(x, y)])
    return matmul(cofactors, rhs) / jnp.sum(x * cofactors[0])


def is_zero(leaf: ArrayLike) -> bool:
    """Whether a leaf is known to be zero."""
    return is_concrete(leaf) and not np.any(np.asarray(leaf))
