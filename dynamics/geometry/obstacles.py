"""What is in the world around a robot, and how it moves."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Real

from fraxenv.errors import ArrayError

from ..math.pytree import pytree_dataclass, static
from .shapes import (
    GREY,
    Bounded,
    Box,
    Capsule,
    Color,
    HalfSpace,
    Primitive,
    Shape,
    Sphere,
    checked_arrays,
)

KINDS: Final[dict[str, type]] = {
    "spheres": Sphere,
    "capsules": Capsule,
    "boxes": Box,
    "half_spaces": HalfSpace,
}
"""Fields of `Obstacles` that are shapes, in the order in which obstacles are counted."""

FAR = 1e3
"""Distance, m, of an obstacle that is not active; it has no derivative."""


@pytree_dataclass
class Obstacles:
    """What is in the world: arrays of shapes, each kind with its own leading axis.

    Everything is data: to move an obstacle changes no program, and distances can be differentiated
    by its pose (`jax.jvp` along its velocity, for one that moves; with `active` closed over, since
    a bool has no tangent).

    Attributes:
        spheres: m1 spheres.
        capsules: m2 capsules.
        boxes: m3 boxes.
        half_spaces: m4 half-spaces.
        active: (m1 + m2 + m3 + m4,) bool, in that order; None if all are. An obstacle that is not
            active is at the distance `FAR` from everything. Its numbers still have to be finite.
        velocity: (m1 + m2 + m3 + m4, 3), m/s, world axes, in that order; None if all are at rest.
        owners: None if every obstacle is in the way of all collision shapes of a robot. Otherwise
            the number of these shapes, and each is in the way of one: of each kind there are
            equally many for every shape, in the shapes' order. `nearest_obstacles` makes them.
    """

    spheres: Sphere | None = None
    capsules: Capsule | None = None
    boxes: Box | None = None
    half_spaces: HalfSpace | None = None
    active: ArrayLike | None = None
    velocity: ArrayLike | None = None
    owners: int | None = static(default=None)


def obstacle_count(obstacles: Obstacles) -> int:
    """How many obstacles a collision shape faces, active or not: columns of `obstacle_distances`.

    Raises:
        ArrayError: arrays of obstacles do not fit together.
    """
    kinds = checked_kinds(obstacles, jnp.result_type(float))
    return sum(count for *_, count in kinds) // (obstacles.owners or 1)


def obstacle_rates(obstacles: Obstacles, dtype: Any = None) -> Obstacles:
    """Time derivatives of the obstacles' positions, ends and offsets, as `velocity` says.

    Its `active` and `velocity` are None: together with obstacles of which the same is true, it is a
    tangent for `jax.jvp`.

    Args:
        obstacles: what is in the world.
        dtype: of the result; that of floats by default.

    Raises:
        ArrayError: arrays of obstacles do not fit together.
    """
    dtype = jnp.result_type(float) if dtype is None else dtype
    kinds = checked_kinds(obstacles, dtype)
    velocity = checked_velocity(obstacles, sum(count for *_, count in kinds), dtype)
    rates: dict[str, Any] = {}
    for (name, shapes, _), v in zip(kinds, split_by_kind(velocity, kinds), strict=True):
        rate = dict.fromkeys(("position", "start", "end"), v)
        if isinstance(shapes, HalfSpace):
            rate["offset"] = jnp.sum(shapes.normal * v, axis=-1)
        fields = {f.name: getattr(shapes, f.name) for f in dataclasses.fields(shapes)}
        rates[name] = type(shapes)(**{k: rate.get(k, jnp.zeros_like(x)) for k, x in fields.items()})
    return Obstacles(**rates, owners=obstacles.owners)


def move_obstacles(obstacles: Obstacles, dt: Real[ArrayLike, ""]) -> Obstacles:
    """The obstacles a time `dt`, s, later, at constant `velocity`.

    Raises:
        ArrayError: arrays of obstacles do not fit together.
    """
    if obstacles.velocity is None:
        return obstacles
    still = dataclasses.replace(obstacles, active=None, velocity=None)
    dtype = jnp.result_type(*jax.tree.leaves(still), float)
    moved: Obstacles = jax.tree.map(
        lambda x, rate: jnp.asarray(x, dtype) + jnp.asarray(dt, dtype) * rate,
        still,
        obstacle_rates(obstacles, dtype),
    )
    return dataclasses.replace(moved, active=obstacles.active, velocity=obstacles.velocity)


def obstacle_shapes(obstacles: Obstacles, rgba: Color = GREY) -> dict[int, Shape]:
    """The obstacles that are active, by their index, to be drawn; but for half-spaces."""
    shapes = [shape for kind in bounded(obstacles).values() for shape in kind.shapes(rgba)]
    active = obstacles.active
    there = np.ones(len(shapes), bool) if active is None else np.asarray(active)
    return {i: shape for i, shape in enumerate(shapes) if there[i]}


def replace_obstacle(obstacles: Obstacles, index: int, shape: Shape) -> Obstacles:
    """The obstacles with a shape of the same kind in the place of one of them, on the host.

    Raises:
        IndexError: there is no such sphere, capsule or box.
    """
    place = index
    for name, kind in bounded(obstacles).items():
        if place < len(kind.centre):
            changed = jax.tree.map(functools.partial(_with_row, place), kind, kind.of(shape))
            return dataclasses.replace(obstacles, **{name: changed})
        place -= len(kind.centre)
    raise IndexError(f"obstacle {index}, expected less than {index - place}")


def obstacle_centres(obstacles: Obstacles) -> Array:
    """(n, 3), m, of the spheres, capsules and boxes."""
    return jnp.concatenate([kind.centre for kind in bounded(obstacles).values()])


def place_obstacles(obstacles: Obstacles, centres: Array) -> Obstacles:
    """The same spheres, capsules and boxes around other centres (n, 3), m."""
    kinds = bounded(obstacles)
    parts = split_by_kind(centres, [(name, kind, len(kind.centre)) for name, kind in kinds.items()])
    moved: dict[str, Any] = {
        name: kind.moved_to(part) for (name, kind), part in zip(kinds.items(), parts, strict=True)
    }
    return dataclasses.replace(obstacles, **moved)


def bounded(obstacles: Obstacles) -> dict[str, Bounded]:
    """The kinds of obstacles there are, by the name of the field; but for half-spaces."""
    kinds = {name: getattr(obstacles, name) for name in KINDS if name != "half_spaces"}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def checked_kinds(obstacles: Obstacles, dtype: Any) -> list[tuple[str, Any, int]]:
    """The kinds of obstacles there are: name of the field, checked shapes and their number."""
    kinds = []
    for name, kind in KINDS.items():
        shapes = getattr(obstacles, name)
        if shapes is not None:
            arrays = checked_arrays(shapes, f"obstacles.{name}", many=True)
            kinds.append((name, kind(*(x.astype(dtype) for x in arrays)), len(arrays[0])))
    return kinds


def split_by_kind(x: Array, kinds: list[tuple[str, Any, int]]) -> list[Array]:
    """What `x` (m, ...) says of all obstacles, kind by kind."""
    ends = np.cumsum([count for *_, count in kinds], dtype=int)
    return [x[end - count : end] for end, (*_, count) in zip(ends, kinds, strict=True)]


def moved_away(shapes: Primitive, which: Array) -> Primitive:
    """The same, some of them moved away by `FAR`."""
    changes: dict[str, Array] = {}
    for field_ in dataclasses.fields(shapes):
        x = jnp.asarray(getattr(shapes, field_.name))
        if field_.name in ("position", "start", "end"):
            changes[field_.name] = x.at[:, 0].set(jnp.where(which, x[:, 0] + FAR, x[:, 0]))
        elif field_.name == "offset":
            changes[field_.name] = jnp.where(which, x - FAR, x)
    return dataclasses.replace(shapes, **changes)


def checked_active(obstacles: Obstacles, count: int) -> Array | None:
    """The mask of the obstacles, checked."""
    if obstacles.active is None:
        return None
    active = jnp.asarray(obstacles.active)
    if active.shape != (count,) or active.dtype != bool:
        raise ArrayError(
            f"active of Obstacles has shape {active.shape} and dtype {active.dtype}, expected "
            f"({count},) and bool: one per sphere, capsule, box and half-space, in that order."
        )
    return active


def checked_velocity(obstacles: Obstacles, count: int, dtype: Any) -> Array:
    """The velocities of the obstacles, checked; zero if there are none."""
    if obstacles.velocity is None:
        return jnp.zeros((count, 3), dtype)
    velocity = jnp.asarray(obstacles.velocity, dtype)
    if velocity.shape != (count, 3):
        raise ArrayError(
            f"velocity of Obstacles has shape {velocity.shape}, expected ({count}, 3): one per "
            "sphere, capsule, box and half-space, in that order."
        )
    return velocity


def _with_row(index: int, array: ArrayLike, row: ArrayLike) -> np.ndarray:
    changed = np.array(array)
    changed[index] = row
    return changed
