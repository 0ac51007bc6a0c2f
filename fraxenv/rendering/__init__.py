"""Headless pictures of robots made of primitives: by MuJoCo where it can draw, else by NumPy."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
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

# A process that draws needs none of it, and none of JAX (media/drawers.py).
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "RENDERERS": "pictures",
        "Camera": "shapes",
        "Renderer": "pictures",
        "Shape": "shapes",
        "axes": "shapes",
        "default_camera": "scenery",
        "env_camera": "scenery",
        "env_scene": "scenery",
        "render": "pictures",
        "render_env": "pictures",
        "render_envs": "pictures",
        "safety_color": "scenery",
        "scene": "scenery",
        "tile": "pictures",
    },
)
