"""Bundled robots: what they are, that they are what their sources say, and how they are made."""

from __future__ import annotations

import dataclasses
import re
import tomllib
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
import trimesh
from support import packaged

from fraxenv import dynamics
from fraxenv.dynamics import Robot
from fraxenv.dynamics.model import bundled
from fraxenv.dynamics.rebuild import fit
from fraxenv.dynamics.rebuild.__main__ import main as rebuild

ROBOTS = Path(dynamics.__file__).parent / "robots"

# name: (nq, nv, mass of the moving bodies in kg, end effectors)
EXPECTED = {
    "a1": (19, 18, 12.453, {"head", "FL_foot", "FR_foot", "RL_foot", "RR_foot"}),
    "b2z1": (25, 24, 78.999019, {"head", "hand", "FL_foot", "FR_foot", "RL_foot", "RR_foot"}),
    "cartpole": (2, 2, 1.1, {"tip"}),
    "double_pendulum": (2, 2, 2.0, {"tip"}),
    "g1": (36, 35, 33.34114202, {"left_hand", "right_hand", "left_foot", "right_foot"}),
    "iiwa14": (7, 7, 25.61, {"hand"}),
    "panda": (7, 7, 16.822132, {"hand"}),
    "planar_mobile_manipulator": (5, 5, 25.0, {"hand"}),
    "ur10": (6, 6, 28.7, {"hand"}),
}
# Distribution, and where in it the source is.
SOURCES = {
    "iiwa14": ("frax", "frax/assets/iiwa/iiwa14.urdf"),
    "ur10": ("example-robot-data", "ur_description/urdf/ur10_robot.urdf"),
    "g1": ("example-robot-data", "g1_description/urdf/g1_29dof_rev_1_0.urdf"),
}
# Bodies without a sphere: small, and inside of what their neighbours' spheres cover.
HIDDEN = {
    "g1": {
        "waist_yaw_link",
        "waist_roll_link",
        "left_ankle_pitch_link",
        "right_ankle_pitch_link",
    }
}
CLEARANCE = 0.01  # m


@pytest.fixture(params=EXPECTED)
def robot(request: pytest.FixtureRequest) -> Robot:
    """Each bundled robot."""
    return dynamics.load_robot(request.param)


def closest_pair(robot: Robot) -> float:
    """Distance of the closest self-collision pair of spheres in the default configuration, m."""
    kinematics = jax.jit(dynamics.forward_kinematics)
    poses = (np.asarray(x) for x in kinematics(robot, robot.q_default))
    world = (np.zeros((1, 3)), np.eye(3)[None])  # the body -1
    position, rotation = (np.concatenate(pair) for pair in zip(poses, world, strict=True))
    shapes = robot.topology.collision_shapes
    centre = [position[s.body] + rotation[s.body] @ s.position for s in shapes]
    return min(
        (
            float(np.linalg.norm(centre[i] - centre[j])) - shapes[i].size[0] - shapes[j].size[0]
            for i, j in robot.topology.self_collision_pairs
        ),
        default=np.inf,
    )


# --- What they are --------------------------------------------------------------------------------


def test_arrays_are_read_only(robot: Robot) -> None:
    """Everybody shares them."""
    assert dynamics.load_robot(robot.name) is robot
    topology = robot.topology
    arrays = [*jax.tree.leaves(robot), topology.parent, topology.position, topology.rotation]
    arrays += [j.axis for j in topology.joints]
    arrays += [x for s in (*topology.frames, *topology.visual_shapes, *topology.collision_shapes)
               for x in (s.position, s.rotation)]  # fmt: skip
    assert not any(x.flags.writeable for x in arrays)
    with pytest.raises(ValueError, match="read-only"):
        robot.mass[0] = 1.0
    heavier = np.array(robot.mass)
    heavier[0] += 1.0
    assert robot.replace(mass=heavier).mass is heavier


def test_the_list_is_complete() -> None:
    assert dynamics.list_robots() == sorted(EXPECTED)


def test_they_load_without_warnings(robot: Robot) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = tomllib.loads((ROBOTS / f"{robot.name}.toml").read_text())
        fresh = dynamics.load_urdf(ROBOTS / f"{robot.name}.urdf", **options)
    assert fresh.topology == robot.topology


def test_sizes_masses_and_end_effectors(robot: Robot) -> None:
    nq, nv, mass, end_effectors = EXPECTED[robot.name]
    assert (robot.nq, robot.nv) == (nq, nv)
    assert np.sum(robot.mass) == pytest.approx(mass, rel=1e-12)
    assert set(robot.topology.end_effectors) == end_effectors
    assert robot.topology.visual_shapes


def test_the_default_is_inside_the_limits(robot: Robot) -> None:
    scalar = robot.topology.dof_coordinate >= 0
    q = np.asarray(robot.q_default)[robot.topology.dof_coordinate[scalar]]
    lower, upper = np.asarray(robot.position_limits)[scalar].T
    assert (q >= lower).all()
    assert (q <= upper).all()


def test_the_default_is_clear_of_self_collision(robot: Robot) -> None:
    closest = closest_pair(robot)
    assert closest >= CLEARANCE
    text = (ROBOTS / f"{robot.name}.toml").read_text()
    for stated in re.findall(r"closest pair is ([0-9.]+) m apart", text):
        assert float(stated) == pytest.approx(closest, abs=6e-4)


def test_no_pair_is_of_one_body_or_of_neighbours(robot: Robot) -> None:
    shapes, parent = robot.topology.collision_shapes, robot.topology.parent
    for i, j in robot.topology.self_collision_pairs:
        a, b = sorted((shapes[i].body, shapes[j].body))
        assert a != b
        assert parent[b] != a
    pairs = {frozenset(map(int, pair)) for pair in robot.topology.self_collision_pairs}
    assert len(pairs) == len(robot.topology.self_collision_pairs)


def test_collision_models_are_spheres_on_every_body(robot: Robot) -> None:
    shapes = robot.topology.collision_shapes
    assert {shape.kind for shape in shapes} == {"sphere"}
    covered = {robot.topology.body_names[s.body] for s in shapes if s.body >= 0}
    assert set(robot.topology.body_names) - covered == HIDDEN.get(robot.name, set())


def test_g1_has_a_mirrored_collision_model() -> None:
    topology = dynamics.load_robot("g1").topology
    at = {s.name: (np.round(s.position, 9), s.size) for s in topology.collision_shapes}
    names = list(at)
    assert 40 <= len(names) <= 50
    for name, (position, size) in at.items():
        other_position, other_size = at[other_side(name)]
        np.testing.assert_allclose(other_position, position * [1, -1, 1], atol=1e-9)
        assert other_size == size
    pairs = {frozenset((names[i], names[j])) for i, j in topology.self_collision_pairs}
    assert pairs == {frozenset(map(other_side, pair)) for pair in pairs}
    assert len(pairs) <= 90


def other_side(name: str) -> str:
    """The name on the robot's other side."""
    if "left" in name:
        return name.replace("left", "right")
    return name.replace("right", "left")


def test_g1_stands_on_the_floor_and_can_be_welded() -> None:
    g1 = dynamics.load_robot("g1")
    np.testing.assert_array_equal(g1.q_default[:7], [0, 0, 0.793, 1, 0, 0, 0])
    for foot in ("left_foot", "right_foot"):
        position, _ = jax.jit(dynamics.frame_pose, static_argnums=2)(g1, g1.q_default, foot)
        assert position[2] == pytest.approx(0.036, abs=1e-3)  # the sole is 0.035 m below

    welded = dynamics.load_urdf(ROBOTS / "g1.urdf", q_default=g1.q_default[7:])
    assert (welded.nq, welded.nv) == (29, 29)
    joints = [j.name for j in g1.topology.joints]
    assert joints[1:] == [j.name for j in welded.topology.joints]


def test_what_is_welded_may_float() -> None:
    fixed, floating = (dynamics.load_robot("panda", floating_base=f) for f in (False, True))
    assert floating.q_default.tolist() == [0, 0, 0, 1, 0, 0, 0, *fixed.q_default]
    for name in ("armature", "effort_rate_limits"):
        np.testing.assert_array_equal(getattr(floating, name)[6:], getattr(fixed, name))
    np.testing.assert_array_equal(floating.effort_rate_limits[:6], 0)


def test_what_floats_may_be_welded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, panda: Robot
) -> None:
    """Without the numbers of its base, where its companion has one for each degree of freedom."""
    path, own = tmp_path / "bird.urdf", [1, 2, 3, 4, 5, 6, 7]
    path.write_bytes((ROBOTS / "panda.urdf").read_bytes())
    path.with_suffix(".toml").write_text(
        "floating_base = true\n"
        f"q_default = {[0, 0, 2, 1, 0, 0, 0, *panda.q_default.tolist()]}\n"
        f"armature = {[0] * 6 + own}\neffort_rate_limits = {[0] * 6 + own}\n"
    )
    monkeypatch.setattr(bundled, "bundled_urdf", lambda _: path)
    floating, fixed = (dynamics.load_robot("bird", floating_base=f) for f in (None, False))
    assert floating.armature.tolist() == floating.effort_rate_limits.tolist() == [0] * 6 + own
    assert fixed.armature.tolist() == fixed.effort_rate_limits.tolist() == own
    np.testing.assert_array_equal(fixed.q_default, panda.q_default)


# --- Against their sources ------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOURCES)
def test_parameters_are_the_sources(name: str) -> None:
    ours = dynamics.load_urdf(ROBOTS / f"{name}.urdf")
    theirs = dynamics.load_urdf(packaged(*SOURCES[name]))
    fields = ("mass", "com", "inertia", "damping", "friction")
    for field in (*fields, "position_limits", "velocity_limits", "effort_limits"):
        np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field), field)
    for field in ("parent", "position", "rotation"):
        a, b = (getattr(r.topology, field) for r in (ours, theirs))
        np.testing.assert_array_equal(a, b, field)
    assert ours.topology.body_names == theirs.topology.body_names


@pytest.mark.parametrize("name", SOURCES)
def test_kinematics_and_inertia_are_the_sources_for_pinocchio(name: str) -> None:
    pin = pytest.importorskip("pinocchio")
    # The free flyer makes the mass matrix see the root link's inertia as well.
    ours, theirs = (
        pin.buildModelFromUrdf(str(path), pin.JointModelFreeFlyer())
        for path in (ROBOTS / f"{name}.urdf", packaged(*SOURCES[name]))
    )
    assert list(ours.names) == list(theirs.names)
    frames = [f.name for f in theirs.frames if f.type == pin.FrameType.BODY]
    rng = np.random.default_rng(0)
    for _ in range(5):
        q = pin.neutral(ours)
        lower, upper = ours.lowerPositionLimit[7:], ours.upperPositionLimit[7:]
        q[7:] = rng.uniform(lower, upper)
        matrices, poses = [], []
        for model in (ours, theirs):
            data = model.createData()
            matrices.append(pin.crba(model, data, q))
            pin.framesForwardKinematics(model, data, q)
            poses.append([data.oMf[model.getFrameId(f)].homogeneous for f in frames])
        np.testing.assert_allclose(*map(np.triu, matrices), rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(*poses, rtol=1e-13, atol=1e-13)


# --- How they are made ----------------------------------------------------------------------------

# An arm that can hit its own foot: a link with a mesh, one with nothing to see, one with a box.
ARM = """<?xml version="1.0"?>
<robot name="arm" xmlns:other="http://example.com">
  <material name="red"><color rgba="1 0 0 1"/></material>
  <link name="foot">
    <visual><geometry><box size="0.2 0.2 0.1"/></geometry><material name="red"/></visual>
  </link>
  <joint name="j1" type="revolute">
    <parent link="foot"/><child link="a"/><origin xyz="0 0 0.1"/><axis xyz="0 1 0"/>
    <limit lower="-2.5000000000000004" upper="2.5" effort="50" velocity="3" other:jerk="7"/>
    <dynamics damping="0.1" friction="0.2"/>
    <safety_controller k_velocity="1"/>
  </joint>
  <link name="a">
    <inertial>
      <origin xyz="0 0 0.15"/><mass value="1.2345678901234567"/>
      <inertia ixx="0.01" iyy="0.01" izz="0.002" ixy="0" ixz="0" iyz="0"/>
    </inertial>
    <visual>
      <origin xyz="0 0 0.15"/><geometry><mesh filename="package://arm/meshes/a.stl"/></geometry>
    </visual>
  </link>
  <joint name="j2" type="revolute">
    <parent link="a"/><child link="b"/><origin xyz="0 0 0.3"/><axis xyz="0 1 0"/>
    <limit lower="0.5" upper="2.9" effort="50" velocity="3"/>
  </joint>
  <link name="b">
    <inertial>
      <origin xyz="0 0 0.15"/><mass value="1"/>
      <inertia ixx="0.01" iyy="0.01" izz="0.002" ixy="0" ixz="0" iyz="0"/>
    </inertial>
    <visual><geometry><mesh filename="package://arm/meshes/lost.stl"/></geometry></visual>
  </link>
  <joint name="j3" type="continuous">
    <parent link="b"/><child link="c"/><origin xyz="0 0 0.3"/><axis xyz="0 1 0"/>
    <limit effort="20" velocity="3"/>
  </joint>
  <link name="c">
    <inertial>
      <mass value="0.5"/>
      <inertia ixx="0.001" iyy="0.001" izz="0.001" ixy="0" ixz="0" iyz="0"/>
    </inertial>
    <collision><geometry><box size="0.06 0.06 0.06"/></geometry></collision>
  </link>
  <transmission name="t"><joint name="j1"/></transmission>
  <gazebo reference="a"/>
</robot>
"""


@pytest.fixture
def arm(tmp_path: Path) -> list[str]:
    """Arguments of the program: a source with a mesh, and a folder to write into."""
    (tmp_path / "meshes").mkdir()
    trimesh.creation.box((0.08, 0.06, 0.3)).export(tmp_path / "meshes" / "a.stl")
    (tmp_path / "urdf").mkdir()
    path = tmp_path / "urdf" / "source.urdf"
    path.write_text(ARM)
    described = ["--source", "somewhere -- else", "--license", "MIT"]
    spheres = ["--collision-spheres", "9", "--samples", "1000"]
    return [str(path), "my_arm", "--output", str(tmp_path / "out"), *described, *spheres]


@pytest.fixture
def rough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits that are found fast, for what does not depend on how good they are."""
    monkeypatch.setattr(fit, "_CUTS", 2)


def test_a_robot_is_rebuilt(arm: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    tool = ["--frames", "tool", "c", "0", "0", "0.05", "--end-effectors", "hand", "tool"]
    assert rebuild([*arm, *tool, "--default", "j1", "0.25"]) == 0
    out = Path(arm[3])
    assert sorted(p.name for p in out.iterdir()) == ["my_arm.toml", "my_arm.urdf"]
    urdf = (out / "my_arm.urdf").read_text()
    for kept in ('"1.2345678901234567"', '"-2.5000000000000004"', "somewhere - else", "MIT"):
        assert kept in urdf
    for dropped in ("mesh ", "transmission", "gazebo", "safety", "jerk", str(out.parent)):
        assert dropped not in urdf

    options = tomllib.loads((out / "my_arm.toml").read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        robot = dynamics.load_urdf(out / "my_arm.urdf", **options)
    assert robot.name == "my_arm"
    np.testing.assert_array_equal(robot.q_default, [0.25, 1.7, 0.0])
    np.testing.assert_array_equal(robot.damping, [0.1, 0.0, 0.0])
    assert list(robot.topology.end_effectors) == ["hand"]

    [mesh] = [s for s in robot.topology.visual_shapes if s.body == 0]
    assert mesh.kind == "box"
    np.testing.assert_allclose(mesh.size, (0.08, 0.06, 0.3), atol=0.003)
    np.testing.assert_allclose(mesh.position, (0, 0, 0.15), atol=0.003)
    spheres = robot.topology.collision_shapes
    assert len(spheres) == 9
    assert {s.body for s in spheres} == {-1, 0, 1, 2}
    for sphere in spheres:
        if sphere.body == 0:  # inside of the mesh
            assert np.all(np.abs(sphere.position - (0, 0, 0.15)) < (0.04, 0.03, 0.15))
    assert len(robot.topology.self_collision_pairs)
    assert closest_pair(robot) >= CLEARANCE

    said = capsys.readouterr().out
    assert "my_arm: 3 degrees of freedom, 2.735 kg, 9 spheres" in said
    assert "No mesh or shape could be read for b:" in said


def test_what_meets_in_the_default_is_no_pair(arm: list[str], rough: None) -> None:
    assert rebuild([*arm, "--default", "j2", "2.9"]) == 0  # folded, the tip at the foot
    options = tomllib.loads((Path(arm[3]) / "my_arm.toml").read_text())
    robot = dynamics.load_urdf(Path(arm[3]) / "my_arm.urdf", **options)
    assert closest_pair(robot) >= CLEARANCE

    shapes = robot.topology.collision_shapes
    index = np.arange(len(shapes))
    pairs = np.array(
        [(i, j) for i in index for j in index if (shapes[i].body, shapes[j].body) == (-1, 2)]
    )
    everything = dataclasses.replace(robot.topology, self_collision_pairs=pairs)
    assert closest_pair(robot.replace(topology=everything)) < 0


@pytest.mark.slow
def test_rebuilding_is_repeatable_and_keeps_shapes(arm: list[str]) -> None:
    def files() -> list[bytes]:
        return [path.read_bytes() for path in sorted(Path(arm[3]).iterdir())]

    assert rebuild(arm) == 0
    first = files()
    assert rebuild([*arm, "--force"]) == 0
    assert files() == first
    again = ["--force", "--shapes-from", str(Path(arm[3]) / "my_arm.urdf")]
    assert rebuild([*arm, *again]) == 0
    assert files() == first


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ((), "exist already. Pass --force"),
        (("--force", "--source", ""), "where the source comes from"),
        (("--force", "--default", "j4", "1"), "unknown joint 'j4'. Did you mean"),
        pytest.param(
            ("--force", "--default", "j2", "0"),
            "q_default leaves the limits of j2",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ("--force", "--end-effectors", "hand", "gripper"),
            "names the link 'gripper'",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ("--force", "--keep-clear", "a", "d"), "unknown link 'd'", marks=pytest.mark.slow
        ),
        (("--force", "--first-pairs", "a_1", "b_1"), "first_pairs names ('a_1', 'b_1')"),
    ],
)
def test_a_refusal_says_why_and_leaves_the_files_alone(
    arm: list[str],
    rough: None,
    capsys: pytest.CaptureFixture[str],
    extra: tuple[str, ...],
    message: str,
) -> None:
    out = Path(arm[3])
    out.mkdir()
    for ending in ("urdf", "toml"):
        (out / f"my_arm.{ending}").write_text("mine")
    assert rebuild([*arm, *extra]) == 1
    assert message in capsys.readouterr().err
    assert {path.read_text() for path in out.iterdir()} == {"mine"}
    assert len(list(out.iterdir())) == 2
