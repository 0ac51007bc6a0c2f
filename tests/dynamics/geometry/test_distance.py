"""Signed distances of shapes against Coal and MuJoCo, and their derivatives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from placed_shapes import Placed, coal_library, place
from scipy.spatial.transform import Rotation
from support import dtype_with_slow

from fraxenv import dynamics
from fraxenv.dynamics import ArrayError, Box, Capsule, HalfSpace, Sphere

PAIRS: dict[str, tuple[type, type]] = {
    "sphere_sphere": (Sphere, Sphere),
    "sphere_capsule": (Sphere, Capsule),
    "sphere_box": (Sphere, Box),
    "sphere_half_space": (Sphere, HalfSpace),
    "capsule_capsule": (Capsule, Capsule),
    "capsule_box": (Capsule, Box),
    "capsule_half_space": (Capsule, HalfSpace),
}
QUICK = {"xla_backend_optimization_level": 0}  # to compile
ORACLE_TOLERANCE = 1e-12  # measured: better than 1e-15
FLOAT32_TOLERANCE = 1e-6  # m, at distances up to 2 m; measured: 2e-7
BALL = Sphere(np.zeros(3), 0.1)


@lru_cache
def of_all(name: str) -> Callable[..., jax.Array]:
    return jax.jit(jax.vmap(getattr(dynamics, name)), compiler_options=QUICK)


def cast(tree: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)


def coal_distances(a: Placed, b: Placed) -> np.ndarray:
    coal = coal_library()

    def geometry(shape: Placed, i: int) -> Any:
        size = shape.size[i]
        if shape.kind is Sphere:
            return coal.Sphere(size[0])
        if shape.kind is Capsule:
            return coal.Capsule(size[0], 2 * size[1])
        if shape.kind is Box:
            return coal.Box(*(2 * size))
        return coal.Halfspace(np.array([0.0, 0.0, 1.0]), 0.0)

    request = coal.DistanceRequest()
    request.enable_signed_distance = True
    request.gjk_tolerance, request.epa_tolerance = 1e-12, 1e-10
    request.gjk_max_iterations = request.epa_max_iterations = 1000
    distances = []
    for i in range(len(a.position)):
        result = coal.DistanceResult()
        poses = [coal.Transform3s(s.rotation[i], s.position[i]) for s in (a, b)]
        coal.distance(geometry(a, i), poses[0], geometry(b, i), poses[1], request, result)
        distances.append(result.min_distance)
    return np.array(distances)


def mujoco_distances(a: Placed, b: Placed) -> np.ndarray:
    mujoco = pytest.importorskip("mujoco")
    kinds = {
        Sphere: 'type="sphere" size="1"',
        Capsule: 'type="capsule" size="1 1"',
        Box: 'type="box" size="1 1 1"',
        HalfSpace: 'type="plane" size="1 1 1"',
    }
    bodies = [f'<body mocap="true"><geom {kinds[s.kind]}/></body>' for s in (a, b)]
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><option ccd_tolerance="1e-14" ccd_iterations="500"/>'
        f"<worldbody>{''.join(bodies)}</worldbody></mujoco>"
    )
    data = mujoco.MjData(model)
    distances = []
    for i in range(len(a.position)):
        for geom, shape in enumerate((a, b)):
            model.geom_size[geom] = shape.size[i]
            data.geom_xpos[geom] = shape.position[i]
            data.geom_xmat[geom] = shape.rotation[i].ravel()
        distances.append(mujoco.mj_geomDistance(model, data, 0, 1, 100.0, None))
    return np.array(distances)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("aligned", [False, True], ids=["general", "aligned"])
def test_coal(x64: None, name: str, aligned: bool) -> None:
    a, b = (place(k, 2000, i, aligned=aligned) for i, k in enumerate(PAIRS[name]))
    ours = np.asarray(of_all(name)(a.ours, b.ours))
    assert np.mean(ours < 0) > 0.03
    np.testing.assert_allclose(ours, coal_distances(a, b), rtol=0, atol=ORACLE_TOLERANCE)


@pytest.mark.parametrize("name", PAIRS)
def test_mujoco(x64: None, name: str) -> None:
    a, b = (place(k, 2000, i) for i, k in enumerate(PAIRS[name]))
    ours = np.asarray(of_all(name)(a.ours, b.ours))
    theirs = mujoco_distances(a, b)
    if name == "capsule_box":  # MuJoCo has no depth for a capsule whose axis is in the box.
        outside = ours + a.size[:, 0] > 0
        assert np.mean(outside) > 0.7
        ours, theirs = ours[outside], theirs[outside]
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=ORACLE_TOLERANCE)


@pytest.mark.parametrize("name", PAIRS)
def test_float32(x64: None, name: str) -> None:
    a, b = (place(k, 2000, i).ours for i, k in enumerate(PAIRS[name]))
    as_used = jax.jit(jax.vmap(getattr(dynamics, name)))
    single = as_used(cast(a, np.float32), cast(b, np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, of_all(name)(a, b), rtol=0, atol=FLOAT32_TOLERANCE)


def test_known_distances(x64: None) -> None:
    box = Box(np.array([1.0, 0, 0]), np.eye(3), np.array([0.5, 0.3, 0.4]))
    table = HalfSpace(np.array([0.0, 0, 1]), 0.2)

    def ball(*position: float) -> Sphere:
        return Sphere(np.array(position), 0.1)

    def rod(start: list[float], end: list[float]) -> Capsule:
        return Capsule(np.array(start), np.array(end), 0.1)

    known: list[tuple[str, Any, Any, float]] = [
        ("sphere_box", ball(1, 0, 0), box, -0.4),  # at the centre: out through y
        ("sphere_box", ball(1, 0.3, 0), box, -0.1),  # on a face
        ("sphere_box", ball(1.5, 0.3, 0.4), box, -0.1),  # on a corner
        ("sphere_box", ball(1.5, 0.6, 0.8), box, 0.4),  # beside an edge: 3, 4, 5
        ("sphere_sphere", ball(1, 0, 0), ball(1, 0, 0), -0.2),
        ("sphere_half_space", ball(3, 2, 0), table, -0.3),
        ("sphere_capsule", ball(0, 0, 0), rod([-1, 0, 0], [1, 0, 0]), -0.2),
        ("capsule_half_space", rod([0, 0, 1], [0, 0, 0.5]), table, 0.2),
        # Right through the box, along z: the way out is through y.
        ("capsule_box", rod([1, 0, -9], [1, 0, 9]), box, -0.4),
        ("capsule_box", rod([1, 0.2, 0], [1, 0.2, 0]), box, -0.2),
        ("capsule_box", rod([0, 0.7, 0], [2, 0.7, 0]), box, 0.3),  # along a face
        ("capsule_capsule", rod([0, 0, 0], [1, 0, 0]), rod([0.5, 0.5, 0], [2, 0.5, 0]), 0.3),
        ("capsule_capsule", rod([-1, 0, 0], [1, 0, 0]), rod([0, -1, 0], [0, 1, 0]), -0.2),
    ]
    for name, a, b, expected in known:
        many = jax.tree.map(lambda x: np.asarray(x)[None], (a, b))
        assert of_all(name)(*many)[0] == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("name", ["sphere_capsule", "capsule_capsule", "capsule_box"])
@pytest.mark.parametrize("length", [0.0, 1e-9, 1e-5])
def test_a_short_capsule_is_a_sphere(x64: None, name: str, length: float) -> None:
    kinds = {"sphere_capsule": "sphere_sphere", "capsule_capsule": "sphere_capsule"}
    a, b = (place(k, 500, i).ours for i, k in enumerate(PAIRS[name]))
    long, other = (b, a) if name == "sphere_capsule" else (a, b)
    short = Capsule(long.start, long.start + np.array([0.0, 0.0, length]), long.radius)
    ball = Sphere(long.start, long.radius)
    first, second = (other, short) if name == "sphere_capsule" else (short, other)
    expected = of_all(kinds.get(name, "sphere_box"))(ball, other)
    np.testing.assert_allclose(of_all(name)(first, second), expected, rtol=0, atol=length + 1e-14)


def nearly_parallel(kind: type, n: int = 4000) -> tuple[Placed, Placed, np.ndarray]:
    """Capsules that pass along a capsule, or along the edge of a box, at small angles.

    Radii are zero, so that distances are those of axes and edges.
    """
    rng = np.random.default_rng(0)
    frame = Rotation.random(n, random_state=0)
    angle, tilt = 10 ** rng.uniform(-7, -1, n), 10 ** rng.uniform(-9, -1, n)
    lengths = rng.uniform(0.1, 0.4, (n, 2))

    turned = frame * Rotation.from_rotvec(np.stack([angle, tilt * angle**2, 0 * angle], axis=1))
    passing = np.array([1.0, 0.0, 0.0]) * 10 ** rng.uniform(-4, 0, (n, 1))
    passing[:, 2] = rng.uniform(-0.2, 0.2, n)
    slide = lengths[:, :1] * rng.uniform(-1.0, 1.0, (n, 1))
    centre = frame.apply(passing) + turned.apply([0.0, 0.0, 1.0]) * slide
    size = np.stack([0 * angle, lengths[:, 0], 0 * angle], axis=1)
    capsule = Placed(Capsule, centre, turned.as_matrix(), size)
    if kind is Capsule:
        size = np.stack([0 * angle, lengths[:, 1], 0 * angle], axis=1)
        return capsule, Placed(Capsule, np.zeros((n, 3)), frame.as_matrix(), size), angle
    # The box's edge along z is at the origin, its centre behind it.
    rotation = (frame * Rotation.from_euler("z", 45, degrees=True)).as_matrix()
    size = np.stack([lengths[:, 1]] * 3, axis=1)
    centre = frame.apply(np.array([-np.sqrt(2), 0.0, 0.0]) * size)
    return capsule, Placed(Box, centre, rotation, size), angle


@pytest.mark.parametrize("name", ["capsule_capsule", "capsule_box"])
def test_nearly_parallel(x64: None, name: str) -> None:
    a, b, angle = nearly_parallel(PAIRS[name][1])
    exact, length = coal_distances(a, b), 2 * a.size[:, 1]
    error = np.asarray(of_all(name)(a.ours, b.ours)) - exact
    coal = 1e-9  # how well it does on such pairs; measured: 5e-10
    assert error.min() >= -coal
    assert error.max() >= 1e-6  # the pairs that this is about are there
    assert np.all(error <= coal + np.minimum(1e-7 * length**2 / exact, 4e-4 * length))
    assert np.all(error[angle > 1.1e-3] <= coal)


@pytest.mark.parametrize("name", ["capsule_capsule", "capsule_box"])
def test_bounded_curvature(x64: None, name: str) -> None:
    """A capsule that turns at 1 rad/s, next to what it is nearly parallel to."""
    a, b, angle = nearly_parallel(PAIRS[name][1])
    rng = np.random.default_rng(1)
    axis = rng.normal(size=(len(angle), 3))
    spin = axis / np.linalg.norm(axis, axis=1, keepdims=True)
    bent = partial(getattr(dynamics, name), bounded_curvature=True)

    def along(distance: Any, capsule: Capsule, other: Any, spin: jax.Array) -> Any:
        centre = 0.5 * (capsule.start + capsule.end)

        def velocity(capsule: Capsule) -> Capsule:
            ends = (jnp.cross(spin, end - centre) for end in (capsule.start, capsule.end))
            return Capsule(*ends, jnp.zeros_like(capsule.radius))

        def slope(capsule: Capsule) -> Any:
            return jax.jvp(lambda c: distance(c, other), (capsule,), (velocity(capsule),))

        (value, rate), (_, bend) = jax.jvp(slope, (capsule,), (velocity(capsule),))
        return value, rate, bend

    def each(distance: Any) -> Any:
        run = jax.vmap(lambda *args: along(distance, *args))
        return jax.jit(run, compiler_options=QUICK)(a.ours, b.ours, spin)

    value, rate, bend = map(np.asarray, each(getattr(dynamics, name)))
    same, as_fast, less = map(np.asarray, each(bent))
    np.testing.assert_array_equal(same, value)
    apart = (angle > 1.1e-3) & (value > 1e-3)
    np.testing.assert_allclose(as_fast[apart], rate[apart], rtol=0, atol=1e-9)
    length = 2 * a.size[:, 1] + value
    assert (bend / length)[apart].min() < -100.0  # the turns that this is about are there
    assert (less / length)[apart].min() > -4.0


@pytest.mark.parametrize("name", PAIRS)
@given(seed=st.integers(0, 2**31 - 1), shift=st.tuples(*[st.floats(-3, 3)] * 3), flip=st.booleans())
def test_symmetries(
    x64: None, name: str, seed: int, shift: tuple[float, float, float], flip: bool
) -> None:
    """Moving both shapes alike, and renaming the ends of a capsule or the axes of a box."""
    a, b = (place(k, 1, seed + i) for i, k in enumerate(PAIRS[name]))
    motion = Rotation.random(random_state=seed)

    def moved(shape: Placed) -> Placed:
        rotation = motion.as_matrix() @ shape.rotation
        return dataclasses.replace(
            shape, position=motion.apply(shape.position) + np.array(shift), rotation=rotation
        )

    def renamed(shape: Any) -> Any:
        if isinstance(shape, Capsule):
            return Capsule(shape.end, shape.start, shape.radius)
        if isinstance(shape, Box):
            order = np.roll(np.arange(3), 1)
            return Box(shape.position, -shape.rotation[:, :, order], shape.half_extents[:, order])
        return shape

    expected = of_all(name)(a.ours, b.ours)
    change = renamed if flip else lambda shape: shape
    np.testing.assert_allclose(
        of_all(name)(change(moved(a).ours), change(moved(b).ours)), expected, rtol=0, atol=1e-12
    )
    if PAIRS[name][0] is PAIRS[name][1]:
        np.testing.assert_allclose(of_all(name)(b.ours, a.ours), expected, rtol=0, atol=1e-12)


def value_slope_and_curvature(name: str) -> Callable[..., Any]:
    """Distances of n pairs, their gradients, and Hessians times a direction, by all parameters."""

    def of_pair(pair: Any, direction: Any) -> Any:
        gradient = jax.grad(lambda p: getattr(dynamics, name)(*p))
        slope, curvature = jax.jvp(gradient, (pair,), (direction,))
        return getattr(dynamics, name)(*pair), slope, curvature

    return jax.jit(jax.vmap(of_pair), compiler_options=QUICK)


def rows(tree: Any) -> np.ndarray:
    """Leaves of n entries as one matrix (n, all numbers of an entry)."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(tree)]
    return np.concatenate([x.reshape(len(x), -1) for x in leaves], axis=1)


@pytest.mark.parametrize("name", PAIRS)
def test_derivatives_by_differences(x64: None, name: str) -> None:
    n, h = 1000, 1e-6
    pair = tuple(place(k, n, i + 10).ours for i, k in enumerate(PAIRS[name]))
    rng = np.random.default_rng(3)
    direction = jax.tree.map(lambda x: rng.normal(size=x.shape), pair)
    f = value_slope_and_curvature(name)

    def at(step: float) -> tuple[np.ndarray, ...]:
        moved = jax.tree.map(lambda x, d: x + step * d, pair, direction)
        return tuple(map(rows, f(moved, direction)))

    (_, slope, curvature), (low, slope_low, _), (high, slope_high, _) = at(0.0), at(-h), at(h)
    forward, backward = (slope_high - slope) / h, (slope - slope_low) / h
    # A kink, or a change of the features in contact, within the step: rare.
    smooth = np.all(np.abs(forward - backward) < 1e-3 * (1 + np.abs(curvature)), axis=1)
    assert np.mean(smooth) > 0.98

    along = np.sum(slope * rows(direction), axis=1)
    differences = ((high - low) / (2 * h))[:, 0]
    np.testing.assert_allclose(along[smooth], differences[smooth], rtol=0, atol=1e-7)
    differences = ((slope_high - slope_low) / (2 * h))[smooth]
    scale = 1 + np.max(np.abs(curvature[smooth]), axis=1, keepdims=True)
    np.testing.assert_allclose(curvature[smooth] / scale, differences / scale, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", PAIRS)
@dtype_with_slow("float64")
def test_moving_a_shape_changes_the_distance_as_much(dtype: np.dtype, name: str) -> None:
    """The gradient by a translation is a unit vector, and opposite for the other shape."""
    a, b = (cast(place(k, 1000, i).ours, dtype) for i, k in enumerate(PAIRS[name]))

    def moved(shape: Any, by: jax.Array) -> Any:
        if isinstance(shape, HalfSpace):
            return HalfSpace(shape.normal, shape.offset + jnp.sum(shape.normal * by))
        places = {k: v + by for k, v in vars(shape).items() if k in ("position", "start", "end")}
        return dataclasses.replace(shape, **places)

    def distance(by: tuple[jax.Array, jax.Array], a: Any, b: Any) -> jax.Array:
        return getattr(dynamics, name)(moved(a, by[0]), moved(b, by[1]))

    still = (jnp.zeros(3, dtype), jnp.zeros(3, dtype))
    gradients = jax.vmap(lambda a, b: jax.grad(distance)(still, a, b))
    of_a, of_b = jax.jit(gradients, compiler_options=QUICK)(a, b)
    tolerance = 1e-4 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(np.linalg.norm(of_a, axis=1), 1.0, rtol=0, atol=tolerance)
    np.testing.assert_allclose(of_a, -of_b, rtol=0, atol=tolerance)


def degenerate(kind: type, n: int, rng: np.random.Generator, dtype: np.dtype) -> Any:
    """Shapes made of few numbers, tiny ones among them, so that everything coincides somewhere."""
    numbers = [0.0, 0.1, 0.2, 0.5, 0.1 + 1e-7, 0.2 - 1e-9, 1e-4, 1e-6, 1e-9, 1e-12, 1e-20, 3e-39]
    often = [0.0] * 5 + [0.1, 0.2]
    # XLA's constant folding and NumPy differ in whether they keep subnormal numbers; both occur.
    values = np.array([*often, *numbers, *(-x for x in numbers)], dtype)
    turns = np.stack([np.eye(3), np.eye(3)[[1, 2, 0]], [[0.6, -0.8, 0], [0.8, 0.6, 0], [0, 0, 1]]])

    def draw(*shape: int) -> np.ndarray:
        return rng.choice(values, size=(n, *shape))

    rotation = turns[rng.integers(0, 3, n)].astype(dtype)
    return {
        Sphere: Sphere(draw(3), np.abs(draw())),
        Capsule: Capsule(draw(3), draw(3), np.abs(draw())),
        Box: Box(draw(3), rotation, np.abs(draw(3))),
        HalfSpace: HalfSpace(rotation[:, :, 0], draw()),
    }[kind]


@pytest.mark.parametrize("name", PAIRS)
@dtype_with_slow("float64")
def test_degenerate_shapes_have_finite_derivatives(dtype: np.dtype, name: str) -> None:
    rng = np.random.default_rng(0)
    pair = tuple(degenerate(k, 2000, rng, dtype) for k in PAIRS[name])

    def distance(pair: Any) -> jax.Array:
        return getattr(dynamics, name)(*pair)

    # What a barrier of relative degree two takes: along a motion, twice.
    direction = jax.tree.map(lambda x: rng.normal(size=x.shape[1:]).astype(dtype), pair)

    def along(pair: Any) -> jax.Array:
        return jax.jvp(distance, (pair,), (direction,))[1]

    first = {"jacfwd": jax.jacfwd(distance), "jacrev": jax.jacrev(distance)}
    second = {
        "jacfwd of jacrev": jax.jacfwd(first["jacrev"]),
        "jvp of jvp": lambda pair: jax.jvp(along, (pair,), (direction,))[1],
    }
    radii = sum(s.radius for s in pair if isinstance(s, Sphere | Capsule))
    meeting = np.abs(of_all(name)(*pair) + radii) < 1e-3
    assert 0.01 < np.mean(meeting) < 0.6

    def derivatives(pair: Any) -> dict[str, Any]:
        return {mode: derivative(pair) for mode, derivative in (first | second).items()}

    every = jax.jit(jax.vmap(derivatives), compiler_options=QUICK)(pair)
    for mode, tree in every.items():
        found = rows(tree)
        assert found.dtype == dtype
        assert np.all(np.isfinite(found)), f"{name}, {mode}: {np.argwhere(~np.isfinite(found))[:3]}"
        if mode in first:
            # One by a point; by the normal of a half-space and the rotation of a box, the largest
            # coordinate. An average at a kink may be twice that.
            assert np.max(np.abs(found[~meeting])) <= 2.1


def test_third_derivatives_are_those_of_the_norm(x64: None) -> None:
    x, v = jnp.array([0.3, -0.2, 0.5]), jnp.array([-0.7, 0.4, 1.1])

    def both(t: jax.Array) -> jax.Array:
        distance = dynamics.sphere_sphere(Sphere(x + t * v, 0.1), BALL)
        return jnp.stack([distance, jnp.sqrt(jnp.sum((x + t * v) ** 2))])

    derivative = jax.jacfwd(jax.jacfwd(jax.jacfwd(both)))
    ours, theirs = jax.jit(derivative, compiler_options=QUICK)(0.2).tolist()
    assert abs(theirs) > 0.1
    assert ours == pytest.approx(theirs, rel=1e-12)


WRONG: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "a primitive": (
        lambda: dynamics.sphere_sphere(BALL, Sphere(np.zeros(2), 0.1)),
        ("position of Sphere has shape (2,), expected (3,)", "jax.vmap"),
    ),
    "many, where one is expected": (
        lambda: dynamics.sphere_box(BALL, place(Box, 4, 0).ours),
        ("position of Box has shape (4, 3), expected (3,)", "jax.vmap"),
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_errors(what: str) -> None:
    call, parts = WRONG[what]
    with pytest.raises(ArrayError) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)
