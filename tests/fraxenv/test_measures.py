"""Tasks of one's own are trained, evaluated and shown by what they describe, whatever it is."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support import with_slow

import fraxenv
from fraxenv import dynamics
from fraxenv.cli import main
from fraxenv.dynamics import Robot
from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.envs import Environment, Measure, Motion, Task
from fraxenv.errors import ConfigError, UnknownNameError
from fraxenv.training import Evaluation, PPOConfig, evaluate, load_policy, read_metrics, save_config
from fraxenv.training.report import save_summary

PAGE = Path(__file__).parents[2] / "docs" / "extend" / "task.md"
SETTLE = '''
"""Come to rest: nothing to reach, and no tolerance."""

import jax
import jax.numpy as jnp

from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.envs import Task


@pytree_dataclass
class Settle(Task):
    """Come to rest."""

    def reset(self, key, robot):
        noise = jax.random.uniform(key, (robot.nq,), minval=-0.2, maxval=0.2)
        return jnp.asarray(robot.q_default, noise.dtype) + noise, ()

    def observation_terms(self, robot, motion, state):
        return {"joints": motion.q, "speeds": motion.v}

    def reward_terms(self, robot, motion, state):
        return {"speed": -jnp.sum(motion.v**2)}

    def measures(self, robot, motion, state):
        fastest = jnp.max(jnp.abs(motion.v))
        return {"success": fastest < 0.01, "fastest": fastest, "speeds": motion.v}
'''
TASKS = {"own_tasks:PointAt": "angle", "own_settle:Settle": "fastest"}
FAST = {"control_hz": 250, "physics_hz": 250, "max_steps_in_episode": 4}
SMALL = {
    "total_timesteps": 128, "num_envs": 8, "num_steps": 8, "num_epochs": 1, "num_minibatches": 2,
    "updates_per_round": 1, "eval_episodes": 2, "final_episodes": 3,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The task that the page teaches, and one without any error, where Python finds them."""
    folder = tmp_path_factory.mktemp("modules")
    code = re.search(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    assert code is not None
    assert code[1].count("\n") < 60
    (folder / "own_tasks.py").write_text(code[1])
    (folder / "own_settle.py").write_text(SETTLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


@pytest.fixture(scope="module", params=with_slow(TASKS, "own_tasks:PointAt"))
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A whole run of `fraxenv train`, and what the task measures."""
    runs = tmp_path_factory.mktemp("runs")
    overrides = {"task": request.param, "action": "joint_velocity", **FAST}
    save_config(runs / "small.yaml", PPOConfig(overrides=overrides, **SMALL))
    args = ["--config", str(runs / "small.yaml"), "--runs", str(runs), "--name", "run"]
    assert main(["train", *args]) == 0
    return runs / "run", TASKS[request.param]


@pytest.mark.slow
def test_training_measures_it(trained: tuple[Path, str]) -> None:
    run, measure = trained
    metrics = read_metrics(run)
    assert all(np.isfinite(m[measure]) for m in metrics)
    written = json.loads((run / "evaluation.json").read_text())
    assert {f"{measure}_median", f"{measure}_p95"} <= written.keys()
    assert not any("position" in name for name in written)


@pytest.mark.slow
def test_eval_and_rollout_tell_it(
    trained: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, measure = trained
    assert main(["eval", str(run), "--episodes", "2", "--output", str(tmp_path)]) == 0
    assert f"{measure}, median" in capsys.readouterr().out
    assert (tmp_path / "evaluation.png").exists()
    args = ["--policy", str(run), "--episodes", "1", "--size", "32", "--output", str(tmp_path)]
    assert main(["rollout", *args]) == 0
    number = {"angle": r"angle \d+\.\d°", "fastest": r"fastest [\d.e-]+"}[measure]
    assert re.search(rf"ends with {number}\n", capsys.readouterr().out)
    assert (tmp_path / "rollout.png").exists()


@pytest.mark.slow
def test_info_describes_it(trained: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    run, measure = trained
    *_, config = load_policy(run)
    settings = [x for k, v in config.overrides.items() for x in ("--set", f"{k}={v}")]
    assert main(["info", config.env, *settings]) == 0
    out = capsys.readouterr().out
    assert "Measures" in out
    assert re.search({"angle": r"angle +│ rad +│ +5\.7° │", "fastest": "fastest +│ "}[measure], out)
    assert bool(re.search(r"speeds +│ rad/s", out)) == (measure == "angle")


@pytest.mark.slow
def test_the_viewer_shows_it(trained: tuple[Path, str]) -> None:
    pytest.importorskip("viser")
    from fraxenv.viewer.panel import Panel
    from fraxenv.viewer.simulation import Simulation

    run, measure = trained
    _, env, params, _ = load_policy(run)
    simulation = Simulation(env, params)
    simulation.driver = "random actions"
    snapshot = simulation.step(simulation.reset())
    assert simulation.targets(snapshot.state)  # nobody's goals, which can be dragged all the same
    page = MagicMock()
    panel = Panel(MagicMock(), page, env, params, simulation, 0)
    panel.show([snapshot], snapshot, 1.0)
    status = page.add_markdown().content
    assert re.search({"angle": r"angle \d+\.\d°", "fastest": r"fastest [\d.]+"}[measure], status)


# --- descriptions ---------------------------------------------------------------------------------

SUCCESS = {"success": np.array(False)}


def environment(described: tuple[Measure, ...], values: dict[str, Any]) -> Environment:
    """Of a task that describes this, and measures that."""

    @pytree_dataclass
    class Told(Task):
        tolerance: float = 0.1

        reported = described

        def reset(self, key: Array, robot: Robot) -> tuple[Array, Any]:
            return jnp.asarray(robot.q_default, float), ()

        def observation_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
            return {"joints": motion.q}

        def reward_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
            return {"none": jnp.zeros(())}

        def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
            return {name: jnp.asarray(value) for name, value in values.items()}

    return fraxenv.make(robot="panda", task=Told(), **FAST)[0]


def test_what_is_described_is_reported() -> None:
    values = {"b": 1.0, "a": 2.0, "rows": np.ones(3), "touches": np.array(True), **SUCCESS}
    assert environment((Measure("a", "m"),), values).reported == (Measure("a", "m"),)
    assert environment((), values).reported == (Measure("b"), Measure("a"))
    assert environment((), SUCCESS).reported == ()


@pytest.mark.parametrize(
    ("described", "values", "message"),
    [
        (
            Measure("angel"),
            {"angle": 1.0},
            "unknown measure 'angel' in Told.reported. Did",
        ),
        (Measure("angle", below="tolerence"), {"angle": 1.0}, "Did you mean 'tolerance'"),
        (Measure("rows"), {"rows": np.ones(3)}, r"'rows' has shape \(3,\), float32, expected"),
        (Measure("touches"), {"touches": np.array(True)}, r"'touches' has shape \(\), bool"),
        (Measure("a"), {"a": 1.0, "success": 1.0}, r"Told.measures: 'success', expected.*float32"),
    ],
)
def test_wrong_descriptions_are_explained(
    described: Measure, values: dict[str, Any], message: str
) -> None:
    env = environment((described,), {**SUCCESS, **values})
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        _ = env.reported


def test_success_has_to_be_measured() -> None:
    with pytest.raises(ConfigError, match=r"'success', expected shape.*found none"):
        _ = environment((), {"a": 1.0}).reported


def test_numbers_are_told_as_people_read_them() -> None:
    distance = Measure("position_error", "m", shown="mm", label="distance")
    assert (distance.text(0.00312), distance.title("median")) == ("3.1 mm", "distance, median, mm")
    turn = Measure("turn", "rad", shown="deg")
    assert (turn.text(np.pi / 6), turn.title()) == ("30.0°", "turn, degrees")
    assert Measure("pushed_mass", "kg").text(0.12345) == "0.123 kg"
    assert Measure("pushed_mass", "kg").title() == "pushed mass, kg"
    assert (Measure("part", "1", shown="%").text(0.5), Measure("n").text(7)) == ("50.0 %", "7")
    with pytest.raises(ConfigError, match="shown='km', expected one of 'm', 'mm'"):
        Measure("distance", "m", shown="km")


def test_what_is_not_finite_is_null_in_json(tmp_path: Path) -> None:
    nothing, numbers = np.zeros(2, bool), np.ones(2)
    result = Evaluation(numbers, nothing, nothing, {"clearance": np.full(2, np.inf)})
    save_summary(tmp_path / "e.json", result, run="a")
    written = json.loads((tmp_path / "e.json").read_text(), parse_constant=pytest.fail)
    assert (written["clearance_median"], written["return_mean"]) == (None, 1.0)


def test_bundled_tasks_report_what_counts() -> None:
    names = {
        "PandaReach-v0": ["position_error"],
        "PandaReachPose-v0": ["position_error", "orientation_error"],
        "PandaReachObstacles-v0": ["position_error", "clearance"],
    }
    for id, expected in names.items():
        env, params = fraxenv.make(id)
        assert [measure.name for measure in env.reported] == expected
        assert env.reported[0].tolerance(params.task) == pytest.approx(0.02)
        assert env.observation_layout.keys() <= params.task.observation_units.keys()


# --- tasks that configurations name ---------------------------------------------------------------


def test_tasks_of_ones_own_have_names() -> None:
    env, params = fraxenv.make(
        robot="panda", task="own_tasks:PointAt", task_options={"tolerance": 0.2}
    )
    assert env.name == "PandaPointAt"
    assert float(params.task.tolerance) == pytest.approx(0.2)
    for name, message in (
        ("own_tasks:PointTo", "has no attribute 'PointTo'"),
        ("nowhere:PointAt", "No module named 'nowhere'"),
        (":PointAt", "Empty module name"),
        ("own_tasks:frame_pose", "derived from fraxenv.envs.Task"),
        ("fraxenv.envs:Task", "without arguments"),
    ):
        with pytest.raises(ConfigError, match=message):
            fraxenv.make(robot="panda", task=name)


def test_the_command_finds_tasks_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also as the command `fraxenv`, which Python starts without that folder in its path."""
    (tmp_path / "settle_here.py").write_text(SETTLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    assert main(["info", "PandaReach-v0", "--set", "task=settle_here:Settle"]) == 0
    assert "Come to rest" in capsys.readouterr().out


# --- episodes that end before their time ----------------------------------------------------------


@pytree_dataclass
class Count(Task):
    """Counts steps, and ends at the second."""

    def reset(self, key: Array, robot: Robot) -> tuple[Array, Array]:
        q = jnp.asarray(robot.q_default, float)
        return q, jnp.zeros((), q.dtype)

    def advance(self, state: Array, dt: Array) -> Array:
        return state + 1.0

    def observation_terms(self, robot: Robot, motion: Motion, state: Array) -> dict[str, Array]:
        return {"joints": motion.q}

    def reward_terms(self, robot: Robot, motion: Motion, state: Array) -> dict[str, Array]:
        return {"one": jnp.ones_like(state)}

    def measures(self, robot: Robot, motion: Motion, state: Array) -> dict[str, Array]:
        return {"steps": state, "success": state == 2.0}

    def terminated(self, robot: Robot, motion: Motion, state: Array) -> Array:
        return state >= 2.0


def test_an_episode_is_judged_by_its_own_end() -> None:
    env, params = fraxenv.make(
        robot=dynamics.load_robot("double_pendulum"), task=Count(), action="joint_velocity", **FAST
    )
    result = evaluate(env, params, lambda obs: jnp.zeros(2), jax.random.key(0), 2)
    np.testing.assert_array_equal(result.measures["steps"], 2)
    np.testing.assert_array_equal(result.episode_return, 2)
    assert result.success.all()
    assert not result.diverged.any()
