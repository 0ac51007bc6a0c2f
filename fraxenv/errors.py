"""Every exception that fraxenv raises on purpose, and the checks that raise them.

The ground floor: every layer may import it, and it imports nothing of ours.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from difflib import get_close_matches
from types import ModuleType
from typing import Any


class FraxenvError(Exception):
    """Base class of every exception that fraxenv raises on purpose.

    Messages say what was wrong, where, what was expected, and how to mend it.
    """


class RobotLoadError(FraxenvError, ValueError):
    """A robot description could not be turned into a `Robot`."""


class SceneLoadError(FraxenvError, ValueError):
    """A scene description has something that is not modelled, or could not be read."""


class UnknownNameError(FraxenvError, KeyError):
    """A robot, frame, joint, environment or option of that name does not exist."""

    def __str__(self) -> str:
        # KeyError prints the repr of its argument, which turns a sentence into a quoted string.
        return str(self.args[0]) if self.args else ""


class ArrayError(FraxenvError, ValueError):
    """An array has the wrong shape, dtype or values."""


class ActionError(FraxenvError, ValueError):
    """An action has the wrong shape or dtype, or is not finite."""


class ConfigError(FraxenvError, ValueError):
    """An option has a value that it cannot have."""


class EnvStateError(FraxenvError, RuntimeError):
    """A Gymnasium environment was called out of order: stepped before `reset`, or after `close`."""


class RenderError(FraxenvError, ValueError):
    """A scene cannot be drawn."""


class CheckpointError(FraxenvError, RuntimeError):
    """A checkpoint is missing, torn, or belongs to another configuration."""


class KernelError(FraxenvError, ValueError):
    """A kernel was asked for in a way that cannot be served; names what, and the remedy."""


class RobotLoadWarning(UserWarning):
    """A robot was loaded, or changed, with parameters that no real one has."""


class MissingExtraError(FraxenvError, ImportError):
    """A feature needs an optional dependency that is not installed."""


def unknown_name(
    kind: str, name: object, known: Iterable[str], where: str = ""
) -> UnknownNameError:
    """Build the error for an unknown name: the closest known ones first, then all of them.

    `where` says whose such a name would be, "of robot 'panda'".
    """
    known = list(known)
    close = get_close_matches(str(name), known, n=3, cutoff=0.5)
    close = close or [k for k in known if name and str(name).lower() in k.lower()]
    hint = f"Did you mean {' or '.join(repr(c) for c in close)}? " if close else ""
    what = f"unknown {kind} {name!r} {where}".rstrip()
    return UnknownNameError(f"{what}. {hint}Known: {', '.join(known) if known else 'none'}.")


def check_choice(what: str, value: object, choices: Iterable[str]) -> None:
    """Check an option that is one of a few names.

    Raises:
        ConfigError: it is none of them; names them.
    """
    choices = tuple(choices)
    if value not in choices:
        raise ConfigError(f"{what}={value!r}, expected one of {', '.join(map(repr, choices))}.")


def check_count(
    what: str,
    value: object,
    *,
    least: int = 1,
    most: int | None = None,
    of: str = "",
    error: type[FraxenvError] = ConfigError,
) -> int:
    """Check an option that counts something; a bool is none.

    Args:
        what: its name, perhaps after whose it is: "control_hz", "PandaReach-v0: num_envs".
        value: what was given.
        least: the smallest that is allowed.
        most: the largest; None for any.
        of: what is counted: "way-points"; "Hz".
        error: the exception to raise.

    Returns:
        The value as Python's int.

    Raises:
        ConfigError: it is no whole number, or not within these.
    """
    whole = type(value) is int or (
        hasattr(value, "dtype") and value.dtype.kind in "iu" and value.ndim == 0  # type: ignore[attr-defined]
    )
    if not (whole and value >= least and (most is None or value <= most)):  # type: ignore[operator]
        upper = "" if most is None else f" and <= {most}"
        counted = f" of {of}" if of else ""
        raise error(f"{what}={value!r}, expected a whole number >= {least}{upper}{counted}.")
    return int(value)  # type: ignore[call-overload, no-any-return]


def is_concrete(*values: Any) -> bool:
    """Whether the leaves of these pytrees are numbers that can be checked: none is being traced."""
    import jax

    return not any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(values))


def check_not_negative(owner: object, *names: str) -> None:
    """Check fields of a configuration that are numbers; None and what is being traced is not.

    Raises:
        ConfigError: one is negative or not a number.
    """
    import numpy as np

    for name in names:
        value = getattr(owner, name)
        if value is None or not is_concrete(value):
            continue
        try:
            valid = bool(np.all(np.asarray(value, float) >= 0))
        except (TypeError, ValueError):
            valid = False
        if not valid:
            raise ConfigError(
                f"{type(owner).__name__}: {name}={value!r}, expected a number, or an array of "
                "them, of at least zero."
            )


def import_extra(module: str, extra: str, what: str) -> ModuleType:
    """Import an optional dependency.

    Args:
        module: dotted name of the module.
        extra: the extra of fraxenv that installs it.
        what: what needs it, to begin the message with.

    Raises:
        MissingExtraError: it is not installed; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{what} needs the package {module.partition('.')[0]!r}, which cannot be imported "
            f'({error}). Install it with: pip install "fraxenv[{extra}]"'
        ) from error
