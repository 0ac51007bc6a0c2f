"""Exceptions of the environments."""

from __future__ import annotations

from fraxenv.dynamics.errors import FraxenvError


class ActionError(FraxenvError, ValueError):
    """An action has the wrong shape or dtype, or is not finite."""


class ConfigError(FraxenvError, ValueError):
    """An option of an environment or of a training run has a value that it cannot have."""
