"""Operational space control: the law itself, and how well it tracks."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support import MOTORS, with_slow
from support import rollout as motion

from fraxenv import dynamics
from fraxenv.controllers import OSC, PoseTarget, osc_torque
from fraxenv.dynamics import ActuatorState, Robot
from fraxenv.errors import ConfigError, UnknownNameError

DT = 1e-3
compute_terms, law = jax.jit(dynamics.compute_terms), jax.jit(osc_torque)
frame_pose = jax.jit(dynamics.frame_pose, static_argnums=2)
frame_jacobian = jax.jit(dynamics.frame_jacobian, static_argnums=2)


@pytest.fixture(scope="module")
def panda() -> Robot:
    return dynamics.load_robot("panda")


def rollout(
    robot: Robot, osc: OSC, target: PoseTarget, seconds: float
) -> tuple[Array, Array, Array, Array]:
    """From rest at the ready pose: hand positions, orientation errors, torques, and final q."""
    q, _, tau, telemetry = motion(robot, osc, target, seconds, DT)
    position, _ = jax.vmap(lambda q: dynamics.frame_pose(robot, q, osc.end_effector))(q)
    return position, telemetry["orientation_error"], tau, q[-1]


RANDOM, APPROACHES, FAR = 200, (0.2, 0.4), np.array([1.2, 0.0, 0.6])
STEPS = {(axis, sign): sign * 0.05 * np.eye(3)[axis] for axis in range(3) for sign in (-1.0, 1.0)}


class Goals(NamedTuple):
    """What hands are to do: the random ones, then one for each of the tests below."""

    position: np.ndarray
    rotation: np.ndarray
    speed: np.ndarray


@pytest.fixture(scope="module")
def goals(panda: Robot) -> Goals:
    """Random ones are poses of configurations anywhere within half of the joint range.

    About the ready pose: they are up to 0.8 m and 180 deg away.
    """
    rng = np.random.default_rng(0)
    ready = np.asarray(panda.q_default)
    lower, upper = np.asarray(panda.position_limits).T
    q = ready + 0.5 * (rng.uniform(lower, upper, (400, 7)) - ready)
    each = jax.vmap(lambda q: frame_pose(panda, q, "hand"))
    position, rotation = map(np.asarray, each(jnp.asarray(q)))
    above_table = np.flatnonzero(position[:, 2] > 0.05)[:RANDOM]
    assert len(above_table) == RANDOM
    start, turn = map(np.asarray, frame_pose(panda, panda.q_default, "hand"))
    places = [start + step for step in STEPS.values()]
    places += [FAR, *(start + np.array([0.0, 0.5, 0.0]) for _ in APPROACHES)]
    speed = np.full(RANDOM + len(places), OSC("hand").max_linear_velocity, np.float32)
    speed[-len(APPROACHES) :] = APPROACHES
    return Goals(
        np.concatenate([position[above_table], np.float32(places)]),
        np.concatenate([rotation[above_table], np.tile(turn, (len(places), 1, 1))]),
        speed,
    )


Motions = tuple[np.ndarray, np.ndarray, np.ndarray]


def moved(robot: Robot, goals: Goals) -> Motions:
    """Hand positions, orientation errors and torques of 3 s, in one program."""

    def one(position: Array, rotation: Array, speed: Array) -> Any:
        osc = OSC("hand", max_linear_velocity=speed)
        return rollout(robot, osc, PoseTarget(position, rotation), 3.0)[:3]

    hand, angle, tau = map(np.asarray, jax.jit(jax.vmap(one))(*goals))
    return hand, angle, tau


@pytest.fixture(scope="module")
def motions(panda: Robot, goals: Goals) -> Motions:
    return moved(panda, goals)


def check_reached(robot: Robot, goals: Goals, motions: Motions) -> None:
    """< 1 mm and < 0.5 deg within 3 s, torques within the limits all the way."""
    hand, angle, tau = (x[:RANDOM] for x in motions)
    distance = np.linalg.norm(hand[:, -1] - goals.position[:RANDOM], axis=-1)
    assert np.all(distance < 1e-3)
    assert np.all(np.degrees(angle[:, -1]) < 0.5)
    assert np.all(np.abs(tau) <= robot.effort_limits)


def test_reaches_200_random_poses(panda: Robot, goals: Goals, motions: Motions) -> None:
    check_reached(panda, goals, motions)


@pytest.mark.slow
def test_reaches_them_with_motors_without_limits_of_speed(panda: Robot, goals: Goals) -> None:
    panda = panda.replace(velocity_limits=np.full(7, np.inf))
    check_reached(panda, goals, moved(panda, goals))


@pytest.mark.parametrize(("axis", "sign"), STEPS)
def test_5_cm_step_does_not_couple(
    panda: Robot, goals: Goals, motions: Motions, axis: int, sign: float
) -> None:
    k = RANDOM + [*STEPS].index((axis, sign))
    goal, start = goals.position[k], goals.position[k] - STEPS[axis, sign]
    hand, angle = (x[k, : round(1.5 / DT)] for x in motions[:2])
    error = np.abs(np.asarray(hand[-1] - goal))
    others = np.delete(np.arange(3), axis)
    assert error[others].max() < 2e-3
    assert error[axis] < 5e-4  # no steady-state error
    assert np.abs(np.asarray(hand - start))[:, others].max() < 2e-3  # nor on the way
    assert np.degrees(angle).max() < 0.5


def test_responds_like_a_critically_damped_mass(panda: Robot, x64: None) -> None:
    """With full decoupling the hand is a unit mass: `e(t) = e0 (1 + w t) exp(-w t)`, w^2 = kp."""
    start, rotation = frame_pose(panda, panda.q_default, "hand")
    osc = OSC("hand", kp=100.0, max_linear_velocity=np.inf, posture="none")
    step = 0.01
    goal = start + jnp.array([step, 0.0, 0.0])
    hand, *_ = jax.jit(lambda g: rollout(panda, osc, PoseTarget(g, rotation), 0.6))(goal)
    wt = 10.0 * DT * np.arange(1, len(hand) + 1)
    expected = step * (1 + wt) * np.exp(-wt)
    # The integrator is of first order: its error is of the order of w h = 1 %.
    np.testing.assert_allclose(np.asarray(goal - hand)[:, 0], expected, atol=0.01 * step)


def test_equals_numpy_and_pinocchio(panda: Robot, x64: None) -> None:
    """The same law, from Pinocchio's terms and NumPy's inverses."""
    pin = pytest.importorskip("pinocchio")
    from importlib import resources

    path = resources.files("fraxenv.dynamics.robots").joinpath("panda.urdf")
    model = pin.buildModelFromUrdf(str(path))
    data = model.createData()
    frame = model.getFrameId("panda_hand_tcp")
    osc = OSC(
        "hand",
        kp=np.array([100.0, 120.0, 140.0, 60.0, 80.0, 90.0]),
        damping_ratio=0.8,
        max_linear_velocity=np.inf,
        max_angular_velocity=np.inf,
        singularity_damping=0.0,
    )
    # Limits of speed are in test_osc_law.py.
    panda = panda.replace(velocity_limits=np.full(7, np.inf))
    rng = np.random.default_rng(1)
    torque = jax.jit(
        lambda q, v, target: osc_torque(osc, panda, dynamics.compute_terms(panda, q, v), target)[0]
    )
    for _ in range(20):
        q = np.asarray(panda.q_default) + rng.uniform(-0.5, 0.5, 7)
        v = rng.normal(size=7)
        goal = pin.SE3.Random()
        velocity, acceleration = rng.normal(size=6), rng.normal(size=6)
        tau = torque(q, v, PoseTarget(goal.translation, goal.rotation, velocity, acceleration))

        pin.forwardKinematics(model, data, q, v)
        pin.computeJointJacobiansTimeVariation(model, data, q, v)
        pin.updateFramePlacements(model, data)
        J = pin.getFrameJacobian(model, data, frame, pin.LOCAL_WORLD_ALIGNED)
        Jdot = pin.getFrameJacobianTimeVariation(model, data, frame, pin.LOCAL_WORLD_ALIGNED)
        M = pin.crba(model, data, q)
        M = np.triu(M) + np.triu(M, 1).T
        hand = data.oMf[frame]
        e = np.concatenate(
            [goal.translation - hand.translation, pin.log3(goal.rotation @ hand.rotation.T)]
        )
        kd = 2 * 0.8 * np.sqrt(osc.kp)
        Minv = np.linalg.inv(M)
        Lambda = np.linalg.inv(J @ Minv @ J.T)
        Jbar = Minv @ J.T @ Lambda
        u = 10.0 * (np.asarray(panda.q_default) - q) - 2 * np.sqrt(10.0) * v
        expected = (
            J.T @ Lambda @ (acceleration - Jdot @ v + osc.kp * e + kd * (velocity - J @ v))
            + pin.nonLinearEffects(model, data, q, v)
            + (np.eye(7) - J.T @ Jbar.T) @ M @ u
        )
        np.testing.assert_allclose(tau, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("decoupling", with_slow(["full", "partial", "none"], "full", "partial"))
@pytest.mark.parametrize("task", with_slow(["pose", "position"], "pose"))
def test_options_reach_the_target(panda: Robot, decoupling: Any, task: Any) -> None:
    start, rotation = frame_pose(panda, panda.q_default, "hand")
    goal = start + jnp.array([0.05, -0.03, 0.04])
    # Without decoupling kp is a real stiffness, N/m and N m/rad, felt by the hand's own inertia.
    kp = np.array([800.0] * 3 + [40.0] * 3) if decoupling == "none" else 150.0
    osc = OSC("hand", decoupling=decoupling, task=task, kp=kp)
    if decoupling == "none":
        osc = dataclasses.replace(osc, damping_ratio=np.array([1.5] * 3 + [0.3] * 3))
    # Partly decoupled, position and orientation disturb each other and settle more slowly.
    seconds = 6.0 if decoupling == "partial" else 3.0
    hand, *_ = jax.jit(lambda g: rollout(panda, osc, PoseTarget(g, rotation), seconds))(goal)
    assert float(jnp.linalg.norm(hand[-1] - goal)) < 1e-3


def test_posture_does_not_move_the_hand(panda: Robot, x64: None) -> None:
    rng = np.random.default_rng(2)
    q, v = np.asarray(panda.q_default) + rng.uniform(-0.4, 0.4, 7), rng.normal(size=7)
    terms = compute_terms(panda, q, v)
    target = PoseTarget(*frame_pose(panda, q, "hand"))
    J = frame_jacobian(panda, q, "hand")
    hand_acceleration, posture_torque = [], []
    for posture_kp in (0.0, 300.0):
        tau, _ = law(OSC("hand", posture_kp=posture_kp), panda, terms, target)
        posture_torque.append(tau)
        hand_acceleration.append(J @ np.linalg.solve(terms.mass_matrix, tau - terms.bias))
    assert float(jnp.abs(posture_torque[1] - posture_torque[0]).max()) > 0.1
    np.testing.assert_allclose(hand_acceleration[0], hand_acceleration[1], atol=1e-9)


@pytest.mark.slow
def test_posture_settles_in_the_nullspace(panda: Robot) -> None:
    """Pulled to zero or to the centre, the elbow moves while the hand stays."""
    start, rotation = dynamics.frame_pose(panda, panda.q_default, "hand")
    target = PoseTarget(start, rotation)
    final = {}
    for posture in ("default", "center", "zero", "none"):
        osc = OSC("hand", posture=posture)  # type: ignore[arg-type]
        hand, _, _, q = jax.jit(lambda osc=osc: rollout(panda, osc, target, 2.0))()
        assert float(jnp.linalg.norm(hand[-1] - start)) < 1e-3
        final[posture] = np.asarray(q)
    np.testing.assert_allclose(final["default"], panda.q_default, atol=1e-4)


def test_compensation_is_what_it_says(panda: Robot, x64: None) -> None:
    rng = np.random.default_rng(3)
    q, v = np.asarray(panda.q_default) + rng.uniform(-0.4, 0.4, 7), rng.normal(size=7)
    terms = compute_terms(panda, q, v)
    target = PoseTarget(*frame_pose(panda, q, "hand"))

    def tau(**options: bool) -> Array:
        return law(OSC("hand", **options), panda, terms, target)[0]  # type: ignore[arg-type]

    gravity = jax.jit(dynamics.gravity_forces)(panda, q)
    np.testing.assert_allclose(tau() - tau(gravity_compensation=False), gravity, atol=1e-10)
    # Without Coriolis compensation neither the joints' part nor the task's (Jdot v) is there.
    J = np.asarray(frame_jacobian(panda, q, "hand"))
    Jdot = jax.jit(lambda: dynamics.frame_jacobian_dot(panda, q, v, "hand"))()
    Lambda = np.linalg.inv(J @ np.linalg.inv(terms.mass_matrix) @ J.T)
    coriolis = terms.bias - gravity - J.T @ Lambda @ Jdot @ v
    np.testing.assert_allclose(tau() - tau(coriolis_compensation=False), coriolis, atol=1e-9)


def test_singularity_is_bounded_and_continuous(
    panda: Robot, goals: Goals, motions: Motions
) -> None:
    """A target out of reach stretches the arm; torques stay in bounds and do not jump."""
    far, rotation = (x[RANDOM + len(STEPS)] for x in goals[:2])
    np.testing.assert_array_equal(far, np.float32(FAR))
    hand, _, tau = (x[RANDOM + len(STEPS)] for x in motions)
    assert np.all(np.isfinite(hand))
    assert np.all(np.abs(tau) <= panda.effort_limits)
    still = np.linalg.norm(np.diff(hand, axis=0), axis=-1)[-200:] / DT
    assert still.max() < 0.05  # it stretches and stays, it does not thrash
    # The law itself is continuous through the singularity: an arm that is straightened at 0.5 rad/s
    # sees torques that change by no more than the steps are fine.
    bend = jnp.linspace(-0.4, -0.0698, 2000)
    q = jnp.zeros((2000, 7)).at[:, 3].set(bend).at[:, 5].set(1.6)
    torque = jax.jit(
        jax.vmap(
            lambda q: osc_torque(
                OSC("hand"),
                panda,
                dynamics.compute_terms(panda, q, jnp.zeros(7)),
                PoseTarget(far, rotation),
            )[0]
        )
    )(q)
    jump = np.abs(np.diff(np.asarray(torque), axis=0)).max()
    assert jump < 1.0


def test_torque_is_limited_by_the_motors(panda: Robot) -> None:
    weak = panda.replace(effort_limits=np.full(7, 5.0))
    terms = compute_terms(weak, weak.q_default, np.zeros(7))
    target = PoseTarget(jnp.array([0.7, 0.3, 0.2]), jnp.eye(3))
    tau, _, _ = jax.jit(OSC("hand"))(weak, terms, target, None, DT)
    assert float(jnp.abs(tau).max()) > 5.0
    applied, _, _ = MOTORS(weak, tau, terms.v, ActuatorState(), DT)
    assert float(jnp.abs(applied).max()) == 5.0


def test_approach_speed_is_limited(motions: Motions) -> None:
    for limit, hand in zip(APPROACHES, motions[0][-len(APPROACHES) :], strict=True):
        speed = np.linalg.norm(np.diff(hand, axis=0), axis=-1) / DT
        assert limit * 0.95 < speed.max() < limit * 1.02


def test_gains_are_leaves(panda: Robot) -> None:
    """Gains can be batched: vmap over the controller equals a loop over controllers."""
    terms = compute_terms(panda, panda.q_default, 0.1 * np.ones(7))
    target = PoseTarget(jnp.array([0.5, 0.1, 0.4]), jnp.eye(3))
    gains = jnp.array([50.0, 150.0, 300.0])

    def tau(kp: Array) -> Array:
        return law(OSC("hand", kp=kp), panda, terms, target)[0]

    batched = jax.jit(jax.vmap(tau))(gains)
    for kp, row in zip(gains, batched, strict=True):
        np.testing.assert_allclose(row, tau(kp), rtol=2e-4, atol=1e-4)
    assert len(np.unique(np.asarray(batched)[:, 1])) == 3


@pytest.mark.slow
def test_gradient_is_finite_at_the_target(panda: Robot) -> None:
    """Zero error and zero velocity are where naive norms have NaN gradients."""
    start, rotation = dynamics.frame_pose(panda, panda.q_default, "hand")

    def effort(q: Array) -> Array:
        terms = dynamics.compute_terms(panda, q, jnp.zeros(7))
        tau, telemetry = osc_torque(OSC("hand"), panda, terms, PoseTarget(start, rotation))
        return jnp.sum(tau**2) + telemetry["position_error"] + telemetry["orientation_error"]

    gradient = jax.jit(jax.grad(effort))(jnp.asarray(panda.q_default, float))
    assert bool(jnp.all(jnp.isfinite(gradient)))


def test_wrong_options_are_refused(panda: Robot) -> None:
    with pytest.raises(ConfigError, match=r"decoupling='half', expected one of 'full', 'partial'"):
        OSC("hand", decoupling="half")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="posture='home'"):
        OSC("hand", posture="home")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="task='orientation'"):
        OSC("hand", task="orientation")  # type: ignore[arg-type]
    terms = compute_terms(panda, panda.q_default, np.zeros(7))
    with pytest.raises(UnknownNameError, match=r"unknown frame 'hnad' of robot 'panda'.*'hand'"):
        OSC("hnad")(panda, terms, PoseTarget(jnp.zeros(3), jnp.eye(3)), None, DT)
