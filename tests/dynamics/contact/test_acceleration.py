"""Derivatives of accelerations under constraints: against an unrolled solve, and differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_scenes import EQUALITIES, Trial, ball, cube, grasp, quadruped, rollout, trial
from jax import Array

from fraxenv import dynamics
from fraxenv.dynamics.contact.constraint_rows import constraint_rows
from fraxenv.dynamics.contact.narrowphase import find_contacts
from fraxenv.dynamics.scene.forces import actuator_forces, passive_forces
from fraxenv.dynamics.scene.step import constrained_acceleration
from fraxenv.dynamics.terms import compute_terms

ROUNDS = 60

SCENES = {"ball": ball()}
SLOW = {
    "cube": cube(),
    "equalities": EQUALITIES,
    "quadruped, condim 4": quadruped(condim=4),
    "cube, pyramidal": cube("pyramidal"),
    "grasp": grasp(),
    "grasp, pyramidal": grasp("pyramidal"),
    "quadruped, condim 6": quadruped(condim=6),
    "quadruped, condim 1": quadruped(condim=1),
}
Function = Callable[[Array, Array, Array], Array]


@pytest.fixture(params=[*SCENES, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def t(request: pytest.FixtureRequest) -> Trial:
    with jax.enable_x64(True):
        return trial({**SCENES, **SLOW}[request.param])


def implicit(t: Trial, ctrl: Array) -> Function:
    """The acceleration by q (moved on its tangent space), v and tau."""

    def acceleration(dq: Array, v: Array, tau: Array, q: Array) -> Array:
        moved = dynamics.integrate(t.scene.system, q, dq, 1.0)
        return constrained_acceleration(t.scene, moved, v, tau, ctrl=ctrl)[0]

    return acceleration


def unrolled(t: Trial, ctrl: Array) -> Function:
    """The same by damped-free Newton rounds from the solution, which JAX differentiates."""

    def acceleration(dq: Array, v: Array, tau: Array, q: Array) -> Array:
        system, scene = t.scene.system, t.scene
        q = dynamics.integrate(system, q, dq, 1.0)
        terms = compute_terms(system, q, v)
        contacts = find_contacts(system, scene.constraints, terms.kin)
        dt = jnp.asarray(scene.timestep)
        rows = constraint_rows(system, scene.constraints, terms.kin, q, v, contacts, dt)
        force = tau + passive_forces(scene, q, v) + actuator_forces(scene, q, v, ctrl) - terms.bias
        start = jax.lax.stop_gradient(constrained_acceleration(scene, q, v, tau, ctrl=ctrl)[0])

        def newton(a: Array, _: None) -> tuple[Array, None]:
            x = rows.violation(a)
            g = terms.mass_matrix @ a - force - rows.transpose(rows.force(x))
            return a - jnp.linalg.solve(terms.mass_matrix + rows.hessian(x), g), None

        return jax.lax.scan(newton, start, length=ROUNDS)[0]

    return acceleration


def states(t: Trial, n: int) -> list[tuple[np.ndarray, ...]]:
    found = []
    for data in rollout(t.model, steps=40 + 30 * n, every=30):
        arrays = (np.zeros(t.model.nv), data.qvel, data.qfrc_applied, data.qpos, data.ctrl)
        found.append(tuple(np.array(x) for x in arrays))
    return found[1 : n + 1]


@pytest.mark.slow
def test_both_modes_equal_an_unrolled_solve(t: Trial) -> None:
    with jax.enable_x64(True):
        forward, reverse, direct = (
            jax.jit(
                lambda dq, v, tau, q, u, mode=mode, f=f: mode(f(t, u), (0, 1, 2))(dq, v, tau, q)
            )
            for mode, f in ((jax.jacfwd, implicit), (jax.jacrev, implicit), (jax.jacfwd, unrolled))
        )
        for state in states(t, 3):
            expected = direct(*state)
            scale = [np.abs(e).max() for e in expected]
            for found in (forward(*state), reverse(*state)):
                for ours, theirs, size in zip(found, expected, scale, strict=True):
                    assert np.abs(ours - theirs).max() < 1e-9 * size


def test_derivatives_equal_differences(t: Trial) -> None:
    """Where a state is that near to a border of zones that differences cross it, they differ."""
    step, agree, total = 1e-6, 0, 0
    with jax.enable_x64(True):
        f = jax.jit(lambda dq, v, tau, q, u: implicit(t, u)(dq, v, tau, q))
        forward = jax.jit(
            lambda dq, v, tau, q, u: jax.jacfwd(implicit(t, u), (0, 1, 2))(dq, v, tau, q)
        )
        for state in states(t, 3):
            for argument, J in enumerate(forward(*state)):
                for k in range(t.model.nv):
                    columns = []
                    for h in (step, 0.5 * step):
                        ends = []
                        for sign in (1, -1):
                            moved = [np.array(x) for x in state]
                            moved[argument][k] += sign * h
                            ends.append(np.asarray(f(*moved)))
                        columns.append((ends[0] - ends[1]) / (2 * h))
                    size = np.abs(J).max()
                    if np.abs(columns[0] - columns[1]).max() > 1e-6 * size:
                        continue  # a border, or noise
                    total += 1
                    agree += np.abs(J[:, k] - columns[1]).max() < 2e-6 * size
    assert total > 20
    assert agree == total


@pytest.mark.slow
def test_shallow_contact_feels_its_regularisation() -> None:
    """Within solimp's width, softness depends on depth: the derivative by height has that term."""
    with jax.enable_x64(True):
        t = trial(cube())
        zero, nothing = jnp.zeros(6), jnp.zeros(0)

        @jax.jit
        def sink(z: Array, v: Array) -> Array:
            q = jnp.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]).at[2].set(z)
            return constrained_acceleration(t.scene, q, v, zero, ctrl=nothing)[0][2]

        rising = jax.jit(jax.grad(sink))
        v = jnp.array([0.0, 0.0, -0.1, 0.0, 0.0, 0.0])
        for depth in (1e-4, 4e-4, 8e-4):
            z, h = 0.03 - depth, 1e-7
            difference = (sink(z + h, v) - sink(z - h, v)) / (2 * h)
            slope = rising(z, v)
            np.testing.assert_allclose(slope, difference, rtol=1e-6)


@pytest.mark.slow
def test_second_order_equals_differences_of_gradients() -> None:
    with jax.enable_x64(True):
        t = trial(quadruped())
        (dq, v, tau, q, u) = states(t, 1)[0]

        def loss(v: Array) -> Array:
            return jnp.sum(jnp.tanh(0.01 * implicit(t, u)(dq, v, tau, q)))

        direction = np.random.default_rng(0).normal(size=t.model.nv)
        h = 1e-6
        gradient = jax.jit(jax.grad(loss))
        difference = (gradient(v + h * direction) - gradient(v - h * direction)) / (2 * h)
        product = jax.jit(lambda v, d: jax.jvp(jax.grad(loss), (v,), (d,))[1])(v, direction)
        assert np.abs(product - difference).max() < 1e-5 * np.abs(product).max()


@pytest.mark.slow
def test_derivatives_by_parameters() -> None:
    """Of friction, mass and stiffness; differences are of the whole scene made anew."""
    with jax.enable_x64(True):
        t = trial(cube())
        q = jnp.array([0.0, 0, 0.0295, 1, 0, 0, 0])
        v = jnp.array([0.3, 0.1, 0, 0, 0, 0.2])

        @jax.jit
        def slows(parameters: tuple[Array, Array, Array]) -> Array:
            friction, mass, solref = parameters
            system = t.scene.system.replace(mass=jnp.asarray(t.scene.system.mass) * mass)
            scene = t.scene.with_system(system)
            for name in ("floor", "cube"):
                scene = scene.with_geom(name, friction=friction, solref=solref)
            a = constrained_acceleration(scene, q, v, jnp.zeros(6), ctrl=jnp.zeros(0))[0]
            return jnp.sum(a * jnp.arange(1.0, 7.0))

        at = (jnp.array(0.7), jnp.array(1.1), jnp.array([0.03, 0.9]))
        gradient = jax.grad(slows)(at)
        for i, value in enumerate(at):
            for k in range(value.size):
                h = 1e-6 * (1 if i < 2 else 0.01)
                ends = []
                for sign in (1, -1):
                    moved = list(at)
                    moved[i] = value + sign * h * jnp.zeros(value.size).at[k].set(1).reshape(
                        value.shape
                    )
                    ends.append(slows(tuple(moved)))
                difference = (ends[0] - ends[1]) / (2 * h)
                np.testing.assert_allclose(gradient[i].reshape(-1)[k], difference, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", [pytest.param(jax.jacfwd, marks=pytest.mark.slow), jax.jacrev], ids=["jvp", "vjp"]
)
def test_derivatives_are_finite_everywhere(mode: Callable[..., Any]) -> None:
    """At touch, lift-off, slip and rest; away from the floor as well."""
    with jax.enable_x64(True):
        t = trial(ball())

        def f(q: Array, v: Array, tau: Array) -> Array:
            return constrained_acceleration(t.scene, q, v, tau, ctrl=jnp.zeros(0))[0]

        derivatives = jax.jit(mode(f, (0, 1, 2)))
        for height in (0.03, 0.03 - 1e-12, 0.03 + 1e-12, 0.029, 0.05):
            for slip in (0.0, 1e-300, 0.4):
                q = jnp.array([0, 0, height, 1, 0, 0, 0])
                v = jnp.zeros(6).at[0].set(slip)
                assert all(np.isfinite(J).all() for J in derivatives(q, v, jnp.zeros(6)))
