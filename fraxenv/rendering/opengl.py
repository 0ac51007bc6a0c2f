"""Pictures by MuJoCo's renderer, which is OpenGL: where MuJoCo and a GL stack are installed.

A GL stack that is broken can bring a process down, and its state belongs to one thread. So it is
tried out in a process of its own, once, and everything else happens in one thread.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import RenderError, import_extra
from .stacked import CameraKey, Stacked, look

_STACKS: Final = {"linux": ("egl", "osmesa"), "darwin": ("cgl",), "win32": ("glfw",)}
_PROBE: Final = """
import importlib, sys, mujoco
context = importlib.import_module("mujoco." + sys.argv[1]).GLContext(16, 16)
context.make_current()
mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), 100)
"""

_WORLD: Final = """
<mujoco>
  <visual>
    <headlight ambient="0.5 0.51 0.52" diffuse="0.12 0.12 0.12" specular="0 0 0"/>
    <quality shadowsize="4096" offsamples="4"/>
    <map shadowclip="1.2"/>
  </visual>
  <statistic extent="2"/>
  <asset>
    <texture type="skybox" builtin="gradient" rgb1="0.80 0.855 0.92" rgb2="0.955 0.96 0.965"
      width="256" height="256"/>
    <texture name="ground" type="2d" builtin="checker" rgb1="0.94 0.95 0.96"
      rgb2="0.89 0.90 0.915" width="256" height="256"/>
    <material name="ground" texture="ground" texrepeat="2 2" texuniform="true" specular="0"/>
  </asset>
  <worldbody>
    <light directional="true" pos="1.3 -0.9 2.4" dir="-0.45 0.31 -0.83" diffuse="0.44 0.43 0.41"
      specular="0.3 0.3 0.3"/>
    <geom type="plane" size="0 0 0.01" material="ground"/>
  </worldbody>
</mujoco>
"""
_MOST_SHAPES: Final = 4000
_NEAR, _FAR = 0.02, 50.0  # of the distance of what is looked at


class _Canvas(NamedTuple):
    """In the order in which they depend on each other; a tuple lets go of its last one first."""

    context: Any
    model: Any
    scene: Any
    target: Any


@functools.cache
def gl_stack() -> str | None:
    """Name of the GL stack with which MuJoCo draws here, None if there is none that works.

    That which the environment variable MUJOCO_GL names, or else EGL or OSMesa on Linux.
    """
    if importlib.util.find_spec("mujoco") is None:
        return None
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    own = _STACKS.get(sys.platform, ())
    if asked in ("disable", "disabled", "off", "false", "0"):
        return None
    for stack in (asked,) if asked in (*own, "egl", "osmesa", "glfw") else own:
        command = [sys.executable, "-c", _PROBE, stack]
        try:
            if subprocess.run(command, capture_output=True, timeout=60).returncode == 0:
                return stack
        except (OSError, subprocess.TimeoutExpired):
            continue
    return None


def preferred() -> bool:
    """Whether to draw by MuJoCo's renderer where nobody says: by a graphics card, or as asked.

    Without a card Mesa draws on the CPU, which takes it several times as long as our ray caster.
    """
    return (bool(os.environ.get("MUJOCO_GL")) or has_card()) and gl_stack() is not None


def has_card() -> bool:
    """Whether there may be a graphics card."""
    devices = Path("/dev")
    return sys.platform != "linux" or any(
        (*devices.glob("dri/renderD*"), *devices.glob("nvidiactl"), *devices.glob("dxg"))
    )


def draw(scene: Stacked, camera: CameraKey, width: int, height: int) -> NDArray[np.uint8]:
    """Draw shapes over a ground plane z = 0, by MuJoCo.

    Args:
        scene: the shapes, in any order.
        camera: where to look from.
        width: of the picture, pixels.
        height: of the picture, pixels.

    Returns:
        A fresh array (height, width, 3), uint8.

    Raises:
        RenderError: more shapes than MuJoCo's renderer has room for, or no GL stack.
        MissingExtraError: MuJoCo is not installed.
    """
    if len(scene.kind) > _MOST_SHAPES:
        raise RenderError(
            f"render: {len(scene.kind)} shapes, expected at most {_MOST_SHAPES} for MuJoCo's "
            "renderer; pass renderer='raycast'."
        )
    import_extra("mujoco", "mujoco", "renderer='mujoco'")
    stack = gl_stack()
    if stack is None:
        raise RenderError(
            "render: renderer='mujoco' found no GL stack that works, expected EGL or OSMesa. "
            "Install one (Debian: apt-get install libegl1 libgl1-mesa-dri), name it in MUJOCO_GL, "
            "or pass renderer='raycast'."
        )
    return _thread(os.getpid()).submit(_draw, stack, scene, camera, width, height).result()


@functools.cache
def _thread(process: int) -> ThreadPoolExecutor:
    """The thread that draws; a forked process has none of its parent's."""
    return ThreadPoolExecutor(1, "fraxenv-opengl")


# Of the thread that draws, so that it is also that thread which frees it.
_own = threading.local()


def _canvas(stack: str) -> _Canvas:
    if not hasattr(_own, "canvas"):
        import mujoco

        context = importlib.import_module(f"mujoco.{stack}").GLContext(64, 64)
        context.make_current()
        model = mujoco.MjModel.from_xml_string(_WORLD)
        target = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, target)
        scene = mujoco.MjvScene(model, maxgeom=_MOST_SHAPES + 1)
        _own.canvas = _Canvas(context, model, scene, target)
    canvas: _Canvas = _own.canvas
    return canvas


def _draw(
    stack: str, shapes: Stacked, camera: CameraKey, width: int, height: int
) -> NDArray[np.uint8]:
    import mujoco

    _, model, scene, target = _canvas(stack)
    if width > target.offWidth or height > target.offHeight:
        mujoco.mjr_resizeOffscreen(
            max(width, target.offWidth), max(height, target.offHeight), target
        )
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    every = mujoco.mjtCatBit.mjCAT_ALL.value
    free = mujoco.MjvCamera()
    mujoco.mjv_updateScene(model, data, mujoco.MjvOption(), None, free, every, scene)
    kinds = {k: getattr(mujoco.mjtGeom, f"mjGEOM_{k.upper()}") for k in set(shapes.kind)}
    for i, kind in enumerate(shapes.kind):
        core, radius = shapes.core[i], shapes.radius[i]
        size = core if kind == "box" else np.array([radius, core[2], 0.0])
        mujoco.mjv_initGeom(
            scene.geoms[scene.ngeom],
            kinds[kind],
            size,
            shapes.position[i],
            shapes.rotation[i].ravel(),
            shapes.rgba[i].astype(np.float32),
        )
        scene.ngeom += 1
    _aim(scene, camera)
    rectangle = mujoco.MjrRect(0, 0, width, height)
    picture = np.empty((height, width, 3), np.uint8)
    mujoco.mjr_render(rectangle, scene, target)
    mujoco.mjr_readPixels(picture, None, rectangle, target)
    return np.ascontiguousarray(picture[::-1])


def _aim(scene: Any, camera: CameraKey) -> None:
    """Point both cameras of a stereoscopic scene, of which it shows the mean, where ours is."""
    eye, target, fov = camera
    gaze = np.subtract(target, eye)
    distance = np.linalg.norm(gaze)
    _, up, forward = look(gaze / distance)
    near, far = _NEAR * distance, _FAR * distance
    top = near * np.tan(np.radians(fov) / 2)
    for eye_of_two in scene.camera:
        eye_of_two.pos, eye_of_two.forward = eye, forward
        eye_of_two.up = up
        eye_of_two.frustum_near, eye_of_two.frustum_far = near, far
        eye_of_two.frustum_center, eye_of_two.frustum_width = 0.0, 0.0
        eye_of_two.frustum_bottom, eye_of_two.frustum_top = -top, top
