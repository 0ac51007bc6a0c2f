"""What exports of recordings have in common."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigError, import_extra
from ..making.peers import with_peer
from ..making.registry import NAMESPACE
from ..storage.files import write_atomic
from .record import Episode, Recording


def whole_episodes(recording: Recording) -> list[Episode]:
    """The episodes to export.

    Raises:
        ConfigError: there is none.
    """
    episodes = list(recording.episodes())
    if not episodes:
        raise ConfigError(
            f"no episode ended within the {recording.num_steps} steps of the recording, expected "
            "one at least. Record with episodes=..., or more steps."
        )
    return episodes


def layout_of(recording: Recording) -> dict[str, int]:
    """Name and size of each observation term, in the order of the observation; none if not told."""
    return dict(recording.metadata.get("observation_layout", []))


def named_observations(recording: Recording, observations: Any) -> dict[str, np.ndarray]:
    """Observations (n, m) of an episode by the names of their terms, (n, size) each.

    A flat observation of which the recording tells no layout is one term, `flat`.
    """
    if isinstance(observations, Mapping):
        return dict(observations)
    layout = layout_of(recording)
    if sum(layout.values()) != observations.shape[1]:
        layout = {"flat": observations.shape[1]}
    ends = np.cumsum(list(layout.values()))[:-1]
    return dict(zip(layout, np.split(observations, ends, axis=1), strict=True))


def write_hdf5(
    path: str | Path,
    tree: Mapping[str, Any],
    attributes: Mapping[str, Mapping[str, Any]],
    what: str,
) -> None:
    """Write an HDF5 file; atomic.

    Args:
        path: the file.
        tree: arrays, in dicts that become groups.
        attributes: of groups, by their paths.
        what: needs it, for the message where h5py is missing.

    Raises:
        MissingExtraError: the extra `data` is not installed.
    """
    h5py = import_extra("h5py", "data", what)
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        _fill(file, tree)
        for group, own in attributes.items():
            file[group].attrs.update(own)
    write_atomic(path, buffer.getvalue())


def _fill(group: Any, tree: Mapping[str, Any]) -> None:
    for name, part in tree.items():
        if isinstance(part, Mapping):
            _fill(group.create_group(name), part)
        else:
            group.create_dataset(name, data=part)


def gymnasium_spec(recipe: Mapping[str, Any] | None) -> Any:
    """Gymnasium's `EnvSpec` of what a recipe makes; None where it tells no id."""
    if recipe is None or recipe.get("id") is None:
        return None
    import gymnasium

    spec = gymnasium.spec(f"{NAMESPACE}/{recipe['id'].removeprefix(f'{NAMESPACE}/')}")
    own = ("id", "backend", "max_steps_in_episode")  # which Gymnasium has other means for
    overrides = {name: value for name, value in recipe.items() if name not in own}
    filled = with_peer(recipe["id"], recipe)
    limit = filled.get("max_steps_in_episode", spec.max_episode_steps)
    kwargs = {**spec.kwargs, **overrides}
    return dataclasses.replace(spec, kwargs=kwargs, max_episode_steps=limit)
