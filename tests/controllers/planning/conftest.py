"""A robot that moves linearly."""

from __future__ import annotations

import pytest

from fraxenv import dynamics
from fraxenv.dynamics import Robot

SLIDERS = """<robot name="sliders"><link name="base"/>
<link name="x"><inertial><mass value="2"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/>
</inertial></link><link name="y"><inertial><mass value="3"/>
<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="x" type="prismatic"><parent link="base"/><child link="x"/><axis xyz="1 0 0"/>
<limit lower="-9" upper="9" effort="4" velocity="9"/></joint>
<joint name="y" type="prismatic"><parent link="x"/><child link="y"/><axis xyz="0 1 0"/>
<limit lower="-9" upper="9" effort="4" velocity="9"/></joint></robot>"""
"""Masses on rails: their motion is linear."""


@pytest.fixture(scope="module")
def sliders(tmp_path_factory: pytest.TempPathFactory) -> Robot:
    path = tmp_path_factory.mktemp("sliders") / "sliders.urdf"
    path.write_text(SLIDERS)
    return dynamics.load_urdf(path)
