"""Policies written by hand: they seek the goal through whatever the action space is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..envs import (
    Environment,
    EnvParams,
    GoalEnvironment,
    ObjectGoals,
    PoseGoals,
    Steerable,
    WithGripper,
)
from ..envs.tasks.experts import EXPERTS
from ..errors import ConfigError


def scripted_policy(env: Environment, params: EnvParams) -> Callable[[Any, Array], Array]:
    """A policy that moves the hands straight towards their goals, obstacles or not.

    Where an object is to be brought to a goal, it is the task's expert: one of `EXPERTS`.

    Args:
        env: the environment, of a task of hands (reach, track and those derived from them), or of
            an object with an expert.
        params: its parameters.

    Returns:
        A function of the observation of one environment and a key, as `fraxenv.record` takes it.

    Raises:
        ConfigError: the task is not one of hands and has no expert, or the action space is not
            `Steerable`.
    """
    task, robot, layout = params.task, env.robot, env.observation_layout
    if not isinstance(task, PoseGoals) or isinstance(env, GoalEnvironment):
        kind = f"a goal environment of {env.name}" if isinstance(task, PoseGoals) else env.name
        raise ConfigError(
            f"{kind} has no scripted policy: it needs a task of hands, and its goals in a flat "
            "observation. Pass a policy of your own, or 'random'."
        )
    if -1 in robot.topology.dof_coordinate:
        raise ConfigError(
            f"{env.name} has no scripted policy: it does not steer bases that float. Pass a policy "
            "of your own, or 'random'."
        )
    action = params.action
    if not isinstance(action, Steerable):
        raise ConfigError(
            f"{env.name} has no scripted policy for {type(action).__name__}, expected an action "
            "space with the method `towards`: one of poses, or of joint positions or velocities. "
            "Pass a policy of your own, or 'random'."
        )
    expert = EXPERTS.get(type(task))
    if isinstance(task, ObjectGoals) and expert is None:
        raise ConfigError(
            f"{env.name} has no scripted policy: {type(task).__name__} has no expert, expected one "
            f"of {', '.join(t.__name__ for t in EXPERTS)}. Pass a policy of your own, or 'random'."
        )
    axes = action.axes(robot)
    low, high = (jnp.asarray([getattr(axis, end) for axis in axes]) for end in ("low", "high"))
    hands = task.hands.names
    starts = dict(zip(layout, np.cumsum([0, *layout.values()]).tolist(), strict=False))

    def policy(obs: Array, key: Array) -> Array:
        def term(name: str) -> Array:
            return obs[starts[name] : starts[name] + layout[name]]

        q = _configuration(env, term("joint_position"))
        if expert is not None:
            move, turn, width = expert({name: term(name) for name in layout}, task)
            ways = [(move, turn)]
        else:
            # Where the goal moves, to where it will be when the hand arrives.
            way = 0.1 * term("to_goal_ahead" if "to_goal_ahead" in layout else "to_goal")
            turn = term("turn_to_goal") if "turn_to_goal" in layout else jnp.zeros_like(way)
            ways = list(zip(way.reshape(-1, 3), turn.reshape(-1, 3), strict=True))
        meant = action.towards(robot, q, dict(zip(hands, ways, strict=True)))
        # Gains, and a gripper, if they are part of the action.
        rest = 0.5 * (low + high)[len(meant) :]
        whole = jnp.concatenate([meant, rest])
        if expert is not None and isinstance(action, WithGripper):
            whole = whole.at[-1].set(width)
        normal = 2.0 * (whole - low) / (high - low) - 1.0
        return jnp.clip(normal, -1.0, 1.0)

    return policy


def expert_policy(env: Environment, params: EnvParams) -> Callable[[Any, Array], Array]:
    """The scripted policy of a task that has an expert: demonstrations of it are to be learnt from.

    Raises:
        ConfigError: the task has no expert, or `scripted_policy` refuses the environment.
    """
    if type(params.task) not in EXPERTS:
        raise ConfigError(
            f"{env.name} has no expert, expected a task among "
            f"{', '.join(t.__name__ for t in EXPERTS)}. Choose the policy 'scripted', which moves "
            "hands straight to their goals, or a trained one."
        )
    return scripted_policy(env, params)


def _configuration(env: Environment, scaled: Array) -> Array:
    """`q` (nq,) from the scaled joint positions of `envs.joint_terms`."""
    robot = env.robot
    lower, upper = np.asarray(robot.position_limits).T
    limited = np.isfinite(upper - lower)
    unit = np.where(robot.topology.dof_rotates, np.pi, 1.0)
    middle, half = np.zeros(robot.nv), unit
    middle[limited] = 0.5 * (lower[limited] + upper[limited])
    half[limited] = 0.5 * (upper[limited] - lower[limited])
    q = jnp.zeros(robot.nq, scaled.dtype)
    return q.at[np.asarray(robot.topology.dof_coordinate)].set(middle + half * scaled)
