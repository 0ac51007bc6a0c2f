"""Robots that the tests of dynamics share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fraxenv import dynamics
from fraxenv.dynamics import Robot

# link: (parent, joint type). Two branches at the root, two more at the trunk; names are out of
# alphabetical order, which is Pinocchio's, so that a test that forgets to map them fails.
TREE = {
    "trunk": ("base", "revolute"),
    "right_slider": ("trunk", "prismatic"),
    "right_wrist": ("right_slider", "continuous"),
    "right_tool": ("right_wrist", "fixed"),
    "left_upper": ("trunk", "revolute"),
    "left_bracket": ("left_upper", "fixed"),
    "left_slider": ("left_bracket", "prismatic"),
    "left_tip": ("left_slider", "fixed"),
    "gantry": ("base", "prismatic"),
    "arm": ("gantry", "revolute"),
    "mast": ("base", "fixed"),
}


def tree_urdf() -> str:
    """A branched robot with arbitrary axes, offsets and (physically possible) inertias."""
    rng = np.random.default_rng(7)

    def numbers(x: np.ndarray) -> str:
        return " ".join(f"{v:.17g}" for v in x)

    def origin() -> str:
        xyz, rpy = rng.uniform(-0.4, 0.4, 3), rng.uniform(-np.pi, np.pi, 3)
        return f'<origin xyz="{numbers(xyz)}" rpy="{numbers(rpy)}"/>'

    parts = ['<robot name="tree">', '<link name="base"/>']
    for link, (parent, kind) in TREE.items():
        # Second moments of mass are positive, so the triangle inequality holds.
        i, j, k = rng.uniform(0.01, 0.1, 3)
        parts.append(
            f'<link name="{link}"><inertial>{origin()}<mass value="{rng.uniform(0.5, 4.0):.17g}"/>'
            f'<inertia ixx="{j + k:.17g}" iyy="{i + k:.17g}" izz="{i + j:.17g}" '
            'ixy="0" ixz="0" iyz="0"/></inertial></link>'
        )
        parts.append(
            f'<joint name="to_{link}" type="{kind}"><parent link="{parent}"/>'
            f'<child link="{link}"/>{origin()}<axis xyz="{numbers(rng.normal(size=3))}"/>'
            '<limit lower="-1.5" upper="1.5" effort="50" velocity="3"/></joint>'
        )
    return "\n".join([*parts, "</robot>"])


@pytest.fixture(scope="session")
def tree_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """URDF file of a branched robot with revolute, continuous, prismatic and fixed joints."""
    path = tmp_path_factory.mktemp("robots") / "tree.urdf"
    path.write_text(tree_urdf())
    return path


@pytest.fixture(scope="session")
def tree(tree_path: Path) -> Robot:
    """The branched robot, in a gravity that is not along z."""
    return dynamics.load_urdf(tree_path, gravity=(2.0, -3.0, -9.0))


@pytest.fixture(scope="session")
def panda() -> Robot:
    """The bundled Panda."""
    return dynamics.load_robot("panda")


@pytest.fixture(scope="session")
def panda_path() -> Path:
    """URDF file of the bundled Panda."""
    return Path(dynamics.__file__).parent / "robots" / "panda.urdf"


# link: (parent, joint type, what else is in the joint). Every kind of joint, one behind another;
# one follows a follower.
JOINTS = {
    "cart": ("base", "planar", ""),
    "ball": ("cart", "spherical", ""),
    "elbow": ("ball", "revolute", ""),
    "loose": ("cart", "floating", ""),
    "drawer": ("elbow", "prismatic", '<mimic joint="to_elbow" multiplier="0.3" offset="0.1"/>'),
    "wheel": ("loose", "continuous", '<mimic joint="to_drawer" multiplier="-2" offset="0.2"/>'),
    "tip": ("wheel", "fixed", ""),
}


def joints_urdf() -> str:
    """A robot with every kind of joint, on arbitrary axes (but a planar one about z)."""
    rng = np.random.default_rng(11)

    def numbers(x: np.ndarray) -> str:
        return " ".join(f"{v:.17g}" for v in x)

    def origin() -> str:
        xyz, rpy = rng.uniform(-0.4, 0.4, 3), rng.uniform(-np.pi, np.pi, 3)
        return f'<origin xyz="{numbers(xyz)}" rpy="{numbers(rpy)}"/>'

    parts = ['<robot name="joints">']
    for link in ("base", *JOINTS):
        i, j, k = rng.uniform(0.05, 0.1, 3)
        parts.append(
            f'<link name="{link}"><inertial>{origin()}<mass value="{rng.uniform(0.5, 4.0):.17g}"/>'
            f'<inertia ixx="{j + k:.17g}" iyy="{i + k:.17g}" izz="{i + j:.17g}" '
            'ixy="0" ixz="0" iyz="0"/></inertial></link>'
        )
    for link, (parent, kind, extra) in JOINTS.items():
        axis = np.array([0.0, 0.0, 1.0]) if kind == "planar" else rng.normal(size=3)
        parts.append(
            f'<joint name="to_{link}" type="{kind}"><parent link="{parent}"/>'
            f'<child link="{link}"/>{origin()}<axis xyz="{numbers(axis)}"/>{extra}'
            '<limit lower="-1.5" upper="1.5" effort="50" velocity="3"/></joint>'
        )
    return "\n".join([*parts, "</robot>"])


@pytest.fixture(scope="session")
def joints_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """URDF file of a robot with every kind of joint."""
    path = tmp_path_factory.mktemp("robots") / "joints.urdf"
    path.write_text(joints_urdf())
    return path


@pytest.fixture(scope="session")
def joints(joints_path: Path) -> Robot:
    """The robot with every kind of joint, in a gravity that is not along z."""
    return dynamics.load_urdf(joints_path, gravity=(2.0, -3.0, -9.0))


ARM = """
<robot name="arm">
  <link name="base">
    <collision name="foot"><geometry><box size="0.4 0.4 0.1"/></geometry></collision>
  </link>
  <link name="upper">
    <inertial><mass value="1"/>
      <inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision name="tube"><origin xyz="0.05 0.02 0.2" rpy="0.3 0.2 0.1"/>
      <geometry><cylinder radius="0.05" length="0.4"/></geometry></collision>
    <collision name="elbow"><origin xyz="0 0 0.45"/>
      <geometry><sphere radius="0.08"/></geometry></collision>
  </link>
  <link name="lower">
    <inertial><mass value="1"/>
      <inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision name="brick"><origin xyz="0.1 0 0.15" rpy="0.5 -0.4 0.3"/>
      <geometry><box size="0.3 0.08 0.1"/></geometry></collision>
    <collision name="tip"><origin xyz="0 0 0.3"/>
      <geometry><sphere radius="0.04"/></geometry></collision>
    <collision name="finger"><origin xyz="0 0 0.35" rpy="1.2 0 0"/>
      <geometry><cylinder radius="0.01" length="0.1"/></geometry></collision>
  </link>
  <joint name="shoulder" type="revolute">
    <parent link="base"/><child link="upper"/><axis xyz="0 1 0"/><origin xyz="0 0 0.1"/>
    <limit lower="-2" upper="2" effort="30" velocity="3"/>
  </joint>
  <joint name="elbow" type="revolute">
    <parent link="upper"/><child link="lower"/><axis xyz="1 0 0"/><origin xyz="0 0 0.45"/>
    <limit lower="-2" upper="2" effort="30" velocity="3"/>
  </joint>
</robot>
"""
ARM_PAIRS = [
    ("tip", "elbow"),
    ("finger", "elbow"),
    ("tube", "tip"),
    ("brick", "tube"),
    ("foot", "tip"),
]


@pytest.fixture(scope="session")
def arm_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """URDF file of two links with spheres, cylinders and a box, on a base with another box."""
    path = tmp_path_factory.mktemp("arm") / "arm.urdf"
    path.write_text(ARM)
    return path


@pytest.fixture(scope="session")
def arm(arm_path: Path) -> Robot:
    """The two links with collision shapes, of which five pairs keep apart."""
    return dynamics.load_urdf(arm_path, self_collision_pairs=ARM_PAIRS)
