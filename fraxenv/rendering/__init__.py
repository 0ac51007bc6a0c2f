"""Headless pictures of robots made of primitives: by MuJoCo where it can draw, else by NumPy."""

from __future__ import annotations

from ..dynamics import Shape
from .pictures import RENDERERS, Renderer, render, render_env, render_envs, tile
from .scenery import default_camera, env_camera, env_scene, safety_color, scene
from .shapes import Camera, axes

__all__ = [
    "RENDERERS",
    "Camera",
    "Renderer",
    "Shape",
    "axes",
    "default_camera",
    "env_camera",
    "env_scene",
    "render",
    "render_env",
    "render_envs",
    "safety_color",
    "scene",
    "tile",
]
