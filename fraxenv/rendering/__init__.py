"""Headless pictures of robots made of primitives, in NumPy."""

from __future__ import annotations

from .raycast import Camera, Kind, Shape, axes, render, tile
from .scene import default_camera, render_env, scene

__all__ = [
    "Camera",
    "Kind",
    "Shape",
    "axes",
    "default_camera",
    "render",
    "render_env",
    "scene",
    "tile",
]
