"""Policies written by hand: they seek the goal through whatever the action space is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..envs import (
    Environment,
    EnvParams,
    GoalEnvironment,
    HeldObject,
    JointGoals,
    ObjectGoals,
    PoseGoals,
)
from ..envs.observed import configuration, terms_of, ways_to_goals
from ..envs.steering import steering
from ..envs.tasks.experts import CARRYING, EXPERTS, Expert
from ..errors import ConfigError


def scripted_policy(env: Environment, params: EnvParams) -> Callable[[Any, Array], Array]:
    """A policy that moves the hands straight towards their goals, obstacles or not.

    Where something is to be handled, it is the task's expert: one of `EXPERTS`.

    Args:
        env: the environment, of a task of hands (reach, track and those derived from them), or one
            that has an expert.
        params: its parameters.

    Returns:
        A function of the observation of one environment and a key, as `fraxenv.record` takes it.

    Raises:
        ConfigError: the task is not one of hands and has no expert, or the action space is not
            `Steerable`.
    """
    task = params.task
    if not isinstance(task, PoseGoals | JointGoals) or isinstance(env, GoalEnvironment):
        has_goals = isinstance(task, PoseGoals | JointGoals)
        kind = f"a goal environment of {env.name}" if has_goals else env.name
        raise ConfigError(
            f"{kind} has no scripted policy: it needs a task of hands, and its goals in a flat "
            "observation. Pass a policy of your own, or 'random'."
        )
    steer = steering(env, params, task.hands.names)
    expert = _expert(params)
    if expert is None and isinstance(task, ObjectGoals | JointGoals):
        raise ConfigError(
            f"{env.name} has no scripted policy: {type(task).__name__} has no expert, expected one "
            f"of {', '.join(t.__name__ for t in EXPERTS)}. Pass a policy of your own, or 'random'."
        )

    def policy(obs: Array, key: Array) -> Array:
        terms = terms_of(env, obs)
        q = configuration(env, terms["joint_position"])
        if expert is not None:
            move, turn, width = expert(terms, task)
            return steer(q, [(move, turn)], width)
        return steer(q, ways_to_goals(terms), None)

    return policy


def expert_policy(env: Environment, params: EnvParams) -> Callable[[Any, Array], Array]:
    """The scripted policy of a task that has an expert: demonstrations of it are to be learnt from.

    Raises:
        ConfigError: the task has no expert, or `scripted_policy` refuses the environment.
    """
    if _expert(params) is None:
        raise ConfigError(
            f"{env.name} has no expert, expected a task among "
            f"{', '.join(t.__name__ for t in EXPERTS)}. Choose the policy 'scripted', which moves "
            "hands straight to their goals, or a trained one."
        )
    return scripted_policy(env, params)


def seen_by_expert(env: Environment, params: EnvParams) -> tuple[str, ...]:
    """The observation terms that decide what `expert_policy` does, in the observation's order.

    Raises:
        ConfigError: as `expert_policy`.
    """
    expert_policy(env, params)  # refuses what has none
    task: Any = params.task
    steer = steering(env, params, task.hands.names)
    dtype = env.observation_space(params).dtype
    terms = _Noted({name: jnp.zeros(n, dtype) for name, n in env.observation_layout.items()})
    way = jax.eval_shape(lambda: _expert(params)(terms, task))  # type: ignore[misc]
    move, turn, width = (jnp.full(x.shape, 1e-3, x.dtype) for x in way)
    q = jnp.asarray(env.robot.q_default)
    if np.any(jax.jacobian(lambda q: steer(q, [(move, turn)], width))(q)):
        terms.noted.add("joint_position")
    return tuple(name for name in terms if name in terms.noted)


def _expert(params: EnvParams) -> Expert | None:
    """The task's expert, of a hand whose controller knows what it holds, or does not."""
    known = CARRYING if isinstance(params.payload, HeldObject) else EXPERTS
    return next((known[kind] for kind in type(params.task).__mro__ if kind in known), None)


class _Noted(dict[str, Any]):
    """Observation terms, and the names of those that were looked at."""

    def __init__(self, terms: Mapping[str, Any]) -> None:
        super().__init__(terms)
        self.noted: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.noted.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        if name in self:
            self.noted.add(name)
        return super().get(name, default)
