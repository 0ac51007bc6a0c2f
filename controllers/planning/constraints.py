"""State constraints of a plan, the safety filter's barriers, by an augmented Lagrangian.

Each row `h >= margin` becomes the cost `penalty / 2 max(0, margin - h + multiplier / penalty)^2`,
and the multipliers learn how much it is worth.

Source: Birgin and Martinez, "Practical Augmented Lagrangian Methods for Constrained Optimization"
(SIAM 2014), algorithm 4.1.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fraxenv.dynamics import (
    Obstacles,
    Robot,
    Terms,
    compute_kinematics,
    compute_terms,
    integrate,
    move_obstacles,
)
from fraxenv.errors import ArrayError
from fraxenv.kernels import fusible

from ..safety.barriers import Barrier
from .problem import Problem, constraint_term
from .residuals import Slopes, above_margin, residual

FIRST_PENALTY, LAST_PENALTY, HARDER = 100.0, 1e10, 10.0
"""Penalties, and by how much they grow where a round has not brought enough."""

ENOUGH = 0.25
"""Share of what was missing that may still be missing after a round."""

ROUND, SHARPER = 1e-3, 0.1
"""The first round ends where a step promises less than this share of the cost; each one is that
much sharper than the one before."""


class Multipliers(NamedTuple):
    """What constraints are worth.

    Attributes:
        shifts: for each barrier (N + 1, rows), in its unit: multipliers by the penalty.
        penalty: ().
        missing: (), what was missing after the last round: how far constraints were missed, or
            those that hold were still paid for, in the barrier's unit.
        promise: (), of a step, below which the round ends; infinite for the first one's.
    """

    shifts: tuple[Array, ...]
    penalty: Array
    missing: Array
    promise: Array


def first_multipliers(problem: Problem, known: Any, dtype: Any) -> Multipliers:
    """Of a first round.

    Args:
        problem: with constraints.
        known: multipliers of an earlier plan, `Plan.multipliers`, or () for none.
        dtype: of floats.

    Raises:
        ArrayError: they are of other constraints.
    """
    none = no_multipliers(problem, dtype)
    sizes, known = [x.shape for x in none], known or none
    given = [jnp.shape(x) for x in known]
    if given != sizes:
        raise ArrayError(
            f"solve: guess.multipliers have the shapes {given}, expected {sizes}: one for each of "
            "the problem's constraints. Begin with guess._replace(multipliers=())."
        )
    penalty = jnp.asarray(FIRST_PENALTY, dtype)
    far = jnp.asarray(jnp.inf, dtype)
    return Multipliers(tuple(jnp.asarray(x, dtype) / penalty for x in known), penalty, far, far)


def no_multipliers(problem: Problem, dtype: Any) -> tuple[Array, ...]:
    """Of constraints that are worth nothing, `Plan.multipliers`."""
    sizes = [(problem.horizon + 1, n) for n in _row_counts(problem)]
    return tuple(jnp.zeros(size, dtype) for size in sizes)


def augmented(problem: Problem, at: Multipliers) -> Problem:
    """The problem with its constraints among the costs."""
    running, terminal, n = dict(problem.running), dict(problem.terminal), problem.horizon
    worlds = _worlds(problem)
    before, last = jax.tree.map(lambda x: x[:-1], worlds), jax.tree.map(lambda x: x[-1], worlds)
    # What the first knot is nobody can change.
    weight = at.penalty / problem.dt * (jnp.arange(n) > 0)
    for i, (barrier, shift) in enumerate(zip(problem.constraints, at.shifts, strict=True)):
        missed = _Missed(barrier.relative_degree)
        each = jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *jnp.shape(x))), barrier)
        weights = jnp.broadcast_to(weight[:, None], (n, shift.shape[1]))
        name = constraint_term(i)
        running[name] = residual(missed, (each, before, shift[:-1]), weights, each=True)
        terminal[name] = residual(missed, (barrier, last, shift[-1]), at.penalty)
    return dataclasses.replace(problem, running=running, terminal=terminal, constraints=())


def beyond(problem: Problem, backend: str, q: Array, v: Array) -> tuple[Array, ...]:
    """By how much barriers are above their margins, for each (N + 1, rows), in its unit.

    Args:
        problem: with constraints.
        backend: of the kernels; see `fraxenv.fuse`.
        q: (N + 1, nq), rad and m.
        v: (N + 1, nv), rad/s and m/s.
    """
    return tuple(h.at[0].set(jnp.inf) for h in above_margins(problem, backend, q, v))


def above_margins(problem: Problem, backend: str, q: Array, v: Array) -> tuple[Array, ...]:
    """As `beyond`, of the first knot as well, which nobody can change."""
    robot = problem.robot

    def knot(barriers: tuple[Barrier, ...], world: Obstacles, q: Array, v: Array) -> Any:
        terms = compute_terms(robot, q, v)
        return tuple(above_margin(robot, terms, barrier, world) for barrier in barriers)

    many = jax.vmap(fusible(knot, backend), (None, 0, 0, 0))
    found: tuple[Array, ...] = many(problem.constraints, _worlds(problem), q, v)
    return found


def violation(above: tuple[Array, ...]) -> Array:
    """The most that any row is missed by (); zero if none is."""
    rows = jnp.concatenate([h.ravel() for h in above])
    return jnp.maximum(-jnp.min(rows, initial=jnp.inf), 0)


def updated(
    at: Multipliers, above: tuple[Array, ...], cost: Array, tolerance: float
) -> Multipliers:
    """After a round.

    Args:
        at: of the round.
        above: see `beyond`, where it ended.
        cost: () there.
        tolerance: the least `promise`.
    """
    pairs = list(zip(above, at.shifts, strict=True))
    missing = jnp.max(jnp.stack([jnp.max(jnp.abs(jnp.minimum(h, s))) for h, s in pairs]))
    harder = missing > ENOUGH * at.missing
    penalty = jnp.where(harder, jnp.minimum(at.penalty * HARDER, LAST_PENALTY), at.penalty)
    shifts = tuple(jnp.maximum(s - h, 0) * (at.penalty / penalty) for h, s in pairs)
    return Multipliers(shifts, penalty, missing, SHARPER * promised(at, cost, tolerance))


def promised(at: Multipliers, cost: Array, tolerance: float) -> Array:
    """What a step promises () where a round is over."""
    return jnp.maximum(jnp.minimum(at.promise, ROUND * jnp.abs(cost)), tolerance)


@dataclass(frozen=True)
class _Missed:
    """By how much a barrier is below its margin, and by its multipliers beyond; never negative."""

    relative_degree: int

    def bends(self, robot: Robot) -> tuple[str, ...]:
        return ("q",) if self.relative_degree == 2 else ("q", "v")

    def __call__(self, robot: Robot, terms: Terms, tau: Array, at: Any) -> Array:
        barrier, world, shift = at
        return jnp.maximum(shift - above_margin(robot, terms, barrier, world), 0)

    def slopes(self, robot: Robot, terms: Terms, tau: Array, at: Any) -> Slopes:
        """By what the barrier is of: the configuration alone, or the velocity, too."""
        n, of_both = robot.nv, self.relative_degree == 1

        def moved(dx: Array) -> Array:
            q = integrate(robot, terms.q, dx[:n], 1.0)
            v = terms.v + dx[n:] if of_both else terms.v
            there = dataclasses.replace(terms, q=q, v=v, kin=compute_kinematics(robot, q))
            return self(robot, there, tau, at)

        C = jax.jacfwd(moved)(jnp.zeros(2 * n if of_both else n, terms.q.dtype))
        if not of_both:
            C = jnp.concatenate([C, jnp.zeros_like(C)], axis=1)
        return C, jnp.zeros((len(C), n), C.dtype)


def first_world(problem: Problem) -> Obstacles:
    """The obstacles at the first knot."""
    if not problem.obstacles_each:
        return problem.obstacles
    first: Obstacles = jax.tree.map(lambda x: x[0], problem.obstacles)
    return first


def _worlds(problem: Problem) -> Obstacles:
    """The obstacles at all knots, with a leading axis."""
    if problem.obstacles_each:
        sizes = {jnp.shape(x)[:1] for x in jax.tree.leaves(problem.obstacles)}
        if sizes != {(problem.horizon + 1,)}:
            raise ArrayError(
                f"Problem: obstacles_each with arrays whose leading axes are {sorted(sizes)}, "
                f"expected {(problem.horizon + 1,)}: where the obstacles are at every knot."
            )
        return problem.obstacles
    times = jnp.arange(problem.horizon + 1) * problem.dt
    moved: Obstacles = jax.vmap(lambda t: move_obstacles(problem.obstacles, t))(times)
    return moved


def _row_counts(problem: Problem) -> list[int]:
    if not problem.constraints:
        return []
    robot = problem.robot

    def rows(q: Array) -> list[Array]:
        terms = compute_terms(robot, q, jnp.zeros(robot.nv))
        return [above_margin(robot, terms, b, first_world(problem)) for b in problem.constraints]

    shapes = jax.eval_shape(rows, jnp.asarray(robot.q_default, float))
    return [x.shape[0] for x in shapes]
