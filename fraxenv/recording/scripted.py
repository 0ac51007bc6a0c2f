"""A policy written by hand: it seeks the goal through whatever the action space is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..controllers.pose import names_of
from ..dynamics import Robot, frame_jacobian, frame_pose, rotation_exp
from ..dynamics.math.algebra import matmul
from ..envs import (
    ActionSpace,
    EEDelta,
    EEPose,
    Environment,
    EnvParams,
    GoalEnvironment,
    HandTask,
    JointDelta,
    JointPosition,
    JointRate,
    VariableImpedance,
)
from ..errors import ConfigError

DAMPING = 0.05
"""m or rad per unit of joint motion below which a direction counts as one the hands cannot move."""

RATE = 4.0
"""1/s: joint velocities are to close this part of the way in a second."""

Ways = tuple[Array, Array]
"""Of k hands the way to where they should be (k, 3), m, and the turn (k, 3), rad, world axes."""


def scripted_policy(env: Environment, params: EnvParams) -> Callable[[Any, Array], Array]:
    """A policy that moves the hands straight towards their goals, obstacles or not.

    Args:
        env: the environment, of a task of hands: reach, track and those derived from them.
        params: its parameters.

    Returns:
        A function of the observation of one environment and a key, as `fraxenv.record` takes it.

    Raises:
        ConfigError: it does not know the task, or the action space: it knows those of poses and of
            joint positions and velocities, with `+impedance` as well.
    """
    task, robot, layout = params.task, env.robot, env.observation_layout
    if not isinstance(task, HandTask) or isinstance(env, GoalEnvironment):
        kind = f"a goal environment of {env.name}" if isinstance(task, HandTask) else env.name
        raise ConfigError(
            f"{kind} has no scripted policy: it needs a task of hands, and its goals in a flat "
            "observation. Pass a policy of your own, or 'random'."
        )
    if -1 in robot.topology.dof_coordinate:
        raise ConfigError(
            f"{env.name} has no scripted policy: it does not steer bases that float. Pass a policy "
            "of your own, or 'random'."
        )
    move = _movement(env.name, params.action)
    axes = params.action.axes(robot)
    low, high = (jnp.asarray([getattr(axis, end) for axis in axes]) for end in ("low", "high"))
    hands = names_of(task.end_effector)
    starts = dict(zip(layout, np.cumsum([0, *layout.values()]).tolist(), strict=False))

    def policy(obs: Array, key: Array) -> Array:
        def term(name: str) -> Array:
            return obs[starts[name] : starts[name] + layout[name]]

        # Where the goal moves, to where it will be when the hand arrives.
        way = 0.1 * term("to_goal_ahead" if "to_goal_ahead" in layout else "to_goal")
        turn = term("turn_to_goal") if "turn_to_goal" in layout else jnp.zeros_like(way)
        q = _configuration(robot, term("joint_position"))
        meant = move(robot, params.action, q, hands, (way.reshape(-1, 3), turn.reshape(-1, 3)))
        rest = 0.5 * (low + high)[len(meant) :]  # gains, if they are part of the action
        normal = 2.0 * (jnp.concatenate([meant, rest]) - low) / (high - low) - 1.0
        return jnp.clip(normal, -1.0, 1.0)

    return policy


def _movement(name: str, action: ActionSpace) -> Callable[..., Array]:
    """What turns ways into an action in physical units, for an action space."""
    if isinstance(action, VariableImpedance):
        move = _movement(name, action.space)
        return lambda robot, action, *rest: move(robot, action.space, *rest)
    moves: dict[type, Callable[..., Array]] = {
        EEDelta: _hand_changes,
        EEPose: _hand_poses,
        JointDelta: lambda robot, action, q, *rest: _joint_changes(robot, q, *rest),
        JointPosition: lambda robot, action, q, *rest: q + _joint_changes(robot, q, *rest),
        JointRate: lambda robot, action, q, *rest: RATE * _joint_changes(robot, q, *rest),
    }
    for kind, move in moves.items():
        if isinstance(action, kind):
            return move
    raise ConfigError(
        f"{name} has no scripted policy for {type(action).__name__}, expected actions that are "
        f"{', '.join(kind.__name__ for kind in moves)}. Pass a policy of your own, or 'random'."
    )


def _hand_changes(robot: Robot, action: Any, q: Array, hands: tuple[str, ...], ways: Ways) -> Array:
    parts = []
    for name, *way in zip(hands, *ways, strict=True):
        if action.frame == "ee":
            rotation = frame_pose(robot, q, name)[1]
            way = [matmul(rotation.T, w) for w in way]
        six = dict(zip(("x", "y", "z", "rx", "ry", "rz"), jnp.concatenate(way), strict=True))
        parts += [six[axis] for axis in action.axes_used]
    return jnp.stack(parts)


def _hand_poses(robot: Robot, action: Any, q: Array, hands: tuple[str, ...], ways: Ways) -> Array:
    parts = []
    for name, way, turn in zip(hands, *ways, strict=True):
        position, rotation = frame_pose(robot, q, name)
        columns = matmul(rotation_exp(turn), rotation)[:, :2]
        parts += [position + way, columns.T.ravel()]
    return jnp.concatenate(parts)


def _joint_changes(robot: Robot, q: Array, hands: tuple[str, ...], ways: Ways) -> Array:
    """The least joint motion (nv,) that moves the hands, damped least squares."""
    J = jnp.concatenate([frame_jacobian(robot, q, name) for name in hands])
    target = jnp.concatenate([jnp.concatenate(way) for way in zip(*ways, strict=True)])
    gram = matmul(J, J.T) + DAMPING**2 * jnp.eye(len(J), dtype=J.dtype)
    return matmul(J.T, jnp.linalg.solve(gram, target))


def _configuration(robot: Robot, scaled: Array) -> Array:
    """`q` (nq,) of what `envs.joint_terms` makes of it."""
    lower, upper = np.asarray(robot.position_limits).T
    limited = np.isfinite(upper - lower)
    unit = np.where(robot.topology.dof_rotates, np.pi, 1.0)
    middle, half = np.zeros(robot.nv), unit
    middle[limited] = 0.5 * (lower[limited] + upper[limited])
    half[limited] = 0.5 * (upper[limited] - lower[limited])
    q = jnp.zeros(robot.nq, scaled.dtype)
    return q.at[np.asarray(robot.topology.dof_coordinate)].set(middle + half * scaled)
