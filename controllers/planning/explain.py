"""What a plan costs, term by term, what it misses, and why it ended: for people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fraxenv.dynamics import compute_terms
from fraxenv.kernels import fusible

from ..safety.barriers import barrier_names
from .constraints import above_margins, first_world
from .ddp import STATUS, Plan
from .held import at_limits
from .norms import expansion
from .problem import Problem, at_knot, beginning, of_dtype, spread
from .residuals import value
from .scheduled import with_contacts
from .states import Guess

SHOWN = 8
"""Constraints that are listed, the most missed first."""


@dataclass(frozen=True)
class PlanExplanation:
    """Of a plan, or of a guess; `print` it.

    Attributes:
        status: of `plan.STATUS`; "guess" of what no solver has seen.
        advice: what that means, and what may help.
        running: cost of each running term, by name, over all knots.
        terminal: cost of each terminal term, by name.
        knots: the knot at which each running term costs most, by name.
        not_finite: terms whose cost is not a finite number, with the first knot at which it is not.
        missed: by how much a constraint's row is below its margin at worst, and at which knot, by
            name, the worst first; those that are kept are left out.
        start: rows that are below their margins where the plan begins, which it cannot help.
        held: share of the knots at which each driven joint's torque is at a limit.
        gap: the largest component of a gap between two knots, which a step is not to have.
        iterations: there were.
    """

    status: str
    advice: str
    running: dict[str, float]
    terminal: dict[str, float]
    knots: dict[str, int]
    not_finite: dict[str, int]
    missed: dict[str, tuple[float, int]]
    start: dict[str, float]
    held: dict[str, float]
    gap: float
    iterations: int

    @property
    def cost(self) -> float:
        """Of all terms together."""
        return sum(self.running.values()) + sum(self.terminal.values())

    def __str__(self) -> str:
        lines = [f"{self.status}: {self.advice}", f"cost {self.cost:.6g}"]
        for kind, terms in (("running", self.running), ("terminal", self.terminal)):
            for name, cost in sorted(terms.items(), key=lambda it: -it[1]):
                share = 100 * cost / self.cost if self.cost else 0.0
                most = f", most at knot {self.knots[name]}" if kind == "running" else ""
                lines.append(f"  {kind} {name!r}: {cost:.4g} ({share:.1f} %{most})")
        for name, knot in self.not_finite.items():
            lines.append(f"not finite: {name} from knot {knot} on")
        for name, amount in self.start.items():
            lines.append(f"the start is beyond {name} by {amount:.3g}")
        for name, (amount, knot) in list(self.missed.items())[:SHOWN]:
            lines.append(f"missed: {name} by {amount:.3g} at knot {knot}")
        if len(self.missed) > SHOWN:
            lines.append(f"missed: {len(self.missed) - SHOWN} others, by less")
        at_limit = {name: share for name, share in self.held.items() if share > 0}
        for name, share in sorted(at_limit.items(), key=lambda it: -it[1]):
            lines.append(f"torque of {name} at its limit: {100 * share:.0f} % of the knots")
        if self.gap > 0:
            lines.append(f"largest gap between knots: {self.gap:.3g}")
        return "\n".join(lines)


def explain(problem: Problem, plan: Plan | Guess, backend: str = "auto") -> PlanExplanation:
    """What a plan costs, what it misses, and why it ended.

    Args:
        problem: that it is of.
        plan: of `solve` or `sample`; or a guess, before they have seen it. Not batched.
        backend: of the kernels; see `fraxenv.fuse`.

    Raises:
        ArrayError: an array has the wrong shape.
    """
    dtype = jnp.result_type(float)
    problem = spread(of_dtype(problem, dtype))
    robot, N = problem.robot, problem.horizon
    q, v, tau = (jnp.asarray(x, dtype) for x in (plan.q, plan.v, plan.tau))
    beginning("explain", robot, (q[0], v[0]), dtype)
    each = {k: (t.reference, t.weight) for k, t in problem.running.items() if t.each}
    nothing = jnp.zeros(robot.nv, dtype)

    def of(terms: Any, at: Any, own: Any, contacts: Any) -> dict[str, Array]:
        q, v, tau = at
        here = compute_terms(robot, q, v)
        plain = {k: at_knot(term, own.get(k)) for k, term in terms.items()}
        known = with_contacts(plain, contacts, problem.dt)
        return {
            k: expansion(t.norm, t.weight, value(t, robot, here, tau)).value
            for k, t in known.items()
        }

    @jax.jit
    def costs(q: Array, v: Array, tau: Array, each: Any) -> tuple[Any, Any]:
        knot: Callable[..., Any] = fusible(lambda *given: of(problem.running, *given), backend)
        running = jax.vmap(knot)((q[:-1], v[:-1], tau), each, problem.contacts)
        last: Callable[..., Any] = fusible(lambda at: of(problem.terminal, at, {}, None), backend)
        end = jax.vmap(last)((q[-1:], v[-1:], nothing[None]))
        return jax.tree.map(lambda x: problem.dt * x, running), jax.tree.map(lambda x: x[0], end)

    running, terminal = jax.tree.map(np.asarray, costs(q, v, tau, each))
    infinite = {f"running {k!r}": _first(~np.isfinite(x)) for k, x in running.items()}
    infinite |= {f"terminal {k!r}": N for k, x in terminal.items() if not np.isfinite(x)}
    missed, start = _missed(problem, q, v, backend)
    status, iterations = "guess", 0
    if isinstance(plan, Plan):
        status, iterations = STATUS[int(plan.status)], int(plan.iterations)
    return PlanExplanation(
        status,
        _advice(problem, plan, status, missed, start),
        {k: float(x.sum()) for k, x in running.items()},
        {k: float(x) for k, x in terminal.items()},
        {k: int(np.argmax(x)) for k, x in running.items()},
        {k: knot for k, knot in infinite.items() if knot is not None},
        missed,
        start,
        _held(problem, tau),
        float(plan.gap) if isinstance(plan, Plan) else float("nan"),
        iterations,
    )


def _missed(
    problem: Problem, q: Array, v: Array, backend: str
) -> tuple[dict[str, tuple[float, int]], dict[str, float]]:
    if not problem.constraints:
        return {}, {}
    names = barrier_names(problem.robot, problem.constraints, first_world(problem))
    found = jax.jit(lambda q, v: above_margins(problem, backend, q, v))(q, v)
    above = np.concatenate([np.asarray(h) for h in found], axis=1)
    start = {name: float(-h) for name, h in zip(names, above[0], strict=True) if h < 0}
    worst = 1 + np.argmin(above[1:], axis=0)
    rows = zip(names, -above[worst, np.arange(len(names))], worst, strict=True)
    missed = {name: (float(by), int(knot)) for name, by, knot in rows if by > 0}
    return dict(sorted(missed.items(), key=lambda it: -it[1][0])), start


def _held(problem: Problem, tau: Array) -> dict[str, float]:
    if problem.control_limits is None:
        return {}
    lower, upper = (np.asarray(x) for x in problem.control_limits)
    shares = np.asarray(at_limits(tau, *problem.control_limits) != 0).mean(axis=0)
    driven = np.broadcast_to(upper > lower, shares.shape)
    names = problem.robot.topology.dof_names
    return {names[i]: float(shares[i]) for i in np.flatnonzero(driven)}


def _first(found: np.ndarray) -> int | None:
    return int(np.argmax(found)) if found.any() else None


def _advice(problem: Problem, plan: Any, status: str, missed: Any, start: Any) -> str:
    if status == "guess":
        return "no solver has seen it yet."
    promise = f"a full step promised to improve the cost by {float(plan.improvement):.2g}"
    if status == "converged":
        return f"{promise}, and no gap is left."
    if status == "not finite":
        return (
            "the cost is no finite number, or none would be after any step. Begin with a motion "
            "whose states are finite, and look at what is listed as not finite."
        )
    if start:
        return (
            f"after {int(plan.iterations)} iterations. It begins beyond its constraints, and what "
            "cannot be left within a step is missed whatever is done: begin elsewhere, or with "
            "smaller margins."
        )
    if status == "iterations":
        return (
            f"after {int(plan.iterations)}, {promise}. Allow more, Options(iterations=...), or "
            "begin nearer: with an earlier plan, or a motion that does the task roughly."
        )
    if missed:
        return (
            "no step improves the cost any more, however short, and constraints are missed: they "
            "contradict each other or the torques' limits, or the way to where they hold is "
            "blocked: begin on the other side, or leave one out. If it is by little, numbers may "
            "end here: Options(missing=...), or float64."
        )
    kinks = " or jumps, as where things begin to touch" if problem.scene is not None else ""
    return (
        f"no step improves the cost any more, however short, although {promise}: it has kinks"
        f"{kinks}, or its numbers end here. In float32 a larger tolerance is enough, "
        "Options(tolerance=...), or take float64."
    )
