"""Shapes: what robots carry, and the numbers that distances are taken of.

A `Shape` is static, in URDF's conventions. A `Sphere`, `Capsule`, `Box` or `HalfSpace` is a pytree
of numbers, one or many of them in arrays, to be moved and differentiated.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.errors import ArrayError

ShapeKind = Literal["sphere", "cylinder", "box"]


@dataclass(frozen=True)
class Shape:
    """A geometric primitive fixed to a body, in URDF's conventions.

    Attributes:
        name: unique among the collision shapes of a robot; may be empty for visual ones.
        kind: "sphere", "cylinder" (along z) or "box".
        size: sphere (radius,), cylinder (radius, length), box (x, y, z) full extents, m.
        body: index of the body it moves with, `WORLD` if it does not move.
        position: (3,), m, in the body's frame.
        rotation: (3, 3), shape to body.
        rgba: colour, each in [0, 1].
    """

    name: str
    kind: ShapeKind
    size: tuple[float, ...]
    body: int
    position: np.ndarray
    rotation: np.ndarray
    rgba: tuple[float, float, float, float] = (0.7, 0.7, 0.7, 1.0)


def enclosing_capsule(shape: Shape) -> tuple[np.ndarray, np.ndarray, float]:
    """Ends, in the body's frame, and radius of the capsule that encloses a shape."""
    centre = np.asarray(shape.position, float)
    if shape.kind == "sphere":
        return centre, centre, shape.size[0]
    if shape.kind == "cylinder":
        radius, length = shape.size
        half = np.array([0.0, 0.0, length / 2])
    else:
        edges = np.array(shape.size) / 2
        longest = np.argmax(edges)
        # The axis may end short of the face, by `inset`, if the radius is enough for the corner.
        inset = np.linspace(0.0, edges[longest], 201)
        radii = np.sqrt(edges @ edges - edges[longest] ** 2 + inset**2)
        volume = radii**2 * (2 * (edges[longest] - inset) + 4 / 3 * radii)
        least = np.argmin(volume)
        radius = float(radii[least])
        half = np.where(np.arange(3) == longest, edges[longest] - inset[least], 0.0)
    along = np.asarray(shape.rotation, float) @ half
    return centre - along, centre + along, radius


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sphere:
    """A sphere, or m of them in arrays with a leading axis m.

    Attributes:
        position: (3,), m, of the centre.
        radius: (), m.
    """

    position: ArrayLike
    radius: ArrayLike


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
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


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
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


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class HalfSpace:
    """The solid points x with `normal . x <= offset`, or m of them with a leading axis m.

    Attributes:
        normal: (3,), unit, pointing out of the solid.
        offset: (), m, of the surface along the normal.
    """

    normal: ArrayLike
    offset: ArrayLike


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
    """The fields of a shape, checked to be those of one shape."""
    return checked_arrays(shape, type(shape).__name__, many=False)


def checked_arrays(shape: Primitive, where: str, *, many: bool) -> tuple[Array, ...]:
    """The fields of a shape, or of many, as arrays of floating-point numbers, checked."""
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
