"""Plans by samples: many controls about a guess side by side, and what is learnt from their costs.

Samples are splines of few knots. They need no derivatives, so that costs may have steps.

Source: Williams, Aldrich and Theodorou, "Model predictive path integral control" (J. Guidance,
Control, and Dynamics 40, 2017); Howell et al., "Predictive sampling: real-time behaviour synthesis
with MuJoCo" (2022); Rubinstein and Kroese, "The cross-entropy method" (2004).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import crba
from fraxenv.dynamics.math.algebra import einsum, matmul
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ArrayError, ConfigError, check_choice, check_count, is_concrete
from fraxenv.kernels import fusible

from .alone import alone
from .ddp import ITERATIONS, LEAST, NOT_FINITE, Plan
from .guess import guess as standing
from .problem import Problem, beginning, of_dtype, shaped, spread
from .rollout import rolled
from .splines import SPLINES
from .states import Guess

Cost = Callable[[Array], Array]
"""Of controls (N, m): (), pure."""

SHARE = 0.1
"""Noise where none is given: of half of what the limits leave."""

REACH = 0.25
"""Noise of torques where none is given: it moves each joint by as much within the horizon, if it
lasts, rad and m."""

LEAST_SPREAD = 0.01
"""What the cross-entropy method leaves of the noise at least, lest it stops for good."""


@pytree_dataclass
class Sampling:
    """Of `sample`.

    Attributes:
        method: "predictive", predictive sampling, takes the best sample; "mppi" the mean of all,
            weighted by exp(-cost / temperature), if that is better; "cem", the cross-entropy
            method, the mean of the elites, if that is better, and draws the next round as widely
            as they lie.
        samples: of a round, one of which is the guess itself.
        knots: of the splines, from the first control to the last.
        spline: "zero" (steps), "linear" or "cubic".
        rounds: each about what the one before has found.
        elites: how many, of "cem".
        noise: of the knots, in the unit of the controls: their standard deviation, scalar or (m,),
            or a matrix (m, m), a factor L of their covariance L L^T. If None, `sample` has torques
            that move each joint by itself, by a quarter of a rad or m within the horizon, and
            `sample_controls` a tenth of half of what the limits leave.
        temperature: of "mppi", as a share of what is between the best sample and the median.
        backend: of the kernels; see `fraxenv.fuse`.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    method: str = static(default="mppi")
    samples: int = static(default=1024)
    knots: int = static(default=6)
    spline: str = static(default="cubic")
    rounds: int = static(default=1)
    elites: int = static(default=64)
    noise: ArrayLike | None = None
    temperature: ArrayLike = 0.03
    backend: str = static(default="auto")

    def __post_init__(self) -> None:
        check_choice("Sampling: method", self.method, ("mppi", "cem", "predictive"))
        check_choice("Sampling: spline", self.spline, tuple(SPLINES))
        check_count("Sampling: samples", self.samples, least=2)
        check_count("Sampling: knots", self.knots, least=2)
        check_count("Sampling: rounds", self.rounds)
        if self.method == "cem":
            check_count("Sampling: elites", self.elites, most=self.samples)
        if is_concrete(self.temperature) and not np.all(np.asarray(self.temperature) > 0):
            raise ConfigError(
                f"Sampling: temperature={self.temperature!r}, expected a positive number."
            )


DEFAULT = Sampling()


class Sampled(NamedTuple):
    """Controls, and what they cost.

    Attributes:
        controls: (N, m).
        cost: ().
        improvement: (), by how much less than the guess.
    """

    controls: Array
    cost: Array
    improvement: Array


def sample(
    problem: Problem,
    state: tuple[ArrayLike, ArrayLike],
    guess: Guess | Plan | None,
    key: Array,
    options: Sampling = DEFAULT,
) -> Plan:
    """A plan that costs no more than the guess's torques, by samples about them.

    It may be the guess of the next call, and of `solve`. Its gains are zero: it has no feedback.

    Args:
        problem: what moves, and what it costs.
        state: (q (nq,), v (nv,)) in which it begins.
        guess: of which the torques count; `plan.guess(problem, *state)` if None.
        key: of `jax.random`; equal keys give equal plans.
        options: see `Sampling`.

    Raises:
        ArrayError: an array has the wrong shape.
        ConfigError: the problem has constraints.
    """
    if problem.constraints:
        raise ConfigError(
            "sample: the problem has constraints, which samples do not keep. Make costs of them, "
            "`plan.below(barrier, obstacles)`, and leave them out."
        )
    robot, N, dtype = problem.robot, problem.horizon, jnp.result_type(float)
    problem = spread(of_dtype(problem, dtype))
    begin = beginning("sample", robot, state, dtype)
    first = standing(problem, *begin) if guess is None else guess
    tau = shaped("sample: guess.tau", first.tau, (N, robot.nv), dtype)

    def total(tau: Array) -> Array:
        return rolled(problem, begin, tau)[1]

    def motion(tau: Array) -> Guess:
        return rolled(problem, begin, tau)[0]

    def moving(q: Array) -> Array:
        return 2 * REACH / (N * jnp.asarray(problem.dt)) ** 2 * crba(robot, q)

    if options.noise is None:
        options = dataclasses.replace(options, noise=alone(moving, options.backend)(begin[0]))
    found = sample_controls(total, tau, key, options, problem.control_limits)
    q, v, tau = alone(motion, options.backend)(found.controls)
    status = jnp.where(jnp.isfinite(found.cost), ITERATIONS, NOT_FINITE)
    return Plan(
        q=q,
        v=v,
        tau=tau,
        gains=jnp.zeros((N, robot.nv, 2 * robot.nv), dtype),
        cost=found.cost,
        gap=jnp.zeros((), dtype),
        violation=jnp.zeros((), dtype),
        multipliers=(),
        improvement=found.improvement,
        iterations=jnp.asarray(options.rounds, jnp.int32),
        status=status.astype(jnp.int32),
        regularisation=jnp.asarray(LEAST, dtype),
    )


def sample_controls(
    cost: Cost,
    controls: ArrayLike,
    key: Array,
    options: Sampling = DEFAULT,
    limits: tuple[ArrayLike, ArrayLike] | None = None,
) -> Sampled:
    """Controls that cost no more than a guess, of anything that has a cost.

    Of an environment's actions, for example, minus the sum of the rewards of `env.step_env`.

    Args:
        cost: of controls (N, m): (), a pure function; samples are the lanes of one kernel of it.
        controls: (N, m), the guess.
        key: of `jax.random`; equal keys give equal controls.
        options: see `Sampling`.
        limits: (lower, upper), each () or (m,), of the controls, kept exactly; None for none.

    A sample whose cost is not finite counts for nothing. If no cost is, the guess is what is left.

    Raises:
        ArrayError: the guess is no matrix, or `noise` does not fit it.
        ConfigError: there is neither `noise`, nor limits from which it would follow.
    """
    dtype = jnp.result_type(float)
    guess = jnp.asarray(controls, dtype)
    if guess.ndim != 2:
        raise ArrayError(f"sample_controls: controls have shape {guess.shape}, expected (N, m).")
    N, m = guess.shape
    within = None if limits is None else tuple(jnp.asarray(x, dtype) for x in limits)
    noise = _noise(options, limits, m).astype(dtype)
    basis = jnp.asarray(SPLINES[options.spline](N, options.knots), dtype)

    def clipped(u: Array) -> Array:
        return u if within is None else jnp.clip(u, *within)

    def improved(now: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], Array]:
        centre, spread = now

        def changed(knots: Array) -> Array:
            own = matmul(knots, noise.T) if noise.ndim == 2 else noise * knots
            return clipped(centre + matmul(basis, own))

        def priced(knots: Array) -> Array:
            return cost(changed(knots))

        def drawn(i: Array) -> Array:
            z = jax.random.normal(jax.random.fold_in(key, i), spread.shape, dtype)
            return jnp.where(i == 0, 0.0, spread * z)

        knots = jax.vmap(fusible(drawn, options.backend))(jnp.arange(options.samples))
        costs = jax.vmap(fusible(priced, options.backend))(knots)
        costs = jnp.where(jnp.isfinite(costs), costs, jnp.inf)
        best = jnp.argmin(costs)
        taken, least = knots[best], costs[best]
        if options.method != "predictive":
            weights = _weights(options, costs)
            mean = einsum("s,sij->ij", weights, knots)
            its = jax.vmap(fusible(priced, options.backend))(mean[None])[0]
            better = its <= least
            taken, least = jnp.where(better, mean, taken), jnp.where(better, its, least)
            if options.method == "cem":
                wide = jnp.sqrt(einsum("s,sij->ij", weights, (knots - mean) ** 2))
                spread = jnp.maximum(wide, LEAST_SPREAD)
        return (changed(taken), spread), jnp.stack([costs[0], least])

    start = clipped(guess), jnp.ones((options.knots, m), dtype)
    (found, _), costs = jax.lax.scan(improved, start, jax.random.split(key, options.rounds))
    return Sampled(found, costs[-1, 1], costs[0, 0] - costs[-1, 1])


def _weights(options: Sampling, costs: Array) -> Array:
    """Of the samples (samples,), their sum is one; zero of infinite costs."""
    finite = jnp.isfinite(costs)
    ordered = jnp.sort(costs)
    if options.method == "cem":
        weights = jnp.where(finite & (costs <= ordered[options.elites - 1]), 1.0, 0.0)
    else:
        median = ordered[jnp.sum(finite) // 2]
        width = jnp.asarray(options.temperature, costs.dtype) * (median - ordered[0])
        above = jnp.where(finite, costs - ordered[0], 0.0)
        tiny = float(np.finfo(costs.dtype).tiny)
        weights = jnp.where(finite, jnp.exp(-above / jnp.maximum(width, tiny)), 0.0)
    return weights / jnp.maximum(jnp.sum(weights), 1.0)


def _noise(options: Sampling, limits: tuple[ArrayLike, ArrayLike] | None, m: int) -> Array:
    """Standard deviation of the knots, () or (m,), or a factor of their covariance (m, m).

    Raises:
        ArrayError: it has another shape.
        ConfigError: there is none, nor finite limits from which it would follow.
    """
    if options.noise is not None:
        noise = jnp.asarray(options.noise)
        if noise.shape not in ((), (m,), (m, m)):
            raise ArrayError(
                f"Sampling: noise has shape {noise.shape}, expected (), ({m},) or ({m}, {m})."
            )
        return noise
    if limits is None or (is_concrete(limits) and not np.all(np.isfinite(np.asarray(limits)))):
        raise ConfigError(
            "Sampling: noise=None, expected that of the controls' knots, where they have no finite "
            "limits from which it would follow."
        )
    lower, upper = (jnp.asarray(x) for x in limits)
    return SHARE * 0.5 * (upper - lower)
