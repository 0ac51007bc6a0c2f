"""Pictures of environments: of one, of one out of a batch, and of many side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import jax
import numpy as np
from numpy.typing import NDArray

from ..dynamics import Shape
from ..envs import Environment, EnvParams, EnvState
from ..errors import RenderError, check_choice, check_count
from . import opengl, raycast
from .scenery import env_camera, env_scene, safety_color
from .shapes import Camera, camera_key, picture_size, stacked

Renderer = Literal["auto", "mujoco", "raycast"]
RENDERERS: Final = ("auto", "mujoco", "raycast")

_FULL_BAR: Final = 0.1  # barrier value, m or rad, at which the bar is full
_TRACK: Final = np.array([60, 66, 74], np.uint8)  # of the bar, where it is not filled


def render(
    shapes: Sequence[Shape],
    camera: Camera,
    width: int = 480,
    height: int = 480,
    renderer: Renderer = "auto",
) -> NDArray[np.uint8]:
    """Draw shapes over a ground plane z = 0.

    Args:
        shapes: what to draw, in any order; may be empty.
        camera: where to look from.
        width: of the picture, pixels.
        height: of the picture, pixels.
        renderer: "mujoco", for MuJoCo's by OpenGL; "raycast", for one in NumPy that needs nothing
            else and gives the same bytes everywhere; "auto" for MuJoCo's where there is a graphics
            card, or the environment variable MUJOCO_GL names a GL stack, and both that and MuJoCo
            work, which the first call finds out; and NumPy's elsewhere.

    Returns:
        A fresh array (height, width, 3), uint8.

    Raises:
        RenderError: a shape, camera or picture size that cannot be drawn, the message names it; or
            MuJoCo's renderer is asked for, and there is no GL stack.
        ConfigError: there is no such renderer.
        MissingExtraError: MuJoCo's renderer is asked for, and not installed.
    """
    check_choice("renderer", renderer, RENDERERS)
    if renderer == "auto":
        renderer = preferred_renderer()
    draw = opengl.draw if renderer == "mujoco" else raycast.draw
    return draw(stacked(shapes), camera_key(camera), *picture_size(width, height))


def preferred_renderer() -> Literal["mujoco", "raycast"]:
    """What draws where nobody says."""
    return "mujoco" if opengl.preferred() else "raycast"


def render_env(
    env: Environment,
    state: EnvState,
    params: EnvParams,
    width: int = 480,
    height: int = 480,
    camera: Camera | None = None,
    *,
    index: int | None = None,
    safety: Mapping[str, Any] | None = None,
    contacts: bool = False,
    renderer: Renderer = "auto",
) -> NDArray[np.uint8]:
    """Draw one environment.

    With the report of a safety filter the hands glow while the filter intervenes, and a bar at the
    lower edge is as long as the smallest barrier value (full from 0.1 m or rad on): green while the
    filter leaves the controller alone, amber while it intervenes, red where a barrier is negative.

    Args:
        env: the environment.
        state: its state, of one environment, or of a batch.
        params: its parameters.
        width: of the picture, pixels.
        height: of the picture, pixels.
        camera: where to look from; the default is `env_camera(env)`.
        index: which environment of a batch; None for the state of one.
        safety: `info["safety"]` of the step that led to the state, of a batch if that is one; None
            to show no filter.
        contacts: whether to draw contact forces, in an environment of a scene: of each pair that
            touches a line from the middle of its points, in the direction of the normal force;
            all else is translucent then.
        renderer: see `render`.

    Returns:
        A fresh array (height, width, 3), uint8.

    Raises:
        RenderError: the state is not finite, is a batch without an index, or has no such one; or
            the picture has no such size.
        ConfigError: there is no such renderer.
    """
    if index is not None:
        state, safety = _picked((state, safety), _index(state, index))
    shapes = env_scene(env, state, params, safety, contacts=contacts)
    picture = render(shapes, camera or env_camera(env), width, height, renderer)
    draw_bar(picture, safety)
    return picture


def render_envs(
    env: Environment,
    states: EnvState,
    params: EnvParams,
    width: int = 160,
    height: int = 160,
    camera: Camera | None = None,
    *,
    count: int = 16,
    columns: int | None = None,
    safety: Mapping[str, Any] | None = None,
    contacts: bool = False,
    renderer: Renderer = "auto",
) -> NDArray[np.uint8]:
    """Draw the first environments of a batch side by side, in one picture.

    Args:
        env: the environment.
        states: of a batch.
        params: its parameters.
        width: of each, pixels.
        height: of each, pixels.
        camera: where to look from; the default is `env_camera(env)`.
        count: how many at most.
        columns: in a row; the default makes the grid as square as possible.
        safety: see `render_env`, of the batch.
        contacts: see `render_env`.
        renderer: see `render`.

    Raises:
        RenderError: the states are no batch, or cannot be drawn; see `render_env` and `tile`.
        ConfigError: there is no such renderer.
    """
    check_count("render_envs: count", count, error=RenderError)
    _index(states, 0)
    states, safety = _picked((states, safety), slice(count))
    options: dict[str, Any] = {"safety": safety, "contacts": contacts, "renderer": renderer}
    pictures = [
        render_env(env, states, params, width, height, camera, index=i, **options)
        for i in range(len(states.q))
    ]
    return tile(pictures, columns)


def tile(
    frames: Sequence[np.ndarray] | np.ndarray, columns: int | None = None, border: int = 4
) -> np.ndarray:
    """Put frames of one size side by side, row by row, on a white sheet.

    Args:
        frames: at least one picture (height, width, 3), uint8; or all in one array.
        columns: frames in a row; the default makes the grid as square as possible.
        border: white pixels between frames and around all of them.

    Returns:
        One picture, uint8; cells of the last row that are left over stay white.

    Raises:
        RenderError: no frames, frames of unlike shape or dtype, columns < 1 or border < 0.
    """
    pictures = [np.asarray(frame) for frame in frames]
    if not pictures:
        raise RenderError("tile: no frames were given, expected at least one; pass a longer list.")
    for i, picture in enumerate(pictures):
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
            raise RenderError(
                f"tile: frames[{i}] has shape {picture.shape} and dtype {picture.dtype}, expected "
                "(height, width, 3) and uint8; pass pictures as `render` returns them."
            )
        if picture.shape != pictures[0].shape:
            raise RenderError(
                f"tile: frames[{i}] has shape {picture.shape} but frames[0] has "
                f"{pictures[0].shape}, expected equal shapes; render all frames in one size."
            )
    count = len(pictures)
    across = math.ceil(math.sqrt(count)) if columns is None else columns
    check_count("tile: columns", across, error=RenderError)
    check_count("tile: border", border, least=0, error=RenderError)
    across = min(across, count)
    down = math.ceil(count / across)
    height, width = pictures[0].shape[:2]
    step_y, step_x = height + border, width + border
    sheet = np.full((down * step_y + border, across * step_x + border, 3), 255, np.uint8)
    for i, picture in enumerate(pictures):
        y, x = border + i // across * step_y, border + i % across * step_x
        sheet[y : y + height, x : x + width] = picture
    return sheet


def _index(states: EnvState, index: int) -> int:
    shape = np.shape(states.q)
    if len(shape) != 2:
        raise RenderError(
            f"render: state.q has shape {shape}, expected (n, nq), of a batch of environments; "
            "leave `index` out for one, and take one of the axes first for more."
        )
    return check_count("render: index", index, least=0, most=shape[0] - 1, error=RenderError)


def _picked(tree: Any, index: int | slice) -> Any:
    return jax.tree.map(lambda x: np.asarray(x)[index], tree)


def draw_bar(picture: NDArray[np.uint8], safety: Mapping[str, Any] | None) -> None:
    """Write the smallest barrier value along the lower edge."""
    color = safety_color(safety)
    if safety is None or color is None:
        return
    height, width = picture.shape[:2]
    thickness = max(1, round(height / 60))
    value = float(safety["min_barrier"])
    share = 1.0 if value < 0 else min(value / _FULL_BAR, 1.0)
    bar = picture[height - thickness :]
    bar[:] = bar // 2 + _TRACK // 2
    bar[:, : max(1, round(share * width))] = np.round(255 * np.asarray(color)).astype(np.uint8)
