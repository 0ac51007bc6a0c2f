"""The main job, in small: files, resuming, interruption, configuration."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image
from rejax.algos.ppo import AdvantageMinibatch

import fraxenv
from fraxenv.cli import main
from fraxenv.errors import CheckpointError
from fraxenv.training import (
    PPOConfig,
    SACConfig,
    compiler,
    evaluate_in_parts,
    join_evaluations,
    load_config,
    load_policy,
    read_metrics,
    save_config,
    train,
)
from fraxenv.training.algorithms import create_algorithm, init_state
from fraxenv.training.ppo import permutation

SMALL = PPOConfig(
    overrides={
        "control_hz": 500,
        "physics_hz": 500,
        "max_steps_in_episode": 10,
        "action": "joint_velocity",
    },
    total_timesteps=3 * 512,
    num_envs=16,
    num_steps=16,
    num_epochs=1,
    num_minibatches=2,
    updates_per_round=2,
    eval_episodes=4,
    final_episodes=8,
)
SMALL_SAC = SACConfig(
    overrides=SMALL.overrides,
    total_timesteps=3 * 512,
    num_envs=16,
    updates_per_round=32,
    num_epochs=1,
    batch_size=32,
    buffer_size=1024,
    fill_buffer=64,
    eval_episodes=4,
    final_episodes=8,
)
FILES = {
    "config.yaml",
    "policy.npz",
    "checkpoint.npz",
    "metrics.jsonl",
    "evaluation.json",
    "learning_curve.png",
    "rollout.png",
    "rollout.gif",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run of the command line."""
    runs = tmp_path_factory.mktemp("runs")
    save_config(runs / "small.yaml", SMALL)
    arguments = ["train", "--config", str(runs / "small.yaml"), "--runs", str(runs)]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert main([*arguments, "--name", "first"]) == 0
    for text in ("success rate", "final distance, median", "environment steps/s", "wall time"):
        assert text in said.getvalue()
    last = said.getvalue().splitlines()[-1]
    assert last.startswith("Written to ")
    assert all(name in last for name in FILES)
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
    for name in ("learning_curve.png", "rollout.png"):
        with Image.open(finished / name) as picture:
            assert np.asarray(picture.convert("L")).std() > 5


def test_the_policy_can_be_used(finished: Path) -> None:
    policy, env, params, config = load_policy(finished)
    parts = list(evaluate_in_parts(env, params, policy, config.final_episodes))
    result = join_evaluations(parts)
    assert result.success.shape == (8,)
    written = json.loads((finished / "evaluation.json").read_text())
    assert written["episodes"] == 8
    median = np.median(result.measures["position_error"])
    assert written["position_error_median"] == pytest.approx(median)
    assert written["success_rate"] == np.mean(result.success)


def test_evaluation_in_parts_is_the_same_in_any_parts(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, env, params, _ = load_policy(finished)
    whole = join_evaluations(list(evaluate_in_parts(env, params, policy, 8)))
    monkeypatch.setattr("fraxenv.training.evaluation.SIDE_BY_SIDE", 3)
    parts = list(evaluate_in_parts(env, params, policy, 8))
    assert [len(p.success) for p in parts] == [3, 3, 2]
    errors = [x.measures["position_error"] for x in (join_evaluations(parts), whole)]
    np.testing.assert_allclose(*errors, rtol=1e-5)


@pytest.mark.slow
def test_eval_compares_runs(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = tmp_path / "second"
    shutil.copytree(finished, second)
    args = [str(finished), str(second), "--episodes", "4", "--output", str(tmp_path / "out")]
    assert main(["eval", *args, "--set", "task_options.position_tolerance=10"]) == 0
    out = capsys.readouterr().out
    assert out.count("100.0 %") == 2
    names = {"first.json", "second.json", "evaluation.png", "learning_curves.png"}
    assert {p.name for p in (tmp_path / "out").iterdir()} == names
    written = json.loads((tmp_path / "out" / "first.json").read_text())
    assert written["environment"]["task_options"] == {"position_tolerance": 10}
    assert written["environment"]["control_hz"] == 500
    assert written["success_rate"] == 1.0
    assert main(["eval", str(tmp_path / "thrid")]) == 1
    assert f"Did you mean '{second}'" in capsys.readouterr().err


def test_eval_keeps_what_there_is_at_ctrl_c(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fraxenv.training.evaluate_in_parts

    def cut(*args: Any) -> Iterator[Any]:
        for index, part in enumerate(whole(*args)):
            if index == 1:
                signal.raise_signal(signal.SIGINT)
            yield part

    monkeypatch.setattr("fraxenv.training.evaluation.evaluate_in_parts", cut)
    monkeypatch.setattr("fraxenv.training.evaluation.SIDE_BY_SIDE", 2)
    assert main(["eval", str(finished), "--episodes", "6", "--output", str(tmp_path)]) == 130
    assert json.loads((tmp_path / "evaluation.json").read_text())["episodes"] == 4


def test_a_trained_policy_rolls_out(finished: Path, tmp_path: Path) -> None:
    args = ["--policy", str(finished), "--episodes", "2", "--record", "--size", "32"]
    assert main(["rollout", *args, "--output", str(tmp_path)]) == 0
    recording = fraxenv.load_recording(tmp_path / "recording.npz")
    assert [len(e) for e in recording.episodes()] == [10, 10]
    policy, _, _, _ = load_policy(finished)
    np.testing.assert_allclose(
        recording.actions[3, 0], policy(recording.observations[3, 0]), atol=1e-6
    )


def test_a_policy_of_another_environment_is_refused(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["--policy", str(finished), "--output", str(tmp_path)]
    assert main(["rollout", "PandaTrack-v0", *args]) == 1
    assert "was trained with observations" in capsys.readouterr().err
    assert main(["rollout", "PandaReach-v0", *args]) == 1  # six numbers instead of three
    assert "was trained with observations" in capsys.readouterr().err


@pytest.fixture(scope="module")
def finished_sac(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("sac")
    assert train(SMALL_SAC, run)
    return run


@pytest.mark.slow
def test_sac_trains_resumes_and_is_evaluated(finished_sac: Path, tmp_path: Path) -> None:
    """Bitwise: stopped after two rounds, then continued to three."""
    whole, cut = finished_sac, tmp_path
    assert train(dataclasses.replace(SMALL_SAC, total_timesteps=2 * 512), cut)
    assert train(SMALL_SAC, cut, resume=True)
    with np.load(whole / "policy.npz") as a, np.load(cut / "policy.npz") as b:
        for leaf in set(a.files) - {"__metadata__"}:
            np.testing.assert_array_equal(a[leaf], b[leaf], err_msg=leaf)
    policy, env, params, config = load_policy(whole)
    assert config == SMALL_SAC
    assert policy.squashed
    result = join_evaluations(list(evaluate_in_parts(env, params, policy, 4)))
    assert np.isfinite(result.measures["position_error"]).all()


@pytest.mark.slow
def test_to_sac_a_time_limit_is_no_end() -> None:
    """What it remembers of a step is where it led, not where the next episode began."""
    env, params = fraxenv.make(SMALL_SAC.env, **SMALL_SAC.overrides)
    algorithm = create_algorithm(SMALL_SAC, env, params)
    first = list(env.observation_layout).index("goal_position")
    start = sum(list(env.observation_layout.values())[:first])
    state, iterate = init_state(algorithm, 0), jax.jit(algorithm.train_iteration)
    for _ in range(32):
        state = iterate(state)
    steps = jax.tree.map(np.asarray, state.replay_buffer.data)
    goals, next_goals = (x[:512, start : start + 3] for x in (steps.obs, steps.next_obs))
    assert len(np.unique(goals, axis=0)) > 10  # of many episodes
    np.testing.assert_array_equal(goals, next_goals)
    assert not steps.done.any()


def test_to_ppo_a_time_limit_is_no_end() -> None:
    """What it expects of the rest, where a step led, is paid with the reward of the last one."""
    overrides = SMALL.overrides | {"max_steps_in_episode": 1}
    config = dataclasses.replace(SMALL, num_steps=1, overrides=overrides)
    env, params = fraxenv.make(config.env, **overrides)
    algorithm = create_algorithm(config, env, params)
    before = init_state(algorithm, 0)
    _, happened = jax.jit(lambda state: algorithm.collect_trajectories(state))(before)

    keys = jax.random.split(jax.random.key(0), config.num_envs)  # for the episodes that follow
    step = jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, None)))
    action = np.clip(happened.action[0], -1, 1)
    _, _, reward, terminated, truncated, info = step(keys, before.env_state, action, params)
    assert truncated.all()
    assert not terminated.any()
    rest = algorithm.critic.apply(before.critic_ts.params, info["final_observation"])
    assert np.ptp(rest) > 0.1
    np.testing.assert_allclose(happened.reward[0], reward + config.gamma * rest, atol=1e-5)
    np.testing.assert_array_equal(happened.done[0], True)


def test_ppo_acts_as_rejax_does() -> None:
    """One step after the other asks the actor for the same actions, with the same keys."""
    env, params = fraxenv.make(SMALL.env, **SMALL.overrides)
    algorithm = create_algorithm(SMALL, env, params)
    before = init_state(algorithm, 0)
    after, happened = jax.jit(lambda state: algorithm.collect_trajectories(state))(before)
    rng = before.rng
    ask = jax.jit(lambda *args: algorithm.actor.apply(*args, method="action_log_prob"))
    for k in range(SMALL.num_steps):
        rng, key, _ = jax.random.split(rng, 3)
        action, log_prob = ask(before.actor_ts.params, happened.obs[k], key)
        np.testing.assert_allclose(happened.action[k], action, atol=1e-5)
        np.testing.assert_allclose(happened.log_prob[k], log_prob, atol=1e-5)
    np.testing.assert_array_equal(after.rng, rng)


def test_both_networks_side_by_side_learn_what_they_learn_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    env, params = fraxenv.make(SMALL.env, **SMALL.overrides)
    config = dataclasses.replace(SMALL, num_epochs=2)
    algorithm = create_algorithm(config, env, params)
    state = init_state(algorithm, 0)
    monkeypatch.setattr(compiler, "_cores", lambda: 1)
    one, metrics = compiler.compiled_round(algorithm, "ppo")(state)
    monkeypatch.setattr(compiler, "_cores", lambda: 2)
    apart: list[str] = []
    learn = type(algorithm).learn

    def watched(self: Any, *given: Any) -> Any:
        apart.append(threading.current_thread().name)
        return learn(self, *given)

    monkeypatch.setattr(type(algorithm), "learn", watched)
    two, side_by_side = compiler.compiled_round(algorithm, "ppo")(state)
    assert len(apart) == len(set(apart)) == 2
    assert jax.tree.structure(one) == jax.tree.structure(two)
    np.testing.assert_array_equal(two.rng, one.rng)
    assert int(two.global_step) == int(one.global_step) == config.round_timesteps
    assert int(two.critic_ts.step) == int(one.critic_ts.step) == 8
    for name in ("actor_ts", "critic_ts"):
        before, a, b = (jax.tree.leaves(getattr(s, name).params) for s in (state, one, two))
        for x, y, z in zip(before, a, b, strict=True):
            assert np.abs(y - x).max() > 1e-4
            np.testing.assert_allclose(z, y, atol=1e-5)
    assert {k: v.shape for k, v in side_by_side.items()} == {k: v.shape for k, v in metrics.items()}
    np.testing.assert_allclose(side_by_side["return"], metrics["return"], rtol=1e-3)


def test_options_that_xla_does_not_know_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        compiler, "_OPTIONS", {"xla_cpu_prefer_vector_width": 512, "xla_cpu_of_another_version": 1}
    )
    monkeypatch.setenv("XLA_FLAGS", "")
    assert compiler.compiler_options("ppo") == {"xla_cpu_prefer_vector_width": 512}
    assert compiler.compiler_options("shac") == {}
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_prefer_vector_width=256")
    assert compiler.compiler_options("ppo") == {}


def test_ppo_s_learning_rate_falls_to_zero() -> None:
    env, params = fraxenv.make(SMALL.env, **SMALL.overrides)
    learner = init_state(create_algorithm(SMALL, env, params), 0).critic_ts
    gradients = jax.tree.map(np.ones_like, learner.params)
    updates = SMALL.rounds * SMALL.updates_per_round * SMALL.num_epochs * SMALL.num_minibatches

    def moved(done: int) -> float:
        """The largest change of a weight in the step after so many."""
        counted = jax.tree.map(lambda x: x + done if x.dtype == np.int32 else x, learner.opt_state)
        after = learner.replace(opt_state=counted).apply_gradients(grads=gradients)
        changes = jax.tree.map(lambda a, b: np.abs(a - b).max(), after.params, learner.params)
        return float(max(jax.tree.leaves(changes)))

    # Of gradients that are all alike Adam's first step is as long as the learning rate.
    assert moved(updates) == 0.0
    np.testing.assert_allclose(moved(0), SMALL.learning_rate, rtol=1e-3)


def test_the_critic_gets_to_any_target() -> None:
    """However far it is from what the critic said when the steps were taken."""
    config = dataclasses.replace(SMALL, num_steps=2, learning_rate=0.03)
    env, params = fraxenv.make(config.env, **config.overrides)
    algorithm = create_algorithm(config, env, params)
    state, happened = jax.jit(lambda s: algorithm.collect_trajectories(s))(init_state(algorithm, 0))
    taken = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), happened)
    batch = AdvantageMinibatch(taken, taken.value, taken.value + 10.0)
    update = jax.jit(lambda s: algorithm.update_critic(s, batch))
    for _ in range(200):
        state = update(state)
    value = algorithm.critic.apply(state.critic_ts.params, taken.obs)
    assert np.abs(value - batch.targets).max() < 2.0


def test_minibatches_are_drawn_at_random() -> None:
    """Every number in one of them, and each as often in any."""
    n, parts, times = 1000, 10, 2000
    keys = jax.random.split(jax.random.key(0), times)
    orders = np.asarray(jax.vmap(lambda key: permutation(key, n))(keys))
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(n), (times, 1)))
    came_from = orders.reshape(times, parts, -1) * parts // n
    counts = np.stack([(came_from == part).sum(axis=(0, 2)) for part in range(parts)])
    expected = n * times / parts**2
    # Of 81 degrees of freedom: one of a thousand lies above 126.
    assert np.sum((counts - expected) ** 2) / expected < 126


def test_only_where_time_ran_out_is_there_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(SMALL, num_steps=2)
    env, params = fraxenv.make(config.env, **config.overrides)
    algorithm = create_algorithm(config, env, params)
    step = algorithm.vmap_step
    # Of four environments each: both, one, and neither of the two.
    terminated, done = np.tile([[False, True, False, True], [False, False, True, True]], 4)

    def pays_one(*args: Any) -> tuple[Any, ...]:
        obs, state, reward, _, info = step(*args)
        return obs, state, reward**0, done, info | {"terminated": terminated}

    monkeypatch.setattr(type(algorithm), "vmap_step", property(lambda self: pays_one))
    before = init_state(algorithm, 0)
    _, happened = jax.jit(lambda state: algorithm.collect_trajectories(state))(before)
    rest = np.asarray(happened.reward != 1).any(axis=0)
    np.testing.assert_array_equal(rest, done & ~terminated)


@pytest.mark.slow
def test_resuming_equals_an_uninterrupted_run(finished: Path, tmp_path: Path) -> None:
    """Bitwise: stopped after two rounds of three, by Ctrl-C as a user does."""
    run = tmp_path / "second"

    def stop(metrics: Any) -> None:
        if metrics["round"] == 2:
            signal.raise_signal(signal.SIGINT)

    assert not train(SMALL, run, on_round=stop)
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_ctrl_c_leaves_a_usable_checkpoint(finished: Path, tmp_path: Path) -> None:
    """SIGINT after the first round: the exit status says so, and --resume finishes the run."""
    long = dataclasses.replace(SMALL, total_timesteps=400 * 512)
    save_config(tmp_path / "long.yaml", long)
    command = [sys.executable, "-m", "fraxenv", "train", "--runs", str(tmp_path)]
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
    assert f"usable. Continue with --resume --name cut --runs {tmp_path}" in output
    done = len(read_metrics(tmp_path / "cut"))
    assert 1 <= done < 400
    load_policy(tmp_path / "cut")
    steps = str((done + 1) * 512)
    assert main(["train", "--runs", str(tmp_path), "--resume", "--total-timesteps", steps]) == 0
    assert len(read_metrics(tmp_path / "cut")) == done + 1


def test_wrong_command_lines_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = ["--runs", str(tmp_path)]
    assert main(["train", "PandaReech-v0", *runs]) == 1
    assert "Did you mean 'PandaReach-v0'" in capsys.readouterr().err
    assert main(["train", "--resume", *runs]) == 1
    assert "holds no run to resume" in capsys.readouterr().err
    assert main(["train", "PandaReach-v0", "--resume", "--algorithm", "ppo", *runs]) == 1
    assert "holds no run of PandaReach-v0 with ppo to resume" in capsys.readouterr().err
    assert main(["train", "--resume", *runs, "--name", "none"]) == 1
    assert "cannot read the configuration" in capsys.readouterr().err
    assert main(["train", *runs, "--set", "contrl_hz=100"]) == 1
    assert "Did you mean 'control_hz'" in capsys.readouterr().err
    assert main(["train", *runs, "--config", "PandaReach-v0-sac", "--algorithm", "ppo"]) == 1
    assert "which is of sac" in capsys.readouterr().err
    assert main(["train", *runs, "--learnin-rate", "1"]) == 2
    assert "--learning-rate" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
