"""Export of recordings as Minari datasets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..errors import CheckpointError, import_extra
from .exporting import gymnasium_spec, whole_episodes
from .record import SERIES, Episode, Recording


def to_minari(recording: Recording, dataset_id: str, **options: Any) -> Any:
    """Export the episodes that ended as a Minari dataset, into Minari's own folder.

    Steps are numbered as Minari does it: `observations` and `infos` have one more than `actions`.
    The first entry of `infos` belongs to the reset, which reports nothing: it is zero.

    Args:
        recording: with one episode that ended, at least.
        dataset_id: such as `panda/reach/random-v0`.
        **options: of `minari.create_dataset_from_buffers`, such as `author` or `algorithm_name`.

    Returns:
        The `minari.MinariDataset`. Where the recording knows the id of its environment, its
        `recover_environment()` makes it.

    Raises:
        MissingExtraError: the extra `record` is not installed.
        CheckpointError: there is a dataset of this id already.
        ConfigError: no episode ended in the recording.
    """
    minari = import_extra("minari", "record", "Export to Minari")
    buffers = import_extra("minari.data_collector", "record", "Export to Minari")
    local = import_extra("minari.storage", "record", "Export to Minari")
    folder = Path(local.get_dataset_path(dataset_id))
    if folder.exists():
        raise CheckpointError(
            f"{folder}: there is a dataset {dataset_id!r} already. Choose another id, or "
            f"minari.delete_dataset({dataset_id!r}) first."
        )
    episodes = [_buffer(buffers.EpisodeBuffer, e) for e in whole_episodes(recording)]
    spaces = recording.metadata["spaces"]
    spec = gymnasium_spec(recording.metadata["recipe"])
    try:
        dataset = minari.create_dataset_from_buffers(
            dataset_id,
            episodes,
            env=spec,
            eval_env=spec,
            observation_space=_gymnasium_space(spaces["observations"]),
            action_space=_gymnasium_space(spaces["actions"]),
            **options,
        )
        dataset.storage.update_metadata({"fraxenv": json.dumps(recording.metadata)})
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return dataset


def _buffer(kind: Any, episode: Episode) -> Any:
    infos = jax.tree.map(lambda x: np.concatenate([np.zeros_like(x[:1]), x]), episode.infos)
    fields = {name: getattr(episode, name) for name in SERIES[:5]}
    return kind(id=episode.id, **fields, infos=infos)


def _gymnasium_space(space: Mapping[str, Any]) -> Any:
    from gymnasium import spaces

    if "box" not in space:
        return spaces.Dict({name: _gymnasium_space(part) for name, part in space.items()})
    low, high, shape, dtype = space["box"]
    return spaces.Box(np.array(low, dtype), np.array(high, dtype), tuple(shape), np.dtype(dtype))
