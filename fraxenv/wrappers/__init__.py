"""Wrappers: fraxenv's environments in the forms that other libraries expect."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .five_tuple import FiveTuple
from .gymnasium import GymnasiumEnv, GymnasiumVectorEnv
from .statistics import EpisodeStatistics

if TYPE_CHECKING:
    from .brax import BraxEnv as BraxEnv
    from .brax import RandomResetWrapper as RandomResetWrapper
    from .brax import wrap_for_brax as wrap_for_brax
    from .stable_baselines3 import StableBaselinesVecEnv as StableBaselinesVecEnv

# Without the lazy ones, so that `import *` needs no other library.
__all__ = ["EpisodeStatistics", "FiveTuple", "GymnasiumEnv", "GymnasiumVectorEnv"]

_LAZY = {
    "BraxEnv": "brax",
    "RandomResetWrapper": "brax",
    "StableBaselinesVecEnv": "stable_baselines3",
    "wrap_for_brax": "brax",
}
"""Name -> the module that has it, and that needs another library."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
