"""`fraxenv.gradient_check`: three ways to a gradient agree, and it tells how displacements grow."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import colours

import fraxenv
from fraxenv import dynamics
from fraxenv.cli import main
from fraxenv.cross_check.gradients import GradientCheck
from fraxenv.errors import ConfigError

N, STEPS = 8, 6


def pendulum() -> fraxenv.envs.Environment:
    """Two joints that are moved directly: quick to compile."""
    robot = dynamics.load_robot("double_pendulum").replace(q_default=np.array([0.5, 0.5]))
    rates = {"control_hz": 100, "physics_hz": 100}
    return fraxenv.make(robot=robot, task="reach", action="joint_delta", **rates)[0]


def policy(obs: jax.Array) -> jax.Array:
    return 0.3 * jnp.tanh(obs[:2])


@pytest.fixture(scope="module")
def check() -> GradientCheck:
    with jax.enable_x64(True):
        return fraxenv.gradient_check(
            pendulum(), policy, steps=STEPS, environments=N, samples=64, settle=2
        )


@pytest.mark.slow
def test_three_ways_agree(check: GradientCheck) -> None:
    assert check.reverse.shape == check.forward.shape == check.differences.shape == (N, 2)
    assert np.abs(check.reverse).max() > 1e-3
    assert check.errors(check.forward).max() < 1e-9
    assert check.errors(check.differences).max() < 1e-5
    off = np.abs(check.reverse.mean(axis=0) - check.sampled)
    assert (off < 5 * check.deviation).all()
    assert (check.lost, check.saturated) == (0, 0.0)


@pytest.mark.slow
def test_displacements_begin_as_they_are(check: GradientCheck) -> None:
    """In one policy step of 20 ms they hardly change; nothing here grows tenfold."""
    assert check.growth.shape == (STEPS, N)
    assert np.median(check.growth[0]) == pytest.approx(1.0, abs=0.2)
    assert check.window == STEPS


def test_the_window_ends_before_displacements_have_grown_tenfold(check: GradientCheck) -> None:
    growth = np.array([1.0, 3.0, 9.0, 27.0, 9.0])[:, None] * np.ones((1, N))
    assert replace(check, growth=growth).window == 3
    assert replace(check, growth=growth + 10).window == 0


def test_errors_are_relative_to_the_larger(check: GradientCheck) -> None:
    one = replace(check, reverse=np.array([[3.0, 4.0], [0.0, 0.0]]))
    np.testing.assert_allclose(one.errors(np.array([[0.0, 0.0], [0.0, 0.0]])), [1.0, 0.0])


def test_a_table_and_a_picture(check: GradientCheck, tmp_path: Path) -> None:
    table = check.table()
    rows = list(table.columns[0].cells)
    assert rows[0] == "reverse mode against forward mode"
    assert "a displacement after 6 steps" in rows
    assert f"0 of {N * STEPS}" in list(table.columns[1].cells)
    check.plot(tmp_path / "check.png")
    assert colours(tmp_path / "check.png") > 50


def test_numbers_that_are_not_possible() -> None:
    env = pendulum()
    for name in ("steps", "environments", "samples"):
        with pytest.raises(ConfigError, match=f"{name}=0"):
            fraxenv.gradient_check(env, policy, **{name: 0})


@pytest.mark.slow
def test_the_command_prints_draws_and_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--steps", "3", "--environments", "4", "--output", str(tmp_path / "check")]
    rates = [x for s in ("control_hz=100", "physics_hz=200") for x in ("--set", s)]
    assert main(["gradient-check", "PandaReach-v0", *small, *rates]) == 0
    assert "gradients over 3 policy steps" in capsys.readouterr().out
    found = json.loads((tmp_path / "check" / "gradients.json").read_text())
    assert np.shape(found["reverse"]) == (4, 6)
    assert found["window"] == 3
    assert found["environment"]["id"] == "PandaReach-v0"
    assert colours(tmp_path / "check" / "gradients.png") > 50
