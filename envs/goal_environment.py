"""Goal environments: observations with goals, and a reward that can be computed anew for others.

For hindsight experience replay: Andrychowicz et al., NeurIPS 2017. The form is that of
Gymnasium-Robotics' `GoalEnv`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot
from fraxenv.errors import ArrayError, ConfigError, check_choice

from .environment import Environment
from .observation import OBSERVATION_BOUND, TaskInputs
from .protocol import spaces
from .state import EnvParams, EnvState, default_dtype
from .tasks.base import GoalTask, Task


class GoalEnvironment(Environment):
    """An environment whose observation is a dict, and whose reward is a function of goals.

    The observation has `observation`, which does not show the goal, `achieved_goal` and
    `desired_goal`. The reward is that of `compute_reward`; the task's reward terms are reported and
    count for nothing. Noise and delay apply to `observation` alone.

    Args:
        goal_reward: "sparse": 0 where the goal is reached and -1 elsewhere; "dense": minus the
            distance from the goal, in tolerances.
        name: as of `Environment`.
        robot: as of `Environment`.
        params: as of `Environment`; the task is a `GoalTask`.
        **options: as of `Environment`.

    Raises:
        ConfigError: the task has no goals.
    """

    def __init__(
        self,
        name: str,
        robot: Robot,
        params: EnvParams,
        *,
        goal_reward: Literal["sparse", "dense"] = "sparse",
        **options: Any,
    ) -> None:
        check_choice("goal_reward", goal_reward, ("sparse", "dense"))
        task = params.task
        if not isinstance(task, GoalTask):
            raise ConfigError(
                f"{name}: the task {type(task).__name__} has no goals, expected a GoalTask "
                "for goal_env=True. Derive it from fraxenv.envs.GoalTask, or leave goal_env out."
            )
        self.goal_reward = goal_reward
        self._hidden_terms = task.goal_terms
        super().__init__(name, robot, params, **options)

    def _identity(self) -> tuple[Any, ...]:
        return (*super()._identity(), self.goal_reward)

    def observation_space(self, params: EnvParams | None = None) -> spaces.Dict:
        """A dict of boxes."""
        goal = spaces.Box(
            -OBSERVATION_BOUND, OBSERVATION_BOUND, (self._goal_size,), default_dtype()
        )
        own = super().observation_space(params)
        return spaces.Dict({"observation": own, "achieved_goal": goal, "desired_goal": goal})

    @cached_property
    def _goal_size(self) -> int:
        def goal(*inputs: Any) -> dict[str, Array]:
            return {"goal": _goals(inputs, self._params.task)[1]}

        return int(self._shapes(goal)["goal"].shape[0])

    def observe(self, key: Array, state: EnvState, action: Any, params: EnvParams) -> Any:
        """The observation and the goals, a dict."""
        achieved, desired = _goals(self._inputs(state, params), state.own_task(params.task))
        return {
            "observation": super().observe(key, state, action, params),
            "achieved_goal": achieved,
            "desired_goal": desired,
        }

    def compute_reward(
        self,
        achieved_goal: ArrayLike,
        desired_goal: ArrayLike,
        info: Any = None,
        params: EnvParams | None = None,
    ) -> Array:
        """Rewards (...,) for goals (..., g), computed as `step` does.

        Args:
            achieved_goal: (..., g), as in observations.
            desired_goal: (..., g), as in observations.
            info: not used.
            params: with the task's tolerances; the default ones if omitted.

        Raises:
            ArrayError: goals have the wrong size.
        """
        params = self._params if params is None else params
        achieved, desired = jnp.asarray(achieved_goal), jnp.asarray(desired_goal)
        for what, goal in (("achieved_goal", achieved), ("desired_goal", desired)):
            if goal.shape[-1:] != (self._goal_size,):
                raise ArrayError(
                    f"{self.name}: compute_reward was given {what} of shape {goal.shape}, expected "
                    f"(..., {self._goal_size}). Pass what observations hold under that name."
                )
        return self._goal_reward(achieved, desired, params.task)

    def _goal_reward(self, achieved: Array, desired: Array, task: Any) -> Array:
        distance: Array = task.goal_distance(achieved, desired)
        if self.goal_reward == "dense":
            return -distance
        return jnp.where(distance < 1.0, 0.0, -1.0).astype(distance.dtype)

    def _reward(
        self, inputs: TaskInputs, terms: dict[str, Array], diverged: Array, task: Task
    ) -> Array:
        reward = self._goal_reward(*_goals(inputs, task), task)
        # Zero is the reward of goals that are reached.
        return jnp.where(diverged & jnp.isnan(reward), -1.0, reward)


def _goals(inputs: TaskInputs, task: Any) -> tuple[Array, Array]:
    """The goal that is achieved, and the one that is desired, (g,) each."""
    return task.achieved_goal(*inputs), task.desired_goal(inputs[2])
