"""Steering: the action that moves the hands as they are told, whatever the action space is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jax import Array

from fraxenv.errors import ConfigError

from .actions.base import Steerable
from .actions.gripper import WithGripper
from .environment import Environment
from .state import EnvParams

Way = tuple[Array, Array]
"""Displacement (3,), m, and turn (3,), rad, of a hand in one step, world axes."""

Steering = Callable[[Array, Sequence[Way], Array | None], Array]
"""(q, a way for each hand, width () of the gripper, m) -> action (k,) in [-1, 1].

Without a width the gripper, where there is one, stays in the middle of its range."""


def steering(env: Environment, params: EnvParams, hands: Sequence[str]) -> Steering:
    """The inverse of an environment's action space.

    Args:
        env: the environment.
        params: its parameters.
        hands: names of what the action space moves.

    Raises:
        ConfigError: the robot's base floats, or the action space is not `Steerable`.
    """
    robot, action = env.robot, params.action
    if -1 in robot.topology.dof_coordinate:
        raise ConfigError(
            f"{env.name} has no scripted policy, and no keys: bases that float are not steered. "
            "Pass a policy of your own, or 'random'."
        )
    if not isinstance(action, Steerable):
        raise ConfigError(
            f"{env.name} has no scripted policy for {type(action).__name__}, and no keys, expected "
            "an action space with the method `towards`: one of poses, or of joint "
            "positions or velocities. Pass a policy of your own, or 'random'."
        )
    axes = action.axes(robot)
    low, high = (jnp.asarray([getattr(axis, end) for axis in axes]) for end in ("low", "high"))

    def steer(q: Array, ways: Sequence[Way], width: Array | None = None) -> Array:
        meant = action.towards(robot, q, dict(zip(hands, ways, strict=True)))
        # Gains, and a gripper, if they are part of the action.
        rest = 0.5 * (low + high)[len(meant) :]
        whole = jnp.concatenate([meant, rest])
        if width is not None and isinstance(action, WithGripper):
            whole = whole.at[-1].set(width)
        normal = 2.0 * (whole - low) / (high - low) - 1.0
        return jnp.clip(normal, -1.0, 1.0)

    return steer
