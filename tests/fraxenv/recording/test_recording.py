"""Recordings: what happened, kept whole, replayed bit for bit, and read by Minari."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import fraxenv
from fraxenv import Recording, load_recording, record, replay, to_minari
from fraxenv.envs import Environment, EnvParams
from fraxenv.errors import ActionError, CheckpointError, ConfigError, MissingExtraError
from fraxenv.storage.files import load_arrays, save_arrays

KEY = jax.random.key(4)
NOISY = {
    "id": "PandaReach-v0",
    "action": "joint_velocity",
    "max_steps_in_episode": 6,
    "randomisation": {"observation_noise": 0.01, "observation_delay": [0.0, 0.04]},
}
GOALS = {
    "id": "PandaReach-v0",
    "action": "joint_velocity",
    "max_steps_in_episode": 6,
    "goal_env": True,
}


def make(recipe: dict[str, Any]) -> tuple[Environment, EnvParams]:
    return fraxenv.make(**recipe)


def careless(obs: Any, key: Array) -> Array:
    """A policy whose action is not a number now and then, which ends an episode."""
    action = jnp.tanh(obs[:7])
    return jnp.where(jax.random.bernoulli(key, 0.15), jnp.nan, action)


@pytest.fixture(scope="module")
def noisy() -> tuple[Environment, EnvParams]:
    env, params = make(NOISY)
    return env, params.replace(max_steps_in_episode=5)


@pytest.fixture(scope="module")
def recording(noisy: Any) -> Recording:
    return record(*noisy, careless, KEY, episodes=12, num_envs=3, recipe=NOISY)


@pytest.fixture(scope="module")
def goals() -> Recording:
    return record(*make(GOALS), None, KEY, episodes=4, num_envs=2, recipe=GOALS, infos=["success"])


@pytest.fixture
def copy(recording: Recording, tmp_path: Path) -> Recording:
    recording.save(tmp_path / "copy.npz")
    return load_recording(tmp_path / "copy.npz")


# --- what is recorded ---


def test_what_a_recording_holds(recording: Recording) -> None:
    T, N = recording.num_steps, recording.num_envs
    assert N == 3
    assert T <= 4 * 5
    ends = recording.terminations | recording.truncations
    assert recording.observations.shape == (T + 1, N, 30)
    assert recording.actions.shape == (T, N, 7)
    assert recording.rewards.dtype == np.float32
    assert recording.final_observations.shape == (ends.sum(), 30)
    assert recording.infos["success"].shape == (T, N)
    assert recording.infos["controller"]["torque"].shape == (T, N, 7)
    assert not {"final_observation", "terminated", "truncated"} & recording.infos.keys()
    np.testing.assert_array_equal(recording.terminations, recording.infos["diverged"])
    assert 0 < recording.terminations.sum() < ends.sum()
    np.testing.assert_array_equal(
        np.isnan(recording.actions).all(2), np.isnan(recording.actions).any(2)
    )
    finite = ~np.isnan(recording.actions)
    expected = np.tanh(recording.observations[:-1, :, :7])
    np.testing.assert_allclose(recording.actions[finite], expected[finite], rtol=1e-5)


def test_episodes_are_whole_and_equally_many_of_each_environment(recording: Recording) -> None:
    episodes = list(recording.episodes())
    assert [e.id for e in episodes] == list(range(12))
    assert [e.environment for e in episodes] == [0] * 4 + [1] * 4 + [2] * 4
    for e in episodes:
        ends = e.terminations | e.truncations
        assert ends.tolist() == [False] * (len(e) - 1) + [True]
        assert len(e.observations) == len(e) + 1
        assert len(e.actions) == len(e.rewards) == len(e.infos["success"]) == len(e) <= 5
        assert e.truncations[-1] == (len(e) == 5)
        assert e.terminations[-1] == np.isnan(e.actions[-1]).any()


class Counting:
    """It remembers how many steps it has taken, and how the episode began."""

    def begin(self, obs: Array) -> Any:
        return jnp.zeros(()), obs[0]

    def __call__(self, obs: Array, key: Array, memory: Any) -> tuple[Array, Any]:
        steps, first = memory
        return jnp.full(7, 0.01 * steps).at[1].set(first), (steps + 1, first)


def test_a_memory_begins_with_every_episode() -> None:
    env, params = fraxenv.make("PandaReach-v0", action="joint_velocity", max_steps_in_episode=4)
    recording = record(env, params, Counting(), KEY, steps=10, num_envs=3)
    steps = np.tile(np.arange(4), 3)[:10]
    np.testing.assert_allclose(recording.actions[..., 0], 0.01 * steps[:, None] * np.ones(3))
    firsts = recording.observations[[0, 4, 8], :, 0]
    np.testing.assert_array_equal(recording.actions[..., 1], firsts.repeat(4, axis=0)[:10])
    assert len(np.unique(firsts)) == 9


def test_success_has_to_be_recorded(noisy: Any, copy: Recording, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'success' among them"):
        record(*noisy, None, KEY, steps=1, infos=["diverged"], successful=True)
    unknown = dataclasses.replace(copy, infos={})
    with pytest.raises(ConfigError, match="tells no success: it kept nothing"):
        next(unknown.episodes()).success  # noqa: B018
    dataclasses.replace(unknown, metadata={**copy.metadata, "successful": True}).save(
        tmp_path / "without.npz"
    )
    with pytest.raises(CheckpointError, match="infos have no success"):
        load_recording(tmp_path / "without.npz")


def test_what_diverged_did_not_succeed(copy: Recording) -> None:
    infos = {**copy.infos, "success": np.ones_like(copy.infos["success"])}
    lucky = dataclasses.replace(copy, infos=infos)
    diverged = [bool(episode.infos["diverged"][-1]) for episode in lucky.episodes()]
    assert [episode.success for episode in lucky.episodes()] == [not d for d in diverged]
    assert lucky.num_successful == (diverged.count(False), 12)
    assert 0 < sum(diverged) < 12


def test_episodes_are_what_steps_without_autoreset_give() -> None:
    """The last observation is that of the episode itself, not that of the next one."""
    env, params = fraxenv.make("PandaReach-v0", max_steps_in_episode=5)
    recording = record(env, params, None, KEY, steps=11, num_envs=2)
    assert recording.metadata["recipe"] is None
    step = jax.jit(env.step_env)
    episodes = list(recording.episodes())
    assert [len(e) for e in episodes] == [5] * 4
    firsts = recording.observations[:11:5].reshape(6, -1)
    assert len(np.unique(firsts, axis=0)) == 6
    assert len(np.unique(recording.actions.reshape(22, -1), axis=0)) == 22
    state = jax.vmap(env.reset, (0, None))(_reset_keys(KEY, 2), params)[1]
    for n, episode in ((0, episodes[0]), (1, episodes[2])):
        own = jax.tree.map(lambda x: x[n], state)  # noqa: B023
        for t in range(5):
            obs, own, reward, *_ = step(KEY, own, jnp.asarray(episode.actions[t]), params)
            np.testing.assert_allclose(obs, episode.observations[t + 1], atol=1e-5)
            np.testing.assert_allclose(reward, episode.rewards[t], atol=1e-5)
        assert episode.truncations[-1]


def _reset_keys(key: Array, n: int) -> Array:
    return jax.random.split(jax.random.split(jax.random.fold_in(key, 0))[0], n)


def test_files_are_read_by_numpy_alone(recording: Recording, tmp_path: Path) -> None:
    recording.save(tmp_path / "deep" / "r.npz")
    with np.load(tmp_path / "deep" / "r.npz", allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["rewards"], recording.rewards)
        np.testing.assert_array_equal(archive["infos/success"], recording.infos["success"])
        assert archive["start/state.q"].shape == (3, 7)
        metadata = json.loads(str(archive["__metadata__"]))
    assert metadata["recipe"] == NOISY
    assert metadata["provenance"]["versions"]["jax"] == jax.__version__
    assert metadata["provenance"]["backend"] == "auto"
    assert metadata["provenance"]["x64"] is False


def test_recordings_come_back_as_they_were(
    recording: Recording, goals: Recording, tmp_path: Path
) -> None:
    for original in (recording, goals):
        original.save(tmp_path / "r.npz")
        loaded = load_recording(tmp_path / "r.npz")
        fields, again = dict(vars(original)), dict(vars(loaded))
        assert again.pop("metadata") == json.loads(json.dumps(fields.pop("metadata")))
        chex.assert_trees_all_equal(fields, again, strict=True)


# --- replay ---


def test_a_replay_is_the_same_bit_for_bit(copy: Recording, goals: Recording) -> None:
    report = replay(copy)
    assert report.identical, report
    assert report.differences == report.changes == ()
    assert report.within(0.0)
    size = f"{copy.num_steps} steps of 3 environments"
    assert str(report) == f"{size}: the same, bit for bit."
    assert replay(goals).identical


@pytest.mark.slow
def test_another_process_replays_it_bit_for_bit(recording: Recording, tmp_path: Path) -> None:
    recording.save(tmp_path / "r.npz")
    code = "import sys, fraxenv; print(fraxenv.replay(fraxenv.load_recording(sys.argv[1])))"
    command = [sys.executable, "-c", code, tmp_path / "r.npz"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "the same, bit for bit." in done.stdout


def test_a_replay_finds_the_first_difference(copy: Recording) -> None:
    copy.rewards[3, 1] += 0.25
    copy.rewards[4, 0] -= 0.5
    copy.infos["success"][2, 2] ^= True
    copy.final_observations[1, 7] += 1e-3
    report = replay(copy)
    assert not report.identical
    found = {d.name: d for d in report.differences}
    assert found.keys() == {"rewards", "infos/success", "final_observations"}
    assert report.differences[0].name in ("infos/success", "final_observations")
    d = found["rewards"]
    assert (d.step, d.environment) == (3, 1)
    assert d.recorded == copy.rewards[3, 1]
    assert d.recorded - d.replayed == pytest.approx(0.25)
    assert d.largest == pytest.approx(0.5)
    steps, environments = np.nonzero(copy.terminations | copy.truncations)
    d = found["final_observations"]
    assert (d.step, d.environment) == (steps[1], environments[1])
    assert found["infos/success"].largest == 1.0
    assert "3 arrays differ, by 1 at most. First: " in str(report)
    assert "the environment itself must have" in str(report)
    assert not report.within(0.6)


def test_other_resets_and_other_machines_are_reported(copy: Recording) -> None:
    copy.start["state.q"][1, 2] += np.float32(1e-6)
    copy.metadata["provenance"]["versions"]["jax"] = "0.1"
    copy.metadata["provenance"]["processor"] = "abacus"
    report = replay(copy)
    first = report.differences[0]
    assert (first.name, first.step, first.environment) == ("start/state.q", -1, 1)
    assert [c.partition(" ")[0] for c in report.changes] == ["jax", "processor"]
    assert "at the reset of environment 1" in str(report)
    assert f"jax 0.1 -> {jax.__version__}" in str(report)
    assert "promised only where nothing has changed" in str(report)
    assert report.within(0.1)


def test_an_environment_that_cannot_be_told_is_passed(noisy: Any, tmp_path: Path) -> None:
    env, params = noisy
    recording = record(env, params, None, KEY, steps=3)
    with pytest.raises(CheckpointError, match=r"how to make its PandaReach-v0.*Pass env=\.\.\."):
        replay(recording)
    assert replay(recording, env=env).identical
    assert replay(recording, env=env, params=params).identical
    with pytest.raises(CheckpointError, match=r"another params.max_steps_in_episode than"):
        replay(recording, env=env, params=params.replace(max_steps_in_episode=4))
    with pytest.raises(CheckpointError, match=r"it is of PandaReach-v0"):
        replay(recording, env=fraxenv.make("PandaTrack-v0")[0])
    with pytest.raises(CheckpointError, match=r"its params|the params of another"):
        replay(recording, env=fraxenv.make("PandaReach-v0")[0])


def test_a_plain_id_needs_no_recipe() -> None:
    env, params = fraxenv.make("PandaReach-v0")
    recording = record(env, params, None, jax.random.PRNGKey(1), steps=2)
    assert recording.metadata["recipe"] == {"id": "PandaReach-v0"}
    assert replay(recording).identical


def test_precision_has_to_be_the_recorded_one(copy: Recording, x64: None) -> None:
    with pytest.raises(CheckpointError, match="jax_enable_x64=False, and it is True now"):
        replay(copy)


def test_progress_is_shown(noisy: Any, capsys: pytest.CaptureFixture[str]) -> None:
    recording = record(*noisy, None, KEY, steps=3, progress=True)
    replay(recording, noisy[0], progress=True)
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["Recording ...", "Recording 3/3", "Replaying ...", "Replaying 3/3"]


# --- Minari ---


@pytest.fixture
def minari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    return pytest.importorskip("minari")


@pytest.mark.filterwarnings("ignore:.*set to None")
def test_minari_reads_it(minari: Any, recording: Recording) -> None:
    returned = to_minari(recording, "panda/reach/test-v0", algorithm_name="careless")
    dataset = minari.load_dataset("panda/reach/test-v0")
    assert returned.total_episodes == dataset.total_episodes == 12
    assert dataset.total_steps == sum(len(e) for e in recording.episodes())
    for stored, own in zip(dataset.iterate_episodes(), recording.episodes(), strict=True):
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            np.testing.assert_array_equal(getattr(stored, name), getattr(own, name))
        np.testing.assert_array_equal(stored.infos["success"][1:], own.infos["success"])
        torque = stored.infos["controller"]["torque"]
        np.testing.assert_array_equal(torque[1:], own.infos["controller"]["torque"])
        assert not torque[0].any()
    assert dataset.storage.metadata["algorithm_name"] == "careless"
    assert json.loads(dataset.storage.metadata["fraxenv"])["recipe"] == NOISY
    env = dataset.recover_environment()
    assert env.spec.id == "fraxenv/PandaReach-v0"
    assert env.spec.max_episode_steps == 6
    assert env.observation_space == dataset.observation_space
    assert env.action_space == dataset.action_space
    with pytest.raises(CheckpointError, match=r"a dataset 'panda/reach/test-v0' already"):
        to_minari(recording, "panda/reach/test-v0")


@pytest.mark.filterwarnings("ignore:.*set to None")
def test_minari_reads_goals(minari: Any, goals: Recording) -> None:
    dataset = to_minari(goals, "goals-v0")
    assert dataset.observation_space.spaces.keys() == goals.observations.keys()
    for stored, own in zip(dataset.iterate_episodes(), goals.episodes(), strict=True):
        assert len(stored) == 6
        for name, values in own.observations.items():
            np.testing.assert_array_equal(stored.observations[name], values)


@pytest.mark.filterwarnings("ignore:.*set to None")
def test_a_failed_export_leaves_nothing(minari: Any, recording: Recording, tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        to_minari(recording, "broken-v0", no_such_option=1)
    with pytest.raises(Exception, match="JSON"):
        to_minari(recording, "broken-v0", description=object())
    assert not list((tmp_path / "datasets").glob("broken*"))
    unfinished = record(*make(NOISY), None, KEY, steps=2)
    with pytest.raises(ConfigError, match=r"no episode ended within the 2 steps"):
        to_minari(unfinished, "short-v0")


def test_extras_that_are_missing(
    noisy: Any, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("minari", "rich.progress"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"Minari needs .*fraxenv\[record\]"):
        to_minari(recording, "a-v0")
    with pytest.raises(MissingExtraError, match=r"progress bar needs .*fraxenv\[record\]"):
        record(*noisy, None, KEY, steps=1, progress=True)


# --- the manual ---


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*set to None")
def test_the_manual(
    minari: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).parents[3] / "docs" / "recording.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, "docs/recording.md", "exec"), namespace)
    printed = capsys.readouterr().out.strip()
    assert printed == "300 steps of 4 environments: the same, bit for bit."
    assert printed in text
    with np.load("random.npz") as archive:
        named = {name for names in re.findall(r"^\| (`.*?) \|", text, re.M)
                 for name in re.findall(r"`(\S+?)`", names)}  # fmt: skip
        assert "infos/controller/torque" in named
        assert named <= set(archive.files)


# --- what is refused ---


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, r"steps=None and episodes=None, expected one"),
        ({"steps": 2, "episodes": 2}, r"expected one of the two"),
        ({"steps": 0}, r"steps=0, expected a whole number >= 1"),
        ({"steps": 1.5}, r"steps=1\.5, expected a whole number"),
        ({"steps": 2, "num_envs": True}, r"num_envs=True"),
        ({"episodes": 5, "num_envs": 2}, r"not a multiple of num_envs=2.*episodes=6"),
        ({"steps": 2, "key": 0}, r"key=0, expected one random key"),
        ({"steps": 2, "key": jax.random.split(KEY)}, r"expected one random key"),
        ({"steps": 2, "infos": ["sucess"]}, r"do not report 'sucess', expected .*success"),
        ({"steps": 2, "recipe": {"id": "PandaReach-v0"}}, r"does not make this PandaReach-v0"),
        ({"steps": 2, "recipe": {"robot": object()}}, r"robot=.* cannot be written as JSON"),
        ({"steps": 2, "env": "PandaReach-v0"}, r"env is a str, expected the Environment"),
    ],
)
def test_arguments_that_are_not_possible(noisy: Any, changes: dict[str, Any], says: str) -> None:
    env, params = noisy
    arguments = {"env": env, "params": params, "policy": None, "key": KEY, **changes}
    with pytest.raises(ConfigError, match=says):
        record(**arguments)


def test_actions_of_another_shape(noisy: Any) -> None:
    with pytest.raises(ActionError, match=r"shape \(3,\), expected \(7,\)"):
        record(*noisy, lambda obs, key: obs[:3], KEY, steps=1)


def test_files_that_are_not_recordings(recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    with pytest.raises(CheckpointError, match=r"r\.npz: there is no such"):
        load_recording(path)
    recording.save(path)
    whole = path.read_bytes()
    for keep in (0, len(whole) // 3, len(whole) - 1):
        path.write_bytes(whole[:keep])
        with pytest.raises(CheckpointError, match="damaged"):
            load_recording(path)
    path.write_bytes(whole)
    arrays, metadata = load_arrays(path)
    save_arrays(path, arrays, {**metadata, "version": 99})
    with pytest.raises(CheckpointError, match=r"version 99 of the format, written by fraxenv 0"):
        load_recording(path)
    save_arrays(path, arrays, {**metadata, "format": "fraxenv state"})
    with pytest.raises(CheckpointError, match="a fraxenv state, expected a fraxenv recording"):
        load_recording(path)
    arrays.pop("rewards")
    save_arrays(path, arrays, metadata)
    with pytest.raises(CheckpointError, match=r"lacks \['rewards'\]"):
        load_recording(path)
    with pytest.raises(CheckpointError, match=r"cannot be written: .* Choose a folder"):
        recording.save(path / "below.npz")
