"""The cross-check: that its oracles are right, and that it notices when we are not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image
from support import colours, packaged, with_slow

from fraxenv import dynamics
from fraxenv.cli import main
from fraxenv.cli.common import FAILED
from fraxenv.cli.cross_check import BEYOND, WITHIN
from fraxenv.cross_check import comparison
from fraxenv.cross_check.pinocchio import PinocchioOracle
from fraxenv.errors import ConfigError, RobotLoadError

mujoco = pytest.importorskip("mujoco")

from fraxenv.cross_check.mujoco import MujocoOracle, mujoco_model
from fraxenv.cross_check.quantities import random_states

EXAMPLES = "example-robot-data"
SMALL = ["double_pendulum", "--states", "5", "--seconds", "0.5"]
TOLERANCE = {"float64": 1e-9, "float32": 1e-4}

# Link: (parent, joint type). A joint of every kind, free ones at the root and away from it, and a
# link with the name of MuJoCo's own world.
JOINTS = {
    "chassis": ("base", "planar"),
    "mast": ("chassis", "continuous"),
    "lift": ("mast", "prismatic"),
    "ball": ("lift", "spherical"),
    "drone": ("mast", "floating"),
    "world": ("drone", "revolute"),
}


def urdf(mimic: str = "", inertia: str = "") -> str:
    """A robot with joints of every kind, askew."""
    rng = np.random.default_rng(3)

    def numbers(x: np.ndarray) -> str:
        return " ".join(f"{v:.17g}" for v in x)

    def link(name: str) -> str:
        i, j, k = rng.uniform(0.01, 0.1, 3)
        moments = inertia or f'ixx="{j + k:.17g}" iyy="{i + k:.17g}" izz="{i + j:.17g}"'
        xyz, rpy = rng.uniform(-0.2, 0.2, 3), rng.uniform(-3, 3, 3)
        return (
            f'<link name="{name}"><inertial><origin xyz="{numbers(xyz)}" rpy="{numbers(rpy)}"/>'
            f'<mass value="{rng.uniform(0.5, 3):.17g}"/>'
            f'<inertia {moments} ixy="0" ixz="0" iyz="0"/></inertial></link>'
        )

    parts = ['<robot name="zoo">', link("base")]
    for name, (parent, kind) in JOINTS.items():
        xyz, rpy, axis = rng.uniform(-0.3, 0.3, 3), rng.uniform(-3, 3, 3), rng.normal(size=3)
        parts.append(
            f'{link(name)}<joint name="to_{name}" type="{kind}"><parent link="{parent}"/>'
            f'<child link="{name}"/><origin xyz="{numbers(xyz)}" rpy="{numbers(rpy)}"/>'
            f'<axis xyz="{numbers(axis)}"/>{mimic if kind == "revolute" else ""}'
            '<limit lower="-1.5" upper="1.5" effort="50" velocity="3"/></joint>'
        )
    return "\n".join([*parts, "</robot>"])


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a URDF file."""

    def write(text: str) -> Path:
        path = tmp_path / "zoo.urdf"
        path.write_text(text)
        return path

    return write


@pytest.mark.slow
@pytest.mark.parametrize("floating_base", [True, False])
def test_every_joint_agrees_with_mujoco(
    write: Callable[[str], Path], dtype: np.dtype[Any], floating_base: bool
) -> None:
    robot = dynamics.load_urdf(write(urdf()), floating_base=floating_base, gravity=(2.0, -3.0, -9))
    robot = comparison.comparable(robot.replace(armature=np.linspace(0.1, 0.4, robot.nv)))
    oracle = MujocoOracle.from_robot(robot, 2e-3)
    kinds = {int(k) for k in oracle.model.jnt_type}
    free = int(mujoco.mjtJoint.mjJNT_FREE)
    assert kinds - {free} == {int(getattr(mujoco.mjtJoint, f"mjJNT_{k}")) for k in
                              ("HINGE", "SLIDE", "BALL")}  # fmt: skip
    assert (free in kinds) == floating_base

    states = random_states(robot, 20, dtype)
    ours = comparison.our_quantities(robot, states, 2e-3)
    assert all(x.dtype == dtype for x in ours.values())
    reference = comparison.oracle_quantities(oracle, comparison.one_by_one(states))
    errors = comparison.relative_errors(ours, reference)
    assert set(errors) == set(reference)
    assert len(errors) == 15
    assert {k: e for k, e in errors.items() if e > TOLERANCE[dtype.name]} == {}

    torques = comparison.random_torques(robot, 0.5, 2e-3, dtype, seed=0)
    moved = comparison.trajectories(robot, oracle, torques)
    assert moved.error < {"float64": 1e-9, "float32": 1e-3}[dtype.name]
    assert np.abs(moved.theirs[-1] - moved.theirs[0]).max() > 0.5


def test_model_has_our_numbers(write: Callable[[str], Path]) -> None:
    robot = dynamics.load_urdf(write(urdf()), floating_base=True)
    robot = robot.replace(
        damping=np.arange(robot.nv), armature=np.arange(robot.nv)[::-1], gravity=(1.0, 2.0, 3.0)
    )
    model = mujoco_model(robot, 5e-3)
    names = [model.body(i).name for i in range(model.nbody)]
    assert names == ["world", "base", "chassis", "mast", "lift", "ball", "drone", "world (link)"]
    np.testing.assert_array_equal(model.body_mass[1:], robot.mass)
    np.testing.assert_array_equal(model.dof_damping, robot.damping)
    np.testing.assert_array_equal(model.dof_armature, robot.armature)
    np.testing.assert_array_equal(model.opt.gravity, robot.gravity)
    assert model.opt.timestep == 5e-3
    assert (model.nq, model.nv) == (robot.nq, robot.nv)


def test_mimic_joints_are_refused(write: Callable[[str], Path]) -> None:
    robot = dynamics.load_urdf(write(urdf(mimic='<mimic joint="to_mast"/>')))
    with pytest.raises(ConfigError, match=r"'zoo'.*'to_world' follows 'to_mast'.*soft constraint"):
        mujoco_model(robot)


@pytest.mark.filterwarnings("ignore::fraxenv.dynamics.RobotLoadWarning")
def test_inertias_that_mujoco_refuses_are_named_and_not_changed(
    write: Callable[[str], Path],
) -> None:
    robot = dynamics.load_urdf(write(urdf(inertia='ixx="0.01" iyy="0.01" izz="0.03"')))
    with pytest.raises(ConfigError, match=r"'zoo': MuJoCo refuses.*chassis.*sum of the other two"):
        mujoco_model(robot)


# --- the command ---


def cross_check(*arguments: str) -> int:
    """The exit status of `fraxenv cross-check`."""
    return main(["cross-check", *arguments])


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    return tmp_path / "pictures" / "trajectory.png"


@pytest.mark.parametrize(
    "arguments",
    [
        ["panda"],
        pytest.param(["panda", "--float32"], marks=pytest.mark.slow),
        pytest.param(["planar_mobile_manipulator"], marks=pytest.mark.slow),
        pytest.param(["g1", "--float32", "--seed", "1"], marks=pytest.mark.slow),
        pytest.param(["ur_description/urdf/ur5_robot.urdf"], marks=pytest.mark.slow),
        pytest.param(
            ["hyq_description/robots/hyq_no_sensors.urdf", "--floating-base"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda arguments: "-".join(Path(a).stem.strip("-") for a in arguments),
)
def test_robots_agree(
    arguments: list[str], picture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pinocchio")
    robot, *options = arguments
    robot = str(packaged(EXAMPLES, robot)) if robot.endswith(".urdf") else robot
    before = jax.config.jax_enable_x64
    assert cross_check(robot, *options, "--states", "20", "--output", str(picture)) == WITHIN
    assert jax.config.jax_enable_x64 == before
    out = capsys.readouterr().out
    assert "agrees with Pinocchio and MuJoCo" in out
    assert ("float32" if "--float32" in options else "float64") in out
    assert "FAIL" not in out
    for quantity in ("mass matrix", "forward dynamics", "velocity after a step", "trajectory"):
        assert quantity in out
    with Image.open(picture) as image:
        assert image.width > 1000
    assert colours(picture) > 100
    assert list(picture.parent.iterdir()) == [picture]


def heavier(model: Callable[..., Any]) -> Callable[..., Any]:
    def build(robot: dynamics.Robot, timestep: float) -> Any:
        return model(robot.replace(mass=2 * np.asarray(robot.mass)), timestep)

    return build


def lighter_damping(model: Callable[..., Any]) -> Callable[..., Any]:
    def build(robot: dynamics.Robot, timestep: float) -> Any:
        return model(robot.replace(damping=0.999 * np.asarray(robot.damping)), timestep)

    return build


@pytest.mark.parametrize(
    ("broken", "beyond", "fine"),
    [
        (heavier, ["mass matrix", "bias", "trajectory, rad and m"], ["body position"]),
        pytest.param(
            lighter_damping,
            ["velocity after a step", "trajectory, rad and m"],
            ["mass matrix"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_difference_is_noticed(
    broken: Callable[..., Any],
    beyond: list[str],
    fine: list[str],
    picture: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("fraxenv.cross_check.mujoco.mujoco_model", broken(mujoco_model))
    assert cross_check(*SMALL, "--output", str(picture)) == BEYOND
    verdict = " ".join(capsys.readouterr().out.split()).partition("FAIL, beyond tolerance:")[2]
    assert "Pinocchio" not in verdict
    for quantity in beyond:
        assert f"{quantity} (MuJoCo)" in verdict
    for quantity in fine:
        assert quantity not in verdict
    assert picture.exists()


def test_what_is_not_finite_is_noticed(
    picture: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)  # where MuJoCo writes MUJOCO_LOG.TXT
    monkeypatch.setattr(dynamics, "crba", lambda robot, q, **_: np.nan * q[:, None] * q)
    monkeypatch.setattr(dynamics, "step", lambda robot, q, v, *_: (np.nan * q, v))
    assert cross_check(*SMALL, "--output", str(picture)) == BEYOND
    verdict = capsys.readouterr().out
    assert "mass matrix (MuJoCo)" in " ".join(verdict.split())
    assert picture.exists()


def test_without_pinocchio_it_goes_on(
    picture: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pinocchio", None)
    assert cross_check(*SMALL, "--output", str(picture)) == WITHIN
    out = " ".join(capsys.readouterr().out.split())
    assert "Pinocchio is left out: cross-checking with Pinocchio needs the package" in out
    assert 'pip install "fraxenv[cross-check]"' in out
    assert "agrees with MuJoCo" in out


def test_what_mujoco_cannot_model_is_compared_with_pinocchio(
    write: Callable[[str], Path], picture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pinocchio")
    end = "</joint>\n</robot>"
    follows = VANISHING["scara"].replace(end, f'<mimic joint="shoulder" multiplier="2"/>{end}')
    assert cross_check(str(write(follows)), "--states", "5", "--output", str(picture)) == WITHIN
    out = " ".join(capsys.readouterr().out.split())
    assert "MuJoCo is left out: robot 'scara': joint 'elbow' follows" in out
    assert out.endswith("scara agrees with Pinocchio")
    assert not picture.exists()


@pytest.mark.slow
def test_what_pinocchio_cannot_model_is_compared_with_mujoco(
    write: Callable[[str], Path], picture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pinocchio")
    arguments = ["--states", "5", "--seconds", "0.1", "--output", str(picture)]
    assert cross_check(str(write(urdf())), *arguments) == WITHIN
    out = " ".join(capsys.readouterr().out.split())
    assert "Pinocchio is left out: zoo.urdf: planar joint 'to_chassis' has the normal" in out
    assert out.endswith("zoo agrees with MuJoCo")


CART = """
<robot name="cart"><link name="base"/>
  <link name="cart"><inertial><origin xyz="0.1 0.2 0.3"/><mass value="2"/>
    <inertia ixx="0.1" iyy="0.2" izz="0.25" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="plane" type="planar"><parent link="base"/><child link="cart"/>AXIS</joint>
  <link name="bumper"/>
  <joint name="mount" type="fixed"><parent link="cart"/><child link="bumper"/>
    <origin xyz="0.3 0.2 0.1"/></joint>
</robot>"""


@pytest.mark.parametrize(
    ("axis", "agreeing", "normal"),
    [
        # About [0, 0, 1] a cart of `VANISHING` agrees with both.
        pytest.param('<axis xyz="0 0 2"/>', "Pinocchio and MuJoCo", None, marks=pytest.mark.slow),
        pytest.param('<axis xyz="0 1 0"/>', "MuJoCo", "[0. 1. 0.]", marks=pytest.mark.slow),
        pytest.param('<axis xyz="0 0 -1"/>', "MuJoCo", "[ 0.  0. -1.]", marks=pytest.mark.slow),
        pytest.param("", "MuJoCo", "[1. 0. 0.]", marks=pytest.mark.slow),  # URDF's default
    ],
)
def test_planar_joints_that_pinocchio_would_take_for_others(
    axis: str,
    agreeing: str,
    normal: str | None,
    write: Callable[[str], Path],
    picture: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("pinocchio")
    arguments = ["--states", "5", "--seconds", "0.1", "--output", str(picture)]
    assert cross_check(str(write(CART.replace("AXIS", axis))), *arguments) == WITHIN
    out = " ".join(capsys.readouterr().out.split())
    assert out.endswith(f"cart agrees with {agreeing}")
    assert ("left out" in out) == (normal is not None)
    if normal:
        normal = " ".join(normal.split())
        assert f"planar joint 'plane' has the normal {normal}, expected [0, 0, 1]" in out


# Robots of which something is zero in every state, and rounding is all that is left of it: how the
# frames of a cart move that lie on its axis, and what gravity does to arms about vertical axes.
VANISHING = {
    "cart": CART.replace("AXIS", '<axis xyz="0 0 1"/>').replace(
        '<origin xyz="0.3 0.2 0.1"/>', '<origin xyz="0 0 0.1"/>'
    ),
    "scara": """
<robot name="scara"><link name="base"/>
  <link name="upper"><inertial><origin xyz="0.3 0.1 0.2"/><mass value="5"/>
    <inertia ixx="0.1" iyy="0.2" izz="0.25" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="lower"><inertial><origin xyz="0.2 -0.1 0.3"/><mass value="3"/>
    <inertia ixx="0.1" iyy="0.2" izz="0.25" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="shoulder" type="continuous"><parent link="base"/><child link="upper"/>
    <origin xyz="0 0 0.5" rpy="1.5707963267948966 0 0"/><axis xyz="0 1 0"/></joint>
  <joint name="elbow" type="continuous"><parent link="upper"/><child link="lower"/>
    <origin xyz="0.4 0 0"/><axis xyz="0 1 0"/></joint>
</robot>""",
}


PENDULUM = """
<robot name="pendulum"><link name="base"/>
  <link name="rod"><inertial><origin xyz="0.3 0.1 0.2"/><mass value="5"/>
    <inertia ixx="0.1" iyy="0.2" izz="0.25" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="pivot" type="continuous"><parent link="base"/><child link="rod"/>
    <origin xyz="0 0 0.5" rpy="0.3 0 0"/><axis xyz="0 1 0"/></joint>
</robot>"""


def test_one_joint_agrees(
    write: Callable[[str], Path], picture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pinocchio gives vectors where others get matrices."""
    pytest.importorskip("pinocchio")
    arguments = ["--states", "5", "--seconds", "0.1", "--output", str(picture)]
    assert cross_check(str(write(PENDULUM)), *arguments) == WITHIN
    assert "agrees with Pinocchio and MuJoCo" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", with_slow([[], ["--float32"]], ["--float32"]), ids=["float64", "float32"]
)
@pytest.mark.parametrize("robot", with_slow(VANISHING, "scara"))
def test_rounding_of_what_vanishes_is_no_difference(
    robot: str,
    options: list[str],
    write: Callable[[str], Path],
    picture: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("pinocchio")
    arguments = [*options, "--states", "20", "--seconds", "0.1", "--output", str(picture)]
    assert cross_check(str(write(VANISHING[robot])), *arguments) == WITHIN
    assert "agrees with Pinocchio and MuJoCo" in " ".join(capsys.readouterr().out.split())


def test_joints_that_pinocchio_does_not_know_are_an_error(write: Callable[[str], Path]) -> None:
    pytest.importorskip("pinocchio")
    path = write(urdf().replace('"planar"', '"revolute"'))
    with pytest.raises(RobotLoadError, match=r"zoo\.urdf: Pinocchio cannot read it"):
        PinocchioOracle.from_urdf(dynamics.load_urdf(path), path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pandaa"], ["unknown robot or file 'pandaa'", "Did you mean 'panda'?"]),
        (["missing.urdf"], ["missing.urdf", "No such file"]),
        (["panda", "--floating-base"], ["--floating-base", "'panda'", "Leave it out"]),
        (["panda", "--states", "0"], ["--states=0", "whole number >= 1"]),
        (["panda", "--seconds", "nan"], ["--seconds=nan", "0.001 s"]),
    ],
)
def test_nothing_to_compare(
    arguments: list[str], says: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cross_check(*arguments) == FAILED
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    for part in says:
        assert part in captured.err


def test_without_mujoco_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    assert cross_check(*SMALL) == FAILED
    assert "MissingExtraError" in (err := capsys.readouterr().err)
    assert 'pip install "fraxenv[mujoco]"' in err


# --- the arithmetic of errors ---


def test_errors_are_relative_to_the_largest_entry() -> None:
    reference = {"x": np.array([[1.0, 100.0], [1.0, 200.0]])}
    ours = {"x": reference["x"] + [[0.0, 0.0], [1.0, 0.0]], "ours alone": np.ones(2)}
    assert comparison.relative_errors(ours, reference) == {"x": 1.0 / 200.0}


@pytest.mark.parametrize(
    ("ours", "reference", "error"),
    [
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([1e-9, 0.0], [0.0, 0.0], np.inf),
        ([np.nan, 1.0], [1.0, 1.0], np.inf),
        ([2.0, 2e-9, 2.0], [2.0, 1e-9, 2.0], 1e-9 / 2.0),  # a zero crossing is no error
    ],
)
def test_errors_of_zeros(ours: list[float], reference: list[float], error: float) -> None:
    result = comparison.relative_errors({"x": np.array(ours)}, {"x": np.array(reference)})
    assert result["x"] == pytest.approx(error, rel=1e-6)


def test_errors_of_what_vanishes_are_relative_to_what_it_is_part_of() -> None:
    reference = {
        "gravity": np.zeros((3, 2)),
        "inverse dynamics": np.full((3, 2), 50.0),
        "frame jacobian dot": np.zeros((3, 2)),
    }
    ours = {name: x + 1e-3 for name, x in reference.items()}
    errors = comparison.relative_errors(ours, reference)
    assert errors["gravity"] == pytest.approx(1e-3 / 0.5)
    assert errors["inverse dynamics"] == pytest.approx(1e-3 / 50)
    assert errors["frame jacobian dot"] == pytest.approx(1e-3 / 0.1)


def test_only_solves_are_allowed_what_rounding_costs_them() -> None:
    bad = np.diag([1.0, 2e-4]).astype(np.float32)[None]
    assert comparison.tolerance("bias", 1e-4, bad) == 1e-4
    allowed = comparison.tolerance("forward dynamics", 1e-4, bad)
    assert allowed == pytest.approx(5e3 * np.finfo(np.float32).eps)
    assert comparison.tolerance("forward dynamics", 1e-4, bad**2) == comparison.MAX_TOLERANCE
    assert comparison.tolerance("forward dynamics", 1e-9, np.eye(2)[None]) == 1e-9


def test_comparable_robots_are_damped_and_nothing_else() -> None:
    robot = dynamics.load_robot("g1")
    stiff = robot.replace(
        damping=np.full(robot.nv, 0.02),
        friction=np.ones(robot.nv),
        stop_stiffness=np.ones(robot.nv),
    )
    result = comparison.comparable(stiff)
    assert not np.any(result.friction)
    assert not np.any(result.stop_stiffness)
    damping = np.asarray(result.damping)
    np.testing.assert_array_equal(damping[:6], 0.02)  # the pelvis floats, as the file has it
    assert (damping[6:] >= 0.02).all()
    assert (damping[6:] > 0.02).any()
    np.testing.assert_array_equal(result.mass, robot.mass)
    torques = comparison.random_torques(result, 0.25, 1e-3, np.float64, seed=0)
    assert torques.shape == (250, robot.nv)
    assert not torques[:, :6].any()
    assert (np.diff(torques[:, 6:], axis=0) != 0).any(axis=1).sum() == 2
