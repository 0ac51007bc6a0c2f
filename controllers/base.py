"""What all controllers have in common."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import GetAttrKey
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms
from fraxenv.errors import ArrayError, ConfigError

from .interpolation import Ramp

Telemetry = dict[str, Array]
"""What a controller reports about one control step, by name."""

TargetT = TypeVar("TargetT")
ContravariantTargetT = TypeVar("ContravariantTargetT", contravariant=True)
ClassT = TypeVar("ClassT")
MemoryT = TypeVar("MemoryT")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ControllerState:
    """What a controller remembers from one control step to the next; None where it need not.

    Attributes:
        ramp: the set-point on its way to the target, if targets are interpolated.
        torque: (nv,), N m and N, commanded last, if its rate is limited.
    """

    ramp: Ramp | None = None
    torque: Array | None = None


class Controller(Protocol[ContravariantTargetT]):
    """A control law: joint torques from a target.

    A controller is an immutable pytree: options that decide the program are static, numbers are
    leaves and may be batched. What it remembers from step to step is in an explicit state.

    A target that is not finite is replaced by one that stops the robot where it is, and
    `target_finite` in the telemetry is False: torques are finite as long as the robot's state is.
    """

    def init(self, robot: Robot, terms: Terms) -> ControllerState:
        """The state of a controller that has been holding the robot still."""

    def __call__(
        self,
        robot: Robot,
        terms: Terms,
        target: ContravariantTargetT,
        state: ControllerState,
        dt: ArrayLike,
    ) -> tuple[Array, ControllerState, Telemetry]:
        """Torques (nv,), N m and N, within the effort limits; the next state; telemetry.

        `dt` is the time, s, since the last control step.
        """


def configuration(cls: type[ClassT]) -> type[ClassT]:
    """Register a frozen dataclass as a pytree, fields marked `static` as its structure.

    Unlike `jax.tree_util.register_dataclass` it rebuilds without `__post_init__`: what that checks
    is what people write, not the gradients or axes that JAX puts in the numbers' place.
    """
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    static = tuple(f.name for f in fields if f.metadata.get("static"))
    leaves = tuple(f.name for f in fields if not f.metadata.get("static"))

    def flatten(x: Any) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(x, n) for n in leaves], tuple(getattr(x, n) for n in static)

    def flatten_with_keys(x: Any) -> tuple[list[Any], tuple[Any, ...]]:
        children, structure = flatten(x)
        return [(GetAttrKey(n), c) for n, c in zip(leaves, children, strict=True)], structure

    def unflatten(structure: Any, children: Any) -> Any:
        x = object.__new__(cls)
        for name, value in zip(static + leaves, (*structure, *children), strict=True):
            object.__setattr__(x, name, value)
        return x

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def finite_or(target: TargetT, instead: TargetT) -> tuple[TargetT, Array]:
    """The target if all its numbers are finite, else the other; and whether they are."""
    # A sum is finite if all its terms are: one test for all of them.
    total = sum(jnp.sum(x) for x in jax.tree.leaves(target))
    finite = jnp.isfinite(total)
    return jax.tree.map(lambda a, b: jnp.where(finite, a, b), target, instead), finite


def numbers(what: str, value: Any, shape: tuple[int, ...], dtype: Any, note: str = "") -> Array:
    """A value as an array of this shape.

    Raises:
        ArrayError: it has another shape.
    """
    array = jnp.asarray(value)
    if array.shape != shape:
        raise ArrayError(
            f"{what} has shape {array.shape}, expected {shape}{note}. Controllers take the numbers "
            "of one robot; batch them with jax.vmap."
        )
    return array.astype(dtype)


def spread(what: str, value: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    """A number, or one for each of its last axis or axes, as an array of this shape.

    Raises:
        ArrayError: it cannot be broadcast to the shape.
    """
    array = jnp.asarray(value, dtype)
    allowed = [shape[i:] for i in range(len(shape) + 1)]
    if array.shape not in allowed:
        expected = " or ".join(map(str, reversed(allowed)))
        raise ArrayError(
            f"{what} has shape {array.shape}, expected {expected}. Controllers take the numbers of "
            "one robot; batch them with jax.vmap."
        )
    return jnp.broadcast_to(array, shape)


def check_not_negative(controller: object, *names: str) -> None:
    """Check fields of a controller that are numbers; those that are being traced cannot be.

    Raises:
        ConfigError: one is negative or not a number.
    """
    for name in names:
        value = getattr(controller, name)
        if value is None or any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(value)):
            continue
        try:
            valid = bool(np.all(np.asarray(value, float) >= 0))
        except (TypeError, ValueError):
            valid = False
        if not valid:
            raise ConfigError(
                f"{type(controller).__name__}: {name}={value!r}, expected a number, or an array of "
                "them, of at least zero."
            )


def remembered(option: str, value: MemoryT | None) -> MemoryT:
    """What the state holds for an option that needs it.

    Raises:
        ConfigError: it does not; it is not of this controller's `init`.
    """
    if value is None:
        raise ConfigError(
            f"{option} is set, and the state has nothing for it, expected a state of this "
            "controller's init(robot, terms), or of its last step."
        )
    return value


def check_target(controller: object, target: object, kind: type) -> None:
    """Check the type of a target.

    Raises:
        ConfigError: it is of another type.
    """
    if not isinstance(target, kind):
        raise ConfigError(
            f"{type(controller).__name__}: the target is a {type(target).__name__}, expected a "
            f"{kind.__name__}."
        )
