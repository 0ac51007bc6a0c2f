"""Policies: actions for observations, of those that remember and of those that do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from jax import Array

if TYPE_CHECKING:
    from ..envs import EnvState

Policy = Callable[[Any, Array], Array]
"""Action (k,) for the observation of one environment and a random key."""


@runtime_checkable
class MemoryPolicy(Protocol):
    """A policy with a memory, a pytree of arrays, of one environment's episode."""

    def begin(self, obs: Any) -> Any:
        """The memory at the beginning of an episode, of its first observation."""

    def __call__(self, obs: Any, key: Array, memory: Any) -> tuple[Array, Any]:
        """Action (k,) for an observation, a random key and the memory; the next memory."""


@runtime_checkable
class PlanningPolicy(MemoryPolicy, Protocol):
    """A policy whose memory has a plan, which viewer and films show."""

    def path(self, memory: Any, state: EnvState) -> Array:
        """Positions (h, n, 3), m, where each of h hands is to go, in the episode of a state."""


@dataclass(frozen=True)
class Forgetful:
    """A policy that remembers nothing, as one with a memory."""

    policy: Policy

    def begin(self, obs: Any) -> tuple[()]:
        """Nothing."""
        return ()

    def __call__(self, obs: Any, key: Array, memory: tuple[()]) -> tuple[Array, tuple[()]]:
        """The policy's action; nothing."""
        return self.policy(obs, key), memory


def with_memory(policy: Policy | MemoryPolicy) -> MemoryPolicy:
    """A policy as one with a memory."""
    return policy if isinstance(policy, MemoryPolicy) else Forgetful(policy)
