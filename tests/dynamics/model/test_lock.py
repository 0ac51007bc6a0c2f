"""Locked joints against Pinocchio's reduced models, and against the whole robot."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from jax import Array

from fraxenv import dynamics
from fraxenv.dynamics.model.bundled import bundled_urdf
from fraxenv.errors import ConfigError, UnknownNameError

pin = pytest.importorskip("pinocchio")

pose = jax.jit(dynamics.frame_pose, static_argnums=2)

LOCKED = {
    "panda": ("panda_joint1", "panda_joint4", "panda_joint7"),
    "g1": tuple(
        f"{side}_{joint}_joint"
        for side in ("left", "right")
        for joint in ("hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "elbow")
    ),
}


@pytest.mark.parametrize("name", LOCKED)
def test_against_pinocchios_reduced_model(x64: None, name: str) -> None:
    robot = dynamics.load_robot(name, floating_base=False)
    rng = np.random.default_rng(0)
    q = np.asarray(robot.q_default) + rng.uniform(-0.3, 0.3, robot.nq)
    reduced = dynamics.lock_joints(robot, LOCKED[name], q)
    whole = pin.buildModelFromUrdf(str(bundled_urdf(name)))
    ids = [whole.getJointId(n) for n in LOCKED[name]]
    model = pin.buildReducedModel(whole, ids, q)
    model.armature[:] = 0
    data = model.createData()
    assert reduced.nv == model.nv == robot.nv - len(ids)
    assert list(reduced.joint_names) == list(model.names)[1:]
    unarmed = reduced.replace(armature=np.zeros(reduced.nv))

    @jax.jit
    def ours(x: Array, v: Array, a: Array) -> tuple[Array, list[tuple[Array, Array]]]:
        kin = dynamics.compute_kinematics(unarmed, x)
        poses = [dynamics.frame_pose(unarmed, x, f, kin=kin) for f in reduced.end_effectors]
        return dynamics.rnea(unarmed, x, v, a, kin=kin), poses

    for _ in range(5):
        x, v, a = rng.uniform(-1, 1, (3, reduced.nv))
        tau, poses = ours(x, v, a)
        np.testing.assert_allclose(tau, pin.rnea(model, data, x, v, a), atol=1e-9)
        for frame, found in zip(reduced.end_effectors, poses, strict=True):
            target = reduced.frame(frame).name
            pin.framesForwardKinematics(model, data, x)
            theirs = data.oMf[model.getFrameId(target)]
            np.testing.assert_allclose(found[0], theirs.translation, atol=1e-12)
            np.testing.assert_allclose(found[1], theirs.rotation, atol=1e-12)


def test_shapes_limits_and_defaults_stay(x64: None) -> None:
    robot = dynamics.load_robot("g1", floating_base=False)
    reduced = dynamics.lock_joints(robot, LOCKED["g1"])
    for name in ("position_limits", "velocity_limits", "effort_limits"):
        kept = [n not in LOCKED["g1"] for n in robot.joint_names]
        np.testing.assert_array_equal(getattr(reduced, name), getattr(robot, name)[kept])

    @jax.jit
    def of_default(robot: dynamics.Robot) -> tuple[dynamics.RobotGeometry, Array]:
        q = robot.q_default
        return dynamics.robot_geometry(robot, q), dynamics.self_distances(robot, q)

    (geometry, whole), (reduced_geometry, fewer) = map(of_default, (robot, reduced))
    for a, b in zip(geometry, reduced_geometry, strict=True):
        for field in vars(a):
            np.testing.assert_allclose(getattr(a, field), getattr(b, field), atol=1e-12)
    between = dict(zip(dynamics.self_distance_names(robot), whole.tolist(), strict=True))
    left = zip(dynamics.self_distance_names(reduced), fewer.tolist(), strict=True)
    for name, distance in left:
        assert between[name] == pytest.approx(distance, abs=1e-12)
    assert 0 < len(reduced.topology.self_collision_pairs) < len(between)


def test_nothing_locked_changes_nothing() -> None:
    robot = dynamics.load_robot("panda")
    assert dynamics.lock_joints(robot, ()) is robot


INERTIAL = (
    '<inertial><mass value="1"/>'
    '<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
)
HAND = f"""
<robot name="hand">
  <link name="base"/>
  <link name="palm">{INERTIAL}</link>
  <link name="finger">{INERTIAL}</link>
  <link name="thumb">{INERTIAL}</link>
  <joint name="lift" type="prismatic">
    <parent link="base"/><child link="palm"/><axis xyz="0.6 0 0.8"/>
    <limit lower="-1" upper="1" effort="9" velocity="9"/>
  </joint>
  <joint name="finger" type="revolute">
    <parent link="palm"/><child link="finger"/><origin xyz="0.1 0.2 0.3"/><axis xyz="1 0 0"/>
    <limit lower="-1" upper="1" effort="9" velocity="9"/>
  </joint>
  <joint name="thumb" type="revolute">
    <parent link="palm"/><child link="thumb"/><axis xyz="0 1 0"/>
    <limit lower="-3" upper="3" effort="9" velocity="9"/>
    <mimic joint="finger" multiplier="2" offset="0.1"/>
  </joint>
</robot>
"""


def test_joints_that_follow_others_still_do(tmp_path: Path, x64: None) -> None:
    """And a locked slider stays where it was."""
    path = tmp_path / "hand.urdf"
    path.write_text(HAND)
    robot = dynamics.load_urdf(path)
    reduced = dynamics.lock_joints(robot, ["lift"], [0.5, 0.0])
    assert reduced.joint_names == ("finger",)
    for frame in ("palm", "finger", "thumb"):
        expected = pose(robot, np.array([0.5, 0.7]), frame)
        for ours, theirs in zip(pose(reduced, np.array([0.7]), frame), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_followers_are_locked_with_the_joint_that_they_follow(tmp_path: Path, x64: None) -> None:
    path = tmp_path / "hand.urdf"
    path.write_text(HAND)
    robot = dynamics.load_urdf(path)
    reduced = dynamics.lock_joints(robot, ["finger"], [0.0, 0.7])
    assert reduced.joint_names == ("lift",)
    for frame in ("palm", "finger", "thumb"):
        expected = pose(robot, np.array([0.5, 0.7]), frame)
        for ours, theirs in zip(pose(reduced, np.array([0.5]), frame), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_joints_that_cannot_be_locked(joints_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"joint 'joint1' of robot 'panda'.*panda_joint1"):
        dynamics.lock_joints(dynamics.load_robot("panda"), ["joint1"])
    mobile = dynamics.load_robot("planar_mobile_manipulator")
    planar = mobile.topology.joints[0].name
    with pytest.raises(ConfigError, match="is a planar joint, expected a revolute"):
        dynamics.lock_joints(mobile, [planar])
    joints = dynamics.load_urdf(joints_path)
    with pytest.raises(ConfigError, match="'to_drawer' of robot 'joints' is a mimic joint"):
        dynamics.lock_joints(joints, ["to_drawer"])
