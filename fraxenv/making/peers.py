"""Other suites' numbers in place of ours: `make(..., like="maniskill")`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError, unknown_name
from ..storage.config import PEERS, list_presets, merge, read_yaml, with_tuples
from .registry import env_spec


def list_peers() -> dict[str, tuple[str, ...]]:
    """Suite -> the tasks that it has: the values of `like`, and what goes with each."""
    return {peer: tuple(read_yaml(peer, PEERS)[0]) for peer in list_presets(PEERS)}


def with_peer(id: str | None, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `make`, with a suite's numbers where they name one, `like`, and say no others.

    Args:
        id: of the environment; None to compose one of `robot` and `task`.
        overrides: the other arguments of `make`.

    Returns:
        Arguments without `like`.

    Raises:
        UnknownNameError: there is no such suite, or environment.
        ConfigError: the suite has no such task.
    """
    own = dict(overrides)
    like = own.pop("like", None)
    if like is None:
        return own
    peers = list_peers()
    if not isinstance(like, str) or like not in peers:
        raise unknown_name("suite", like, peers, "of like")
    task = own.get("task")
    task = env_spec(id).task if task is None and id is not None else task
    if task not in peers[like]:
        others = [peer for peer, tasks in peers.items() if task in tasks]
        raise ConfigError(
            f"like={like!r} with the task {task!r}, expected one that it has: "
            f"{', '.join(peers[like])}. "
            + (f"{task!r} have {', '.join(others)}." if others else "Leave like out.")
        )
    return merge(with_tuples(read_yaml(like, PEERS)[0][task]), own)
