"""Registration with Gymnasium."""

from __future__ import annotations

import gymnasium

from .registry import NAMESPACE, env_spec, list_envs

_MODULE = "fraxenv.wrappers.gymnasium"


def register_envs() -> None:
    """Register every id of `list_envs()` with Gymnasium as `fraxenv/<id>`, unless it already is.

    The limit on the length of an episode is Gymnasium's: `max_episode_steps`, which `make` and
    `make_vec` take, is enforced by `gymnasium.wrappers.TimeLimit` and by the vector environment.
    """
    for id in list_envs():
        name = f"{NAMESPACE}/{id}"
        if name in gymnasium.registry:
            continue
        gymnasium.register(
            name,
            entry_point=f"{_MODULE}:GymnasiumEnv",
            vector_entry_point=f"{_MODULE}:GymnasiumVectorEnv",
            max_episode_steps=env_spec(id).max_steps_in_episode,
            kwargs={"env_id": id, "time_limit": False},
        )
