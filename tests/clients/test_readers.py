"""Recordings read back by the peers' own readers. Each is skipped where its package is missing.

    pip install torch==2.13.0 datasets
    pip install --no-deps robomimic==0.3.0 mani_skill==3.0.1 lerobot==0.4.4
    python -m pytest -m slow tests/clients/test_readers.py

What these three import besides has to be added by hand: their own requirements exclude each other,
and fraxenv's. LeRobot 0.4 reads v3.0, LeRobot 0.3.3 v2.1; the installed one decides.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import fraxenv
from fraxenv import (
    Recording,
    load_recording,
    record,
    to_lerobot,
    to_maniskill,
    to_minari,
    to_robomimic,
)
from fraxenv.recording import Episode

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

STEPS = 3


@pytest.fixture(scope="module", params=fraxenv.list_envs())
def recording(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Recording:
    """Two short episodes with random actions, as a file has them."""
    recipe: dict[str, Any] = {"id": request.param, "max_steps_in_episode": STEPS}
    env, params = fraxenv.make(**recipe)
    recorded = record(
        env, params, None, jax.random.key(1), episodes=2, num_envs=2, recipe=recipe,
        infos=["success"],
    )  # fmt: skip
    path = tmp_path_factory.mktemp("recorded") / "recording.npz"
    recorded.save(path)
    return load_recording(path)


@pytest.fixture
def episodes(recording: Recording) -> list[Episode]:
    return list(recording.episodes())


def test_minari(
    recording: Recording,
    episodes: list[Episode],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    to_minari(recording, "read/back-v0")
    dataset = minari.load_dataset("read/back-v0")
    assert dataset.total_episodes == len(episodes) == 2
    for read, own in zip(dataset.iterate_episodes(), episodes, strict=True):
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            np.testing.assert_array_equal(getattr(read, name), getattr(own, name))
        np.testing.assert_array_equal(read.infos["success"][1:], own.infos["success"])


def test_robomimic(recording: Recording, episodes: list[Episode], tmp_path: Path) -> None:
    dataset = pytest.importorskip("robomimic.utils.dataset")
    obs_utils = pytest.importorskip("robomimic.utils.obs_utils")
    to_robomimic(recording, tmp_path / "demo.hdf5")
    terms = list(fraxenv.make(**recording.metadata["recipe"])[0].observation_layout)
    obs_utils.initialize_obs_utils_with_obs_specs({"obs": {"low_dim": terms}})
    read = dataset.SequenceDataset(
        hdf5_path=str(tmp_path / "demo.hdf5"),
        obs_keys=terms,
        dataset_keys=("actions", "rewards", "dones"),
        hdf5_cache_mode="all",
    )
    assert read.n_demos == 2
    assert len(read) == sum(map(len, episodes))
    steps = [(episode, i) for episode in episodes for i in range(len(episode))]
    for index, (episode, i) in enumerate(steps):
        step = read[index]
        np.testing.assert_array_equal(step["actions"][0], episode.actions[i])
        np.testing.assert_array_equal(step["rewards"][0], episode.rewards[i])
        assert step["dones"][0] == (i == len(episode) - 1)
        for part, at in (("obs", i), ("next_obs", i + 1)):
            seen = np.concatenate([step[part][term][0] for term in terms])
            np.testing.assert_array_equal(seen, episode.observations[at])


def test_maniskill(recording: Recording, episodes: list[Episode], tmp_path: Path) -> None:
    trajectory = pytest.importorskip("mani_skill.trajectory.dataset")
    to_maniskill(recording, tmp_path / "demo.h5", source_type="rl")
    read = trajectory.ManiSkillTrajectoryDataset(str(tmp_path / "demo.h5"))
    assert read.env_id == f"fraxenv/{recording.metadata['recipe']['id']}"
    assert len(read) == sum(map(len, episodes))
    steps = [read[i] for i in range(len(read))]
    for name, own in {
        "obs": [e.observations[:-1] for e in episodes],
        "action": [e.actions for e in episodes],
        "reward": [e.rewards for e in episodes],
        "terminated": [e.terminations for e in episodes],
        "truncated": [e.truncations for e in episodes],
        "success": [e.infos["success"] for e in episodes],
    }.items():
        np.testing.assert_array_equal([step[name] for step in steps], np.concatenate(own))


def test_lerobot(
    recording: Recording,
    episodes: list[Episode],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    lerobot = pytest.importorskip("lerobot.datasets.lerobot_dataset")
    version: Any = lerobot.CODEBASE_VERSION
    to_lerobot(recording, tmp_path / "set", version=version, task="try")
    read = lerobot.LeRobotDataset("read/back", root=tmp_path / "set")
    assert (read.num_episodes, read.num_frames) == (2, sum(map(len, episodes)))
    frames = [read[i] for i in range(len(read))]
    assert {frame["task"] for frame in frames} == {"try"}
    for name, own in {
        "observation.state": [e.observations[:-1] for e in episodes],
        "action": [e.actions for e in episodes],
        "next.reward": [e.rewards for e in episodes],
        "next.done": [e.terminations | e.truncations for e in episodes],
        "next.success": [e.infos["success"] for e in episodes],
        "episode_index": [np.full(len(e), i) for i, e in enumerate(episodes)],
    }.items():
        seen = np.stack([np.asarray(frame[name]).reshape(frame[name].shape) for frame in frames])
        np.testing.assert_array_equal(seen.squeeze(), np.concatenate(own))
    (low, high) = (read.meta.stats["action"][name] for name in ("min", "max"))
    taken = np.concatenate([e.actions for e in episodes])
    np.testing.assert_allclose(low, taken.min(0), rtol=1e-6)
    np.testing.assert_allclose(high, taken.max(0), rtol=1e-6)
