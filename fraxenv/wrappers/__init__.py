"""Wrappers: fraxenv's environments in the forms that other libraries expect."""

from .five_tuple import FiveTuple
from .gymnasium import GymnasiumEnv, GymnasiumVectorEnv

__all__ = ["FiveTuple", "GymnasiumEnv", "GymnasiumVectorEnv"]
