"""Model-predictive control against linear-quadratic control, SciPy, and itself in batches."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax import Array
from scipy.spatial.transform import Rotation, Slerp

import fraxenv
from fraxenv import dynamics, plan
from fraxenv.controllers.planning.mpc import state_at
from fraxenv.dynamics import Robot, Terms, compute_terms
from fraxenv.errors import ArrayError, ConfigError, UnknownNameError
from fraxenv.recording.scripted import scripted_policy

KEY = jax.random.key(3)

RAIL = """<robot name="rail"><link name="base"/><link name="x"><inertial><mass value="2"/>
<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="x" type="prismatic"><parent link="base"/><child link="x"/><axis xyz="1 0 0"/>
<limit lower="-9" upper="9" effort="4" velocity="9"/></joint></robot>"""
"""A mass on a rail: its motion is linear."""


@pytest.fixture(scope="module")
def rail(tmp_path_factory: pytest.TempPathFactory) -> Robot:
    path = tmp_path_factory.mktemp("rail") / "rail.urdf"
    path.write_text(RAIL)
    return dynamics.load_urdf(path)


def may_fail(robot: Robot, terms: Terms, tau: Array, reference: Array) -> Array:
    """Nothing, and not a number where the reference is negative."""
    return (jnp.sqrt(reference) - 1.0) * terms.v


def problem(robot: Robot, horizon: int = 20, **options: Any) -> plan.Problem:
    """To where the target is."""
    running = {
        "where": plan.posture(np.zeros(robot.nv), 4.0), "speed": plan.velocity(0.0, 0.5),
        "effort": plan.torque(0.0, 0.1), "odd": plan.residual(may_fail, jnp.ones(())),
    }  # fmt: skip
    return plan.Problem(robot, horizon, 0.05, running=running, **options)


@jax.jit
def terms_at(robot: Robot, q: Any, v: Any) -> Terms:
    return compute_terms(robot, jnp.asarray(q, float), jnp.asarray(v, float))


def begins(controller: plan.MPC, robot: Robot, q: Any, v: Any) -> plan.MPCState:
    """The state of a controller in the beginning."""

    @jax.jit
    def begin(q: Array, v: Array) -> plan.MPCState:
        return controller.init(robot, compute_terms(robot, q, v))

    return begin(jnp.asarray(q, float), jnp.asarray(v, float))


def test_a_plan_moves_on(rail: Robot) -> None:
    about = problem(rail, 3)
    rows = jnp.arange(4.0)[:, None]
    gains = jnp.arange(3.0)[:, None, None] * jnp.ones((1, 2))
    moved_on = jax.jit(plan.shift)
    begun = begins(plan.MPC(about), rail, [0.0], [0.0]).plan
    old = begun._replace(q=rows, v=10 * rows, tau=rows[:3], gains=gains)
    for steps, states, controls in (
        (1, [1, 2, 3, 3], [1, 2, 2]),
        (0.25, [0.25, 1.25, 2.25, 3], [0.25, 1.25, 2]),
        (9, [3] * 4, [2] * 3),
    ):
        new = moved_on(about, old, steps)
        np.testing.assert_allclose(new.q[:, 0], states)
        np.testing.assert_allclose(new.v[:, 0], 10 * np.asarray(states))
        np.testing.assert_allclose(new.tau[:, 0], controls)
        np.testing.assert_allclose(new.gains[:, 0, 1], controls)


def test_rotations_are_interpolated_as_such(tmp_path: Path, x64: None) -> None:
    path = tmp_path / "body.urdf"
    body = RAIL.partition('<link name="x">')[2].partition("</link>")[0]
    path.write_text(f'<robot name="body"><link name="base">{body}</link></robot>')
    robot = dynamics.load_urdf(path, floating_base=True)
    turns = Rotation.from_rotvec([[0.1, 0.2, -0.3], [0.9, -0.4, 0.5]])
    q = np.zeros((2, robot.nq))
    q[:, 3:7] = turns.as_quat(scalar_first=True)
    still = begins(plan.MPC(plan.Problem(robot, 1)), robot, q[0], np.zeros(robot.nv)).plan
    between, _ = jax.jit(lambda p: state_at(robot, p, jnp.asarray(0.3)))(
        still._replace(q=jnp.asarray(q))
    )
    wanted = Slerp([0, 1], turns)(0.3).as_quat(scalar_first=True)
    np.testing.assert_allclose(np.abs(between[3:7] @ wanted), 1.0, atol=1e-12)


def test_a_linear_robot_is_controlled_as_by_scipy(rail: Robot, x64: None) -> None:
    """In the moment of a plan, pushed about in between, and while one of them goes on."""
    controller = plan.MPC(problem(rail, 300), period=0.2)
    A, B = jax.jit(dynamics.transition_derivatives)(rail, *[jnp.zeros(1)] * 3, 0.05)
    Q, R = 0.05 * np.diag([4.0, 0.5]), 0.05 * 0.1 * np.eye(1)
    P = scipy.linalg.solve_discrete_are(np.asarray(A), np.asarray(B), Q, R)
    K = -np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
    x, planned = np.array([1.0, -0.5]), []
    state = begins(controller, rail, x[:1], x[1:])
    tick = jax.jit(lambda q, v, state: controller(rail, terms_at(rail, q, v), {}, state, 0.05))
    for push in (0.0, 0.1, -0.3, 0.0, 0.2, 0.0):
        tau, state, told = tick(x[:1], x[1:], state)
        assert told["target_finite"]
        assert told["plan_finite"]
        np.testing.assert_allclose(tau, K @ x, atol=2e-6)
        planned.append(float(state.time))
        x = A @ x + B @ tau + np.array([0.0, push])
    np.testing.assert_allclose(planned, [0.05, 0.1, 0.15, 0.2, 0.05, 0.1])


@pytest.mark.slow
def test_it_goes_to_a_target_that_moves_within_its_limits(rail: Robot) -> None:
    bound = np.asarray(rail.effort_limits)
    about = problem(rail, control_limits=True)
    controller = plan.MPC(about, period=0.02, aim=lambda place: {"where": place})

    def step(carry: Any, target: Array) -> Any:
        q, v, state = carry
        here = terms_at(rail, q, v)
        tau, state, told = controller(rail, here, target, state, 0.01)
        q, v = dynamics.step(rail, q, v, tau, 0.01)
        return (q, v, state), (q, tau, told["plan_finite"])

    targets = jnp.repeat(jnp.asarray([2.0, -1.0]), 600)[:, None]
    begin = jnp.zeros(1), jnp.zeros(1)
    state = controller.init(rail, terms_at(rail, *begin))
    q, tau, fine = jax.jit(lambda: jax.lax.scan(step, (*begin, state), targets)[1])()
    assert fine.all()
    assert (np.abs(tau) <= bound).all()
    assert (np.abs(tau) == bound).sum() > 10
    np.testing.assert_allclose(np.asarray(q)[[599, 1199]], [[2.0], [-1.0]], atol=0.02)


def test_what_is_not_finite_stops_there(rail: Robot) -> None:
    """A target, or a plan, beside others that it does not change."""
    controller = plan.MPC(problem(rail, 8, control_limits=True))
    q, v = jnp.asarray([[0.5], [0.5], [0.5]]), jnp.asarray([[0.3], [0.3], [0.3]])
    terms = jax.vmap(terms_at, (None, 0, 0))(rail, q, v)
    axes = plan.MPCState(0, None)  # type: ignore[arg-type]
    call = jax.jit(
        jax.vmap(
            lambda terms, target, state: controller(rail, terms, target, state, 0.05),
            (0, 0, axes), (0, axes, 0),
        )
    )  # fmt: skip
    state = jax.jit(jax.vmap(lambda t: controller.init(rail, t)))(terms)
    state = dataclasses.replace(state, time=state.time[0])
    where, odd = jnp.full((3, 1), 1.0), jnp.ones(3)
    _, state, _ = call(terms, {"where": where, "odd": odd}, state)
    good, after, _ = call(terms, {"where": where, "odd": odd}, state)
    bad = {"where": where.at[1].set(jnp.nan), "odd": odd.at[2].set(-1.0)}
    tau, new, told = call(terms, bad, state)
    assert told["target_finite"].tolist() == [True, False, True]
    assert told["plan_finite"].tolist() == [True, True, False]
    np.testing.assert_array_equal(tau[0], good[0])
    # Slowed down; and the plan before goes on.
    assert np.isfinite(tau).all()
    assert tau[1] < 0
    moved = jax.jit(plan.shift)(controller.problem, jax.tree.map(lambda x: x[2], state.plan))
    np.testing.assert_array_equal(new.plan.tau[2], moved.tau)
    np.testing.assert_array_equal(new.plan.gains[2], moved.gains)
    # As soon as they are finite, all is as ever.
    for _ in range(2):
        tau, new, told = call(terms, {"where": where, "odd": odd}, new)
    assert told["plan_finite"].all()
    np.testing.assert_allclose(tau[1:], tau[:1].repeat(2, axis=0), atol=1e-3)
    assert jax.tree.structure(after) == jax.tree.structure(state)


@pytest.mark.slow
def test_it_does_not_go_on_with_a_plan_that_is_torn_apart(rail: Robot) -> None:
    controller = plan.MPC(problem(rail, 8))
    begun = begins(controller, rail, [0.5], [0.3])
    tick = jax.jit(lambda state: controller(rail, terms_at(rail, [0.5], [0.3]), {}, state, 0.05))
    torn = begun.plan._replace(q=1e6 * jnp.arange(9.0)[:, None], gap=jnp.asarray(1e6))
    failed = begun.plan._replace(status=jnp.int32(plan.STATUS.index("not finite")))
    one, other = (tick(dataclasses.replace(begun, plan=last)) for last in (torn, failed))
    jax.tree.map(np.testing.assert_array_equal, one, other)
    assert np.abs(one[1].plan.q).max() < 2.0


@pytest.mark.slow
def test_it_is_the_controller_of_an_action_space() -> None:
    """One environment's, whose action is where the hand should be."""
    env, params = fraxenv.make("PandaReach-v0", action="ee_pose", control_hz=200, physics_hz=1000)
    robot = env.robot
    goal = dynamics.frame_pose(robot, jnp.asarray(robot.q_default), "hand")
    running = {
        "reach": plan.pose("hand", *goal, weight=20.0, norm=plan.l2(0.02)),
        "still": plan.velocity(weight=0.1), "effort": plan.torque(0.0, 1e-4, beyond_gravity=True),
    }  # fmt: skip
    controller = plan.MPC(
        plan.Problem(robot, 10, 0.04, running=running, control_limits=True),
        period=0.02,
        aim=lambda pose: {"reach": (pose.position, pose.rotation)},
    )
    own = params.replace(controller=controller)
    obs, state = env.reset(KEY, own)
    act, step = jax.jit(scripted_policy(env, own)), jax.jit(env.step_env)
    for _ in range(60):
        obs, state, _, _, info = step(KEY, state, act(obs, KEY), own)
    assert info["success"]
    assert info["controller"]["plan_finite"]


def test_wrong_input_is_told(rail: Robot) -> None:
    controller = plan.MPC(problem(rail))
    here = terms_at(rail, [0.0], [0.0])
    state = begins(controller, rail, [0.0], [0.0])
    with pytest.raises(UnknownNameError, match=r"unknown term 'were'.*Did you mean 'where'"):
        controller(rail, here, {"were": jnp.zeros(1)}, state, 0.01)
    with pytest.raises(
        ArrayError, match=r"reference of 'where' .* \[\(2,\)\], expected \[\(1,\)\]"
    ):
        controller(rail, here, {"where": jnp.zeros(2)}, state, 0.01)
    with pytest.raises(ConfigError, match=r"MPC: period=0, expected a positive time"):
        plan.MPC(problem(rail), period=0)
