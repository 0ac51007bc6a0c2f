"""What walks: residuals as MuJoCo has their parts, gaits as MuJoCo MPC has them."""

from __future__ import annotations

import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import load_script, with_slow

from fraxenv import dynamics, plan
from fraxenv.controllers.planning import ddp, residuals
from fraxenv.dynamics import Robot, compute_terms
from fraxenv.errors import ConfigError

FEET = ("FL", "RL", "FR", "RR")
A1 = Path(__file__).parents[3] / "scripts" / "measure" / "benchmark" / "scenes" / "a1.xml"


def of_mjpc(time: float, phase: float, cadence: float, amplitude: float, duty: float) -> float:
    """`QuadrupedFlat::StepHeight`, written down again."""
    angle = math.fmod(2 * math.pi * (cadence * time - phase) + math.pi, 2 * math.pi) - math.pi
    value = 0.0
    if duty < 1:
        angle *= 0.5 / (1 - duty)
        value = math.cos(min(max(angle, -math.pi / 2), math.pi / 2))
    return amplitude * (0.0 if abs(value) < 1e-6 else value)


@pytest.mark.parametrize("duty", [0.0, 0.45, 0.75, 1.0])
def test_feet_rise_as_in_mujoco_mpc(duty: float, x64: None) -> None:
    phases, times = (0.0, 0.25, 0.5), np.linspace(0.5, 2.0, 97)
    found = plan.swing_heights(times, phases, 2.0, 0.03, duty)
    expected = [[of_mjpc(t, p, 2.0, 0.03, duty) for p in phases] for t in times]
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert np.max(found) == pytest.approx(0.0 if duty == 1 else 0.03, abs=2e-5)


def of_legs() -> dict[str, plan.Residual]:
    return {
        "upright": plan.upright("trunk"),
        "height": plan.height("trunk", FEET, 0.25),
        "swing": plan.swing(FEET, [0.02, 0.0, 0.01, 0.03], sole=0.01),
        "balance": plan.balance(FEET, 0.25),
    }


def test_own_derivatives_are_the_automatic_ones(x64: None) -> None:
    pytest.importorskip("mujoco")
    robot, terms = dynamics.load_mjcf(A1).system, of_legs()
    n = robot.nv

    def moved(q: jax.Array, v: jax.Array, z: jax.Array) -> dict[str, jax.Array]:
        q = dynamics.integrate(robot, q, z[:n], 1.0)
        at = compute_terms(robot, q, v + z[n : 2 * n])
        return {k: residuals.value(t, robot, at, z[2 * n :]) for k, t in terms.items()}

    def both(q: jax.Array, v: jax.Array) -> dict[str, tuple[jax.Array, jax.Array]]:
        automatic = jax.jacfwd(lambda z: moved(q, v, z))(jnp.zeros(3 * n))
        at, tau = compute_terms(robot, q, v), jnp.zeros(n)
        ours = {k: residuals.slopes(t, robot, at, tau) for k, t in terms.items()}
        return {k: (jnp.concatenate(ours[k], axis=1), automatic[k]) for k in terms}

    q = dynamics.random_configuration(robot, jax.random.key(0))
    v = np.random.default_rng(0).normal(size=n)
    compiled = jax.jit(both, compiler_options={"xla_backend_optimization_level": 0})
    for name, (ours, automatic) in compiled(q, v).items():
        assert np.any(ours), name
        np.testing.assert_allclose(ours, automatic, rtol=0, atol=1e-12, err_msg=name)


def test_residuals_are_those_of_mujoco_s_quantities(x64: None) -> None:
    mujoco = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_path(str(A1))
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    robot, terms = dynamics.load_mjcf(A1).system, of_legs()

    @jax.jit
    def all_of(q: jax.Array, v: jax.Array) -> dict[str, jax.Array]:
        at, tau = compute_terms(robot, q, v), jnp.zeros(robot.nv)
        return {k: t.function(robot, at, tau, t.reference) for k, t in terms.items()}

    for _ in range(5):
        mujoco.mj_integratePos(model, data.qpos, 0.5 * rng.normal(size=model.nv), 1.0)
        data.qvel = rng.normal(size=model.nv)
        mujoco.mj_forward(model, data)
        mujoco.mj_subtreeVel(model, data)
        feet = np.array([data.site(name).xpos for name in FEET])
        trunk = data.body("trunk")
        point = trunk.subtree_com + math.sqrt(2 * 0.25 / 9.81) * trunk.subtree_linvel
        found = all_of(data.qpos, data.qvel)
        expected = {
            "upright": [trunk.xmat[8] - 1],
            "height": [trunk.xpos[2] - feet[:, 2].mean() - 0.25],
            "swing": np.where([1, 0, 1, 1], feet[:, 2] - 0.01 - [0.02, 0.0, 0.01, 0.03], 0.0),
            "balance": (point - feet.mean(axis=0))[:2],
        }
        for name, x in expected.items():
            np.testing.assert_allclose(found[name], x, rtol=0, atol=1e-12, err_msg=name)


def test_bad_input() -> None:
    with pytest.raises(ConfigError, match="feet='FL', expected names of frames"):
        plan.height("trunk", "FL", 0.25)
    with pytest.raises(ConfigError, match=r"balance: height=0.0, expected a positive number"):
        plan.balance(FEET, 0.0)
    with pytest.raises(ConfigError, match=r"duty=1.5, expected a share"):
        plan.swing_heights(0.0, (0.0,), 2.0, 0.03, 1.5)


def shelf(sliders: Robot) -> plan.Problem:
    running = {"still": plan.velocity(weight=0.1), "effort": plan.torque(weight=1e-2)}
    there = {"there": plan.position("y", [1.0, 0.5, 0.0], 1e2, norm=plan.smooth_abs(0.1))}
    return plan.Problem(sliders, 20, 0.05, running, there, control_limits=True)


@pytest.mark.slow
@pytest.mark.parametrize("hessian", with_slow(["gauss-newton", "exact"], "exact"))
def test_plans_are_the_same_where_the_backward_pass_is_xla_s(
    sliders: Robot, hessian: str, monkeypatch: pytest.MonkeyPatch, x64: None
) -> None:
    problem, options = shelf(sliders), plan.Options(hessian=hessian)
    q = v = jnp.zeros(2)
    found = []
    for widest in (2, 1):
        monkeypatch.setattr(ddp, "WIDEST", widest)
        found.append(jax.jit(lambda q, v: plan.solve(problem, (q, v), None, options))(q, v))
    assert [plan.STATUS[int(p.status)] for p in found] == ["converged"] * 2
    for a, b in zip(found[0], found[1], strict=True):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-9), a, b)


@pytest.mark.slow
def test_nor_does_a_plan_depend_on_its_batch_there(
    sliders: Robot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ddp, "WIDEST", 1)
    problem = shelf(sliders)
    many = jax.jit(jax.vmap(lambda q: plan.solve(problem, (q, jnp.zeros(2)))))
    q = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (7, 2)), jnp.float32)
    whole, some = many(q), many(q[2:5])
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(some), strict=True):
        np.testing.assert_array_equal(a[2:5], b)


@pytest.mark.slow
def test_a_quadruped_trots(x64: None) -> None:
    """MuJoCo MPC's task, one iteration a plan, from rest: its cost, and feet that rise in turn."""
    pytest.importorskip("mujoco")
    trot = load_script("measure/trot")
    found = trot.run(trot.Options(plans=150))
    assert found.costs[50:].mean() < 0.0085
    wanted = np.asarray(trot.TASK.heights(trot.DT * jnp.arange(150)))
    off = (found.feet - trot.SOLE - wanted)[50:][wanted[50:] > 0]
    assert np.sqrt(np.mean(off**2)) < 0.004
    assert np.abs(found.q[50:, 2] - 0.26).max() < 0.02
