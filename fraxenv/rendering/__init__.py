"""Headless pictures of robots made of primitives, in NumPy."""

from __future__ import annotations

from .raycast import Camera, Shape, axes, render, tile

__all__ = ["Camera", "Shape", "axes", "render", "tile"]
