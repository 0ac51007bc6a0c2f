"""A plan's problem: what moves, for how long, and what it costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError, check_count, is_concrete

from .norms import expansion
from .residuals import Residual, bend, slopes, value


@pytree_dataclass(eq=False)
class Problem:
    """Optimal control of a robot over a number of time steps, from a state that is given later.

    The cost is the sum of the terms: of running ones at the beginning of every step times `dt`, of
    terminal ones after the last. Motion is `dynamics.step` with the integrator "euler".

    Attributes:
        robot: the model.
        horizon: number of steps, N.
        dt: of a step, s.
        running: terms at the beginnings of steps, by name.
        terminal: terms at the end, by name; torques are zero there.
        control_limits: True for the robot's effort limits, which are then kept exactly; or
            `(lower, upper)` of (nv,), N m and N; None for none.
    """

    robot: Robot
    horizon: int = static(default=50)
    dt: ArrayLike = 0.01
    running: Mapping[str, Residual] = dataclasses.field(default_factory=dict)
    terminal: Mapping[str, Residual] = dataclasses.field(default_factory=dict)
    control_limits: Any = None

    def __post_init__(self) -> None:
        check_count("Problem: horizon", self.horizon)
        if is_concrete(self.dt) and not np.all(np.asarray(self.dt) > 0):
            raise ConfigError(f"Problem: dt={self.dt!r}, expected a positive time, s.")
        for part in ("running", "terminal"):
            terms = getattr(self, part)
            for name, term in terms.items():
                if not isinstance(term, Residual):
                    raise ConfigError(
                        f"Problem: {part}[{name!r}] is a {type(term).__name__}, expected a "
                        "Residual. `plan.residual(function)` makes one of a function."
                    )
            object.__setattr__(self, part, dict(sorted(terms.items())))
        if self.control_limits is True:
            bound = jnp.asarray(self.robot.effort_limits)
            object.__setattr__(self, "control_limits", (-bound, bound))


class Quadratic(NamedTuple):
    """A cost to second order, by the tangent vector `[dq; dv]` and the torques.

    Attributes:
        value: ().
        x: (2 nv,).
        u: (nv,).
        xx: (2 nv, 2 nv).
        ux: (nv, 2 nv).
        uu: (nv, nv).
    """

    value: Array
    x: Array
    u: Array
    xx: Array
    ux: Array
    uu: Array


def cost(robot: Robot, residuals: Mapping[str, Residual], terms: Terms, tau: Array) -> Array:
    """Of the terms at a knot, ()."""
    return sum(
        (
            expansion(t.norm, t.weight, value(t, robot, terms, tau)).value
            for t in residuals.values()
        ),
        start=jnp.zeros((), terms.q.dtype),
    )


def quadratic_cost(
    robot: Robot, residuals: Mapping[str, Residual], terms: Terms, tau: Array
) -> Quadratic:
    """The cost at a knot to second order, as Gauss and Newton have it: of residuals to first."""
    n, dtype = robot.nv, terms.q.dtype
    parts = [(jnp.zeros((), dtype), jnp.zeros(3 * n, dtype), jnp.zeros((3 * n, 3 * n), dtype))]
    for term in residuals.values():
        J = jnp.concatenate(slopes(term, robot, terms, tau), axis=1)
        it = expansion(term.norm, term.weight, value(term, robot, terms, tau))
        parts.append((it.value, matmul(J.T, it.gradient), matmul(J.T, matmul(it.curvature, J))))
    total, g, H = (sum(x) for x in zip(*parts, strict=True))
    m = 2 * n
    return Quadratic(total, g[:m], g[m:], H[:m, :m], H[m:, :m], H[m:, m:])


def cost_bend(robot: Robot, residuals: Mapping[str, Residual], terms: Terms, tau: Array) -> Array:
    """What the cost's second derivative (3 nv, 3 nv) has besides: of the residuals' curvature."""
    total = jnp.zeros((3 * robot.nv, 3 * robot.nv), terms.q.dtype)
    for term in residuals.values():
        it = expansion(term.norm, term.weight, value(term, robot, terms, tau))
        total = total + bend(term, robot, terms, tau, it.gradient)
    return total


def clipped(problem: Problem, tau: Array) -> Array:
    """Torques (..., nv) within the limits."""
    if problem.control_limits is None:
        return tau
    lower, upper = problem.control_limits
    within: Array = jnp.clip(tau, lower, upper)
    return within


def of_dtype(problem: Problem, dtype: Any) -> Problem:
    """The problem with its own numbers, but not the robot's, as floats of a type."""

    def cast(x: Any) -> Array:
        number: Array = jnp.asarray(x)
        return number if number.dtype == bool else number.astype(dtype)

    names = ("dt", "running", "terminal", "control_limits")
    numbers = jax.tree.map(cast, {name: getattr(problem, name) for name in names})
    return dataclasses.replace(problem, **numbers)
