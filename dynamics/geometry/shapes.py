"""Primitive shapes, of robots, obstacles and pictures.

A `Shape` is static, in URDF's conventions: one primitive with its size, pose and colour. A
`Sphere`, `Capsule`, `Box` or `HalfSpace` is a pytree of numbers, of one or many primitives in
arrays, to be moved, batched and differentiated; `of` and `shapes` convert between the two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.errors import ArrayError

from ..math.pytree import pytree_dataclass
from ..math.rotation import rotation_to

WORLD = -1
"""Body index of the world, to which the root link is welded."""

ShapeKind = Literal["sphere", "capsule", "cylinder", "box"]
Color = tuple[float, float, float, float]
"""Red, green, blue and alpha, each in [0, 1]; alpha < 1 is translucent."""

GREY: Final[Color] = (0.7, 0.7, 0.7, 1.0)

SIZES: Final[dict[ShapeKind, tuple[str, ...]]] = {
    "sphere": ("radius",),
    "capsule": ("radius", "length"),
    "cylinder": ("radius", "length"),
    "box": ("x", "y", "z"),
}
"""Every kind of shape, and its dimensions in m.

Capsules and cylinders are along z, a capsule's length is without its caps; a box has full extents.
"""


@dataclass(frozen=True)
class Shape:
    """A coloured primitive at a pose, in URDF's conventions.

    Attributes:
        name: unique among a robot's collision shapes; may be empty elsewhere.
        kind: see `SIZES`.
        size: m, see `SIZES`.
        body: index of the body it moves with, `WORLD` if it does not move.
        position: (3,), m, centre in the body's frame.
        rotation: (3, 3), shape to body.
        rgba: colour.
    """

    # The fields' order is part of a robot's fingerprint, by which saved states know it.
    name: str = field(default="", kw_only=True)
    kind: ShapeKind
    size: tuple[float, ...]
    body: int = field(default=WORLD, kw_only=True)
    position: np.ndarray
    rotation: np.ndarray = field(default_factory=lambda: np.eye(3))
    rgba: Color = GREY


def rounded_box(
    kind: ShapeKind, size: tuple[float, ...]
) -> tuple[tuple[float, float, float], float]:
    """Half extents of a box and the radius that rounds it, both m, to enclose a shape.

    The rounded box is the shape itself, except for a cylinder.
    """
    match kind:
        case "box":
            x, y, z = size
            return (x / 2, y / 2, z / 2), 0.0
        case "sphere":
            return (0.0, 0.0, 0.0), size[0]
        case _:
            radius, length = size
            return (0.0, 0.0, length / 2), radius


def enclosing_capsule(shape: Shape) -> Capsule:
    """The capsule, in the body's frame, that encloses a shape.

    For a cylinder, the capsule of its axis and radius; for a box, the capsule of least volume along
    its longest edge.
    """
    extents, radius = rounded_box(shape.kind, shape.size)
    half = np.array(extents)
    if shape.kind == "box":
        longest = np.argmax(half)
        # The axis may end before the face, by `inset`, if the radius covers the corner.
        inset = np.linspace(0.0, half[longest], 201)
        radii = np.sqrt(half @ half - half[longest] ** 2 + inset**2)
        volume = radii**2 * (2 * (half[longest] - inset) + 4 / 3 * radii)
        least = np.argmin(volume)
        radius = float(radii[least])
        half = np.where(np.arange(3) == longest, half[longest] - inset[least], 0.0)
    along = np.asarray(shape.rotation, float) @ half
    centre = np.asarray(shape.position, float)
    return Capsule(centre - along, centre + along, radius)


def triad(position: np.ndarray, rotation: np.ndarray, length: float) -> list[Shape]:
    """A frame's axes as three capsules: x red, y green, z blue.

    Args:
        position: (3,), m, origin of the frame.
        rotation: (3, 3), columns along the frame's axes.
        length: m, from the origin to the tip of each axis.
    """
    radius = 0.06 * length
    shapes = []
    for axis, color in enumerate(((0.86, 0.22, 0.2), (0.25, 0.66, 0.27), (0.2, 0.4, 0.86))):
        # The columns in cyclic order are again a rotation, whose z is the axis.
        turned = np.roll(rotation, 2 - axis, axis=1)
        centre = position + 0.5 * (length - radius) * rotation[:, axis]
        shapes.append(Shape("capsule", (radius, length - radius), centre, turned, (*color, 1.0)))
    return shapes


@pytree_dataclass
class Sphere:
    """A sphere, or m of them in arrays with a leading axis m.

    Attributes:
        position: (3,), m, of the centre.
        radius: (), m.
    """

    position: ArrayLike
    radius: ArrayLike

    @staticmethod
    def of(shape: Shape) -> Sphere:
        """From a `Shape` of the kind "sphere"."""
        return Sphere(shape.position, *shape.size)

    def shapes(self, rgba: Color) -> list[Shape]:
        """The m shapes."""
        return [
            Shape("sphere", (float(radius),), position, rgba=rgba)
            for position, radius in _rows(self.position, self.radius)
        ]

    @property
    def centre(self) -> Array:
        """Centre (..., 3), m."""
        return jnp.asarray(self.position)

    @property
    def half_axes(self) -> Array:
        """Half axes (..., 0, 3): a sphere has none."""
        centre = self.centre
        return jnp.zeros((*centre.shape[:-1], 0, 3), centre.dtype)

    @property
    def bounding_radius(self) -> Array:
        """Radius (...,), m, of the bounding sphere."""
        return jnp.asarray(self.radius)

    def moved_to(self, centre: Array) -> Sphere:
        """The same shape with another centre (..., 3), m."""
        return Sphere(centre, self.radius)


@pytree_dataclass
class Capsule:
    """All points within a radius of a segment, or m capsules in arrays with a leading axis m.

    Attributes:
        start: (3,), m, one end of the segment.
        end: (3,), m, the other; may be the same point.
        radius: (), m.
    """

    start: ArrayLike
    end: ArrayLike
    radius: ArrayLike

    @staticmethod
    def of(shape: Shape) -> Capsule:
        """From a `Shape` of the kind "capsule"."""
        radius, length = shape.size
        half = 0.5 * length * shape.rotation[:, 2]
        return Capsule(shape.position - half, shape.position + half, radius)

    def shapes(self, rgba: Color) -> list[Shape]:
        """The m shapes."""
        return [
            Shape(
                "capsule",
                (float(radius), float(np.linalg.norm(end - start))),
                0.5 * (start + end),
                rotation_to(end - start),
                rgba,
            )
            for start, end, radius in _rows(self.start, self.end, self.radius)
        ]

    @property
    def centre(self) -> Array:
        """Centre (..., 3), m."""
        return 0.5 * (jnp.asarray(self.start) + jnp.asarray(self.end))

    @property
    def half_axes(self) -> Array:
        """Half axis (..., 1, 3), m, from the centre to the end."""
        return 0.5 * (jnp.asarray(self.end) - jnp.asarray(self.start))[..., None, :]

    @property
    def bounding_radius(self) -> Array:
        """Radius (...,), m, of the bounding sphere."""
        half = self.half_axes[..., 0, :]
        return jnp.asarray(self.radius) + jnp.sqrt(jnp.sum(half**2, axis=-1))

    def moved_to(self, centre: Array) -> Capsule:
        """The same shape with another centre (..., 3), m."""
        half = self.half_axes[..., 0, :]
        return Capsule(centre - half, centre + half, self.radius)


@pytree_dataclass
class Box:
    """A box, or m of them in arrays with a leading axis m.

    Attributes:
        position: (3,), m, of the centre.
        rotation: (3, 3), box to world.
        half_extents: (3,), m, along the box's axes.
    """

    position: ArrayLike
    rotation: ArrayLike
    half_extents: ArrayLike

    @staticmethod
    def of(shape: Shape) -> Box:
        """From a `Shape` of the kind "box"."""
        return Box(shape.position, shape.rotation, 0.5 * np.array(shape.size))

    def shapes(self, rgba: Color) -> list[Shape]:
        """The m shapes."""
        return [
            Shape("box", tuple(map(float, 2.0 * half)), position, rotation, rgba)
            for position, rotation, half in _rows(self.position, self.rotation, self.half_extents)
        ]

    @property
    def centre(self) -> Array:
        """Centre (..., 3), m."""
        return jnp.asarray(self.position)

    @property
    def half_axes(self) -> Array:
        """Half axes (..., 3, 3), m: rows from the centre to the middle of a face."""
        half = jnp.asarray(self.half_extents)
        return jnp.swapaxes(jnp.asarray(self.rotation), -1, -2) * half[..., None]

    @property
    def bounding_radius(self) -> Array:
        """Radius (...,), m, of the bounding sphere."""
        half = jnp.asarray(self.half_extents)
        return jnp.sqrt(jnp.sum(half * half, axis=-1))

    def moved_to(self, centre: Array) -> Box:
        """The same shape with another centre (..., 3), m."""
        return Box(centre, self.rotation, self.half_extents)


@pytree_dataclass
class HalfSpace:
    """The solid points x with `normal . x <= offset`, or m of them with a leading axis m.

    Attributes:
        normal: (3,), unit, pointing out of the solid.
        offset: (), m, of the surface along the normal.
    """

    normal: ArrayLike
    offset: ArrayLike


Bounded = Sphere | Capsule | Box
"""Shapes of finite size: they have a centre, and can be drawn."""

Primitive = TypeVar("Primitive", Sphere, Capsule, Box, HalfSpace)

_DIMENSIONS: dict[str, tuple[int, ...]] = {
    "position": (3,),
    "rotation": (3, 3),
    "half_extents": (3,),
    "start": (3,),
    "end": (3,),
    "normal": (3,),
    "radius": (),
    "offset": (),
}


def arrays_of_one(shape: Primitive) -> tuple[Array, ...]:
    """The fields of one shape as floating-point arrays, their dimensions checked."""
    return checked_arrays(shape, type(shape).__name__, many=False)


def checked_arrays(shape: Primitive, where: str, *, many: bool) -> tuple[Array, ...]:
    """The fields of a shape, or of `many`, as floating-point arrays, their dimensions checked."""
    arrays: list[Array] = []
    for one in dataclasses.fields(shape):
        array = jnp.asarray(getattr(shape, one.name))
        expected: tuple[int | str, ...] = _DIMENSIONS[one.name]
        if many:
            count = len(arrays[0]) if arrays else (array.shape or ("m",))[0]
            expected = (count, *expected)
        if array.shape != expected:
            if array.ndim != len(expected) and many:
                expected = ("m", *expected[1:])
            text = ", ".join(map(str, expected)) + ("," if len(expected) == 1 else "")
            raise ArrayError(
                f"{one.name} of {where} has shape {array.shape}, expected ({text}). Obstacles "
                "have a leading axis, of one length in all fields of a kind; the distance of two "
                "shapes takes one of each: batch it with jax.vmap."
            )
        arrays.append(array.astype(jnp.result_type(array.dtype, float)))
    return tuple(arrays)


def _rows(*arrays: ArrayLike) -> Iterator[tuple[Any, ...]]:
    """Rows of several arrays in parallel, on the host."""
    return zip(*(np.asarray(a, float) for a in arrays), strict=True)
