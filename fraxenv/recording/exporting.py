"""What exports of recordings have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from ..making.registry import NAMESPACE
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


def gymnasium_spec(recipe: Mapping[str, Any] | None) -> Any:
    """Gymnasium's `EnvSpec` of what a recipe makes; None where it tells no id."""
    if recipe is None or recipe.get("id") is None:
        return None
    import gymnasium

    spec = gymnasium.spec(f"{NAMESPACE}/{recipe['id'].removeprefix(f'{NAMESPACE}/')}")
    own = ("id", "backend", "max_steps_in_episode")  # which Gymnasium has other means for
    overrides = {name: value for name, value in recipe.items() if name not in own}
    limit = recipe.get("max_steps_in_episode", spec.max_episode_steps)
    kwargs = {**spec.kwargs, **overrides}
    return dataclasses.replace(spec, kwargs=kwargs, max_episode_steps=limit)
