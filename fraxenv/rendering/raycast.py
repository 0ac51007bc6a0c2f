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
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

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


class _Beam(NamedTuple):
    """Rays, one for every point (u, v) of a grid, from one eye or parallel; see Intersections."""

    points: _F64  # (4, 4) homogeneous points of the world are this times (u, v, 1, s)
    rows: _F64  # (9, h) products of the coordinates of the grid's rows
    columns: _F64  # (9, w) of its columns


class _View(NamedTuple):
    """Rays, ground and background of a camera and a picture size, whatever the shapes are."""

    eye: _F64
    frame: _F64  # (3, 3) rows: right, up, forward
    tangent: tuple[float, float]  # of the half angle of view: x, y
    beam: _Beam  # of the samples; s is the inverse of the depth
    rays: _F32  # (3, H W) from the eye through the centres of the pixels, to depth one
    near: _F32  # (2 H, 2 W) inverse depth of the ground, 0 where the ground is not seen
    background: _F32  # (H, W, 3) picture of ground and sky, display colours
    shade: _F32  # (H, W) visibility of shadows on the ground, 0 to 1
    ground: _F32  # (2, H, W) x and y of the ground in the world
    texel: float  # m, resolution of the shadows
    fineness: float  # of the shadows: one for large pictures, less for small ones
    centre: tuple[float, float]  # of the window of the shadows, on the ground


class _Hits(NamedTuple):
    """Where rays enter a shape and leave it, by their coordinate s."""

    enter: _F32  # NaN for misses, inf from the inside
    leave: _F32  # anything for misses
    faces: list[tuple[int, _F32]]  # where they cross each face; they enter by one of these


class _Samples(NamedTuple):
    """What is seen in m pixels that see one face only, and in k on edges, by the sample."""

    plain: _Index  # (m,) flat index in the picture
    near: _F32  # (m,) inverse depth of the centre
    code: _Codes  # (m,)
    edge: _Index  # (k,) flat index in the picture
    nears: _F32  # (4, k)
    codes: _Codes  # (4, k)


class _Fragments(NamedTuple):
    """The shapes seen in m pixels, averaged over the samples that see a shape."""

    pixel: _Index  # flat index
    share: _F32  # of the pixel's area, by opacity
    reach: _F32  # depth
    colour: _F32  # (3, m)


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
    pixel_x, pixel_y = 2 * tangent_x / width, -2 * tangent_y / height
    column, row = np.arange(2 * width), np.arange(2 * height)
    x = ((column + 0.5) / width - 1.0) * tangent_x
    y = (1.0 - (row + 0.5) / height) * tangent_y
    columns = np.stack([x, (column % 2 - 0.5) * -0.25 * pixel_y, np.zeros_like(x)])
    rows = np.stack([(row % 2 - 0.5) * 0.25 * pixel_x, y, np.ones_like(y)])
    points = np.eye(4)
    points[:3] = np.column_stack([frame.T, eye])

    across, down = ((frame.T @ _halve(v)).astype(np.float32) for v in (columns, rows))
    background, shade, ground = _backdrop(eye, target, across, down)
    slant = _LIGHT[:2] / _LIGHT[2]
    fineness = min(max(height / 2 / _TEXELS, 0.5), 1.0)
    view = _View(
        eye=np.asarray(eye),
        frame=frame,
        tangent=(tangent_x, tangent_y),
        beam=_beam(points, rows, columns),
        rays=(down[:, :, None] + across[:, None]).reshape(3, -1),
        near=_ground(eye[2], frame[:, 2] @ columns, frame[:, 2] @ rows),
        background=background,
        shade=shade,
        ground=ground,
        texel=distance * min(tangent_y, 1.0) / (fineness * _TEXELS),
        fineness=fineness,
        centre=(target[0] - target[2] * slant[0], target[1] - target[2] * slant[1]),
    )
    for field in (*view, *view.beam):
        if isinstance(field, np.ndarray):
            field.setflags(write=False)
    return view


def _backdrop(eye: Point, target: Point, columns: _F32, rows: _F32) -> tuple[_F32, _F32, _F32]:
    """Picture of sky and ground (H, W, 3), its visibility (H, W), and its x and y (2, H, W)."""
    near = _ground(eye[2], columns[2], rows[2])
    level = np.linspace(0.0, 1.0, rows.shape[1], dtype=np.float32)[:, None, None] ** 0.8
    sky = _SKY[0] + (_SKY[1] - _SKY[0]) * level
    reach = np.where(near > 0.0, np.float32(1.0) / near, np.float32(0.0))
    ground = np.stack(
        [np.float32(eye[k]) + reach * np.add.outer(rows[k], columns[k]) for k in (0, 1)]
    )
    # The ground fades away from the target, on the scale of the distance from which it is seen.
    away = [(ground[k] - np.float32(target[k])) ** 2 for k in (0, 1)]
    fade = (away[0] + away[1]) / np.float32((1.6 * math.dist(eye, target)) ** 2)
    shade = np.where(near > 0.0, np.exp(-fade * fade), np.float32(0.0))
    tone = np.float32(0.5) + np.float32(0.5) * _stripes(ground[0]) * _stripes(ground[1])
    colour = _GROUND[0] + (_GROUND[1] - _GROUND[0]) * tone[..., None]
    return sky + (colour - sky) * shade[..., None], shade, ground


def _ground(height: float, columns: NDArray[Any], rows: NDArray[Any]) -> _F32:
    """Inverse depth of the ground along rays with these z, (h, w); 0 where it is not seen."""
    scale = -1.0 / height if height > 0.0 else 0.0
    near: _F32 = np.maximum(np.add.outer(scale * rows, scale * columns), 0.0).astype(np.float32)
    return near


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


def _halve(vectors: _F64) -> _F64:
    """Columns or rows of the pixels' rays (3, n), the means of the samples' (3, 2 n)."""
    return (vectors[:, 0::2] + vectors[:, 1::2]) * 0.5


# --- Intersections --------------------------------------------------------------------------------
#
# A beam is all rays of the camera, or all of the light. It has one for every point (u, v) of a
# plane, and their points are, in homogeneous coordinates, G (u, v, 1, s). The greater s, the nearer
# to where one looks from: for the camera it is the inverse of the depth, which makes its rays as
# good as parallel, and for the light the distance from the ground.
#
# Of a ray, a half-space has all s up to a linear form of (u, v, 1), or from there if one looks from
# inside; a ball or an infinite cylinder has those from m - sqrt(q) to m + sqrt(q), with m a linear
# and q a quadratic form, or all from m + sqrt(q). All shapes are made of these. With 1 as the third
# coordinate a linear form is a quadratic one; and since (u, v, 1) is the sum of a vector of the row
# and one of the column, a form's values on a rectangle are one product of two matrices with four
# terms.

_QUADRICS: Final = 3  # a shape's surfaces are 0, 1: balls at the ends of the core; 2: its side;
_PLANES: Final = 6  # 3 to 8: the half-spaces below and above z, x, y
_FORMS: Final = 2 * _QUADRICS + _PLANES  # q and m of each quadric, then those of the half-spaces

# The convex solids that a shape is the union of: their surfaces, and the faces that these are.
_SOLIDS: Final[dict[str, tuple[tuple[tuple[int, int], ...], ...]]] = {
    "sphere": (((0, 0),),),
    "capsule": (((0, 0),), ((1, 0),), ((2, 0), (3, 0), (4, 0))),
    "cylinder": (((2, 0), (3, 1), (4, 1)),),
    "box": (((3, 2), (4, 2), (5, 0), (6, 0), (7, 1), (8, 1)),),
}
_USED: Final = {  # the forms of these surfaces
    "sphere": slice(0, 2),
    "capsule": slice(0, 8),
    "cylinder": slice(4, 8),
    "box": slice(6, 12),
}

_TINY: Final = 1e-12  # keeps divisions finite: an eye in the plane of a face, a zero normal


class _Surfaces(NamedTuple):
    """The surfaces of n shapes as a beam meets them: what makes the factors of their forms."""

    rows: _F64  # (4 m, 9) times products of a row's coordinates
    columns: _F64  # (4 m, 9) times those of a column
    first: list[int]  # (n,) of the m forms, the first of each shape
    outside: list[list[bool]]  # (n, 9) does one look from outside this surface?


def _beam(points: _F64, rows: _F64, columns: _F64) -> _Beam:
    """The beam whose rays have the coordinates (u, v, 1) = row (3, h) + column (3, w)."""
    # 1 in both, so that products of degree two are among those of all degrees.
    columns = columns + np.array([[0.0], [0.0], [1.0]])
    return _Beam(points, *((x[:, None] * x).reshape(9, -1) for x in (rows, columns)))


def _surfaces(scene: Stacked, beam: _Beam) -> _Surfaces:
    """The surfaces of all shapes, for a beam."""
    count = len(scene.kind)
    # Taken about the ray to the middle of its shape, and about the s of that, a form has no terms
    # greater than the shape, and float32 is accurate. Else one of the rays near it will do.
    homogeneous = np.column_stack([scene.position, np.ones(count)])
    middle = np.linalg.solve(beam.points, homogeneous.T).T.astype(np.float64)
    middle = np.where(middle[:, 2:3] > _NEAR, middle / middle[:, 2:3], (0.0, 0.0, 1.0, 0.0))
    limits = np.sort([beam.columns[2, (0, -1)], beam.rows[5, (0, -1)]]).T  # u and v, times 1
    middle[:, :2] = np.clip(middle[:, :2], *limits)
    points = np.repeat(beam.points[None], count, axis=0)
    points[:, :, 2] = middle @ beam.points.T
    points[:, :3] -= scene.position[:, :, None] * points[:, 3:]
    points[:, :3] = scene.rotation.transpose(0, 2, 1) @ points[:, :3]

    slopes, square = _quadrics(scene, points, middle)
    slopes = np.concatenate([slopes, _planes(scene, points)], axis=1)
    eye = slopes[..., 3]
    linear = slopes[..., :3] / -eye[..., None]
    linear[..., 2] += middle[:, 3:]
    forms = np.zeros((count, _FORMS, 3, 3))
    forms[:, 0 : 2 * _QUADRICS : 2] = square / eye[:, :_QUADRICS, None, None] ** 2
    forms[:, 1 : 2 * _QUADRICS : 2, 2] = linear[:, :_QUADRICS]
    forms[:, 2 * _QUADRICS :, 2] = linear[:, _QUADRICS:]

    used = np.zeros((count, _FORMS), bool)
    for i, kind in enumerate(scene.kind):
        used[i, _USED[kind]] = True
    numbers = used.sum(axis=1)
    rows, columns = _factors(forms[used], np.repeat(middle[:, :2], numbers, axis=0))
    first = np.cumsum(numbers) - numbers
    return _Surfaces(rows, columns, first.tolist(), (eye > 0.0).tolist())


def _quadrics(scene: Stacked, points: _F64, middle: _F64) -> tuple[_F64, _F64]:
    """The balls and sides of shapes, which hold x with a s^2 + 2 b s + c <= 0.

    b is linear and c quadratic in (u, v, 1), and a > 0 if one looks from outside.

    Args:
        scene: n shapes.
        points: those of the beam, in each shape's frame and about its middle, (n, 4, 4).
        middle: these middles, (n, 4).

    Returns:
        b and a, (n, 3, 4); b^2 - a c, (n, 3, 3, 3).
    """
    points = np.repeat(points[:, None], _QUADRICS, axis=1)
    points[:, :2, 2] -= scene.core[:, 2:, None] * [[1.0], [-1.0]] * points[:, :2, 3]
    square = scene.radius[:, None] ** 2
    weights = np.ones((len(square), _QUADRICS, 4))
    weights[:, 2, 2] = 0.0
    weights[:, :, 3] = -square
    gram = points.transpose(0, 1, 3, 2) @ (weights[..., None] * points)
    # An eye right on a surface is taken to be off it, by so little that it does not show: a is
    # never zero. What is added is a multiple of s^2, in coordinates about the middle.
    a, least = gram[..., 3, 3], 1e-4 * square
    s = np.zeros((len(square), 1, 4))
    s[:, 0, 2], s[:, 0, 3] = middle[:, 3], 1.0
    added = np.where(np.abs(a) > least, 0.0, least - a)
    gram += added[..., None, None] * s[..., :, None] * s[..., None, :]
    a, b, c = gram[..., 3, 3], gram[..., :3, 3], gram[..., :3, :3]
    discriminant = b[..., :, None] * b[..., None, :] - a[..., None, None] * c
    return np.concatenate([b, a[..., None]], axis=2), discriminant


def _planes(scene: Stacked, points: _F64) -> _F64:
    """The half-spaces that bound the cores of shapes, which hold x with b + a s <= 0, (n, 6, 4).

    b is linear in (u, v, 1), and a > 0 if one looks from outside. `points` as for `_quadrics`.
    """
    order = (2, 0, 1)
    half = scene.core[:, order, None, None] * points[:, None, None, 3]
    planes = (points[:, order, None] * [[1.0], [-1.0]] - half).reshape(-1, _PLANES, 4)
    a = planes[..., 3]
    planes[..., 3] = np.where(np.abs(a) > _TINY, a, _TINY)
    return planes


def _factors(forms: _F64, middle: _F64) -> tuple[_F64, _F64]:
    """What makes the factors of forms (m, 3, 3), for the rows and for the columns, (4 m, 9) each.

    Of a row r and a column c, whose third coordinate is 0, a form Q is the product of
    (r Q r, 1, 2 Q r) and (1, c Q c, c). Both are taken about a middle (u, v), one of (m, 2).
    """
    u, v = middle[:, :1], middle[:, 1:]
    rows, columns = np.zeros((2, len(forms), 4, 3, 3))
    row = 0.5 * (forms + forms.transpose(0, 2, 1))
    column = row.copy()
    row[:, :, 2] -= v * row[:, :, 1]
    rows[:, 2:, 2] = 2.0 * row[:, :2]
    row[:, 2] -= v * row[:, 1]
    rows[:, 0] = row
    column[:, :, 2] = -u * column[:, :, 0]
    column[:, 2] = -u * column[:, 0]
    columns[:, 1] = column
    rows[:, 1, 2, 2] = columns[:, 0, 2, 2] = 1.0
    columns[:, 2, 2, 0] = columns[:, 3, 2, 1] = 1.0
    columns[:, 2, 2, 2] = -u[:, 0]
    return rows.reshape(-1, 9), columns.reshape(-1, 9)


_Rect = tuple[int, int, int, int]  # row start, row stop, column start, column stop


def _hits(kind: str, surfaces: _Surfaces, beam: _Beam, i: int, rect: _Rect) -> _Hits:
    """Where the rays of a rectangle enter shape i, of that kind, and leave it."""
    top, bottom, left, right = rect
    used, first = _USED[kind], surfaces.first[i]
    terms = slice(4 * first, 4 * (first + used.stop - used.start))
    rows = surfaces.rows[terms] @ beam.rows[:, top:bottom]
    columns = surfaces.columns[terms] @ beam.columns[:, left:right]
    values: _F32 = np.matmul(
        rows.astype(np.float32).reshape(-1, 4, bottom - top).transpose(0, 2, 1),
        columns.astype(np.float32).reshape(-1, 4, right - left),
    )
    forms = dict(zip(range(used.start, used.stop), values, strict=True))
    solids = [_solid(forms, surfaces.outside[i], solid) for solid in _SOLIDS[kind]]
    if len(solids) == 1:
        return solids[0]
    enter = functools.reduce(np.fmax, [solid.enter for solid in solids])
    leave = functools.reduce(np.fmin, [solid.leave for solid in solids])
    return _Hits(enter, leave, [(0, enter)])


def _solid(
    forms: dict[int, _F32], outside: list[bool], surfaces: tuple[tuple[int, int], ...]
) -> _Hits:
    """Where rays enter and leave what is inside some surfaces. Values of forms are written over."""
    fronts, backs = [], []
    for surface, face in surfaces:
        if surface >= _QUADRICS:
            level = forms[surface + _QUADRICS]
            if outside[surface]:
                fronts.append((face, level))
            else:
                backs.append(level)
        else:
            square, middle = forms[2 * surface], forms[2 * surface + 1]
            if outside[surface]:
                root = np.sqrt(square, out=square)
                fronts.append((face, middle + root))
                backs.append(middle - root)
            else:
                # From the inside no ray misses: below zero, for one along the axis, is rounding.
                backs.append(middle + np.sqrt(np.abs(square)))
    leave = functools.reduce(np.maximum, backs)
    if not fronts:
        fronts = [(0, np.full_like(leave, np.inf))]
    enter = functools.reduce(np.minimum, [level for _, level in fronts])
    if len(surfaces) > 1:
        np.copyto(enter, np.float32(np.nan), where=enter <= leave)
    return _Hits(enter, leave, fronts)


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
    surfaces = _surfaces(scene, view.beam)
    faces = _faces(scene, view.eye)
    near = view.near[_window(seen)].copy()
    code = np.full(near.shape, _NOTHING, np.int32)
    for i, rect in opaque.items():
        window = _window(rect, seen)
        _cover(_hits(scene.kind[i], surfaces, view.beam, i, rect), i, near[window], code[window])
    if opaque:
        parts = [_samples(view, seen, near, code)]
        _blend(canvas, _resolve(view, faces, shadows, parts))
    if translucent:
        nearest = view.near.copy()
        nearest[_window(seen)] = near
        parts = []
        for i, rect in translucent.items():
            near = nearest[_window(rect)].copy()
            code = np.full(near.shape, _NOTHING, np.int32)
            _cover(_hits(scene.kind[i], surfaces, view.beam, i, rect), i, near, code)
            parts.append(_samples(view, rect, near, code))
        for layer in _layers(_resolve(view, faces, shadows, parts)):
            _blend(canvas, layer)
    np.minimum(image, np.float32(1.0), out=image)
    image *= np.float32(255.0)
    image += np.float32(0.5)
    return image.astype(np.uint8)


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


def _cover(hits: _Hits, i: int, near: _F32, code: _Codes) -> None:
    """Write inverse depths and codes of shape i where it is in front of what is there."""
    front = (hits.enter > near) & (hits.enter < np.float32(1.0 / _NEAR))
    np.copyto(near, hits.enter, where=front)
    (face, _), *others = hits.faces
    np.copyto(code, np.int32(i * _FACES + face), where=front)
    for face, level in others:
        np.copyto(code, np.int32(i * _FACES + face), where=front & (level == hits.enter))


def _samples(view: _View, rect: _Rect, near: _F32, code: _Codes) -> _Samples:
    """The samples of a rectangle, sorted into pixels that see one face only and edges."""
    nears, codes = _pixels(near), _pixels(code)
    same = (codes[0] == codes[1]) & (codes[0] == codes[2]) & (codes[0] == codes[3])
    plain, edge = np.flatnonzero(same & (codes[0] >= 0)), np.flatnonzero(~same)
    width = view.shade.shape[1]
    top, bottom, left, right = (bound // 2 for bound in rect)
    flat = np.add.outer(np.arange(top, bottom) * width, np.arange(left, right)).ravel()
    middle = np.float32(0.25) * nears.take(plain, axis=1).sum(axis=0)
    return _Samples(
        plain=flat[plain],
        near=middle,
        code=codes[0].take(plain),
        edge=flat[edge],
        nears=nears.take(edge, axis=1),
        codes=codes.take(edge, axis=1),
    )


def _pixels(grid: NDArray[_T]) -> NDArray[_T]:
    """The four samples of every pixel, (4, m)."""
    height, width = grid.shape
    return grid.reshape(height // 2, 2, width // 2, 2).transpose(1, 3, 0, 2).reshape(4, -1)


def _resolve(view: _View, faces: _F32, shadows: _Shadows, parts: Sequence[_Samples]) -> _Fragments:
    """Colour samples. Pixels that see one face only are coloured once."""
    fields: list[NDArray[Any]] = [np.concatenate(f, axis=-1) for f in zip(*parts, strict=True)]
    plain, near, code, edge, nears, codes = fields
    met = codes >= 0
    pixel = np.concatenate([plain, np.broadcast_to(edge, met.shape)[met]])
    reach = np.reciprocal(np.concatenate([near, nears[met]]))
    shown = faces.take(np.concatenate([code, codes[met]]), axis=1)
    colour = _shade(view, shown, shadows, pixel, reach)

    # Of a pixel on an edge, means over the samples that see a shape.
    values = np.concatenate([shown[-1:], reach[None], colour])
    sums = np.zeros((len(values), *met.shape), np.float32)
    sums[:, met] = values[:, len(plain) :]
    count = met.sum(axis=0, dtype=np.float32)
    means = sums.sum(axis=1) / count
    means[0] *= np.float32(0.25) * count
    values = np.concatenate([values[:, : len(plain)], means], axis=1)
    return _Fragments(np.concatenate([plain, edge]), values[0], values[1], values[2:])


def _blend(canvas: _F32, parts: _Fragments) -> None:
    """Lay fragments over a flat picture (H W, 3), no two of them in the same pixel."""
    behind = canvas.take(parts.pixel, axis=0).T
    canvas[parts.pixel] = (behind + parts.share * (parts.colour - behind)).T


def _layers(parts: _Fragments) -> Iterator[_Fragments]:
    """The farthest fragment of every pixel, then the second, and so on."""
    order = np.lexsort((-parts.reach, parts.pixel))
    pixel = parts.pixel[order]
    rank = np.arange(len(pixel)) - np.searchsorted(pixel, pixel)
    for layer in range(int(rank.max(initial=-1)) + 1):
        chosen = order[rank == layer]
        yield _Fragments(
            parts.pixel[chosen], parts.share[chosen], parts.reach[chosen], parts.colour[:, chosen]
        )


# --- Light ----------------------------------------------------------------------------------------


def _shade(view: _View, faces: _F32, shadows: _Shadows, pixel: _Index, reach: _F32) -> _F32:
    """Display colours (3, m) of m fragments: their faces (13, m), pixel in the picture, depth."""
    ray = view.rays.take(pixel, axis=1)
    point = ray * reach + view.eye.astype(np.float32)[:, None]
    centre, axis, (low, high, curved), albedo = faces[:3], faces[3:6], faces[6:9], faces[9:12]
    normal = point - centre
    along = np.clip(_dot(normal, axis), low, high)
    normal *= curved
    normal -= along * axis
    normal *= np.float32(1.0) / np.sqrt(_dot(normal, normal) + np.float32(_TINY))
    ray *= np.float32(-1.0) / np.sqrt(_dot(ray, ray))
    return _light(albedo, point, normal, ray, shadows)


def _faces(scene: Stacked, eye: _F64) -> _F32:
    """What the look of every face follows from, (13, n _FACES).

    Normals point away from the nearest point between two ends of the shape's axis: 3 rows are the
    centre, 3 the axis, 2 the ends along it, and 1 is one. Where it is zero a face is flat, its axis
    is its normal, and both ends are where that points away from to the eye's side. Then 3 rows are
    the colour, in linear light, and 1 is the opacity.
    """
    kind, face = np.array(scene.kind, object)[:, None], np.arange(_FACES)
    flat = (kind == "box") | ((kind == "cylinder") & (face == 1))
    column = np.where(kind == "box", np.minimum(face, 2), 2)
    axis = np.take_along_axis(scene.rotation.transpose(0, 2, 1), column[..., None], axis=1)
    centre = np.broadcast_to(scene.position[:, None], axis.shape)
    away = np.sign(((centre - eye) * axis).sum(axis=2))
    half = np.where(kind == "cylinder", np.inf, scene.core[:, 2:])
    ends = np.stack([np.where(flat, away, -half), np.where(flat, away, half), ~flat], axis=2)
    rgba = np.broadcast_to(scene.rgba[:, None] ** (2.0, 2.0, 2.0, 1.0), (*flat.shape, 4))
    table = np.concatenate([centre, axis, ends, rgba], axis=2)
    return table.reshape(-1, table.shape[2]).T.astype(np.float32)


def _dot(a: _F32, b: _F32) -> _F32:
    """Dot products of vectors (3, m), (m,)."""
    dots: _F32 = a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
    return dots


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
    beam = _light_beam(first, size, texel)
    surfaces = _surfaces(scene, beam)
    low, high = low - first, high - first
    for i in map(int, np.flatnonzero(inside)):
        rect = (int(low[i, 1]), int(high[i, 1]), int(low[i, 0]), int(high[i, 0]))
        window = _window(rect)
        enter, leave, _ = _hits(scene.kind[i], surfaces, beam, i, rect)
        met = enter > 0.0
        np.copyto(bottom[window], np.minimum(bottom[window], leave), where=met)
        alpha = np.float32(scene.rgba[i, 3])
        if alpha == 1.0:
            np.copyto(top[window], np.maximum(top[window], enter), where=met)
        else:
            through[window] *= np.where(met, np.float32(1.0) - alpha, np.float32(1.0))
    through[top > -np.inf] = 0.0
    origin = (float(first[0] * texel), float(first[1] * texel))
    return _Shadows(origin, texel, top, _penumbra(through, bottom, texel, view.fineness))


def _light_beam(first: NDArray[np.int_], size: NDArray[np.int_], texel: float) -> _Beam:
    """The key light through a grid of the ground, from a texel (x, y) on, of a size (u, v)."""
    points = np.zeros((4, 4))
    points[(0, 1, 3), (0, 1, 2)] = 1.0
    points[:2, 2] = first * texel
    points[:3, 3] = _LIGHT
    columns, rows = np.zeros((3, size[0])), np.ones((3, size[1]))
    columns[0], rows[0], rows[1] = np.arange(size[0]) * texel, 0.0, np.arange(size[1]) * texel
    return _beam(points, rows, columns)


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
    west, south = (np.float32(corner + 0.5 * shadows.texel) for corner in shadows.origin)
    east, north = west + np.float32(width - 1) / inverse, south + np.float32(height - 1) / inverse
    x, y = view.ground
    inside = (x > west) & (x < east) & (y > south) & (y < north) & (view.shade > 0.0)
    at = np.flatnonzero(inside)
    u, v = (x.ravel()[at] - west) * inverse, (y.ravel()[at] - south) * inverse
    dark = np.zeros(len(at), np.float32)
    for share, cell in _taps(shadows.ground, u, v):
        dark += share * cell
    dark *= view.shade.ravel()[at]
    image.reshape(-1, 3)[at] *= np.float32(1.0) - dark[:, None] * _SHADOW_TINT
    return image
