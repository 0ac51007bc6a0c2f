"""Plans whose contacts are known beforehand: what is held stays, what hits stops."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fraxenv import dynamics, plan
from fraxenv.controllers.planning import residuals
from fraxenv.controllers.planning.problem import quadratic_cost
from fraxenv.controllers.planning.scheduled import Held
from fraxenv.dynamics import Robot, compute_terms
from fraxenv.errors import ArrayError, ConfigError, UnknownNameError

N, DT = 12, 0.02
QUICK = {"xla_backend_optimization_level": 0}
FEET = ("FR_foot", "FL_foot", "RR_foot", "RL_foot")

HOPPER = """<robot name="hopper"><link name="ground"/>
<link name="slide"><inertial><mass value="0.1"/>
<inertia ixx="1e-3" iyy="1e-3" izz="1e-3" ixy="0" ixz="0" iyz="0"/></inertial></link>
<link name="trunk"><inertial><mass value="2"/>
<inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
<link name="foot"><inertial><mass value="0.5"/>
<inertia ixx="1e-3" iyy="1e-3" izz="1e-3" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="x" type="prismatic"><parent link="ground"/><child link="slide"/><axis xyz="1 0 0"/>
<limit lower="-9" upper="9" effort="0" velocity="9"/></joint>
<joint name="z" type="prismatic"><parent link="slide"/><child link="trunk"/><axis xyz="0 0 1"/>
<limit lower="-9" upper="9" effort="0" velocity="9"/></joint>
<joint name="leg" type="prismatic"><parent link="trunk"/><child link="foot"/><axis xyz="0 0 -1"/>
<limit lower="0.1" upper="0.9" effort="200" velocity="9"/></joint></robot>"""
"""A trunk over a leg that telescopes, in a plane: 3 degrees of freedom, one motor."""


@pytest.fixture(scope="module")
def hopper(tmp_path_factory: pytest.TempPathFactory) -> Robot:
    path = tmp_path_factory.mktemp("hopper") / "hopper.urdf"
    path.write_text(HOPPER)
    return dynamics.load_urdf(path)


def test_a_hop_takes_off_flies_and_lands(hopper: Robot, x64: None) -> None:
    """Held, free, and an impact, after which it is held again; the foot is where it was."""
    push, fly = 10, 12
    N = 2 * push + fly + 1
    held = np.ones((N, 1), bool)
    held[push : push + fly] = False
    impacts = np.arange(N) == push + fly
    # The foot cannot leave its plane: held there twice.
    contacts = plan.schedule(("foot",), held, impacts, gain=20.0, damping=1e-9)
    q0 = np.array([0.0, 0.5, 0.5])
    running = {"effort": plan.torque(weight=1e-4), "speed": plan.velocity(weight=1e-2)}
    terminal = {
        "there": plan.posture([0.0, 0.5, 0.5], 1e3),
        "still": plan.velocity(weight=10.0),
    }
    problem = plan.Problem(hopper, N, DT, running, terminal, control_limits=True, contacts=contacts)
    solve = jax.jit(lambda q: plan.solve(problem, (q, jnp.zeros(3))), compiler_options=QUICK)
    found = solve(q0)
    assert plan.STATUS[int(found.status)] == "converged"
    assert found.gap < 1e-9
    foot = np.array(found.q)[:, 1] - np.array(found.q)[:, 2]
    speed = np.array(found.v)[:, 1] - np.array(found.v)[:, 2]
    np.testing.assert_allclose(foot[: push + 1], 0, atol=1e-9)
    assert np.abs(speed[push + 1 : push + fly]).min() > 1e-3
    hit = push + fly
    assert np.abs(speed[hit]) > 1e-2
    np.testing.assert_allclose(found.q[hit + 1], found.q[hit], atol=1e-12)
    np.testing.assert_allclose(speed[hit + 1 :], 0, atol=1e-7)
    np.testing.assert_allclose(found.tau[:, :2], 0)
    # A step of it is a step of the dynamics.
    k = push + 3
    step = jax.jit(dynamics.step, compiler_options=QUICK)
    alone = step(hopper, found.q[k], found.v[k], found.tau[k], DT)
    np.testing.assert_allclose(found.q[k + 1], alone[0], atol=1e-9)


def test_a_friction_cone_is_crocoddyl_s_pyramid(x64: None) -> None:
    """Rows, and their derivatives by automatic differentiation; none at an impact."""
    robot = dynamics.load_robot("a1")
    rng = np.random.default_rng(0)
    q = dynamics.integrate(robot, robot.q_default, 0.1 * rng.normal(size=robot.nv), 1.0)
    v, tau = 0.3 * rng.normal(size=(2, robot.nv)) * [[1.0], [10.0]]
    active = np.array([[True, True, False, True]])
    schedule = plan.schedule(FEET, active, gain=50.0)
    now = jax.tree.map(lambda x: x[0], schedule)
    term = plan.friction_cone(0.6, 2.0)
    at = Held(now, DT, term.reference)

    def value(q: Array, v: Array, tau: Array) -> Array:
        return term.function(robot, compute_terms(robot, q, v), tau, at)

    def all_of(q: Array, v: Array, tau: Array) -> Any:
        terms = compute_terms(robot, q, v)
        slopes = residuals.slopes(dataclasses.replace(term, reference=at), robot, terms, tau)
        force = dynamics.constrained_step(robot, q, v, tau, DT, now.constraints)[2]
        dq, dv, dtau = np.random.default_rng(1).normal(size=(3, robot.nv))
        moved = lambda d, v, tau: value(dynamics.integrate(robot, q, d, 1.0), v, tau)  # noqa: E731
        _, along = jax.jvp(moved, (jnp.zeros(robot.nv), v, tau), (dq, dv, dtau))
        by_hand = slopes[0] @ jnp.concatenate([dq, dv]) + slopes[1] @ dtau
        return value(q, v, tau), force, along, by_hand

    found, force, along, by_hand = jax.jit(all_of, compiler_options=QUICK)(q, v, tau)
    x, y, z = force.T
    rows = np.stack([x - 0.6 * z, -x - 0.6 * z, y - 0.6 * z, -y - 0.6 * z, -z], axis=1)
    np.testing.assert_allclose(found.reshape(4, 5), np.maximum(rows, 0), atol=1e-9)
    assert np.count_nonzero(found) >= 2
    assert not np.any(found.reshape(4, 5)[2])
    np.testing.assert_allclose(by_hand, along, rtol=1e-9, atol=1e-9)

    @jax.jit
    def by_factors_and_without() -> Any:
        terms = compute_terms(robot, q, v)
        here = {"cones": dataclasses.replace(term, reference=at)}
        it = quadratic_cost(robot, here, terms, tau)
        J = jnp.concatenate(residuals.slopes(here["cones"], robot, terms, tau), axis=1)
        theirs = (2.0 * J.T @ value(q, v, tau), 2.0 * J.T @ J)
        top = jnp.concatenate([it.xx, it.ux.T], axis=1)
        bottom = jnp.concatenate([it.ux, it.uu], axis=1)
        return (jnp.concatenate([it.x, it.u]), jnp.concatenate([top, bottom])), theirs

    for ours, theirs in zip(*by_factors_and_without(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9 * np.abs(theirs).max())
    hit = at._replace(contacts=now.__class__(now.constraints, jnp.asarray(True), now.damping))
    at_impact = jax.jit(lambda: term.function(robot, compute_terms(robot, q, v), tau, hit))
    assert not np.any(at_impact())


def test_a_guess_stands_on_what_is_held(x64: None) -> None:
    robot = dynamics.load_robot("a1")
    active = np.array([[True] * 4, [False, True, True, False], [False] * 4])
    schedule = plan.schedule(FEET, active)
    q = robot.q_default
    problem = plan.Problem(robot, 3, DT, control_limits=True, contacts=schedule)
    found = plan.guess(problem, q)
    for k, (least, most) in enumerate([(-0.02, 0.02), (-0.9, 0.9), (-20.0, -9.0)]):
        now = dynamics.FrameConstraints(FEET, active=active[k])
        v = jnp.zeros(robot.nv)
        a, force = dynamics.constrained_dynamics(robot, q, v, found.tau[k], now)
        assert least < a[2] < most, k
        if k == 0:
            np.testing.assert_allclose(a, 0, atol=0.02)
            weight = 9.81 * float(np.sum(robot.mass))
            assert np.sum(force[:, 2]) == pytest.approx(weight, rel=1e-3)
    np.testing.assert_allclose(found.tau[:, :6], 0)


def test_bad_schedules(hopper: Robot) -> None:
    with pytest.raises(ArrayError, match=r"active has shape \(5,\), expected \(N, 1\)"):
        plan.schedule(("foot",), np.ones(5, bool))
    with pytest.raises(ArrayError, match=r"impacts has shape \(4,\), expected \(5,\)"):
        plan.schedule(("foot",), np.ones((5, 1), bool), np.zeros(4, bool))
    with pytest.raises(ConfigError, match="gain"):
        plan.schedule(("foot",), np.ones((5, 1), bool), gain=-1.0)
    good = plan.schedule(("foot",), np.ones((5, 1), bool))
    with pytest.raises(ArrayError, match="contacts of 5 steps, expected 6"):
        plan.Problem(hopper, 6, contacts=good)
    with pytest.raises(UnknownNameError, match="feet"):
        plan.Problem(hopper, 5, contacts=plan.schedule(("feet",), np.ones((5, 1), bool)))
    cone = {"cone": plan.friction_cone()}
    with pytest.raises(ConfigError, match="nothing says which are"):
        plan.Problem(hopper, 5, running=cone)
    with pytest.raises(ConfigError, match="no step follows the end"):
        plan.Problem(hopper, 5, terminal=cone, contacts=good)
    with pytest.raises(ArrayError, match="normal"):
        plan.friction_cone(normal=(0.0, 0.0, 0.0))


@pytest.mark.slow
def test_contacts_are_a_reference_of_model_predictive_control(hopper: Robot, x64: None) -> None:
    N = 6
    stands = plan.schedule(("foot",), np.ones((N, 1), bool), gain=20.0, damping=1e-9)
    falls = plan.schedule(("foot",), np.zeros((N, 1), bool), gain=20.0, damping=1e-9)
    running = {"effort": plan.torque(weight=1e-3), "speed": plan.velocity(weight=1e-1)}
    problem = plan.Problem(hopper, N, DT, running, control_limits=True, contacts=stands)
    controller = plan.MPC(problem, plan.Options(iterations=3))
    q, v = jnp.array([0.0, 0.5, 0.5]), jnp.zeros(3)

    @jax.jit
    def planned(target: Any) -> plan.Plan:
        terms = compute_terms(hopper, q, v)
        state = controller.init(hopper, terms)
        found: plan.Plan = controller.replan(hopper, terms, target, state).plan
        return found

    still, down = planned({"contacts": stands}), planned({"contacts": falls})
    np.testing.assert_allclose(still.q[:, 1], still.q[:, 2], atol=1e-7)
    fallen = down.q[-1, 1] - 0.2 * down.q[-1, 2] - 0.4  # the centre of mass of trunk and foot
    assert fallen == pytest.approx(-0.5 * 9.81 * (N + 1) * N * DT**2, rel=1e-6)
    hit = plan.schedule(("foot",), np.ones((N, 1), bool), np.arange(N) == 2)
    landing = plan.Problem(hopper, N, DT, running, contacts=hit)
    with pytest.raises(ConfigError, match="with impacts"):
        plan.MPC(landing)
    with pytest.raises(ConfigError, match="named 'contacts'"):
        plan.Problem(hopper, N, DT, {"contacts": running["speed"]}, contacts=stands)


@pytest.mark.slow
def test_a_quadruped_takes_a_step(x64: None) -> None:
    """Two feet stand where they stood, two go to where they were told, inside of all cones."""
    robot = dynamics.load_robot("a1")
    robot = robot.replace(friction=np.zeros(robot.nv))
    still, moving = robot.q_default, np.array([True, False, False, True])
    stand, swing = np.ones((5, 4), bool), np.tile(~moving, (15, 1))
    held = np.concatenate([stand, swing, moving[None], stand])
    hit, N = 20, len(held)
    impacts = np.arange(N) == hit
    schedule = plan.schedule(FEET, held, impacts, gain=50.0)
    start = np.array([dynamics.frame_pose(robot, still, foot)[0] for foot in FEET])
    phase = np.clip((np.arange(N) - 4) / 15, 0, 1)[:, None]
    step = 0.08 * phase * [1, 0, 0] + 0.06 * np.sin(np.pi * phase) * [0, 0, 1]
    weight = (1e4 * ~held[:, :1] + 1e5 * impacts[:, None]) * np.ones(3)
    running = {
        FEET[i]: plan.position(FEET[i], start[i] + step, weight, each=True) for i in (0, 3)
    } | {
        "cones": plan.friction_cone(0.7, 10.0),
        "upright": plan.posture(still, [0] * 3 + [10] * 3 + [1] * 12),
        "speed": plan.velocity(weight=0.1),
        "effort": plan.torque(weight=1e-3),
    }
    ahead = still + 0.04 * np.eye(robot.nq)[0]
    terminal = {"upright": plan.posture(ahead, [1e3] * 3 + [10] * 3 + [1] * 12)}
    walk = plan.Problem(robot, N, 0.01, running, terminal, control_limits=True, contacts=schedule)
    options = plan.Options(tolerance=1e-4)
    found = jax.jit(lambda q: plan.solve(walk, (q, jnp.zeros(robot.nv)), options=options))(still)
    assert plan.STATUS[int(found.status)] == "converged"
    feet = np.array(
        [[dynamics.frame_pose(robot, q, foot)[0] for foot in FEET] for q in (*found.q[::5],)]
    )
    np.testing.assert_allclose((feet - start)[:, ~moving], 0, atol=5e-4)
    np.testing.assert_allclose(feet[-1, moving] - start[moving], [[0.08, 0, 0]] * 2, atol=5e-3)
    assert feet[2, moving, 2].min() > start[0, 2] + 0.03
    for k in range(N):
        now = jax.tree.map(lambda x, k=k: x[k], schedule.constraints)
        at = found.q[k], found.v[k], found.tau[k]
        _, v, force = dynamics.constrained_step(robot, *at, 0.01, now, bool(impacts[k]))
        np.testing.assert_allclose(v, found.v[k + 1], atol=1e-6)
        if not impacts[k]:
            assert np.all(np.abs(force[:, :2]).max(axis=1) <= 0.7 * force[:, 2] + 1.0)
    assert np.all(np.abs(found.tau) <= robot.effort_limits + 1e-9)
