"""Registration with Gymnasium, without loading it for those who do not use it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_MODULE = "fraxenv.wrappers.gymnasium"


def register_envs() -> None:
    """Register every id of `list_envs()` with Gymnasium as `fraxenv/<id>`, unless it already is.

    And `fraxenv/Custom-v0`, for environments that have no id of their own:

    >>> gymnasium.make("fraxenv/Custom-v0", robot="ur10", task="track", action="joint_velocity")

    The limit on the length of an episode is Gymnasium's: `max_episode_steps`, which `make` and
    `make_vec` take, is enforced by `gymnasium.wrappers.TimeLimit` and by the vector environment.
    """
    from gymnasium.envs.registration import register, registry

    from .registry import CUSTOM, MAX_STEPS, NAMESPACE, env_spec, list_envs

    limits = {id: (id, env_spec(id).max_steps_in_episode) for id in list_envs()}
    for name, (env_id, limit) in {**limits, CUSTOM: (None, MAX_STEPS)}.items():
        if f"{NAMESPACE}/{name}" not in registry:
            register(
                f"{NAMESPACE}/{name}",
                entry_point=f"{_MODULE}:GymnasiumEnv",
                vector_entry_point=f"{_MODULE}:GymnasiumVectorEnv",
                max_episode_steps=limit,
                kwargs={"env_id": env_id, "time_limit": False},
            )


def register_when_imported() -> None:
    """Register the environments now if Gymnasium is loaded, or as soon as somebody imports it."""
    if sys.modules.get("gymnasium") is not None:
        register_envs()
    elif not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport())


class _AfterImport(MetaPathFinder):
    """Has Gymnasium found by the other finders, and registers the environments behind it.

    Gymnasium loads no plugins by itself (since 1.1), and has no lazy registry. Whoever only asks
    whether it is installed has a specification made, too, that is never executed.
    """

    searching = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "gymnasium" or self.searching:
            return None
        self.searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.searching = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                execute(module)
                register_envs()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
