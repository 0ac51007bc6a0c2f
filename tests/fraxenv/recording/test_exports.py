"""Exports of recordings, read as their readers read them.

robomimic's, LeRobot's and ManiSkill's readers need torch: tests/clients/test_readers.py calls them
where they are installed. What is read here is what they ask for, by their source: robomimic 0.3
`utils/dataset.py` and `utils/file_utils.py`, LeRobot 0.3.3 and 0.4.3 `datasets/utils.py`, ManiSkill
3.0 `trajectory/dataset.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest

import fraxenv
from fraxenv import Recording, load_recording, record, to_lerobot, to_maniskill, to_robomimic
from fraxenv.errors import CheckpointError, ConfigError, MissingExtraError

RECIPE: dict[str, Any] = {
    "id": "PandaReach-v0",
    "action": "joint_velocity",
    "control_hz": 500,
    "physics_hz": 500,
}
KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Episodes of 4 steps, of which some succeed; as a file has them."""
    recipe = {**RECIPE, "max_steps_in_episode": 4, "task_options": {"position_tolerance": 0.25}}
    env, params = fraxenv.make(**recipe)
    recorded = record(
        env, params, None, KEY, episodes=8, num_envs=4, recipe=recipe, successful=True,
        infos=["success"],
    )  # fmt: skip
    path = tmp_path_factory.mktemp("recorded") / "recording.npz"
    recorded.save(path)
    return load_recording(path)


@pytest.fixture(scope="module")
def goals() -> Recording:
    recipe = {**RECIPE, "max_steps_in_episode": 3, "goal_env": True}
    env, params = fraxenv.make(**recipe)
    return record(env, params, None, KEY, episodes=2, num_envs=2, recipe=recipe, infos=[])


def test_some_of_the_episodes_succeed(recording: Recording) -> None:
    """So that the tests below see that the others are left out."""
    succeeded, ended = recording.num_successful
    assert 0 < succeeded < ended == 8
    assert len(list(recording.episodes())) == succeeded


# --- robomimic ---


def test_robomimic(recording: Recording, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    to_robomimic(recording, tmp_path / "demo.hdf5")
    episodes = list(recording.episodes())
    layout = fraxenv.make(**RECIPE)[0].observation_layout
    # As SequenceDataset opens it.
    with h5py.File(tmp_path / "demo.hdf5", "r", swmr=True, libver="latest") as file:
        demos = sorted(file["data"], key=lambda name: int(name[5:]))
        assert demos == [f"demo_{i}" for i in range(len(episodes))]
        assert file["data"].attrs["total"] == 4 * len(episodes)
        for name, episode in zip(demos, episodes, strict=True):
            demo = file["data"][name]
            assert demo.attrs["num_samples"] == 4
            np.testing.assert_array_equal(demo["actions"], episode.actions)
            np.testing.assert_array_equal(demo["rewards"], episode.rewards)
            assert demo["dones"][()].tolist() == [0, 0, 0, 1]
            for part, rows in (("obs", slice(0, 4)), ("next_obs", slice(1, 5))):
                joined = np.concatenate([demo[part][term] for term in layout], axis=1)
                np.testing.assert_array_equal(joined, episode.observations[rows])
        env_args = json.loads(file["data"].attrs["env_args"])
        assert json.loads(file["fraxenv"][()])["recipe"] == recording.metadata["recipe"]
    assert env_args["type"] == 2
    env = gym.make(env_args["env_name"], **env_args["env_kwargs"])
    assert env.observation_space.shape == (sum(layout.values()),)
    env.close()


# --- ManiSkill ---


def test_maniskill(recording: Recording, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    to_maniskill(recording, tmp_path / "demo.h5", source_type="rl")
    about = json.loads((tmp_path / "demo.json").read_text("utf-8"))
    assert about["env_info"]["env_id"] == "fraxenv/PandaReach-v0"
    assert about["env_info"]["max_episode_steps"] == 4
    assert about["source_type"] == "rl"
    episodes = list(recording.episodes())
    assert len(about["episodes"]) == len(episodes)
    with h5py.File(tmp_path / "demo.h5") as file:
        assert len(file) == len(episodes)
        for told, episode in zip(about["episodes"], episodes, strict=True):
            trajectory = file[f"traj_{told['episode_id']}"]
            assert told["elapsed_steps"] == len(trajectory["actions"]) == 4
            assert told["success"] is True
            np.testing.assert_array_equal(trajectory["obs"], episode.observations)
            np.testing.assert_array_equal(trajectory["actions"], episode.actions)
            np.testing.assert_array_equal(trajectory["rewards"], episode.rewards)
            np.testing.assert_array_equal(trajectory["success"], episode.infos["success"])
            assert trajectory["truncated"].dtype == trajectory["terminated"].dtype == bool
            assert trajectory["truncated"][()].tolist() == [False, False, False, True]


def test_maniskill_finds_the_json_by_the_name(recording: Recording, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ends in \.h5"):
        to_maniskill(recording, tmp_path / "demo.hdf5")


# --- LeRobot ---


def check_frames(table: Any, recording: Recording) -> None:
    """Compare the columns of all frames with the episodes."""
    episodes = list(recording.episodes())
    columns = {name: np.array(table[name].to_pylist()) for name in table.column_names}
    seen = np.concatenate([e.observations[:-1] for e in episodes])
    np.testing.assert_array_equal(columns["observation.state"].astype(np.float32), seen)
    taken = np.concatenate([e.actions for e in episodes])
    np.testing.assert_array_equal(columns["action"].astype(np.float32), taken)
    n = len(episodes)
    np.testing.assert_array_equal(columns["index"], np.arange(4 * n))
    np.testing.assert_array_equal(columns["episode_index"], np.repeat(np.arange(n), 4))
    np.testing.assert_array_equal(columns["frame_index"], np.tile(np.arange(4), n))
    np.testing.assert_allclose(columns["timestamp"], columns["frame_index"] / 50, atol=1e-6)
    np.testing.assert_array_equal(columns["next.done"], columns["frame_index"] == 3)
    assert columns["next.success"].dtype == bool
    assert (columns["task_index"] == 0).all()


def check_info(folder: Path, version: str, recording: Recording) -> dict[str, Any]:
    info: dict[str, Any] = json.loads((folder / "meta/info.json").read_text("utf-8"))
    assert (info["codebase_version"], info["fps"], info["total_tasks"]) == (version, 50, 1)
    n = len(list(recording.episodes()))
    assert (info["total_episodes"], info["total_frames"]) == (n, 4 * n)
    state = info["features"]["observation.state"]
    assert (state["dtype"], state["shape"]) == ("float32", [30])
    assert state["names"][:2] == ["joint_position_0", "joint_position_1"]
    assert info["features"]["next.success"] == {"dtype": "bool", "shape": [1], "names": None}
    return info


def test_lerobot_v3(recording: Recording, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    to_lerobot(recording, tmp_path / "set", task="reach")
    folder = tmp_path / "set"
    info = check_info(folder, "v3.0", recording)
    path = folder / info["data_path"].format(chunk_index=0, file_index=0)
    table = parquet.read_table(path)
    check_frames(table, recording)
    episodes = parquet.read_table(folder / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    for i, episode in enumerate(episodes):
        assert (episode["episode_index"], episode["length"], episode["tasks"]) == (i, 4, ["reach"])
        rows = episode["dataset_from_index"], episode["dataset_to_index"]
        assert rows == (4 * i, 4 * i + 4)
        assert (episode["data/chunk_index"], episode["data/file_index"]) == (0, 0)
        group = parquet.ParquetFile(path).read_row_group(i)
        assert set(group["episode_index"].to_pylist()) == {i}
    stats = json.loads((folder / "meta/stats.json").read_text("utf-8"))
    taken = np.concatenate([e.actions for e in recording.episodes()])
    for name, expected in {
        "mean": taken.mean(0), "std": taken.std(0), "min": taken.min(0), "max": taken.max(0),
        "q50": np.median(taken, 0), "count": [len(taken)],
    }.items():  # fmt: skip
        np.testing.assert_allclose(stats["action"][name], expected, rtol=1e-5, err_msg=name)


def test_lerobot_tasks_are_names_of_rows(recording: Recording, tmp_path: Path) -> None:
    """LeRobot looks for a task in the index of the table that pandas reads."""
    pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    to_lerobot(recording, tmp_path / "set", task="reach")
    tasks = pandas.read_parquet(tmp_path / "set/meta/tasks.parquet")
    assert tasks.index.name == "task"
    assert tasks.loc["reach"].task_index == 0
    assert tasks.iloc[0].name == "reach"


def test_lerobot_files_are_of_limited_size(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("fraxenv.recording.lerobot.FILE_FRAMES", 5)
    to_lerobot(recording, tmp_path / "set")
    n = len(list(recording.episodes()))
    files = sorted((tmp_path / "set/data/chunk-000").iterdir())
    assert [file.name for file in files] == [f"file-{i:03d}.parquet" for i in range(n)]
    episodes = parquet.read_table(tmp_path / "set/meta/episodes/chunk-000/file-000.parquet")
    assert episodes["data/file_index"].to_pylist() == list(range(n))


def test_lerobot_v21(recording: Recording, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    to_lerobot(recording, tmp_path / "set", version="v2.1", task="reach")
    folder = tmp_path / "set"
    info = check_info(folder, "v2.1", recording)

    def lines(name: str) -> list[Any]:
        return [json.loads(x) for x in (folder / "meta" / name).read_text("utf-8").splitlines()]

    n = info["total_episodes"]
    paths = [info["data_path"].format(episode_chunk=0, episode_index=i) for i in range(n)]
    check_frames(pa.concat_tables(parquet.read_table(folder / p) for p in paths), recording)
    assert lines("tasks.jsonl") == [{"task_index": 0, "task": "reach"}]
    assert lines("episodes.jsonl") == [
        {"episode_index": i, "tasks": ["reach"], "length": 4} for i in range(n)
    ]
    for row, episode in zip(lines("episodes_stats.jsonl"), recording.episodes(), strict=True):
        np.testing.assert_allclose(row["stats"]["action"]["max"], episode.actions.max(0))
        assert row["stats"]["action"]["count"] == [4]


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_lerobot_is_read_as_hugging_face_reads_it(
    version: Any, recording: Recording, tmp_path: Path
) -> None:
    """With the features that LeRobot makes of `info.json`."""
    datasets = pytest.importorskip("datasets")
    to_lerobot(recording, tmp_path / "set", version=version)
    info = json.loads((tmp_path / "set/meta/info.json").read_text("utf-8"))

    def kind(feature: dict[str, Any]) -> Any:
        value = datasets.Value(dtype=feature["dtype"])
        (size,) = feature["shape"]
        return value if size == 1 else datasets.Sequence(length=size, feature=value)

    files = sorted(map(str, (tmp_path / "set/data").glob("*/*.parquet")))
    features = datasets.Features({name: kind(f) for name, f in info["features"].items()})
    frames = datasets.Dataset.from_parquet(
        files, features=features, cache_dir=str(tmp_path / "cache")
    )
    first = next(recording.episodes())
    np.testing.assert_array_equal(np.float32(frames[2]["action"]), first.actions[2])


def test_lerobot_leaves_what_is_there(recording: Recording, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(CheckpointError, match="is there already"):
        to_lerobot(recording, tmp_path)
    with pytest.raises(ConfigError, match=r"v9.*v2\.1"):
        to_lerobot(recording, tmp_path / "set", version="v9")  # type: ignore[arg-type]
    recording.metadata["environment"]["rates"][0], rate = 12.5, 50
    with pytest.raises(ConfigError, match=r"12\.5 times a second"):
        to_lerobot(recording, tmp_path / "set")
    recording.metadata["environment"]["rates"][0] = rate
    assert list(tmp_path.iterdir()) == []


def test_lerobot_is_whole_or_not_at_all(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")

    def full(*args: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("fraxenv.recording.lerobot._write_json", full)
    with pytest.raises(OSError, match="disk full"):
        to_lerobot(recording, tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


# --- all ---


def test_goal_environments_keep_their_parts(goals: Recording, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("pyarrow")
    to_robomimic(goals, tmp_path / "demo.hdf5")
    to_maniskill(goals, tmp_path / "demo.h5")
    to_lerobot(goals, tmp_path / "set")
    parts = {"observation", "desired_goal", "achieved_goal"}
    with h5py.File(tmp_path / "demo.hdf5") as file:
        assert set(file["data/demo_1/obs"]) == parts
        assert "success" not in file["data/demo_1"]
    episode = list(goals.episodes())[1]
    with h5py.File(tmp_path / "demo.h5") as file:
        for part in parts:
            np.testing.assert_array_equal(file["traj_1/obs"][part], episode.observations[part])
    info = json.loads((tmp_path / "set/meta/info.json").read_text("utf-8"))
    assert {f"observation.{part}" for part in parts} <= set(info["features"])
    assert "next.success" not in info["features"]


def test_what_is_missing_is_named(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("h5py", "pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    for export, path in (
        (to_robomimic, "a.hdf5"), (to_maniskill, "a.h5"), (to_lerobot, "a"),
    ):  # fmt: skip
        with pytest.raises(MissingExtraError, match=r"fraxenv\[data\]"):
            export(recording, tmp_path / path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_export(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    env, params = fraxenv.make(**RECIPE)
    unfinished = record(env, params, None, KEY, steps=1)
    for export, path in (
        (to_robomimic, "a.hdf5"), (to_maniskill, "a.h5"), (to_lerobot, "a"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="no episode ended"):
            export(unfinished, tmp_path / path)
