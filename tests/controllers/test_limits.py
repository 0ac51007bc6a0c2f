"""Limits of torque and of its rate below controllers, and set-points between targets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import MOTORS, rollout, with_slow

from fraxenv import dynamics
from fraxenv.controllers import (
    OSC,
    DifferentialIK,
    JointImpedance,
    JointTarget,
    JointVelocity,
    PoseTarget,
    Torque,
    osc_torque,
)
from fraxenv.dynamics import Actuators, Robot

DT = 1e-3
compute_terms = jax.jit(dynamics.compute_terms)
frame_pose = jax.jit(dynamics.frame_pose, static_argnums=2)


@pytest.fixture(scope="module")
def panda() -> Robot:
    return dynamics.load_robot("panda")


def targets(robot: Robot) -> dict[type, Any]:
    """For each controller a target that is far from the default posture."""
    _, rotation = frame_pose(robot, robot.q_default, "hand")
    pose = PoseTarget(jnp.array([0.2, 0.5, 0.6]), rotation)
    return {
        OSC: pose,
        DifferentialIK: pose,
        JointImpedance: JointTarget(jnp.asarray(robot.q_default) + 0.5),
        JointVelocity: jnp.full(7, 2.0),
        Torque: jnp.full(7, 50.0),
    }


def torques(
    robot: Robot, controller: Any, target: Any, steps: int, motors: Actuators = MOTORS
) -> np.ndarray:
    """The torque that holds the robot still, and those of the first steps (steps + 1, nv)."""
    return program(robot, controller, target, steps)(motors)


def program(
    robot: Robot, controller: Any, target: Any, steps: int
) -> Callable[[Actuators], np.ndarray]:
    """The same with motors whose numbers are data."""
    run = jax.jit(lambda motors: rollout(robot, controller, target, steps * DT, DT, motors)[2])
    bias = jax.jit(dynamics.bias_forces)(robot, robot.q_default, np.zeros(robot.nv))
    return lambda motors: np.concatenate([bias[None], run(motors)])


def make(kind: type, **options: Any) -> Any:
    return kind("hand", **options) if kind in (OSC, DifferentialIK) else kind(**options)


@pytest.mark.parametrize(
    "kind",
    with_slow(
        [OSC, DifferentialIK, JointImpedance, JointVelocity, Torque],
        *(OSC, DifferentialIK, JointImpedance, Torque),
    ),
)
def test_torque_and_its_rate_are_limited(panda: Robot, kind: type) -> None:
    panda = panda.replace(velocity_limits=np.full(7, np.inf))  # which come before the rate
    target = targets(panda)[kind]
    tau = torques(panda, make(kind), target, 50)
    assert np.abs(np.diff(tau, axis=0)).max() > 2.0  # it jumps to the target

    robots = np.asarray(panda.effort_rate_limits) * DT
    limited, wide = program(panda, make(kind), target, 50), np.full(7, np.inf)
    tau = limited(Actuators(wide, wide))
    steps = np.abs(np.diff(tau, axis=0))
    assert np.all(steps <= robots * (1 + 1e-4))
    assert np.any(steps > 0.99 * robots)

    own = np.array([500.0, 400.0, 300.0, 200.0, 100.0, 50.0, 2000.0])
    limits = np.array([40.0, 40.0, 8.0, 35.0, 4.0, 3.0, 100.0])
    tau = limited(Actuators(limits, own))
    bound = np.minimum(own, panda.effort_rate_limits) * DT
    assert np.all(np.abs(np.diff(tau, axis=0)) <= bound * (1 + 1e-4) + 1e-6)
    assert np.all(np.abs(tau) <= np.minimum(limits, panda.effort_limits))
    assert np.any(np.abs(tau) == np.float32(limits))


def test_without_a_jump_the_rate_limit_changes_nothing(panda: Robot) -> None:
    target = JointTarget(jnp.asarray(panda.q_default))
    free, limited = (
        torques(panda, JointImpedance(), target, 50, Actuators(rate_limit=rate))
        for rate in (None, np.inf)
    )
    np.testing.assert_allclose(free, limited, atol=1e-4)


def poses(osc: Any, robot: Robot, target: Any, steps: int, state: Any = None) -> Any:
    """States of a controller of a robot that does not move."""
    q = jnp.asarray(robot.q_default, float)
    terms = compute_terms(robot, q, jnp.zeros(robot.nv))
    start = osc.init(robot, terms) if state is None else state
    return steady(osc, robot, terms, target, steps, start)


@partial(jax.jit, static_argnames="steps")
def steady(osc: Any, robot: Robot, terms: Any, target: Any, steps: int, start: Any) -> Any:
    def step(state: Any, _: None) -> Any:
        tau, state, _ = osc(robot, terms, target, state, DT)
        return state, (state, tau)

    return jax.lax.scan(step, start, None, steps)


@pytest.mark.parametrize("kind", with_slow([OSC, DifferentialIK], OSC))
def test_set_points_move_along_straight_lines_and_geodesics(
    panda: Robot, kind: Any, x64: None
) -> None:
    start, rotation = frame_pose(panda, panda.q_default, "hand")
    turn = jnp.array([0.3, -0.8, 0.5])
    goal = PoseTarget(start + 0.2, jax.jit(dynamics.rotation_exp)(turn) @ rotation)
    _, (ramp, _) = poses(kind("hand", interpolation_time=0.05), panda, goal, 60)
    fraction = np.minimum(np.arange(1, 61) / 50, 1)
    np.testing.assert_allclose(ramp.position[:, 0], start + 0.2 * fraction[:, None], atol=1e-12)
    errors = jax.jit(jax.vmap(lambda R: dynamics.orientation_error(R, rotation)))
    turned = errors(ramp.rotation[:, 0])
    np.testing.assert_allclose(turned, turn * fraction[:, None], atol=1e-12)
    np.testing.assert_array_equal(ramp.position[-1, 0], goal.position)
    np.testing.assert_array_equal(ramp.rotation[-1, 0], goal.rotation)


def test_a_changed_target_starts_from_the_set_point(panda: Robot, x64: None) -> None:
    start, rotation = frame_pose(panda, panda.q_default, "hand")
    osc = OSC("hand", interpolation_time=0.02)
    first, second = (
        PoseTarget(start + jnp.asarray(d), rotation) for d in ([0.1, 0, 0], [0, 0.2, 0])
    )
    _, (states, _) = poses(osc, panda, first, 25)
    state = jax.tree.map(lambda x: x[9], states)
    _, (ramp, _) = poses(osc, panda, second, 25, state)
    here = np.array([0.05, 0.0, 0.0])
    fraction = np.minimum(np.arange(1, 26) / 20, 1)[:, None]
    expected = here + fraction * (np.array([0.0, 0.2, 0.0]) - here)
    np.testing.assert_allclose(ramp.position[:, 0] - start, expected, atol=1e-12)


@pytest.mark.slow
def test_torques_are_those_of_the_set_point(panda: Robot, x64: None) -> None:
    start, rotation = frame_pose(panda, panda.q_default, "hand")
    goal = PoseTarget(start + 0.1, rotation, velocity=0.1 * jnp.ones(6))
    _, (ramp, tau) = poses(OSC("hand", interpolation_time=0.02), panda, goal, 15)
    terms = dynamics.compute_terms(panda, panda.q_default, jnp.zeros(7))
    for k in (0, 7, 14):
        set_point = PoseTarget(ramp.position[k, 0], ramp.rotation[k, 0], velocity=0.1 * jnp.ones(6))
        expected, _ = osc_torque(OSC("hand"), panda, terms, set_point)
        np.testing.assert_allclose(tau[k], expected, atol=1e-9)


def test_without_time_the_set_point_jumps(panda: Robot, x64: None) -> None:
    start, rotation = frame_pose(panda, panda.q_default, "hand")
    goal = PoseTarget(start + 0.01, rotation)
    _, (_, jumping) = poses(OSC("hand"), panda, goal, 2)
    _, (_, tau) = poses(OSC("hand", interpolation_time=0.0), panda, goal, 2)
    np.testing.assert_array_equal(tau, jumping)


@pytest.mark.slow
def test_interpolation_makes_torques_smooth_and_arrives(panda: Robot) -> None:
    start, rotation = frame_pose(panda, panda.q_default, "hand")
    target = PoseTarget(start + jnp.array([0.0, 0.05, 0.0]), rotation)
    jump = np.abs(np.diff(torques(panda, OSC("hand"), target, 500), axis=0)).max()
    osc = OSC("hand", interpolation_time=0.1)
    assert np.abs(np.diff(torques(panda, osc, target, 500), axis=0)).max() < 0.1 * jump
    *_, telemetry = jax.jit(lambda: rollout(panda, osc, target, 1.5))()
    assert float(telemetry["position_error"][-1]) < 5e-4
