"""The renderer against analytic projections, brute-force point clouds and its own contract.

Scenes below the ground, seen by a camera below it, show shapes on the plain background: there is no
ground, and nothing casts a shadow. Most tests look there.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial import ConvexHull  # type: ignore[import-untyped]
from support import with_slow

from fraxenv.errors import FraxenvError, RenderError
from fraxenv.rendering import Camera, Shape, axes, tile
from fraxenv.rendering import render as render_by

Picture = NDArray[np.uint8]

render = partial(render_by, renderer="raycast")

EYE = np.eye(3)
RED = (0.9, 0.1, 0.1, 1.0)
BLUE = (0.1, 0.1, 0.9, 1.0)
DEEP = Camera(eye=(1.4, -1.0, -4.1), target=(0.0, 0.0, -5.0))
CENTRE = np.array(DEEP.target)
SIZES: dict[str, tuple[float, ...]] = {
    "sphere": (0.2,),
    "capsule": (0.12, 0.4),
    "cylinder": (0.15, 0.45),
    "box": (0.5, 0.3, 0.2),
}


def rotation(seed: int) -> NDArray[np.float64]:
    q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    return np.asarray(q * np.sign(np.linalg.det(q)))


def shape(kind: str = "sphere", **fields: Any) -> Shape:
    size = SIZES.get(kind, (0.2,))
    return replace(Shape(kind, size, CENTRE, EYE, RED), **fields)  # type: ignore[arg-type]


def mask(picture: Picture, empty: Picture) -> NDArray[np.bool_]:
    return np.asarray(np.any(picture != empty, axis=2))


def frame_of(camera: Camera) -> NDArray[np.float64]:
    forward = np.subtract(camera.target, camera.eye)
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(right, forward), forward])


def project(points: NDArray[np.float64], camera: Camera, width: int, height: int) -> Any:
    """Pixel coordinates (x, y) of world points, pixel (i, j) covering [j, j + 1] x [i, i + 1]."""
    x, y, z = frame_of(camera) @ (points - np.asarray(camera.eye)).T
    focal = height / 2 / math.tan(math.radians(camera.fov) / 2)
    return np.stack([width / 2 + focal * x / z, height / 2 - focal * y / z], axis=1)


def surface(kind: str, size: tuple[float, ...], count: int) -> Any:
    """Dense points on the surface, in the frame of the shape."""
    rng = np.random.default_rng(0)
    ball = rng.normal(size=(count, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    if kind == "sphere":
        return np.asarray(size[0] * ball)
    if kind == "box":
        points = rng.uniform(-1.0, 1.0, (count, 3))
        points[np.arange(count), rng.integers(3, size=count)] = rng.choice([-1.0, 1.0], count)
        return points * np.array(size) / 2
    angle = rng.uniform(0.0, 2 * np.pi, count)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    z = rng.uniform(-0.5, 0.5, (count, 1)) * size[1]
    side = np.concatenate([size[0] * circle, z], axis=1)
    ends = np.sign(z) * size[1] / 2
    if kind == "capsule":
        cap = size[0] * ball + ends * [0.0, 0.0, 1.0]
    else:
        cap = np.concatenate([size[0] * circle * np.sqrt(rng.uniform(size=(count, 1))), ends], 1)
    return np.concatenate([side, cap])


# --- Geometry -------------------------------------------------------------------------------------


@pytest.mark.parametrize("off_axis", [0.0, 0.45])
def test_sphere_silhouette_is_the_analytic_ellipse(off_axis: float) -> None:
    size, radius, depth = 800, 0.3, 2.0
    camera = Camera(eye=(0.0, -depth, -5.0), target=(0.0, 0.0, -5.0), fov=50.0)
    ball = shape(size=(radius,), position=np.array([off_axis, 0.0, -5.0]))
    seen = mask(render([ball], camera, size, size), render([], camera, size, size))

    focal = size / 2 / math.tan(math.radians(25.0))
    square = depth**2 - radius**2
    long = focal * radius * math.sqrt(off_axis**2 + square) / square
    short = focal * radius / math.sqrt(square)
    area = math.pi * long * short
    # A pixel that is touched counts as a whole one: half a pixel around the outline.
    assert 1.0 < seen.sum() / area < 1.0 + 1.2 * (long + short) / (2 * long * short)
    rows, columns = np.nonzero(seen)
    assert columns.mean() + 0.5 == pytest.approx(
        size / 2 + focal * off_axis * depth / square, abs=0.15
    )
    assert rows.mean() + 0.5 == pytest.approx(size / 2, abs=0.15)
    # The row and the column through the middle touch up to a pixel more on either side.
    assert -0.5 < np.ptp(columns) + 1 - 2 * long < 2.1
    assert -0.5 < np.ptp(rows) + 1 - 2 * short < 2.1


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("seed", with_slow([1, 2, 3], 2, 3))
def test_silhouette_is_that_of_a_dense_point_cloud(kind: str, seed: int) -> None:
    width, height = 360, 240
    turn, position = rotation(seed), CENTRE + np.array([0.1, -0.15, 0.1])
    seen = mask(
        render([shape(kind, rotation=turn, position=position)], DEEP, width, height),
        render([], DEEP, width, height),
    )
    points = surface(kind, SIZES[kind], 200_000) @ turn.T + position
    pixels = project(points, DEEP, width, height)
    hull = ConvexHull(pixels)
    outline = pixels[hull.vertices]
    perimeter = np.linalg.norm(outline - np.roll(outline, 1, axis=0), axis=1).sum()
    assert hull.volume < seen.sum() < hull.volume + 0.65 * perimeter

    # Signed distance of pixel centres to the hull, in pixels: clearly inside and clearly outside.
    y, x = np.mgrid[:height, :width] + 0.5
    centres = np.stack([x, y], axis=-1)
    normals, offsets = hull.equations[:, :2], hull.equations[:, 2]
    distance = np.stack([np.max(row @ normals.T + offsets, axis=-1) for row in centres])
    assert seen[distance < -0.3].all()
    assert not seen[distance > 0.75].any()


@pytest.mark.parametrize("kind", SIZES)
def test_surface_depth_agrees_with_a_point_cloud(kind: str) -> None:
    # A half-space boundary in front of the shape, moved to where the nearest point must be.
    turn = rotation(5)
    points = surface(kind, SIZES[kind], 200_000) @ turn.T + CENTRE
    axis = frame_of(DEEP)
    nearest = ((points - DEEP.eye) @ axis[2]).min()
    body = shape(kind, rotation=turn)
    for shift, hidden in ((-0.004, True), (0.004, False)):
        centre = DEEP.eye + (nearest + shift + 0.005) * axis[2]
        wall = shape("box", size=(9.0, 9.0, 0.01), position=centre, rotation=axis.T, rgba=BLUE)
        picture = render([wall, body], DEEP, 200, 200)
        same = np.array_equal(picture, render([wall], DEEP, 200, 200))
        assert same is hidden


def test_shapes_out_of_sight_leave_no_trace() -> None:
    empty = render([], DEEP, 64, 64)
    away = np.subtract(DEEP.eye, DEEP.target)
    for kind in SIZES:
        for position in (
            np.array(DEEP.eye) + away,
            CENTRE + np.array([0.0, 0.0, 50.0]),
            CENTRE - away * 1e6,
        ):
            picture = render([shape(kind, position=position)], DEEP, 64, 64)
            assert np.array_equal(picture, empty), (kind, position)


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_shape_around_the_eye_is_not_drawn(kind: str, alpha: float) -> None:
    around = shape(kind, position=np.array(DEEP.eye), rgba=(*RED[:3], alpha))
    assert np.array_equal(render([around], DEEP, 48, 48), render([], DEEP, 48, 48))


def test_shape_across_the_plane_of_the_eye_is_drawn_where_it_is_in_front() -> None:
    camera = Camera(eye=(0.0, 0.0, -5.0), target=(0.0, 1.0, -5.0), fov=90.0)
    floor = shape("box", size=(2.0, 20.0, 0.1), position=np.array([0.0, 0.0, -5.5]))
    seen = mask(render([floor], camera, 64, 64), render([], camera, 64, 64))
    assert seen[-1, 2:-2].all()
    assert not seen[:32].any()


@pytest.mark.parametrize("x", [-4.498, -20.0, 30.0])
@pytest.mark.parametrize("kind", ["capsule", "cylinder", "box"])
def test_a_long_shape_may_have_its_middle_anywhere(kind: str, x: float) -> None:
    # Its ends are out of sight; its middle is in sight, out of it, or beside the eye.
    size = {"box": (1.5, 2.0, 200.0)}.get(kind, (1.0, 200.0))
    camera = Camera(eye=(0.0, 0.0, -5.0), target=(0.6, 0.8, -5.2), fov=60.0)
    turn = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    pictures = [
        render(
            [shape(kind, size=size, rotation=turn, position=np.array([at, 3.0, -6.5]))],
            camera,
            120,
            120,
        ).astype(int)
        for at in (0.0, x)
    ]
    assert mask(pictures[0], render([], camera, 120, 120)).sum() > 2000
    assert (np.abs(pictures[1] - pictures[0]).max(axis=2) > 8).sum() <= 3


@pytest.mark.parametrize("kind", ["capsule", "cylinder"])
@pytest.mark.parametrize("share", [0.0, 0.9, 1.0, 1.1])
def test_shape_is_whole_from_above_its_end(kind: str, share: float) -> None:
    # The eye is inside its infinite side, right on it, or outside. Rays are parallel to it.
    radius, length = SIZES[kind]
    x, up = share * radius, np.array([0.0, 0.0, length / 2])
    camera = Camera(eye=(x, 0.0, -3.0), target=(x, 0.0, -5.0))
    seen = mask(render([shape(kind)], camera, 200, 200), render([], camera, 200, 200))
    end = shape("sphere", size=(radius,), position=CENTRE + up)
    if kind == "cylinder":
        end = shape("cylinder", size=(radius, 1e-4), position=CENTRE + up)
    whole = mask(render([end], camera, 200, 200), render([], camera, 200, 200))
    assert whole.sum() > 800
    assert (whole & ~seen).sum() == 0
    assert (seen & ~whole).sum() <= 30 + 1000 * max(share - 0.95, 0.0)


@pytest.mark.parametrize("upright", [True, False])
def test_edges_are_smooth(upright: bool) -> None:
    # A pixel takes its share of what is on either side of an edge, in quarters; all of these occur
    # even along an edge that is almost parallel to the rows or columns.
    camera = Camera(eye=(0.0, -2.0, -5.0), target=(0.0, 0.0, -5.0))
    c, s = math.cos(0.03), math.sin(0.03)
    roll = np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])
    picture = render([shape("box", size=(0.8, 0.8, 0.8), rotation=roll)], camera, 320, 320)
    green = picture[..., 1].astype(float)
    lines = green[100:220, :160] if upright else green[:160, 100:220].T
    shares = []
    for line in lines:
        edge = int(np.argmax(np.abs(np.diff(line)) > 8)) + 1
        shares.append((line[edge] - line[edge - 2]) / (line[edge + 2] - line[edge - 2]))
    levels = np.round(np.array(shares) * 4)
    assert np.abs(np.array(shares) - levels / 4).max() < 0.03
    for level in (1.0, 2.0, 3.0):
        assert np.mean(levels == level) > 0.12


# --- Visibility -----------------------------------------------------------------------------------


def test_nearer_shape_hides_the_farther_in_any_order() -> None:
    towards_eye = np.subtract(DEEP.eye, CENTRE) / np.linalg.norm(np.subtract(DEEP.eye, CENTRE))
    near = shape("box", size=(0.2, 0.2, 0.2), position=CENTRE + 0.5 * towards_eye, rgba=BLUE)
    far = shape("sphere", size=(0.4,))
    one, other = render([near, far], DEEP, 100, 100), render([far, near], DEEP, 100, 100)
    assert np.array_equal(one, other)
    red, _, blue = one[50, 50].astype(int)
    assert blue > red + 50
    red, _, blue = one[50, 29].astype(int)
    assert red > blue + 50


def test_intersecting_shapes_are_resolved_by_pixel() -> None:
    # Two bars cross: seen along y, each is in front on its own side.
    camera = Camera(eye=(0.0, -3.0, -5.0), target=(0.0, 0.0, -5.0))
    c, s = math.cos(0.5), math.sin(0.5)
    turn = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    bars = [
        shape("box", size=(1.6, 0.05, 0.4), rotation=turn, rgba=RED),
        shape("box", size=(1.6, 0.05, 0.4), rotation=turn.T, rgba=BLUE),
    ]
    picture = render(bars, camera, 90, 90).astype(int)
    assert np.array_equal(picture, render(bars[::-1], camera, 90, 90))
    left, right = picture[45, 35], picture[45, 55]
    assert left[0] > left[2] + 40
    assert right[2] > right[0] + 40


def test_ground_hides_what_is_below_it_and_is_open_from_below() -> None:
    above = Camera(eye=(1.0, -1.0, 1.0), target=(0.0, 0.0, 0.0))
    below = Camera(eye=(1.0, -1.0, -1.0), target=(0.0, 0.0, 0.0))
    buried = shape(position=np.array([0.0, 0.0, -0.3]))
    assert np.array_equal(render([buried], above, 64, 64), render([], above, 64, 64))
    assert mask(render([buried], below, 64, 64), render([], below, 64, 64)).any()
    half = mask(render([shape(position=np.zeros(3))], above, 200, 200), render([], above, 200, 200))
    whole = mask(
        render([shape(position=np.array([0.0, 0.0, 0.2]))], above, 200, 200),
        render([], above, 200, 200),
    )
    assert half.any()
    assert half.sum() < whole.sum()


@pytest.mark.parametrize("kind", ["box", "cylinder", "capsule", "sphere"])
def test_shape_meets_the_ground_where_it_should(kind: str) -> None:
    # Sunk into the ground up to its middle and magnified, so that depths must be right to 0.1 mm.
    size = {"box": (0.4, 0.4, 0.4), "sphere": (0.2,)}.get(kind, (0.2, 0.4))
    black = shape(kind, size=size, position=np.zeros(3), rgba=(0.0, 0.0, 0.0, 1.0))
    camera = Camera(eye=(0.0, -1.6, 1.4), target=(0.0, -0.2, 0.0), fov=2.0)
    column = render([black], camera, 201, 200).astype(int)[:, 100].max(axis=1)
    assert (column[:98] < 120).all()
    assert (column[102:] > 140).all()


# --- Translucency ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("alpha", [0.2, 0.65])
def test_translucent_shape_is_the_blend_of_its_opaque_picture(kind: str, alpha: float) -> None:
    behind = shape(
        "box", size=(1.0, 0.05, 0.3), position=CENTRE + np.array([-0.3, 0.3, -0.2]), rgba=BLUE
    )
    front = shape(kind, rotation=rotation(7))
    base = render([behind], DEEP, 160, 160).astype(float)
    opaque = render([behind, front], DEEP, 160, 160).astype(float)
    clear = replace(front, rgba=(*RED[:3], alpha))
    blended = render([clear, behind], DEEP, 160, 160).astype(float)
    error = np.abs(blended - (alpha * opaque + (1 - alpha) * base)).max(axis=2)
    assert np.abs(opaque - base).max() > 60
    # Exact but where edges of both fall into one pixel, whose background is then an average.
    assert (error > 1.5).sum() < 0.012 * (opaque != base).any(axis=2).sum()
    assert error.max() < 30


def test_translucent_layers_blend_back_to_front_in_any_order() -> None:
    # Concentric: by centres there is no order, and the big one is in front of the small one.
    layers = [
        shape(size=(0.15,), rgba=(0.1, 0.8, 0.2, 0.5)),
        shape(size=(0.3,), rgba=(0.9, 0.1, 0.1, 0.5)),
        shape("box", size=(0.9, 0.9, 0.02), rgba=(0.1, 0.1, 0.9, 0.5)),
    ]
    pictures = [render(p, DEEP, 120, 120) for p in itertools.permutations(layers)]
    for picture in pictures[1:]:
        assert np.abs(picture.astype(int) - pictures[0]).max() <= 1
    base = render([], DEEP, 120, 120)[60, 60].astype(float)
    green = render([replace(layers[0], rgba=(0.1, 0.8, 0.2, 1.0))], DEEP, 120, 120)[60, 60]
    red = render([replace(layers[1], rgba=(0.9, 0.1, 0.1, 1.0))], DEEP, 120, 120)[60, 60]
    expected = 0.5 * red + 0.5 * (0.5 * green + 0.5 * base)
    both = render(layers[:2], DEEP, 120, 120)[60, 60]
    assert np.abs(both - expected).max() <= 1.5


def test_translucent_shape_behind_an_opaque_one_is_hidden() -> None:
    towards_eye = np.subtract(DEEP.eye, CENTRE) / np.linalg.norm(np.subtract(DEEP.eye, CENTRE))
    screen = shape(size=(0.5,), position=CENTRE + 0.6 * towards_eye)
    hidden = shape(rgba=(0.1, 0.8, 0.2, 0.5))
    alone = render([screen], DEEP, 80, 80)
    assert np.array_equal(render([screen, hidden], DEEP, 80, 80), alone)
    assert not np.array_equal(render([hidden], DEEP, 80, 80), render([], DEEP, 80, 80))


def test_alpha_zero_is_invisible_and_casts_no_shadow() -> None:
    camera = Camera(eye=(1.0, -1.0, 1.0), target=(0.0, 0.0, 0.0))
    ghost = shape(position=np.array([0.0, 0.0, 0.3]), rgba=(1.0, 0.0, 0.0, 0.0))
    assert np.array_equal(render([ghost], camera, 80, 80), render([], camera, 80, 80))


# --- Light ----------------------------------------------------------------------------------------


def brightness(picture: Picture) -> NDArray[np.float64]:
    return np.asarray(picture.astype(float).mean(axis=2))


def test_shape_casts_one_shadow_on_the_ground_and_a_translucent_one_a_lighter() -> None:
    # Seen from straight above, the ball's shadow lies beside it, away from the light.
    camera = Camera(eye=(0.0, 0.0, 4.0), target=(0.0, 0.0, 0.0))
    empty = brightness(render([], camera, 200, 200))
    ball = shape(size=(0.15,), position=np.array([0.0, 0.0, 0.6]))
    loss = empty - brightness(render([ball], camera, 200, 200))
    clear = replace(ball, rgba=(*RED[:3], 0.3))
    clear_loss = empty - brightness(render([clear], camera, 200, 200))

    y, x = np.mgrid[:200, :200] + 0.5
    ball_pixels = np.hypot(x - 100, y - 100) < 14
    dark = (loss > 8) & ~ball_pixels
    assert 50 < dark.sum() < 1000
    assert 25 < loss[dark].max() < 150
    assert clear_loss[dark].mean() == pytest.approx(0.3 * loss[dark].mean(), rel=0.1)
    far = np.hypot(x - x[dark].mean(), y - y[dark].mean()) > 45
    assert np.abs(loss[far & ~ball_pixels]).max() < 1.0
    # It moves with the height of the ball, along one line from below the ball.
    low = replace(ball, position=np.array([0.0, 0.0, 0.3]))
    low_dark = (empty - brightness(render([low], camera, 200, 200)) > 8) & ~ball_pixels
    step = np.array([x[dark].mean() - 100, y[dark].mean() - 100])
    low_step = np.array([x[low_dark].mean() - 100, y[low_dark].mean() - 100])
    assert np.linalg.norm(low_step) < 0.75 * np.linalg.norm(step)
    assert step @ low_step > 0.95 * np.linalg.norm(step) * np.linalg.norm(low_step)


def test_shapes_shade_each_other() -> None:
    camera = Camera(eye=(0.0, -2.5, 1.2), target=(0.0, 0.0, 0.5))
    ball = shape(size=(0.2,), position=np.array([0.0, 0.0, 0.3]))
    roof = shape("box", size=(3.0, 3.0, 0.02), position=np.array([0.0, 0.0, 1.8]))
    row, column = (int(v) for v in project(ball.position[None], camera, 160, 160)[0][::-1])
    open_sky = brightness(render([ball], camera, 160, 160))[row - 6, column]
    covered = brightness(render([ball, roof], camera, 160, 160))[row - 6, column]
    assert covered < open_sky - 15


def test_light_comes_from_above() -> None:
    picture = brightness(render([shape(size=(0.4,))], DEEP, 100, 100))
    assert picture[32, 50] > picture[68, 50] + 20


def test_surfaces_that_coincide_look_the_same() -> None:
    # The end of a cylinder is a face of a box, that of a capsule a sphere, and both have one side.
    right, up, forward = frame_of(DEEP)
    turn = np.stack([right, (up + forward) / math.sqrt(2), (up - forward) / math.sqrt(2)], axis=1)
    end = CENTRE + 0.2 * turn[:, 2]
    cylinder = shape("cylinder", size=(0.2, 0.4), rotation=turn)
    capsule = shape("capsule", size=(0.2, 0.4), rotation=turn)
    box = shape("box", size=(0.25, 0.25, 0.4), rotation=turn)
    ball = shape(size=(0.2,), position=end)
    pictures: dict[str, Picture] = {
        s.kind: render([s], DEEP, 200, 200) for s in (cylinder, capsule, box, ball)
    }

    def patch(kind: str, point: NDArray[np.float64]) -> NDArray[np.int_]:
        column, row = project(point[None], DEEP, 200, 200)[0].astype(int)
        return pictures[kind][row - 1 : row + 2, column - 1 : column + 2].astype(int)

    across = np.cross(turn[:, 2], np.cross(np.subtract(DEEP.eye, CENTRE), turn[:, 2]))
    side = CENTRE + 0.2 * across / np.linalg.norm(across)
    for one, other, point in (
        ("cylinder", "box", end),
        ("capsule", "sphere", end + 0.2 * turn[:, 2]),
        ("cylinder", "capsule", side),
    ):
        assert np.abs(patch(one, point) - patch(other, point)).max() <= 1
    assert np.abs(patch("cylinder", end) - patch("cylinder", side)).max() > 10


def test_a_surface_does_not_shade_itself() -> None:
    camera = Camera(eye=(0.3, -1.5, 1.5), target=(0.0, 0.0, 0.5))
    c, s = math.cos(0.6), math.sin(0.6)
    tilt = np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])
    plate = shape("box", size=(1.0, 1.0, 0.1), rotation=tilt, position=np.array([0.0, 0.0, 0.6]))
    patch = brightness(render([plate], camera, 200, 200))[80:110, 80:120]
    assert np.abs(np.diff(patch, axis=0)).max() < 1.5
    assert np.abs(np.diff(patch, axis=1)).max() < 1.5


def test_opaque_colour_follows_rgba() -> None:
    for channel in range(3):
        colour = [0.15, 0.15, 0.15, 1.0]
        colour[channel] = 0.9
        pixel = render([shape(rgba=tuple(colour))], DEEP, 60, 60)[30, 30].astype(int)
        assert pixel.argmax() == channel
        assert np.delete(pixel, channel).max() < pixel[channel] - 40


# --- Contract -------------------------------------------------------------------------------------


def busy_scene() -> list[Shape]:
    shapes = [
        shape(kind, rotation=rotation(i), position=np.array([0.3 * i - 0.5, 0.1 * i, 0.4]))
        for i, kind in enumerate(SIZES)
    ]
    shapes.append(shape(position=np.array([0.0, -0.2, 0.4]), rgba=(0.2, 0.8, 0.4, 0.4)))
    return shapes + axes(np.array([0.3, -0.3, 0.0]), EYE)


ABOVE = Camera(eye=(1.5, -1.2, 1.0), target=(0.0, 0.0, 0.3))


def test_equal_input_gives_equal_bytes_and_results_are_fresh() -> None:
    first = render(busy_scene(), ABOVE, 120, 90)
    kept, empty = first.copy(), render([], ABOVE, 120, 90).copy()
    first[:] = 7
    render([], ABOVE, 120, 90)[:] = 9
    for i in range(12):  # more cameras than any cache keeps
        render([], replace(ABOVE, fov=30.0 + i), 20, 20)
    assert np.array_equal(render(busy_scene(), ABOVE, 120, 90), kept)
    assert np.array_equal(render([], ABOVE, 120, 90), empty)


def test_inputs_are_not_written_to() -> None:
    shapes = busy_scene()
    for item in shapes:
        item.position.setflags(write=False)
        item.rotation.setflags(write=False)
    before = [(s.position.copy(), s.rotation.copy()) for s in shapes]
    render(shapes, ABOVE, 60, 60)
    for item, (position, turn) in zip(shapes, before, strict=True):
        assert np.array_equal(item.position, position)
        assert np.array_equal(item.rotation, turn)


@pytest.mark.parametrize(("width", "height"), [(480, 480), (16, 16), (1, 1), (1, 7), (33, 20)])
def test_result_has_the_size_and_dtype_that_were_asked_for(width: int, height: int) -> None:
    for shapes in ([], busy_scene()):
        picture = render(shapes, ABOVE, width, height)
        assert picture.shape == (height, width, 3)
        assert picture.dtype == np.uint8
        assert picture.flags.writeable
        assert picture.flags.c_contiguous


def test_defaults_are_480_by_480() -> None:
    assert np.array_equal(render([shape()], DEEP), render([shape()], DEEP, 480, 480))


def test_small_picture_is_the_big_one_scaled_down() -> None:
    big = render(busy_scene(), ABOVE, 320, 320).astype(float)
    small = render(busy_scene(), ABOVE, 40, 40).astype(float)
    mean = big.reshape(40, 8, 40, 8, 3).mean(axis=(1, 3))
    assert np.abs(mean - small).mean() < 2.5


@pytest.mark.parametrize("up", [1.0, -1.0])
def test_camera_along_z_has_y_upwards_and_does_not_mirror(up: float) -> None:
    camera = Camera(eye=(0.0, 0.0, -5.0 + 2 * up), target=(0.0, 0.0, -5.0))
    empty = render([], camera, 100, 100)
    right = up  # looking up, x points to the left
    for offset, (row, column) in (
        ((0.3, 0.0, 0.0), (50.0, 50.0 + 18.1 * right)),
        ((0.0, 0.3, 0.0), (50.0 - 18.1, 50.0)),
    ):
        ball = shape(size=(0.05,), position=np.add(camera.target, offset))
        rows, columns = np.nonzero(mask(render([ball], camera, 100, 100), empty))
        assert (rows.mean() + 0.5, columns.mean() + 0.5) == pytest.approx((row, column), abs=0.6)


def test_camera_almost_along_z_works() -> None:
    for tilt in (1e-3, 1e-6, 1e-9, 1e-12):
        camera = Camera(eye=(0.0, -tilt, -3.0), target=(0.0, 0.0, -5.0))
        seen = mask(render([shape()], camera, 60, 60), render([], camera, 60, 60))
        assert seen[30, 30]
        assert not seen[0].any()


def test_float32_and_list_inputs_draw_the_same() -> None:
    turn = rotation(3)
    plain = shape("box", rotation=turn)
    single = replace(plain, position=CENTRE.astype(np.float32), rotation=turn.astype(np.float32))
    listed = replace(plain, position=list(CENTRE), rotation=turn.tolist())  # type: ignore[arg-type]
    expected = render([plain], DEEP, 80, 80)
    assert np.array_equal(render([listed], DEEP, 80, 80), expected)
    assert (render([single], DEEP, 80, 80) != expected).mean() < 0.02


def test_extreme_but_finite_scenes_do_not_crash() -> None:
    for scale in (1e-9, 1e6, 1e20, 1e200, 1e300):
        for kind, size in SIZES.items():
            huge = tuple(s * scale for s in size)
            for alpha in (1.0, 0.5):
                rgba = (*RED[:3], alpha)
                shapes = [
                    shape(kind, size=huge, rgba=rgba),
                    shape(kind, position=np.full(3, scale), rgba=rgba),
                ]
                assert render(shapes, ABOVE, 24, 24).shape == (24, 24, 3)
    # A wall whose hits are finite depths, but beyond float32 as points.
    camera = Camera(eye=(0.0, 0.0, -5.0), target=(1.0, 1.0, -5.0), fov=100.0)
    frame = frame_of(camera)
    wall = shape("box", size=(3.3e38, 3.3e38, 1e36), position=3.3e38 * frame[2], rotation=frame.T)
    assert render([wall], camera, 24, 24).shape == (24, 24, 3)
    assert render(busy_scene(), replace(ABOVE, fov=179.9), 24, 24).shape == (24, 24, 3)
    assert render(busy_scene(), replace(ABOVE, fov=1e-3), 24, 24).shape == (24, 24, 3)


# --- Axes -----------------------------------------------------------------------------------------


def test_axes_reach_from_the_origin_along_the_columns_of_the_rotation() -> None:
    turn, origin, length = rotation(8), CENTRE + np.array([0.1, 0.0, 0.1]), 0.4
    shapes = axes(origin, turn, length)
    assert len(shapes) == 3
    for axis, bar in enumerate(shapes):
        assert bar.kind == "capsule"
        radius, straight = bar.size
        direction = bar.rotation[:, 2]
        assert np.allclose(direction, turn[:, axis])
        assert np.linalg.det(bar.rotation) == pytest.approx(1.0)
        assert np.allclose(bar.position - direction * straight / 2, origin)
        assert np.allclose(
            bar.position + direction * (straight / 2 + radius), origin + length * direction
        )
        assert int(np.argmax(bar.rgba[:3])) == axis
        assert bar.rgba[3] == 1.0
    assert mask(render(shapes, DEEP, 64, 64), render([], DEEP, 64, 64)).any()


@pytest.mark.parametrize("length", [0.0, -0.1, math.nan, math.inf, "long", True])
def test_axes_reject_a_bad_length(length: Any) -> None:
    with pytest.raises(RenderError, match=r"axes: length is .*expected a positive number"):
        axes(np.zeros(3), EYE, length)


def test_axes_reject_a_bad_pose() -> None:
    with pytest.raises(RenderError, match=r"axes: position is .*nan"):
        axes(np.array([0.0, math.nan, 0.0]), EYE)
    with pytest.raises(RenderError, match=r"axes: rotation has shape \(3,\), expected \(3, 3\)"):
        axes(np.zeros(3), np.zeros(3))


# --- Tile -----------------------------------------------------------------------------------------


def flat(value: int, height: int = 3, width: int = 5) -> Picture:
    return np.full((height, width, 3), value, np.uint8)


def test_tile_puts_frames_row_by_row() -> None:
    frames = [flat(10 * (i + 1)) for i in range(5)]
    sheet = tile(frames, columns=3, border=2)
    assert sheet.shape == (2 * 3 + 3 * 2, 3 * 5 + 4 * 2, 3)
    assert sheet.dtype == np.uint8
    rest = np.ones(sheet.shape[:2], bool)
    for i in range(5):
        y, x = 2 + i // 3 * 5, 2 + i % 3 * 7
        assert (sheet[y : y + 3, x : x + 5] == 10 * (i + 1)).all()
        rest[y : y + 3, x : x + 5] = False
    assert (sheet[rest] == 255).all()


@pytest.mark.parametrize(
    ("count", "across", "down"), [(1, 1, 1), (2, 2, 1), (4, 2, 2), (5, 3, 2), (9, 3, 3), (10, 4, 3)]
)
def test_tile_is_about_square_by_default(count: int, across: int, down: int) -> None:
    sheet = tile(np.stack([flat(0, 4, 4)] * count))
    assert sheet.shape == (down * 8 + 4, across * 8 + 4, 3)


def test_tile_without_border_and_with_more_columns_than_frames() -> None:
    assert np.array_equal(
        tile([flat(1), flat(2)], columns=7, border=0), np.hstack([flat(1), flat(2)])
    )


def test_tile_copies() -> None:
    frame = flat(3)
    tile([frame], border=0)[:] = 0
    assert (frame == 3).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "no frames"),
        (([flat(0), flat(0, 4)],), r"frames\[1\] has shape \(4, 5, 3\) but frames\[0\]"),
        (([flat(0).astype(float)],), r"frames\[0\].*float64.*expected.*uint8"),
        (([flat(0)[..., 0]],), r"frames\[0\] has shape \(3, 5\)"),
        (([np.zeros((3, 5, 4), np.uint8)],), r"frames\[0\] has shape \(3, 5, 4\)"),
        (([flat(0)], 0), "columns=0, expected a whole number >= 1"),
        (([flat(0)], 1.5), r"columns=1\.5"),
        (([flat(0)], 1, -1), "border=-1"),
        (([flat(0)], 1, 0.5), r"border=0\.5"),
    ],
)
def test_tile_rejects(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(RenderError, match=message):
        tile(*arguments)


# --- Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "cone"}, r"shapes\[1\].kind is 'cone', expected one of 'sphere', 'capsule'"),
        ({"kind": ["box"]}, r"shapes\[1\].kind is \['box'\]"),
        ({"size": (0.1, 0.2)}, r"shapes\[1\].size is \(0.1, 0.2\), expected \(radius\)"),
        ({"size": 0.1}, r"shapes\[1\].size is 0.1, expected \(radius\)"),
        ({"size": ("big",)}, r"shapes\[1\].size is \('big',\)"),
        ({"size": (0.0,)}, r"shapes\[1\].size is \(0.0,\).*positive"),
        ({"size": (-1.0,)}, r"shapes\[1\].size is \(-1.0,\).*positive"),
        ({"size": (math.nan,)}, r"shapes\[1\].size is \(nan,\)"),
        ({"size": (math.inf,)}, r"shapes\[1\].size is \(inf,\)"),
        ({"kind": "capsule", "size": (0.1,)}, r"expected \(radius, length\).*for a capsule"),
        ({"kind": "cylinder", "size": (0.1, 0.0)}, r"expected \(radius, length\).*for a cylinder"),
        ({"kind": "box", "size": (0.1, 0.1)}, r"expected \(x, y, z\).*for a box"),
        ({"position": np.array([0, math.nan, 0])}, r"shapes\[1\].position is .*nan.*finite"),
        ({"position": np.array([0, math.inf, 0])}, r"shapes\[1\].position is .*inf.*finite"),
        ({"position": np.zeros(2)}, r"shapes\[1\].position has shape \(2,\), expected \(3,\)"),
        ({"position": np.zeros(1)}, r"shapes\[1\].position has shape \(1,\), expected \(3,\)"),
        ({"position": "here"}, r"shapes\[1\].position is 'here'"),
        ({"position": None}, r"shapes\[1\].position"),
        ({"rotation": np.full((3, 3), math.nan)}, r"shapes\[1\].rotation is .*nan.*finite"),
        ({"rotation": np.eye(4)}, r"shapes\[1\].rotation has shape \(4, 4\), expected \(3, 3\)"),
        ({"rotation": np.ones(3)}, r"shapes\[1\].rotation has shape \(3,\)"),
        ({"rotation": 2 * np.eye(3)}, r"shapes\[1\].rotation is .*expected a rotation matrix"),
        ({"rgba": (1.0, 0.0, 0.0)}, r"shapes\[1\].rgba has shape \(3,\), expected \(4,\)"),
        ({"rgba": (255, 0, 0, 1)}, r"shapes\[1\].rgba is .*from 0 to 1; divide bytes by 255"),
        ({"rgba": (0.5, -0.1, 0, 1)}, r"shapes\[1\].rgba is .*from 0 to 1"),
        ({"rgba": (0.5, math.nan, 0, 1)}, r"shapes\[1\].rgba is .*nan.*finite"),
    ],
)
def test_bad_shape(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RenderError, match=message) as caught:
        render([shape(), replace(shape(), **fields)], DEEP, 16, 16)
    assert isinstance(caught.value, FraxenvError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fov": 0.0}, "camera.fov is 0.0, expected degrees strictly between 0 and 180"),
        ({"fov": 180.0}, "camera.fov is 180.0"),
        ({"fov": -10.0}, "camera.fov is -10.0"),
        ({"fov": math.nan}, "camera.fov is nan"),
        ({"fov": "wide"}, "camera.fov is 'wide'"),
        ({"eye": ABOVE.target}, "camera.eye .* and camera.target .* are 0 m apart"),
        ({"eye": (1e9, 0.0, 0.0)}, "m apart, expected between 1e-6 and 1e6"),
        ({"eye": (1e200, 0.0, 0.0)}, "m apart"),
        ({"eye": (math.nan, 0.0, 0.0)}, "camera.eye is .*nan.*finite"),
        ({"target": (math.inf, 0.0, 0.0)}, "camera.target is .*inf.*finite"),
        ({"eye": (0.0, 1.0)}, r"camera.eye has shape \(2,\), expected \(3,\)"),
        ({"target": None}, "camera.target"),
    ],
)
def test_bad_camera(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RenderError, match=message):
        render([], replace(ABOVE, **fields), 16, 16)


@pytest.mark.parametrize("value", [0, -4, 2.5, math.nan, "480", None, True])
def test_bad_picture_size(value: Any) -> None:
    with pytest.raises(RenderError, match=r"width=.*expected a whole number >= 1"):
        render([], ABOVE, value, 16)
    with pytest.raises(RenderError, match=r"height=.*expected a whole number >= 1"):
        render([], ABOVE, 16, value)
