"""Checks of arguments and actions, and the errors of calls out of order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import gymnasium
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...envs import Environment
from ...errors import (
    ActionError,
    ConfigError,
    EnvStateError,
    check_choice,
    check_count,
    unknown_name,
)
from ...making.peers import with_peer
from ...rendering import RENDERERS, Renderer
from .values import Numbers

NO_LIMIT: Final = int(np.iinfo(np.int32).max)


def checked_actions(
    name: str, env: Environment, action: ArrayLike, space: gymnasium.Space[Any]
) -> Numbers:
    """Actions of the shape and dtype of the space, clipped to [-1, 1].

    Raises:
        ActionError: they have the wrong shape or dtype, or are not finite.
    """
    try:
        array = np.asarray(action)
    except ValueError as error:
        raise ActionError(
            f"{name}: the action is {action!r}, expected an array of shape {space.shape}: "
            f"{_columns(env, space)}. Pass a NumPy array."
        ) from error
    if array.shape != space.shape:
        raise ActionError(
            f"{name}: the action has shape {array.shape}, expected {space.shape}: "
            f"{_columns(env, space)}. Pass one number for each of these."
        )
    if array.dtype.kind != "f" and not jnp.issubdtype(array.dtype, np.floating):
        raise ActionError(
            f"{name}: the action has dtype {array.dtype}, expected a floating-point one with "
            f"values in [-1, 1]. Convert it, e.g. action.astype(np.{space.dtype})."
        )
    if not np.isfinite(array).all():
        raise ActionError(
            f"{name}: the action is not finite at {some(np.argwhere(~np.isfinite(array)))}, "
            f"where it is {some(array[~np.isfinite(array)])}, expected finite numbers in [-1, 1]. "
            "Check what computed it: a policy whose weights are not finite, or an array that was "
            "never filled."
        )
    clipped: Numbers = np.minimum(np.maximum(array, -1.0), 1.0).astype(space.dtype)
    return clipped


def _columns(env: Environment, space: gymnasium.Space[Any]) -> str:
    """Names of an action's components, for a message."""
    axes = ", ".join(axis.name for axis in env.default_params.action.axes(env.robot))
    return f"{axes}{', for each environment' if len(space.shape or ()) == 2 else ''}"


def some(values: NDArray[Any]) -> str:
    """A few of many values, for a message."""
    shown = ", ".join(str(v) for v in values[:5].tolist())
    return shown if len(values) <= 5 else f"{shown}, ... ({len(values)} in all)"


def checked_size(name: str, width: int, height: int) -> tuple[int, int]:
    """Width and height of a frame, pixels.

    Raises:
        ConfigError: one is no whole number >= 1.
    """
    return check_count(f"{name}: width", width), check_count(f"{name}: height", height)


def checked_render_mode(name: str, mode: str | None, known: tuple[str, ...]) -> str | None:
    """A render mode, or None.

    Raises:
        ConfigError: it is unknown.
    """
    if mode is not None:
        check_choice(f"{name}: render_mode", mode, known)
    return mode


def checked_renderer(name: str, renderer: Renderer) -> Renderer:
    """The name of a renderer.

    Raises:
        ConfigError: there is no such one.
    """
    check_choice(f"{name}: renderer", renderer, RENDERERS)
    return renderer


def check_not_longer(env_id: str, own: object, outer: int) -> None:
    """Check that an episode is not longer than Gymnasium lets it be.

    Raises:
        ConfigError: it is.
    """
    if isinstance(own, int | np.integer) and own > outer:
        raise ConfigError(
            f"{env_id}: max_steps_in_episode={own!r}, but Gymnasium truncates episodes after "
            f"max_episode_steps={outer}. Pass max_episode_steps={own!r} to gymnasium.make or "
            "make_vec instead."
        )


def with_peer_within(
    name: str, env_id: str | None, overrides: Mapping[str, Any], outer: int
) -> dict[str, Any]:
    """Arguments of `make` with those that `like` stands for.

    Of its horizon only if it is not beyond `outer`, steps: Gymnasium's time limit comes first, and
    whether that is the registered one the environment is not told. Warns of a longer one.
    """
    filled = with_peer(env_id, overrides)
    steps = filled.get("max_steps_in_episode", 0)
    if "max_steps_in_episode" in overrides or steps <= outer:
        return filled
    gymnasium.logger.warn(
        f"{name}: episodes of like={overrides['like']!r} have {steps} steps, and Gymnasium "
        f"truncates them after {outer}, unless max_episode_steps={steps} is passed to its make."
    )
    return {key: value for key, value in filled.items() if key != "max_steps_in_episode"}


def check_options(name: str, options: Mapping[str, Any] | None, known: tuple[str, ...]) -> None:
    """Check the names of the options of `reset`.

    Raises:
        UnknownNameError: one is unknown.
    """
    for option in options or ():
        if option not in known:
            raise unknown_name("option", option, known, f"of reset() of {name}")


def warn_no_render_mode(name: str) -> None:
    """Warn of a `render` that draws nothing."""
    gymnasium.logger.warn(
        f"{name}: render() was called, but the environment was made without a render mode, so that "
        'nothing is drawn. Make it with render_mode="rgb_array".'
    )


def closed_error(name: str, method: str) -> EnvStateError:
    """The error of a call after `close`."""
    return EnvStateError(
        f"{name}: {method}() was called after close(), expected an open environment. "
        "Make a new one."
    )


def not_reset_error(name: str, method: str) -> EnvStateError:
    """The error of a call before `reset`."""
    return EnvStateError(
        f"{name}: {method}() was called before reset(), expected an environment with a state. "
        "Call reset() first."
    )
