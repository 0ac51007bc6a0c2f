"""Costs of contacts: forces are MuJoCo's, derivatives those of differences, plans press as told."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support import with_slow

from fraxenv import dynamics, plan
from fraxenv.dynamics import Scene
from fraxenv.errors import ConfigError, UnknownNameError

mujoco = pytest.importorskip("mujoco")

BOX = """<mujoco><option timestep=".002"/><worldbody>
<geom name="floor" type="plane" size="1 1 .1" friction="0.05"/>
<body name="box" pos="0 0 .1">
<joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>
<geom name="box" type="box" size=".1 .1 .1" mass="2" friction="0.05"/></body></worldbody>
<actuator><motor joint="x"/><motor joint="z"/></actuator></mujoco>"""
WEIGHT = 2 * 9.81
STATE = np.array([0.0, -0.0004, 0.2, 0.0])
TAU = np.array([1.0, -3.0])


@pytest.fixture(scope="module")
def scene() -> Scene:
    return dynamics.load_mjcf(BOX)


def of(term: plan.Residual, scene: Scene, state: Array, tau: Array) -> Array:
    terms = dynamics.compute_terms(scene.system, state[:2], state[2:])
    found: Array = term.function(scene.system, terms, tau, term.reference)
    return found


def compiled(term: plan.Residual, scene: Scene) -> Callable[[Array], Array]:
    """Its value at a state and torques, one after the other."""
    return jax.jit(lambda at: of(term, scene, at[:4], at[4:]))


def test_forces_are_mujocos(scene: Scene, x64: None) -> None:
    model = scene.to_mujoco()
    model.opt.tolerance, model.opt.iterations = 0.0, 100
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.qfrc_applied[:] = STATE[:2], STATE[2:], TAU
    mujoco.mj_forward(model, data)
    force, expected = np.zeros(6), 0.0
    for i in range(data.ncon):
        mujoco.mj_contactForce(model, data, i, force)
        expected += force[0]
    assert expected > WEIGHT
    pressing = compiled(plan.contact_force(scene, "box", "floor", 5.0), scene)
    slipping = compiled(plan.slip(scene, "floor"), scene)
    here = np.concatenate([STATE, TAU])
    np.testing.assert_allclose(pressing(here) + 5.0, [expected], rtol=1e-10)
    np.testing.assert_allclose(np.abs(slipping(here)).reshape(-1, 2).max(axis=1), 0.2)
    above = here + np.array([0.0, 0.1, 0.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(pressing(above), [-5.0])
    assert not slipping(above).any()


@pytest.mark.parametrize("kind", with_slow(["contact_force", "slip"], "contact_force"))
def test_derivatives_are_those_of_differences(kind: str, scene: Scene, x64: None) -> None:
    term = getattr(plan, kind)(scene, "box", "floor")

    value, here, h = compiled(term, scene), np.concatenate([STATE, TAU]), 1e-7
    steps = h * np.eye(6)
    expected = np.stack([(value(here + e) - value(here - e)) / (2 * h) for e in steps], axis=-1)
    assert np.abs(expected).max() > 0.5
    found = jax.jit(jax.jacfwd(value))(here)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.slow
def test_a_plan_presses_as_told_and_does_not_slip(scene: Scene, x64: None) -> None:
    running = {
        "press": plan.contact_force(scene, "box", "floor", 40.0, 1e-2),
        "hold": plan.slip(scene, "box", "floor", 10.0),
        "effort": plan.torque(weight=1e-5),
    }
    problem = plan.Problem(scene, 40, scene.timestep, running)
    begin = np.array([0.0, -0.0003]), np.array([0.1, 0.0])
    push = jnp.tile(jnp.array([0.0, -5.0]), (40, 1))

    @jax.jit
    def solve() -> plan.Plan:
        return plan.solve(problem, begin, plan.guess(problem, *begin, tau=push))

    found = solve()
    ends = np.concatenate([found.q, found.v], axis=1)[:-1]
    press = jax.vmap(lambda x, tau: of(problem.running["press"], scene, x, tau))
    np.testing.assert_allclose(press(ends, found.tau)[10:], 0.0, atol=0.5)
    np.testing.assert_allclose(found.tau[20:35, 1], WEIGHT - 40.0, atol=1.0)
    # Friction alone would stop it after 0.1 s, the plan's end being after 0.08 s.
    assert np.abs(found.v[20:, 0]).max() < 1e-3


def test_equal_terms_are_one_program(scene: Scene) -> None:
    again = dynamics.load_mjcf(BOX)
    first, second = (plan.contact_force(s, "box").function for s in (scene, again))
    assert first == second
    assert hash(first) == hash(second)
    assert first != plan.slip(scene, "box").function
    heavier = again.with_system(again.system.replace(mass=2 * np.asarray(again.system.mass)))
    assert first != plan.contact_force(heavier, "box").function


def test_what_never_touches_is_refused(scene: Scene) -> None:
    with pytest.raises(UnknownNameError, match="bex"):
        plan.contact_force(scene, "bex")
    with pytest.raises(ConfigError, match="no pair of geoms of the scene is of 'box' and 'box'"):
        plan.slip(scene, "box", "box")
