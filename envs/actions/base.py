"""The interface of action spaces: maps from numbers in [-1, 1] to a controller's targets.

An action space is an immutable pytree. Once per policy step it turns a normalised action into a
target; its memory is an explicit state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.controllers import Controller
from fraxenv.dynamics import Robot
from fraxenv.errors import ActionError, ConfigError


@dataclass(frozen=True)
class ActionAxis:
    """The meaning of one number of an action, mapped linearly from [-1, 1] to [low, high]."""

    name: str
    low: float
    high: float
    unit: str


class ActionSpace(Protocol):
    """The map from actions in [-1, 1] to a controller's targets."""

    def axes(self, robot: Robot) -> tuple[ActionAxis, ...]:
        """The meaning of every number of an action, in order.

        Raises:
            ConfigError: the action space does not fit the robot.
            UnknownNameError: the robot lacks an end effector.
        """

    def controller(self) -> Controller[Any]:
        """The controller that takes these targets, with its default options."""

    def init(self, robot: Robot, q: Array) -> Any:
        """Initial state at the configuration `q` (nq,): a pytree of arrays."""

    def command(self, robot: Robot, q: Array, action: Array, state: Any) -> tuple[Any, Any]:
        """The controller's target for an action in [-1, 1], and the next state."""

    def hold(self, robot: Robot, q: Array, state: Any) -> Any:
        """The target that keeps the robot at the beginning of an episode."""


Displacements = Mapping[str, tuple[Array, Array]]
"""End effector -> its displacement (3,), m, and turn (3,), rad, to a goal, world axes."""


@runtime_checkable
class Steerable(Protocol):
    """An action space with an inverse: the action that moves the hands by given displacements."""

    def towards(self, robot: Robot, q: Array, displacements: Displacements) -> Array:
        """The action (k,) for these displacements in one step, in the units of `axes`, not limited.

        It may lack the last numbers of an action, such as gains, which have no part in the motion.
        """


def check_axes(space: ActionSpace, robot: Robot) -> None:
    """Check that an action space fits a robot, and that its numbers make sense.

    Raises:
        ConfigError: it does not fit, or the range of an axis is not finite, or inside out.
        UnknownNameError: the robot lacks an end effector.
    """
    for axis in space.axes(robot):
        if not (np.isfinite([axis.low, axis.high]).all() and axis.low <= axis.high):
            raise ConfigError(
                f"action {axis.name!r} of {type(space).__name__} would mean {axis.low:g} ... "
                f"{axis.high:g} {axis.unit}, expected finite numbers, the smaller one first. "
                "Correct action_options."
            )


def checked_action(name: str, action: ArrayLike, axes: tuple[ActionAxis, ...]) -> Array:
    """The action as an array.

    Args:
        name: of the environment.
        action: (k,), expected to be floating-point.
        axes: of the action space, k of them.

    Raises:
        ActionError: it has another shape or dtype.
    """
    action = jnp.asarray(action)
    if action.shape != (len(axes),):
        names = ", ".join(axis.name for axis in axes)
        raise ActionError(
            f"{name}: the action has shape {action.shape}, expected ({len(axes)},): {names}. Batch "
            "environments with jax.vmap."
        )
    if not jnp.issubdtype(action.dtype, jnp.floating):
        raise ActionError(
            f"{name}: the action has dtype {action.dtype}, expected a floating-point one with "
            "values in [-1, 1]. Convert it, e.g. action.astype(jnp.float32)."
        )
    return action


def decimals(name: str, scale: ArrayLike, *shape: int) -> list[Any]:
    """Scales as nested lists of a shape, as printed: 0.02 for 0.02 in float32.

    Raises:
        ConfigError: the scales are neither one number nor of the shape.
    """
    try:
        array = np.broadcast_to(np.asarray(scale), shape)
    except ValueError as error:
        raise ConfigError(
            f"action option {name}={np.asarray(scale).tolist()}, expected one number, or numbers "
            f"of the shape {shape}."
        ) from error
    rows = [float(str(x)) for x in array.ravel()]
    nested: list[Any] = np.asarray(rows, float).reshape(shape).tolist()
    return nested
