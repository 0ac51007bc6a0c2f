"""Signed distances of shapes.

A distance is positive between separate shapes, and minus the penetration depth (the length of the
shortest translation that separates them) between overlapping ones. Capsules and spheres are
segments and points with a radius, so everything reduces to distances of points and segments.

Distances are closed forms, without iteration or smoothing. They are twice differentiable, in
forward and reverse mode, by the parameters of both shapes, wherever the exact distance is; first
and second derivatives are finite everywhere. At a kink of the exact distance, the first derivative
is one of the one-sided derivatives, or an average of them:

- centres of spheres, or axes of capsules, that meet: zero;
- a centre or an axis in a box, with two equally short ways out: an average, or zero if the ways are
  opposite;
- capsules parallel to each other, or to a face or an edge of a box, or to a half-space, have many
  closest points, and turning one moves the contact to an end: the derivative for a contact between
  the ends.

Three tolerances bound the error:

- Segments within 1e-3 rad of parallel, to each other or to an edge of a box: the contact moves from
  one end to the other over that range, so that second derivatives stay bounded. The distance is
  overestimated by at most 1e-7 L^2 / d, where L is the length of a capsule and d the distance of
  its axis from the other's axis or the box (5e-8 m at L = 0.3 m, d = 0.2 m), and 4e-4 L at any d.
  Only if the axes all but meet as well, d < 1e-3 L, may a first derivative be larger than usual.
- Axes shorter than 1e-6 m: an error of at most their length.
- Points, axes and boxes within 1e-9 m (1.2e-6 m in float32) of each other: taken to meet.

With `bounded_curvature` the second derivative is another one where a contact runs along a capsule
much faster than the capsule turns: where the squared sine of the angle between two segments, or a
segment and a face or an edge, is below 0.5 d / L + 0.02. The distance bends there like d / angle^2,
for as short a time, which no acceleration of a robot makes up for. What is taken bends by at most
4 (L + d) w^2 in a turn at w rad/s. Values and first derivatives are the same.

Sources: Ericson, Real-Time Collision Detection (2005), 5.1.2 (point and segment), 5.1.9 (two
segments), 5.1.3 (point and box), 4.4.1 and 5.2.1 (separating axes). Segment and box are our own:
the squared distance along the segment is convex and piecewise quadratic, and its
minimum is found from its slope at the breakpoints.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ..math.algebra import matmul
from ..math.tracing import traced_once
from .shapes import Box, Capsule, HalfSpace, Sphere, arrays_of_one

SHORT = 1e-6
"""Length, m, below which a direction is ill-defined."""

_PARALLEL = 1e-6
"""Squared sine of the angle below which two directions are taken for parallel."""

_SLIDING = 0.5, 0.02
"""Squared sine of the angle, in units of d / L and 1, below which a contact slides no faster."""


@traced_once
def sphere_sphere(a: Sphere, b: Sphere) -> Float[Array, ""]:
    """Signed distance, m, of two spheres.

    Raises:
        ArrayError: a field has the wrong shape.
    """
    centre_a, radius_a = arrays_of_one(a)
    centre_b, radius_b = arrays_of_one(b)
    return _norm(centre_a - centre_b) - radius_a - radius_b


@traced_once
def sphere_capsule(sphere: Sphere, capsule: Capsule) -> Float[Array, ""]:
    """Signed distance, m, of a sphere and a capsule.

    Raises:
        ArrayError: a field has the wrong shape.
    """
    centre, radius = arrays_of_one(sphere)
    start, end, thickness = arrays_of_one(capsule)
    axis = end - start
    closest = start + _nearest(centre, start, axis) * axis
    return _norm(centre - closest) - radius - thickness


@traced_once
def sphere_box(sphere: Sphere, box: Box) -> Float[Array, ""]:
    """Signed distance, m, of a sphere and a box; also exact inside the box.

    Raises:
        ArrayError: a field has the wrong shape.
    """
    centre, radius = arrays_of_one(sphere)
    position, rotation, half = arrays_of_one(box)
    excess = jnp.abs(matmul(rotation.T, centre - position)) - half
    return _outside_or(jnp.maximum(excess, 0.0), jnp.max(excess)) - radius


@traced_once
def sphere_half_space(sphere: Sphere, half_space: HalfSpace) -> Float[Array, ""]:
    """Signed distance, m, of a sphere and a half-space.

    Raises:
        ArrayError: a field has the wrong shape.
    """
    centre, radius = arrays_of_one(sphere)
    normal, offset = arrays_of_one(half_space)
    return jnp.sum(normal * centre) - offset - radius


@traced_once
def capsule_capsule(a: Capsule, b: Capsule, *, bounded_curvature: bool = False) -> Float[Array, ""]:
    """Signed distance, m, of two capsules.

    Args:
        a: one.
        b: the other.
        bounded_curvature: see above.

    Raises:
        ArrayError: a field has the wrong shape.
    """
    start_a, end_a, radius_a = arrays_of_one(a)
    start_b, end_b, radius_b = arrays_of_one(b)
    axis_a, axis_b = end_a - start_a, end_b - start_b
    square_a, square_b = jnp.sum(axis_a * axis_a), jnp.sum(axis_b * axis_b)
    # The part of axis a at right angles to axis b moves the distance to b's infinite line.
    across = axis_a - axis_b * (jnp.sum(axis_a * axis_b) / jnp.maximum(square_b, SHORT**2))
    pull, curvature = jnp.sum((start_b - start_a) * across), jnp.sum(across * across)
    s = _minimiser(pull, curvature, square_a, 0.5)
    on_a = start_a + jnp.clip(s, 0.0, 1.0) * axis_a
    on_b = start_b + _nearest(on_a, start_b, axis_b) * axis_b
    if bounded_curvature:
        s = _sliding(s, pull, curvature, square_a, _norm(on_a - on_b))
        on_a = start_a + jnp.clip(s, 0.0, 1.0) * axis_a
        on_b = start_b + _nearest(on_a, start_b, axis_b) * axis_b
    on_a = start_a + _nearest(on_b, start_a, axis_a) * axis_a
    return _norm(on_a - on_b) - radius_a - radius_b


@traced_once
def capsule_box(capsule: Capsule, box: Box, *, bounded_curvature: bool = False) -> Float[Array, ""]:
    """Signed distance, m, of a capsule and a box; also exact where the axis enters the box.

    Args:
        capsule: the one.
        box: the other.
        bounded_curvature: see above.

    Raises:
        ArrayError: a field has the wrong shape.
    """
    start, end, radius = arrays_of_one(capsule)
    position, rotation, half = arrays_of_one(box)
    start, end = matmul(rotation.T, start - position), matmul(rotation.T, end - position)
    axis = end - start
    closest = start + _nearest_to_box(start, axis, half, bounded_curvature) * axis
    outside = jnp.maximum(jnp.abs(closest) - half, 0.0)
    return _outside_or(outside, _separation(start, axis, half)) - radius


@traced_once
def capsule_half_space(capsule: Capsule, half_space: HalfSpace) -> Float[Array, ""]:
    """Signed distance, m, of a capsule and a half-space.

    Raises:
        ArrayError: a field has the wrong shape.
    """
    start, end, radius = arrays_of_one(capsule)
    normal, offset = arrays_of_one(half_space)
    return jnp.minimum(jnp.sum(normal * start), jnp.sum(normal * end)) - offset - radius


def _outside_or(x: Array, inside: Array) -> Array:
    """Euclidean norm of `x` (3,), or `inside` where `x` is nearly zero."""
    return jnp.where(_long(x), _norm(x), inside)


def _long(x: Array) -> Array:
    """Whether `x` (3,) is longer than 1e-9 m, 1e-6 in float32.

    Below that, the direction of a difference of points is rounding error; still shorter, its square
    underflows.
    """
    return jnp.sum(x * x) > _tiny(x)


def _tiny(x: Array) -> Array:
    return jnp.asarray(max(1e-9, 10 * float(np.finfo(x.dtype).eps)) ** 2, x.dtype)


# The norm and its slope, whose derivatives are made of each other: a dot product per direction,
# where the chain rule would need a division as well.


@jax.custom_jvp
def _norm(x: Array) -> Array:
    """Euclidean norm of `x` (3,), quadratic where `x` is nearly zero."""
    return jnp.sum(x * x) * _inverse_norm(x)


@jax.custom_jvp
def _inverse_norm(x: Array) -> Array:
    return jax.lax.rsqrt(jnp.maximum(jnp.sum(x * x), _tiny(x)))


@jax.custom_jvp
def _slope(x: Array, dx: Array) -> Array:
    """Derivative of the norm of `x` (3,) along `dx` (3,)."""
    return jnp.sum(x * dx) * _inverse_norm(x)


@_norm.defjvp
def _norm_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    return _norm(x), _slope(x, dx)


@_inverse_norm.defjvp
def _inverse_norm_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    inverse = _inverse_norm(x)
    return inverse, -(inverse * inverse) * _slope(x, dx)


@_slope.defjvp
def _slope_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (x, dx), (ex, d2x) = primals, tangents
    slope = _slope(x, dx)
    across = jnp.sum(dx * ex) - slope * _slope(x, ex)
    return slope, _inverse_norm(x) * (across + jnp.sum(x * d2x))


def _nearest(point: Array, start: Array, axis: Array) -> Array:
    """Fraction along a segment, in [0, 1], of its point closest to `point`."""
    along = jnp.sum((point - start) * axis) / jnp.maximum(jnp.sum(axis * axis), SHORT**2)
    return jnp.clip(along, 0.0, 1.0)


def _minimiser(pull: Array, curvature: Array, square: Array, middle: Array | float) -> Array:
    """Minimiser `s` of `curvature s^2 / 2 - pull s`, m^2; near `middle` if that is nearly flat.

    The function is half the squared distance at the fraction `s` along a segment of squared length
    `square`.
    """
    floor = jnp.maximum(_PARALLEL * square, SHORT**2)
    return middle + (pull - middle * curvature) / jnp.maximum(curvature, floor)


def _sliding(s: Array, pull: Array, curvature: Array, square: Array, gap: Array) -> Array:
    """The result `s` of `_minimiser`, with a rate that is bounded; for shapes `gap` m apart."""
    slope = pull - jax.lax.stop_gradient(s) * curvature
    by_gap, always = _SLIDING
    square = jnp.maximum(square, SHORT**2)
    stiffness = jnp.maximum(curvature, by_gap * gap * jnp.sqrt(square) + always * square)
    return _with_rate(s, slope, jax.lax.stop_gradient(stiffness))


@jax.custom_jvp
def _with_rate(s: Array, slope: Array, stiffness: Array) -> Array:
    """`s`, which changes as the root `x` of `slope - stiffness (x - s)` does."""
    return s


@_with_rate.defjvp
def _with_rate_jvp(
    primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    (s, slope, stiffness), (_, change, _) = primals, tangents
    return _with_rate(s, slope, stiffness), change / stiffness


def _nearest_to_box(start: Array, axis: Array, half: Array, bounded_curvature: bool) -> Array:
    """Fraction along a segment, in [0, 1], of its point closest to the box [-half, half].

    Between the fractions at which the segment crosses the planes of the faces, the slope of the
    squared distance is linear, and it never decreases. The choice of the piece with the root is
    discrete, without a derivative; the root on that piece is differentiated.
    """
    fixed_start, fixed_axis, fixed_half = jax.lax.stop_gradient((start, axis, half))
    planes = jnp.concatenate([fixed_half, -fixed_half]) - jnp.tile(fixed_start, 2)
    divisor = jnp.tile(jnp.where(fixed_axis == 0, 1.0, fixed_axis), 2)
    ends = jnp.array([0.0, 1.0], start.dtype)
    s = jnp.concatenate([jnp.clip(planes / divisor, 0.0, 1.0), ends])
    points = fixed_start + s[:, None] * fixed_axis
    slope = jnp.sum((points - jnp.clip(points, -fixed_half, fixed_half)) * fixed_axis, axis=1)
    falling = jnp.max(jnp.where(slope <= 0, s, 0.0))
    rising = jnp.min(jnp.where(slope >= 0, s, 1.0))
    middle = 0.5 * (falling + rising)

    point = fixed_start + middle * fixed_axis
    outside = jnp.abs(point) > fixed_half
    across = jnp.where(outside, axis, 0.0)
    pull = jnp.sum(across * (jnp.sign(point) * half - start))
    curvature, square = jnp.sum(across * across), jnp.sum(axis * axis)
    root = _minimiser(pull, curvature, square, middle)
    if bounded_curvature:
        at_root = fixed_start + root * fixed_axis
        gap = _norm(jnp.maximum(jnp.abs(at_root) - fixed_half, 0.0))
        root = _sliding(root, pull, curvature, square, gap)
    return jnp.clip(root, jnp.minimum(falling, rising), jnp.maximum(falling, rising))


def _separation(start: Array, axis: Array, half: Array) -> Array:
    """Largest gap between the box [-half, half] and a segment along any separating axis.

    Candidates are the normals of the faces of their Minkowski difference: those of the box, and
    the cross products of its edges with the segment. Negative iff the two intersect, and then
    minus the length of the shortest translation that separates them.
    """
    centre, reach = start + 0.5 * axis, 0.5 * axis
    faces = jnp.abs(centre) - half - jnp.abs(reach)
    j, k = np.array([1, 2, 0]), np.array([2, 0, 1])
    square = reach[j] ** 2 + reach[k] ** 2
    defined = square > SHORT**2
    gap = jnp.abs(reach[j] * centre[k] - reach[k] * centre[j])
    gap = gap - half[j] * jnp.abs(reach[k]) - half[k] * jnp.abs(reach[j])
    edges = jnp.where(defined, gap / jnp.sqrt(jnp.where(defined, square, 1.0)), faces)
    face, edge = jnp.max(faces), jnp.max(edges)
    # A segment along an edge of the box has cross products that are normals of faces as well, but
    # whose derivative is not that of the distance: beyond rounding, they have to be better.
    return jnp.where(edge > face + 16 * float(np.finfo(start.dtype).eps), edge, face)


BENDING = (capsule_capsule, capsule_box)
"""Distances that take `bounded_curvature`."""

DISTANCE: dict[tuple[type, type], Callable[..., Array]] = {
    (Sphere, Sphere): sphere_sphere,
    (Sphere, Capsule): sphere_capsule,
    (Sphere, Box): sphere_box,
    (Sphere, HalfSpace): sphere_half_space,
    (Capsule, Sphere): lambda capsule, sphere: sphere_capsule(sphere, capsule),
    (Capsule, Capsule): capsule_capsule,
    (Capsule, Box): capsule_box,
    (Capsule, HalfSpace): capsule_half_space,
}
