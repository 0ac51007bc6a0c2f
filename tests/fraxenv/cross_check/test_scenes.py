"""The cross-check of scenes: that it notices when we are not right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fraxenv.cli import main
from fraxenv.cli.common import FAILED
from fraxenv.cli.cross_check import BEYOND, WITHIN
from fraxenv.cross_check import scenes

mujoco = pytest.importorskip("mujoco")

BENCHMARK = Path(__file__).parents[3] / "scripts" / "measure" / "benchmark" / "scenes"

# A ball that rolls, without a name for its geom, and a hinge between limits after a ball joint.
TINY = """<mujoco><option timestep="0.004" cone="elliptic"/><worldbody>
<geom type="plane" size="1 1 .1"/>
<body pos="0 0 .049"><freejoint/><geom size=".05" mass=".5" condim="4"/></body>
<body pos="0 1 1"><joint type="ball" limited="true" range="0 30"/>
<geom type="capsule" size=".02 .1" mass=".4" contype="0" conaffinity="0"/>
<body pos="0 0 .2">
<joint name="hinge" axis="0 1 0" limited="true" range="-5 5" frictionloss=".01"/>
<geom type="capsule" size=".02 .1" mass=".2" pos=".1 0 0" contype="0" conaffinity="0"/>
</body></body>
</worldbody><actuator><position joint="hinge" kp="2"/></actuator></mujoco>"""

Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """The command on a scene's text; its picture is `scene.png`."""

    def run(text: str, *options: str) -> int:
        path = tmp_path / "scene.xml"
        path.write_text(text)
        small = ["--states", "60", "--seconds", "0.2", "--output", str(tmp_path / "scene.png")]
        return main(["cross-check", str(path), *small, *options])

    return run


def test_a_scene_agrees(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(TINY) == WITHIN
    out = capsys.readouterr().out
    for quantity in ("contact distance", "rows: J", "rows: aref", "acceleration", "trajectory"):
        assert quantity in out
    assert "1 pairs of geoms with 1 contact slots" in " ".join(out.split())
    assert "rounds of Newton's method" in " ".join(out.split())
    with Image.open(tmp_path / "scene.png") as image:
        assert image.size[0] > 800


@pytest.mark.slow
def test_a_scene_agrees_in_single_precision(run: Run) -> None:
    assert run(TINY, "--float32") == WITHIN


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cube", "grasp", "quadruped", "stack"])
def test_scenes_of_the_benchmark_agree(name: str, run: Run) -> None:
    assert run((BENCHMARK / f"{name}.xml").read_text()) == WITHIN


@pytest.mark.slow
def test_a_difference_is_noticed(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load = scenes.load_scene

    def slippery(model: Any, path: Path) -> Any:
        scene = load(model, path)
        return scene.with_geom(scene.geom_names[0], friction=1.001)

    monkeypatch.setattr(scenes, "load_scene", slippery)
    assert run(TINY) == BEYOND
    report = " ".join(capsys.readouterr().out.split())
    beyond = report[report.index("FAIL, beyond tolerance") :]
    assert "rows: D" in beyond
    assert "contact forces" in beyond
    assert "contact distance" not in beyond


@pytest.mark.slow
def test_other_contacts_are_counted(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load = scenes.load_scene

    def without(model: Any, path: Path) -> Any:
        scene = load(model, path)
        return scene.with_geom(scene.geom_names[-1], size=(0.01, 0.0, 0.0))

    monkeypatch.setattr(scenes, "load_scene", without)
    assert run(TINY) == BEYOND
    assert "states with other contacts" in capsys.readouterr().out.split("FAIL, beyond")[-1]


def test_what_is_not_modelled_is_named(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(TINY.replace('timestep="0.004"', 'timestep="0.004" integrator="RK4"')) == FAILED
    assert "integrator='RK4'" in capsys.readouterr().err
    assert run(TINY, "--floating-base") == FAILED
    assert "--floating-base" in capsys.readouterr().err


def test_mjcf_is_told_apart_from_urdf(tmp_path: Path) -> None:
    for name, text, expected in (
        ("scene.xml", TINY, True),
        ("robot.xml", "<?xml version='1.0'?><!-- --><robot name='r'></robot>", False),
        ("robot.urdf", TINY, False),
        ("broken.xml", "<mujoco", True),
    ):
        path = tmp_path / name
        path.write_text(text)
        assert scenes.is_mjcf(path) == expected
    assert not scenes.is_mjcf(tmp_path / "missing.xml")
