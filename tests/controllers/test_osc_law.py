"""Operational space control equals a plain NumPy computation of the law from Pinocchio's terms."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from support import with_slow

from fraxenv import dynamics
from fraxenv.controllers import OSC, PoseTarget

pytestmark = pytest.mark.usefixtures("x64")

STATES = 20
rotations = jax.jit(jax.vmap(dynamics.rotation_exp))
FREE: dict[str, Any] = {  # neither the approach nor singularities change the law
    "max_linear_velocity": np.inf,
    "max_angular_velocity": np.inf,
    "singularity_damping": 0.0,
}
GAINS = np.array([100.0, 120.0, 140.0, 60.0, 80.0, 90.0])
RATIOS = np.array([0.7, 0.8, 0.9, 1.0, 1.1, 1.2])

ONE: dict[str, tuple[dict[str, Any], set[str]]] = {
    "default gains": ({}, set()),
    "gains per axis": ({"kp": GAINS, "damping_ratio": RATIOS}, set()),
    "position": ({"task": "position", "kp": GAINS}, set()),
    "partial decoupling": ({"decoupling": "partial"}, set()),
    "no decoupling": ({"decoupling": "none", "kp": GAINS}, set()),
    "position without decoupling": ({"decoupling": "none", "task": "position"}, set()),
    "no gravity compensation": ({"gravity_compensation": False}, set()),
    "no Coriolis compensation": ({"coriolis_compensation": False}, set()),
    "no compensation": ({"gravity_compensation": False, "coriolis_compensation": False}, set()),
    "velocity": ({}, {"velocity"}),
    "acceleration": ({}, {"velocity", "acceleration"}),
    "wrench": ({}, {"wrench"}),
    "force": ({"task": "position"}, {"wrench"}),
    "gains of the target": ({}, {"kp", "damping_ratio"}),
    "everything of the target": (
        {"decoupling": "partial", "posture": "center"},
        {"velocity", "acceleration", "wrench", "kp", "damping_ratio"},
    ),
    "posture center": ({"posture": "center"}, set()),
    "posture zero": ({"posture": "zero", "posture_kp": np.arange(1.0, 8.0)}, set()),
    "posture none": ({"posture": "none", "posture_damping_ratio": np.arange(0.1, 0.8, 0.1)}, set()),
    "slow approach": ({"max_linear_velocity": 0.3, "max_angular_velocity": 0.5}, {"velocity"}),
    "slow approach per axis": (
        {"max_linear_velocity": 0.3, "kp": GAINS, "damping_ratio": RATIOS},
        set(),
    ),
    "damped singularity": ({"singularity_damping": 0.3, "singularity_threshold": 0.02}, set()),
}
HANDS: dict[str, tuple[dict[str, Any], set[str]]] = {
    f"{priority} {decoupling} {damping}": (
        {
            "priority": priority,
            "decoupling": decoupling,
            "kp": np.stack([GAINS, 2 * GAINS]),
            "singularity_damping": damping,
            "singularity_threshold": 0.1,
        },
        {"velocity", "wrench"},
    )
    for priority in ("equal", "ordered")
    for decoupling in ("full", "partial", "none")
    for damping in (0.0, 0.3)
    if decoupling != "partial" or damping
}


def spring_acceleration(o: dict[str, Any], e: np.ndarray, kp: Any, ratio: Any) -> np.ndarray:
    """`kp e` of one end effector (n,), slowed down to the limits of its own speed."""
    pull = kp * e
    for part, limit in (
        (slice(0, 3), "max_linear_velocity"),
        (slice(3, 6), "max_angular_velocity"),
    ):
        balance = np.linalg.norm((pull / (2 * ratio * np.sqrt(kp)))[part])
        if balance > o[limit]:
            pull[part] *= o[limit] / balance
    return pull


def share(velocity: np.ndarray, robot: Any) -> float:
    """What brings all joint velocities within 0.9 of the robot's limits, at most 1."""
    return min(1.0, 0.9 / max(np.max(np.abs(velocity) / robot.velocity_limits), 1e-9))


def damped_inverse_inertia(
    o: dict[str, Any], A: np.ndarray, errors: list[np.ndarray], n: int
) -> np.ndarray:
    k = len(errors)
    scale = np.repeat(np.diag(A).reshape(-1, 3).mean(1), 3)
    scaled = A / np.sqrt(np.outer(scale, scale)) + 1e-5 * np.eye(k * n)
    conditioning = []
    for i in range(k):
        before, own = slice(0, i * n), slice(i * n, (i + 1) * n)
        rest = scaled[own, before] @ np.linalg.inv(scaled[before, before]) @ scaled[before, own]
        conditioning.append(np.linalg.det(scaled[own, own] - rest))
    if o["priority"] == "equal":
        conditioning = [min(conditioning)] * k
    far = np.array([0.05] * 3 + [0.25] * 3)[:n]
    damping = []
    for e, c in zip(errors, conditioning, strict=True):
        distance = np.sum((e / far) ** 2)
        closeness = max(0.0, 1 - c / o["singularity_threshold"])
        damping += [o["singularity_damping"] * closeness**2 * distance / (1 + distance)] * n
    return A + np.diag(np.array(damping) * scale)


def law(
    o: dict[str, Any], t: Any, target: dict[str, Any], q: Any, v: Any, robot: Any, log: Any
) -> Any:
    """`target` holds arrays with a leading axis of end effectors."""
    k, nv = len(t.poses), len(v)
    n = 6 if o["task"] == "pose" else 3
    rows = np.concatenate([np.arange(6 * i, 6 * i + n) for i in range(k)])
    J, drift = t.J[rows], t.drift[rows]
    kp = np.broadcast_to(target.get("kp", o["kp"]), (k, 6))[:, :n]
    ratio = np.broadcast_to(target.get("damping_ratio", o["damping_ratio"]), (k, 6))[:, :n]
    zero = np.zeros((k, 6))
    errors, pulls = [], []
    for i, pose in enumerate(t.poses):
        turn = log(target["rotation"][i], pose.rotation)
        e = np.concatenate([target["position"][i] - pose.translation, turn])[:n]
        pulls.append(spring_acceleration(o, e, kp[i], ratio[i]))
        errors.append(e)
    Minv = np.linalg.inv(t.M)
    A = J @ Minv @ J.T
    damped = damped_inverse_inertia(o, A, errors, n)

    kd = 2 * ratio * np.sqrt(kp)
    balance = (np.stack(pulls) / kd).ravel()
    slower = share(Minv @ J.T @ np.linalg.inv(damped) @ balance, robot)
    rate = target.get("velocity", zero)[:, :n] - (J @ v).reshape(k, n)
    a = slower * np.stack(pulls) + kd * rate + target.get("acceleration", zero)[:, :n]
    a = a.ravel()
    if o["coriolis_compensation"]:
        a = a - drift

    if o["decoupling"] == "full":
        force = np.linalg.inv(damped) @ a
    elif o["decoupling"] == "partial":
        blocks = np.zeros_like(A)
        for i in range(0, k * n, 3):
            blocks[i : i + 3, i : i + 3] = np.linalg.inv(damped[i : i + 3, i : i + 3])
        force = blocks @ a
    else:
        force = a
    if o["priority"] == "ordered" and o["decoupling"] != "full":
        tau = np.zeros(nv)
        for i in range(k):
            before, own = slice(0, i * n), slice(i * n, (i + 1) * n)
            Lambda = np.linalg.inv(damped[before, before])
            N = np.eye(nv) - Minv @ J[before].T @ Lambda @ J[before]
            tau += N.T @ J[own].T @ force[own]
    else:
        tau = J.T @ force

    middle = np.asarray(robot.position_limits).mean(1)
    goal = {"default": robot.q_default, "center": middle, "zero": np.zeros(nv), "none": q}
    pull = o["posture_kp"] * (np.asarray(goal[o["posture"]]) - q)
    posture_kd = 2 * o["posture_damping_ratio"] * np.sqrt(o["posture_kp"])
    u = share(pull / posture_kd, robot) * pull - posture_kd * v
    N_T = np.eye(nv) - J.T @ np.linalg.inv(damped) @ J @ Minv
    tau = tau + N_T @ t.M @ u
    tau = tau + J.T @ target.get("wrench", zero)[:, :n].ravel()
    tau = tau + t.gravity * o["gravity_compensation"]
    return tau + (t.bias - t.gravity) * o["coriolis_compensation"]


def check(
    pinocchio: Any,
    name: str,
    frames: Any,
    links: Any,
    options: Any,
    extras: Any,
    limited: bool = True,
) -> None:
    robot = dynamics.load_robot(name, floating_base=False)
    if not limited:
        robot = robot.replace(velocity_limits=np.full(robot.nv, np.inf))
    several = not isinstance(frames, str)
    k, shape = (len(frames), (len(frames),)) if several else (1, ())
    osc = OSC(frames, **(FREE | options))
    rng = np.random.default_rng(1)
    q = np.asarray(robot.q_default) + rng.uniform(-0.5, 0.5, (STATES, robot.nv))
    v = rng.normal(size=(STATES, robot.nv))
    turns = rng.normal(size=(STATES, *shape, 3))
    target = {
        "position": rng.uniform(-0.6, 0.6, (STATES, *shape, 3)),
        "rotation": np.asarray(rotations(turns.reshape(-1, 3))).reshape(STATES, *shape, 3, 3),
    }
    draws = {"velocity": (-1, 1), "acceleration": (-1, 1), "wrench": (-20, 20)}
    draws |= {"kp": (10, 300), "damping_ratio": (0.3, 2)}
    for extra in sorted(extras):
        target[extra] = rng.uniform(*draws[extra], (STATES, *shape, 6))

    def torque(q: Any, v: Any, target: Any) -> Any:
        terms = dynamics.compute_terms(robot, q, v)
        state = osc.init(robot, terms)
        return osc(robot, terms, PoseTarget(**target), state, 1e-3)[0]

    tau = np.asarray(jax.jit(jax.vmap(torque))(q, v, target))
    everything = vars(OSC(frames)) | FREE | options
    model = pinocchio(name)
    for i in range(STATES):
        one = {key: x[i].reshape(k, *x.shape[1 + len(shape) :]) for key, x in target.items()}
        terms = model.terms(q[i], v[i], links)
        expected = law(everything, terms, one, q[i], v[i], robot, pinocchio.rotation_vector)
        np.testing.assert_allclose(tau[i], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    "case",
    with_slow(
        ONE,
        "no decoupling",
        "no gravity compensation",
        "no Coriolis compensation",
        "no compensation",
        "velocity",
        "acceleration",
        "force",
        "posture zero",
        "gains per axis",
        "gains of the target",
        "position",
        "posture none",
        "slow approach",
        "wrench",
        "position without decoupling",
        "partial decoupling",
        "posture center",
    ),
)
def test_panda(pinocchio: Any, case: str) -> None:
    check(pinocchio, "panda", "hand", ("panda_hand_tcp",), *ONE[case])


@pytest.mark.slow
def test_panda_without_limits_of_speed(pinocchio: Any) -> None:
    check(pinocchio, "panda", "hand", ("panda_hand_tcp",), {}, set(), limited=False)


@pytest.mark.parametrize(
    "case", with_slow(HANDS, *(HANDS.keys() - {"equal full 0.0", "ordered full 0.3"}))
)
def test_two_hands_of_g1(pinocchio: Any, case: str) -> None:
    frames, links = ("left_hand", "right_hand"), ("left_rubber_hand", "right_rubber_hand")
    check(pinocchio, "g1", frames, links, *HANDS[case])
