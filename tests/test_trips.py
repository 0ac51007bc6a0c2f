"""Trips through the house: how many files and rooms one call leads through, as it is traced.

The rule, which `scripts/measure/trips.py` applies to every call between files of ours, in order:

- A *quantity* is a function of `dynamics` that is not given the torque (`tau`), with all that it
  calls. It is taken by its name. All other functions of envs, controllers and dynamics are
  followed; `dynamics/math`, kernels and errors are known to all, and do not count.
- A *stop* is a file of which a followed function hands on to any other file, be it for a quantity.
  The other followed files are *leaves*: they answer on the spot.
- An *entry* of a room is a call, from another room, of a followed function that hands on. A pair of
  functions counts once, however often a loop repeats it. Returns are no entries.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import load_script

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/trips.md").read_text("utf-8")

MOST_STOPS, MOST_ENTRIES = 15, 3
"""Of the way from an action to the torque and back."""

Measured = dict[str, Any]


@pytest.fixture(scope="module")
def measure(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Measured]:
    """A trip's numbers, in a process of its own: what was traced before is not called again."""
    environment = os.environ | {"FRAXENV_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}
    known: dict[tuple[str, ...], Measured] = {}

    def run(*trip: str) -> Measured:
        if trip not in known:
            command = [sys.executable, ROOT / "scripts/measure/trips.py", *trip, "--json"]
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            known[trip] = json.loads(done.stdout.splitlines()[-1])
        return known[trip]

    return run


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def check_told(told: str, measured: Measured) -> None:
    """The page's numbers are the measured ones, its hops the stops, its functions called."""
    stops, opened = measured["stops"], measured["opened"]
    assert f"**{len(stops)} stops, {len(opened)} files opened" in re.sub(r"\s+", " ", told)
    entries = re.findall(r"`([a-z/0-9]+)` (\d+)[,.]", told)
    assert dict(entries) == {room: str(len(x)) for room, x in measured["entries"].items()}
    hops = re.findall(r"^\d+\. `([^`]+)`: ((?:`[^`]+`,?\s*)+)", told, re.MULTILINE)
    assert sorted(file for file, _ in hops) == sorted(stops)
    for file, functions in hops:
        assert set(re.findall(r"`([^`]+)`", functions)) <= set(measured["functions"][file]), file


def test_from_an_action_to_the_torque_and_back(measure: Callable[..., Measured]) -> None:
    trip = measure("step")
    assert len(trip["stops"]) <= MOST_STOPS, trip["stops"]
    assert {"envs/control_loop.py", "controllers/osc.py", "dynamics/actuation.py"} <= {
        *trip["stops"]
    }
    crowded = {room: calls for room, calls in trip["entries"].items() if len(calls) > MOST_ENTRIES}
    assert not crowded


@pytest.mark.slow
def test_the_page_tells_the_step(measure: Callable[..., Measured]) -> None:
    plain, _, filtered = section("Action to torque and back").partition("\nWith the safety filter")
    check_told(plain, measure("step"))
    hops = re.findall(r"^\d+\. .*", plain, re.MULTILINE)
    check_told("\n".join([filtered, *hops]), measure("step", "PandaReachObstacles-v0"))
    for told, trip in ((plain, ("step",)), (filtered, ("step", "PandaReachObstacles-v0"))):
        assert f"{len(measure(*trip)['entered'])} with those of" in re.sub(r"\s+", " ", told)


@pytest.mark.slow
def test_the_page_tells_how_a_robot_is_loaded(measure: Callable[..., Measured]) -> None:
    check_told(section("URDF to robot"), measure("load"))


@pytest.mark.slow
def test_the_page_tells_how_a_function_is_fused(measure: Callable[..., Measured]) -> None:
    pytest.importorskip("llvmlite")
    check_told(section("vmap to machine code"), measure("fuse"))


@pytest.mark.slow
def test_the_page_tells_a_training(measure: Callable[..., Measured]) -> None:
    pytest.importorskip("rejax")
    check_told(section("fraxenv train to a checkpoint"), measure("train"))


def test_what_counts() -> None:
    """Quantities, leaves, loops and returns, on a trip made by hand."""
    trips = load_script("measure/trips")

    def call(
        caller: Any, file: str, function: str, followed: bool = True, hands: bool = False
    ) -> Any:
        return trips.Call(caller, trips.Place(file, function), followed, hands)

    loop = call(None, "envs/loop.py", "loop", hands=True)
    law = call(loop, "controllers/law.py", "law", hands=True)
    calls = [
        loop,
        call(loop, "controllers/checks.py", "check"),
        law,
        call(law, "dynamics/crba.py", "crba", followed=False, hands=True),
        call(loop, "controllers/law.py", "law", hands=True),  # the loop's second round
        call(law, "controllers/errors.py", "errors", hands=True),
    ]
    trip = trips.Trip(calls)
    assert trip.stops == ["envs/loop.py", "controllers/law.py", "controllers/errors.py"]
    assert [file for file in trip.opened if file not in trip.stops] == ["controllers/checks.py"]
    assert set(trip.entered) - set(trip.opened) == {"dynamics/crba.py"}
    assert {room: len(pairs) for room, pairs in trip.entries().items()} == {
        "envs": 1,
        "controllers": 1,
    }


def test_calls_are_watched() -> None:
    trips = load_script("measure/trips")
    with trips.traced(("fraxenv/",)) as trip:
        pass
    assert trip.calls == []
    with trips.traced(("fraxenv/",)) as trip:
        trips.fraxenv.errors.check_count("n", 1)
    assert trip.opened == ["fraxenv/errors.py"]
    assert trip.stops == []
