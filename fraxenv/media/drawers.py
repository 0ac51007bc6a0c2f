"""Processes that draw side by side, where it is the ray caster that draws."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..rendering import Camera, Shape, raycast, render
from ..rendering.pictures import preferred_renderer
from ..rendering.process import prepare
from ..rendering.shapes import camera_key, picture_size, stacked

_WORTH: Final = 64
"""Pictures for each process at least: so many are drawn while it starts."""


@contextmanager
def drawers(pictures: int) -> Iterator[Executor | None]:
    """Processes for `render_each`, which begin to start at once; None where one is as good.

    As of all that `multiprocessing` starts anew, the main module of a program that calls this has
    to be one that can be imported.

    Args:
        pictures: how many are to be drawn.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    count = min(cores or 1, pictures // _WORTH)
    if count < 2 or preferred_renderer() != "raycast":
        yield None
        return
    context = multiprocessing.get_context("spawn")
    # What the processes load has NumPy, and nothing of JAX.
    pool = ProcessPoolExecutor(count, context, initializer=prepare)
    try:
        for _ in range(count):
            pool.submit(callable, raycast.draw)  # loads what has it
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def render_each(
    scenes: Iterable[Sequence[Shape]],
    camera: Camera,
    width: int,
    height: int,
    pool: Executor | None = None,
) -> Iterator[NDArray[np.uint8]]:
    """Draw scenes one after the other, or with processes of `drawers`; the same pictures.

    Args:
        scenes: the shapes of each.
        camera: where to look from.
        width: of each picture, pixels.
        height: of each picture, pixels.
        pool: what `drawers` gave.
    """
    if pool is None:
        return (render(scene, camera, width, height) for scene in scenes)
    drawn = camera_key(camera), *picture_size(width, height)
    return pool.map(raycast.draw, map(stacked, scenes), *map(repeat, drawn))
