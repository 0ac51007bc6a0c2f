"""Plans by samples, against the linear-quadratic optimum, and what they promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy.interpolate import CubicHermiteSpline

from fraxenv import dynamics, plan
from fraxenv.controllers.planning.splines import SPLINES
from fraxenv.dynamics import Robot
from fraxenv.errors import ArrayError, ConfigError

METHODS = ("mppi", "cem", "predictive")
STATE = np.array([1.0, -2.0]), np.array([0.3, 0.1])


@pytest.fixture(scope="module")
def robot() -> Robot:
    return dynamics.load_robot("double_pendulum")


def swing(robot: Robot, **options: Any) -> plan.Problem:
    """A pendulum of two links, up to where it points.

    Over more steps than kernels unroll, which would take longer to compile.
    """
    running = {"effort": plan.torque(0.0, 0.01), "speed": plan.velocity(0.0, 0.01)}
    terminal = {"up": plan.posture([np.pi, 0.0], 50.0), "still": plan.velocity(0.0, 5.0)}
    return plan.Problem(robot, horizon=70, dt=0.03, running=running, terminal=terminal, **options)


def sampler(problem: plan.Problem, **options: Any) -> Callable[..., plan.Plan]:
    chosen = plan.Sampling(**options)
    return jax.jit(lambda q, v, guess, key: plan.sample(problem, (q, v), guess, key, chosen))


@pytest.mark.parametrize(("method", "left"), [("mppi", 0.02), ("cem", 0.002), ("predictive", 0.1)])
def test_it_comes_near_the_optimum_of_a_regulator(method: str, left: float) -> None:
    """Of masses on rails: `cost(u) = u^T H u / 2 + g^T u + c`, minimised by NumPy.

    What is left of the cost that could be spared; without their means it would be a tenth.
    """
    n, dt, steps = 2, 0.1, 20
    A = np.block([[np.eye(n), dt * np.eye(n)], [np.zeros((n, n)), np.eye(n)]])
    B = np.vstack([dt * dt * np.eye(n), dt * np.eye(n)]) / np.array([2.0, 3.0])
    x0 = np.concatenate(STATE)

    def cost(u: Array) -> Array:
        def step(x: Array, u: Array) -> tuple[Array, Array]:
            return A @ x + B @ u, jnp.sum(x * x) + 0.1 * jnp.sum(u * u)

        end, each = jax.lax.scan(step, jnp.asarray(x0, u.dtype), u)
        return jnp.sum(each) + 10 * jnp.sum(end * end)

    zero = jnp.zeros((steps, n))
    H, g = jax.hessian(lambda u: cost(u.reshape(steps, n)))(zero.ravel()), jax.grad(cost)(zero)
    best = -np.linalg.solve(np.asarray(H, float), np.asarray(g, float).ravel())
    least, begin = cost(jnp.asarray(best.reshape(steps, n), jnp.float32)), cost(zero)
    options = plan.Sampling(method, samples=256, rounds=20, noise=2.0, elites=32)
    found = jax.jit(lambda key: plan.sample_controls(cost, zero, key, options))(jax.random.key(0))
    assert least - 1e-3 < found.cost < least + left * (begin - least)
    np.testing.assert_allclose(found.improvement, begin - found.cost, rtol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_it_never_gets_worse(method: str, robot: Robot) -> None:
    bound = np.asarray([4.0, 2.0], np.float32)
    problem = swing(robot, control_limits=(-bound, bound))
    zero = np.zeros(2)
    sample = sampler(problem, method=method, samples=64, knots=5, rounds=2, elites=8, noise=bound)
    guess, costs = plan.guess(problem, zero), []
    for k in range(12):
        found = sample(zero, zero, guess, jax.random.key(k))
        costs.append(float(found.cost))
        assert found.improvement >= 0
        # What one call ends with is what the next begins with, but for rounding on the way.
        if k:
            np.testing.assert_allclose(found.cost + found.improvement, costs[-2], rtol=1e-4)
        guess = plan.Guess(found.q, found.v, found.tau)
    assert (np.diff(costs) <= 1e-4 * costs[0]).all()
    assert costs[-1] < 0.7 * costs[0]
    assert (jnp.abs(found.tau) <= bound).all()
    assert (jnp.abs(found.tau) == bound).any()


@pytest.mark.slow
def test_its_cost_is_that_of_the_solver(robot: Robot, x64: None) -> None:
    """With a reference for every knot; and the solver goes on from it, and it from the solver."""
    way = np.stack([np.linspace(0, 1, 70), np.zeros(70)], axis=1)
    problem = swing(robot)
    problem = plan.Problem(
        robot, 70, 0.03, {**problem.running, "way": plan.posture(way, 2.0, each=True)},
        problem.terminal,
    )  # fmt: skip
    zero = np.zeros(2)
    sample = sampler(problem, samples=64)
    first = sample(zero, zero, None, jax.random.key(0))
    assert first.improvement > 0
    solved = jax.jit(lambda guess: plan.solve(problem, (zero, zero), guess))(first)
    assert solved.gap < 1e-12
    assert solved.cost < first.cost
    after = sample(zero, zero, solved, jax.random.key(0))
    np.testing.assert_allclose(after.cost + after.improvement, solved.cost, rtol=1e-10)
    assert after.improvement < 1e-3 * solved.cost


def test_samples_that_are_not_finite_count_for_nothing() -> None:
    def cost(u: Array) -> Array:
        return jnp.where(u[0, 0] > 0, jnp.nan, jnp.where(u[1, 0] > 0, -jnp.inf, jnp.sum(u * u)))

    begin = jnp.full((8, 1), -1.0)
    for method in METHODS:
        options = plan.Sampling(method, samples=128, noise=0.3, rounds=3)
        found = jax.jit(lambda k, o=options: plan.sample_controls(cost, begin, k, o))(
            jax.random.key(0)
        )
        assert found.controls[0, 0] <= 0
        assert found.controls[1, 0] <= 0
        assert 0 < found.cost < 8
        assert jnp.isfinite(found.controls).all()
        none = plan.sample_controls(
            lambda u: jnp.nan * jnp.sum(u), begin, jax.random.key(0), options
        )
        np.testing.assert_array_equal(none.controls, begin)
        assert not jnp.isfinite(none.cost)


def test_a_key_decides(robot: Robot) -> None:
    """To the bit, in any batch, beside a state that is not finite."""
    problem = swing(robot, control_limits=True)
    options = plan.Sampling(samples=32)

    @jax.jit
    @jax.vmap
    def sample(q: Array, key: Array) -> plan.Plan:
        return plan.sample(problem, (q, jnp.zeros(2)), None, key, options)

    q = jnp.asarray([[0.0, 0.0], [jnp.nan, 0.0], [0.0, 0.0], [1.0, 0.3]])
    keys = jax.vmap(jax.random.key)(jnp.asarray([1, 2, 3, 1]))
    found = sample(q, keys)
    assert [plan.STATUS[int(k)] for k in found.status] == ["iterations", "not finite"] + 2 * [
        "iterations"
    ]
    assert (found.tau[0] != found.tau[2]).any()
    for k in (0, 2, 3):
        one = sample(q[k : k + 1], keys[k : k + 1])
        jax.tree.map(lambda a, b, k=k: np.testing.assert_array_equal(a[0], b[k]), one, found)


def test_splines_go_through_their_knots() -> None:
    knots = np.random.default_rng(0).normal(size=(6, 2))
    for name in ("linear", "cubic"):
        np.testing.assert_allclose((SPLINES[name](51, 6) @ knots)[::10], knots, atol=1e-12)
    places, own = np.linspace(0, 5, 52), np.arange(6)
    slopes = np.gradient(knots, axis=0)
    expected = CubicHermiteSpline(own, knots, slopes)(places)
    np.testing.assert_allclose(SPLINES["cubic"](52, 6) @ knots, expected, atol=1e-12)
    line = np.interp(places, own, knots[:, 0])
    np.testing.assert_allclose(SPLINES["linear"](52, 6) @ knots[:, 0], line, atol=1e-12)
    held = SPLINES["zero"](12, 3) @ np.arange(3)
    np.testing.assert_array_equal(held, np.repeat([0, 1, 2], 4))


def test_wrong_input_is_told(robot: Robot) -> None:
    key, zero = jax.random.key(0), np.zeros(2)
    with pytest.raises(ConfigError, match="method='best'"):
        plan.Sampling("best")
    with pytest.raises(ConfigError, match="elites=65"):
        plan.Sampling("cem", samples=64, elites=65)
    with pytest.raises(ConfigError, match=r"temperature=0.0"):
        plan.Sampling(temperature=0.0)
    with pytest.raises(ArrayError, match=r"state, q has shape \(3,\), expected \(2,\)"):
        plan.sample(swing(robot), (np.zeros(3), zero), None, key)
    with pytest.raises(ConfigError, match="noise=None"):
        plan.sample_controls(jnp.sum, np.zeros((5, 2)), key)
    with pytest.raises(ArrayError, match=r"controls have shape \(5,\), expected \(N, m\)"):
        plan.sample_controls(jnp.sum, np.zeros(5), key)
    with pytest.raises(ArrayError, match=r"noise has shape \(3,\), expected \(\), \(2,\)"):
        plan.sample_controls(jnp.sum, np.zeros((5, 2)), key, plan.Sampling(noise=np.ones(3)))
