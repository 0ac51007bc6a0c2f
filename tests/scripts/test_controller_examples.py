"""The examples of controllers, run as users run them, and the script that measures controllers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image
from support import colours, load_script

EXAMPLES = Path(__file__).parents[2] / "scripts" / "examples"


def run(script: str, picture: Path, *options: str) -> dict[str, list[float]]:
    """The numbers in each row of the table that the script prints."""
    command = [sys.executable, EXAMPLES / script, *options, "--output", picture]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    with Image.open(picture) as image:
        assert image.size[0] >= 1500
    assert colours(picture) > 1000
    rows = re.findall(r"^([a-z][a-z -]*?)  +(-?\d.*)$", done.stdout, re.M)
    return {name: [float(x) for x in re.findall(r"-?[\d.]+", row)] for name, row in rows}


@pytest.mark.slow
def test_feed_forward_tracks_the_figure_eight(tmp_path: Path) -> None:
    rows = run("track_figure_eight.py", tmp_path / "eight.png", "--period", "3", "--rounds", "1")
    assert rows["with feed-forward"][1] < 0.5  # mm
    assert rows["without"][0] > 10.0


@pytest.mark.slow
def test_a_schedule_of_stiffness_keeps_the_force(tmp_path: Path) -> None:
    rows = run("wipe_surface.py", tmp_path / "wipe.png", "--seconds", "5", "--force", "12")
    mean, least, most, touching = rows["by schedule"]
    assert mean == pytest.approx(12.0, rel=0.1)
    assert least > 3.0
    assert most < 30.0
    assert touching == 100.0
    assert rows["stiff"][3] < 60.0
    assert rows["stiff"][2] > 1.5 * most


@pytest.mark.slow
def test_hands_share_or_give_way(tmp_path: Path) -> None:
    rows = run("move_two_hands.py", tmp_path / "hands.png")
    circles, left, right = rows["equally important"]
    assert circles < 10.0
    assert left == pytest.approx(right, rel=0.01)
    _, left, right = rows["left before right"]
    assert left < 0.1
    assert right > 50.0


def test_what_is_measured_beside_frax_computes_the_same(
    monkeypatch: pytest.MonkeyPatch, x64: None
) -> None:
    pytest.importorskip("frax")
    script = load_script("measure/measure_controllers")
    given = script.arguments()
    laws = script.frax_laws()
    ours = {
        "operational space control": script.our_osc,
        "differential inverse kinematics": script.our_ik,
    }
    for title, law in ours.items():
        expected = jax.jit(laws[title]["frax, Cholesky"])(*given)
        np.testing.assert_allclose(jax.jit(law)(*given), expected, rtol=1e-10, atol=1e-10)
    monkeypatch.setattr(script, "CALLS", 2)
    monkeypatch.setattr(script, "ROUNDS", 2)
    name = "frax, Cholesky"
    programs = {name: jax.jit(laws["operational space control"][name])}
    times = script.measure(programs, given)
    assert times[name].shape == (4,)
    assert script.table("title", programs, name, given).row_count == 1
