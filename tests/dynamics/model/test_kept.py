"""Bundled robots are read once for all processes, and are what was read."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fraxenv import dynamics
from fraxenv.dynamics import Robot
from fraxenv.dynamics.model import bundled, kept

NAMES = [*dynamics.list_robots(), *dynamics.list_assemblies()]


def assert_same(a: Any, b: Any, where: str) -> None:
    """Every bit, and every type."""
    assert type(a) is type(b), where
    if isinstance(a, np.ndarray):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), where
    elif dataclasses.is_dataclass(a):
        for field in dataclasses.fields(a):
            name = field.name
            assert_same(getattr(a, name), getattr(b, name), f"{where}.{name}")
    elif isinstance(a, tuple):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{where}[{i}]")
    elif isinstance(a, dict):
        assert_same(tuple(a.items()), tuple(b.items()), where)
    else:
        assert a == b, where


def robots() -> tuple[Robot, Robot]:
    return dynamics.load_robot("ur10"), dynamics.load_robot("iiwa14")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRAXENV_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("FRAXENV_CACHE", raising=False)
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_every_bundled_robot_is_the_same_again(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAXENV_CACHE", "0")
    robot = bundled._load.__wrapped__(name, None, False)
    monkeypatch.delenv("FRAXENV_CACHE")
    assert kept.kept(lambda: robot, name) is robot
    again = kept.kept(lambda: pytest.fail("it was kept"), name)
    assert_same(again, robot, name)


def test_what_was_asked_for_otherwise_is_another(folder: Path) -> None:
    arm, other = robots()
    kept.kept(lambda: arm, "a", None)
    assert kept.kept(lambda: other, "a", True) is other


def test_other_descriptions_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arm, other = robots()
    kept.kept(lambda: arm, "a")
    monkeypatch.setattr(kept, "_sources", lambda: b"of another version")
    assert kept.kept(lambda: other, "a") is other


def test_what_was_damaged_is_read(folder: Path) -> None:
    arm, other = robots()
    kept.kept(lambda: arm, "a")
    entry = max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 1
    entry.write_bytes(bytes(data))
    assert kept.kept(lambda: other, "a") is other


@pytest.mark.slow
def test_another_process_needs_no_parser(folder: Path) -> None:
    code = """
import sys
from fraxenv import dynamics
robot = dynamics.load_robot("panda")
assert not robot.mass.flags.writeable
print("yourdfpy" in sys.modules, robot.mass.tobytes().hex())
"""
    said = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert [parsed for parsed, _ in said] == ["True", "False"]
    assert said[0][1] == said[1][1]
