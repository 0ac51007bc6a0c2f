"""Differential inverse kinematics: the law, its limits, and how well it reaches."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support import rollout

from fraxenv import dynamics
from fraxenv.controllers import DifferentialIK, PoseTarget, differential_ik
from fraxenv.dynamics import Robot

DT = 1e-3
frame_pose = jax.jit(dynamics.frame_pose, static_argnums=2)
rotations = jax.jit(jax.vmap(dynamics.rotation_exp))
UNLIMITED: dict[str, Any] = {
    "max_linear_velocity": np.inf,
    "max_angular_velocity": np.inf,
    "singularity_damping": 0.0,
    "limit_gain": 1e9,
}
GAINS = np.array([5.0, 6.0, 7.0, 3.0, 4.0, 2.0])


@pytest.fixture(scope="module")
def panda() -> Robot:
    return dynamics.load_robot("panda")


@pytest.mark.parametrize(
    ("frames", "options"),
    [
        (("hand",), {}),
        (("hand",), {"kp": GAINS, "posture": "center", "posture_kp": np.arange(1.0, 8.0)}),
        (("hand",), {"task": "position", "posture": "none"}),
        (("hand",), {"max_linear_velocity": 0.2, "max_angular_velocity": 0.3}),
        (("left_hand", "right_hand"), {"kp": np.stack([GAINS, 2 * GAINS])}),
    ],
)
def test_equals_numpy_and_pinocchio(
    pinocchio: Any, frames: tuple[str, ...], options: dict[str, Any], x64: None
) -> None:
    """`v = pinv(J) (v_ref + kp e) + (1 - pinv(J) J) u`, with NumPy's pseudo-inverse."""
    name, links = ("panda", ("panda_hand_tcp",))
    if len(frames) == 2:
        name, links = "g1", ("left_rubber_hand", "right_rubber_hand")
    robot = dynamics.load_robot(name, floating_base=False)
    if name == "g1":
        robot = robot.replace(position_limits=np.array([[-np.inf, np.inf]] * robot.nv))
    robot = robot.replace(velocity_limits=np.full(robot.nv, np.inf))
    controller = DifferentialIK(frames, **(UNLIMITED | options))
    n = 6 if controller.task == "pose" else 3
    k = len(frames)

    def velocity(q: Any, target: Any) -> Array:
        terms = dynamics.compute_terms(robot, q, jnp.zeros(robot.nv))
        return differential_ik(controller, robot, terms, PoseTarget(**target))[0]

    program = jax.jit(velocity)
    rng = np.random.default_rng(1)
    for _ in range(10):
        q = np.asarray(robot.q_default) + rng.uniform(-0.5, 0.5, robot.nv)
        turns = jnp.asarray(rng.normal(size=(k, 3)))
        target = {
            "position": rng.uniform(-0.6, 0.6, (k, 3)),
            "rotation": np.asarray(rotations(turns)),
            "velocity": rng.normal(size=(k, 6)),
        }
        terms = pinocchio(name).terms(q, np.zeros(robot.nv), links)
        J = terms.J.reshape(k, 6, -1)[:, :n].reshape(k * n, -1)
        twist = []
        for i, pose in enumerate(terms.poses):
            e = np.concatenate(
                [
                    target["position"][i] - pose.translation,
                    pinocchio.rotation_vector(target["rotation"][i], pose.rotation),
                ]
            )
            pull = np.broadcast_to(controller.kp, (k, 6))[i] * e
            for part, limit in (
                (slice(0, 3), controller.max_linear_velocity),
                (slice(3, 6), controller.max_angular_velocity),
            ):
                pull[part] *= min(1.0, limit / np.linalg.norm(pull[part]))
            twist.append((target["velocity"][i] + pull)[:n])
        middle = np.mean(dynamics.load_robot("panda").position_limits, axis=1)
        goal = {"default": robot.q_default, "center": middle, "none": q}[controller.posture]
        u = controller.posture_kp * (np.asarray(goal) - q)
        inverse = np.linalg.pinv(J)
        expected = inverse @ np.concatenate(twist) + u - inverse @ J @ u
        np.testing.assert_allclose(program(q, target), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_damping_is_that_of_damped_least_squares(panda: Robot, x64: None) -> None:
    """Stretched out, the velocity minimises `|J v - twist|^2 + |v|^2` with a weight per row."""
    q = jnp.array([0.0, 0.0, 0.0, -1e-3, 0.0, 1.6, 0.0])
    terms = dynamics.compute_terms(panda, q, jnp.zeros(7))
    position, rotation = dynamics.frame_pose(panda, q, "hand")
    target = PoseTarget(position + jnp.array([0.3, 0.0, 0.3]), rotation)
    ik = DifferentialIK("hand", **(UNLIMITED | {"singularity_damping": 0.3}), posture="none")
    unlimited = np.array([[-np.inf, np.inf]] * 7)
    robot = panda.replace(velocity_limits=np.full(7, np.inf), position_limits=unlimited)
    v, telemetry = differential_ik(ik, robot, terms, target)
    assert float(telemetry["conditioning"]) < 1e-4
    J = np.asarray(dynamics.frame_jacobian(panda, q, "hand"))
    A = J @ J.T
    scale = np.repeat(np.diag(A).reshape(2, 3).mean(1), 3)
    closeness = 1 - float(telemetry["conditioning"]) / 1e-3
    distance = 2 * (0.3 / 0.05) ** 2
    weight = np.sqrt(0.3 * closeness**2 * distance / (1 + distance) * scale)
    twist = 10.0 * np.array([0.3, 0, 0.3, 0, 0, 0])
    # Least squares of `J v + weight s = twist` with the smallest `|v|^2 + |s|^2`.
    expected = np.linalg.pinv(np.hstack([J, np.diag(weight)])) @ twist
    np.testing.assert_allclose(v, expected[:7], rtol=1e-6, atol=1e-9)
    undamped = np.linalg.pinv(J) @ twist
    assert np.linalg.norm(v) < 0.2 * np.linalg.norm(undamped)


def test_reaches_random_poses(panda: Robot) -> None:
    """< 1 mm and < 0.5 deg within 3 s, and everything commanded is within the limits."""
    rng = np.random.default_rng(0)
    ready = np.asarray(panda.q_default)
    lower, upper = np.asarray(panda.position_limits).T
    q = ready + 0.3 * (rng.uniform(lower, upper, (200, 7)) - ready)
    pose = jax.vmap(lambda q: frame_pose(panda, q, "hand"))(jnp.asarray(q))
    position, rotation = (x[np.asarray(pose[0])[:, 2] > 0.05][:100] for x in pose)
    ik = DifferentialIK("hand")
    run = jax.jit(jax.vmap(lambda p, R: rollout(panda, ik, PoseTarget(p, R), 3.0)))
    q, _, tau, telemetry = run(position, rotation)
    assert telemetry["position_error"][:, -1].max() < 1e-3
    assert np.degrees(telemetry["orientation_error"][:, -1]).max() < 0.5
    assert np.all(np.abs(tau) <= panda.effort_limits)
    assert np.all(np.abs(telemetry["joint_velocity"]) <= panda.velocity_limits)
    assert np.all((q > lower) & (q < upper))


def test_joints_stop_at_their_limits(panda: Robot) -> None:
    """A target far below the table asks for more than the joints can do."""
    _, rotation = frame_pose(panda, panda.q_default, "hand")
    lower, upper = np.asarray(panda.position_limits).T
    far = jnp.array([[0.3, 0.0, -0.9], [-0.8, 0.1, 0.1], [0.05, 0.0, 0.3]])

    def one(position: Array) -> Any:
        return rollout(panda, DifferentialIK("hand"), PoseTarget(position, rotation), 4.0)

    q, _, _, telemetry = jax.jit(jax.vmap(one))(far)
    assert np.all((q >= lower - 1e-3) & (q <= upper + 1e-3))
    assert np.all(np.isfinite(telemetry["joint_velocity"]))


@pytest.mark.slow
def test_limited_velocity_keeps_its_direction(panda: Robot) -> None:
    """All joints slow down together, so that the hand still moves straight."""
    slow = panda.replace(velocity_limits=0.1 * np.asarray(panda.velocity_limits))
    q = jnp.asarray(panda.q_default, float)
    terms = dynamics.compute_terms(panda, q, jnp.zeros(7))
    position, rotation = dynamics.frame_pose(panda, q, "hand")
    target = PoseTarget(position + jnp.array([0.1, 0.2, 0.1]), rotation)
    free, _ = differential_ik(DifferentialIK("hand"), panda, terms, target)
    limited, _ = differential_ik(DifferentialIK("hand"), slow, terms, target)
    assert float(jnp.max(jnp.abs(limited) / slow.velocity_limits)) == pytest.approx(1.0)
    assert float(jnp.linalg.norm(free)) > 2 * float(jnp.linalg.norm(limited))
    cosine = limited @ free / (jnp.linalg.norm(free) * jnp.linalg.norm(limited))
    assert float(cosine) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.slow
def test_posture_moves_the_elbow_alone(panda: Robot) -> None:
    swung = np.array([0.3, -0.5, -0.3, -2.3, 0.2, 1.8, 0.3])
    robot = panda.replace(q_default=swung)
    target = PoseTarget(*dynamics.frame_pose(robot, swung, "hand"))
    ends = {}
    for posture in ("default", "center", "zero", "none"):
        ik = DifferentialIK("hand", posture=posture)  # type: ignore[arg-type]
        q, _, _, telemetry = jax.jit(lambda ik=ik: rollout(robot, ik, target, 2.0))()
        assert float(telemetry["position_error"].max()) < 1e-3
        ends[posture] = np.asarray(q[-1])
    np.testing.assert_allclose(ends["default"], swung, atol=1e-4)
    np.testing.assert_allclose(ends["none"], swung, atol=1e-4)
    for posture, goal in (
        ("zero", np.zeros(7)),
        ("center", np.mean(panda.position_limits, axis=1)),
    ):
        assert np.linalg.norm(ends[posture] - goal) < np.linalg.norm(swung - goal) - 0.05


def test_position_alone_leaves_the_orientation_free(panda: Robot) -> None:
    start, rotation = frame_pose(panda, panda.q_default, "hand")
    target = PoseTarget(start + jnp.array([0.1, 0.2, 0.0]), rotation)
    ik = dataclasses.replace(DifferentialIK("hand"), task="position")
    *_, telemetry = jax.jit(lambda: rollout(panda, ik, target, 2.0))()
    assert float(telemetry["position_error"][-1]) < 1e-3
    assert float(telemetry["orientation_error"][-1]) > 0.05
