"""Demonstrations: episodes that a person gives, as they are marked, undone and saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fraxenv.envs import Environment, EnvParams
from fraxenv.errors import ConfigError

from ..recording import load_recording, record_actions
from .snapshots import Snapshot

INTERVENTION = "intervention"
"""Among the infos of a demonstration: whether a person gave the action, (n,), bool."""


def episode_of(past: Sequence[Snapshot]) -> Sequence[Snapshot]:
    """The snapshots of the episode that the past ends in, its first one first."""
    begin = max((i for i, snapshot in enumerate(past) if snapshot.info is None), default=0)
    return past[begin:]


def marked(past: Sequence[Snapshot], marks: Sequence[int]) -> Snapshot:
    """The snapshot to go back to: at the last mark before now, or where the episode began.

    Args:
        past: not empty, its last snapshot is now.
        marks: steps.
    """
    episode = episode_of(past)
    before = [s for s in episode[1:-1] if s.step in marks]
    return before[-1] if before else episode[0]


class Demonstrations:
    """A folder of demonstrations, each a recording of one episode: `demo-0001.npz` and so on.

    Those that are there already count.

    Args:
        env: the environment.
        folder: made with the first demonstration.
        recipe: the arguments of `make` that `env` was made with, as of `fraxenv.record`.

    Attributes:
        folder: where they are.
        successes: of every one, whether it ended in success.

    Raises:
        CheckpointError: a file there cannot be read, or is of another environment.
    """

    def __init__(
        self, env: Environment, folder: str | Path, recipe: Mapping[str, Any] | None = None
    ) -> None:
        self._env, self._recipe = env, recipe
        self.folder = Path(folder)
        self.successes: list[bool] = []
        for path in sorted(self.folder.glob("demo-*.npz")):
            recording = load_recording(path)
            recording.check_is_of(env, path)
            self.successes += [episode.success for episode in recording.episodes()]

    def save(self, past: Sequence[Snapshot], params: EnvParams) -> Path:
        """Save the episode that the past ends in, up to now; returns the file.

        Its actions are taken again from the reset, to be sure that they lead where they did.

        Args:
            past: snapshots, the last one is now.
            params: the parameters that the environment was stepped with.

        Raises:
            ConfigError: nothing has been done yet; some step had no action, since the target was
                dragged; or the actions alone do not lead here, since something was moved, or the
                filter switched, besides.
            CheckpointError: the file cannot be written.
        """
        episode = episode_of(past)
        actions = [s.action for s in episode[1:] if s.action is not None]
        if not actions or len(actions) < len(episode) - 1:
            raise ConfigError(
                f"not saved: {len(actions)} of {len(episode) - 1} steps of this episode have an "
                "action, expected all, and one at least. Begin a new one, and move the hand by "
                "keys or gamepad alone."
            )
        recording = record_actions(
            self._env,
            params,
            np.stack(actions),
            episode[0].key,
            annotations={INTERVENTION: [s.intervention for s in episode[1:]]},
            recipe=self._recipe,
        )
        found = list(recording.episodes())
        if len(found) != 1 or not _same(found[0].observations, [s.obs for s in episode]):
            raise ConfigError(
                "not saved: the actions of this episode do not lead where it is now, expected "
                "nothing but them to have moved anything. Begin a new one, and drag nothing."
            )
        path = self.folder / f"demo-{self._next():04d}.npz"
        recording.save(path)
        self.successes.append(found[0].success)
        return path

    def _next(self) -> int:
        """The number after the last file's."""
        names = (path.stem.removeprefix("demo-") for path in self.folder.glob("demo-*.npz"))
        return max((int(name) for name in names if name.isdecimal()), default=0) + 1


def _same(observations: Any, seen: Sequence[Any]) -> bool:
    """Whether the observations (n, m) of an episode, or dicts, are those that were seen."""
    stacked = jax.tree.map(lambda *x: np.stack(x), *seen)
    return bool(jax.tree.all(jax.tree.map(np.array_equal, observations, stacked)))
