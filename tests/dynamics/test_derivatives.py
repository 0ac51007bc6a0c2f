"""Exact derivatives against automatic and numerical differentiation, for every kind of joint.

Those of fixed and floating robots are compared with Pinocchio's in test_pinocchio.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fraxenv import dynamics
from fraxenv.cross_check.quantities import States, random_states
from fraxenv.dynamics import Robot

STATES = 4
DT = 1e-3
FAST = {"xla_backend_optimization_level": 0}


def rough(robot: Robot) -> Robot:
    """With everything that resists: rotors, damping, friction, and stops that are touched."""
    n = robot.nv
    return robot.replace(
        armature=np.linspace(0.0, 0.3, n),
        damping=np.linspace(0.0, 2.0, n),
        friction=np.linspace(0.0, 1.0, n),
        stop_stiffness=np.full(n, 50.0),
        stop_damping=np.full(n, 1.0),
        position_limits=np.where(
            np.isfinite(robot.position_limits), [-0.5, 0.5], robot.position_limits
        ),
    )


def relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


def both(robot: Robot, s: States, reverse: bool) -> dict[str, tuple[Array, Array]]:
    """Ours, and what `jax.jacfwd` and, where it is asked for, `jax.jacrev` say."""
    zero = jnp.zeros(robot.nv)

    def moved(d: Array) -> Array:
        return dynamics.integrate(robot, s.q, d, 1.0)

    def inverse(d: Array, v: Array, a: Array) -> Array:
        return dynamics.rnea(robot, moved(d), v, a, s.forces)

    def forward(d: Array, v: Array, tau: Array) -> Array:
        return dynamics.forward_dynamics(robot, moved(d), v, tau, s.forces)

    q1, _ = dynamics.step(robot, s.q, s.v, s.tau, DT, s.forces)

    def step(d: Array, v: Array, tau: Array) -> Array:
        q, v = dynamics.step(robot, moved(d), v, tau, DT, s.forces)
        return jnp.concatenate([dynamics.difference(robot, q1, q), v])

    of_tau = dynamics.inverse_dynamics_derivatives(robot, s.q, s.v, s.a, s.forces)
    of_a = dynamics.forward_dynamics_derivatives(robot, s.q, s.v, s.tau, s.forces)
    A, B = dynamics.transition_derivatives(robot, s.q, s.v, s.tau, DT, s.forces)
    AB = jnp.concatenate([A, B], axis=1)
    every = (0, 1, 2)
    C = dynamics.coriolis_matrix(robot, s.q, s.v)
    bias = dynamics.bias_forces(robot, s.q, s.v) - dynamics.gravity_forces(robot, s.q)
    M_dot = jax.jvp(lambda d: dynamics.crba(robot, moved(d)), (zero,), (s.v,))[1]
    q_dot = jax.jvp(lambda t: dynamics.integrate(robot, s.q, s.v, t), (0.0,), (1.0,))[1]
    pairs = {
        "inverse dynamics": (
            jnp.stack(of_tau),
            jnp.stack(jax.jacfwd(inverse, every)(zero, s.v, s.a)),
        ),
        "forward dynamics": (
            jnp.stack(of_a),
            jnp.stack(jax.jacfwd(forward, every)(zero, s.v, s.tau)),
        ),
        "transition": (AB, jnp.concatenate(jax.jacfwd(step, every)(zero, s.v, s.tau), axis=1)),
        "Coriolis forces": (C @ s.v, bias),
        "rate of the mass matrix": (C + C.T, M_dot),
        "coordinate rates": (dynamics.coordinate_rates(robot, s.q) @ s.v, q_dot),
    }
    if reverse:
        pairs |= {
            "forward dynamics, reverse": (
                jnp.stack(of_a),
                jnp.stack(jax.jacrev(forward, every)(zero, s.v, s.tau)),
            ),
            "transition, reverse": (
                AB,
                jnp.concatenate(jax.jacrev(step, every)(zero, s.v, s.tau), axis=1),
            ),
        }
    return pairs


CASES = [("joints", False), ("joints", True), ("panda", True)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "reverse"), CASES)
def test_closed_forms_are_the_automatic_derivatives(
    name: str, reverse: bool, x64: None, request: pytest.FixtureRequest
) -> None:
    robot = rough(request.getfixturevalue(name))
    program = jax.jit(jax.vmap(lambda s: both(robot, s, reverse)), compiler_options=FAST)
    for what, (ours, automatic) in program(random_states(robot, STATES, np.float64)).items():
        assert relative(np.asarray(ours), np.asarray(automatic)) < 1e-11, what


@pytest.mark.slow
def test_derivatives_are_limits_of_differences(joints: Robot, x64: None) -> None:
    """The automatic ones too, which share our custom rule."""
    robot = rough(joints)
    s = jax.tree.map(lambda x: x[0], random_states(robot, 1, np.float64))

    @jax.jit
    def accelerations(d: Array, v: Array, tau: Array) -> Array:
        q = dynamics.integrate(robot, s.q, d, 1.0)
        return dynamics.forward_dynamics(robot, q, v, tau, s.forces)

    @jax.jit
    def step(d: Array, v: Array, tau: Array) -> Array:
        q, v = dynamics.step(robot, dynamics.integrate(robot, s.q, d, 1.0), v, tau, DT, s.forces)
        q0, _ = dynamics.step(robot, s.q, s.v, s.tau, DT, s.forces)
        return jnp.concatenate([dynamics.difference(robot, q0, q), v])

    def differences(f: Callable[..., Array]) -> list[np.ndarray]:
        at, h = [np.zeros(robot.nv), np.asarray(s.v), np.asarray(s.tau)], 1e-6
        result = []
        for k in range(3):
            columns = []
            for e in h * np.eye(robot.nv):
                up, down = list(at), list(at)
                up[k], down[k] = at[k] + e, at[k] - e
                columns.append((f(*up) - f(*down)) / (2 * h))
            result.append(np.stack(columns, axis=1))
        return result

    ours = dynamics.forward_dynamics_derivatives(robot, s.q, s.v, s.tau, s.forces)
    for mine, reference in zip(ours, differences(accelerations), strict=True):
        assert relative(np.asarray(mine), reference) < 1e-6
    A, B = dynamics.transition_derivatives(robot, s.q, s.v, s.tau, DT, s.forces)
    reference = np.concatenate(differences(step), axis=1)
    assert relative(np.concatenate([A, B], axis=1), reference) < 1e-6


@pytest.mark.slow
def test_second_derivatives_are_limits_of_differences(joints: Robot, x64: None) -> None:
    robot = rough(joints)
    s = jax.tree.map(lambda x: x[0], random_states(robot, 1, np.float64))
    multiplier = np.random.default_rng(5).normal(size=robot.nv)

    @jax.jit
    def gradient(d: Array, v: Array, a: Array) -> tuple[Array, ...]:
        def projected(d: Array, v: Array, a: Array) -> Array:
            q = dynamics.integrate(robot, s.q, d, 1.0)
            return multiplier @ dynamics.rnea(robot, q, v, a)

        return jax.grad(projected, (0, 1, 2))(d, v, a)

    second = jax.jit(
        lambda q, v, a: dynamics.inverse_dynamics_second_derivatives(robot, q, v, a, multiplier)
    )
    ours = second(s.q, s.v, s.a)
    zero, h = np.zeros(robot.nv), 1e-5

    def rows(k: int, of: int) -> np.ndarray:
        """Derivative by argument `k` of the gradient by argument `of`, directions along rows."""
        at = [zero, np.asarray(s.v), np.asarray(s.a)]
        result = []
        for e in h * np.eye(robot.nv):
            up, down = list(at), list(at)
            up[k], down[k] = at[k] + e, at[k] - e
            result.append((gradient(*up)[of] - gradient(*down)[of]) / (2 * h))
        return np.stack(result)

    assert relative(np.asarray(ours.qq), rows(0, 0)) < 1e-6
    assert relative(np.asarray(ours.vv), rows(1, 1)) < 1e-6
    assert relative(np.asarray(ours.qv), rows(0, 1)) < 1e-6
    assert relative(np.asarray(ours.aq), rows(2, 0)) < 1e-6
    np.testing.assert_allclose(ours.qq, ours.qq.T, atol=1e-8)


def test_residual_derivatives_are_those_of_the_frame(panda: Robot, x64: None) -> None:
    q, v, tau = panda.q_default, np.linspace(-1, 1, 7), np.linspace(-5, 5, 7)

    def residual(q: Array, v: Array, tau: Array) -> Array:
        return jnp.concatenate([dynamics.frame_pose(panda, q, "hand")[0], 2 * v, 3 * tau])

    derivatives = jax.jit(partial(dynamics.residual_derivatives, panda, residual))
    C, D = derivatives(q, v, tau)
    expected = np.zeros((17, 14))
    expected[:3, :7] = jax.jit(lambda q: dynamics.frame_jacobian(panda, q, "hand"))(q)[:3]
    expected[3:10, 7:] = 2 * np.eye(7)
    np.testing.assert_allclose(C, expected, atol=1e-14)
    np.testing.assert_allclose(D, np.concatenate([np.zeros((10, 7)), 3 * np.eye(7)]), atol=0)


@pytest.mark.parametrize("name", ["joints", "forest"])
def test_the_momentum_s_derivative_is_the_automatic_one(
    joints: Robot, panda: Robot, name: str, x64: None
) -> None:
    robot = (
        joints
        if name == "joints"
        else dynamics.combine(panda.replace(gravity=joints.gravity), joints)
    )

    def both(s: States) -> tuple[Array, Array]:
        def momentum(d: Array) -> Array:
            q = dynamics.integrate(robot, s.q, d, 1.0)
            return dynamics.centroidal_momentum(robot, q, s.v)

        automatic = jax.jacfwd(momentum)(jnp.zeros(robot.nv))
        return dynamics.centroidal_momentum_derivative(robot, s.q, s.v), automatic

    program = jax.jit(jax.vmap(both), compiler_options=FAST)
    ours, automatic = program(random_states(robot, STATES, np.float64))
    assert relative(np.asarray(ours), np.asarray(automatic)) < 1e-12


def special_configurations(robot: Robot) -> np.ndarray:
    """All zero; quaternions at -1, near it, and near the identity."""
    neutral = np.asarray(dynamics.neutral(robot))
    result = [neutral]
    for tilt in (0.0, 1e-7, 1e-3):
        for sign in (1.0, -1.0):
            q = neutral.copy()
            for _, start, _ in robot.topology.quaternions:
                q[start : start + 4] = sign * np.array([np.sqrt(1 - tilt**2), tilt, 0, 0])
            result.append(q)
    return np.stack(result)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["joints", "panda"])
def test_derivatives_are_finite_at_special_states(
    request: pytest.FixtureRequest, name: str, dtype: np.dtype
) -> None:
    """Zero velocity, a singular arm, quaternions near 1 and -1; forwards and backwards."""
    robot = rough(request.getfixturevalue(name))
    frame = robot.frame_names[-1]
    q = special_configurations(robot).astype(dtype)
    v = np.zeros((len(q), robot.nv), dtype)

    def everything(q: Array, v: Array) -> Array:
        q1, v1 = dynamics.step(robot, q, v, v, DT)
        position, rotation = dynamics.frame_pose(robot, q1, frame)
        return jnp.concatenate(
            [
                dynamics.difference(robot, q, q1),
                v1,
                position,
                dynamics.rotation_log(rotation),
                dynamics.manipulability(robot, q1, frame)[None],
                dynamics.energy.kinetic_energy(robot, q1, v1)[None],
            ]
        )

    for mode in (jax.jacfwd, jax.jacrev):
        program = jax.jit(jax.vmap(mode(everything, (0, 1))), compiler_options=FAST)
        for derivative in program(q, v):
            assert np.isfinite(derivative).all()
    transition = jax.vmap(lambda q, v: dynamics.transition_derivatives(robot, q, v, v, DT))
    for derivative in jax.jit(transition, compiler_options=FAST)(q, v):
        assert np.isfinite(derivative).all()


def test_payload_is_identified_by_gradient_descent(panda: Robot, x64: None) -> None:
    """Mass of the last body, from the torques along a trajectory."""
    s = random_states(panda, 50, np.float64)
    true = panda.replace(mass=panda.mass + np.array([0, 0, 0, 0, 0, 0, 0.8]))
    torques = jax.jit(jax.vmap(lambda s: dynamics.rnea(true, s.q, s.v, s.a)))(s)

    @jax.jit
    @jax.value_and_grad
    def loss(payload: Array) -> Array:
        robot = panda.replace(mass=jnp.asarray(panda.mass).at[-1].add(payload))
        error = jax.vmap(lambda s: dynamics.rnea(robot, s.q, s.v, s.a))(s) - torques
        return jnp.mean(error**2)

    payload, (_, gradient) = jnp.zeros(()), loss(jnp.zeros(()))
    _, after = loss(jnp.array(1e-3))
    rate = 1e-3 / (after - gradient)  # the loss is a parabola
    for _ in range(5):
        payload -= rate * loss(payload)[1]
    np.testing.assert_allclose(payload, 0.8, rtol=1e-6)
