"""State constraints of plans, against a quadratic program, by what they promise, and Ipopt."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fraxenv import dynamics, plan
from fraxenv.controllers import Barrier, Situation, barriers
from fraxenv.controllers.planning.constraints import above_margins
from fraxenv.dynamics import Obstacles, Robot, Sphere
from fraxenv.errors import ArrayError, ConfigError

N, DT = 30, 0.05


def in_front_of_a_wall(robot: Robot, x: Situation, barrier: Barrier) -> Array:
    """The first slider, and its speed, below a bound each."""
    at, fastest = barrier.parameters
    return jnp.stack([at - x.q[0], fastest - x.v[0]])


WALL = Barrier(in_front_of_a_wall, 1, "wall", parameters=(1.05, 0.85))


@pytest.fixture(scope="module")
def robot(sliders: Robot) -> Robot:
    return sliders


def across(robot: Robot, **options: Any) -> plan.Problem:
    """To a place behind the wall, quickly."""
    running = {"effort": plan.torque(0.0, 0.1), "speed": plan.velocity(0.0, 0.1)}
    terminal = {"there": plan.posture(np.array([1.2, 0.3]), 1e3), "still": plan.velocity(0.0, 10.0)}
    return plan.Problem(robot, horizon=N, dt=DT, running=running, terminal=terminal, **options)


def program(robot: Robot) -> tuple[tuple[float, np.ndarray], np.ndarray]:
    """The same as a quadratic program in the torques: its least cost, and the positions.

    And states (N + 1, 4) without the wall.
    """
    quadprog = pytest.importorskip("quadprog")
    zero = jnp.zeros(2)
    both = jax.jit(dynamics.transition_derivatives)(robot, zero, zero, zero, DT)
    A, B = map(np.asarray, both)
    F = np.zeros((N + 1, 4, 2 * N))
    for k in range(N):
        F[k + 1] = A @ F[k]
        F[k + 1][:, 2 * k : 2 * k + 2] += B
    goal, w = np.array([1.2, 0.3, 0.0, 0.0]), np.diag([1e3, 1e3, 10.0, 10.0])
    H = DT * 0.1 * np.eye(2 * N) + F[N].T @ w @ F[N]
    for k in range(N):
        H += DT * 0.1 * F[k][2:].T @ F[k][2:]
    g = F[N].T @ w @ goal
    rows = np.concatenate([-F[1:, 0], -F[1:, 2]])
    bounds = np.concatenate([np.full(N, -1.05), np.full(N, -0.85)])
    tau, value = quadprog.solve_qp(H, g, rows.T, bounds)[:2]
    least = float(value + 0.5 * goal @ w @ goal)
    return (least, F[:, :2] @ tau), F @ np.linalg.solve(H, g)


def test_it_is_the_quadratic_program(robot: Robot, x64: None) -> None:
    problem, start = across(robot, constraints=(WALL,)), (jnp.zeros(2), jnp.zeros(2))
    options = plan.Options(missing=1e-8)
    found = jax.jit(lambda: plan.solve(problem, start, None, options))()
    (value, q), free = program(robot)
    assert free[:, 0].max() > 1.19
    assert free[:, 2].max() > 0.9
    assert plan.STATUS[int(found.status)] == "converged"
    assert 0 <= found.violation <= 1e-8
    np.testing.assert_allclose(found.cost, value, rtol=1e-6)
    np.testing.assert_allclose(found.q, q, atol=1e-4)
    worth = found.multipliers[0]
    assert worth.shape == (N + 1, 2)
    assert (worth >= 0).all()
    assert worth[:, 0].max() > 0.1
    assert worth[:, 1].max() > 0.1


def test_places_of_obstacles_may_be_given_for_every_knot() -> None:
    robot, kept = dynamics.load_robot("double_pendulum"), (barriers.obstacles(),)
    ball = Obstacles(
        Sphere(jnp.array([[0.3, 0.0, 0.25]]), jnp.array([0.08])),
        velocity=jnp.array([[-0.3, 0.0, 0.0]]),
    )
    worlds = jax.vmap(lambda k: dynamics.move_obstacles(ball, DT * k))(jnp.arange(N + 1))
    moving = plan.Problem(robot, N, DT, constraints=kept, obstacles=ball)
    each = plan.Problem(robot, N, DT, constraints=kept, obstacles=worlds, obstacles_each=True)
    q, v = 0.1 * jnp.arange(2.0 * (N + 1)).reshape(N + 1, 2), jnp.zeros((N + 1, 2))
    (by_velocity,), (by_place,) = (above_margins(p, "auto", q, v) for p in (moving, each))
    np.testing.assert_array_equal(by_velocity, by_place)
    assert np.ptp(by_place) > 0.1
    back = dataclasses.replace(each, obstacles=jax.tree.map(lambda x: x[1:], worlds))
    with pytest.raises(ArrayError, match="obstacles_each with arrays whose leading axes are"):
        above_margins(back, "auto", q, v)
    (still,) = above_margins(dataclasses.replace(moving, obstacles=_first(worlds)), "auto", q, v)
    assert np.abs(still - by_place)[-1].max() > 0.1
    explained = plan.explain(each, plan.guess(each, q[0]))
    assert str(explained)


def _first(worlds: Obstacles) -> Obstacles:
    return dataclasses.replace(jax.tree.map(lambda x: x[0], worlds), velocity=None)


@pytest.mark.slow
@pytest.mark.parametrize("hessian", ["gauss-newton", "exact"])
def test_an_obstacle_that_moves_is_let_past(hessian: str, x64: None) -> None:
    """The tip of a pendulum, and a ball that crosses its way."""
    robot = dynamics.load_robot("double_pendulum")
    ball = Obstacles(
        Sphere(jnp.array([[0.3, 0.0, 0.25]]), jnp.array([0.08])),
        velocity=jnp.array([[-0.3, 0.0, 0.0]]),
    )
    kept = barriers.obstacles(margin=0.01)
    running = {"effort": plan.torque(0.0, 0.01), "speed": plan.velocity(0.0, 0.01)}
    terminal = {"there": plan.posture(np.array([0.9, 0.0]), 50.0)}
    problem = plan.Problem(
        robot, horizon=N, dt=DT, running=running, terminal=terminal, constraints=(kept,),
        obstacles=ball,
    )  # fmt: skip
    begin, options = (np.array([-0.9, 0.0]), np.zeros(2)), plan.Options(200, hessian=hessian)
    found = plan.solve(problem, begin, None, options)

    def nearest(q: Array, k: Array) -> Array:
        there = dynamics.move_obstacles(ball, DT * k)
        return jnp.min(dynamics.obstacle_distances(robot, q, there))

    distances = jax.vmap(nearest)(found.q, jnp.arange(N + 1))
    assert plan.STATUS[int(found.status)] == "converged"
    np.testing.assert_allclose(distances[1:].min(), 0.01, atol=1.1e-5)
    free = dataclasses.replace(problem, constraints=())
    loose = plan.solve(free, begin, None, options)
    assert jax.vmap(nearest)(loose.q, jnp.arange(N + 1)).min() < -0.02
    # A plan knows what its constraints are worth: from there a few steps are enough.
    again = plan.solve(problem, begin, found, options)
    np.testing.assert_allclose(again.cost, found.cost, rtol=1e-4)
    assert again.iterations < 0.5 * found.iterations


@pytest.mark.slow
def test_a_batch_keeps_apart_who_cannot(robot: Robot) -> None:
    """A start that is not a number ends as that, and changes no other plan."""
    problem = across(robot, constraints=(WALL,))
    q = jnp.asarray([[0.0, 0.0], [jnp.nan, 0.0], [0.5, 0.2]])
    many = jax.jit(jax.vmap(lambda q: plan.solve(problem, (q, jnp.zeros(2)))))
    found = many(q)
    assert plan.STATUS[int(found.status[1])] == "not finite"
    for k in (0, 2):
        one = many(q[k : k + 1])
        jax.tree.map(lambda a, b, k=k: np.testing.assert_array_equal(a[0], b[k]), one, found)
        assert found.violation[k] < 1e-4


def test_wrong_constraints_are_told(robot: Robot) -> None:
    with pytest.raises(ConfigError, match=r"constraints\[0\] is a function, expected a Barrier"):
        across(robot, constraints=(in_front_of_a_wall,))
    effort = {"constraint 0": plan.torque(0.0, 0.1)}
    with pytest.raises(ConfigError, match=r"'constraint 0', as that of constraints\[0\] is"):
        plan.Problem(robot, running=effort, constraints=(WALL,))
    problem = across(robot, constraints=(WALL,))
    start = np.zeros(2), np.zeros(2)
    known = jax.eval_shape(lambda: plan.solve(problem, start))
    known = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), known)
    with pytest.raises(ArrayError, match=r"guess.multipliers have the shapes \[\(31, 2\)\]"):
        plan.solve(dataclasses.replace(problem, constraints=(WALL, WALL)), start, known)
    with pytest.raises(ConfigError, match=r"missing=-1"):
        plan.Options(missing=-1)
