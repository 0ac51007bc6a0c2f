"""Every exception that fraxenv raises on purpose. All derive from `FraxenvError`."""

from __future__ import annotations

from types import ModuleType

from .dynamics.errors import (
    ArrayError,
    FraxenvError,
    RobotLoadError,
    UnknownNameError,
    unknown_name,
)
from .envs.errors import ActionError, ConfigError

__all__ = [
    "ActionError",
    "ArrayError",
    "CheckpointError",
    "ConfigError",
    "EnvStateError",
    "FraxenvError",
    "MissingExtraError",
    "RenderError",
    "RobotLoadError",
    "UnknownNameError",
    "import_extra",
    "unknown_name",
]


class EnvStateError(FraxenvError, RuntimeError):
    """A Gymnasium environment was called out of order: stepped before `reset`, or after `close`."""


class RenderError(FraxenvError, ValueError):
    """A scene cannot be drawn."""


class CheckpointError(FraxenvError, RuntimeError):
    """A checkpoint is missing, torn, or belongs to another configuration."""


class MissingExtraError(FraxenvError, ImportError):
    """A feature needs an optional dependency that is not installed."""


def import_extra(module: str, extra: str, what: str) -> ModuleType:
    """Import an optional dependency.

    Args:
        module: dotted name of the module.
        extra: the extra of fraxenv that installs it.
        what: what needs it, to begin the message with.

    Raises:
        MissingExtraError: it is not installed; says how to install it.
    """
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{what} needs the package {module.partition('.')[0]!r}, which cannot be imported "
            f'({error}). Install it with: pip install "fraxenv[{extra}]"'
        ) from error
