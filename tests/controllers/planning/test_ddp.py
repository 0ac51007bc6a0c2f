"""The solver against linear-quadratic control, SciPy, Crocoddyl's log, and itself in batches."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax import Array
from support import packaged

from fraxenv import dynamics, plan
from fraxenv.controllers.planning import batches
from fraxenv.controllers.planning.problem import cost, of_dtype
from fraxenv.dynamics import Robot, compute_terms
from fraxenv.errors import ArrayError, ConfigError


def regulator(robot: Robot, **options: Any) -> plan.Problem:
    """Back to the origin."""
    running = {
        "where": plan.posture(np.zeros(2), 4.0), "speed": plan.velocity(0.0, 0.5),
        "effort": plan.torque(0.0, 0.1),
    }  # fmt: skip
    return plan.Problem(robot, dt=0.05, running=running, **options)


def swing(robot: Robot, **options: Any) -> plan.Problem:
    """A pendulum of two links, up to where it points."""
    up = jnp.asarray([np.pi, 0.0])
    running = {"effort": plan.torque(0.0, 0.01), "speed": plan.velocity(0.0, 0.01)}
    terminal = {"up": plan.posture(up, 50.0), "still": plan.velocity(0.0, 5.0)}
    return plan.Problem(robot, dt=0.05, running=running, terminal=terminal, **options)


@pytest.mark.parametrize("hessian", ["gauss-newton", pytest.param("exact", marks=pytest.mark.slow)])
def test_a_linear_robot_takes_one_step(hessian: str, sliders: Robot, x64: None) -> None:
    problem = regulator(sliders, horizon=300)
    state = np.array([1.0, -2.0]), np.array([0.3, 0.1])
    options = plan.Options(hessian=hessian)
    found = jax.jit(lambda q, v: plan.solve(problem, (q, v), None, options))(*state)
    assert (int(found.iterations), plan.STATUS[int(found.status)]) == (2, "converged")
    assert found.gap < 1e-12
    assert (float(found.violation), found.multipliers) == (0.0, ())

    at = jnp.zeros(2), jnp.zeros(2), jnp.zeros(2)
    A, B = jax.jit(dynamics.transition_derivatives)(sliders, *at, 0.05)
    Q, R = 0.05 * np.diag([4.0, 4.0, 0.5, 0.5]), 0.05 * 0.1 * np.eye(2)
    P = scipy.linalg.solve_discrete_are(np.asarray(A), np.asarray(B), Q, R)
    K = -np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
    np.testing.assert_allclose(found.gains[0], K, atol=1e-8)
    x = np.concatenate(state)
    np.testing.assert_allclose(found.cost, 0.5 * x @ P @ x, rtol=1e-8)


def test_without_kernels_a_plan_is_the_same(sliders: Robot, x64: None) -> None:
    problem = regulator(sliders, horizon=8, control_limits=True)
    state = np.array([1.0, -2.0]), np.array([0.3, 0.1])

    def solved(backend: str) -> plan.Plan:
        how = plan.Options(backend=backend)
        return jax.jit(lambda q, v: plan.solve(problem, (q, v), None, how))(*state)  # type: ignore[no-any-return]

    usual, other = solved("auto"), solved("vmap")
    assert int(usual.iterations) == int(other.iterations)
    np.testing.assert_allclose(usual.tau, other.tau, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(usual.cost, other.cost, rtol=1e-12)


def test_the_slope_of_the_cost_is_that_of_the_rollout(x64: None) -> None:
    """What a step promises to first order, from costates, is what differentiation says."""
    from fraxenv.controllers.planning import ddp
    from fraxenv.controllers.planning.riccati import backward

    robot = dynamics.load_robot("double_pendulum")
    problem = of_dtype(swing(robot, horizon=4), jnp.result_type(float))
    tau = jnp.asarray(np.random.default_rng(0).normal(size=(4, 2)))
    begin = jnp.asarray([0.3, -0.2]), jnp.asarray([0.1, 0.4])

    def total(tau: Array) -> tuple[Array, Any]:
        def step(x: tuple[Array, Array], u: Array) -> Any:
            terms = compute_terms(robot, *x)
            to = dynamics.step(robot, *x, u, 0.05)
            return to, (to, 0.05 * cost(robot, problem.running, terms, u))

        end, (path, each) = jax.lax.scan(step, begin, tau)
        last = cost(robot, problem.terminal, compute_terms(robot, *end), jnp.zeros(2))
        path = jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), begin, path)
        return jnp.sum(each) + last, path

    (value, (q, v)), slope = jax.jit(jax.value_and_grad(total, has_aux=True))(tau)
    zero = jnp.zeros(())
    now = ddp._Iterate(
        q, v, tau, jnp.zeros((4, 2, 4)), value, zero, zero, zero, jnp.array(True),
        jnp.array(False), None, zero, zero,
    )  # fmt: skip
    knots, last, _ = jax.jit(lambda now: ddp._expanded(problem, plan.Options(), now))(now)
    np.testing.assert_allclose(jnp.sum(knots.cost.value) + last.value, value, rtol=1e-12)
    gains = jax.jit(backward)(knots, last, jnp.zeros(4), zero, jnp.asarray(problem.dt))
    # The motion that follows to first order, and what it changes.
    x, changed = np.zeros(4), 0.0
    for k in range(4):
        u = gains.k[k] + gains.K[k] @ x
        changed += slope[k] @ u
        x = knots.A[k] @ x + knots.B[k] @ u
    np.testing.assert_allclose(-gains.slope, changed, rtol=1e-10)
    np.testing.assert_allclose(gains.bend, -gains.slope, rtol=1e-8)


def test_limits_are_kept_exactly(x64: None) -> None:
    robot = dynamics.load_robot("double_pendulum")
    bound, start = np.array([3.0, 1.5]), (np.zeros(2), np.zeros(2))

    @jax.jit
    def within(bound: Array) -> plan.Plan:
        problem = swing(robot, horizon=40, control_limits=(-bound, bound))
        return plan.solve(problem, start, None, plan.Options(200))

    tight, loose = within(bound), within(1e3 * bound)
    assert np.abs(loose.tau).max() > 3.0
    assert (np.abs(tight.tau) <= bound).all()
    assert (np.abs(tight.tau) == bound).sum() > 5
    assert tight.gap < 1e-12
    assert loose.cost < tight.cost < 400


@pytest.mark.slow
@pytest.mark.parametrize("hessian", ["gauss-newton", pytest.param("exact", marks=pytest.mark.slow)])
def test_with_limits_a_linear_robots_plan_is_quadprogs(
    hessian: str, sliders: Robot, x64: None
) -> None:
    """Of all torques at once, in one step: most are at limits, which differ by direction."""
    quadprog = pytest.importorskip("quadprog")
    N, lower, upper = 30, np.array([-1.5, -1.0]), np.array([1.0, 2.0])
    problem = regulator(sliders, horizon=N, control_limits=(lower, upper))
    x = np.array([1.0, -2.0, 0.3, 0.1])
    how = plan.Options(hessian=hessian)
    found = jax.jit(lambda q, v: plan.solve(problem, (q, v), None, how))(x[:2], x[2:])
    assert (int(found.iterations), plan.STATUS[int(found.status)]) == (2, "converged")

    at = jnp.zeros(2), jnp.zeros(2), jnp.zeros(2)
    A, B = (np.asarray(m) for m in jax.jit(dynamics.transition_derivatives)(sliders, *at, 0.05))
    Q, H, g = 0.05 * np.diag([4.0, 4.0, 0.5, 0.5]), 0.05 * 0.1 * np.eye(2 * N), np.zeros(2 * N)
    of_start, of_torques = np.eye(4), np.zeros((4, 2 * N))
    for k in range(1, N):
        of_start, of_torques = A @ of_start, A @ of_torques
        of_torques[:, 2 * k - 2 : 2 * k] = B
        H += of_torques.T @ Q @ of_torques
        g += of_torques.T @ Q @ of_start @ x
    C, b = np.hstack([np.eye(2 * N), -np.eye(2 * N)]), np.r_[np.tile(lower, N), np.tile(-upper, N)]
    tau = quadprog.solve_qp(H, -g, C, b)[0]
    assert 10 < np.sum((np.abs(tau) > 0.999) & (np.abs(tau) < 2.001)) < 2 * N
    np.testing.assert_allclose(found.tau.ravel(), tau, atol=1e-7)


def test_the_gap_that_is_told_is_the_one_that_is_left(x64: None) -> None:
    """After each iteration, of which some close it partly."""
    robot = dynamics.load_robot("double_pendulum")
    problem, begin = swing(robot, horizon=20), (np.array([0.1, 0.0]), np.zeros(2))
    away = jnp.asarray(np.random.default_rng(0).normal(size=(2, 21, 2)))
    at: Any = plan.Guess(2 * away[0], 9 * away[1], jnp.zeros((20, 2)))

    @jax.jit
    def once(at: Any) -> Any:
        found = plan.solve(problem, begin, at, plan.Options(1))
        q, v = jax.vmap(dynamics.step, (None, 0, 0, 0, None))(
            robot, found.q[:-1], found.v[:-1], found.tau, 0.05
        )
        left = [found.q[1:] - q, found.v[1:] - v, found.q[0] - begin[0], found.v[0] - begin[1]]
        return found, jnp.max(jnp.stack([jnp.abs(x).max() for x in left]))

    told = []
    for _ in range(4):
        at, left = once(at)
        told.append(float(at.gap))
        np.testing.assert_allclose(at.gap, left, rtol=1e-9, atol=1e-12)
    assert told[0] > told[-1] > 1.0


def test_one_iteration_after_another_is_as_many_at_once(sliders: Robot, x64: None) -> None:
    """A plan knows how much to regularise the next iteration."""

    def wavy(robot: Robot, terms: dynamics.Terms, tau: Array, _: Any) -> Array:
        return jnp.sin(20.0 * terms.q) - terms.v

    running = {"wavy": plan.residual(wavy, None, 9.0), "effort": plan.torque(0.0, 1e-3)}
    problem = plan.Problem(sliders, horizon=12, dt=0.1, running=running)
    begin = np.array([0.4, -0.2]), np.array([1.0, -2.0])

    @jax.jit
    def once(at: Any) -> plan.Plan:
        return plan.solve(problem, begin, at, plan.Options(1))

    guess = plan.guess(problem, *begin)
    turns = [once(guess)]
    for _ in range(4):
        turns.append(once(turns[-1]))
    at_once = jax.jit(lambda: plan.solve(problem, begin, guess, plan.Options(5)))()
    np.testing.assert_allclose(turns[-1].tau, at_once.tau, rtol=1e-9, atol=1e-9)
    # What did not go well is not tried again as it was, but does not hold back for long.
    stiff = [turns[0]._replace(regularisation=jnp.asarray(x)) for x in (1e-4, 1e9)]
    slow, slower = (once(x) for x in stiff)
    assert float(slow.regularisation) in (1e-5, 1e-3)
    np.testing.assert_array_equal(slow.tau, slower.tau)
    assert np.abs(slow.tau - once(turns[0]).tau).max() > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("hessian", ["gauss-newton", "exact"])
def test_a_pendulum_swings_up_by_one_motor_at_its_limit(hessian: str, x64: None) -> None:
    """Crocoddyl's `double_pendulum_fwddyn.py` with 0.6 N m, as `planning_peers.py` has it."""
    path = packaged("example-robot-data", "double_pendulum_description/urdf/double_pendulum.urdf")
    robot, weights, dt = dynamics.load_urdf(Path(path)), np.array([1.0] * 4 + [0.1] * 2), 0.01
    none, bound = np.zeros(2), np.array([0.6, 0.0])
    robot = robot.replace(armature=none, damping=none, friction=none)

    def away(robot: Robot, terms: dynamics.Terms, tau: Array, _: Any) -> Array:
        return jnp.concatenate([jnp.sin(terms.q), 1 - jnp.cos(terms.q), terms.v])

    up = [plan.residual(away, None, w * weights) for w in (1e-5 / dt, 100.0)]
    problem = plan.Problem(
        robot,
        horizon=100,
        dt=dt,
        running={"up": up[0], "effort": plan.torque(0.0, 1e-4 / dt)},
        terminal={"up": up[1]},
        control_limits=(-bound, bound),
    )
    how = plan.Options(200, hessian=hessian)
    found = jax.jit(lambda q: plan.solve(problem, (q, none), None, how))(np.array([3.14, 0.0]))
    assert plan.STATUS[int(found.status)] == "converged"
    assert found.cost < 0.005
    assert (np.abs(found.tau) <= bound).all()
    assert 10 < (np.abs(found.tau[:, 0]) == 0.6).sum() < 50


@pytest.mark.parametrize("hessian", ["gauss-newton", pytest.param("exact", marks=pytest.mark.slow)])
def test_a_plan_in_a_batch_is_the_plan_alone(hessian: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit, beside others of fewer and more iterations, and one that is not finite."""
    monkeypatch.setattr(batches, "TOGETHER", 4)
    monkeypatch.setattr(batches, "FEWEST", 2)
    robot = dynamics.load_robot("double_pendulum")
    problem = swing(robot, horizon=20)
    q = jnp.asarray([[0.0, 0.0], [jnp.nan, 0.0], [2.9, 0.2], [1.0, -1.0], [0.5, 2.0], [-3.0, 1.0]])
    how = plan.Options(hessian=hessian)
    many = jax.jit(jax.vmap(lambda q: plan.solve(problem, (q, jnp.zeros(2)), None, how)))
    alone = jax.jit(lambda q: plan.solve(problem, (q, jnp.zeros(2)), None, how))
    found = many(q)
    names = [plan.STATUS[int(k)] for k in found.status]
    assert names[1] == "not finite"
    assert len(set(found.iterations.tolist())) > 2
    for k in (0, 2, 3, 4, 5):
        jax.tree.map(lambda a, b, k=k: np.testing.assert_array_equal(a, b[k]), alone(q[k]), found)


@pytest.mark.slow
def test_targets_are_data(sliders: Robot) -> None:
    """Many targets with one program, and a value for every knot."""
    running = {"effort": plan.torque(0.0, 1e-3)}
    way = np.stack([np.linspace(0, 1, 30), np.zeros(30)], axis=1)
    problem = plan.Problem(sliders, horizon=30, dt=0.05, running=running)
    track = dataclasses.replace(
        problem, running={**running, "way": plan.posture(way, 100.0, each=True)}
    )
    found = jax.jit(lambda q, v: plan.solve(track, (q, v)))(np.zeros(2), np.zeros(2))
    np.testing.assert_allclose(found.q[10:30], way[10:30], atol=0.05)

    @jax.jit
    @jax.vmap
    def to(target: Array) -> Array:
        there = dataclasses.replace(problem, terminal={"there": plan.posture(target, 1e3)})
        return plan.solve(there, (np.zeros(2), np.zeros(2))).q[-1]

    targets = jnp.asarray([[1.0, 0.0], [0.5, -0.3], [0.0, 0.2]])
    np.testing.assert_allclose(to(targets), targets, atol=0.02)


def test_wrong_input_is_told(sliders: Robot) -> None:
    problem = regulator(sliders, horizon=5)
    with pytest.raises(ArrayError, match=r"state, v has shape \(3,\), expected \(2,\)"):
        plan.solve(problem, (np.zeros(2), np.zeros(3)))
    begin = plan.guess(problem, np.zeros(2))
    with pytest.raises(ArrayError, match=r"guess.tau has shape \(4, 2\), expected \(5, 2\)"):
        plan.solve(problem, (np.zeros(2), np.zeros(2)), begin._replace(tau=begin.tau[:4]))
    with pytest.raises(ConfigError, match="hessian='newton'"):
        plan.Options(hessian="newton")


@pytest.mark.slow
@pytest.mark.parametrize(("hessian", "most"), [("gauss-newton", 73), ("exact", 35)])
def test_crocoddyls_reaching_arm(hessian: str, most: int, x64: None) -> None:
    """`arm_manipulation_fwddyn.py`, whose log ends after 73 iterations at 8.125078."""
    path = packaged("example-robot-data", "kinova_description/robots/kinova.urdf")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dynamics.RobotLoadWarning)
        robot = dynamics.load_urdf(Path(path))
    up = np.array([1.5707, 2.618, -1.5707, 3.1415, 2.618, 0.0])
    reach = [plan.pose("j2s6s200_end_effector", [0.6, 0.2, 0.5], np.eye(3), w) for w in (1, 1e3)]
    running = {
        "pose": reach[0], "posture": plan.posture(up, 0.1), "speed": plan.velocity(0.0, 0.1),
        "effort": plan.torque(0.0, 0.1),
    }  # fmt: skip
    problem = plan.Problem(
        robot, horizon=100, dt=0.01, running=running, terminal={"pose": reach[1]}
    )
    zero = np.zeros((101, 6))
    guess = plan.Guess(zero, zero, zero[1:])
    first = plan.solve(problem, (up, np.zeros(6)), guess, plan.Options(1))
    # What its first step promises there, to the last digits of its own log.
    np.testing.assert_allclose(first.improvement, 1330.5363904245094, rtol=1e-12)
    found = plan.solve(problem, (up, np.zeros(6)), guess, plan.Options(hessian=hessian))
    assert plan.STATUS[int(found.status)] == "converged"
    assert abs(float(found.cost) - 8.125) < 1e-3
    assert int(found.iterations) <= most
