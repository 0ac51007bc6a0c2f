"""Scenes written as MuJoCo models: what is loaded again is the same, and moves the same."""

from __future__ import annotations

import dataclasses

import jax
import mujoco
import numpy as np
import pytest
from scenes import SOURCES, compiled, differences, mass_matrix, random_state

from fraxenv import dynamics
from fraxenv.dynamics import Scene

TOLERANCE = 1e-12


@pytest.fixture(scope="module", params=SOURCES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def canonical(scene: Scene) -> Scene:
    """The scene with its frames and shapes by name: their order is MuJoCo's choice."""
    topology = scene.system.topology
    changed = dataclasses.replace(
        topology,
        frames=tuple(sorted(topology.frames, key=lambda f: f.name)),
        visual_shapes=tuple(sorted(topology.visual_shapes, key=lambda s: s.name)),
        collision_shapes=tuple(sorted(topology.collision_shapes, key=lambda s: s.name)),
    )
    system = dataclasses.replace(scene.system, topology=changed)
    return dataclasses.replace(scene, system=system)


def test_round_trip(name: str) -> None:
    scene = dynamics.load_mjcf(SOURCES[name])
    again = dynamics.load_mjcf(scene.to_mujoco())
    assert differences(canonical(scene), canonical(again), TOLERANCE) == []


def test_moves_as_the_original(name: str) -> None:
    one, other = compiled(name), dynamics.load_mjcf(SOURCES[name]).to_mujoco()
    rng, fields = np.random.default_rng(5), ("qfrc_bias", "qfrc_passive", "qfrc_actuator")
    datas = mujoco.MjData(one), mujoco.MjData(other)
    for _ in range(5):
        q, v, ctrl = random_state(one, rng, spread=0.3)
        for model, data in zip((one, other), datas, strict=True):
            model.opt.tolerance = 0
            model.opt.iterations = 200
            data.qpos, data.qvel, data.ctrl, data.qacc_warmstart = q, v, ctrl, 0
            mujoco.mj_forward(model, data)
        assert datas[0].nefc == datas[1].nefc
        assert datas[0].ncon == datas[1].ncon
        for field in (*fields, "qacc_smooth", "efc_pos", "efc_D", "efc_aref", "qacc"):
            a, b = getattr(datas[0], field), getattr(datas[1], field)
            if field.startswith("efc") and name == "equalities":
                # A weld may be written by the other quaternion: both its error and Jacobian turn.
                a, b = np.abs(a), np.abs(b)
            scale = np.abs(a).max(initial=1e-300)
            loose = 1e-10 if field == "qacc" else TOLERANCE  # what the solver leaves
            np.testing.assert_allclose(b, a, rtol=0, atol=loose * scale, err_msg=field)


def test_numbers_that_leaves_have_now_are_written() -> None:
    with jax.enable_x64(True):
        scene = dynamics.load_mjcf(SOURCES["welded"])
        rng = np.random.default_rng(6)
        system = scene.system.replace(
            mass=np.asarray(scene.system.mass) * rng.uniform(0.5, 2, scene.system.nb),
            com=np.asarray(scene.system.com) + 0.01 * rng.normal(size=(scene.system.nb, 3)),
            damping=rng.uniform(0, 1, scene.nv),
            armature=rng.uniform(0, 1, scene.nv),
        )
        changed = scene.with_system(system).with_geom("rim", friction=0.3).replace(timestep=0.003)
        model = changed.to_mujoco()
        again = dynamics.load_mjcf(model)
    assert differences(canonical(changed), canonical(again), 1e-11) == []
    mujoco.mj_setConst(model, mujoco.MjData(model))  # MuJoCo's own weights
    np.testing.assert_allclose(
        changed.constraints.weights.translation, model.body_invweight0[:, 0], rtol=1e-11
    )


def test_a_system_that_was_merely_replaced_is_written() -> None:
    """Welded links then move together, so that the body has its new centre of mass."""
    scene = dynamics.load_mjcf(SOURCES["welded"])
    system = scene.system.replace(com=np.asarray(scene.system.com) + 0.02)
    model = scene.replace(system=system).to_mujoco()
    data = mujoco.MjData(model)
    q, v, _ = random_state(model, np.random.default_rng(7))
    data.qpos, data.qvel = q, v
    mujoco.mj_forward(model, data)
    with jax.enable_x64(True):
        terms = jax.jit(dynamics.compute_terms)(system, q, v)
    np.testing.assert_allclose(terms.mass_matrix, mass_matrix(model, data), atol=TOLERANCE)
    np.testing.assert_allclose(terms.bias, data.qfrc_bias, atol=1e-11)


def test_traced_and_batched_scenes_are_refused() -> None:
    scene = dynamics.load_mjcf(SOURCES["balls"])
    batch = jax.tree.map(lambda x: np.stack([x, x]), scene)
    with pytest.raises(dynamics.FraxenvError, match=r"masses have shape \(2, 4\)"):
        batch.to_mujoco()
    with pytest.raises(dynamics.FraxenvError, match="while its numbers are traced"):
        jax.jit(lambda s: s.to_mujoco())(scene)
