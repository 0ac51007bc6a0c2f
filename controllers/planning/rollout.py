"""The motion that torques cause, and what it costs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fraxenv.dynamics import compute_terms

from .motion import advanced
from .problem import Problem, at_knot, cost
from .scheduled import with_contacts
from .states import Guess


def rolled(problem: Problem, begin: tuple[Array, Array], tau: Array) -> tuple[Guess, Array]:
    """The motion that torques (N, nv) cause, and its cost.

    Args:
        problem: of which weights have an axis of knots where references have one.
        begin: the state (q (nq,), v (nv,)).
        tau: N m and N, as they are.
    """
    robot = problem.robot
    each = {k: (t.reference, t.weight) for k, t in problem.running.items() if t.each}

    def knot(carry: tuple[Array, ...], at: Any) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        q, v, total = carry
        own, u, contacts = at
        terms = compute_terms(robot, q, v)
        running = {k: at_knot(term, own.get(k)) for k, term in problem.running.items()}
        here = with_contacts(running, contacts, problem.dt)
        total = total + problem.dt * cost(robot, here, terms, u)
        return (*advanced(problem, terms, u, contacts), total), (q, v)

    start: tuple[Array, ...] = *begin, jnp.zeros((), tau.dtype)
    (q, v, total), (qs, vs) = jax.lax.scan(knot, start, (each, tau, problem.contacts))
    end = cost(robot, problem.terminal, compute_terms(robot, q, v), jnp.zeros_like(v))
    motion = Guess(jnp.concatenate([qs, q[None]]), jnp.concatenate([vs, v[None]]), tau)
    return motion, total + end
