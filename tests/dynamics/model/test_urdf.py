"""Loading URDF files, good and bad, and the Panda that ships."""

from __future__ import annotations

import math
import re
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from scipy.spatial.transform import Rotation

from fraxenv import dynamics
from fraxenv.dynamics import (
    WORLD,
    FraxenvError,
    Robot,
    RobotLoadError,
    RobotLoadWarning,
    UnknownNameError,
    load_urdf,
)
from fraxenv.dynamics.model import bundled

# One element a line, so that an error's line number can be told.
ARM = """\
<robot name="arm">
  <material name="red"><color rgba="1 0 0 1"/></material>
  <link name="base"/>
  <link name="upper">
    <inertial>
      <origin xyz="0 0 0.1"/>
      <mass value="2.0"/>
      <inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/>
    </inertial>
    <visual><geometry><box size="0.1 0.2 0.3"/></geometry><material name="red"/></visual>
    <collision name="ball"><geometry><sphere radius="0.1"/></geometry></collision>
  </link>
  <link name="lower">
    <inertial>
      <mass value="1.0"/>
      <inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/>
    </inertial>
    <visual>
      <geometry><cylinder radius="0.1" length="0.5"/></geometry>
      <material name="own"><color rgba="0 0.5 1 0.25"/></material>
    </visual>
    <visual><geometry><sphere radius="0.1"/></geometry><material name="own"/></visual>
    <visual><geometry><sphere radius="0.1"/></geometry></visual>
  </link>
  <link name="tool"/>
  <joint name="shoulder" type="revolute">
    <parent link="base"/>
    <child link="upper"/>
    <axis xyz="0 0 2"/>
    <limit lower="-1" upper="2" effort="30" velocity="3"/>
    <dynamics damping="0.5" friction="0.25"/>
  </joint>
  <joint name="slide" type="prismatic">
    <parent link="upper"/>
    <child link="lower"/>
    <axis xyz="0 1 0"/>
    <limit lower="0.1" upper="0.4" effort="30" velocity="3"/>
  </joint>
  <joint name="mount" type="fixed">
    <parent link="lower"/>
    <child link="tool"/>
    <origin xyz="0 0 0.5" rpy="0 1.5707963267948966 0"/>
  </joint>
</robot>
"""
UPPER_INERTIA = ARM.splitlines()[7]
SHOULDER_LIMIT = '<limit lower="-1" upper="2" effort="30" velocity="3"/>'
EXTRA_INERTIAL = (
    '<inertial><origin xyz="0 0 0.2"/><mass value="3"/>'
    '<inertia ixx="0.1" iyy="0.2" izz="0.25" ixy="0.01" ixz="0" iyz="0"/></inertial>'
)

Load = Callable[..., Robot]


def edited(*edits: tuple[str, str]) -> str:
    """`ARM` with the first occurrence of each text replaced."""
    text = ARM
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return text


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(text: str | bytes, **options: Any) -> Robot:
        path = tmp_path / "arm.urdf"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_urdf(path, **options)

    return load


def assert_says(error: Exception, *fragments: str) -> None:
    for fragment in fragments:
        assert fragment in str(error)
    assert isinstance(error, FraxenvError)
    assert isinstance(error, ValueError)


# --- Good files -----------------------------------------------------------------------------------


def test_arm(load: Load) -> None:
    robot = load(ARM)
    topology = robot.topology
    assert (robot.name, robot.nq, robot.nv) == ("arm", 2, 2)
    assert robot.joint_names == ("shoulder", "slide")
    assert topology.body_names == ("upper", "lower")
    assert topology.parent.tolist() == [WORLD, 0]
    assert [j.kind for j in topology.joints] == ["revolute", "prismatic"]
    assert [j.axis.tolist() for j in topology.joints] == [[0, 0, 1], [0, 1, 0]]
    assert topology.dof_rotates.tolist() == [True, False]
    assert robot.mass.tolist() == [2.0, 1.0]
    assert robot.position_limits.tolist() == [[-1, 2], [0.1, 0.4]]
    assert robot.velocity_limits.tolist() == [3, 3]
    assert robot.effort_limits.tolist() == [30, 30]
    assert robot.damping.tolist() == [0.5, 0]
    assert robot.friction.tolist() == [0.25, 0]
    assert robot.gravity.tolist() == [0, 0, -9.81]
    assert robot.armature.tolist() == [0, 0]
    assert robot.stop_stiffness.tolist() == robot.stop_damping.tolist() == [0, 0]
    assert np.isposinf(robot.effort_rate_limits).all()
    assert robot.q_default.tolist() == [0, 0.1]  # zero, as far as the limits allow


def test_options(load: Load) -> None:
    robot = load(
        ARM,
        end_effectors={"hand": "tool"},
        q_default=[0.5, 0.3],
        gravity=[1, 2, 3],
        armature=[0.1, 0.2],
        effort_rate_limits=100,
        self_collision_pairs=[("ball", "ball")],
    )
    assert robot.end_effectors == ("hand",)
    assert robot.frame("hand").name == "tool"
    assert robot.q_default.tolist() == [0.5, 0.3]
    assert robot.gravity.tolist() == [1, 2, 3]
    assert robot.armature.tolist() == [0.1, 0.2]
    assert robot.effort_rate_limits.tolist() == [100, 100]
    assert robot.topology.self_collision_pairs.tolist() == [[0, 0]]


def test_fixed_joints_are_merged_and_their_frames_survive(load: Load) -> None:
    plain = load(ARM)
    assert plain.frame_names == ("base", "upper", "lower", "tool")
    tool = plain.frame("tool")
    assert tool.body == 1
    np.testing.assert_allclose(tool.position, [0, 0, 0.5])
    np.testing.assert_allclose(tool.rotation, [[0, 0, 1], [0, 1, 0], [-1, 0, 0]], atol=1e-15)
    assert plain.frame("base").body == WORLD

    # The welded link's mass is carried by the body: the reference puts two bodies together.
    heavy = load(edited(('<link name="tool"/>', f'<link name="tool">{EXTRA_INERTIAL}</link>')))
    assert heavy.nv == 2
    position = tool.position + tool.rotation @ [0, 0, 0.2]
    inertia = tool.rotation @ [[0.1, 0.01, 0], [0.01, 0.2, 0], [0, 0, 0.25]] @ tool.rotation.T
    com = 0.75 * position
    assert heavy.mass.tolist() == [2.0, 4.0]
    np.testing.assert_allclose(heavy.com[1], com, atol=1e-15)
    expected = 0.1 * np.eye(3) + inertia
    for mass, arm in ((1.0, -com), (3.0, position - com)):
        expected += mass * (arm @ arm * np.eye(3) - np.outer(arm, arm))
    np.testing.assert_allclose(heavy.inertia[1], expected, atol=1e-14)


def test_chain_of_fixed_joints_between_movable_ones(load: Load) -> None:
    """A bracket between two movable joints moves the second joint's frame, and nothing else."""
    bracket = """
      <link name="bracket"/>
      <joint name="weld" type="fixed"><parent link="upper"/><child link="bracket"/>
        <origin xyz="0.1 0.2 0.3" rpy="0.4 0.5 0.6"/></joint></robot>"""
    robot = load(
        edited(('<parent link="upper"/>', '<parent link="bracket"/>'), ("</robot>", bracket))
    )
    assert robot.topology.parent.tolist() == [WORLD, 0]
    np.testing.assert_allclose(robot.topology.position[1], [0.1, 0.2, 0.3])
    turn = Rotation.from_euler("xyz", [0.4, 0.5, 0.6]).as_matrix()
    np.testing.assert_allclose(robot.topology.rotation[1], turn, atol=1e-15)


@pytest.mark.parametrize(
    "inertial",
    [
        "",
        "<inertial><mass value='0'/><inertia ixx='0' iyy='0' "
        "izz='0' ixy='0' ixz='0' iyz='0'/></inertial>",
    ],
)
def test_welded_links_need_no_mass(load: Load, inertial: str) -> None:
    robot = load(edited(('<link name="tool"/>', f'<link name="tool">{inertial}</link>')))
    assert robot.mass.tolist() == [2.0, 1.0]


def test_mass_may_come_from_what_is_welded_to_a_link(load: Load) -> None:
    text = ARM.split('<link name="lower">')
    bare = re.sub(r"<inertial>.*?</inertial>", "", text[1], flags=re.DOTALL)
    bare = bare.replace('<link name="tool"/>', f'<link name="tool">{EXTRA_INERTIAL}</link>')
    robot = load('<link name="lower">'.join([text[0], bare]))
    assert robot.mass.tolist() == [2.0, 3.0]


@pytest.mark.parametrize("limit", ["", "<limit/>", '<limit effort="30" velocity="3"/>'])
def test_absent_limits_are_infinite(load: Load, limit: str) -> None:
    robot = load(edited((SHOULDER_LIMIT, limit)))
    assert robot.position_limits[0].tolist() == [-math.inf, math.inf]
    given = "effort" in limit
    assert robot.effort_limits[0] == (30 if given else math.inf)
    assert robot.velocity_limits[0] == (3 if given else math.inf)


def test_one_limit_may_be_absent(load: Load) -> None:
    robot = load(edited((SHOULDER_LIMIT, '<limit upper="2"/>')))
    assert robot.position_limits[0].tolist() == [-math.inf, 2]


def test_continuous_joints_have_no_position_limits(load: Load) -> None:
    robot = load(edited(('type="revolute"', 'type="continuous"')))
    assert robot.position_limits[0].tolist() == [-math.inf, math.inf]
    assert robot.effort_limits[0] == 30
    assert robot.topology.joints[0].kind == "continuous"


@pytest.mark.parametrize("length", ["1e-3", "1e200"])
def test_axis_of_any_length(load: Load, length: str) -> None:
    robot = load(edited(('<axis xyz="0 0 2"/>', f'<axis xyz="0 0 -{length}"/>')))
    np.testing.assert_allclose(robot.topology.joints[0].axis, [0, 0, -1])


def test_default_axis_is_x(load: Load) -> None:
    assert load(edited(('<axis xyz="0 0 2"/>', ""))).topology.joints[0].axis.tolist() == [1, 0, 0]


def test_materials_colour_the_visuals(load: Load) -> None:
    box, cylinder, again, plain = load(ARM).topology.visual_shapes
    assert (box.kind, box.size, box.rgba) == ("box", (0.1, 0.2, 0.3), (1, 0, 0, 1))
    assert (cylinder.kind, cylinder.size) == ("cylinder", (0.1, 0.5))
    assert cylinder.rgba == again.rgba == (0, 0.5, 1, 0.25)
    assert plain.rgba == (0.7, 0.7, 0.7, 1.0)


def test_collision_shapes(load: Load) -> None:
    (ball,) = load(ARM).topology.collision_shapes
    assert (ball.name, ball.kind, ball.size, ball.body) == ("ball", "sphere", (0.1,), 0)


@pytest.fixture
def touched(load: Load) -> Iterator[list[tuple[str, str]]]:
    """What Python opens, imports, runs or asks the network and the operating system for."""
    load(ARM)  # imports what it needs
    events: list[tuple[str, str]] = []
    listening = True
    modules = ("open", "import", "os", "socket", "subprocess", "shutil", "tempfile", "urllib")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if listening and event.partition(".")[0] in modules:
            events.append((event, str(arguments[0]) if arguments else ""))

    sys.addaudithook(hook)  # cannot be removed
    yield events
    listening = False


@pytest.mark.parametrize(
    "name",
    [
        "mesh.stl",
        "./meshes/arm link.STL",
        "../meshes/mesh.dae",
        "../../../assets/arm/mesh.obj",  # as in frax
        "package://arm/mesh.stl",
        "package://arm/meshes/../visual/mesh.stl",
        "package:///arm/mesh.stl",  # as in Talos
        "model://arm/mesh.glb",
    ],
)
def test_meshes_are_named_and_never_opened(
    tmp_path: Path, touched: list[tuple[str, str]], name: str
) -> None:
    (tmp_path / "mesh.stl").write_bytes(b"not a mesh at all")
    geometry = "".join(
        f'<{kind}><geometry><mesh filename="{name}"/></geometry></{kind}>'
        for kind in ("visual", "collision")
    )
    path = tmp_path / "arm.urdf"
    path.write_text(edited(('<link name="tool"/>', f'<link name="tool">{geometry}</link>')))
    touched.clear()
    robot = load_urdf(path)
    assert touched == [("open", str(path))]
    assert len(robot.topology.visual_shapes) == 4
    assert len(robot.topology.collision_shapes) == 1


def test_elements_of_other_tools_are_ignored(load: Load) -> None:
    extra = """
      <gazebo reference="upper"><mass value="heavy"/><joint/><visual/></gazebo>
      <transmission name="t"><joint name="shoulder"/><actuator name="m"/></transmission></robot>"""
    assert load(edited(("</robot>", extra))).nv == 2


def test_name_defaults_to_the_files(load: Load) -> None:
    assert load(edited(('<robot name="arm">', "<robot>"))).name == "arm"


# --- Bad files ------------------------------------------------------------------------------------


def bomb(where: str) -> str:
    """A billion laughs: an entity of 10^25 characters, used there."""
    entities = ['<!ENTITY a "ha">']
    for before, name in zip("abcdefghijklmnopqrstuvwxy", "bcdefghijklmnopqrstuvwxyz", strict=True):
        entities.append(f'<!ENTITY {name} "{10 * f"&{before};"}">')
    return f"<!DOCTYPE robot [{''.join(entities)}]>" + edited(("</robot>", f"{where}</robot>"))


BAD: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "malformed": (
        ARM.replace("</robot>", ""),
        ("arm.urdf: not well-formed XML", "line 45", "xacro"),
    ),
    "empty": ("", ("arm.urdf: not well-formed XML", "Expected a URDF document")),
    "not XML": ("hello", ("arm.urdf: not well-formed XML", "Expected a URDF document")),
    "binary": (
        b"\x7fELF\x02\x01\x01" + bytes(range(256)),
        ("arm.urdf: not well-formed XML", "Expected a URDF document"),
    ),
    "zeros": (bytes(1000), ("arm.urdf: not well-formed XML", "Expected a URDF document")),
    "another encoding": (
        edited(('name="tool"', 'name="ß"')).encode("latin-1"),
        ("arm.urdf: not well-formed XML", "line 25", "Expected a URDF document"),
    ),
    "unknown encoding": (
        '<?xml version="1.0" encoding="klingon"?>' + ARM,
        ("arm.urdf: not well-formed XML", "klingon", "Expected a URDF document"),
    ),
    "endless nesting": (
        '<robot name="r">' + 100_000 * '<link name="a">',
        ("arm.urdf: not well-formed XML", "Expected a URDF document"),
    ),
    "not a robot": (
        "<mujoco>\n</mujoco>",
        ("arm.urdf, line 1: the root element is <mujoco>, expected <robot>",),
    ),
    "no links": ('<robot name="r"/>', ("arm.urdf: the robot has no <link>", "Add")),
    "no movable joint": (
        '<robot name="r"><link name="a"/></robot>',
        ("arm.urdf: the robot has no movable joint", "revolute, continuous, prismatic"),
    ),
    "document type": (
        "<!DOCTYPE robot>" + ARM,
        ("arm.urdf: it has a document type declaration", "Remove the <!DOCTYPE"),
    ),
    "external entity": (
        '<!DOCTYPE robot [<!ENTITY x SYSTEM "file:///etc/hostname">]>'
        + edited(("</robot>", "&x;</robot>")),
        ("arm.urdf: it has a document type declaration", "Remove the <!DOCTYPE"),
    ),
    "entity bomb in text": (
        bomb("&z;"),
        ("arm.urdf: not well-formed XML", "Maximum entity", "Expected a URDF document"),
    ),
    "entity bomb in an attribute": (
        bomb('<link name="&z;"/>'),
        ("arm.urdf: not well-formed XML", "Expected a URDF document"),
    ),
    "entity bomb in the declaration": (
        '<!DOCTYPE robot [<!ENTITY % a "&#37;a;"> %a;]>' + ARM,
        ("arm.urdf: not well-formed XML", "Expected a URDF document"),
    ),
    "not a number": (
        edited(('<mass value="2.0"/>', '<mass value="two"/>')),
        ("arm.urdf, line 7 (link 'upper'): <mass value='two'>: expected a finite number",),
    ),
    "empty number": (
        edited(('<mass value="2.0"/>', '<mass value=""/>')),
        ("arm.urdf, line 7 (link 'upper'): <mass value=''>: expected a finite number",),
    ),
    "two numbers": (
        edited(('<origin xyz="0 0 0.1"/>', '<origin xyz="0 0.1"/>')),
        ("arm.urdf, line 6 (link 'upper'): <origin xyz='0 0.1'>: expected 3 finite numbers",),
    ),
    "nan": (
        edited(('<axis xyz="0 0 2"/>', '<axis xyz="0 0 nan"/>')),
        ("arm.urdf, line 29 (joint 'shoulder'): <axis xyz='0 0 nan'>: expected 3 finite numbers",),
    ),
    "nan for a mass": (
        edited(('<mass value="1.0"/>', '<mass value="nan"/>')),
        ("arm.urdf, line 15 (link 'lower'): <mass value='nan'>: expected a finite number",),
    ),
    "nan for an inertia": (
        edited(('ixy="0"', 'ixy="NaN"')),
        ("arm.urdf, line 8 (link 'upper'): <inertia ixy='NaN'>: expected a finite number",),
    ),
    "inf": (
        edited(('upper="2"', 'upper="inf"')),
        ("arm.urdf, line 30 (joint 'shoulder'): <limit upper='inf'>: expected a finite number",),
    ),
    "too large a number": (
        edited(('damping="0.5"', 'damping="1e999"')),
        ("arm.urdf, line 31 (joint 'shoulder'): <dynamics damping='1e999'>", "a finite number"),
    ),
    "colour": (
        edited(('rgba="1 0 0 1"', 'rgba="red"')),
        ("arm.urdf, line 2 (material 'red'): <color rgba='red'>: expected 4 finite numbers",),
    ),
    "safety controller": (
        edited((SHOULDER_LIMIT, '<safety_controller k_velocity="fast"/>')),
        ("arm.urdf, line 30 (joint 'shoulder'): <safety_controller k_velocity=", "a finite number"),
    ),
    "link without name": (
        edited(('<link name="tool"/>', "<link/>")),
        ("arm.urdf, line 25: <link> has no name", "Add name="),
    ),
    "joint without name": (
        edited((' name="mount"', "")),
        ("arm.urdf, line 39: <joint> has no name", "Add name="),
    ),
    "no parent element": (
        edited(('<parent link="upper"/>', "")),
        ("arm.urdf, line 33 (joint 'slide'): no <parent link=", "Add it"),
    ),
    "no child element": (
        edited(('<child link="lower"/>', "")),
        ("arm.urdf, line 33 (joint 'slide'): no <child link=", "Add it"),
    ),
    "unknown parent": (
        edited(('<parent link="upper"/>', '<parent link="uper"/>')),
        ("arm.urdf: joint 'slide' names the parent link 'uper'", "base, upper, lower, tool"),
    ),
    "unknown child": (
        edited(('<child link="tool"/>', '<child link="tol"/>')),
        ("arm.urdf: joint 'mount' names the child link 'tol'", "base, upper, lower, tool"),
    ),
    "two roots": (
        edited(("</robot>", '<link name="orphan"/></robot>')),
        ("arm.urdf: 2 links have no parent: base, orphan", "connect"),
    ),
    "every link has a parent": (
        edited(
            (
                "</robot>",
                '<joint name="back" type="fixed"><parent link="tool"/><child link="base"/></joint>'
                "</robot>",
            )
        ),
        ("arm.urdf: every link has a parent", "cycle", "Expected one root"),
    ),
    "cycle apart": (
        edited(
            (
                "</robot>",
                '<link name="x"/><link name="y"/>'
                '<joint name="xy" type="fixed"><parent link="x"/><child link="y"/></joint>'
                '<joint name="yx" type="fixed"><parent link="y"/><child link="x"/></joint></robot>',
            )
        ),
        ("arm.urdf: links x, y form a cycle", "'base'", "Remove one joint"),
    ),
    "own parent": (
        edited(('<parent link="upper"/>', '<parent link="lower"/>')),
        ("arm.urdf: links lower, tool form a cycle", "Remove one joint"),
    ),
    "two parents": (
        edited(
            (
                "</robot>",
                '<joint name="second" type="fixed"><parent link="base"/><child link="tool"/>'
                "</joint></robot>",
            )
        ),
        ("arm.urdf: link 'tool' is the child of two joints, 'mount' and 'second'", "Remove one"),
    ),
    "links of one name": (
        edited(('<link name="tool"/>', '<link name="tool"/><link name="tool"/>')),
        ("arm.urdf: more than one link is named ['tool']", "Rename"),
    ),
    "joints of one name": (
        edited(('<joint name="slide"', '<joint name="shoulder"')),
        ("arm.urdf: more than one joint is named ['shoulder']", "Rename"),
    ),
    "unknown joint type": (
        edited(('type="prismatic"', 'type="screw"')),
        ("arm.urdf: joint 'slide' is of type 'screw'", "Supported: revolute, continuous"),
    ),
    "no joint type": (
        edited((' type="prismatic"', "")),
        ("arm.urdf: joint 'slide' is of type None", "Supported: revolute, continuous"),
    ),
    "mimic of nothing": (
        edited(('<axis xyz="0 1 0"/>', '<axis xyz="0 1 0"/><mimic joint="elbow"/>')),
        ("arm.urdf: joint 'slide' mimics 'elbow', which does not exist", "shoulder, slide"),
    ),
    "mimic of itself": (
        edited(('<axis xyz="0 1 0"/>', '<axis xyz="0 1 0"/><mimic joint="slide"/>')),
        ("arm.urdf: joint 'slide' mimics 'slide', which follows it in turn",),
    ),
    "mimics in a circle": (
        edited(
            ('<axis xyz="0 0 2"/>', '<mimic joint="slide"/>'),
            ('<axis xyz="0 1 0"/>', '<mimic joint="shoulder"/>'),
        ),
        ("arm.urdf: joint 'slide' mimics 'shoulder', which follows it in turn", "Break"),
    ),
    "mimic of a fixed joint": (
        edited(('<axis xyz="0 1 0"/>', '<mimic joint="mount"/>')),
        ("arm.urdf: joint 'slide' mimics 'mount', which is fixed", "shoulder, slide"),
    ),
    "mimic without joint": (
        edited(('<axis xyz="0 1 0"/>', '<axis xyz="0 1 0"/><mimic multiplier="2"/>')),
        ("arm.urdf, line", "<mimic> has no joint="),
    ),
    "mimic with a word": (
        edited(('<axis xyz="0 1 0"/>', '<mimic joint="shoulder" multiplier="x"/>')),
        ("<mimic multiplier='x'>: expected a finite number",),
    ),
    "no mass element": (
        edited(('<mass value="2.0"/>', "")),
        ("arm.urdf, line 5 (link 'upper'): <inertial> has no <mass>", "Add it"),
    ),
    "no inertia element": (
        edited((UPPER_INERTIA, "")),
        ("arm.urdf, line 5 (link 'upper'): <inertial> has no <inertia>", "Add it"),
    ),
    "mass without value": (
        edited(('<mass value="2.0"/>', "<mass/>")),
        ("arm.urdf, line 7 (link 'upper'): <mass> has no value=", "Add it"),
    ),
    "missing moment of inertia": (
        edited((' iyy="0.1"', "")),
        ("arm.urdf, line 8 (link 'upper'): <inertia> has no iyy=", "Add it"),
    ),
    "moving link without mass": (
        re.sub(r"<inertial>.*?</inertial>", "", ARM, count=1, flags=re.DOTALL),
        ("arm.urdf: link 'upper', which joint 'shoulder' moves, has no mass", "<inertial>"),
    ),
    "zero mass": (
        edited(('<mass value="2.0"/>', '<mass value="0"/>')),
        ("arm.urdf: link 'upper', which joint 'shoulder' moves, has no mass", "<inertial>"),
    ),
    "negative mass": (
        edited(('<mass value="2.0"/>', '<mass value="-2"/>')),
        ("arm.urdf: link 'upper' has the mass -2.0", "expected a number >= 0"),
    ),
    "inertia of a line": (
        edited(('ixx="0.1" iyy="0.1" izz="0.1"', 'ixx="0" iyy="0.1" izz="0.1"')),
        ("arm.urdf: link 'upper', which", "singular inertia", "positive principal moments"),
    ),
    "singular inertia": (
        edited(('ixx="0.1" iyy="0.1" izz="0.1"', 'ixx="0" iyy="0" izz="0"')),
        ("arm.urdf: link 'upper', which", "singular inertia", "positive principal moments"),
    ),
    "negative moment": (
        edited(('ixy="0"', 'ixy="0.2"')),
        ("arm.urdf: link 'upper' has an <inertia> with a negative principal moment", "signs"),
    ),
    "overflowing inertia": (
        edited(
            ('<link name="tool"/>', f'<link name="tool">{EXTRA_INERTIAL}</link>'),
            ('<origin xyz="0 0 0.2"/>', '<origin xyz="0 0 1e160"/>'),
        ),
        ("arm.urdf: link 'lower', which", "inertia of [", "Check the units"),
    ),
    "zero axis": (
        edited(('<axis xyz="0 0 2"/>', '<axis xyz="0 0 0"/>')),
        ("arm.urdf: joint 'shoulder' has an <axis> of length 0.0", "expected a direction"),
    ),
    "swapped limits": (
        edited(('lower="-1" upper="2"', 'lower="2" upper="-1"')),
        ("arm.urdf: joint 'shoulder' has the limits lower=2.0 > upper=-1.0", "Swap them"),
    ),
    "negative damping": (
        edited(('damping="0.5"', 'damping="-0.5"')),
        ("arm.urdf: joint 'shoulder' has <dynamics damping=-0.5>", "expected a number >= 0"),
    ),
    "negative friction": (
        edited(('friction="0.25"', 'friction="-1"')),
        ("arm.urdf: joint 'shoulder' has <dynamics friction=-1.0>", "expected a number >= 0"),
    ),
    "negative effort": (
        edited(('effort="30"', 'effort="-30"')),
        ("arm.urdf: joint 'shoulder' has <limit effort=-30.0>", "expected a number >= 0"),
    ),
    "negative velocity": (
        edited(('velocity="3"', 'velocity="-3"')),
        ("arm.urdf: joint 'shoulder' has <limit velocity=-3.0>", "expected a number >= 0"),
    ),
    "no geometry": (
        edited(('<geometry><box size="0.1 0.2 0.3"/></geometry>', "")),
        ("arm.urdf, line 10 (link 'upper'): <visual> has the shapes []", "a <geometry> with"),
    ),
    "empty geometry": (
        edited(('<sphere radius="0.1"/>', "")),
        ("arm.urdf, line 11 (link 'upper'): <collision> has the shapes []", "a <geometry> with"),
    ),
    "unknown geometry": (
        edited(('<sphere radius="0.1"/>', "<cone/>")),
        ("arm.urdf, line 11 (link 'upper'): <collision> has the shapes ['cone']", "box, cylinder"),
    ),
    "sphere without radius": (
        edited(('<sphere radius="0.1"/>', "<sphere/>")),
        ("arm.urdf, line 11 (link 'upper'): <sphere> has no radius=", "Add it"),
    ),
    "negative radius": (
        edited(('<sphere radius="0.1"/>', '<sphere radius="-0.1"/>')),
        ("arm.urdf: link 'upper' has a sphere of size (-0.1,)", "expected positive numbers"),
    ),
    "mesh without filename": (
        edited(('<sphere radius="0.1"/>', "<mesh/>")),
        ("arm.urdf, line 11 (link 'upper'): <mesh> has no filename=", "Add it"),
    ),
} | {
    f"mesh {name}": (
        edited(('<sphere radius="0.1"/>', f'<mesh filename="{name}"/>')),
        (f"arm.urdf, line 11 (link 'upper'): <mesh filename='{name}'> leads out", "package://NAME"),
    )
    for name in [
        "/etc/passwd",
        "/home/robot/arm.stl",
        "//server/share/arm.stl",
        "C:/arm.stl",
        "file:///etc/arm.stl",
        "file:arm.stl",
        "http://localhost/arm.stl",
        "~/arm.stl",
        "../../../../arm.stl",
        "meshes/../../../../../arm.stl",
        "..%2f../..%2F..%2Farm.stl",
        "package://../arm.stl",
        "package://arm/..",
        "package://arm/../other/arm.stl",
        "package://arm/meshes/../../../../etc/arm.stl",
        "package:///arm/../../arm.stl",
        "model://arm/../arm.stl",
    ]
} | {
    "mesh that leads out, on Windows": (
        edited(('<sphere radius="0.1"/>', r'<mesh filename="..\..\..\..\arm.stl"/>')),
        ("arm.urdf, line 11 (link 'upper'): <mesh filename=", "leads out of its package"),
    ),
    "mesh of no known kind": (
        edited(('<sphere radius="0.1"/>', '<mesh filename="../../../etc/passwd"/>')),
        ("arm.urdf, line 11 (link 'upper'): <mesh filename='../../../etc/passwd'>", ".stl, "),
    ),
    "texture that leads out": (
        edited(('<color rgba="1 0 0 1"/>', '<texture filename="/etc/red.png"/>')),
        ("arm.urdf, line 2 (material 'red'): <texture filename='/etc/red.png'> leads out",),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "fragments"), BAD.values(), ids=BAD)
def test_bad_file(
    tmp_path: Path, touched: list[tuple[str, str]], text: str | bytes, fragments: tuple[str, ...]
) -> None:
    """It is refused at once, by name, place and remedy, and nothing but the file is looked at."""
    path = tmp_path / "arm.urdf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    touched.clear()
    start = time.perf_counter()
    with pytest.raises(RobotLoadError) as caught:
        load_urdf(path)
    assert time.perf_counter() - start < 1.0
    assert touched == [("open", str(path))]
    assert list(tmp_path.iterdir()) == [path]
    assert_says(caught.value, str(path), *fragments)


@pytest.mark.parametrize("scheme", ["file", "http"])
@pytest.mark.parametrize(
    ("declaration", "use"),
    [
        ('<!DOCTYPE robot SYSTEM "{url}">', ""),
        ('<!DOCTYPE robot PUBLIC "-//x" "{url}">', ""),
        ('<!DOCTYPE robot [<!ENTITY x SYSTEM "{url}">]>', "&x;"),
        ('<!DOCTYPE robot [<!ENTITY % x SYSTEM "{url}"> %x;]>', ""),
    ],
)
def test_what_a_declaration_names_is_not_fetched(
    load: Load, tmp_path: Path, scheme: str, declaration: str, use: str
) -> None:
    """The parser is in C, where `touched` does not see it: it would stumble over the file."""
    (tmp_path / "secret.dtd").write_text("<!ENTITY")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.0)
        places = {
            "file": (tmp_path / "secret.dtd").as_uri(),
            "http": f"http://127.0.0.1:{server.getsockname()[1]}/secret.dtd",
        }
        with pytest.raises(RobotLoadError) as caught:
            load(declaration.format(url=places[scheme]) + edited(("</robot>", f"{use}</robot>")))
        with pytest.raises(BlockingIOError):
            server.accept()
    assert_says(caught.value, "arm.urdf: it has a document type declaration")


BAD_OPTIONS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unknown end effector": (
        {"end_effectors": {"hand": "gripper"}},
        ("arm.urdf: end effector 'hand' names the link 'gripper'", "base, upper, lower, tool"),
    ),
    "alias of another link": (
        {"end_effectors": {"upper": "tool"}},
        ("arm.urdf: end effector 'upper' has the name of another link", "Choose another alias"),
    ),
    "q_default of wrong size": (
        {"q_default": [0.0]},
        ("arm.urdf: q_default has shape (1,), expected (2,)",),
    ),
    "q_default outside the limits": (
        {"q_default": [0.0, 0.5]},
        ("arm.urdf: q_default leaves the limits of slide", "[0.5]", "[[0.1, 0.4]]"),
    ),
    "nan in q_default": (
        {"q_default": [math.nan, 0.2]},
        ("arm.urdf: q_default leaves the limits of shoulder", "nan"),
    ),
    "unknown collision pair": (
        {"self_collision_pairs": [("ball", "cube")]},
        ("arm.urdf: self_collision_pairs names 'cube'", "Expected one of: ball"),
    ),
    "one number for gravity": (
        {"gravity": -9.81},
        ("arm.urdf: gravity=-9.81", "expected three finite numbers"),
    ),
    "infinite gravity": (
        {"gravity": [0, 0, -math.inf]},
        ("arm.urdf: gravity=[0.0, 0.0, -inf]", "expected three finite numbers"),
    ),
    "armature of wrong size": (
        {"armature": [0.1, 0.1, 0.1]},
        ("arm.urdf: armature=[0.1, 0.1, 0.1]", "or 2 of them"),
    ),
    "negative armature": (
        {"armature": -0.1},
        ("arm.urdf: armature=-0.1", "expected a number >= 0"),
    ),
    "nan for effort rate": (
        {"effort_rate_limits": math.nan},
        ("arm.urdf: effort_rate_limits=nan", "expected a number >= 0"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("options", "fragments"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options(load: Load, options: dict[str, Any], fragments: tuple[str, ...]) -> None:
    with pytest.raises(RobotLoadError) as caught:
        load(ARM, **options)
    assert_says(caught.value, *fragments)


def test_the_joint_of_a_floating_base_has_its_name_alone(load: Load) -> None:
    with pytest.raises(RobotLoadError) as caught:
        load(edited(("shoulder", "root_joint")), floating_base=True)
    assert_says(caught.value, "arm.urdf: there is a joint named 'root_joint'", "Rename it")


def test_quaternions_of_a_default_have_length_one(load: Load) -> None:
    text = edited(('<link name="base"/>', f'<link name="base">{EXTRA_INERTIAL}</link>'))
    with pytest.raises(RobotLoadError) as caught:
        load(text, floating_base=True, q_default=[0, 0, 0, 2, 0, 0, 0, 0, 0.2])
    assert_says(
        caught.value,
        "arm.urdf: q_default has a quaternion of length 2.0 for the joint 'root_joint'",
    )


def test_joints_in_space_are_not_followed(load: Load) -> None:
    mimic = '<mimic joint="shoulder"/><axis xyz="0 1 0"/>'
    text = edited(('type="revolute"', 'type="floating"'), ('<axis xyz="0 1 0"/>', mimic))
    with pytest.raises(RobotLoadError) as caught:
        load(text)
    assert_says(
        caught.value, "joint 'slide' mimics 'shoulder', but 'shoulder' is of type 'floating'"
    )


def test_a_default_may_be_at_the_limits(load: Load) -> None:
    for q in ([-1.0, 0.1], [2.0, 0.4]):
        assert load(ARM, q_default=q).q_default.tolist() == q


def test_collision_pairs_need_a_unique_name(load: Load) -> None:
    twin = '<collision name="ball"><geometry><sphere radius="0.2"/></geometry></collision></link>'
    with pytest.raises(RobotLoadError) as caught:
        load(edited(("</link>", twin)), self_collision_pairs=[("ball", "ball")])
    assert_says(caught.value, "arm.urdf: self_collision_pairs names 'ball', but 2 <collision>")


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.urdf"
    with pytest.raises(RobotLoadError) as caught:
        load_urdf(path)
    assert_says(caught.value, str(path), "No such file", "Expected the path of a URDF file")


def test_directory(tmp_path: Path) -> None:
    with pytest.raises(RobotLoadError) as caught:
        load_urdf(str(tmp_path))
    assert_says(caught.value, str(tmp_path), "directory", "Expected the path of a URDF file")


def test_impossible_inertia_warns(load: Load) -> None:
    text = edited(('ixx="0.1" iyy="0.1" izz="0.1"', 'ixx="0.1" iyy="0.1" izz="0.3"'))
    with pytest.warns(RobotLoadWarning, match=r"arm.urdf: link 'upper'.*the largest exceeds"):
        robot = load(text)
    assert robot.inertia[0, 2, 2] == 0.3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(edited(('ixx="0.1" iyy="0.1" izz="0.1"', 'ixx="0.1" iyy="0.1" izz="0.2"')))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """`ARM` with one or two of its elements or attributes damaged."""
    root = etree.fromstring(ARM)
    texts = ["", "nan", "-1", "0", "1e308", "1e160 1e160 1e160", "0 0 0", "1 2", "base", "½", "x"]
    for _ in range(draw(st.integers(1, 2))):
        elements = list(root.iter())[1:]
        element = draw(st.sampled_from(elements))
        damage = draw(st.sampled_from(["value", "forget", "remove", "copy", "empty", "move"]))
        names = sorted(element.attrib)
        if damage == "value" and names:
            element.set(draw(st.sampled_from(names)), draw(st.sampled_from(texts)))
        elif damage == "forget" and names:
            del element.attrib[draw(st.sampled_from(names))]
        elif damage == "remove":
            element.getparent().remove(element)
        elif damage == "copy":
            element.addnext(etree.fromstring(etree.tostring(element)))
        elif damage == "empty":
            del element[:]
        elif damage == "move":
            root.append(element)
    return etree.tostring(root)


@settings(max_examples=300)
@given(text=damaged())
def test_damaged_file_is_loaded_or_refused(load: Load, text: bytes) -> None:
    """Whatever is wrong with a file, the answer is a finite robot or a `RobotLoadError`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotLoadWarning)
        try:
            robot = load(text)
        except RobotLoadError as error:
            assert_says(error, "arm.urdf")
            return
    topology = robot.topology
    for array in (robot.mass, robot.com, robot.inertia, topology.position, topology.rotation):
        assert np.isfinite(array).all()
    np.testing.assert_allclose([np.linalg.norm(j.axis) for j in topology.joints], 1.0)
    assert (np.linalg.eigvalsh(robot.inertia) > 0).all()


# --- Bundled robots -------------------------------------------------------------------------------


def test_list_robots() -> None:
    assert "panda" in dynamics.list_robots()
    assert dynamics.list_robots() == sorted(dynamics.list_robots())


@pytest.mark.parametrize("name", dynamics.list_robots())
def test_bundled_robots_load_without_warnings(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        robot = bundled._load.__wrapped__(name, None, False)
    assert robot.name == name
    assert robot.end_effectors


@pytest.mark.parametrize("name", ["pamda", "Panda", "pandas"])
def test_unknown_robot_suggests_the_closest(name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"unknown robot '{name}'.*mean 'panda'") as caught:
        dynamics.load_robot(name)
    assert isinstance(caught.value, FraxenvError)
    assert isinstance(caught.value, KeyError)


def test_two_loads_share_one_compiled_program(panda_path: Path) -> None:
    first, second = (load_urdf(panda_path) for _ in range(2))
    assert first.topology is not second.topology
    assert first.topology == second.topology
    assert hash(first.topology) == hash(second.topology)

    gravity = jax.jit(chex.assert_max_traces(dynamics.gravity_forces, n=1))
    q = jnp.asarray(first.q_default)
    np.testing.assert_array_equal(gravity(first, q), gravity(second, q))
    gravity(first.replace(mass=2 * first.mass), q)


def test_different_robots_are_different(load: Load) -> None:
    arm = load(ARM)
    for text in (
        edited(('<axis xyz="0 1 0"/>', '<axis xyz="0 1 1e-9"/>')),
        edited(('name="slide"', 'name="slider"')),
        edited(('rgba="1 0 0 1"', 'rgba="1 0 0 0.5"')),
    ):
        assert load(text).topology != arm.topology
    assert load(ARM, end_effectors={"hand": "tool"}).topology != arm.topology
    assert load(edited(('<mass value="2.0"/>', '<mass value="3"/>'))).topology == arm.topology


# --- The Panda, by Franka's published numbers -----------------------------------------------------


def test_panda_limits(panda: Robot) -> None:
    lower = [-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973]
    upper = [2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973]
    assert panda.position_limits.tolist() == np.stack([lower, upper], axis=1).tolist()
    assert panda.velocity_limits.tolist() == [2.175] * 4 + [2.61] * 3
    assert panda.effort_limits.tolist() == [87] * 4 + [12] * 3
    assert panda.effort_rate_limits.tolist() == [1000] * 7
    assert panda.joint_names == tuple(f"panda_joint{i}" for i in range(1, 8))
    assert panda.end_effectors == ("hand",)


def test_panda_kinematics_are_the_published_table(panda: Robot, x64: None) -> None:
    """Modified Denavit-Hartenberg parameters: Rot_x(alpha) Trans_x(a) Rot_z(q) Trans_z(d)."""
    a = [0, 0, 0, 0.0825, -0.0825, 0, 0.088]
    d = [0.333, 0, 0.316, 0, 0.384, 0, 0]
    alpha = np.array([0, -1, 1, 1, -1, 1, 1]) * np.pi / 2

    def motion(axis: str, angle: float, offset: tuple[float, float, float]) -> np.ndarray:
        pose = np.eye(4)
        pose[:3, :3] = Rotation.from_euler(axis, angle).as_matrix()
        pose[:3, 3] = offset
        return pose

    rng = np.random.default_rng(0)
    kinematics = jax.jit(dynamics.forward_kinematics)
    hand_pose = jax.jit(lambda q: dynamics.frame_pose(panda, q, "hand"))
    for q in rng.uniform(*panda.position_limits.T, (10, 7)):
        pose = np.eye(4)
        poses = jax.tree.map(np.asarray, kinematics(panda, q))
        for i in range(7):
            pose = pose @ motion("x", alpha[i], (a[i], 0, 0)) @ motion("z", q[i], (0, 0, d[i]))
            np.testing.assert_allclose(poses.position[i], pose[:3, 3], atol=1e-12)
            np.testing.assert_allclose(poses.rotation[i], pose[:3, :3], atol=1e-12)
        hand = pose @ motion("z", -np.pi / 4, (0, 0, 0.212))
        position, rotation = hand_pose(q)
        np.testing.assert_allclose(position, hand[:3, 3], atol=1e-12)
        np.testing.assert_allclose(rotation, hand[:3, :3], atol=1e-12)


def test_panda_ready_pose(panda: Robot) -> None:
    ready = [0, -np.pi / 6, 0, -3 * np.pi / 4, 0, 5 * np.pi / 9, 0]
    np.testing.assert_allclose(panda.q_default, ready, atol=1e-12)
    pose = jax.jit(lambda q: dynamics.frame_pose(panda, q, "hand"))
    position, rotation = pose(panda.q_default)
    np.testing.assert_allclose(position, [0.375, 0, 0.409], atol=1e-3)
    assert rotation[2, 2] < -0.98  # the hand points down


def test_panda_does_not_collide_with_itself_at_rest(panda: Robot, x64: None) -> None:
    topology = panda.topology
    kinematics = jax.jit(dynamics.forward_kinematics)
    poses = jax.tree.map(np.asarray, kinematics(panda, panda.q_default))
    assert len(topology.self_collision_pairs) >= 7
    assert all(s.kind == "sphere" for s in topology.collision_shapes)

    def centre(i: int) -> np.ndarray:
        shape = topology.collision_shapes[i]
        if shape.body == WORLD:
            return shape.position
        return poses.position[shape.body] + poses.rotation[shape.body] @ shape.position

    gaps = []
    for i, j in topology.self_collision_pairs:
        first, second = topology.collision_shapes[i], topology.collision_shapes[j]
        assert first.body != second.body
        gaps.append(np.linalg.norm(centre(i) - centre(j)) - first.size[0] - second.size[0])
    assert min(gaps) == pytest.approx(0.154, abs=1e-3)  # as panda.toml says
