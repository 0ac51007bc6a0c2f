"""Random robots against Pinocchio, which reads the same URDF itself, and against MuJoCo."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import chex
import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from random_robots import robots

from fraxenv import dynamics
from fraxenv.cross_check.comparison import one_by_one, oracle_quantities, relative_errors, tolerance
from fraxenv.cross_check.mujoco import MujocoOracle
from fraxenv.cross_check.pinocchio import PinocchioOracle
from fraxenv.cross_check.quantities import quantities, random_states
from fraxenv.dynamics import Robot

pytest.importorskip("pinocchio")
pytest.importorskip("mujoco")

STATES = 10
TOLERANCE = 1e-9
GRAVITY = (2.0, -3.0, -9.0)
# Every example is a program of its own; shrinking would compile hundreds.
FEW: dict[str, Any] = {
    "phases": (Phase.explicit, Phase.generate),
    "suppress_health_check": list(HealthCheck),
}


@contextmanager
def loaded(machine: tuple[str, bool]) -> Iterator[tuple[Robot, Path]]:
    text, floating = machine
    with tempfile.TemporaryDirectory(prefix="fraxenv-") as folder:
        path = Path(folder) / "random.urdf"
        path.write_text(text)
        yield dynamics.load_urdf(path, floating_base=floating, gravity=GRAVITY), path


def check(robot: Robot, oracles: list[Any], seed: int) -> None:
    states = random_states(robot, STATES, np.float64, seed)
    program = jax.jit(
        jax.vmap(lambda s: quantities(robot, s)),
        compiler_options={"xla_backend_optimization_level": 0},
    )
    ours = {name: np.asarray(x) for name, x in program(states).items()}
    for oracle in oracles:
        theirs = oracle_quantities(oracle, one_by_one(states))
        errors = relative_errors(ours, theirs)
        assert len(errors) >= 8
        for name, error in errors.items():
            allowed = tolerance(name, TOLERANCE, ours["mass matrix"])
            assert error <= allowed, f"{type(oracle).__name__}: {name} differs by {error:.3g}"


def with_pinocchio(machine: tuple[str, bool], seed: int) -> None:
    with loaded(machine) as (robot, path):
        check(robot, [PinocchioOracle.from_urdf(robot, path)], seed)


def with_both(machine: tuple[str, bool], seed: int) -> None:
    with loaded(machine) as (robot, path):
        oracles = [PinocchioOracle.from_urdf(robot, path), MujocoOracle.from_robot(robot, 1e-3)]
        check(robot, oracles, seed)


seeds = st.integers(0, 1000)
# Pinocchio's reader takes every planar joint's normal for z.
any_joints = robots(normal="0 0 1")
# MuJoCo has no joints that follow others.
free_joints = robots(normal="0 0 1", mimics=False)


@pytest.mark.slow
@given(any_joints, seeds)
@settings(max_examples=40, **FEW)
def test_random_robots(x64: None, machine: tuple[str, bool], seed: int) -> None:
    with_pinocchio(machine, seed)


@pytest.mark.slow
@given(free_joints, seeds)
@settings(max_examples=40, **FEW)
def test_random_robots_without_mimics(x64: None, machine: tuple[str, bool], seed: int) -> None:
    with_both(machine, seed)


@given(robots(max_bodies=9))
@settings(max_examples=40)
def test_random_robots_load(machine: tuple[str, bool]) -> None:
    """Without compiling anything: a finite robot of that many bodies, twice the same."""
    text, floating = machine
    with loaded(machine) as (robot, path):
        again = dynamics.load_urdf(path, floating_base=floating, gravity=GRAVITY)
    moving = text.count("<joint ") - text.count('type="fixed"') + floating
    assert robot.nb == moving
    assert robot.nv <= 6 * robot.nb
    chex.assert_trees_all_equal(robot, again, strict=True)
