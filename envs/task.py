"""What a task is: where episodes begin, what is observed, what is good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Obstacles, Poses, Robot


@dataclass(frozen=True)
class Marker:
    """Something of the task's to draw: a translucent ball, with axes if it has a rotation.

    Attributes:
        position: (3,), m, world.
        rotation: (3, 3), or None where the task has no preferred orientation.
        radius: m.
        rgba: colour.
    """

    position: Array
    rotation: Array | None
    radius: float
    rgba: tuple[float, float, float, float]


@dataclass(frozen=True)
class Motion:
    """What a task may look at: the robot's motion at the end of a policy step.

    Attributes:
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        poses: of the bodies at `q`; pass them to `frame_pose` as `kin=`.
        action: (k,), in [-1, 1], of this policy step.
        previous_action: (k,), of the one before.
    """

    q: Array
    v: Array
    poses: Poses
    action: Array
    previous_action: Array


class Task(Protocol):
    """A task is an immutable pytree: its numbers are leaves, what decides shapes is static."""

    @property
    def reward_weights(self) -> Mapping[str, ArrayLike]:
        """Reward term -> weight."""

    def reset(self, key: Array, robot: Robot) -> tuple[Array, Any]:
        """Initial configuration (nq,), and the task's own state (the goal, for example)."""

    def observation_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """What the policy sees, by name, each (k,) and about one in magnitude."""

    def reward_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Reward terms by name, before weighting."""

    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """What is reported in `info`, in physical units, `success` (bool) among it."""

    def obstacles(self, state: Any) -> Obstacles:
        """What is in the robot's way, with its velocities."""

    def advance(self, state: Any, dt: Array) -> Any:
        """The task's state `dt` later, s: obstacles that have moved, for example."""

    def markers(self, state: Any) -> list[Marker]:
        """What to draw of the task."""
