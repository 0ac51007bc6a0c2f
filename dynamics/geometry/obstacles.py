"""Obstacles in the world around a robot, and their motion."""

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
"""Distance, m, of an inactive obstacle, a constant."""


@pytree_dataclass
class Obstacles:
    """Obstacles in the world: arrays of shapes, each kind with its own leading axis.

    All fields but `owners` are data: moving an obstacle needs no recompilation, and distances can
    be differentiated by its pose (for a moving one, `jax.jvp` along its velocity, with `active`
    closed over, since a bool has no tangent).

    Attributes:
        spheres: m1 spheres.
        capsules: m2 capsules.
        boxes: m3 boxes.
        half_spaces: m4 half-spaces.
        active: (m1 + m2 + m3 + m4,) bool, in that order; None if all are active. An inactive
            obstacle is at the distance `FAR` from everything. Its numbers still have to be finite.
        velocity: (m1 + m2 + m3 + m4, 3), m/s, world axes, in that order; None if all are at rest.
        walls: (2, 3), m, the lowest and the highest corner of a box: where the centre of a sphere,
            capsule or box that moves comes to a side of it, it turns back; None for no walls.
        owners: None if every obstacle counts for all collision shapes of a robot. Otherwise the
            number of these shapes, and each obstacle counts for one of them: each kind has equally
            many for every shape, ordered by shape, as `nearest_obstacles` makes them.
    """

    spheres: Sphere | None = None
    capsules: Capsule | None = None
    boxes: Box | None = None
    half_spaces: HalfSpace | None = None
    active: ArrayLike | None = None
    velocity: ArrayLike | None = None
    walls: ArrayLike | None = None
    owners: int | None = static(default=None)


def obstacle_count(obstacles: Obstacles) -> int:
    """Number of obstacles per collision shape, active or not: columns of `obstacle_distances`.

    Raises:
        ArrayError: arrays of obstacles do not fit together.
    """
    kinds = checked_kinds(obstacles, jnp.result_type(float))
    return sum(count for *_, count in kinds) // (obstacles.owners or 1)


def obstacle_rates(obstacles: Obstacles, dtype: Any = None) -> Obstacles:
    """Time derivatives of the obstacles' positions, ends and offsets, from `velocity`.

    `active`, `velocity` and `walls` of the result are None: it is a tangent for `jax.jvp` of
    obstacles without these three. Walls change nothing here: who comes to one turns in no time.

    Args:
        obstacles: the obstacles in the world.
        dtype: dtype of the result; JAX's default float if omitted.

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
    """The obstacles after a time `dt`, s, at constant `velocity` but that `walls` turn them back.

    Raises:
        ArrayError: arrays of obstacles do not fit together.
    """
    if obstacles.velocity is None:
        return obstacles
    still = dataclasses.replace(obstacles, active=None, velocity=None, walls=None)
    dtype = jnp.result_type(*jax.tree.leaves(still), float)
    dt = jnp.asarray(dt, dtype)
    velocity, way = _motion(obstacles, dt, dtype)
    ways = obstacle_rates(dataclasses.replace(obstacles, velocity=way), dtype)
    moved: Obstacles = jax.tree.map(lambda x, way: jnp.asarray(x, dtype) + way, still, ways)
    return dataclasses.replace(
        moved, active=obstacles.active, velocity=velocity, walls=obstacles.walls
    )


def _motion(obstacles: Obstacles, dt: Array, dtype: Any) -> tuple[Array, Array]:
    """Velocities (m, 3), m/s, after a time `dt`, s, and how far (m, 3), m, obstacles have come."""
    count = sum(count for *_, count in checked_kinds(obstacles, dtype))
    velocity = checked_velocity(obstacles, count, dtype)
    way = dt * velocity
    if obstacles.walls is None or not bounded(obstacles):
        return velocity, way
    low, high = checked_walls(obstacles, dtype)
    centre = obstacle_centres(obstacles).astype(dtype)
    n = len(centre)  # half-spaces, the last ones, have none
    # Who is outside turns back where it is.
    bottom, top = jnp.minimum(low, centre), jnp.maximum(high, centre)
    length, straight = top - bottom, centre - bottom + way[:n]
    room = jnp.where(length > 0, length, 1.0)
    there = straight - 2 * room * jnp.floor(straight / (2 * room))
    turned = there > room
    come = jnp.where(turned, 2 * room - there, there)
    hit = (straight < 0) | (straight > length)
    after = jnp.where(hit & turned, -velocity[:n], velocity[:n])
    back = jnp.where(hit, way[:n] + (come - straight), way[:n])
    return velocity.at[:n].set(after), way.at[:n].set(back)


def grown_obstacles(obstacles: Obstacles, by: ArrayLike | None) -> Obstacles:
    """The obstacles, larger on all sides by `by` (m,), m; boxes along their axes.

    Args:
        obstacles: the obstacles in the world.
        by: for each sphere, capsule, box and half-space, in that order; None for nothing.

    Raises:
        ArrayError: arrays of obstacles do not fit together.
    """
    if by is None:
        return obstacles
    dtype = jnp.result_type(by, float)
    kinds = checked_kinds(obstacles, dtype)
    grown: dict[str, Any] = {}
    for (name, shapes, _), more in zip(
        kinds, split_by_kind(jnp.asarray(by, dtype), kinds), strict=True
    ):
        size = {Box: "half_extents", HalfSpace: "offset"}.get(type(shapes), "radius")
        old = getattr(shapes, size)
        new = old + more.reshape(more.shape + (1,) * (old.ndim - 1))
        grown[name] = dataclasses.replace(shapes, **{size: new})
    return dataclasses.replace(obstacles, **grown)


def obstacle_shapes(obstacles: Obstacles, rgba: Color = GREY) -> dict[int, Shape]:
    """Shapes to draw of the active obstacles, by index; half-spaces are left out."""
    shapes = [shape for kind in bounded(obstacles).values() for shape in kind.shapes(rgba)]
    active = obstacles.active
    there = np.ones(len(shapes), bool) if active is None else np.asarray(active)
    return {i: shape for i, shape in enumerate(shapes) if there[i]}


def replace_obstacle(obstacles: Obstacles, index: int, shape: Shape) -> Obstacles:
    """The obstacles with one of them replaced by a shape of the same kind, on the host.

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
    """Centres (n, 3), m, of the spheres, capsules and boxes."""
    return jnp.concatenate([kind.centre for kind in bounded(obstacles).values()])


def place_obstacles(obstacles: Obstacles, centres: Array) -> Obstacles:
    """The obstacles with spheres, capsules and boxes moved to `centres` (n, 3), m."""
    kinds = bounded(obstacles)
    parts = split_by_kind(centres, [(name, kind, len(kind.centre)) for name, kind in kinds.items()])
    moved: dict[str, Any] = {
        name: kind.moved_to(part) for (name, kind), part in zip(kinds.items(), parts, strict=True)
    }
    return dataclasses.replace(obstacles, **moved)


def bounded(obstacles: Obstacles) -> dict[str, Bounded]:
    """Spheres, capsules and boxes among the obstacles, by the name of the field."""
    kinds = {name: getattr(obstacles, name) for name in KINDS if name != "half_spaces"}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def checked_kinds(obstacles: Obstacles, dtype: Any) -> list[tuple[str, Any, int]]:
    """The present kinds of obstacles: name of the field, checked shapes and their number."""
    kinds = []
    for name, kind in KINDS.items():
        shapes = getattr(obstacles, name)
        if shapes is not None:
            arrays = checked_arrays(shapes, f"obstacles.{name}", many=True)
            kinds.append((name, kind(*(x.astype(dtype) for x in arrays)), len(arrays[0])))
    return kinds


def split_by_kind(x: Array, kinds: list[tuple[str, Any, int]]) -> list[Array]:
    """Rows `x` (m, ...) of all obstacles, split by kind."""
    ends = np.cumsum([count for *_, count in kinds], dtype=int)
    return [x[end - count : end] for end, (*_, count) in zip(ends, kinds, strict=True)]


def moved_away(shapes: Primitive, which: Array) -> Primitive:
    """The shapes, those marked in `which` (m,) moved away by `FAR`."""
    changes: dict[str, Array] = {}
    for field_ in dataclasses.fields(shapes):
        x = jnp.asarray(getattr(shapes, field_.name))
        if field_.name in ("position", "start", "end"):
            changes[field_.name] = x.at[:, 0].set(jnp.where(which, x[:, 0] + FAR, x[:, 0]))
        elif field_.name == "offset":
            changes[field_.name] = jnp.where(which, x - FAR, x)
    return dataclasses.replace(shapes, **changes)


def checked_active(obstacles: Obstacles, count: int) -> Array | None:
    """`active` (count,) as an array, checked."""
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
    """`velocity` (count, 3), m/s, as an array, checked; zero if it is None."""
    if obstacles.velocity is None:
        return jnp.zeros((count, 3), dtype)
    velocity = jnp.asarray(obstacles.velocity, dtype)
    if velocity.shape != (count, 3):
        raise ArrayError(
            f"velocity of Obstacles has shape {velocity.shape}, expected ({count}, 3): one per "
            "sphere, capsule, box and half-space, in that order."
        )
    return velocity


def checked_walls(obstacles: Obstacles, dtype: Any) -> Array:
    """`walls` (2, 3), m, as an array, checked."""
    walls = jnp.asarray(obstacles.walls, dtype)
    if walls.shape != (2, 3):
        raise ArrayError(
            f"walls of Obstacles has shape {walls.shape}, expected (2, 3): the lowest and the "
            "highest corner of the box that obstacles do not leave."
        )
    return walls


def _with_row(index: int, array: ArrayLike, row: ArrayLike) -> np.ndarray:
    changed = np.array(array)
    changed[index] = row
    return changed
