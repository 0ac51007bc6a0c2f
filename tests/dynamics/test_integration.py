"""Motion over time: energy, damping, friction, soft stops, and the derivatives of a step."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import Array
from jax.typing import ArrayLike
from support import dtype_with_slow, with_slow

from fraxenv import dynamics
from fraxenv.dynamics import Robot
from fraxenv.dynamics.integration import Integrator
from fraxenv.dynamics.joint_resistance import FRICTION_VELOCITY
from fraxenv.errors import ConfigError

STEP = 1e-3  # s

DOUBLE_PENDULUM = """
<robot name="double_pendulum">
  <link name="base"/>
  <link name="upper"><inertial><origin xyz="0 0 -0.5"/><mass value="1"/>
    <inertia ixx="0.09" iyy="0.09" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="lower"><inertial><origin xyz="0 0 -0.4"/><mass value="0.7"/>
    <inertia ixx="0.05" iyy="0.05" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="shoulder" type="continuous"><parent link="base"/><child link="upper"/>
    <axis xyz="0 1 0"/></joint>
  <joint name="elbow" type="continuous"><parent link="upper"/><child link="lower"/>
    <origin xyz="0 0 -1"/><axis xyz="0 1 0"/></joint>
</robot>"""

SLIDER = """
<robot name="slider">
  <link name="base"/>
  <link name="cart"><inertial><mass value="2"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="slide" type="prismatic"><parent link="base"/><child link="cart"/>
    <axis xyz="1 0 0"/><limit lower="-0.5" upper="0.5"/></joint>
</robot>"""

State = tuple[Array, Array]


@pytest.fixture(scope="module")
def pendulum_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pendulum") / "pendulum.urdf"
    path.write_text(DOUBLE_PENDULUM)
    return path


@pytest.fixture(scope="module")
def pendulum(pendulum_path: Path) -> Robot:
    return dynamics.load_urdf(pendulum_path)


@pytest.fixture(scope="module")
def slider(tmp_path_factory: pytest.TempPathFactory) -> Robot:
    """A cart of 2 kg that slides by half a metre to either side."""
    path: Path = tmp_path_factory.mktemp("slider") / "slider.urdf"
    path.write_text(SLIDER)
    return dynamics.load_urdf(path)


# Programs are shared by all tests: parameters of the robot are arguments of theirs.
@partial(jax.jit, static_argnames=("steps", "integrator"))
def run(
    robot: Robot, q: Array, v: Array, tau: Array, dt: Array, steps: int, integrator: Integrator
) -> State:
    def one(state: State, _: None) -> tuple[State, State]:
        state = dynamics.step(robot, *state, tau, dt, integrator=integrator)
        return state, state

    return jax.lax.scan(one, (q, v), None, length=steps)[1]


@jax.jit
def energies(robot: Robot, q: Array, v: Array) -> Array:
    def energy(q: Array, v: Array) -> Array:
        return dynamics.kinetic_energy(robot, q, v) + dynamics.potential_energy(robot, q)

    return jax.vmap(energy)(q, v)


def rollout(
    robot: Robot,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    *,
    steps: int = 2000,
    dt: float = STEP,
    integrator: Integrator = "euler",
) -> tuple[np.ndarray, np.ndarray]:
    """Configurations and velocities (steps + 1, n), the first included, under constant torques."""
    dtype = jnp.result_type(float)
    q = np.broadcast_to(np.asarray(q, dtype), (robot.nq,))
    v, tau = (np.broadcast_to(np.asarray(x, dtype), (robot.nv,)) for x in (v, tau))
    qs, vs = run(robot, q, v, tau, np.asarray(dt, dtype), steps=steps, integrator=integrator)
    return np.concatenate([q[None], qs]), np.concatenate([v[None], vs])


# --- Energy ---------------------------------------------------------------------------------------


# Of motions that are chaotic, so that rounding decides how fast arms whip: ten times the usual.
ENERGY_TOLERANCE = {"float32": 2e-4, "float64": 1e-5}


@pytest.mark.parametrize(
    "name",
    with_slow(dynamics.list_robots(), *(set(dynamics.list_robots()) - {"double_pendulum"})),
)
@dtype_with_slow("float32")
def test_runge_kutta_conserves_energy(name: str, dtype: np.dtype) -> None:
    """Ten seconds of free motion, in which arms whip through the air at a hundred rad/s.

    Relative to the largest kinetic energy; of a mobile base, which gravity leaves alone, to all.
    """
    loaded = dynamics.load_robot(name)
    free = np.zeros(loaded.nv)
    robot = loaded.replace(damping=free, friction=free, stop_stiffness=free, stop_damping=free)
    rng = np.random.default_rng(1)
    start = dynamics.integrate(robot, robot.q_default, rng.uniform(-0.5, 0.5, robot.nv), 1.0)
    v = rng.uniform(-1, 1, robot.nv)
    q, v = rollout(robot, start, v, 0.0, steps=10_000, integrator="rk4")
    energy = np.asarray(energies(robot, q, v), float)
    potential = np.asarray(energies(robot, q, np.zeros_like(v)), float)
    error = np.abs(energy - energy[0]) / (energy - potential).max()
    assert error.max() < ENERGY_TOLERANCE[dtype.name]


LARGE_SWING = np.array([1.2, 0.8])  # rad


def energy_errors(pendulum: Robot, dt: float) -> np.ndarray:
    """Error of the energy over ten seconds of free swinging, relative to the swing's energy."""
    q, v = rollout(pendulum, LARGE_SWING, 0.0, 0.0, steps=20_000, dt=dt)
    last = round(10 / dt) + 1
    energy = np.asarray(energies(pendulum, q, v), float)[:last]
    height = np.asarray(energies(pendulum, q, 0 * v), float)[:last]
    return (energy - energy[0]) / np.ptp(height)


def test_energy_drift_of_euler_is_of_first_order(pendulum: Robot, x64: None) -> None:
    """Coriolis forces are explicit: the mean error grows by 2.5 % of the swing in ten seconds."""
    drift = []
    for dt in (STEP, STEP / 2):
        error = energy_errors(pendulum, dt)
        drift.append(error[-len(error) // 5 :].mean())
    assert abs(drift[0]) < 0.04
    assert 1.7 < drift[0] / drift[1] < 2.3


def test_energy_drift_of_euler_is_that_of_mujocos(
    pendulum: Robot, pendulum_path: Path, x64: None
) -> None:
    mujoco = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_path(str(pendulum_path))
    model.opt.timestep = STEP
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    data = mujoco.MjData(model)
    data.qpos[:] = LARGE_SWING
    positions, velocities = np.zeros((2, 10_001, 2))
    positions[0] = LARGE_SWING
    for i in range(1, 10_001):
        mujoco.mj_step(model, data)
        positions[i], velocities[i] = data.qpos, data.qvel
    energy = np.asarray(energies(pendulum, positions, velocities))
    height = np.asarray(energies(pendulum, positions, 0 * velocities))
    theirs = (energy - energy[0]) / np.ptp(height)
    np.testing.assert_allclose(energy_errors(pendulum, STEP), theirs, rtol=0, atol=1e-9)


# --- Runge-Kutta ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Robot:
    """A body that tumbles."""
    path: Path = tmp_path_factory.mktemp("top") / "top.urdf"
    path.write_text(
        '<robot name="top"><link name="body"><inertial><mass value="2"/><inertia ixx="0.1" '
        'iyy="0.2" izz="0.15" ixy="0" ixz="0" iyz="0"/></inertial></link></robot>'
    )
    return dynamics.load_urdf(path, floating_base=True)


@pytest.mark.parametrize("which", with_slow(["pendulum", "top"], "top"))
def test_runge_kutta_is_of_fourth_order(
    which: str, request: pytest.FixtureRequest, x64: None
) -> None:
    """On the manifold, too: half the step, a sixteenth of the error."""
    robot = request.getfixturevalue(which)
    q, v, tau = LARGE_SWING, np.zeros(2), 0.0
    if which == "top":
        q, v, tau = np.asarray(robot.q_default), np.array([1.0, 2, 3, 4, -5, 6]), 0.3

    def end(steps: int) -> np.ndarray:  # of the first second, all in one program
        qs, _ = rollout(robot, q, v, tau, steps=1000, dt=1.0 / steps, integrator="rk4")
        return qs[steps]

    exact = end(1000)
    coarse, fine = (np.linalg.norm(dynamics.difference(robot, exact, end(n))) for n in (100, 200))
    assert coarse < 1e-5
    assert 14 < coarse / fine < 18


def test_runge_kutta_has_explicit_damping(slider: Robot, x64: None) -> None:
    """The first terms of an exponential: one joint has a closed form."""
    robot = slider.replace(damping=np.array([30.0]))
    _, v = rollout(robot, 0.0, 1.0, 0.0, dt=1e-2, steps=50, integrator="rk4")
    x = -1e-2 * 30.0 / 2.0
    factor = 1 + x + x**2 / 2 + x**3 / 6 + x**4 / 24
    np.testing.assert_allclose(v[:, 0], factor ** np.arange(51), rtol=1e-12)


def test_runge_kutta_has_friction_and_stops(slider: Robot, x64: None) -> None:
    """Through a stop and back, as Euler's steps of a hundredth of the size do."""
    robot = slider.replace(friction=np.array([1.0]), stop_stiffness=np.array([2e3]))
    fine, _ = rollout(robot, 0.4, 1.0, 0.0, steps=20_000, dt=1e-5)
    q, _ = rollout(robot, 0.4, 1.0, 0.0, steps=200, dt=1e-3, integrator="rk4")
    assert q.max() > 0.51
    np.testing.assert_allclose(q, fine[::100], rtol=0, atol=2e-5)


def test_runge_kutta_with_external_forces(slider: Robot, x64: None) -> None:
    """A constant force moves a cart along a parabola, exactly."""
    force = np.zeros((1, 6))
    force[0, 0] = 3.0
    step = jax.jit(partial(dynamics.step, integrator="rk4"))
    q, v = step(slider, *np.array([[0.1], [0.2], [1.0]]), 0.5, force)
    assert float(v[0]) == pytest.approx(0.2 + 0.5 * 2.0, rel=1e-14)
    assert float(q[0]) == pytest.approx(0.1 + 0.5 * 0.2 + 0.5**2 / 2 * 2.0, rel=1e-14)


def test_unknown_integrators_are_refused(slider: Robot) -> None:
    with pytest.raises(ConfigError, match=r"integrator='leapfrog', expected one of 'euler', 'rk4'"):
        dynamics.step(slider, [0.0], [0.0], [0.0], STEP, integrator="leapfrog")  # type: ignore[arg-type]


# --- Damping, friction, stops ---------------------------------------------------------------------


@pytest.mark.parametrize("damping", [1e2, 1e5, 1e8])
@dtype_with_slow("float64")
def test_huge_damping_is_stable(panda: Robot, damping: float, dtype: np.dtype) -> None:
    """Implicit damping lets a joint creep along at the speed where it balances gravity."""
    robot = panda.replace(damping=np.full(7, damping))
    _, v = rollout(robot, panda.q_default, 1.0, 0.0, dt=1e-2)
    assert np.isfinite(v).all()
    creep = np.asarray(dynamics.gravity_forces(panda, panda.q_default)) / damping
    speed = np.abs(v).max(axis=1)
    assert speed[-1] <= 1.5 * np.abs(creep).max() + 1e-12
    assert speed.max() < 2.0


def test_viscous_damping_is_implicit_euler(slider: Robot, x64: None) -> None:
    """One joint has a closed form: `v+ = (v + h tau / m) / (1 + h d / m)`."""
    mass, damping, tau, v0 = 2.0, 30.0, 4.0, 1.0
    robot = slider.replace(damping=np.array([damping]))
    _, v = rollout(robot, 0.0, v0, tau, dt=1e-2)
    expected = v0
    for actual in v[1:50, 0]:
        expected = (expected + 1e-2 * tau / mass) / (1 + 1e-2 * damping / mass)
        assert actual == pytest.approx(expected, rel=1e-13)


@dtype_with_slow("float64")
def test_friction_holds_a_resting_joint(panda: Robot, dtype: np.dtype) -> None:
    """It creeps at the speed where smoothed friction balances gravity, and no faster."""
    friction = np.full(7, 60.0)
    gravity = np.asarray(dynamics.gravity_forces(panda, panda.q_default), float)
    assert 20 < np.abs(gravity).max() < 60
    robot = panda.replace(friction=friction)
    q, v = rollout(robot, panda.q_default, 0.0, 0.0)
    creep = -FRICTION_VELOCITY * gravity / np.sqrt(friction**2 - gravity**2)
    np.testing.assert_allclose(v[-1], creep, rtol=0.02, atol=1e-6)
    assert np.abs(q[-1] - q[0]).max() < 2.0 * FRICTION_VELOCITY  # rad, in two seconds


def test_friction_brakes_a_moving_joint_by_coulombs_law(slider: Robot, x64: None) -> None:
    """Deceleration is friction over mass, whatever the speed, to first order in the step."""
    robot = slider.replace(friction=np.array([3.0]))
    _, v = rollout(robot, 0.0, 1.5, 0.0)
    times = STEP * np.arange(len(v))
    sliding, stopped = times < 0.9, times > 1.1
    np.testing.assert_allclose(v[sliding, 0], 1.5 - 1.5 * times[sliding], atol=5e-3)
    assert np.abs(v[stopped]).max() < 1e-3 * FRICTION_VELOCITY


@pytest.mark.parametrize("friction", [0.5, 5.0, 500.0, 5e6])
@dtype_with_slow("float64")
def test_any_friction_stops_the_arm_and_never_drives_it(
    panda: Robot, friction: float, dtype: np.dtype
) -> None:
    """Without gravity the kinetic energy only falls, and the arm does not chatter at the end."""
    robot = panda.replace(friction=np.full(7, friction), gravity=np.zeros(3))
    q, v = rollout(robot, panda.q_default, 0.7, 0.0)
    energy = np.asarray(energies(robot, q, v), float)
    assert np.diff(energy).max() <= 1e-6 * energy[0]
    if friction >= 5.0:
        assert np.abs(v[-1]).max() < 0.5 * FRICTION_VELOCITY


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("stiffness", [1e4, 1e9])
def test_soft_stops_hold_a_joint(
    slider: Robot, side: int, stiffness: float, dtype: np.dtype
) -> None:
    """The cart is pushed into its stop, which is critically damped, and stays near the limit."""
    mass, push = 2.0, 20.0
    damping = 2 * np.sqrt(mass * stiffness)
    stops = {"stop_stiffness": np.array([stiffness]), "stop_damping": np.array([damping])}
    q, v = rollout(slider.replace(**stops), side * 0.4, side * 1.0, side * push)
    overshoot = side * q[:, 0] - 0.5
    arrival = np.sqrt(1.0**2 + 2 * push / mass * 0.1)  # m/s, after 0.1 m
    # Closed form of the critically damped spring, and what the cart moves in the step it arrives.
    bound = arrival / np.sqrt(stiffness / mass) / np.e + push / stiffness + arrival * STEP
    assert 0 < overshoot.max() < bound
    # At rest the spring balances the push.
    assert overshoot[-1] == pytest.approx(push / stiffness, abs=1e-6)
    assert np.abs(v[-1]).max() < 1e-2
    free, _ = rollout(slider, side * 0.4, side * 1.0, side * push)
    assert side * free[-1, 0] > 10.0  # without stops it would be far away


STEP_ONCE = jax.jit(lambda robot, q, v, tau: dynamics.step(robot, q, v, tau, STEP))


@given(q=st.floats(-0.5, 0.5), v=st.floats(-5, 5), tau=st.floats(-50, 50))
def test_soft_stops_are_inactive_inside_the_limits(
    slider: Robot, x64: None, q: float, v: float, tau: float
) -> None:
    stopped = slider.replace(stop_stiffness=np.array([1e6]), stop_damping=np.array([1e4]))
    state = (np.array([q]), np.array([v]), np.array([tau]))
    for actual, expected in zip(STEP_ONCE(stopped, *state), STEP_ONCE(slider, *state), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_stops_of_joints_without_limits_do_nothing(pendulum: Robot, x64: None) -> None:
    stopped = pendulum.replace(stop_stiffness=np.full(2, 1e6), stop_damping=np.full(2, 1e4))
    state = (np.array([100.0, -100.0]), np.ones(2), np.ones(2))
    for actual, expected in zip(
        STEP_ONCE(stopped, *state), STEP_ONCE(pendulum, *state), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)
        assert np.isfinite(actual).all()


# --- One step -------------------------------------------------------------------------------------


def test_step_is_semi_implicit_euler(panda: Robot, x64: None) -> None:
    rng = np.random.default_rng(0)
    q, v, tau = panda.q_default, rng.uniform(-3, 3, 7), rng.uniform(-20, 20, 7)
    forces = rng.uniform(-20, 20, (7, 6))

    @jax.jit
    def both(q: Array, v: Array, tau: Array, forces: Array) -> tuple[State, Array]:
        a = dynamics.forward_dynamics(panda, q, v, tau, forces)
        return dynamics.step(panda, q, v, tau, STEP, forces), a

    (q_next, v_next), a = both(q, v, tau, forces)
    np.testing.assert_allclose(v_next, v + STEP * a, rtol=1e-12)
    np.testing.assert_allclose(q_next, q + STEP * np.asarray(v_next), rtol=1e-15)


def test_difference_undoes_integrate(panda: Robot, x64: None) -> None:
    rng = np.random.default_rng(0)
    q, v = rng.uniform(*panda.position_limits.T), rng.uniform(-3, 3, 7)
    moved = dynamics.integrate(panda, q, v, 0.5)
    np.testing.assert_allclose(dynamics.difference(panda, q, moved), 0.5 * v, atol=1e-15)
    np.testing.assert_array_equal(dynamics.neutral(panda), np.zeros(7))


@pytest.mark.parametrize("integrator", with_slow(["euler", "rk4"], "rk4"))
def test_derivatives_of_a_step_agree_with_differences(
    arm: Robot, integrator: Integrator, x64: None
) -> None:
    """With damping, friction (of joints at rest, too) and stops (of joints beyond) at work."""
    robot = arm.replace(
        damping=np.full(2, 0.5),
        friction=np.full(2, 0.3),
        stop_stiffness=np.full(2, 1e4),
        stop_damping=np.full(2, 10.0),
    )
    states = np.array([  # q, v, tau
        [2.01, -0.3, 0.3, 0.0, -10, 5],
        [0.4, -2.02, 0.005, -0.02, 3, -7],
        [1.2, 0.7, -1.0, 0.01, 0, 4],
        [-2.05, 2.01, 0.0, 0.0, 8, -1],
    ])  # fmt: skip

    def step(x: Array) -> Array:
        return jnp.concatenate(dynamics.step(robot, *jnp.split(x, 3), STEP, integrator=integrator))

    h = 1e-6

    @jax.jit
    @jax.vmap
    def derivatives(x: Array) -> tuple[Array, Array, Array]:
        plus, minus = jax.vmap(jax.vmap(step))(x + h * jnp.stack([jnp.eye(6), -jnp.eye(6)]))
        _, push = jax.linearize(step, x)
        pull = jax.linear_transpose(push, x)
        forward, reverse = jax.vmap(push)(jnp.eye(6)).T, jax.vmap(pull)(jnp.eye(4))[0]
        return (plus - minus).T / (2 * h), forward, reverse

    expected, *found = (np.asarray(x) for x in derivatives(states))
    largest = np.abs(expected).max(axis=(1, 2), keepdims=True)
    for actual in found:
        assert np.isfinite(actual).all()
        assert (np.abs(actual - expected) <= 1e-6 * largest).all()
