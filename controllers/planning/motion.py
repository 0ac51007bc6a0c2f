"""How a plan's state moves on: a robot alone, with frames held, or a scene with what touches."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from fraxenv.dynamics import (
    Robot,
    Scene,
    Terms,
    compute_terms,
    contact_transition_derivatives,
    scene_step,
    step,
    transition_derivatives,
)
from fraxenv.dynamics.transition_hessian import transition_hessian

from .problem import Problem
from .scheduled import Schedule, held_step, held_step_derivatives
from .states import between, moved


def advanced(
    problem: Problem, terms: Terms, tau: Array, contacts: Schedule | None
) -> tuple[Array, Array]:
    """The state (q, v) a step after the one of the terms, under torques (nv,), N m and N.

    Args:
        problem: what moves.
        terms: at the state.
        tau: torques.
        contacts: those of the knot, of the problem's.
    """
    robot, scene, dt = problem.robot, problem.scene, problem.dt
    if contacts is not None:
        q, v, _ = held_step(robot, terms, tau, dt, contacts)
        return q, v
    if scene is None:
        return step(robot, terms.q, terms.v, tau, dt, terms=terms)
    q, v, _ = scene_step(_of(scene, robot), terms.q, terms.v, tau, dt, terms=terms)
    return q, v


def linearised(
    problem: Problem, terms: Terms, tau: Array, contacts: Schedule | None
) -> tuple[Array, Array]:
    """Derivatives of the step, on the tangent space: A (2 nv, 2 nv) and B (2 nv, nv)."""
    robot, scene, dt = problem.robot, problem.scene, problem.dt
    if contacts is not None:
        held = held_step_derivatives(robot, terms, tau, dt, contacts)
        return held.A, held.B
    if scene is None:
        return transition_derivatives(robot, terms.q, terms.v, tau, dt, terms=terms)
    found = contact_transition_derivatives(_of(scene, robot), terms.q, terms.v, tau, dt)
    return found.A, found.B


def curvature(
    problem: Problem, terms: Terms, tau: Array, costate: Array, contacts: Schedule | None
) -> Array:
    """Second derivative (3 nv, 3 nv) of `costate . x+`, as `transition_hessian` has it.

    Where things touch, within a zone of their constraints: where they begin to touch, or to slip,
    the first derivative has a kink, which is not seen.
    """
    robot, q, v = problem.robot, terms.q, terms.v
    if problem.scene is None and contacts is None:
        return transition_hessian(robot, q, v, tau, problem.dt, costate, terms=terms)
    end = advanced(problem, terms, tau, contacts)
    m = 2 * robot.nv

    def weighed(z: Array) -> Array:
        q_z, v_z = moved(robot, q, v, z[:m])
        after = advanced(problem, compute_terms(robot, q_z, v_z), tau + z[m:], contacts)
        return jnp.sum(costate * between(robot, *end, *after))

    bent: Array = jax.hessian(weighed)(jnp.zeros(m + robot.nv, v.dtype))
    return bent


def _of(scene: Scene, robot: Robot) -> Scene:
    """The scene with the robot of its problem, which may have been replaced."""
    return dataclasses.replace(scene, system=robot)
