"""Export of recordings as ManiSkill trajectories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..storage.files import write_atomic
from .exporting import gymnasium_spec, whole_episodes, write_hdf5
from .record import Episode, Recording


def to_maniskill(
    recording: Recording, path: str | Path, *, source_type: str = "", source_desc: str = ""
) -> None:
    """Export the episodes that ended as ManiSkill trajectories: an `.h5` and its `.json`.

    Each file is written whole or not at all, the `.h5` first. Episodes are `traj_0`, `traj_1`, ...;
    `obs` (T + 1, m) has one row more than `actions` (T, k). There are no `env_states`: those of
    another simulator are of no use to ManiSkill's.

    Args:
        recording: with one episode that ended, at least.
        path: the file, such as `pick.h5`; replaced if there is one.
        source_type: what made the actions, in ManiSkill's words: "motionplanning", "rl", "human".
        source_desc: the same, at length.

    Raises:
        MissingExtraError: the extra `data` is not installed.
        ConfigError: no episode ended in the recording, or the path does not end in `.h5`.

    Source: ManiSkill 3.0, `RecordEpisode` in `mani_skill/utils/wrappers/record.py`.
    """
    path = Path(path)
    if path.suffix != ".h5":
        raise ConfigError(
            f"{path}: expected a name that ends in .h5, as ManiSkill finds the .json beside it."
        )
    episodes = whole_episodes(recording)
    tree = {f"traj_{e.id}": _trajectory(e) for e in episodes}
    write_hdf5(path, tree, {}, "Export to ManiSkill")
    spec = gymnasium_spec(recording.metadata["recipe"])
    recipe = recording.metadata["recipe"] or {}
    about = {
        "env_info": {
            "env_id": recording.metadata["environment"]["name"] if spec is None else spec.id,
            "env_kwargs": {} if spec is None else spec.kwargs,
            "max_episode_steps": None if spec is None else spec.max_episode_steps,
        },
        "commit_info": None,
        "episodes": [_about(e, recipe.get("action")) for e in episodes],
        "source_type": source_type,
        "source_desc": source_desc,
        "fraxenv": recording.metadata,
    }
    write_atomic(path.with_suffix(".json"), json.dumps(about, indent=2).encode() + b"\n")


def _trajectory(episode: Episode) -> dict[str, Any]:
    own = {name: episode.infos[name] for name in ("success",) if name in episode.infos}
    return {
        "obs": episode.observations,
        "actions": episode.actions.astype(np.float32),
        "terminated": episode.terminations,
        "truncated": episode.truncations,
        **own,
        "rewards": episode.rewards.astype(np.float32),
    }


def _about(episode: Episode, control_mode: str | None) -> dict[str, Any]:
    """What the JSON tells of an episode; no seed gives one environment of a batch alone."""
    own = {"success": bool(episode.infos["success"][-1])} if "success" in episode.infos else {}
    return {
        "episode_id": episode.id,
        "episode_seed": None,
        "control_mode": control_mode,
        "elapsed_steps": len(episode),
        "reset_kwargs": {},
        **own,
    }
