"""Joint impedance, joint velocity and torque: the laws, and what they do to a robot."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import MOTORS, rollout

from fraxenv import dynamics
from fraxenv.controllers import (
    JointImpedance,
    JointTarget,
    JointVelocity,
    Torque,
)
from fraxenv.dynamics import ActuatorState, Robot

DT = 1e-3
compute_terms = jax.jit(dynamics.compute_terms)
GAINS = np.arange(100.0, 800.0, 100.0)
RATIOS = np.linspace(0.5, 1.5, 7)


@pytest.fixture(scope="module")
def panda() -> Robot:
    return dynamics.load_robot("panda")


@pytest.mark.parametrize("decoupling", ["full", "none"])
@pytest.mark.parametrize(
    ("options", "extras"),
    [
        ({}, ()),
        ({"kp": GAINS, "damping_ratio": RATIOS}, ("velocity",)),
        ({"gravity_compensation": False}, ("velocity", "acceleration", "torque")),
        ({"coriolis_compensation": False}, ("kp", "damping_ratio")),
    ],
)
def test_joint_impedance_equals_numpy_and_pinocchio(
    panda: Robot, pinocchio: Any, decoupling: Any, options: Any, extras: Any, x64: None
) -> None:
    controller = JointImpedance(decoupling=decoupling, **options)
    rng = np.random.default_rng(0)

    def torque(q: Any, v: Any, target: Any) -> Any:
        terms = dynamics.compute_terms(panda, q, v)
        return controller(panda, terms, JointTarget(**target), None, DT)[0]

    program = jax.jit(torque)
    for _ in range(10):
        q, v = np.asarray(panda.q_default) + rng.uniform(-0.5, 0.5, 7), rng.normal(size=7)
        target = {"position": q + rng.normal(size=7)}
        target |= {name: rng.uniform(1.0, 3.0, 7) for name in extras}
        t = pinocchio("panda").terms(q, v, ("panda_hand_tcp",))
        kp = target.get("kp", controller.kp)
        ratio = target.get("damping_ratio", controller.damping_ratio)
        zero = np.zeros(7)
        e, rate = target["position"] - q, target.get("velocity", zero) - v
        a_ref = target.get("acceleration", zero)
        if decoupling == "full":
            expected = t.M @ (a_ref + kp * e + 2 * ratio * np.sqrt(kp) * rate)
        else:
            kd = 2 * ratio * np.sqrt(kp * np.diag(t.M))
            expected = t.M @ a_ref + kp * e + kd * rate
        expected = expected + target.get("torque", zero)
        expected = expected + t.gravity * controller.gravity_compensation
        expected = expected + (t.bias - t.gravity) * controller.coriolis_compensation
        np.testing.assert_allclose(program(q, v, target), expected, rtol=1e-8, atol=1e-8)


def test_joint_velocity_and_torque_equal_numpy_and_pinocchio(
    panda: Robot, pinocchio: Any, x64: None
) -> None:
    rng = np.random.default_rng(0)
    call = jax.jit(lambda controller, terms, goal: controller(panda, terms, goal, None, DT)[0])
    for _ in range(5):
        q, v = np.asarray(panda.q_default) + rng.uniform(-0.2, 0.2, 7), rng.normal(size=7)
        goal = rng.uniform(-1, 1, 7)
        terms = compute_terms(panda, q, v)
        t = pinocchio("panda").terms(q, v, ("panda_hand_tcp",))
        gain = np.arange(10.0, 80.0, 10.0)
        tau = call(JointVelocity(gain=gain), terms, goal)
        np.testing.assert_allclose(tau, t.M @ (gain * (goal - v)) + t.bias, rtol=1e-8, atol=1e-8)
        for gravity in (False, True):
            controller = Torque(gravity_compensation=gravity)
            tau = call(controller, terms, goal)
            np.testing.assert_allclose(tau, goal + gravity * t.gravity, rtol=1e-8, atol=1e-8)


def test_decoupled_joints_are_critically_damped(panda: Robot, x64: None) -> None:
    step = np.array([0.1, -0.1, 0.05, 0.1, -0.05, 0.1, 0.1])
    target = JointTarget(np.asarray(panda.q_default) + step)
    q, *_ = jax.jit(lambda: rollout(panda, JointImpedance(kp=100.0), target, 0.6))()
    wt = 10.0 * DT * np.arange(1, len(q) + 1)[:, None]
    expected = step * (1 + wt) * np.exp(-wt)
    # The integrator is of first order: its error is of the order of w h = 1 %.
    np.testing.assert_allclose(target.position - q, expected, atol=0.01 * 0.1)


def test_stiffness_can_be_felt(panda: Robot, x64: None) -> None:
    """Without decoupling a joint yields to a torque by `torque / kp`, and does not sag."""
    pushed = np.array([0.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0])
    kp = np.array([600.0, 600.0, 600.0, 600.0, 250.0, 150.0, 50.0])
    controller = JointImpedance(decoupling="none", kp=kp)
    target = JointTarget(jnp.asarray(panda.q_default), torque=jnp.asarray(pushed))
    q, v, *_ = jax.jit(lambda: rollout(panda, controller, target, 4.0))()
    np.testing.assert_allclose(q[-1] - panda.q_default, pushed / kp, atol=1e-5)
    assert np.abs(v[-1]).max() < 1e-4


def test_velocity_is_reached_and_limited(panda: Robot) -> None:
    goal = np.array([0.5, -0.3, 0.2, 0.1, -0.4, 0.2, 100.0])
    _, v, *_ = jax.jit(lambda: rollout(panda, JointVelocity(), jnp.asarray(goal), 0.2))()
    limit = float(panda.velocity_limits[6])  # type: ignore[index]
    np.testing.assert_allclose(v[-1], goal * limit / 100.0, atol=1e-3 * limit)


def test_joints_stop_at_position_limits_without_overshoot(panda: Robot) -> None:
    lower, upper = np.asarray(panda.position_limits).T
    run = jax.jit(lambda goal: rollout(panda, JointVelocity(), goal, 8.0)[:2])
    for sign in (-1.0, 1.0):
        q, v = run(jnp.full(7, sign * 1.0))
        assert np.all((q > lower - 1e-4) & (q < upper + 1e-4))
        assert np.all(np.isclose(q[-1], upper if sign > 0 else lower, atol=1e-2))
        assert np.abs(v[-1]).max() < 1e-2


def test_torque_is_passed_through_and_limited_by_the_motors(panda: Robot) -> None:
    terms = compute_terms(panda, panda.q_default, np.zeros(7))
    tau, _, _ = Torque()(panda, terms, jnp.arange(7.0) * 3, None, DT)
    np.testing.assert_array_equal(tau, [0, 3, 6, 9, 12, 15, 18])
    applied, _, _ = MOTORS(panda, tau, terms.v, ActuatorState(), DT)
    np.testing.assert_array_equal(applied, [0, 3, 6, 9, 12, 12, 12])


def test_gravity_compensation_holds_the_arm(panda: Robot) -> None:
    q, *_ = jax.jit(lambda: rollout(panda, Torque(gravity_compensation=True), jnp.zeros(7), 1.0))()
    np.testing.assert_allclose(q[-1], panda.q_default, atol=1e-3)
    fallen, *_ = jax.jit(lambda: rollout(panda, Torque(), jnp.zeros(7), 1.0))()
    assert np.abs(fallen[-1] - np.asarray(panda.q_default)).max() > 0.5


@pytest.mark.slow
def test_joint_impedance_of_a_floating_robot_takes_the_short_way(x64: None) -> None:
    """Positions are a manifold's: a quaternion and its negative are the same posture."""
    g1 = dynamics.load_robot("g1")
    q = jnp.asarray(g1.q_default)
    terms = dynamics.compute_terms(g1, q, jnp.zeros(g1.nv))
    for goal in (q, q.at[3:7].multiply(-1.0)):
        _, _, telemetry = JointImpedance()(g1, terms, JointTarget(goal), None, DT)
        np.testing.assert_allclose(telemetry["joint_error"], 0.0, atol=1e-12)
