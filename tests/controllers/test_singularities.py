"""Along paths through the Panda's singularities, and where two hands get into each other's way."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy.optimize import minimize
from support import MOTORS, rollout, with_slow

from fraxenv import dynamics
from fraxenv.controllers import OSC, DifferentialIK, PoseTarget
from fraxenv.dynamics import ActuatorState, Robot
from fraxenv.dynamics.math.rotation import orientation_error

DT = 1e-3
SECONDS = 4.0

# Where the hand's Jacobian loses a rank, and how far the path goes on either side.
ELBOW = np.array([0.0, 0.3, 0.0, -0.4670024231, 0.0, 1.6, 0.3])
WRIST = np.array([0.0, -0.3, 0.0, -2.0, np.pi / 2, 3.36426, 0.3])
PATHS = {
    "elbow": (ELBOW, np.array([0.0, -0.3, 0.0, 0.38, 0.0, 0.2, 0.0])),
    "elbow, all joints": (ELBOW, np.array([0.3, -0.3, 0.1, 0.38, 0.2, 0.2, 0.3])),
    "wrist": (WRIST, np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.35, 0.0])),
    "wrist, all joints": (WRIST, np.array([0.3, 0.1, 0.1, 0.2, 0.2, 0.35, 0.2])),
}


@pytest.fixture(scope="module")
def panda() -> Robot:
    return dynamics.load_robot("panda")


def follow(robot: Robot, controller: Any, middle: np.ndarray, reach: np.ndarray) -> Any:
    """Torques asked for and applied, and telemetry, from one side of `middle` to the other."""

    def reference(t: Array) -> Array:
        return middle - reach * jnp.cos(jnp.pi * t / SECONDS)

    def step(carry: Any, t: Array) -> Any:
        q, v, state = carry
        q_ref, v_ref = jax.jvp(reference, (t,), (jnp.ones_like(t),))
        velocity = dynamics.frame_velocity(robot, q_ref, v_ref, "hand")
        target = PoseTarget(*dynamics.frame_pose(robot, q_ref, "hand"), velocity)
        terms = dynamics.compute_terms(robot, q, v)
        asked, state, telemetry = controller(robot, terms, target, state, DT)
        tau, _, _ = MOTORS(robot, asked, v, ActuatorState(), DT)
        q, v = dynamics.step(robot, q, v, tau, DT, terms=terms)
        return (q, v, state), (asked, tau, telemetry)

    q, v = reference(jnp.zeros(())), jnp.zeros(7)
    state = controller.init(robot, dynamics.compute_terms(robot, q, v))
    times = DT * jnp.arange(round(SECONDS / DT))
    return jax.lax.scan(step, (q, v, state), times)[1]


@pytest.mark.slow
@pytest.mark.parametrize("path", with_slow(PATHS, "elbow, all joints", "wrist, all joints"))
@pytest.mark.parametrize("kind", [OSC, DifferentialIK])
def test_torques_are_continuous_and_the_hand_stays_near(panda: Robot, kind: Any, path: str) -> None:
    middle, reach = PATHS[path]
    J = dynamics.frame_jacobian(panda, middle, "hand")
    assert np.linalg.svd(np.asarray(J, float))[1][-1] < 1e-5
    lower, upper = np.asarray(panda.position_limits).T
    assert np.all((middle - reach > lower) & (middle + reach < upper))

    asked, tau, telemetry = jax.jit(lambda: follow(panda, kind("hand"), middle, reach))()
    assert float(telemetry["conditioning"].min()) < 1e-4
    assert bool(jnp.all(jnp.isfinite(tau)))
    # Without a limit of their rate.
    assert np.abs(np.diff(tau, axis=0)).max() < 0.5 * DT * np.min(panda.effort_rate_limits)
    np.testing.assert_array_equal(tau, asked)
    assert float(telemetry["position_error"].max()) < 5e-3
    assert np.degrees(telemetry["orientation_error"].max()) < 0.5


# --- Two hands of a humanoid ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def g1() -> Robot:
    """Fixed at the pelvis, with rotors: without their inertia its wrists weigh next to nothing."""
    robot = dynamics.load_robot("g1", floating_base=False)
    return robot.replace(armature=np.full(robot.nv, 0.01))


def final_errors(robot: Robot, controller: Any, shift: Any) -> np.ndarray:
    """Distances (2,), m, of the hands from targets that are shifted from where they begin."""
    q = jnp.asarray(robot.q_default, float)
    poses = [dynamics.frame_pose(robot, q, hand) for hand in controller.end_effector]
    position, rotation = (jnp.stack(x) for x in zip(*poses, strict=True))
    target = PoseTarget(position + jnp.asarray(shift), rotation)
    *_, telemetry = jax.jit(lambda: rollout(robot, controller, target, 5.0, DT))()
    return np.asarray(telemetry["position_error"][-1])


SLOW: dict[str, Any] = {"max_linear_velocity": 0.3, "max_angular_velocity": 1.0}
APART = {"left_hand": [0.1, 0.35, 0.1], "right_hand": [0.1, -0.35, 0.1]}


SINGULARITY: dict[Any, dict[str, float]] = {
    OSC: {"singularity_threshold": 0.03, "singularity_damping": 0.3},
    DifferentialIK: {"singularity_threshold": 0.01},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SINGULARITY)
def test_hands_that_cannot_both_reach(g1: Robot, kind: Any) -> None:
    """Equals share what is left of the way; in order the first one arrives, whichever it is."""
    errors = {}
    for hands in (("left_hand", "right_hand"), ("right_hand", "left_hand")):
        for priority in ("equal", "ordered"):
            controller = kind(hands, priority=priority, **SINGULARITY[kind], **SLOW)
            errors[hands[0], priority] = final_errors(g1, controller, [APART[h] for h in hands])
    for first in APART:
        one, other = errors[first, "equal"]
        assert one > 0.03
        assert one == pytest.approx(other, rel=0.05)
        shared = np.hypot(one, other)  # of all ways to fall short, the least by its squares
        one, other = errors[first, "ordered"]
        assert one < 1e-3
        assert other > max(0.1, shared)


def nearest(robot: Robot, first: str, other: str) -> float:
    """Least distance, m, of `other` from its target while `first` is at its own, by SciPy."""
    q0 = jnp.asarray(robot.q_default, float)
    begin = {hand: dynamics.frame_pose(robot, q0, hand) for hand in APART}

    def twist(q: Array, hand: str) -> Array:
        position, rotation = dynamics.frame_pose(robot, q, hand)
        there, upright = begin[hand]
        return jnp.concatenate(
            [
                position - there - jnp.asarray(APART[hand]),
                orientation_error(upright, rotation),
            ]
        )

    def distance(q: Array) -> Array:
        return jnp.sum(twist(q, other)[:3] ** 2)

    held = {
        "type": "eq",
        "fun": jax.jit(lambda q: twist(q, first)),
        "jac": jax.jit(jax.jacobian(lambda q: twist(q, first))),
    }
    found = minimize(
        jax.jit(jax.value_and_grad(distance)), q0, jac=True, method="SLSQP", constraints=held,
        options={"maxiter": 500, "ftol": 1e-12},
    )  # fmt: skip
    assert found.success, found.message
    return float(np.sqrt(found.fun))


@pytest.mark.slow
def test_the_second_hand_comes_nearly_as_near_as_it_can(x64: None, g1: Robot) -> None:
    """With the default damping, which lets it nearer than 0.1 m."""
    hands = ("left_hand", "right_hand")
    controller = OSC(hands, priority="ordered", singularity_threshold=0.03, **SLOW)
    errors = final_errors(g1, controller, [APART[hand] for hand in hands])
    assert errors[0] < 1e-4
    least = nearest(g1, *hands)
    assert least - 1e-4 < errors[1] < 1.25 * least


@pytest.mark.slow
@pytest.mark.parametrize("priority", ["equal", "ordered"])
def test_hands_that_can_both_reach(g1: Robot, priority: Any) -> None:
    near = [[0.05, 0.02, 0.1], [0.05, -0.02, 0.05]]
    osc = OSC(("left_hand", "right_hand"), priority=priority, singularity_threshold=0.03)
    assert final_errors(g1, osc, near).max() < 1e-3
