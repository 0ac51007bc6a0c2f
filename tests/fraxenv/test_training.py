"""The main job, in small: files, resuming, interruption, configuration."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fraxenv.errors import CheckpointError, ConfigError, UnknownNameError
from fraxenv.training import TrainConfig, load_config, load_policy, save_config, train
from fraxenv.training.__main__ import main
from fraxenv.training.config import preset
from fraxenv.training.ppo import final_evaluation, read_metrics

SMALL = TrainConfig(
    overrides={"control_hz": 100, "max_steps_in_episode": 10, "action": "ee_delta_position"},
    total_timesteps=3 * 512,
    num_envs=16,
    num_steps=16,
    num_epochs=1,
    num_minibatches=2,
    updates_per_round=2,
    eval_episodes=4,
    final_episodes=8,
)
FILES = {
    "config.yaml",
    "policy.npz",
    "checkpoint.npz",
    "metrics.jsonl",
    "learning_curve.png",
    "rollout.gif",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run of the command line, in a process of its own as a user has it."""
    runs = tmp_path_factory.mktemp("runs")
    save_config(runs / "small.yaml", SMALL)
    command = [sys.executable, "-m", "fraxenv.training", "--config", str(runs / "small.yaml")]
    done = subprocess.run(
        [*command, "--runs", str(runs), "--name", "first"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in ("success rate", "final distance, median", "environment steps/s", "wall time"):
        assert text in done.stdout
    return runs / "first"


def test_leaves_everything_in_the_folder(finished: Path) -> None:
    assert {p.name for p in finished.iterdir()} == FILES
    metrics = read_metrics(finished)
    assert [m["step"] for m in metrics] == [512, 1024, 1536]
    assert all(np.isfinite(list(m.values())).all() for m in metrics)
    assert load_config(finished / "config.yaml") == SMALL
    with Image.open(finished / "rollout.gif") as film:
        assert film.n_frames == 15  # three episodes of ten steps, every other one
        assert film.size == (320, 320)
    with Image.open(finished / "learning_curve.png") as picture:
        assert np.asarray(picture.convert("L")).std() > 5


def test_the_policy_can_be_used(finished: Path) -> None:
    policy, env, params, config = load_policy(finished)
    result = final_evaluation(config, env, params, policy)
    assert result.success.shape == (8,)
    assert np.all(np.isfinite(result.position_error))
    again = final_evaluation(config, env, params, policy)
    np.testing.assert_array_equal(result.position_error, again.position_error)


def test_resuming_equals_an_uninterrupted_run(finished: Path, tmp_path: Path) -> None:
    """Bitwise: stopped after two rounds, then continued to three."""
    run = tmp_path / "second"
    short = dataclasses.replace(SMALL, total_timesteps=2 * 512)
    assert train(short, run)
    assert train(SMALL, run, resume=True)
    for name in ("policy.npz", "checkpoint.npz"):
        with np.load(run / name) as a, np.load(finished / name) as b:
            assert set(a.files) == set(b.files)
            for leaf in set(a.files) - {"__metadata__"}:
                np.testing.assert_array_equal(a[leaf], b[leaf], err_msg=leaf)
    drop = {"train_seconds", "steps_per_second"}
    first, second = (
        [{k: v for k, v in m.items() if k not in drop} for m in read_metrics(r)]
        for r in (finished, run)
    )
    assert first == second


def test_metrics_beyond_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    """As after a process that died between the two writes."""
    run = tmp_path / "run"
    short = dataclasses.replace(SMALL, total_timesteps=512)
    train(short, run)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"round": 2, "step": 1024}) + '\n{"round": 3, "st')
    train(dataclasses.replace(SMALL, total_timesteps=1024), run, resume=True)
    assert [m["step"] for m in read_metrics(run)] == [512, 1024]


def test_an_existing_run_is_never_overwritten(finished: Path) -> None:
    before = {p.name: p.read_bytes() for p in finished.iterdir()}
    with pytest.raises(CheckpointError, match=r"there is a run in this folder already.*--resume"):
        train(SMALL, finished)
    with pytest.raises(CheckpointError, match="other values of learning_rate"):
        train(dataclasses.replace(SMALL, learning_rate=1.0), finished, resume=True)
    assert before == {p.name: p.read_bytes() for p in finished.iterdir()}


def test_ctrl_c_leaves_a_usable_checkpoint(finished: Path, tmp_path: Path) -> None:
    """SIGINT after the first round: the exit status says so, and --resume finishes the run."""
    long = dataclasses.replace(SMALL, total_timesteps=400 * 512)
    save_config(tmp_path / "long.yaml", long)
    command = [sys.executable, "-m", "fraxenv.training", "--runs", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "--config", str(tmp_path / "long.yaml"), "--name", "cut"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    deadline = time.monotonic() + 300
    while not (tmp_path / "cut" / "checkpoint.npz").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 130, output
    assert "is usable. Continue with: bash scripts/run.sh --resume --name cut --runs" in output
    done = len(read_metrics(tmp_path / "cut"))
    assert 1 <= done < 400
    load_policy(tmp_path / "cut")
    steps = str((done + 1) * 512)
    assert main(["--runs", str(tmp_path), "--resume", "--total-timesteps", steps]) == 0
    assert len(read_metrics(tmp_path / "cut")) == done + 1


def test_wrong_command_lines_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--env", "PandaReech-v0", "--runs", str(tmp_path)]) == 1
    assert "Did you mean 'PandaReach-v0'" in capsys.readouterr().err
    assert main(["--resume", "--runs", str(tmp_path)]) == 1
    assert "holds no run of PandaReach-v0 to resume" in capsys.readouterr().err
    assert main(["--resume", "--runs", str(tmp_path), "--name", "none"]) == 1
    assert "cannot read the configuration" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("learnin_rate: 1.0", UnknownNameError, "Did you mean 'learning_rate'"),
        ("learning_rate: fast", ConfigError, "learning_rate='fast' is a str, expected a float"),
        ("num_envs: 0", ConfigError, "num_envs=0, expected a whole number >= 1"),
        ("num_minibatches: 7", ConfigError, "does not divide"),
        ("- 1", ConfigError, "expected `key: value` lines"),
        ("a: [", ConfigError, "not valid YAML"),
        ("env: !!python/object/apply:os.system ['false']", ConfigError, "not valid YAML"),
    ],
)
def test_wrong_configurations_are_refused(
    tmp_path: Path, text: str, error: type[Exception], message: str
) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(error, match=message):
        load_config(tmp_path / "c.yaml")


@pytest.mark.parametrize("env", ["PandaReach-v0", "PandaReachPose-v0"])
def test_presets_load(env: str) -> None:
    assert preset(env).env == env
