"""What an action space is: the map from numbers in [-1, 1] to a controller's targets.

An action space is an immutable pytree. It turns a normalised action into a controller's target,
once per policy step, and may remember something in an explicit state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.controllers import Controller
from fraxenv.dynamics import Robot
from fraxenv.errors import ConfigError


@dataclass(frozen=True)
class ActionAxis:
    """What one number of an action means: it is mapped linearly from [-1, 1] to [low, high]."""

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
        """The target that keeps the robot where it was when an episode began."""


Ways = Mapping[str, tuple[Array, Array]]
"""End effector -> the way to where it should be (3,), m, and the turn (3,), rad, world axes."""


@runtime_checkable
class Steerable(Protocol):
    """An action space through which hands can be moved straight to where they should be."""

    def towards(self, robot: Robot, q: Array, ways: Ways) -> Array:
        """The action (k,) that goes these ways at once, in the units of `axes`, not limited.

        It may be shorter than an action: numbers that it leaves out have nothing to do with ways.
        """


def check_axes(space: ActionSpace, robot: Robot) -> None:
    """Check that an action space fits a robot, and that its numbers make sense.

    Raises:
        ConfigError: it does not fit, or an axis' range is not finite, or ends before it begins.
        UnknownNameError: the robot lacks an end effector.
    """
    for axis in space.axes(robot):
        if not (np.isfinite([axis.low, axis.high]).all() and axis.low <= axis.high):
            raise ConfigError(
                f"action {axis.name!r} of {type(space).__name__} would mean {axis.low:g} ... "
                f"{axis.high:g} {axis.unit}, expected finite numbers, the smaller one first. "
                "Correct action_options."
            )


def decimals(name: str, scale: ArrayLike, *shape: int) -> list[Any]:
    """Scales as people wrote them: 0.02 in float32 is 0.02, not 0.019999999552965164.

    Raises:
        ConfigError: they are neither one number nor as many as there are.
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


def unit_of(rotates: bool, revolute: str, prismatic: str) -> str:
    """The unit of a degree of freedom that turns, or that slides."""
    return revolute if rotates else prismatic
