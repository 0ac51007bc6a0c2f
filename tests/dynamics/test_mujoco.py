"""The Panda against MuJoCo C, which reads our URDF itself; Runge-Kutta of every bundled robot.

MuJoCo merges links that are welded together, as we do, so that both have seven bodies. Contacts and
joint limits are switched off: they are not part of what is compared. Errors of single evaluations
are relative to the largest entry of the reference, for each state on its own.
"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support import dtype_with_slow, with_slow

from fraxenv import dynamics
from fraxenv.cross_check.comparison import comparable, driven
from fraxenv.cross_check.mujoco import MujocoOracle
from fraxenv.dynamics import Robot

mujoco = pytest.importorskip("mujoco")

STATES = 100
TOLERANCE = {"float32": 1e-4, "float64": 1e-10}
ROLLOUT_TOLERANCE = {"float32": 1e-2, "float64": 1e-6}  # rad
STEP = 1e-3  # s
DAMPING = np.array([3.0, 3.0, 2.5, 2.5, 1.2, 1.2, 0.6])
ARMATURE = np.array([0.2, 0.2, 0.15, 0.15, 0.1, 0.1, 0.05])

Arrays = dict[str, np.ndarray]


@pytest.fixture
def model(panda_path: Path) -> object:
    model = mujoco.MjModel.from_xml_path(str(panda_path))
    disabled = (mujoco.mjtDisableBit.mjDSBL_CONTACT, mujoco.mjtDisableBit.mjDSBL_LIMIT)
    for bit in disabled:
        model.opt.disableflags |= int(bit)
    model.opt.integrator = int(mujoco.mjtIntegrator.mjINT_EULER)
    model.opt.timestep = STEP
    model.dof_damping[:] = DAMPING
    model.dof_armature[:] = ARMATURE
    return model


@pytest.fixture(scope="module")
def robot(panda: Robot) -> Robot:
    return panda.replace(damping=DAMPING, armature=ARMATURE)


def random_states(robot: Robot, dtype: np.dtype) -> Arrays:
    """The whole joint range, and speeds of several times the limits."""
    rng = np.random.default_rng(1)
    states = {
        "q": rng.uniform(*robot.position_limits.T, (STATES, robot.nv)),
        "v": rng.uniform(-10.0, 10.0, (STATES, robot.nv)),
        "tau": rng.uniform(-1.0, 1.0, (STATES, robot.nv)) * robot.effort_limits,
        "forces": rng.uniform(-50.0, 50.0, (STATES, robot.nv, 6)),
    }
    return {name: x.astype(dtype) for name, x in states.items()}


def ours(robot: Robot, q: Array, v: Array, tau: Array, forces: Array) -> dict[str, Array]:
    kin = dynamics.compute_kinematics(robot, q)
    damped = tau - jnp.asarray(DAMPING, v.dtype) * v
    q_next, v_next = dynamics.step(robot, q, v, tau, STEP, forces)
    return {
        "mass matrix": dynamics.crba(robot, q, kin=kin),
        "bias": dynamics.bias_forces(robot, q, v, kin=kin),
        "acceleration": dynamics.forward_dynamics(robot, q, v, damped, forces, kin=kin),
        "configuration after a step": q_next,
        "velocity after a step": v_next,
    }


def theirs(model: object, q: np.ndarray, v: np.ndarray, tau: np.ndarray, f: np.ndarray) -> Arrays:
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.qfrc_applied[:] = q, v, tau
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    # Theirs acts at the centre of mass, ours at the origin of the body's frame.
    data.xfrc_applied[1:] = f
    data.xfrc_applied[1:, 3:] += np.cross(data.xpos[1:] - data.xipos[1:], f[:, :3])
    mujoco.mj_forward(model, data)
    mass_matrix = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, mass_matrix)
    result = {
        "mass matrix": mass_matrix,
        "bias": data.qfrc_bias.copy(),
        "acceleration": data.qacc.copy(),
    }
    mujoco.mj_step(model, data)
    result["configuration after a step"] = data.qpos.copy()
    result["velocity after a step"] = data.qvel.copy()
    return result


def test_bodies_are_the_same(robot: Robot, model: object) -> None:
    names = [model.body(i).name for i in range(model.nbody)]
    assert names == ["world", *robot.topology.body_names]
    assert model.opt.timestep == STEP
    np.testing.assert_allclose(model.body_mass[1:], robot.mass, rtol=1e-14)


@dtype_with_slow("float32")
def test_agrees_with_mujoco(robot: Robot, model: object, dtype: np.dtype) -> None:
    states = random_states(robot, dtype)
    result = jax.jit(jax.vmap(lambda s: ours(robot, **s)))(states)
    rows = [theirs(model, *(x[i].astype(float) for x in states.values())) for i in range(STATES)]
    for name, value in result.items():
        assert value.dtype == dtype
        reference = np.stack([row[name] for row in rows])
        axes = tuple(range(1, reference.ndim))
        error = np.abs(np.asarray(value) - reference).max(axis=axes)
        scale = np.abs(reference).max(axis=axes)
        assert (error <= TOLERANCE[dtype.name] * scale).all(), (
            f"{name}: {(error / scale).max():.3g}"
        )


@dtype_with_slow("float64")
def test_agrees_with_mujoco_over_five_seconds(robot: Robot, model: object, dtype: np.dtype) -> None:
    """Four arms, each under its own random torques, new ones every 0.1 s.

    Torques are at most 30 % of the effort limits, about what gravity asks of the arm. It falls and
    swings through more than a turn at up to ten rad/s and more, which the damping above keeps from
    being chaotic: with a third of that damping, arms that linger near an unstable balance amplify
    float32's rounding to 1e-2 rad and more within the five seconds, which says nothing about us.
    """
    arms, pieces, steps_per_piece = 4, 50, 100
    rng = np.random.default_rng(2)
    tau = rng.uniform(-0.3, 0.3, (pieces, arms, robot.nv)) * robot.effort_limits
    tau = tau.astype(dtype)
    q0 = np.tile(robot.q_default, (arms, 1)).astype(dtype)

    @jax.vmap
    def step(q: Array, v: Array, tau: Array) -> tuple[Array, Array]:
        return dynamics.step(robot, q, v, tau, STEP)

    @jax.jit
    def rollout(q0: Array, tau: Array) -> Array:
        def one(carry: tuple[Array, Array], tau: Array) -> tuple[tuple[Array, Array], Array]:
            carry = step(*carry, tau)
            return carry, carry[0]

        tau = jnp.repeat(tau, steps_per_piece, axis=0)
        return jax.lax.scan(one, (q0, jnp.zeros_like(q0)), tau)[1]

    result = np.asarray(rollout(q0, tau))
    reference = np.zeros(result.shape)
    fastest = 0.0
    for arm in range(arms):
        data = mujoco.MjData(model)
        data.qpos[:] = q0[arm]
        for i in range(pieces * steps_per_piece):
            data.qfrc_applied[:] = tau[i // steps_per_piece, arm]
            mujoco.mj_step(model, data)
            reference[i, arm] = data.qpos
            fastest = max(fastest, np.abs(data.qvel).max())
    assert np.isfinite(reference).all()
    assert np.ptp(reference, axis=0).max() > 2 * np.pi
    assert 5.0 < fastest < 20.0
    assert np.abs(result - reference).max() <= ROLLOUT_TOLERANCE[dtype.name]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", with_slow(dynamics.list_robots(), "cartpole", "g1", "iiwa14", "ur10")
)
def test_runge_kutta_agrees_with_mujoco(name: str, x64: None) -> None:
    """Five seconds under random torques, and single steps along the way.

    Everything is explicit: joints are damped within 0.2 s as they feel each other's inertia, and
    their torques are those of 30 rad/s^2 at most.
    """
    steps, period, amplitude = 5000, 100, 30.0
    robot = dynamics.load_robot(name)
    felt = 1 / np.diagonal(np.linalg.inv(dynamics.crba(robot, np.asarray(robot.q_default))))
    felt = np.where(driven(robot), felt, 0.0)
    robot = comparable(robot).replace(damping=felt / 0.2)
    oracle = MujocoOracle.from_robot(robot, STEP)
    oracle.model.opt.integrator = int(mujoco.mjtIntegrator.mjINT_RK4)
    rng = np.random.default_rng(3)
    tau = felt * rng.uniform(-amplitude, amplitude, (steps // period, robot.nv))
    tau = tau.repeat(period, axis=0)

    def step(state: tuple[Array, Array], tau: Array) -> tuple[tuple[Array, Array], Array]:
        moved = dynamics.step(robot, *state, tau, STEP, integrator="rk4")
        return moved, state

    start = np.asarray(robot.q_default, float), np.zeros(robot.nv)
    q, v = map(np.asarray, jax.jit(lambda s, t: jax.lax.scan(step, s, t)[1])(start, tau))
    assert np.abs(v).max() > 1.0
    for i in range(0, steps - 1, 50):
        q_next, v_next = oracle.step(q[i], v[i], tau[i], robot.damping)
        scale = max(np.abs(v_next).max(), 1.0)
        assert np.abs(dynamics.difference(robot, q_next, q[i + 1])).max() <= 1e-9
        assert np.abs(v_next - v[i + 1]).max() <= 1e-9 * scale
    reference = oracle.rollout(start[0], tau)
    last = jax.vmap(lambda a, b: dynamics.difference(robot, a, b))(reference[:-1], q[1:])
    assert np.abs(last).max() < ROLLOUT_TOLERANCE["float64"]
