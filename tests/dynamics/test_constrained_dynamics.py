"""Frames that are held, and that hit something: Pinocchio's, and what their equations say."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fraxenv import dynamics
from fraxenv.cross_check.pinocchio import PinocchioOracle
from fraxenv.dynamics import FrameConstraints, Robot
from fraxenv.dynamics.model.bundled import bundled_urdf
from fraxenv.errors import ArrayError, ConfigError, UnknownNameError

FEET = ("FR_foot", "FL_foot", "RR_foot", "RL_foot")
DT, GAIN = 1e-2, 30.0
QUICK = {"xla_backend_optimization_level": 0}
State = tuple[Array, Array, Array]


@pytest.fixture
def state(x64: None) -> tuple[Robot, State]:
    """A quadruped whose joints resist, in the middle of something."""
    robot = dynamics.load_robot("a1")
    n, rng = robot.nv, np.random.default_rng(0)
    robot = robot.replace(damping=np.linspace(0, 1, n), friction=np.linspace(0, 0.5, n))
    q = dynamics.random_configuration(robot, jax.random.key(1))
    v, tau = rng.normal(size=(2, n)) * [[1.0], [5.0]]
    return robot, (q, jnp.asarray(v), jnp.asarray(tau))


@pytest.mark.parametrize(("rows", "held"), [("position", FEET[:3]), ("pose", FEET[:2])])
def test_pinocchio_s_constrained_and_impulse_dynamics(
    state: tuple[Robot, State], rows: Any, held: tuple[str, ...]
) -> None:
    pin = pytest.importorskip("pinocchio")
    robot, (q, v, tau) = state
    oracle = PinocchioOracle.from_urdf(robot, bundled_urdf("a1"))
    model, data = oracle.model, oracle.model.createData()
    constraints = FrameConstraints(held, rows)
    if rows == "pose":
        # Its acceleration of a pose is the spatial one: that of a frame at rest is the classical.
        v, _ = dynamics.impulse_dynamics(robot, q, v, constraints)
    T, T_dot = oracle.transform(np.asarray(q), np.asarray(v))
    at = oracle.configuration(np.asarray(q)), np.asarray(T @ v)
    pushed = np.linalg.solve(T.T, np.asarray(tau))
    kind = pin.ContactType.CONTACT_3D if rows == "position" else pin.ContactType.CONTACT_6D
    contacts = pin.StdVec_RigidConstraintModel()
    for name in held:
        frame = model.frames[model.getFrameId(name)]
        place = model, frame.parentJoint, frame.placement, pin.LOCAL_WORLD_ALIGNED
        contacts.append(pin.RigidConstraintModel(kind, *place))
    own = pin.StdVec_RigidConstraintData()
    for contact in contacts:
        own.append(contact.createData())
    pin.initConstraintDynamics(model, data, contacts, own)

    width = {"position": 3, "pose": 6}[rows]
    a, force = dynamics.constrained_dynamics(robot, q, v, tau, constraints)
    theirs = pin.constraintDynamics(model, data, *at, pushed, contacts, own)
    np.testing.assert_allclose(a, np.linalg.solve(T, theirs - T_dot @ v), rtol=1e-8, atol=1e-8)
    forces = [c.contact_force.vector[:width] for c in own]
    np.testing.assert_allclose(force, forces, rtol=1e-8, atol=1e-8)

    after, impulse = dynamics.impulse_dynamics(robot, q, v, constraints, 0.3)
    theirs = pin.impulseDynamics(model, data, *at, contacts, own, 0.3)
    np.testing.assert_allclose(after, np.linalg.solve(T, theirs), rtol=1e-8, atol=1e-8)
    impulses = [c.contact_force.vector[:width] for c in own]
    np.testing.assert_allclose(impulse, impulses, rtol=1e-8, atol=1e-8)


def test_what_is_held_does_not_accelerate_and_what_is_not_feels_nothing(
    state: tuple[Robot, State],
) -> None:
    robot, (q, v, tau) = state
    active = np.array([True, False, True, False])
    held = FrameConstraints(FEET, active=active, gain=GAIN)
    a, force = dynamics.constrained_dynamics(robot, q, v, tau, held)
    push = dynamics.bias_forces(robot, q, v) + dynamics.crba(robot, q) @ a - tau
    for name, on, f in zip(FEET, active, force, strict=True):
        acceleration = dynamics.frame_acceleration(robot, q, v, a, name)[:3]
        velocity = dynamics.frame_velocity(robot, q, v, name)[:3]
        still = np.allclose(acceleration, -GAIN * velocity, atol=1e-9)
        assert still == on
        assert (np.abs(f).max() > 1) == on
        push = push - dynamics.frame_jacobian(robot, q, name)[:3].T @ f
    np.testing.assert_allclose(push, 0, atol=1e-9)


def test_an_impact_stops_frames_and_costs_energy(state: tuple[Robot, State]) -> None:
    robot, (q, v, tau) = state
    hit = FrameConstraints(FEET, active=np.array([False, True, True, False]))
    after, impulse = dynamics.impulse_dynamics(robot, q, v, hit)
    for name, on in zip(FEET, hit.active, strict=True):
        assert np.allclose(dynamics.frame_velocity(robot, q, after, name)[:3], 0, atol=1e-12) == on
    energy = partial(dynamics.kinetic_energy, robot, q)
    assert energy(after) < energy(v)
    # No other velocity with these frames at rest is as near, by the mass matrix (Gauss).
    assert abs((after - v) @ dynamics.crba(robot, q) @ after) < 1e-10
    q_after, v_after, same = dynamics.constrained_step(robot, q, v, tau, DT, hit, True)
    np.testing.assert_allclose(q_after, q, atol=1e-15)
    np.testing.assert_allclose(v_after, after, atol=1e-10)
    np.testing.assert_allclose(same, impulse, atol=1e-10)


def test_derivatives_of_a_step_are_automatic_ones(state: tuple[Robot, State]) -> None:
    robot, (q, v, tau) = state
    zero, n = jnp.zeros(robot.nv), robot.nv
    directions = np.random.default_rng(1).normal(size=(3, n))
    held = FrameConstraints(FEET, active=np.array([True, False, True, True]), gain=GAIN)

    def both(impact: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        q_end, _, _ = dynamics.constrained_step(robot, q, v, tau, DT, held, impact)

        def step(d: Array, v: Array, tau: Array) -> tuple[Array, Array]:
            at = dynamics.integrate(robot, q, d, 1.0), v, tau
            q1, v1, force = dynamics.constrained_step(robot, *at, DT, held, impact)
            return jnp.concatenate([dynamics.difference(robot, q_end, q1), v1]), force

        _, by_ad = jax.jvp(step, (zero, v, tau), tuple(directions))
        found = dynamics.constrained_step_derivatives(robot, q, v, tau, DT, held, impact)
        dx = jnp.concatenate(list(directions[:2]))
        moved = found.A @ dx + found.B @ directions[2]
        return by_ad, (moved, found.force_x @ dx + found.force_tau @ directions[2])

    compiled = jax.jit(both, compiler_options=QUICK)
    for impact in (False, True):
        for automatic, exact in zip(*compiled(jnp.asarray(impact)), strict=True):
            scale = np.abs(automatic).max()
            np.testing.assert_allclose(exact / scale, automatic / scale, atol=1e-12)


def test_a_frame_s_derivatives_are_automatic_ones(state: tuple[Robot, State]) -> None:
    robot, (q, v, a) = state
    zero = jnp.zeros(robot.nv)
    dq, dv = np.random.default_rng(1).normal(size=(2, robot.nv))

    def motion(d: Array, v: Array) -> tuple[Array, Array]:
        at = dynamics.integrate(robot, q, d, 1.0)
        return (
            dynamics.frame_velocity(robot, at, v, FEET[0]),
            dynamics.frame_acceleration(robot, at, v, a, FEET[0]),
        )

    (found,) = dynamics.frame_derivatives(robot, q, v, a, FEET[0])
    jvp = jax.jit(lambda *x: jax.jvp(motion, (zero, v), x)[1], compiler_options=QUICK)
    velocity, acceleration = jvp(dq, jnp.zeros_like(dv))
    np.testing.assert_allclose(found.velocity_dq @ dq, velocity, atol=1e-12)
    np.testing.assert_allclose(found.acceleration_dq @ dq, acceleration, atol=1e-11)
    _, acceleration = jvp(jnp.zeros_like(dq), dv)
    np.testing.assert_allclose(found.acceleration_dv @ dv, acceleration, atol=1e-11)


def test_nothing_held_is_an_ordinary_step(state: tuple[Robot, State]) -> None:
    robot, (q, v, tau) = state
    none = FrameConstraints(FEET, active=False)
    q1, v1, force = dynamics.constrained_step(robot, q, v, tau, DT, none)
    q2, v2 = dynamics.step(robot, q, v, tau, DT)
    np.testing.assert_allclose(np.concatenate([q1, v1]), np.concatenate([q2, v2]), atol=1e-13)
    assert not np.any(force)


def test_a_frame_held_twice_needs_damping(state: tuple[Robot, State]) -> None:
    robot, (q, v, tau) = state
    once = dynamics.constrained_dynamics(robot, q, v, tau, FrameConstraints(FEET[:1]))
    twice = FrameConstraints((FEET[0], FEET[0]))
    shared = dynamics.constrained_dynamics(robot, q, v, tau, twice, damping=1e-9)
    np.testing.assert_allclose(shared[0], once[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(shared[1].sum(axis=0), once[1][0], rtol=1e-5)


def test_bad_constraints(state: tuple[Robot, State]) -> None:
    robot, (q, v, tau) = state
    with pytest.raises(ConfigError, match="no frames"):
        FrameConstraints(())
    with pytest.raises(ConfigError, match="rows"):
        FrameConstraints(FEET, "orientation")  # type: ignore[arg-type]
    wrong = FrameConstraints(FEET, active=np.ones(3, bool))
    with pytest.raises(ArrayError, match=r"active has shape \(3,\), expected \(4,\)"):
        dynamics.constrained_dynamics(robot, q, v, tau, wrong)
    with pytest.raises(UnknownNameError, match="FL_foot"):
        dynamics.constrained_dynamics(robot, q, v, tau, FrameConstraints(("FL_fot",)))
