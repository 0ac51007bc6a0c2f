"""What is said of a plan is what it costs and misses."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv import plan
from fraxenv.controllers import barriers
from fraxenv.dynamics import Robot
from fraxenv.errors import ArrayError, ConfigError

N, DT = 8, 0.3


def problem(robot: Robot) -> plan.Problem:
    """To 2 m in 2.4 s by at most 4 N, past a limit of 1 m; a path to follow is a cost as well."""
    path = np.linspace([0.0, 0.0], [1.0, 0.0], N)
    return plan.Problem(
        robot.replace(position_limits=np.array([[-1.0, 1.0], [-9.0, 9.0]])),
        horizon=N,
        dt=DT,
        running={"effort": plan.torque(weight=0.1), "path": plan.posture(path, 1.0, each=True)},
        terminal={"there": plan.posture([2.0, 0.0], 100.0)},
        control_limits=True,
        constraints=(barriers.joint_position(),),
    )


def made(q: np.ndarray, status: str = "converged") -> plan.Plan:
    """Of half the knots at the limit of the torques."""
    zero, one = jnp.zeros(()), jnp.ones((), jnp.int32)
    tau = jnp.zeros((N, 2)).at[::2, 0].set(4.0)
    number = plan.STATUS.index(status) * one
    states = jnp.asarray(q), jnp.zeros((N + 1, 2))
    return plan.Plan(*states, tau, zero, zero, zero, zero, (), zero + 0.5, 7 * one, number, zero)


def test_it_says_what_a_plan_costs_and_misses(sliders: Robot, x64: None) -> None:
    q = np.linspace([0.0, 0.0], [1.6, 0.0], N + 1)
    said = plan.explain(problem(sliders), made(q))
    effort, path = DT * 4 * 0.1 * 0.5 * 16, q[:N, 0] - np.linspace(0.0, 1.0, N)
    np.testing.assert_allclose(said.running["effort"], effort)
    np.testing.assert_allclose(said.running["path"], DT * 0.5 * np.sum(path**2))
    np.testing.assert_allclose(said.terminal["there"], 50 * 0.4**2)
    assert said.knots["path"] == N - 1
    assert list(said.missed) == ["joint position: x upper"]
    np.testing.assert_allclose(said.missed["joint position: x upper"], [0.6, N])
    assert said.held == {"x": 0.5, "y": 0.0}
    assert (said.start, said.not_finite, said.iterations) == ({}, {}, 7)
    text = str(said)
    assert text.startswith("converged: a full step promised to improve the cost by 0.5")
    assert "terminal 'there': 8 (" in text
    assert "missed: joint position: x upper by 0.6 at knot 8" in text
    assert "torque of x at its limit: 50 % of the knots" in text


@pytest.mark.slow
def test_it_says_what_a_solver_did(sliders: Robot, x64: None) -> None:
    """The terms' costs are together what the solver has."""
    begin = np.zeros(2), np.zeros(2)
    found = jax.jit(lambda q, v: plan.solve(problem(sliders), (q, v)))(*begin)
    said = plan.explain(problem(sliders), found)
    assert said.status == "converged"
    np.testing.assert_allclose(said.cost, found.cost, rtol=1e-12)
    assert max((by for by, _ in said.missed.values()), default=0.0) == found.violation
    np.testing.assert_allclose(found.q[-1, 0], 1.0, atol=1e-4)
    assert said.gap < 1e-12


@pytest.mark.parametrize(
    ("status", "q", "advice"),
    [
        ("iterations", 0.0, "after 7, a full step promised .* Allow more"),
        ("iterations", 1.5, "begins beyond its constraints.*\n(.*\n)*the start is beyond joint"),
        ("regularisation", 0.0, "no step improves .* kinks, or its numbers end here"),
        (
            "not finite",
            np.nan,
            "no finite number.*\n(.*\n)*not finite: terminal 'there' from knot 8",
        ),
    ],
)
def test_it_says_why_a_plan_ended(status: str, q: float, advice: str, sliders: Robot) -> None:
    states = np.zeros((N + 1, 2))
    states[:, 0] = q
    if np.isnan(q):
        states[0] = 0.0
    assert re.search(advice, str(plan.explain(problem(sliders), made(states, status))))


def test_a_guess_is_explained_before_it_is_solved(sliders: Robot) -> None:
    it = problem(sliders)
    said = plan.explain(it, plan.guess(it, np.array([1.2, 0.0])))
    assert str(said).startswith("guess: no solver has seen it yet.")
    np.testing.assert_allclose(said.start["joint position: x upper"], 0.2, rtol=1e-5)
    assert "gap" not in str(said)


def test_what_cannot_be_planned_is_told(sliders: Robot) -> None:
    with pytest.raises(ConfigError, match=r"a weight of -1.0: .* has no least cost"):
        plan.torque(weight=[1.0, -1.0])
    with pytest.raises(ArrayError, match=r"solve: state, v = \[nan  0.\], expected finite"):
        plan.solve(problem(sliders), (np.zeros(2), np.array([np.nan, 0.0])))
