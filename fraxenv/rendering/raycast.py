"""A small headless renderer for robots made of primitives: analytic ray casting in NumPy.

How a frame is made. Every shape is intersected with the rays of its own screen rectangle, four
rays a pixel, into one z-buffer that remembers which face of which shape is in front. Colours are
computed afterwards, once for a pixel that sees one face and four times for a pixel on an edge.
The ground z = 0, the background and the rays depend on the camera only and are cached. Shadows
come from the same intersection code, with the rays of the light through a grid on the ground.

Units are metres and radians (the field of view: degrees), the world's z axis points up, arrays are
float32 wherever their size depends on the picture. Equal input gives equal bytes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .stacked import CameraKey, Point, Stacked, look

_F32 = NDArray[np.float32]
_F64 = NDArray[np.float64]
_Codes = NDArray[np.int32]
_Index = NDArray[np.intp]
_T = TypeVar("_T", bound=np.generic)

_NEAR: Final = 1e-3  # m; nothing closer to the eye's plane is drawn
_NOTHING: Final = -1  # code of a ray that meets no shape
_FACES: Final = 4  # codes a shape owns: one for every face that needs a normal of its own

# Towards the key light, fixed in the world: high, so that every azimuth of the camera looks good.
_LIGHT: Final[_F64] = np.array([0.36, -0.42, 0.83]) / math.sqrt(0.36**2 + 0.42**2 + 0.83**2)
_CHECKER: Final = 0.25  # m, side of a square of the ground

# Display colours (gamma 2, so that squaring one gives linear light).
_SKY: Final = np.array([[0.80, 0.855, 0.92], [0.955, 0.96, 0.965]], np.float32)  # top, bottom
_GROUND: Final = np.array([[0.875, 0.885, 0.895], [0.825, 0.837, 0.852]], np.float32)
_SHADOW_TINT: Final = np.array([0.48, 0.45, 0.40], np.float32)  # loss of colour in full shadow
_WARM: Final = np.array([[0.62], [0.60], [0.565]], np.float32)  # colour of the key light
_COOL: Final = np.array([[0.97], [1.0], [1.05]], np.float32)  # colour of other light

_TEXELS: Final = 240  # at most, from the target to the edge of the picture
_WINDOW: Final = 600  # texels from the target to where shadows end
_MARGIN: Final = 22  # texels around the shadows, for their soft edges


class _View(NamedTuple):
    """Rays, ground and background of a camera and a picture size, whatever the shapes are.

    The ray of sample (i, j) has the direction `rows[:, i] + columns[:, j]`, in the world; its
    component along the optical axis is one, so that ray parameters are depths.
    """

    eye: _F64
    frame: _F64  # (3, 3) rows: right, up, forward
    tangent: tuple[float, float]  # of the half angle of view: x, y
    columns: _F32  # (3, 2 W) of the samples' rays
    rows: _F32  # (3, 2 H) of the samples' rays
    pixel_columns: _F32  # (3, W) of the rays through the centres of the pixels
    pixel_rows: _F32  # (3, H) of the rays through the centres of the pixels
    depth: _F32  # (2 H, 2 W) of the ground, inf where the ground is not seen
    background: _F32  # (H, W, 3) picture of ground and sky, display colours
    shade: _F32  # (H, W) visibility of shadows on the ground, 0 to 1
    ground: _F32  # (2, H, W) x and y of the ground in the world
    texel: float  # m, resolution of the shadows
    fineness: float  # of the shadows: one for large pictures, less for small ones
    centre: tuple[float, float]  # of the window of the shadows, on the ground


class _Hits(NamedTuple):
    """Where rays enter a shape and leave it, parameters; faces of a shape with several."""

    t: _F32  # NaN for misses
    leave: _F32  # anything for misses
    face: _Codes | None


class _Fragments(NamedTuple):
    """The shapes seen in m different pixels, averaged over the samples that see a shape."""

    pixel: _Index  # flat index
    share: _F32  # of the pixel's area
    reach: _F32  # depth
    colour: _F32  # (m, 3)


class _Shadows(NamedTuple):
    """Shadow map: the surfaces that the key light meets, on a grid of the ground."""

    origin: tuple[float, float]  # world x, y of the texel (0, 0)
    texel: float  # m, between neighbours
    top: _F32  # (v, u) distance from the ground to the highest opaque surface, along the light
    ground: _F32  # (v / 2, u / 2) share of the light that shapes keep from the ground


def draw(scene: Stacked, camera: CameraKey, width: int, height: int) -> NDArray[np.uint8]:
    """Draw shapes over a ground plane z = 0.

    Opaque shapes hide what is behind them, translucent ones are blended over the opaque picture
    from back to front, fragment by fragment. Shapes cast shadows on the ground and on each other.
    A shape that contains the eye is not drawn, and the ground is drawn from above only.

    Args:
        scene: the shapes, in any order.
        camera: where to look from.
        width: of the picture, pixels.
        height: of the picture, pixels.

    Returns:
        A fresh array (height, width, 3), uint8.
    """
    # NaN marks rays that miss, and scenes out of all scale overflow: neither deserves a warning.
    with np.errstate(all="ignore"):
        return _draw(scene, _view(*camera, width, height))


# --- Rays, ground and background of a camera ------------------------------------------------------


@functools.lru_cache(maxsize=8)
def _view(eye: Point, target: Point, fov: float, width: int, height: int) -> _View:
    """Rays, ground and background of a camera; the arrays are read-only since they are shared."""
    gaze = np.subtract(target, eye)
    distance = float(np.linalg.norm(gaze))
    frame = look(gaze / distance)
    tangent_y = math.tan(math.radians(fov) / 2)
    tangent_x = tangent_y * width / height

    # Samples of a pixel: a 2 x 2 grid turned by 27 degrees, which gives edges near the horizontal
    # and the vertical twice the steps. Its shear still splits into a column and a row term.
    right, up, forward = frame
    pixel_x, pixel_y = 2 * tangent_x / width, -2 * tangent_y / height
    column, row = np.arange(2 * width), np.arange(2 * height)
    x = ((column + 0.5) / width - 1.0) * tangent_x
    y = (1.0 - (row + 0.5) / height) * tangent_y
    across = np.outer(right, x) + np.outer(up, (column % 2 - 0.5) * -0.25 * pixel_y)
    down = forward[:, None] + np.outer(up, y) + np.outer(right, (row % 2 - 0.5) * 0.25 * pixel_x)
    columns, rows = across.astype(np.float32), down.astype(np.float32)

    pixel_columns, pixel_rows = _halve(columns), _halve(rows)
    background, shade, ground = _backdrop(eye, target, pixel_columns, pixel_rows)
    slant = _LIGHT[:2] / _LIGHT[2]
    fineness = min(max(height / 2 / _TEXELS, 0.5), 1.0)
    view = _View(
        eye=np.asarray(eye),
        frame=frame,
        tangent=(tangent_x, tangent_y),
        columns=columns,
        rows=rows,
        pixel_columns=pixel_columns,
        pixel_rows=pixel_rows,
        depth=_ground_depth(eye[2], columns, rows),
        background=background,
        shade=shade,
        ground=ground,
        texel=distance * min(tangent_y, 1.0) / (fineness * _TEXELS),
        fineness=fineness,
        centre=(target[0] - target[2] * slant[0], target[1] - target[2] * slant[1]),
    )
    for field in view:
        if isinstance(field, np.ndarray):
            field.setflags(write=False)
    return view


def _backdrop(eye: Point, target: Point, columns: _F32, rows: _F32) -> tuple[_F32, _F32, _F32]:
    """Picture of sky and ground (H, W, 3), its visibility (H, W), and its x and y (2, H, W)."""
    depth = _ground_depth(eye[2], columns, rows)
    level = np.linspace(0.0, 1.0, rows.shape[1], dtype=np.float32)[:, None, None] ** 0.8
    sky = _SKY[0] + (_SKY[1] - _SKY[0]) * level
    reach = np.where(np.isfinite(depth), depth, np.float32(0.0))
    ground = np.stack(
        [np.float32(eye[k]) + reach * np.add.outer(rows[k], columns[k]) for k in (0, 1)]
    )
    # The ground fades away from the target, on the scale of the distance from which it is seen.
    away = [(ground[k] - np.float32(target[k])) ** 2 for k in (0, 1)]
    fade = (away[0] + away[1]) / np.float32((1.6 * math.dist(eye, target)) ** 2)
    shade = np.where(np.isfinite(depth), np.exp(-fade * fade), np.float32(0.0))
    tone = np.float32(0.5) + np.float32(0.5) * _stripes(ground[0]) * _stripes(ground[1])
    colour = _GROUND[0] + (_GROUND[1] - _GROUND[0]) * tone[..., None]
    return sky + (colour - sky) * shade[..., None], shade, ground


def _ground_depth(height: float, columns: _F32, rows: _F32) -> _F32:
    """Depth of the ground along each ray, (h, w); inf where the ground is not seen."""
    fall = np.add.outer(rows[2], columns[2])
    seen = (fall < 0.0) & (height > 0.0)
    depth: _F32 = np.full_like(fall, np.inf)
    np.divide(np.float32(-height), fall, out=depth, where=seen)
    return depth


def _stripes(x: _F32) -> _F32:
    """Square wave of +-1 over the ground, averaged over the footprint of a pixel.

    Unaveraged, the squares would turn to noise far away.
    """
    steps = [np.abs(np.gradient(x, axis=k)) for k in (0, 1) if x.shape[k] > 1]
    width = functools.reduce(np.maximum, steps, np.full_like(x, 1e-4)) / np.float32(_CHECKER)

    def integral(u: _F32) -> _F32:
        return np.abs(np.mod(u, np.float32(2.0)) - np.float32(1.0))

    u = x / np.float32(_CHECKER)
    half = width * np.float32(0.5)
    return (integral(u + half) - integral(u - half)) / width


def _halve(vectors: _F32) -> _F32:
    """Columns or rows of the pixels' rays (3, n), the means of the samples' (3, 2 n)."""
    return (vectors[:, 0::2] + vectors[:, 1::2]) * np.float32(0.5)


# --- Intersections --------------------------------------------------------------------------------
#
# Each function takes a shape's core and radius, as in `Stacked`, and the components of rays p + t d
# in the shape's frame; components broadcast. Origins near the shape keep float32 accurate.

_Vector = tuple[_F32, _F32, _F32]
_TINY: Final = np.float32(1e-12)  # keeps divisions finite for rays parallel to a face or an axis


def _hit_sphere(core: _F32, radius: np.float32, p: _Vector, d: _Vector) -> _Hits:
    a = d[0] * d[0] + d[1] * d[1] + d[2] * d[2]
    b = p[0] * d[0] + p[1] * d[1] + p[2] * d[2]
    c = p[0] * p[0] + p[1] * p[1] + p[2] * p[2] - radius * radius
    root = np.sqrt(b * b - a * c)
    return _Hits(-(b + root) / a, (root - b) / a, None)


def _hit_capsule(core: _F32, radius: np.float32, p: _Vector, d: _Vector) -> _Hits:
    half = core[2]
    side, side_out = _side(radius, p, d)
    z, z_out = p[2] + side * d[2], p[2] + side_out * d[2]
    cap = _hit_sphere(core, radius, (p[0], p[1], p[2] - np.copysign(half, z)), d)
    far = _hit_sphere(core, radius, (p[0], p[1], p[2] - np.copysign(half, z_out)), d)
    enter = np.where(np.abs(z) < half, side, cap.t)
    return _Hits(enter, np.where(np.abs(z_out) < half, side_out, far.leave), None)


def _hit_cylinder(core: _F32, radius: np.float32, p: _Vector, d: _Vector) -> _Hits:
    side, side_out = _side(radius, p, d)
    cap, cap_out = _slab(core[2], p[2], d[2])
    enter, leave = np.maximum(side, cap), np.minimum(side_out, cap_out)
    return _Hits(np.where(enter < leave, enter, np.nan), leave, (cap > side).astype(np.int32))


def _hit_box(core: _F32, radius: np.float32, p: _Vector, d: _Vector) -> _Hits:
    (x, x_out), (y, y_out), (z, z_out) = (_slab(core[k], p[k], d[k]) for k in range(3))
    xy = np.maximum(x, y)
    enter = np.maximum(xy, z)
    leave = np.minimum(np.minimum(x_out, y_out), z_out)
    face = np.where(z > xy, np.int32(2), (y > x).astype(np.int32))
    return _Hits(np.where(enter < leave, enter, np.nan), leave, face)


def _side(radius: np.float32, p: _Vector, d: _Vector) -> tuple[_F32, _F32]:
    """Ray parameters at which rays enter and leave the infinite cylinder around z."""
    a = d[0] * d[0] + d[1] * d[1] + _TINY
    b = p[0] * d[0] + p[1] * d[1]
    c = p[0] * p[0] + p[1] * p[1] - radius * radius
    root = np.sqrt(b * b - a * c)
    return -(b + root) / a, (root - b) / a


def _slab(half: np.float32, p: _F32, d: _F32) -> tuple[_F32, _F32]:
    """Ray parameters at which rays enter and leave the slab between two planes."""
    inverse = np.float32(1.0) / (d + _TINY)
    middle, span = -p * inverse, half * np.abs(inverse)
    return middle - span, middle + span


_HIT: Final[dict[str, Callable[[_F32, np.float32, _Vector, _Vector], _Hits]]] = {
    "sphere": _hit_sphere,
    "capsule": _hit_capsule,
    "cylinder": _hit_cylinder,
    "box": _hit_box,
}


def _spread(columns: _F32, rows: _F32) -> _Vector:
    """Components (h, w) of the sums of all column vectors (3, w) and all row vectors (3, h)."""
    x, y, z = (rows[k][:, None] + columns[k][None, :] for k in range(3))
    return x, y, z


_Rect = tuple[int, int, int, int]  # row start, row stop, column start, column stop


def _camera_hits(scene: Stacked, view: _View, i: int, rect: _Rect) -> _Hits:
    """Depths at which the rays of a rectangle enter shape i, NaN for misses."""
    top, bottom, left, right = rect
    to_shape = scene.rotation[i].T.astype(np.float32)
    columns, rows = to_shape @ view.columns[:, left:right], to_shape @ view.rows[:, top:bottom]
    offset = scene.position[i] - view.eye
    shift = np.float32(max(_NEAR, offset @ view.frame[2]))  # rays start this deep
    origin = (-scene.rotation[i].T @ offset).astype(np.float32)[:, None]
    p = _spread(shift * columns, shift * rows + origin)
    hits = _HIT[scene.kind[i]](
        scene.core[i].astype(np.float32), np.float32(scene.radius[i]), p, _spread(columns, rows)
    )
    return hits._replace(t=hits.t + shift)


def _light_span(scene: Stacked, i: int, x: _F64, y: _F64) -> tuple[_F32, _F32]:
    """Distances along the light at which rays from the ground enter and leave shape i.

    (len(y), len(x)), m, from the ground points (x, y) towards the light; the first NaN for misses.
    """
    hit, core, radius = _HIT[scene.kind[i]], scene.core[i].astype(np.float32), scene.radius[i]
    to_shape = scene.rotation[i].T
    shift = scene.position[i, 2] / _LIGHT[2]  # rays start at the height of the shape
    origin = to_shape @ (shift * _LIGHT - scene.position[i])
    columns = np.outer(to_shape[:, 0], x).astype(np.float32)
    rows = (np.outer(to_shape[:, 1], y) + origin[:, None]).astype(np.float32)
    p = _spread(columns, rows)
    up = (to_shape @ _LIGHT).astype(np.float32)[:, None]
    hits = hit(core, np.float32(radius), p, (up[0], up[1], up[2]))
    return np.float32(shift) + hits.t, np.float32(shift) + hits.leave


# --- Frame ----------------------------------------------------------------------------------------


def _draw(scene: Stacked, view: _View) -> NDArray[np.uint8]:
    rects = _rectangles(scene, view)
    alpha = scene.rgba[:, 3]
    opaque = {i: rect for i, rect in rects.items() if alpha[i] == 1.0}
    translucent = {i: rect for i, rect in rects.items() if 0.0 < alpha[i] < 1.0}

    shadows = _shadows(scene, view)
    image = _lit_ground(view, shadows)
    canvas = image.reshape(-1, 3)
    seen = _union(opaque.values()) if opaque else (0, 0, 0, 0)
    depth = view.depth[_window(seen)].copy()
    code = np.full(depth.shape, _NOTHING, np.int32)
    for i, rect in opaque.items():
        window = _window(rect, seen)
        _cover(scene, view, i, rect, depth[window], code[window])
    if opaque:
        part = _resolve(scene, view, shadows, seen, depth, code)
        _blend(canvas, part.pixel, part.share, part.colour)
    if translucent:
        nearest = view.depth.copy()
        nearest[_window(seen)] = depth
        _paint_translucent(scene, view, shadows, translucent, nearest, canvas)
    np.clip(image, 0.0, 1.0, out=image)
    return (image * np.float32(255.0) + np.float32(0.5)).astype(np.uint8)


def _rectangles(scene: Stacked, view: _View) -> dict[int, _Rect]:
    """The rectangle of samples, in whole pixels, that each shape in sight can cover."""
    corners = (scene.bounds - view.eye) @ view.frame.T
    radius = scene.radius[:, None]
    z = corners[..., 2]
    behind = (z + radius < _NEAR).all(axis=1)
    # A ball that touches the plane of the eye may cover anything.
    close = (z - radius < _NEAR).any(axis=1)
    height, width = view.background.shape[:2]
    spans = []
    for axis, size, sign in ((1, height, -1.0), (0, width, 1.0)):
        # The two tangents from the eye to the ball's circle in the plane of this axis.
        x = sign * corners[..., axis]
        square = z * z - radius * radius
        reach = radius * np.sqrt(np.maximum(x * x + square, 0.0))
        scale = size / 2 / view.tangent[axis == 1]
        low = ((x * z - reach) / square).min(axis=1) * scale + size / 2
        high = ((x * z + reach) / square).max(axis=1) * scale + size / 2
        any_pixel = close | ~np.isfinite(low + high)
        low = np.where(any_pixel, 0.0, np.clip(np.floor(low - 0.5), 0.0, size))
        high = np.where(any_pixel, size, np.clip(np.ceil(high + 0.5), 0.0, size))
        spans += [2 * low.astype(int), 2 * high.astype(int)]
    top, bottom, left, right = spans
    seen = ~behind & (top < bottom) & (left < right)
    return {
        int(i): (int(top[i]), int(bottom[i]), int(left[i]), int(right[i]))
        for i in np.flatnonzero(seen)
    }


def _union(rects: Iterable[_Rect]) -> _Rect:
    top, bottom, left, right = zip(*rects, strict=True)
    return min(top), max(bottom), min(left), max(right)


def _window(rect: _Rect, within: _Rect = (0, 0, 0, 0)) -> tuple[slice, slice]:
    top, left = within[0], within[2]
    return slice(rect[0] - top, rect[1] - top), slice(rect[2] - left, rect[3] - left)


def _cover(scene: Stacked, view: _View, i: int, rect: _Rect, depth: _F32, code: _Codes) -> None:
    """Write the depths and codes of shape i into its rectangle, where the shape is in front."""
    hits = _camera_hits(scene, view, i, rect)
    front = (hits.t < depth) & (hits.t > _NEAR)
    first = np.int32(i * _FACES)
    np.copyto(depth, hits.t, where=front)
    np.copyto(code, first if hits.face is None else first + hits.face, where=front)


def _samples(grid: NDArray[_T]) -> list[NDArray[_T]]:
    """The four samples of every pixel, a flat array each."""
    return [grid[y::2, x::2].ravel() for y in (0, 1) for x in (0, 1)]


def _total(samples: list[_F32]) -> _F32:
    return samples[0] + samples[1] + samples[2] + samples[3]


def _resolve(
    scene: Stacked, view: _View, shadows: _Shadows, rect: _Rect, depth: _F32, code: _Codes
) -> _Fragments:
    """Colour the samples of a rectangle. Pixels that see one face only are coloured once."""
    depths, codes = _samples(depth), _samples(code)
    same = (codes[0] == codes[1]) & (codes[0] == codes[2]) & (codes[0] == codes[3])
    plain = np.flatnonzero(same & (codes[0] >= 0))
    edge = np.flatnonzero(~same)
    parts = [(plain, np.float32(0.25) * _total([d[plain] for d in depths]), codes[0][plain])]
    for reach, face in zip(depths, codes, strict=True):
        pixel = edge[face[edge] >= 0]
        parts.append((pixel, reach[pixel], face[pixel]))
    pixels, reaches, faces = zip(*parts, strict=True)
    reach, face = np.concatenate(reaches), np.concatenate(faces)
    colour = _shade(scene, view, shadows, rect, np.concatenate(pixels), reach, face)

    # Depth, colour and share of each pixel, summed over its fragments.
    sums = np.zeros((len(same), 5), np.float32)
    values = np.column_stack([reach, colour, np.ones_like(reach)])
    stop = 0
    for (pixel, _, _), weight in zip(parts, (1.0, 0.25, 0.25, 0.25, 0.25), strict=True):
        start, stop = stop, stop + len(pixel)
        sums[pixel] += np.float32(weight) * values[start:stop]
    pixel = np.concatenate([plain, edge[sums[edge, 4] > 0.0]])
    sums = sums[pixel]
    row, column = np.divmod(pixel, (rect[3] - rect[2]) // 2)
    flat = (row + rect[0] // 2) * view.background.shape[1] + column + rect[2] // 2
    share = sums[:, 4]
    return _Fragments(flat, share, sums[:, 0] / share, sums[:, 1:4] / share[:, None])


def _blend(canvas: _F32, pixel: _Index, share: _F32, colour: _F32) -> None:
    """Lay colours (m, 3) over the different pixels of a flat picture (H W, 3)."""
    canvas[pixel] += share[:, None] * (colour - canvas[pixel])


def _paint_translucent(
    scene: Stacked,
    view: _View,
    shadows: _Shadows,
    rects: dict[int, _Rect],
    depth: _F32,
    canvas: _F32,
) -> None:
    """Blend the translucent shapes over the opaque picture, the farthest fragment first."""
    parts = []
    for i, rect in rects.items():
        cover = depth[_window(rect)].copy()
        code = np.full(cover.shape, _NOTHING, np.int32)
        _cover(scene, view, i, rect, cover, code)
        part = _resolve(scene, view, shadows, rect, cover, code)
        parts.append(part._replace(share=part.share * np.float32(scene.rgba[i, 3])))
    pixel, share, reach, colour = (np.concatenate(field) for field in zip(*parts, strict=True))
    order = np.lexsort((-reach, pixel))
    pixel = pixel[order]
    # Fragments of one rank are in different pixels, so that each rank can be blended at once.
    rank = np.arange(len(pixel)) - np.searchsorted(pixel, pixel)
    for layer in range(int(rank.max(initial=-1)) + 1):
        chosen = order[rank == layer]
        _blend(canvas, pixel[rank == layer], share[chosen], colour[chosen])


# --- Light ----------------------------------------------------------------------------------------


def _shade(
    scene: Stacked,
    view: _View,
    shadows: _Shadows,
    rect: _Rect,
    pixel: _Index,
    reach: _F32,
    code: _Codes,
) -> _F32:
    """Display colours (m, 3) of m fragments: flat pixel in the rectangle, depth, and code."""
    # Sorted by face, each face is one slice, and its normals one expression.
    order = np.argsort(code, kind="stable")
    counts = np.bincount(code)
    faces = np.flatnonzero(counts)
    counts = counts[faces]
    stops = np.cumsum(counts)
    row, column = np.divmod(pixel[order], (rect[3] - rect[2]) // 2)
    ray = view.pixel_columns.take(column + rect[2] // 2, axis=1)
    ray += view.pixel_rows.take(row + rect[0] // 2, axis=1)
    point = ray * reach[order] + view.eye.astype(np.float32)[:, None]
    normal = np.empty_like(point)
    albedo = np.empty_like(point)
    for face, start, stop in zip(faces, stops - counts, stops, strict=True):
        i, part = divmod(int(face), _FACES)
        here = np.s_[:, start:stop]
        normal[here] = _normal(scene, i, part, point[here])
        albedo[here] = scene.rgba[i, :3, None] ** 2
    normal *= np.float32(1.0) / np.sqrt(_dot(normal, normal) + _TINY)
    ray *= np.float32(-1.0) / np.sqrt(_dot(ray, ray))

    colours = np.empty((len(order), 3), np.float32)
    colours[order] = _light(albedo, point, normal, ray, shadows).T
    return colours


def _dot(a: _F32, b: _F32) -> _F32:
    """Dot products of vectors (3, m), (m,)."""
    dots: _F32 = a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
    return dots


def _normal(scene: Stacked, i: int, face: int, point: _F32) -> _F32:
    """Outward directions, of any length, at points (3, m) on a face of shape i."""
    rotation = scene.rotation[i].astype(np.float32)
    local = rotation.T @ (point - scene.position[i].astype(np.float32)[:, None])
    match scene.kind[i], face:
        case "box", axis:
            local *= np.eye(3, dtype=np.float32)[:, axis, None]
        case "cylinder", 0:
            local[2] = 0.0
        case "cylinder", _:
            local[:2] = 0.0
        case "capsule", _:
            half = np.float32(scene.core[i, 2])
            local[2] -= np.clip(local[2], -half, half)
    normal: _F32 = rotation @ local
    return normal


def _light(albedo: _F32, point: _F32, normal: _F32, towards_eye: _F32, shadows: _Shadows) -> _F32:
    """Display colours (3, m): a key light, a sky, a weak lamp at the eye, and a highlight."""
    light = _LIGHT.astype(np.float32)[:, None]
    facing = _dot(light, normal)
    seen = np.maximum(_dot(normal, towards_eye), 0.0)
    lit = _lit(shadows, point, normal)
    key = np.maximum(facing, 0.0) * lit
    sky = np.float32(0.31) + np.float32(0.13) * normal[2] + np.float32(0.11) * seen
    # Blinn-Phong; the length of the half vector follows from the angle between its parents.
    cosine = _dot(light, towards_eye)
    gloss = np.maximum(facing + seen, 0.0) ** 2 / (np.float32(2.0) * (cosine + np.float32(1.001)))
    for _ in range(5):
        gloss *= gloss
    gloss *= np.float32(0.16) * lit
    colour: _F32 = np.sqrt(albedo * (_WARM * key + _COOL * sky) + gloss)
    return colour


def _lit(shadows: _Shadows, point: _F32, normal: _F32) -> _F32:
    """Share of the key light that reaches surface points (3, m)."""
    # A step off the surface, so that the surface does not shade itself on the scale of a texel.
    lifted = point + normal * np.float32(2.0 * shadows.texel)
    along = lifted[2] * np.float32(1.0 / _LIGHT[2])
    u = lifted[0] - along * np.float32(_LIGHT[0]) - np.float32(shadows.origin[0])
    v = lifted[1] - along * np.float32(_LIGHT[1]) - np.float32(shadows.origin[1])
    inverse = np.float32(1.0 / shadows.texel)
    blocked = np.zeros_like(along)
    for share, top in _taps(shadows.top, u * inverse, v * inverse):
        blocked += share * np.clip((top - along) * inverse, 0.0, 1.0)
    lit: _F32 = np.float32(1.0) - blocked
    return lit


def _taps(texture: _F32, u: _F32, v: _F32) -> Iterator[tuple[_F32, _F32]]:
    """The nine texels around each place with the weights of a quadratic B-spline.

    Bilinear weights would show the texels as steps in the edges of shadows.
    """
    height, width = texture.shape
    # Unlike clip, fmin and fmax turn the NaN of an overflowing scene into a valid index.
    u = np.fmax(np.fmin(u, np.float32(width - 2)), np.float32(1.0))
    v = np.fmax(np.fmin(v, np.float32(height - 2)), np.float32(1.0))
    column, row = np.rint(u), np.rint(v)
    u -= column
    v -= row
    flat = texture.ravel()
    first = (row.astype(np.intp) - 1) * width + (column.astype(np.intp) - 1)
    across = _spline(u)
    for i, down in enumerate(_spline(v)):
        for j, share in enumerate(across):
            yield down * share, flat[i * width + j :].take(first)


def _spline(f: _F32) -> tuple[_F32, _F32, _F32]:
    """Weights of the texels before, at and after a place at f texels, -1/2 to 1/2, from one."""
    half = np.float32(0.5)
    return half * (half - f) ** 2, np.float32(0.75) - f * f, half * (half + f) ** 2


def _shadows(scene: Stacked, view: _View) -> _Shadows:
    """Cast the rays of the light through a grid on the ground that contains all shadows."""
    texel = view.texel
    slant = _LIGHT[:2] / _LIGHT[2]
    feet = scene.bounds[..., :2] - scene.bounds[..., 2:] * slant
    reach = scene.radius[:, None] * np.hypot(1.0, slant)
    west, east = feet.min(axis=1) - reach, feet.max(axis=1) + reach
    limits = np.asarray(view.centre) + np.array([[-_WINDOW], [_WINDOW]]) * texel
    inside = ((east > limits[0]) & (west < limits[1])).all(axis=1) & (scene.rgba[:, 3] > 0.0)
    low = np.floor(np.clip(west, *limits) / texel).astype(int)
    high = np.ceil(np.clip(east, *limits) / texel).astype(int) + 1
    first, last = np.zeros(2, int), np.zeros(2, int)
    if inside.any():
        first, last = low[inside].min(axis=0), high[inside].max(axis=0)
    # Texels keep their places in the world, in pairs, or shadows would shimmer when shapes move.
    first = (first - _MARGIN) // 2 * 2
    size = (last + _MARGIN - first + 1) // 2 * 2

    top = np.full((size[1], size[0]), -np.inf, np.float32)
    bottom = np.full_like(top, np.inf)
    through = np.ones_like(top)  # translucent shapes
    for i in map(int, np.flatnonzero(inside)):
        window = tuple(slice(low[i, k] - first[k], high[i, k] - first[k]) for k in (1, 0))
        x, y = (np.arange(low[i, k], high[i, k]) * texel for k in (0, 1))
        enter, leave = _light_span(scene, i, x, y)
        met = (enter < leave) & (leave > 0.0)
        np.copyto(bottom[window], np.minimum(bottom[window], enter), where=met)
        alpha = np.float32(scene.rgba[i, 3])
        if alpha == 1.0:
            np.copyto(top[window], np.maximum(top[window], leave), where=met)
        else:
            through[window] *= np.where(met, np.float32(1.0) - alpha, np.float32(1.0))
    through[top > -np.inf] = 0.0
    origin = (float(first[0] * texel), float(first[1] * texel))
    return _Shadows(origin, texel, top, _penumbra(through, bottom, texel, view.fineness))


def _penumbra(through: _F32, bottom: _F32, texel: float, fineness: float) -> _F32:
    """The ground's shadow at half the resolution: the higher the shape above it, the softer."""
    dark = np.float32(1.0) - through
    height = _pool(dark * np.where(dark > 0.0, np.maximum(bottom, np.float32(0.0)), dark))
    dark = _pool(dark)
    near, far = _blur(dark, 1), _blur(dark, max(1, round(5 * fineness)))
    around = max(1, round(4 * fineness))
    mean = _blur(height, around) / (_blur(dark, around) + np.float32(1e-6))
    softness: _F32 = np.clip(mean / np.float32(130.0 * fineness * texel), 0.0, 1.0)
    return near + (far - near) * softness


def _pool(image: _F32) -> _F32:
    """Means of 2 x 2 texels."""
    rows = image[0::2] + image[1::2]
    return np.float32(0.25) * (rows[:, 0::2] + rows[:, 1::2])


def _blur(image: _F32, radius: int) -> _F32:
    """Two box filters along each axis of an image that is zero outside its edges."""
    width = 2 * radius + 1
    padded = np.pad(image, 2 * radius)
    for axis in (0, 0, 1, 1):
        padded = _sums(padded, width, axis)
    return padded / np.float32(width**4)


def _sums(image: _F32, width: int, axis: int) -> _F32:
    """Sums of `width` neighbours along an axis, which becomes shorter by `width - 1`."""
    count = image.shape[axis] - width + 1

    def part(array: _F32, first: int, length: int) -> _F32:
        return array[(slice(None),) * axis + (slice(first, first + length),)]

    # Sums of 1, 2, 4, ... neighbours, and of these the ones that make up the odd width.
    powers, size = image, 1
    total, taken = part(image, 0, count), 1
    while taken < width:
        length = powers.shape[axis] - size
        powers, size = part(powers, 0, length) + part(powers, size, length), 2 * size
        if width & size:
            total, taken = total + part(powers, taken, count), taken + size
    return total


def _lit_ground(view: _View, shadows: _Shadows) -> _F32:
    """The backdrop with the shadows on it, a fresh array (H, W, 3)."""
    image = view.background.copy()
    height, width = shadows.ground.shape
    inverse = np.float32(0.5 / shadows.texel)
    # Cells of the ground's shadow are pairs of texels, so that their centres are half a texel in.
    u, v = (
        (view.ground[k] - np.float32(shadows.origin[k])) * inverse - np.float32(0.25)
        for k in (0, 1)
    )
    inside = (u > 0.0) & (u < width - 1) & (v > 0.0) & (v < height - 1) & (view.shade > 0.0)
    at = np.flatnonzero(inside)
    dark = np.zeros(len(at), np.float32)
    for share, cell in _taps(shadows.ground, u.ravel()[at], v.ravel()[at]):
        dark += share * cell
    dark *= view.shade.ravel()[at]
    image.reshape(-1, 3)[at] *= np.float32(1.0) - dark[:, None] * _SHADOW_TINT
    return image
