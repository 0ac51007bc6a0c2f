"""Export of recordings as robomimic datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from .exporting import gymnasium_spec, named_observations, whole_episodes, write_hdf5
from .record import Episode, Recording

GYM_TYPE = 2
"""robomimic's `EnvType` of Gymnasium's environments."""


def to_robomimic(recording: Recording, path: str | Path) -> None:
    """Export the episodes that ended as a robomimic dataset; atomic.

    Episodes are `data/demo_0`, `data/demo_1`, ...; flat observations are split into the
    environment's terms, `obs/object_position` and so on, each of which robomimic takes as an
    observation key of the kind "low_dim". `dones` are 1 where an episode ended, by time too.

    Args:
        recording: with one episode that ended, at least.
        path: the file, such as `pick.hdf5`; replaced if there is one.

    Raises:
        MissingExtraError: the extra `data` is not installed.
        ConfigError: no episode ended in the recording.

    Source: robomimic 0.3, `docs/datasets/overview.md` and `SequenceDataset`.
    """
    episodes = whole_episodes(recording)
    tree = {
        "data": {f"demo_{e.id}": _demonstration(recording, e) for e in episodes},
        "fraxenv": json.dumps(recording.metadata),
    }
    attributes: dict[str, dict[str, Any]] = {
        "data": {
            "total": sum(map(len, episodes)),
            "env_args": json.dumps(_env_args(recording)),
        },
        **{f"data/demo_{e.id}": {"num_samples": len(e)} for e in episodes},
    }
    write_hdf5(path, tree, attributes, "Export to robomimic")


def _demonstration(recording: Recording, episode: Episode) -> dict[str, Any]:
    named = named_observations(recording, episode.observations)
    own = {name: episode.infos[name] for name in ("success",) if name in episode.infos}
    return {
        "obs": {name: x[:-1] for name, x in named.items()},
        "next_obs": {name: x[1:] for name, x in named.items()},
        "actions": episode.actions,
        "rewards": episode.rewards,
        "dones": (episode.terminations | episode.truncations).astype(np.int32),
        **own,
    }


def _env_args(recording: Recording) -> dict[str, Any]:
    """What robomimic makes the environment of: `gym.make` imports the module before the colon."""
    spec = gymnasium_spec(recording.metadata["recipe"])
    name = recording.metadata["environment"]["name"]
    return {
        "env_name": name if spec is None else f"fraxenv:{spec.id}",
        "type": GYM_TYPE,
        "env_kwargs": {} if spec is None else spec.kwargs,
    }
