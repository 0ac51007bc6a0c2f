"""The interface of tasks: initial states, observations, rewards, measures."""

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
    """The robot's motion at the end of a policy step, the argument of a task's functions.

    Attributes:
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        poses: of the bodies at `q`; pass them to `frame_pose` as `kin=`.
        world: the robot's surroundings.
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
    """A task, an immutable pytree: its numbers are leaves, what decides shapes is static.

    To write one, derive a class from this one, decorate it with `fraxenv.envs.pytree_dataclass`,
    and give it at least `reset`, `observation_terms`, `reward_terms` and `measures`. Everything is
    written for one environment, and batched by `jax.vmap`.
    """

    observation_units: ClassVar[Mapping[str, str]] = {}
    """Observation term -> its unit, and its meaning where the name does not say it."""

    reward_weights: Mapping[str, ArrayLike] = {}
    """Reward term -> weight; a term that is not here has weight one."""

    state_type: ClassVar[type | None] = None
    """Class of the task's state; `step` refuses states of other classes. None for any."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if callable(vars(cls).get("obstacles")):
            raise ConfigError(
                f"{cls.__qualname__}.obstacles: nobody asks a task for its obstacles, expected "
                "`world`, which returns all that is around: World(obstacles=...). Rename it."
            )

    def check(self, robot: Robot) -> None:  # noqa: B027  (most tasks have nothing to check)
        """Check the task's numbers against the robot; not called while they are traced.

        Raises:
            ConfigError: a number is not possible; says which, and what is.
        """

    @abstractmethod
    def reset(self, key: Array, robot: Robot) -> tuple[Array, Any]:
        """Initial configuration (nq,), and the task's state: the goal, for example."""

    @abstractmethod
    def observation_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Parts of the observation by name, each (k,) and about one in magnitude."""

    @abstractmethod
    def reward_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Reward terms by name, () each, before weighting."""

    @abstractmethod
    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Numbers for `info` by name, in physical units; `success` (bool) among them."""

    @property
    def reported(self) -> tuple[Measure, ...]:
        """Descriptions of the measures that training, plots, viewer and command line show.

        If empty, all numbers of `measures` are shown, without units.
        """
        return ()

    def terminated(self, robot: Robot, motion: Motion, state: Any) -> Array:
        """Whether the episode ends here, () bool; time limits are `max_steps_in_episode`."""
        return jnp.zeros((), bool)

    def resized(self, factors: Mapping[str, Array]) -> Any:
        """The task of an episode with objects of other sizes: factors (), by name.

        Raises:
            ConfigError: the task does not say how its numbers follow.
        """
        raise ConfigError(
            f"{type(self).__name__}: randomisation of object_size, expected a task that says how "
            "its numbers follow from the sizes of objects. Leave it out, or give the task "
            "`resized`."
        )

    @property
    def obstacle_count(self) -> int:
        """Number of obstacles in the task's world; `step` refuses other worlds."""
        return 0

    def world(self, key: Array, robot: Robot, q: Array, state: Any) -> World:
        """The initial world; the control loop moves it.

        Args:
            key: the one of `reset`.
            robot: the model.
            q: (nq,), the initial configuration.
            state: the task's initial state.
        """
        return World()

    def advance(self, state: Any, dt: Array) -> Any:
        """The task's state `dt`, s, later: a goal that has moved, for example."""
        return state

    def after(self, robot: Robot, motion: Motion, state: Any) -> Any:
        """The task's state once a policy step has led to this motion: what was wiped, for example.

        Rewards, measures and observations of the step are those of the new state.
        """
        return state

    def goals(self, state: Any) -> list[tuple[Array, Array]]:
        """Position (3,), m, and rotation (3, 3) of each goal that can be moved."""
        return []

    def with_goal(self, state: Any, i: int, position: ArrayLike, rotation: ArrayLike) -> Any:
        """The state with goal `i` of `goals` at a new pose, as dragged in the viewer.

        Raises:
            ConfigError: there are no goals that can be moved.
        """
        raise ConfigError(
            f"{type(self).__name__} has no goal that can be moved, expected one for each hand. "
            "Give the task `goals` and `with_goal`."
        )

    def markers(self, state: Any) -> list[Shape]:
        """Shapes to draw, in the world; the state's arrays are on the host."""
        return []


class GoalTask(Task):
    """A task whose goals are points of a space, as hindsight experience replay needs them."""

    goal_terms: ClassVar[tuple[str, ...]] = ()
    """Observation terms of the goal, left out of a goal environment's `observation`."""

    @abstractmethod
    def achieved_goal(self, robot: Robot, motion: Motion, state: Any) -> Array:
        """The achieved goal (g,)."""

    @abstractmethod
    def desired_goal(self, state: Any) -> Array:
        """The desired goal (g,)."""

    @abstractmethod
    def goal_distance(self, achieved: Array, desired: Array) -> Array:
        """Distances (...,) of goals (..., g), in tolerances: a goal is reached below one."""
