"""Accelerations, forces and steps of scenes against MuJoCo, which solves them to convergence."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from contact_scenes import (
    SCENES,
    SLOW,
    Trial,
    error,
    farthest,
    grasp,
    matched,
    option,
    quadruped,
    rollout,
    solved,
    stepper,
    trial,
)
from jax import Array
from support import with_slow

from fraxenv.dynamics.contact.newton import Solution
from fraxenv.dynamics.scene.step import constrained_acceleration, scene_step
from fraxenv.kernels import fuse
from fraxenv.kernels.native import refill

FEET = "quadruped, elliptic, 3"


@cache
def exact(name: str) -> Trial:
    """In float64, compiled once for all tests of this file."""
    with jax.enable_x64(True):
        return trial({**SCENES, **SLOW}[name])


@pytest.mark.parametrize(
    "name", [*SCENES, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)]
)
def test_accelerations_and_forces_equal_mujoco_s(name: str) -> None:
    """Every slot's force, too: where several are equivalent, regularisation makes them unique."""
    steps, every = (200, 5) if name in SCENES else (1000, 1)
    t = exact(name)
    with jax.enable_x64(True):
        for data in rollout(t.model, steps=steps, every=every):
            contacts, _, a, solution = solved(t, data)
            slots = matched(t, data, jax.tree.map(np.asarray, contacts))
            assert bool(solution.converged)
            assert error(a, data.qacc) < 1e-10
            assert error(solution.joint_force, data.qfrc_constraint) < 1e-10
            expected = np.zeros_like(solution.force)
            for i, slot in enumerate(slots):
                mujoco.mj_contactForce(t.model, data, i, expected[slot])
            assert error(solution.force, expected) < 1e-10


@pytest.mark.parametrize(
    "name",
    ["grasp", "equalities", pytest.param("quadruped, elliptic, 3", marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_single_precision(name: str) -> None:
    steps, errors = 200 if name == "grasp" else 1000, []
    model = exact(name).model
    with jax.enable_x64(False):
        t = trial({**SCENES, **SLOW}[name])
        for data in rollout(model, steps=steps, every=5):
            *_, a, solution = solved(t, data, np.float32)
            assert bool(solution.converged)
            errors.append(error(a, data.qacc))
    assert np.median(errors) < 1e-5
    assert np.max(errors) < 1e-3


@pytest.mark.parametrize("integrator", ["euler", "implicitfast"])
@pytest.mark.parametrize("name", ["grasp", pytest.param("quadruped", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_rollout_stays_with_mujoco_s(name: str, integrator: str) -> None:
    """Pick and lift for 1000 steps; a kicked quadruped for 300, after which it is chaos."""
    xml, steps = {"grasp": (grasp(), 1000), "quadruped": (quadruped(), 300)}[name]
    with jax.enable_x64(True):
        assert farthest(xml, integrator, steps) < 1e-9


def test_a_spinning_asymmetric_body_equals_mujoco_s() -> None:
    """Its gyroscopic derivative, with the centre of mass beside the origin, and springs beside."""
    xml = f"""<mujoco>{option()}<worldbody><body name="top" pos="0 0 1"><freejoint/>
<geom type="box" size=".1 .05 .02" pos=".03 .02 -.01" euler="10 20 30" mass="1" contype="0"
 conaffinity="0"/></body><body><joint name="arm" axis="0 1 0" stiffness="3" damping=".4"/>
<geom type="capsule" size=".02 .2" pos=".1 0 0" mass=".3" contype="0" conaffinity="0"/></body>
</worldbody><actuator><velocity joint="arm" kv="2"/></actuator></mujoco>"""
    with jax.enable_x64(True):
        t = trial(xml)
        t.model.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        data, step = mujoco.MjData(t.model), stepper(t, "implicitfast")
        data.qvel[:] = [0.1, 0.2, 0.3, 8, -5, 12, 3]
        data.ctrl[:] = 4
        q, v = data.qpos.copy(), data.qvel.copy()
        for _ in range(100):
            q, v, _ = step(q, v, np.zeros(7), data.ctrl, np.zeros(7))
            mujoco.mj_step(t.model, data)
        assert np.abs(q - data.qpos).max() < 1e-11


def test_discrete_is_stable_where_euler_is_not() -> None:
    """A servo far stiffer than the step resolves."""
    xml = f"""<mujoco>{option()}<worldbody><body><joint name="j" axis="0 1 0"/>
<geom type="capsule" size=".02 .2" mass=".3" contype="0" conaffinity="0"/></body></worldbody>
<actuator><position joint="j" kp="1e5"/></actuator></mujoco>"""
    with jax.enable_x64(True):
        t = trial(xml)
        ends = {}
        for integrator in ("euler", "discrete"):
            q, v = jnp.zeros(1), jnp.zeros(1)
            step = stepper(t, integrator)
            for _ in range(50):
                q, v, _ = step(q, v, jnp.zeros(1), jnp.array([0.5]), jnp.zeros(1))
            ends[integrator] = float(q[0])
    assert abs(ends["discrete"] - 0.5) < 1e-3
    assert not abs(ends["euler"]) < 10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.slow
def test_results_do_not_depend_on_warm_start_or_neighbours(dtype: type) -> None:
    with jax.enable_x64(dtype == np.float64):
        t = trial(quadruped())
        states = [
            tuple(np.array(x, dtype) for x in (d.qpos, d.qvel, d.qfrc_applied, d.ctrl, d.qacc))
            for d in rollout(t.model, steps=120, every=15)
        ]
        q, v, tau, _, warm = (np.stack(x) for x in zip(*states, strict=True))
        tolerance = 1e-4 if dtype == np.float32 else 1e-9

        def solve(q: Array, v: Array, tau: Array, warm: Array) -> Array:
            return constrained_acceleration(t.scene, q, v, tau, warm)[0]

        batched = jax.jit(jax.vmap(solve))
        together = batched(q, v, tau, warm)
        for other in (np.zeros_like(warm), warm[::-1], 1e3 * np.ones_like(warm)):
            assert error(batched(q, v, tau, other), together) < tolerance
        # The same bits, whatever the neighbours need.
        for k in range(len(q)):
            mixed = [np.repeat(x[k : k + 1], len(q), axis=0) for x in (q, v, tau, warm)]
            np.testing.assert_array_equal(batched(*mixed)[k], together[k])


@pytest.mark.parametrize("name", with_slow(["cube", FEET], FEET))
def test_a_kernel_computes_what_vmap_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment's bits are its own; the quadruped's rounds are refilled, in several tiles."""
    monkeypatch.setenv("FRAXENV_CACHE", "0")  # what is recalled is not planned
    plans, make = [], refill.plan
    monkeypatch.setattr(refill, "plan", lambda *args: plans.append(make(*args)) or plans[-1])
    t = trial({**SCENES, **SLOW}[name])
    states = [
        [np.array(x, np.float32) for x in (d.qpos, d.qvel, d.qfrc_applied, d.qacc_warmstart)]
        for d in rollout(t.model, steps=300, every=1)
    ]
    arguments = [np.stack(x) for x in zip(*states, strict=True)]

    def step(q: Array, v: Array, tau: Array, warm: Array) -> tuple[Array, Array, Solution]:
        return scene_step(t.scene, q, v, tau, warm_start=warm)

    kernel = fuse(step, "native")
    found, expected = kernel(*arguments), jax.jit(jax.vmap(step))(*arguments)
    (plan,) = plans
    if name == FEET:
        assert plan is not None
        assert plan.vectors * 16 < len(states)
    assert bool(found[2].converged.all())
    for x, y in zip(found[:2], expected[:2], strict=True):
        assert error(x, y) < 1e-4
    for part in ("acceleration", "joint_force"):
        assert error(getattr(found[2], part), getattr(expected[2], part)) < 1e-4
    order = np.random.default_rng(0).permutation(len(states))[:50]
    some = kernel(*(x[order] for x in arguments))
    for x, y in zip(jax.tree.leaves(some), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(x, y[order])


@pytest.mark.slow
def test_a_contact_without_softness_locks_its_joint_alone() -> None:
    """Of a fixed body, and one with its centre of mass on its axis: MuJoCo's R is its least.

    Beside 1e15 the rest of the Hessian is next to nothing, and still has to be right.
    """
    light = "".join(
        f'''<body pos="{x} 0 .05"><joint axis="0 1 0" frictionloss="{loss}"/>
<geom size="{size}" pos=".1 0 0"/></body>'''
        for x, loss, size in ((0, 1e-2, 0.02), (0.2, 1e-3, 0.01), (0.4, 3e-5, 0.005))
    )
    xml = f"""<mujoco>{option()}<worldbody><geom type="box" size=".05 .05 .05"/>
<body pos="0 0 .09"><joint axis="0 0 1"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
<geom type="box" size=".05 .04 .045"/>{light}</body></worldbody></mujoco>"""
    with jax.enable_x64(True):
        t = trial(xml)
        data = mujoco.MjData(t.model)
        data.qfrc_applied[:] = [0.3, 0.05, 0.005, 0.001]
        data.qvel[1:] = [0.1, -0.1, 0.1]
        mujoco.mj_forward(t.model, data)
        *_, a, solution = solved(t, data)
        assert data.efc_R.min() < 1e-14
        assert bool(solution.converged)
        assert error(a, data.qacc) < 1e-10


def test_without_contact_the_acceleration_is_free() -> None:
    t = exact("cube")
    with jax.enable_x64(True):
        q, zero = np.array([0, 0, 1, 1, 0, 0, 0.0]), np.zeros(6)
        *_, a, solution = t.solve(q, zero, zero, np.zeros(0), zero)
        np.testing.assert_allclose(a, [0, 0, -9.81, 0, 0, 0], atol=1e-13)
        assert int(solution.rounds) == 0
        assert not np.any(solution.force)
