"""A scene and a camera as numbers, for what draws them.

NumPy alone: a process that draws (`media/drawers.py`) starts in a tenth of the time that JAX takes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Point = tuple[float, float, float]
CameraKey = tuple[Point, Point, float]
"""Eye, target and field of view."""

_F64 = NDArray[np.float64]


class Stacked(NamedTuple):
    """The shapes as arrays, n of them. `core` plus a ball of `radius` contains each shape."""

    kind: list[str]
    core: _F64  # (n, 3) half extents of the box that, rounded by `radius`, bounds the shape
    radius: _F64  # (n,)
    position: _F64  # (n, 3)
    rotation: _F64  # (n, 3, 3)
    rgba: _F64  # (n, 4)
    bounds: _F64  # (n, 8, 3) corners of the core in the world


def look(forward: _F64) -> _F64:
    """Rows right, up, forward of a camera that looks along a unit vector, (3, 3)."""
    upright = abs(forward[2]) < 1.0 - 1e-9
    right = np.cross(forward, (0.0, 0.0, 1.0) if upright else (0.0, 1.0, 0.0))
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(right, forward), forward])
