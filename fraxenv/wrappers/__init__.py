"""Wrappers: fraxenv's environments in the forms that other libraries expect."""

from .five_tuple import FiveTuple

__all__ = ["FiveTuple"]
