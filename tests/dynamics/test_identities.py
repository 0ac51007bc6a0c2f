"""Identities of Lagrangian mechanics, and of the functions among themselves, in float64.

They are checked on a branched robot with revolute and prismatic joints; what only the Panda's
serial chain does differently is compared with Pinocchio and MuJoCo. Errors are relative to the
largest entry of the reference, for each state on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import Array

from fraxenv import dynamics
from fraxenv.dynamics import Robot
from fraxenv.dynamics.math import rotation

STATES = 50
TOLERANCE = 1e-10
DIFFERENCES_TOLERANCE = 1e-6

# Formulas are what is tested here, and compiling is what takes time.
FAST = {"xla_backend_optimization_level": 0}

pytestmark = pytest.mark.usefixtures("x64")


@pytest.fixture(scope="module")
def robot(tree: Robot) -> Robot:
    """The branched robot with rotors, in a tilted gravity."""
    return tree.replace(armature=np.linspace(0.0, 0.3, tree.nv))


def states(robot: Robot) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Configurations in the whole joint range, large velocities, and torques."""
    rng = np.random.default_rng(3)
    lower, upper = np.clip(robot.position_limits, -np.pi, np.pi).T
    q = rng.uniform(lower, upper, (STATES, robot.nv))
    v, tau = rng.uniform(-10, 10, q.shape), rng.uniform(-50, 50, q.shape)
    return q, v, tau


def over(f: Callable[..., Array], *batches: np.ndarray) -> np.ndarray:
    """`f` of one state, for stacked ones."""
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(f), compiler_options=FAST)(*batches))


def assert_close(actual: np.ndarray, expected: np.ndarray, tolerance: float = TOLERANCE) -> None:
    assert actual.shape == expected.shape
    axes = tuple(range(1, expected.ndim))
    error = np.abs(actual - expected).max(axis=axes)
    assert np.all(error <= tolerance * np.abs(expected).max(axis=axes)), error.max()


# --- Mechanics ------------------------------------------------------------------------------------


def both_sides(robot: Robot, q: Array, v: Array, tau: Array, f: Array) -> dict[str, Array]:
    """Left and right sides of the identities, in one program because compiling takes longest."""

    def mass_matrix(q: Array) -> Array:
        return dynamics.crba(robot, q)

    def potential_energy(q: Array) -> Array:
        return dynamics.potential_energy(robot, q)

    def energy(q: Array, v: Array) -> Array:
        return dynamics.kinetic_energy(robot, q, v) + dynamics.potential_energy(robot, q)

    kin = dynamics.compute_kinematics(robot, q)
    M, dM = mass_matrix(q), jax.jacfwd(mass_matrix)(q)  # dM[i, j, k] = dM_ij / dq_k
    dU = jax.grad(potential_energy)(q)
    bias = dynamics.bias_forces(robot, q, v, kin=kin)
    gravity = dynamics.gravity_forces(robot, q, kin=kin)
    a = dynamics.forward_dynamics(robot, q, v, tau, f, kin=kin)
    free = dynamics.forward_dynamics(robot, q, v, tau, kin=kin)

    summed = jnp.diag(jnp.asarray(robot.armature))
    for i, body in enumerate(robot.topology.body_names):
        J, R = dynamics.frame_jacobian(robot, q, body, kin=kin), kin.rotation[i]
        linear = J[:3] - rotation.skew(R @ robot.com[i]) @ J[3:]
        summed += robot.mass[i] * linear.T @ linear
        summed += J[3:].T @ R @ robot.inertia[i] @ R.T @ J[3:]

    coriolis = jnp.einsum("ijk,j,k->i", dM, v, v) - 0.5 * jnp.einsum("jki,j,k->i", dM, v, v)
    return {
        "mass matrix": M,
        "sum of J^T G J": summed,
        "gravity": gravity,
        "gradient of potential energy": dU,
        "potential energy": potential_energy(q),
        "height of the centre of mass": dynamics.center_of_mass(robot, q),
        "bias": bias,
        "Christoffel symbols": coriolis + dU,
        "work of Coriolis forces": v @ (bias - gravity),
        "change of the mass matrix": v @ jnp.einsum("ijk,k->ij", dM, v) @ v / 2,
        "rate of energy": jax.jvp(energy, (q, v), (v, free))[1],
        "power": tau @ v,
        "inverse of forward dynamics": dynamics.rnea(robot, q, v, a, f, kin=kin),
        "torques": tau,
    }


@pytest.fixture(scope="module")
def sides(robot: Robot, precision: Callable[..., Any]) -> dict[str, np.ndarray]:
    forces = np.random.default_rng(4).uniform(-50, 50, (STATES, robot.nv, 6))
    with precision("float64"):
        return over(lambda *x: both_sides(robot, *x), *states(robot), forces)


def test_mass_matrix_is_symmetric_and_positive_definite(sides: dict[str, np.ndarray]) -> None:
    M = sides["mass matrix"]
    np.testing.assert_array_equal(M, M.transpose(0, 2, 1))
    assert np.linalg.eigvalsh(M).min() > 1e-3


def test_mass_matrix_is_the_bodies_kinetic_energy(sides: dict[str, np.ndarray]) -> None:
    assert_close(sides["mass matrix"], sides["sum of J^T G J"])


def test_gravity_is_the_gradient_of_potential_energy(sides: dict[str, np.ndarray]) -> None:
    assert_close(sides["gravity"], sides["gradient of potential energy"])


def test_potential_energy_is_the_height_of_the_centre_of_mass(
    robot: Robot, sides: dict[str, np.ndarray]
) -> None:
    weight = np.sum(robot.mass) * robot.gravity
    expected = -sides["height of the centre of mass"] @ weight
    np.testing.assert_allclose(sides["potential energy"], expected, rtol=TOLERANCE)


def test_bias_follows_from_christoffel_symbols(sides: dict[str, np.ndarray]) -> None:
    assert_close(sides["bias"], sides["Christoffel symbols"])


def test_coriolis_forces_only_do_the_work_that_changes_the_mass_matrix(
    sides: dict[str, np.ndarray],
) -> None:
    """`v^T (M_dot - 2 C) v = 0`, the passivity that controllers rely on."""
    work, stored = sides["work of Coriolis forces"], sides["change of the mass matrix"]
    assert np.abs(work - stored).max() <= TOLERANCE * np.abs(stored).max()


def test_power_is_the_rate_of_energy(sides: dict[str, np.ndarray]) -> None:
    rate, power = sides["rate of energy"], sides["power"]
    assert np.abs(rate - power).max() <= TOLERANCE * np.abs(power).max()


def test_inverse_dynamics_undoes_forward_dynamics(sides: dict[str, np.ndarray]) -> None:
    """With external forces; so inverse dynamics is `M a + bias - J^T f` too."""
    assert_close(sides["inverse of forward dynamics"], sides["torques"])


# --- Kinematics -----------------------------------------------------------------------------------


speeds = st.lists(st.floats(-10, 10), min_size=7, max_size=7).map(np.array)
displacements = st.lists(st.floats(-np.pi, np.pi), min_size=7, max_size=7).map(np.array)


@pytest.fixture(scope="module")
def jacobians(tree: Robot) -> Callable[..., tuple[Array, ...]]:
    """`J v`, the velocity that the pose has, `J_dot`, and the rate that `J` has."""

    @jax.jit
    def jacobians(q: Array, v: Array) -> tuple[Array, ...]:
        frame = "left_tip"
        (_, R), (p_dot, R_dot) = jax.jvp(lambda q: dynamics.frame_pose(tree, q, frame), (q,), (v,))
        W = R_dot @ R.T
        velocity = jnp.concatenate([p_dot, jnp.stack([W[2, 1], W[0, 2], W[1, 0]])])
        J, rate = jax.jvp(lambda q: dynamics.frame_jacobian(tree, q, frame), (q,), (v,))
        return J @ v, velocity, dynamics.frame_jacobian_dot(tree, q, v, frame), rate

    return jacobians


@given(q=displacements, v=speeds)
def test_jacobian_is_the_derivative_of_the_pose(
    jacobians: Callable[..., tuple[Array, ...]], q: np.ndarray, v: np.ndarray
) -> None:
    Jv, velocity, J_dot, rate = jacobians(q, v)
    tolerance = 1e-13 * (1 + np.abs(v).max())
    np.testing.assert_allclose(Jv, velocity, rtol=0, atol=tolerance)
    np.testing.assert_allclose(J_dot, rate, rtol=0, atol=tolerance)


# --- Batches, shared kinematics and derivatives ---------------------------------------------------


def apart(robot: Robot, q: Array, v: Array, tau: Array) -> list[Array]:
    """All functions, each with a forward kinematics of its own."""
    frame = robot.frame_names[-1]
    return [
        *dynamics.frame_pose(robot, q, frame),
        dynamics.frame_jacobian(robot, q, frame),
        dynamics.frame_jacobian_dot(robot, q, v, frame),
        dynamics.rnea(robot, q, v, tau),
        dynamics.crba(robot, q),
        dynamics.bias_forces(robot, q, v),
        dynamics.gravity_forces(robot, q),
        dynamics.generalized_forces(robot, q, jnp.outer(tau, jnp.arange(6.0))),
        dynamics.forward_dynamics(robot, q, v, tau),
        dynamics.center_of_mass(robot, q),
        dynamics.kinetic_energy(robot, q, v),
        dynamics.potential_energy(robot, q),
        *dynamics.step(robot, q, v, tau, 1e-3),
    ]


def together(robot: Robot, q: Array, v: Array, tau: Array) -> list[Array]:
    """The same, with one forward kinematics for all."""
    frame = robot.frame_names[-1]
    terms = dynamics.compute_terms(robot, q, v)
    kin = terms.kin
    return [
        *dynamics.frame_pose(robot, q, frame, kin=kin),
        dynamics.frame_jacobian(robot, q, frame, kin=kin),
        dynamics.frame_jacobian_dot(robot, q, v, frame, kin=kin),
        dynamics.rnea(robot, q, v, tau, kin=kin),
        terms.mass_matrix,
        terms.bias,
        dynamics.gravity_forces(robot, q, kin=kin),
        dynamics.generalized_forces(robot, q, jnp.outer(tau, jnp.arange(6.0)), kin=kin),
        dynamics.forward_dynamics(robot, q, v, tau, kin=kin),
        dynamics.center_of_mass(robot, q, kin=kin),
        dynamics.kinetic_energy(robot, q, v, kin=kin),
        dynamics.potential_energy(robot, q, kin=kin),
        *dynamics.step(robot, q, v, tau, 1e-3, terms=terms),
    ]


def test_a_batch_equals_a_loop_and_shared_kinematics_change_nothing(robot: Robot) -> None:
    few = [x[:5] for x in states(robot)]
    batch = over(lambda *x: together(robot, *x), *few)
    single = jax.jit(lambda *x: apart(robot, *x))
    loop = [single(*x) for x in zip(*few, strict=True)]
    for actual, expected in zip(batch, zip(*loop, strict=True), strict=True):
        assert_close(actual, np.stack(expected), 1e-13)


def test_reverse_mode_agrees_with_differences(robot: Robot) -> None:
    """Forward mode is compared with Pinocchio's analytical derivatives."""

    def forward_dynamics(*x: Array) -> Array:
        return dynamics.forward_dynamics(robot, *x)

    batch = states(robot)
    f = jax.jit(jax.vmap(forward_dynamics))
    for k, actual in enumerate(over(jax.jacrev(forward_dynamics, (0, 1, 2)), *batch)):
        assert_close(actual, differences(f, batch, k, 1e-5), DIFFERENCES_TOLERANCE)


def differences(f: Callable[..., Array], x: tuple, k: int, h: float) -> np.ndarray:
    """Central differences (states, out, in) of a batched function by its argument k."""
    columns = []
    for e in np.eye(x[k].shape[1]):
        plus, minus = (f(*x[:k], x[k] + sign * h * e, *x[k + 1 :]) for sign in (1, -1))
        columns.append((np.asarray(plus) - np.asarray(minus)) / (2 * h))
    return np.stack(columns, axis=-1)


# --- Parameters -----------------------------------------------------------------------------------

PARAMETERS = ("mass", "com", "inertia", "gravity", "armature")


def test_parameters_can_be_batched() -> None:
    pendulum = dynamics.load_robot("double_pendulum")
    q, v, tau = (x[0] for x in states(pendulum))
    masses = np.array([0.5, 1.0, 2.0])[:, None] * pendulum.mass

    @jax.jit
    @chex.assert_max_traces(n=1)
    def acceleration(robot: Robot) -> Array:
        return dynamics.forward_dynamics(robot, q, v, tau)

    batched = over(lambda mass: acceleration(pendulum.replace(mass=mass)), masses)
    for mass, expected in zip(masses, batched, strict=True):
        actual = np.asarray(acceleration(pendulum.replace(mass=mass)))
        assert_close(actual[None], expected[None], 1e-12)
    assert np.ptp(batched, axis=0).min() > 0.1

    # The robot as a whole is a pytree, and may be what is batched.
    robots = jax.tree.map(lambda x: np.stack([x] * 3), pendulum).replace(mass=masses)
    assert_close(over(acceleration, robots), batched, 1e-12)


def test_derivatives_by_parameters_agree_with_differences(arm: Robot) -> None:
    q, v, tau = (x[0] for x in states(arm))
    values = {name: np.asarray(getattr(arm, name)) for name in PARAMETERS}
    sizes = np.cumsum([value.size for value in values.values()])[:-1]
    everything = np.concatenate([value.ravel() for value in values.values()])

    def acceleration(flat: Array) -> Array:
        parts = zip(values.items(), jnp.split(flat, sizes), strict=True)
        robot = arm.replace(**{name: x.reshape(value.shape) for (name, value), x in parts})
        return dynamics.forward_dynamics(robot, q, v, tau)

    expected = differences(jax.jit(jax.vmap(acceleration)), (everything[None],), 0, 1e-6)[0]

    @jax.jit
    def both(flat: Array) -> tuple[Array, Array]:
        return jax.jacfwd(acceleration)(flat), jax.jacrev(acceleration)(flat)

    for actual in map(np.asarray, both(everything)):
        assert np.isfinite(actual).all()
        blocks = zip(*(np.split(x, sizes, axis=1) for x in (actual, expected)), strict=True)
        for ours, reference in blocks:
            assert np.abs(reference).max() > 0
            assert_close(ours[None], reference[None], DIFFERENCES_TOLERANCE)
