"""Every exception that fraxenv raises on purpose. All derive from `FraxenvError`."""

from .dynamics.errors import (
    ActionError,
    ArrayError,
    CheckpointError,
    ConfigError,
    EnvStateError,
    FraxenvError,
    MissingExtraError,
    RenderError,
    RobotLoadError,
    UnknownNameError,
    import_extra,
    unknown_name,
)

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
