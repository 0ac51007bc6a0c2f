"""Primitives and spheres fitted to surfaces."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final

import numpy as np
import trimesh

from fraxenv.errors import unknown_name

from .. import Robot
from ..geometry.shapes import WORLD, Shape
from .options import Options
from .source import SHELL, SURFACE_POINTS, Array, Element, colours, parts_of
from .write import Looks, header_text, shape_lines

_FIT_POINTS: Final = 1000  # per fit
_CUTS: Final = 8  # places per axis where a shape may be cut in two
_OVERHANG: Final = 0.02  # m, how far an edge may stick out of its sphere
_CLOSE: Final = 1.1  # a fit up to this multiple of the least volume is good enough
_MIN_SIZE: Final = 0.004  # m, of a primitive


def fitted_looks(root: Element, robot: Robot, options: Options) -> Looks:
    """Primitives and spheres fitted to the source's shapes, or to bones where it has none."""
    links = {link.get("name"): link for link in root.iterfind("link")}
    for name in options.bare:
        if name not in links:
            raise unknown_name("link", name, links)
    body_of = {frame.name: frame.body for frame in robot.topology.frames}
    visuals: dict[str, list[tuple[str, Shape]]] = {}
    surfaces: dict[int, list[Array]] = {}
    carrier: dict[int, str] = {}  # the link of a body that its spheres are written to
    poses = {}
    for frame in robot.topology.frames:
        pose = poses[frame.name] = np.eye(4)
        pose[:3, :3], pose[:3, 3] = frame.rotation, frame.position
        for colour, shape in parts_of(links[frame.name], options):
            drawn = [shape] if isinstance(shape, Shape) else _fit_primitives(shape)
            visuals.setdefault(frame.name, []).extend((colour, s) for s in drawn)
            points = _surface(shape) @ frame.rotation.T + frame.position
            surfaces.setdefault(frame.body, []).append(points)
            carrier.setdefault(frame.body, frame.name)
    bones: list[str] = []
    for frame in robot.topology.frames:
        if frame.body not in surfaces and np.array_equal(poses[frame.name], np.eye(4)):
            drawn = _bones(robot, frame.body)
            visuals[frame.name] = [(SHELL[0], bone) for bone in drawn]
            surfaces[frame.body] = [_surface(bone) for bone in drawn]
            carrier[frame.body] = frame.name
            bones.append(frame.name)
    bare = {body_of[name] for name in options.bare}
    spheres = _fit_spheres(
        {b: np.concatenate(s) for b, s in surfaces.items() if b not in bare},
        options.collision_spheres,
    )

    shapes: dict[str, list[str]] = {name: [] for name in links}
    for name, coloured in visuals.items():
        for colour, primitive in coloured:
            shapes[name] += shape_lines("visual", primitive, colour=colour)
    for body, balls in spheres.items():
        link = carrier[body]
        inverse = np.linalg.inv(poses[link])
        for k, ball in enumerate(balls, 1):
            position = inverse[:3, :3] @ ball.position + inverse[:3, 3]
            moved = Shape("sphere", ball.size, position, np.eye(3))
            shapes[link] += shape_lines("collision", moved, name=f"{link}_{k}")
    count = sum(map(len, spheres.values()))
    drawn_count = sum(map(len, visuals.values()))
    return Looks(
        header_text(options, drawn_count, count, bones),
        dict([SHELL]) | colours(root),
        shapes,
        bones,
    )


def _bones(robot: Robot, body: int) -> list[Shape]:
    """Cylinders from a body's frame to its child joints, or to its centre of mass."""
    topology = robot.topology
    ends = list(topology.position[topology.parent == body])
    if not ends and body != WORLD:
        ends = [np.asarray(robot.com)[body]]
    bones = []
    for end in ends:
        length = float(np.linalg.norm(end))
        if length > _MIN_SIZE:
            radius = float(np.clip(0.15 * length, 0.01, 0.06))
            frame = trimesh.geometry.align_vectors([0, 0, 1], end)[:3, :3]
            bones.append(Shape("cylinder", (radius, length), end / 2, frame))
    return bones or [Shape("sphere", (0.02,), np.zeros(3), np.eye(3))]


def _surface(shape: Shape | Array) -> Array:
    """Points (m, 3), m, on a shape's surface."""
    if not isinstance(shape, Shape):
        return shape
    match shape.kind:
        case "sphere":
            mesh = trimesh.creation.icosphere(radius=shape.size[0], subdivisions=2)
        case "cylinder":
            mesh = trimesh.creation.cylinder(radius=shape.size[0], height=shape.size[1])
        case _:
            mesh = trimesh.creation.box(extents=shape.size)
    points, _ = trimesh.sample.sample_surface(mesh, SURFACE_POINTS, seed=0)
    placed: Array = points @ shape.rotation.T + shape.position
    return placed


def _principal_axes(points: Array) -> Array:
    """Principal axes of points: right-handed, orthonormal columns (3, 3)."""
    _, _, rows = np.linalg.svd(points - points.mean(0), full_matrices=False)
    axes = rows.T
    right_handed: Array = axes * np.array([1.0, 1.0, np.sign(np.linalg.det(axes))])
    return right_handed


def _ball(points: Array) -> Shape:
    """The smallest sphere around points, with edges allowed to stick out by `_OVERHANG`."""
    centre = (points.min(0) + points.max(0)) / 2
    for k in range(1, 60):  # Badoiu and Clarkson: step by step towards the farthest point
        centre += (points[np.argmax(((points - centre) ** 2).sum(1))] - centre) / (k + 1)
    distance = np.linalg.norm(points - centre, axis=1)
    radius = max(np.quantile(distance, 0.9), distance.max() - _OVERHANG, _MIN_SIZE)
    return Shape("sphere", (float(radius),), centre, np.eye(3))


def _volume(shape: Shape) -> float:
    """Volume of a shape, m^3."""
    match shape.kind:
        case "sphere":
            return float(4 / 3 * np.pi * shape.size[0] ** 3)
        case "cylinder":
            return float(np.pi * shape.size[0] ** 2 * shape.size[1])
        case _:
            return float(np.prod(shape.size))


def _primitive(points: Array) -> Shape:
    """The box, cylinder or sphere of least volume around points; aligned axes are preferred."""
    candidates = [(1.0, _ball(points))]
    for preference, frame in ((1.0, np.eye(3)), (1.15, _principal_axes(points))):
        local = points @ frame
        low, high = local.min(0), local.max(0)
        centre, extent = (low + high) / 2, np.maximum(high - low, _MIN_SIZE)
        size = tuple(float(x) for x in extent)
        candidates.append((preference, Shape("box", size, frame @ centre, frame)))
        for k in range(3):
            across = np.delete(local - centre, k, axis=1)
            radius = max(float(np.quantile(np.hypot(*across.T), 0.95)), _MIN_SIZE / 2)
            turned = np.roll(frame, 2 - k, axis=1)
            place = frame @ centre, turned
            candidates.append((preference, Shape("cylinder", (radius, size[k]), *place)))
    return min(candidates, key=lambda c: c[0] * _volume(c[1]))[1]


def _best_cut(
    points: Array,
    fit: Callable[[Array], Shape],
    cost: Callable[[Sequence[float]], float] = sum,
    most: int = 2,
) -> tuple[float, list[Array]] | None:
    """The best cut of points across an axis into two to `most` parts, fitted one by one.

    Returns:
        saved cost of volume per added part, m^3, and the parts; None if there are too few points.
    """
    whole = _volume(fit(points))
    best = None
    for axis in np.concatenate([np.eye(3), _principal_axes(points).T]):
        along = points @ axis
        slab = np.digitize(along, np.linspace(along.min(), along.max(), _CUTS + 2)[1:-1])

        @cache
        def volume(start: int, end: int, slab: Array = slab) -> float:
            part = points[(slab >= start) & (slab < end)]
            return _volume(fit(part)) if len(part) > 0.05 * len(points) + 8 else np.inf

        for count in range(2, most + 1):
            for cuts in itertools.combinations(range(1, _CUTS + 1), count - 1):
                bounds = list(itertools.pairwise((0, *cuts, _CUTS + 1)))
                saved = (whole - cost([volume(i, j) for i, j in bounds])) / (count - 1)
                if np.isfinite(saved) and (best is None or saved > best[0]):
                    best = saved, [points[(slab >= i) & (slab < j)] for i, j in bounds]
    return best


def _both_as_the_larger(volumes: Sequence[float]) -> float:
    """A cost of volumes that favours even cuts, and leaves flat shapes, where no cut saves any."""
    return 2 * max(volumes)


def _fit_primitives(points: Array, most: int = 5) -> list[Shape]:
    """The fewest primitives, up to `most`, whose volume comes close to the least."""
    pieces = [points[:: max(1, len(points) // _FIT_POINTS)]]
    fits = [[_primitive(pieces[0])]]
    while len(pieces) < most:
        parts = min(3, most - len(pieces) + 1)
        cuts = [(_best_cut(p, _primitive, most=parts), i) for i, p in enumerate(pieces)]
        best = max(((cut, i) for cut, i in cuts if cut), key=lambda c: c[0][0], default=None)
        if best is None:
            break
        (_, sides), i = best
        pieces[i : i + 1] = sides
        fits.append([_primitive(piece) for piece in pieces])
    volumes = [sum(map(_volume, fit)) for fit in fits]
    return next(f for f, v in zip(fits, volumes, strict=True) if v <= _CLOSE * min(volumes))


def _fit_spheres(surfaces: Mapping[int, Array], count: int) -> dict[int, list[Shape]]:
    """Up to `count` spheres that cover surfaces: one each, then the most wasteful is cut in two."""
    spheres: dict[int, list[Shape]] = {body: [] for body in surfaces}
    order = itertools.count()  # breaks ties, so that arrays are never compared
    heap: list[tuple[float, int, int, Array, list[Array] | None]] = []

    def push(body: int, points: Array) -> None:
        saved, sides = _best_cut(points, _ball, _both_as_the_larger) or (0.0, None)
        heapq.heappush(heap, (-saved, next(order), body, points, sides))

    for body, points in surfaces.items():
        push(body, points[:: max(1, len(points) // _FIT_POINTS)])
    while len(heap) < count and heap[0][0] < 0:
        _, _, body, _, sides = heapq.heappop(heap)
        assert sides is not None
        for side in sides:
            push(body, side)
    for _, _, body, points, _ in sorted(heap, key=lambda entry: entry[1]):
        spheres[body].append(_ball(points))
    return spheres
