"""Shapes and the camera that looks at them, checked; the shapes stacked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..dynamics.geometry.shapes import SIZES, Shape, rounded_box, triad
from ..errors import RenderError, check_count
from .stacked import CameraKey, Stacked

_F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Camera:
    """A pinhole camera without roll: up in the picture is the world's +z (+y if it looks along z).

    Attributes:
        eye: position of the camera in the world, m.
        target: the point that it centres, in the world, m.
        fov: vertical field of view, degrees, between 0 and 180.
    """

    eye: tuple[float, float, float]
    target: tuple[float, float, float]
    fov: float = 45.0


def axes(position: np.ndarray, rotation: np.ndarray, length: float = 0.1) -> list[Shape]:
    """Draw a frame as a triad: x red, y green, z blue.

    Args:
        position: origin of the frame in the world, (3,), m.
        rotation: frame to world, (3, 3).
        length: of each axis from the origin to its tip, m.

    Returns:
        Three capsules.

    Raises:
        RenderError: a length that is not positive, or a pose that is not finite.
    """
    if not (_is_number(length) and length > 0):
        raise RenderError(
            f"axes: length is {length!r}, expected a positive number of metres; pass e.g. 0.1."
        )
    origin = _pose_array("axes: position", position, (3,))
    to_world = _rotation_array("axes: rotation", rotation)
    return triad(origin, to_world, float(length))


# --- Validation -----------------------------------------------------------------------------------


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float | np.integer | np.floating)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def _array(what: str, value: object, shape: tuple[int, ...], advice: str) -> _F64:
    """Finite float64 array of that shape, or an error that names `what`."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise RenderError(
            f"{what} is {value!r}, expected numbers of shape {shape}; {advice}."
        ) from error
    if array.shape != shape:
        raise RenderError(f"{what} has shape {array.shape}, expected {shape}; {advice}.")
    if not np.isfinite(array).all():
        raise RenderError(f"{what} is {array.tolist()}, expected finite numbers; {advice}.")
    return array


def _pose_array(what: str, value: object, shape: tuple[int, ...]) -> _F64:
    return _array(what, value, shape, "check the robot state that the pose was computed from")


def _rotation_array(what: str, value: object) -> _F64:
    matrix = _pose_array(what, value, (3, 3))
    if not np.allclose(matrix @ matrix.T, np.eye(3), rtol=0.0, atol=1e-3):
        raise RenderError(
            f"{what} is {matrix.tolist()}, expected a rotation matrix (orthonormal to 1e-3); "
            "put scales into `size` and normalise quaternions before converting them."
        )
    return matrix


def picture_size(width: int, height: int) -> tuple[int, int]:
    """Width and height of a picture, pixels, validated."""
    return (
        check_count("render: width", width, error=RenderError),
        check_count("render: height", height, error=RenderError),
    )


def camera_key(camera: Camera) -> CameraKey:
    """Validate a camera; plain floats, so that the result can key a cache."""
    eye = _array("render: camera.eye", camera.eye, (3,), "pass a point in the world, in m")
    target = _array("render: camera.target", camera.target, (3,), "pass a point in the world, in m")
    if not (_is_number(camera.fov) and 0.0 < camera.fov < 180.0):
        raise RenderError(
            f"render: camera.fov is {camera.fov!r}, expected degrees strictly between 0 and 180; "
            "pass e.g. 45.0."
        )
    distance = math.dist(eye, target)
    if not 1e-6 < distance < 1e6:
        raise RenderError(
            f"render: camera.eye {eye.tolist()} and camera.target {target.tolist()} are "
            f"{distance:.3g} m apart, expected between 1e-6 and 1e6; the camera looks from the "
            "eye to the target, so set these two to different points near the scene."
        )
    return (
        (float(eye[0]), float(eye[1]), float(eye[2])),
        (float(target[0]), float(target[1]), float(target[2])),
        float(camera.fov),
    )


def _size(what: str, shape: Shape) -> tuple[tuple[float, float, float], float]:
    """Half extents of the core and the radius around it; see `Stacked`."""
    kind, size = shape.kind, shape.size
    if not (isinstance(kind, str) and kind in SIZES):
        raise RenderError(
            f"{what}.kind is {kind!r}, expected one of {', '.join(map(repr, SIZES))}; "
            "approximate other geometry by these."
        )
    expected = f"expected ({', '.join(SIZES[kind])}), positive and in m, for a {kind}"
    try:
        values = [float(value) for value in size]
    except (TypeError, ValueError) as error:
        raise RenderError(f"{what}.size is {size!r}, {expected}; pass a tuple.") from error
    if len(values) != len(SIZES[kind]):
        raise RenderError(f"{what}.size is {size!r}, {expected}; pass that many numbers.")
    if not all(math.isfinite(value) and value > 0.0 for value in values):
        raise RenderError(
            f"{what}.size is {size!r}, {expected}; leave out a shape that has no extent."
        )
    return rounded_box(kind, tuple(values))


def stacked(shapes: Sequence[Shape]) -> Stacked:
    """Validate the shapes and stack them."""
    n = len(shapes)
    position, rotation, rgba = np.empty((n, 3)), np.empty((n, 3, 3)), np.empty((n, 4))
    core, radius = np.empty((n, 3)), np.empty(n)
    for i, shape in enumerate(shapes):
        core[i], radius[i] = _size(f"render: shapes[{i}]", shape)
        try:
            shaped = (np.shape(shape.position), np.shape(shape.rotation)) == ((3,), (3, 3))
            position[i], rotation[i], rgba[i] = shape.position, shape.rotation, shape.rgba
        except (TypeError, ValueError):
            shaped = False
        if not shaped:
            position[i] = np.nan  # so that the check of the whole scene finds it
    gram = rotation @ rotation.transpose(0, 2, 1) - np.eye(3)
    sound = (
        np.isfinite(position).all(axis=1)
        & (np.abs(gram) < 1e-3).all(axis=(1, 2))
        & ((rgba >= 0.0) & (rgba <= 1.0)).all(axis=1)
    )
    if not sound.all():
        first = int(np.argmin(sound))
        _explain(f"render: shapes[{first}]", shapes[first])
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    bounds = position[:, None] + (corners * core[:, None]) @ rotation.transpose(0, 2, 1)
    return Stacked([s.kind for s in shapes], core, radius, position, rotation, rgba, bounds)


def _explain(what: str, shape: Shape) -> None:
    """Raise the error of a shape that the check of the whole scene found to be unsound."""
    _pose_array(f"{what}.position", shape.position, (3,))
    _rotation_array(f"{what}.rotation", shape.rotation)
    rgba = _array(f"{what}.rgba", shape.rgba, (4,), "pass red, green, blue and alpha")
    raise RenderError(
        f"{what}.rgba is {rgba.tolist()}, expected four numbers from 0 to 1; divide bytes by 255."
    )
