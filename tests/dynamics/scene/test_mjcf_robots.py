"""Robots of MJCF files, whole or in part, against MuJoCo's own mass matrix, bias and Jacobians."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from fraxenv import dynamics
from fraxenv.dynamics import Robot
from fraxenv.dynamics.scene.unsupported import LEFT_OUT
from fraxenv.errors import ConfigError, SceneLoadError, UnknownNameError

mujoco = pytest.importorskip("mujoco")

from mjcf_robots import differences

ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"

CELL = """<mujoco model="cell"><option gravity="0.3 -0.2 -9.7"/>
<worldbody>
  <geom name="floor" type="plane" size="1 1 .1"/>
  <body name="cube" pos=".4 0 .1"><freejoint name="cube"/>
    <geom name="cube" type="box" size=".02 .03 .04"/>
    <site name="top" pos="0 0 .04"/></body>
  <body name="cart" pos="0 0 .2" euler="0 0 30">
    <joint name="rail" type="slide" axis="1 0 0" range="-1 1"/>
    <geom name="cart" type="box" size=".1 .1 .05"/>
    <body name="base" pos="0 .1 .1" euler="10 20 0">
      <geom name="base" type="cylinder" size=".05 .05"/>
      <body name="upper" pos="0 0 .1">
        <joint name="pan" axis="0 0 1" ref="20" armature=".01" damping=".2"/>
        <joint name="lift" axis="0 1 0" pos="0 0 .02" ref="-10" range="-90 80" frictionloss=".1"/>
        <geom name="upper" type="capsule" fromto="0 0 0 .3 0 0" size=".03"/>
        <body name="fore" pos=".3 0 0"><joint name="elbow" axis="0 1 0" stiffness="2"/>
          <geom name="fore" type="capsule" fromto="0 0 0 .3 0 .1" size=".02"/>
          <body name="wrist" pos=".3 0 .1"><joint name="wrist" type="ball" pos="0 .01 0"/>
            <geom name="wrist" type="box" size=".03 .02 .04"/>
            <site name="grasp" pos=".05 0 0" euler="0 90 0"/>
            <body name="finger" pos=".05 0 0">
              <joint name="slide" type="slide" axis="0 1 0" ref=".01"/>
              <geom name="finger" type="box" size=".02 .005 .01" pos=".02 0 0"/></body>
          </body></body></body></body></body>
</worldbody>
<tendon><fixed name="coupling" stiffness="3"><joint joint="slide" coef="1"/></fixed></tendon>
<actuator>
  <motor name="hand" joint="slide" gear="10"/>
  <motor name="lift" joint="lift" gear="3" ctrlrange="-2 2" ctrllimited="true"/>
  <position name="pan" joint="pan" kp="50"/>
  <motor name="pan too" joint="pan"/>
  <motor name="cart" joint="rail"/>
</actuator></mujoco>"""


def compare(model: Any, robot: Robot) -> int:
    """Compare both at a random state; the number of frames that were."""
    found, frames = differences(model, robot)
    assert max(found.values()) < 1e-12, found
    return frames


@pytest.mark.parametrize(
    ("root", "freeze", "nv"),
    [
        ("cart", (), 8),
        pytest.param("base", (), 7, marks=pytest.mark.slow),
        pytest.param("base", ("slide",), 6, marks=pytest.mark.slow),
        pytest.param("cart", ("pan", "wrist"), 4, marks=pytest.mark.slow),
        ("upper", ("lift", "elbow"), 5),
        ("cube", (), 6),
    ],
)
def test_parts_of_a_scene(root: str, freeze: Sequence[str], nv: int, x64: None) -> None:
    model = mujoco.MjModel.from_xml_string(CELL)
    robot = dynamics.load_mjcf_robot(model, root=root, freeze=freeze, leave_out=LEFT_OUT)
    assert robot.nv == nv
    assert compare(model, robot) >= 3
    inside = {s.name for s in robot.topology.collision_shapes}
    assert "floor" not in inside
    assert ("cube" in inside) == (root == "cube")
    assert ("cart" in inside) == (root == "cart")


@pytest.mark.parametrize(
    ("file", "root", "nv"),
    [("reacher.xml", "body0", 2),
     pytest.param("pusher_v5.xml", "r_shoulder_pan_link", 7, marks=pytest.mark.slow),
     pytest.param("walker2d_v5.xml", "torso", 9, marks=pytest.mark.slow),
     pytest.param("humanoid.xml", "torso", 23, marks=pytest.mark.slow), ("ant.xml", "torso", 14)],
)  # fmt: skip
def test_gymnasium_s_robots(file: str, root: str, nv: int, x64: None) -> None:
    model = mujoco.MjModel.from_xml_path(str(ASSETS / file))
    robot = dynamics.load_mjcf_robot(model, root=root, leave_out=LEFT_OUT)
    assert robot.nv == nv
    compare(model, robot)


def test_a_hand_is_one_tree_of_several_branches(x64: None) -> None:
    finger = (
        '<body name="{0}" pos="{1} 0 .1"><joint name="{0}"/><geom size=".02" pos=".1 0 0"/></body>'
    )
    fingers = finger.format("thumb", 0.1) + finger.format("little", -0.1)
    palm = '<body name="palm"><geom size=".1"/>' + fingers + "</body>"
    hand = dynamics.load_mjcf_robot(f"<mujoco><worldbody>{palm}</worldbody></mujoco>")
    assert hand.joint_names == ("thumb", "little")
    with pytest.raises(SceneLoadError, match="2 kinematic trees begin with 'thumb', 'little'"):
        dynamics.load_mjcf_robot(f"<mujoco><worldbody>{fingers}</worldbody></mujoco>")


def test_gravity_may_be_switched_off(x64: None) -> None:
    text = CELL.replace('gravity="0.3 -0.2 -9.7"/>', '><flag gravity="disable"/></option>')
    model = mujoco.MjModel.from_xml_string(text)
    robot = dynamics.load_mjcf_robot(model, root="cube", leave_out=LEFT_OUT)
    assert not np.any(robot.gravity)
    compare(model, robot)


def test_where_numbers_are() -> None:
    robot = dynamics.load_mjcf_robot(CELL, root="base", leave_out=LEFT_OUT)
    assert robot.joint_names == ("pan", "lift", "elbow", "wrist", "slide")
    at = dynamics.mjcf_indices(CELL, robot)
    assert at.qpos.tolist() == [8, 9, 10, 11, 12, 13, 14, 15]
    assert at.qvel.tolist() == [7, 8, 9, 10, 11, 12, 13]
    assert at.ctrl.tolist() == [-1, 1, -1, -1, -1, -1, 0]  # two drive `pan`
    np.testing.assert_allclose(robot.effort_limits[1], 6.0)
    locked = dynamics.lock_joints(robot, ["lift"])
    assert dynamics.mjcf_indices(CELL, locked).qpos.tolist() == [8, 10, 11, 12, 13, 14, 15]
    other = dynamics.load_robot("panda")
    with pytest.raises(UnknownNameError, match="joint 'panda_joint1'"):
        dynamics.mjcf_indices(CELL, other)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"root": "cart"}, SceneLoadError, r"tendon 'coupling': it pulls.*leave_out=\['tendons'\]"),
        ({}, SceneLoadError, "2 kinematic trees.*root="),
        ({"root": "cart", "leave_out": ["tendons"]}, SceneLoadError, "'elbow': it has a spring"),
        ({"root": "bse"}, UnknownNameError, "unknown body 'bse'"),
        ({"root": "cart", "freeze": ["elbw"]}, UnknownNameError, "unknown joint 'elbw'"),
        ({"leave_out": ["friction"]}, ConfigError, "leave_out='friction', expected one of"),
        ({"root": "cube", "freeze": ["cube"]}, SceneLoadError, "0 kinematic trees"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        dynamics.load_mjcf_robot(CELL, **options)


def test_a_tendon_in_space_acts_on_what_it_goes_by() -> None:
    text = """<mujoco><worldbody><site name="a" pos="0 0 1"/><site name="b" pos="0 1 1"/>
      <body name="one"><joint/><geom size=".1"/><site name="c"/></body>
      <body name="two"><joint/><geom name="two" size=".1"/></body>
      <body name="free"><joint/><geom size=".1"/></body></worldbody>
    <tendon><spatial stiffness="1"><site site="a"/><site site="c"/></spatial>
      <spatial stiffness="1"><site site="a"/><geom geom="two"/><site site="b"/></spatial></tendon>
    </mujoco>"""
    for root in ("one", "two"):
        with pytest.raises(SceneLoadError, match="it pulls"):
            dynamics.load_mjcf_robot(text, root=root)
        assert dynamics.load_mjcf_robot(text, root=root, leave_out=["tendons"]).nv == 1
    assert dynamics.load_mjcf_robot(text, root="free").nv == 1


def test_what_does_not_act_on_a_part_may_stay() -> None:
    assert dynamics.load_mjcf_robot(CELL, root="cube").nv == 6
    frozen = dynamics.load_mjcf_robot(CELL, root="base", freeze=["elbow", "slide"])
    assert frozen.nv == 5
