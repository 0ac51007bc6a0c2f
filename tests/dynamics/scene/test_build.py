"""Scenes built in Python: what may touch, and MuJoCo's view of them."""

from __future__ import annotations

import jax
import mujoco
import numpy as np
import pytest
from scenes import mass_matrix

from fraxenv import dynamics
from fraxenv.dynamics import Scene, box_geom, capsule_geom, free_body, plane_geom, sphere_geom
from fraxenv.errors import ConfigError, UnknownNameError

CUBE = free_body(
    "cube", box_geom("", (0.02, 0.02, 0.02), friction=0.7), mass=0.064, position=(0.5, 0.0, 0.02)
)
FLOOR = plane_geom("floor")
PADS = (
    box_geom("left_pad", (0.01, 0.004, 0.012), frame="panda_leftfinger", condim=4),
    box_geom("right_pad", (0.01, 0.004, 0.012), frame="panda_rightfinger", condim=4),
)


@pytest.fixture(scope="module")
def grasp() -> Scene:
    with jax.enable_x64(True):
        robot = dynamics.load_robot("panda")
        return dynamics.build_scene(robot, (CUBE,), (FLOOR,), geoms=PADS, impratio=10, name="grasp")


def test_members_pairs_and_options(grasp: Scene) -> None:
    assert set(grasp.members) == {"panda", "cube"}
    assert grasp.members["cube"].v == slice(7, 13)
    assert grasp.nq == 14
    assert set(grasp.pair_names) == {
        ("floor", "left_pad"),
        ("floor", "right_pad"),
        ("floor", "cube"),
        ("left_pad", "cube"),
        ("right_pad", "cube"),
    }
    assert [p.condim for p in grasp.constraints.layout.pairs] == [4, 4, 3, 4, 4]
    assert grasp.constraints.layout.slots == 4 * 3 + 8 * 2
    assert len(grasp.constraints.layout.limited) == 7
    assert grasp.constraints.geoms.friction[grasp.geom("cube"), 0] == 0.7
    np.testing.assert_array_equal(grasp.system.q_default[7:10], [0.5, 0.0, 0.02])


def test_mujoco_has_the_same_masses_weights_and_contacts(grasp: Scene) -> None:
    model = grasp.to_mujoco()
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    data.qpos[:7] = rng.uniform(-1, 1, 7)
    data.qpos[7:] = [0.5, 0.1, 0.018, *(np.array([1, 0.1, 0.2, 0.3]) / np.sqrt(1.14))]
    data.qvel = rng.normal(size=13)
    mujoco.mj_forward(model, data)
    with jax.enable_x64(True):
        terms = jax.jit(dynamics.compute_terms)(grasp.system, data.qpos, data.qvel)
    np.testing.assert_allclose(terms.mass_matrix, mass_matrix(model, data), atol=1e-12)
    np.testing.assert_allclose(terms.bias, data.qfrc_bias, atol=1e-11)
    assert data.ncon > 0
    ours = grasp.constraints.weights
    mujoco.mj_setConst(model, data)
    np.testing.assert_allclose(ours.translation, model.body_invweight0[:, 0], rtol=1e-11)
    np.testing.assert_allclose(ours.dof, model.dof_invweight0, rtol=1e-11)
    again = dynamics.load_mjcf(model)
    assert again.pair_names == grasp.pair_names
    assert again.constraints.layout.pairs == grasp.constraints.layout.pairs


def test_free_body_has_the_inertia_that_mujoco_computes() -> None:
    turn = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    tilt = np.array([[1.0, 0.0, 0.0], [0.0, 0.6, -0.8], [0.0, 0.8, 0.6]])
    parts = (
        box_geom("a", (0.1, 0.2, 0.3), position=(0.1, 0.0, 0.0), rotation=turn),
        capsule_geom("b", 0.05, 0.2, position=(0.0, 0.3, 0.1), rotation=tilt),
        sphere_geom("c", 0.1, position=(0.0, 0.0, 0.5)),
        dynamics.cylinder_geom("d", 0.07, 0.1, position=(0.2, 0.2, 0.2), rotation=tilt),
    )
    spec = mujoco.MjSpec()
    body = spec.worldbody.add_body()
    for g in parts:
        quaternion, size = np.zeros(4), np.zeros(3)
        size[: len(g.size)] = g.size
        mujoco.mju_mat2Quat(quaternion, g.rotation.ravel())
        kind = getattr(mujoco.mjtGeom, f"mjGEOM_{g.kind.upper()}")
        body.add_geom(type=kind, size=size, pos=g.position, quat=quaternion)
    model = spec.compile()
    own = free_body("thing", *parts, mass=float(model.body_mass[1])).model
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, model.body_iquat[1])
    R = rotation.reshape(3, 3)
    np.testing.assert_allclose(own.com[0], model.body_ipos[1], atol=1e-12)
    np.testing.assert_allclose(own.inertia[0], R @ np.diag(model.body_inertia[1]) @ R.T, atol=1e-9)


def test_collision_shapes_of_a_robot_are_its_geoms() -> None:
    robot = dynamics.load_robot("panda")
    scene = dynamics.build_scene(robot, static=(FLOOR,), pairs=None)
    shapes = robot.topology.collision_shapes
    assert set(scene.geom_names) == {s.name for s in shapes} | {"floor"}
    own = {
        frozenset((shapes[i].name, shapes[j].name)) for i, j in robot.topology.self_collision_pairs
    }
    assert {frozenset(p) for p in scene.pair_names if "floor" not in p} == own


def test_pairs_by_names_of_geoms_links_and_members() -> None:
    robot = dynamics.load_robot("panda")
    pairs = [("cube", "floor"), ("panda_link7", "cube"), ("left_pad", "cube")]
    scene = dynamics.build_scene(robot, (CUBE,), (FLOOR,), geoms=PADS, pairs=pairs)
    assert set(scene.pair_names) == {
        ("floor", "cube"),
        ("left_pad", "cube"),
        ("right_pad", "cube"),
    }


def test_an_object_may_be_alone_and_made_of_parts() -> None:
    hammer = free_body(
        "hammer", capsule_geom("handle", 0.01, 0.1), box_geom("head", (0.02, 0.05, 0.02)), mass=0.5
    )
    scene = dynamics.build_scene(objects=(hammer,), static=(FLOOR, box_geom("step", (1, 1, 0.1))))
    assert ("handle", "head") not in scene.pair_names
    assert ("floor", "step") not in scene.pair_names
    assert len(scene.pair_names) == 4
    assert scene.to_mujoco().nq == 7


def test_what_cannot_be_built() -> None:
    robot = dynamics.load_robot("panda")
    can = free_body("can", dynamics.cylinder_geom("", 0.03, 0.05), mass=0.3)
    with pytest.raises(ConfigError, match="geoms 'can' and 'cube', a cylinder and a box"):
        dynamics.build_scene(objects=(CUBE, can))
    with pytest.raises(ConfigError, match="nothing that moves"):
        dynamics.build_scene(static=(FLOOR,))
    with pytest.raises(ConfigError, match="the name 'cube' is given 2 times"):
        dynamics.build_scene(objects=(CUBE, CUBE))
    with pytest.raises(UnknownNameError, match="unknown geom, link or object 'flor'"):
        dynamics.build_scene(objects=(CUBE,), static=(FLOOR,), pairs=[("cube", "flor")])
    with pytest.raises(ConfigError, match="of one body, which cannot touch"):
        dynamics.build_scene(robot, (), (FLOOR,), geoms=PADS, pairs=[("left_pad", "right_pad")])
    with pytest.raises(UnknownNameError, match="unknown frame 'finger'"):
        dynamics.build_scene(robot, geoms=(box_geom("pad", (1, 1, 1), frame="finger"),))
    with pytest.raises(ConfigError, match="expected 3 positive numbers"):
        box_geom("b", (0.1, 0.1))
    with pytest.raises(ConfigError, match="condim=2"):
        sphere_geom("s", 0.1, condim=2)
    with pytest.raises(UnknownNameError, match="unknown option 'fricton'"):
        sphere_geom("s", 0.1, fricton=2)
    with pytest.raises(ConfigError, match="mass=-1"):
        free_body("x", sphere_geom("", 0.1), mass=-1)
    with pytest.raises(ConfigError, match="none of them a plane"):
        free_body("x", FLOOR, mass=1)
