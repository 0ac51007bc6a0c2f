"""Export of recordings as LeRobot datasets."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import CheckpointError, ConfigError, check_choice, import_extra
from ..storage.files import write_atomic
from .exporting import layout_of, whole_episodes
from .record import Episode, Recording

LeRobotVersion = Literal["v2.1", "v3.0"]

CHUNK = 1000
"""Files of a folder, at most."""

FILE_FRAMES = 200_000
"""Frames of a file, at most, of v3.0; some 100 MB of 100 numbers each."""

QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)

Columns = dict[str, np.ndarray]
"""Feature -> its values (n, ...)."""

Stats = dict[str, dict[str, list[float]]]
"""Feature -> statistic -> its values, of each number of the feature."""


def to_lerobot(
    recording: Recording,
    folder: str | Path,
    *,
    version: LeRobotVersion = "v3.0",
    task: str = "",
    robot_type: str | None = None,
) -> None:
    """Export the episodes that ended as a LeRobot dataset of numbers; whole or not at all.

    Frames have `observation.state` (a dict of observations: one feature each), `action`,
    `next.reward`, `next.done`, and `next.success` where it was recorded. The last observation of an
    episode, after its last action, has no place in the format.

    Args:
        recording: with one episode that ended, at least.
        folder: of the dataset; must not be there. `LeRobotDataset(repo_id, root=folder)` reads it.
        version: of the layout: "v3.0", of LeRobot from 0.4; or "v2.1", of those before.
        task: what is done, in words, for policies that read; the environment's name if empty.
        robot_type: LeRobot's name of the robot, if it has one.

    Raises:
        MissingExtraError: the extra `data` is not installed.
        CheckpointError: the folder is there already.
        ConfigError: no episode ended, there is no such version, or the policy's rate is not a whole
            number of frames per second.

    Source: LeRobot 0.3.3 (v2.1) and 0.6 (v3.0), `lerobot/datasets`.
    """
    check_choice("version", version, ("v2.1", "v3.0"))
    import_extra("pyarrow.parquet", "data", "Export to LeRobot")
    folder = Path(folder)
    if folder.exists():
        raise CheckpointError(f"{folder}: is there already. Remove it, or choose another folder.")
    rate = recording.metadata["environment"]["rates"][0]
    if rate != int(rate):
        raise ConfigError(
            f"the policy acts {rate} times a second, expected a whole number, which LeRobot needs. "
            "Record with another control_hz."
        )
    episodes = whole_episodes(recording)
    data = _frames(episodes, int(rate))
    info = {
        "codebase_version": version,
        "robot_type": robot_type,
        "fps": int(rate),
        "total_episodes": len(episodes),
        "total_frames": sum(map(len, episodes)),
        "total_tasks": 1,
        "chunks_size": CHUNK,
        "splits": {"train": f"0:{len(episodes)}"},
        "features": {name: _feature(name, x, recording) for name, x in data[0].items()},
    }
    task = task or recording.metadata["environment"]["name"]
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        layout = _write_v21 if version == "v2.1" else _write_v30
        layout(temporary, data, info, task)
        _write_json(temporary / "meta" / "fraxenv.json", recording.metadata)
        temporary.chmod(0o755)
        os.rename(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _frames(episodes: Sequence[Episode], rate: int) -> list[Columns]:
    """The features of each episode."""
    frames: list[Columns] = []
    first = 0
    for e in episodes:
        n = len(e)
        seen = e.observations
        named = (
            {f"observation.{name}": x for name, x in seen.items()}
            if isinstance(seen, Mapping)
            else {"observation.state": seen}
        )
        columns = {name: x[:-1].astype(np.float32) for name, x in named.items()}
        columns["action"] = e.actions.astype(np.float32)
        columns["next.reward"] = e.rewards.astype(np.float32)
        columns["next.done"] = e.terminations | e.truncations
        if "success" in e.infos:
            columns["next.success"] = e.infos["success"].astype(bool)
        columns["timestamp"] = np.arange(n, dtype=np.float32) / np.float32(rate)
        columns["frame_index"] = np.arange(n)
        columns["episode_index"] = np.full(n, e.id)
        columns["index"] = first + np.arange(n)
        columns["task_index"] = np.zeros(n, np.int64)
        frames.append(columns)
        first += n
    return frames


def _feature(name: str, values: np.ndarray, recording: Recording) -> dict[str, Any]:
    """What `info.json` tells of a feature; of flat observations the terms' names."""
    layout = layout_of(recording)
    names: list[str] | None = None
    if name == "observation.state" and sum(layout.values()) == values.shape[1]:
        names = [f"{term}_{i}" for term, size in layout.items() for i in range(size)]
    return {"dtype": str(values.dtype), "shape": list(values.shape[1:]) or [1], "names": names}


def _write_v30(folder: Path, data: Sequence[Columns], info: dict[str, Any], task: str) -> None:
    """Many episodes a file; one table of episodes, and one of tasks."""
    rows: list[dict[str, Any]] = []
    for number, part in enumerate(_files(data)):
        chunk, file = divmod(number, CHUNK)
        _write_frames(folder / f"data/chunk-{chunk:03d}/file-{file:03d}.parquet", part)
        for columns in part:
            first, n = int(columns["index"][0]), len(columns["index"])
            stats = _stats(columns)
            rows.append(
                {
                    "episode_index": len(rows),
                    "tasks": [task],
                    "length": n,
                    "data/chunk_index": chunk,
                    "data/file_index": file,
                    "dataset_from_index": first,
                    "dataset_to_index": first + n,
                    **{f"stats/{f}/{k}": v for f, own in stats.items() for k, v in own.items()},
                    "meta/episodes/chunk_index": 0,
                    "meta/episodes/file_index": 0,
                }
            )
    table = {name: [row[name] for row in rows] for name in rows[0]}
    _write_table(folder / "meta/episodes/chunk-000/file-000.parquet", table)
    _write_tasks(folder / "meta/tasks.parquet", task)
    joined = {name: np.concatenate([columns[name] for columns in data]) for name in data[0]}
    _write_json(folder / "meta/stats.json", _stats(joined))
    path = "{chunk_index:03d}/file-{file_index:03d}.parquet"
    own = {
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "data_path": f"data/chunk-{path}",
        "video_path": None,
    }
    _write_json(folder / "meta/info.json", {**info, **own})


def _write_v21(folder: Path, data: Sequence[Columns], info: dict[str, Any], task: str) -> None:
    """A file an episode; lines of JSON for episodes, their statistics, and tasks."""
    path = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
    for i, columns in enumerate(data):
        _write_frames(folder / path.format(episode_chunk=i // CHUNK, episode_index=i), [columns])
    lengths = [len(columns["index"]) for columns in data]
    episodes = [{"episode_index": i, "tasks": [task], "length": n} for i, n in enumerate(lengths)]
    stats = [{"episode_index": i, "stats": _stats(columns)} for i, columns in enumerate(data)]
    _write_json_lines(folder / "meta/episodes.jsonl", episodes)
    _write_json_lines(folder / "meta/episodes_stats.jsonl", stats)
    _write_json_lines(folder / "meta/tasks.jsonl", [{"task_index": 0, "task": task}])
    own = {
        "total_videos": 0,
        "total_chunks": -(-len(data) // CHUNK),
        "data_path": path,
        "video_path": None,
    }
    _write_json(folder / "meta/info.json", {**info, **own})


def _files(data: Sequence[Columns]) -> Iterable[list[Columns]]:
    """The episodes of each file."""
    part: list[Columns] = []
    frames = 0
    for columns in data:
        if part and frames + len(columns["index"]) > FILE_FRAMES:
            yield part
            part, frames = [], 0
        part.append(columns)
        frames += len(columns["index"])
    yield part


def _stats(columns: Columns) -> Stats:
    """Statistics over frames, as LeRobot normalises by them."""
    found: Stats = {}
    for name, values in columns.items():
        x = values.reshape(len(values), -1).astype(np.float64)
        quantiles = np.quantile(x, QUANTILES, axis=0)
        own = {"min": x.min(0), "max": x.max(0), "mean": x.mean(0), "std": x.std(0)}
        own |= {f"q{round(100 * q):02d}": v for q, v in zip(QUANTILES, quantiles, strict=True)}
        found[name] = {k: v.tolist() for k, v in own.items()} | {"count": [len(x)]}
    return found


def _write_frames(path: Path, episodes: Sequence[Columns]) -> None:
    """A row group an episode, so that one can be read alone."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [
        pa.table({name: _column(values) for name, values in columns.items()})
        for columns in episodes
    ]
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    write_atomic(path, buffer.getvalue())


def _column(values: np.ndarray) -> Any:
    import pyarrow as pa

    if values.ndim == 1:
        return pa.array(values)
    size = values.shape[1]
    offsets = np.arange(0, values.size + 1, size, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.ravel()))


def _write_table(path: Path, columns: Mapping[str, list[Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), buffer)
    write_atomic(path, buffer.getvalue())


def _write_tasks(path: Path, task: str) -> None:
    """A table that pandas reads with the tasks as the names of its rows, as LeRobot does."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"task_index": ("int64", "int64"), "task": ("unicode", "object")}
    about = {
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [
            {"name": n, "field_name": n, "pandas_type": kind, "numpy_type": dtype, "metadata": None}
            for n, (kind, dtype) in kinds.items()
        ],
        "pandas_version": "2.0.0",
    }
    table = pa.table({"task_index": [0], "task": [task]})
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(about)}), buffer)
    write_atomic(path, buffer.getvalue())


def _write_json(path: Path, content: Any) -> None:
    write_atomic(path, json.dumps(content, indent=4).encode() + b"\n")


def _write_json_lines(path: Path, rows: Iterable[Any]) -> None:
    write_atomic(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
