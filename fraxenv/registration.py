"""Registration with Gymnasium."""

from __future__ import annotations

import gymnasium

from .registry import CUSTOM, MAX_STEPS, NAMESPACE, env_spec, list_envs

_MODULE = "fraxenv.wrappers.gymnasium"


def register_envs() -> None:
    """Register every id of `list_envs()` with Gymnasium as `fraxenv/<id>`, unless it already is.

    And `fraxenv/Custom-v0`, for environments that have no id of their own:

    >>> gymnasium.make("fraxenv/Custom-v0", robot="ur10", task="track", action="joint_velocity")

    The limit on the length of an episode is Gymnasium's: `max_episode_steps`, which `make` and
    `make_vec` take, is enforced by `gymnasium.wrappers.TimeLimit` and by the vector environment.
    """
    for id in list_envs():
        _register(id, id, env_spec(id).max_steps_in_episode)
    _register(CUSTOM, None, MAX_STEPS)


def _register(name: str, env_id: str | None, max_episode_steps: int) -> None:
    name = f"{NAMESPACE}/{name}"
    if name not in gymnasium.registry:
        gymnasium.register(
            name,
            entry_point=f"{_MODULE}:GymnasiumEnv",
            vector_entry_point=f"{_MODULE}:GymnasiumVectorEnv",
            max_episode_steps=max_episode_steps,
            kwargs={"env_id": env_id, "time_limit": False},
        )
