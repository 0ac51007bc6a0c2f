"""A humanoid on its feet: the robot, what of it touches the ground, and plans that walk."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import load_script, packaged

from fraxenv import dynamics
from fraxenv.cross_check.scenes import mass_matrix, solve_exactly
from fraxenv.dynamics import Robot, Shape, compute_terms, frame_pose, scene_step
from fraxenv.envs import foot_names, walking_scene

FEET = ("left_foot", "right_foot")
SOURCE = ("example-robot-data", "g1_description/urdf/g1_29dof_rev_1_0.urdf")
STIFF, DAMPED = 100.0, 4.0  # N m/rad and N m s/rad, of springs at the joints


@pytest.fixture(scope="module")
def robot() -> Robot:
    return dynamics.load_robot("g1_feet")


def in_mujoco(robot: Robot) -> Any:
    """MuJoCo's model of the robot's source, on a base that floats, without meshes."""
    mujoco = pytest.importorskip("mujoco")
    urdf = ET.parse(packaged(*SOURCE)).getroot()
    for link in urdf.findall("link"):
        for part in [*link.findall("visual"), *link.findall("collision")]:
            if part.find("geometry/mesh") is not None:
                link.remove(part)
    floats = '<parent link="ground"/><child link="pelvis"/>'
    for added in (
        '<mujoco><compiler fusestatic="true"/></mujoco>',
        '<link name="ground"/>',
        f'<joint name="base" type="floating">{floats}</joint>',
    ):
        urdf.append(ET.XML(added))
    model = mujoco.MjModel.from_xml_string(ET.tostring(urdf, "unicode"))
    model.dof_armature = robot.armature
    return model


def test_it_is_the_robot_of_its_source_for_mujoco(robot: Robot, x64: None) -> None:
    """Mass matrix, bias forces, and where the balls under the soles are, in a scene as well."""
    mujoco = pytest.importorskip("mujoco")
    model = in_mujoco(robot)
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    assert (model.nq, model.nv) == (robot.nq, robot.nv) == (36, 35)
    assert float(np.sum(model.body_mass)) == pytest.approx(33.34114202, rel=1e-12)
    balls = [s for s in robot.topology.collision_shapes if s.name.startswith(FEET)]
    radii = [s.size[0] for s in balls]
    theirs = np.flatnonzero(np.isin(model.geom_size[:, 0], radii))
    np.testing.assert_array_equal(radii, [0.005] * 8)
    assert len(theirs) == 8

    @jax.jit
    def ours(q: Any, v: Any) -> Any:
        terms = compute_terms(robot, q, v)
        return terms.mass_matrix, terms.bias, jnp.stack([_centre(terms, s) for s in balls])

    scene = walking_scene(robot).to_mujoco()
    there = mujoco.MjData(scene)
    touching = [scene.geom(ball.name).id for ball in balls]
    for _ in range(5):
        q, v = np.array(robot.q_default), rng.normal(size=35)
        mujoco.mj_integratePos(model, q, 0.3 * rng.normal(size=35), 1.0)
        data.qpos, data.qvel = q, v
        mujoco.mj_forward(model, data)
        M, bias, centres = ours(q, v)
        np.testing.assert_allclose(M, mass_matrix(model, data), atol=1e-9)
        np.testing.assert_allclose(bias, data.qfrc_bias, atol=1e-9)
        np.testing.assert_allclose(centres, data.geom_xpos[theirs], atol=1e-12)
        there.qpos = q
        mujoco.mj_kinematics(scene, there)
        np.testing.assert_allclose(there.geom_xpos[touching], data.geom_xpos[theirs], atol=1e-12)


def _centre(terms: Any, shape: Shape) -> Any:
    return terms.kin.position[shape.body] + terms.kin.rotation[shape.body] @ shape.position


def test_it_stands_on_eight_balls(robot: Robot, x64: None) -> None:
    """By default they are at the floor, and the end effectors are in the middle of the soles."""
    assert foot_names(robot) == FEET
    balls = [f"{foot}_{i}" for foot in FEET for i in (1, 2, 3, 4)]
    scene = walking_scene(robot)
    assert scene.geom_names == ("floor", *balls)
    assert set(scene.pair_names) == {("floor", ball) for ball in balls}
    pose = jax.jit(lambda name: frame_pose(robot, robot.q_default, name), static_argnums=0)
    for foot in FEET:
        (middle, axes), (link, _) = pose(foot), pose(f"{foot[:-5]}_ankle_roll_link")
        np.testing.assert_allclose(middle - link, [0.035, 0, -0.035], atol=1e-12)
        np.testing.assert_allclose(axes, np.eye(3), atol=1e-12)
        assert abs(float(middle[2])) < 1e-4
    centre = jax.jit(dynamics.center_of_mass)(robot, robot.q_default)
    assert abs(float(centre[0] - middle[0])) < 0.01


def test_all_else_is_the_robot_without_feet(robot: Robot) -> None:
    """Which is as it was: it has neither the balls nor the frames."""
    bare = dynamics.load_robot("g1")
    for field in ("mass", "com", "inertia", "position_limits", "velocity_limits", "effort_limits"):
        np.testing.assert_array_equal(getattr(robot, field), getattr(bare, field), field)
    own, other = robot.topology, bare.topology
    without = dataclasses.replace(
        own,
        name=other.name,
        frames=own.frames[:-2],
        collision_shapes=own.collision_shapes[:-8],
        end_effectors=other.end_effectors,
    )
    assert without == other
    welded = dynamics.load_robot("g1_feet", floating_base=False)
    assert welded.q_default.tolist() == robot.q_default[7:].tolist()


def test_steps_on_its_feet_are_mujoco_s(robot: Robot, x64: None) -> None:
    """On springs, 0.8 s, from a push that lifts its heels: the whole state, in MuJoCo's engine."""
    mujoco = pytest.importorskip("mujoco")
    scene = walking_scene(robot)
    model = scene.to_mujoco()
    solve_exactly(model)
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    data = mujoco.MjData(model)
    stiff = np.where(np.arange(35) < 6, 0.0, STIFF)

    def springs(q: Any, v: Any) -> Any:
        stretched = robot.q_default[7:] - q[7:]
        return stiff[6:] * stretched - DAMPED * v[6:]

    @jax.jit
    def step(q: Any, v: Any, a: Any) -> Any:
        tau = jnp.zeros(35).at[6:].set(springs(q, v))
        q, v, solution = scene_step(scene, q, v, tau, warm_start=a, integrator="euler")
        return q, v, solution.acceleration

    q, v, a = jnp.asarray(robot.q_default), jnp.zeros(35).at[0].set(0.2), jnp.zeros(35)
    data.qpos, data.qvel = np.array(q), np.array(v)
    touching = set()
    for _ in range(200):
        data.qfrc_applied[6:] = springs(data.qpos, data.qvel)
        mujoco.mj_step(model, data)
        q, v, a = step(q, v, a)
        np.testing.assert_allclose(q, data.qpos, rtol=0, atol=1e-9)
        np.testing.assert_allclose(v, data.qvel, rtol=0, atol=1e-9)
        touching.add(data.ncon)
    assert {8, 4} <= touching


@pytest.mark.slow
def test_plans_keep_it_upright_and_walk(x64: None) -> None:
    """Pushed by 10 N s, standing, and to a place half a metre ahead in steps of 6 cm."""
    humanoid = load_script("measure/humanoid")
    walker = humanoid.Walker()
    for push in ((10.0, 0.0), (0.0, -10.0)):
        stood = walker.run(300, push=push)
        assert not stood.fell
        assert stood.pelvis[:, 2].min() > 0.75
        assert np.abs(stood.pelvis[-1, :2]).max() < 0.05
    walked = walker.run(500, gait=humanoid.STEPPING, place=(0.5, 0.0))
    assert not walked.fell
    assert np.linalg.norm(walked.pelvis[-50:, :2] - [0.5, 0.0], axis=1).max() < 0.15
    off = (walked.feet[:, :, 2] - walked.wanted)[walked.wanted > 0]
    assert np.sqrt(np.mean(off**2)) < 0.012
