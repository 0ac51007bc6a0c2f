"""The scripts about the safety filter, small: what they compute, not how long it takes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from support import colours, load_script

EXAMPLES = Path(__file__).parents[2] / "scripts" / "examples"


@pytest.mark.slow
def test_the_ball_is_avoided(tmp_path: Path) -> None:
    picture = tmp_path / "avoid.png"
    command = [sys.executable, EXAMPLES / "avoid_obstacle.py", "--output", picture]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    distances = re.findall(r"filter (\w+) +ball comes to +(-?[\d.]+) mm", done.stdout)
    found = {name: float(mm) for name, mm in distances}
    assert found["off"] < -20
    assert found["on"] > 0
    with Image.open(picture) as image:
        assert image.size[0] >= 1500
    assert colours(picture) > 1000


@pytest.mark.slow
def test_programs_are_solved(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("quadprog")
    script = load_script("measure/compare_qp")
    script.main(script.Options(states=300, chunk=300))
    text = capsys.readouterr().out
    assert "torque beyond its limit, worst of all: 0.0e+00 N m" in text
    residuals = [float(x) for x in re.findall(r"worst KKT (\S+),", text)]
    assert len(residuals) == len(script.KINDS)
    assert max(residuals) <= 1e-4


@pytest.mark.slow
def test_violations_are_counted() -> None:
    script = load_script("measure/validate_safety")
    options = script.Options(control_steps=1, envs=64)
    found = {
        name: script.count(name, script.ROWS[name], options)
        for name in ("on, target runs ahead", "off, target runs ahead")
    }
    assert found["on, target runs ahead"]["beyond the margin"] == 0
    assert found["off, target runs ahead"]["violations"] > 0
    assert all(f["torques"] == f["not finite"] == 0 for f in found.values())
    assert script.far_from_everything(500, seed=0) <= 1e-5
