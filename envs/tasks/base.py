"""What a task is: where episodes begin, what is observed, what is good."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Poses, Robot, Shape
from fraxenv.errors import ConfigError

from ..world import World
from .measures import Measure


@dataclass(frozen=True)
class Motion:
    """What a task may look at: the robot's motion at the end of a policy step.

    Attributes:
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        poses: of the bodies at `q`; pass them to `frame_pose` as `kin=`.
        world: what is around the robot.
        action: (k,), in [-1, 1], of this policy step.
        previous_action: (k,), of the one before.
    """

    q: Array
    v: Array
    poses: Poses
    world: World
    action: Array
    previous_action: Array


class Task(ABC):
    """A task is an immutable pytree: its numbers are leaves, what decides shapes is static.

    To write one, derive a frozen dataclass from this class, decorate it with
    `fraxenv.envs.configuration`, and give it at least `reset`, `observation_terms`, `reward_terms`
    and `measures`. Everything is written for one environment, and batched by `jax.vmap`.
    """

    observation_units: ClassVar[Mapping[str, str]] = {}
    """Observation term -> its unit, and its meaning where the name does not say it."""

    reward_weights: Mapping[str, ArrayLike] = {}
    """Reward term -> weight; a term that is not here has weight one."""

    state_type: ClassVar[type | None] = None
    """Class of the task's own state, for `step` to refuse other tasks' states; None for any."""

    def check(self, robot: Robot) -> None:  # noqa: B027  (most tasks have nothing to check)
        """Check the task's numbers against the robot; called where they are numbers.

        Raises:
            ConfigError: one of them is not possible; says which, and what is.
        """

    @abstractmethod
    def reset(self, key: Array, robot: Robot) -> tuple[Array, Any]:
        """Initial configuration (nq,), and the task's own state (the goal, for example)."""

    @abstractmethod
    def observation_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """What the policy sees, by name, each (k,) and about one in magnitude."""

    @abstractmethod
    def reward_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Reward terms by name, () each, before weighting."""

    @abstractmethod
    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """What is reported in `info`, in physical units, `success` (bool) among it."""

    @property
    def reported(self) -> tuple[Measure, ...]:
        """Descriptions of the measures that training, plots, viewer and command line show.

        Where there are none, all numbers of `measures` are shown, without units.
        """
        return ()

    def terminated(self, robot: Robot, motion: Motion, state: Any) -> Array:
        """Whether the episode ends here, () bool; a time limit is none of the task's business."""
        return jnp.zeros((), bool)

    @property
    def obstacle_count(self) -> int:
        """Obstacles in the task's world, for `step` to refuse the states of other worlds."""
        return 0

    def world(self, key: Array, robot: Robot, q: Array, state: Any) -> World:
        """What is around the robot when an episode begins, as `reset` left robot and goal.

        `key` is that of `reset`. The control loop moves it.
        """
        return World()

    def advance(self, state: Any, dt: Array) -> Any:
        """The task's own state `dt` later, s: a goal that has moved, for example."""
        return state

    def goals(self, state: Any) -> list[tuple[Array, Array]]:
        """Position (3,), m, and rotation (3, 3) of each hand's goal, where goals can be moved."""
        return []

    def with_goal(self, state: Any, i: int, position: ArrayLike, rotation: ArrayLike) -> Any:
        """The state with one of the `goals` elsewhere, as somebody drags it in the viewer.

        Raises:
            ConfigError: there are no goals that can be moved.
        """
        raise ConfigError(
            f"{type(self).__name__} has no goal that can be moved, expected one for each hand. "
            "Give the task `goals` and `with_goal`."
        )

    def markers(self, state: Any) -> list[Shape]:
        """What to draw of the task, in the world; the state's arrays are on the host."""
        return []


class GoalTask(Task):
    """A task whose goals are points of a space, as hindsight experience replay needs them."""

    goal_terms: ClassVar[tuple[str, ...]] = ()
    """Observation terms that describe the goal: a goal environment's `observation` is without."""

    @abstractmethod
    def achieved_goal(self, robot: Robot, motion: Motion, state: Any) -> Array:
        """What has been achieved, (g,)."""

    @abstractmethod
    def desired_goal(self, state: Any) -> Array:
        """What should be, (g,)."""

    @abstractmethod
    def goal_distance(self, achieved: Array, desired: Array) -> Array:
        """How far apart goals (..., g) are: zero where equal, one where just not reached any more.

        A goal is reached where this is less than one.
        """
