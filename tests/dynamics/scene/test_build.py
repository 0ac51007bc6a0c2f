"""Scenes built in Python: what may touch, and MuJoCo's view of them."""

from __future__ import annotations

import jax
import mujoco
import numpy as np
import pytest
from scenes import mass_matrix

from fraxenv import dynamics
from fraxenv.dynamics import Scene, box_geom, capsule_geom, free_body, plane_geom, sphere_geom
from fraxenv.errors import ArrayError, ConfigError, UnknownNameError

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


def turned(axis: str, angle: float) -> np.ndarray:
    """A rotation about an axis of the world."""
    R, (i, j) = np.eye(3), {"x": (1, 2), "y": (2, 0), "z": (0, 1)}[axis]
    R[[i, j], [i, j]], R[i, j], R[j, i] = np.cos(angle), -np.sin(angle), np.sin(angle)
    return R


def test_equalities_and_actuators_are_mujoco_s() -> None:
    """Forces and accelerations of each kind, where no equality is fulfilled."""
    a = free_body("a", sphere_geom("", 0.1), mass=1.0, rotation=turned("z", 0.5))
    b = free_body("b", sphere_geom("", 0.1), mass=2.0, position=(0.5, 0.1, 0.2))
    equalities = (
        dynamics.joint_equality("panda_joint2", "panda_joint4", (0.1, 0.5, 0.2), name="coupled"),
        dynamics.joint_equality("panda_joint1", polynomial=(0.2,), solref=(0.05, 0.8)),
        dynamics.connect_equality("panda_hand", "a", (0.01, 0.02, 0.1)),
        dynamics.connect_equality("a", anchor=(0.0, 0.1, 0.0), solimp=(0.8, 0.9, 0.01, 0.4, 3)),
        dynamics.weld_equality("panda_link5", "b", torque_scale=0.5, anchor=(0.0, 0.1, 0.0)),
        dynamics.weld_equality(
            "b", "panda_hand", position=(0.1, 0.0, 0.2), rotation=turned("x", 0.7), name="held"
        ),
        dynamics.weld_equality("a", "b", active=False),
    )
    limits = (-5.0, 4.0)
    actuators = (
        dynamics.motor_actuator("panda_joint1", gear=3.0, ctrl_range=(-1.0, 1.0), name="motor"),
        dynamics.position_actuator("panda_joint2", 30.0, 2.0, force_range=limits),
        dynamics.velocity_actuator("panda_joint3", 5.0, gear=0.5),
        dynamics.JointActuator("panda_joint4", (1.0, 0.5, 0.1), (0.3, -2.0, -0.2)),
    )
    with jax.enable_x64(True):
        robot = dynamics.load_robot("panda")
        scene = dynamics.build_scene(
            robot, (a, b), geoms=(), pairs=(), equalities=equalities, actuators=actuators
        )
        assert scene.equality_names[0] == "coupled"
        assert scene.actuator_names == ("motor", "panda_joint2", "panda_joint3", "panda_joint4")
        model, rng = scene.to_mujoco(), np.random.default_rng(0)
        model.opt.tolerance = 0
        data, ctrl = mujoco.MjData(model), np.array([1.5, 0.3, 2.0, 0.7])
        mujoco.mj_forward(model, data)
        # By default two points that are connected are at one place, unless the file says where.
        assert np.abs(data.efc_pos[2:8]).max() < 1e-12
        assert np.abs(data.efc_pos[8:14]).max() < 1e-12
        solve = jax.jit(
            lambda q, v: dynamics.constrained_acceleration(scene, q, v, 0 * v, None, ctrl)
        )
        for _ in range(3):
            data.qpos[:] = scene.constraints.reference
            mujoco.mj_integratePos(model, data.qpos, 0.2 * rng.normal(size=model.nv), 1.0)
            data.qvel, data.ctrl = rng.normal(size=model.nv), ctrl
            mujoco.mj_forward(model, data)
            acceleration, solution = solve(data.qpos, data.qvel)
            assert solution.converged
            scale = np.abs(data.qacc).max()
            np.testing.assert_allclose(acceleration, data.qacc, rtol=0, atol=1e-10 * scale)
            # Angular rows of a weld may have the other sign: their quaternion has two.
            force = data.qfrc_constraint
            atol = 1e-10 * np.abs(force).max()
            np.testing.assert_allclose(solution.joint_force, force, rtol=0, atol=atol)
    assert dynamics.load_mjcf(model).constraints.layout.equalities[0].name == "coupled"


def test_equalities_and_actuators_that_cannot_be() -> None:
    robot = dynamics.load_robot("panda")

    def built(*equalities: dynamics.SceneEquality, **options: object) -> Scene:
        return dynamics.build_scene(robot, (CUBE,), pairs=(), equalities=equalities, **options)

    with pytest.raises(UnknownNameError, match=r"unknown joint 'panda_joint9'.*Did you mean"):
        built(dynamics.joint_equality("panda_joint9"))
    with pytest.raises(ConfigError, match="joint 'cube' is floating, expected one with a single"):
        built(dynamics.joint_equality("panda_joint1", "cube"))
    with pytest.raises(UnknownNameError, match="unknown frame 'cub'"):
        built(dynamics.connect_equality("cub"))
    with pytest.raises(ConfigError, match="'panda_link7' and 'panda_hand': both are fixed to one"):
        built(dynamics.weld_equality("panda_link7", "panda_hand"))
    with pytest.raises(ConfigError, match="'cube' and 'cube': both are the same"):
        dynamics.connect_equality("cube", "cube")
    with pytest.raises(ConfigError, match="one to five finite numbers"):
        dynamics.joint_equality("a", "b", (0, 1, 2, 3, 4, 5))
    with pytest.raises(ConfigError, match=r"solref=\(0.02, -1\), expected two positive numbers"):
        dynamics.connect_equality("cube", solref=(0.02, -1))
    with pytest.raises(ConfigError, match=r"solimp=.* expected five numbers"):
        dynamics.weld_equality("cube", solimp=(0.9, 0.95))
    with pytest.raises(ArrayError, match=r"anchor=.* expected three finite numbers"):
        dynamics.connect_equality("cube", anchor=(0, 0))
    with pytest.raises(ConfigError, match="torque_scale=0, expected a positive length"):
        dynamics.weld_equality("cube", torque_scale=0)
    for rotation in (np.ones(4), np.diag([1.0, 1.0, -1.0])):
        with pytest.raises(ArrayError, match=r"(?s)rotation=array.* expected a rotation matrix"):
            dynamics.weld_equality("cube", rotation=rotation)
    motor = dynamics.motor_actuator("panda_joint1")
    with pytest.raises(ConfigError, match="2 actuators have the name 'panda_joint1'"):
        built(actuators=(motor, motor))
    with pytest.raises(ConfigError, match="actuator 'cube': joint 'cube' is floating"):
        built(actuators=(dynamics.motor_actuator("cube"),))
    with pytest.raises(ConfigError, match="kp=-1, expected a number that is not negative"):
        dynamics.position_actuator("panda_joint1", -1)
    with pytest.raises(ConfigError, match=r"ctrl_range=\(1, -1\), expected \(low, high\)"):
        dynamics.motor_actuator("panda_joint1", ctrl_range=(1, -1))


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
    with pytest.raises(ConfigError, match="friction=-1, expected one to three numbers"):
        sphere_geom("s", 0.1, friction=-1)
    with pytest.raises(ConfigError, match=r"geom 's': solref=\(0.02,\), expected two"):
        sphere_geom("s", 0.1, solref=(0.02,))
    with pytest.raises(UnknownNameError, match="unknown option 'fricton'"):
        sphere_geom("s", 0.1, fricton=2)
    with pytest.raises(ConfigError, match="mass=-1"):
        free_body("x", sphere_geom("", 0.1), mass=-1)
    with pytest.raises(ConfigError, match="none of them a plane"):
        free_body("x", FLOOR, mass=1)
