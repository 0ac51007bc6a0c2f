"""The interface of controllers, and their checks of targets."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms
from fraxenv.errors import ArrayError, ConfigError

Telemetry = dict[str, Array]
"""A controller's report on one control step, by name."""

TargetT = TypeVar("TargetT")
ContravariantTargetT = TypeVar("ContravariantTargetT", contravariant=True)


class Controller(Protocol[ContravariantTargetT]):
    """A control law: joint torques from a target.

    A controller is an immutable pytree: options that decide the program are static, numbers are
    leaves and may be batched. Its memory from step to step is an explicit state, of a type of its
    own, or None.

    Its torques are not limited: `fraxenv.dynamics.Actuators` does that.

    A target that is not finite is replaced by one that stops the robot where it is, and
    `target_finite` in the telemetry is False: torques are finite as long as the robot's state is.
    """

    def init(self, robot: Robot, terms: Terms) -> Any:
        """The state of a controller that has been holding the robot still."""

    def __call__(
        self,
        robot: Robot,
        terms: Terms,
        target: ContravariantTargetT,
        state: Any,
        dt: ArrayLike,
    ) -> tuple[Array, Any, Telemetry]:
        """Nominal torques (nv,), N m and N; the next state; telemetry.

        `dt` is the time, s, since the last control step.
        """


def finite_or(target: TargetT, instead: TargetT) -> tuple[TargetT, Array]:
    """The target if all its numbers are finite, else `instead`; and whether they are, () bool."""
    # A sum is finite if all its terms are: one test for all of them.
    total = sum(jnp.sum(x) for x in jax.tree.leaves(target))
    finite = jnp.isfinite(total)
    return jax.tree.map(lambda a, b: jnp.where(finite, a, b), target, instead), finite


def checked_array(
    what: str, value: Any, shape: tuple[int, ...], dtype: Any, note: str = ""
) -> Array:
    """The value as an array of this shape and dtype.

    Raises:
        ArrayError: the value has another shape.
    """
    array = jnp.asarray(value)
    if array.shape != shape:
        raise ArrayError(
            f"{what} has shape {array.shape}, expected {shape}{note}. Controllers take the numbers "
            "of one robot; batch them with jax.vmap."
        )
    return array.astype(dtype)


def check_target(controller: object, target: object, kind: type) -> None:
    """Check the type of a target.

    Raises:
        ConfigError: the target is of another type.
    """
    if not isinstance(target, kind):
        raise ConfigError(
            f"{type(controller).__name__}: the target is a {type(target).__name__}, expected a "
            f"{kind.__name__}."
        )
