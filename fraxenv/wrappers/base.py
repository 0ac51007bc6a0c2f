"""The base class of wrappers of the functional protocol."""

from __future__ import annotations

from typing import Any

from ..envs import Environment


class Wrapper:
    """Delegates what it does not change to the wrapped environment.

    Compared and hashed by content, as environments are.

    Args:
        env: an environment, or a wrapped one.
    """

    env: Environment

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        # `deepcopy` and `pickle` ask an object without attributes yet for special methods; asking
        # `self.env` then would ask for `env` again, for ever.
        if name == "env" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.env, name)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.env == other.env

    def __hash__(self) -> int:
        return hash((type(self), self.env))
