"""Signed distances against Coal and MuJoCo, their derivatives, and the geometry of robots."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from fraxenv import dynamics
from fraxenv.dynamics import (
    ArrayError,
    Box,
    Capsule,
    HalfSpace,
    Obstacles,
    Robot,
    Sphere,
    UnknownNameError,
)
from fraxenv.dynamics.body_motion import body_twists
from fraxenv.dynamics.geometry.obstacles import (
    FAR,
    bounded,
    obstacle_centres,
    place_obstacles,
    replace_obstacle,
)
from fraxenv.dynamics.geometry.shapes import (
    SIZES,
    Shape,
    ShapeKind,
    enclosing_capsule,
    rounded_box,
)

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
nearest = jax.jit(dynamics.nearest_obstacles, static_argnums=3, compiler_options=QUICK)
distances = jax.jit(dynamics.obstacle_distances, compiler_options=QUICK)
ORACLE_TOLERANCE = 1e-12  # measured: better than 1e-15
FLOAT32_TOLERANCE = 1e-6  # m, at distances up to 2 m; measured: 2e-7


@dataclasses.dataclass(frozen=True)
class Placed:
    """n shapes of one kind, as pose and dimensions, which is how other libraries want them."""

    kind: type
    position: np.ndarray
    rotation: np.ndarray
    size: np.ndarray

    @property
    def ours(self) -> Any:
        """The same, as this library wants them."""
        axis = self.rotation[:, :, 2]
        if self.kind is Sphere:
            return Sphere(self.position, self.size[:, 0])
        if self.kind is Capsule:
            half = axis * self.size[:, 1:2]
            return Capsule(self.position - half, self.position + half, self.size[:, 0])
        if self.kind is Box:
            return Box(self.position, self.rotation, self.size)
        return HalfSpace(axis, np.sum(axis * self.position, axis=1))


def place(kind: type, n: int, seed: int, *, aligned: bool = False) -> Placed:
    """Random shapes; aligned ones have faces, edges, axes and centres in common."""
    rng = np.random.default_rng(seed)
    if aligned:
        position = 0.1 * rng.integers(-4, 5, (n, 3))
        quarter_turns = 0.5 * np.pi * rng.integers(0, 4, (n, 3))
        rotation = np.round(Rotation.from_euler("xyz", quarter_turns).as_matrix())
        size = 0.1 * rng.integers(1, 4, (n, 3))
    else:
        position = rng.uniform(-0.5, 0.5, (n, 3))
        rotation = Rotation.random(n, random_state=seed).as_matrix()
        size = rng.uniform(0.03, 0.4, (n, 3))
    return Placed(kind, position, rotation, size)


@lru_cache
def of_all(name: str) -> Callable[..., jax.Array]:
    return jax.jit(jax.vmap(getattr(dynamics, name)), compiler_options=QUICK)


def cast(tree: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)


@lru_cache
def coal_library() -> Any:
    """Coal, once it has been asked for the distance to a box that lies askew.

    For the rest of the process, its boxes keep what the first direction that they are asked about
    decides: `static const CoalScalar inflate = (dir.array() == 0).any() ? 1 + 1e-10 : 1.` in its
    support_functions.cpp. Inflated, they are 5e-11 m off, and a depth in 2000 is by 0.2 m.
    """
    coal = pytest.importorskip("coal")
    askew = coal.Transform3s(Rotation.random(random_state=0).as_matrix(), np.ones(3))
    asked = coal.DistanceRequest(), coal.DistanceResult()
    coal.distance(coal.Capsule(0.1, 0.2), coal.Transform3s(), coal.Box(*np.ones(3)), askew, *asked)
    return coal


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


# --- robots -------------------------------------------------------------------------------------

ARM = """
<robot name="arm">
  <link name="base">
    <collision name="foot"><geometry><box size="0.4 0.4 0.1"/></geometry></collision>
  </link>
  <link name="upper">
    <inertial><mass value="1"/>
      <inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision name="tube"><origin xyz="0.05 0.02 0.2" rpy="0.3 0.2 0.1"/>
      <geometry><cylinder radius="0.05" length="0.4"/></geometry></collision>
    <collision name="elbow"><origin xyz="0 0 0.45"/>
      <geometry><sphere radius="0.08"/></geometry></collision>
  </link>
  <link name="lower">
    <inertial><mass value="1"/>
      <inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision name="brick"><origin xyz="0.1 0 0.15" rpy="0.5 -0.4 0.3"/>
      <geometry><box size="0.3 0.08 0.1"/></geometry></collision>
    <collision name="tip"><origin xyz="0 0 0.3"/>
      <geometry><sphere radius="0.04"/></geometry></collision>
    <collision name="finger"><origin xyz="0 0 0.35" rpy="1.2 0 0"/>
      <geometry><cylinder radius="0.01" length="0.1"/></geometry></collision>
  </link>
  <joint name="shoulder" type="revolute">
    <parent link="base"/><child link="upper"/><axis xyz="0 1 0"/><origin xyz="0 0 0.1"/>
    <limit lower="-2" upper="2" effort="30" velocity="3"/>
  </joint>
  <joint name="elbow" type="revolute">
    <parent link="upper"/><child link="lower"/><axis xyz="1 0 0"/><origin xyz="0 0 0.45"/>
    <limit lower="-2" upper="2" effort="30" velocity="3"/>
  </joint>
</robot>
"""
ARM_PAIRS = [
    ("tip", "elbow"),
    ("finger", "elbow"),
    ("tube", "tip"),
    ("brick", "tube"),
    ("foot", "tip"),
]
INERTIAL = (
    '<inertial><mass value="1"/>'
    '<inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>'
)
NAMES = ("foot", "tube", "elbow", "brick", "tip", "finger")


@pytest.fixture(scope="module")
def arm_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("arm") / "arm.urdf"
    path.write_text(ARM)
    return path


@pytest.fixture(scope="module")
def arm(arm_path: Path) -> Robot:
    """Two links with spheres, cylinders and a box, on a base with another box."""
    return dynamics.load_urdf(arm_path, self_collision_pairs=ARM_PAIRS)


def obstacles(n: int = 2) -> Obstacles:
    return Obstacles(
        spheres=place(Sphere, n, 1).ours,
        capsules=place(Capsule, n, 2).ours,
        boxes=place(Box, n, 3).ours,
        half_spaces=place(HalfSpace, n, 4).ours,
    )


def random_configurations(robot: Robot, n: int) -> np.ndarray:
    low, high = np.asarray(robot.position_limits).T
    return np.random.default_rng(5).uniform(low, high, (n, robot.nq))


def pinocchio_shapes(path: Path, q: np.ndarray) -> list[tuple[Any, Any]]:
    """The collision shapes of a URDF file, with cylinders as capsules, and their poses."""
    pin, coal = pytest.importorskip("pinocchio"), coal_library()
    model = pin.buildModelFromUrdf(str(path))
    geometry = pin.buildGeomFromUrdf(model, str(path), pin.GeometryType.COLLISION)
    data, placed = model.createData(), geometry.createData()
    # The models of the tests have the joints that we know, and maybe fingers.
    pin.updateGeometryPlacements(
        model, data, geometry, placed, np.concatenate([q, np.zeros(model.nq - len(q))])
    )

    def shape(found: Any) -> Any:
        if isinstance(found, coal.Cylinder):
            return coal.Capsule(found.radius, 2 * found.halfLength)
        return found

    return [
        (shape(o.geometry), coal.Transform3s(pose.rotation, pose.translation))
        for o, pose in zip(geometry.geometryObjects, placed.oMg, strict=True)
    ]


def coal_distance(a: tuple[Any, Any], b: tuple[Any, Any]) -> float:
    coal = coal_library()
    request, result = coal.DistanceRequest(), coal.DistanceResult()
    request.enable_signed_distance = True
    coal.distance(*a, *b, request, result)
    return result.min_distance


def test_panda_at_its_default_configuration(dtype: np.dtype, panda: Robot) -> None:
    q = jnp.asarray(panda.q_default, dtype)
    distances = jax.jit(lambda q: dynamics.self_distances(panda, q))(q)
    assert distances.shape == (len(panda.topology.self_collision_pairs),)
    assert distances.dtype == dtype
    assert np.min(distances) == pytest.approx(0.154, abs=1e-3)


@pytest.mark.parametrize("name", ["panda", "arm"])
def test_self_distances_by_pinocchio(x64: None, name: str, request: pytest.FixtureRequest) -> None:
    robot: Robot = request.getfixturevalue(name)
    path: Path = request.getfixturevalue(f"{name}_path")
    batch = random_configurations(robot, 20)
    distances = jax.jit(jax.vmap(lambda q: dynamics.self_distances(robot, q)))(batch)
    shapes = robot.topology.collision_shapes
    for q, ours in zip(batch, np.asarray(distances), strict=True):
        theirs = pinocchio_shapes(path, q)
        for (i, j), distance in zip(robot.topology.self_collision_pairs, ours, strict=True):
            expected = coal_distance(theirs[i], theirs[j])
            if "box" in (shapes[i].kind, shapes[j].kind):
                assert distance <= expected + 1e-9
                assert distance >= expected - 0.3  # the capsule around it is not much larger
            else:
                assert distance == pytest.approx(expected, abs=1e-9)
    assert dynamics.self_distance_names(robot)[0] == (
        "tip - elbow" if name == "arm" else "link0_1 - link5_5"
    )


def test_obstacle_distances_by_pinocchio(x64: None, arm: Robot, arm_path: Path) -> None:
    coal = coal_library()
    kinds = (Sphere, Capsule, Box, HalfSpace)
    placed = {k: place(k, 3, i) for i, k in enumerate(kinds)}
    world = Obstacles(*(placed[k].ours for k in kinds))
    names = dynamics.obstacle_distance_names(arm, world)
    assert names[:4] == tuple(
        f"tube - {n}" for n in ("spheres[0]", "spheres[1]", "spheres[2]", "capsules[0]")
    )
    assert names[-1] == "finger - half_spaces[2]"
    makers: dict[type, Callable[[np.ndarray], Any]] = {
        Sphere: lambda s: coal.Sphere(s[0]),
        Capsule: lambda s: coal.Capsule(s[0], 2 * s[1]),
        Box: lambda s: coal.Box(*(2 * s)),
        HalfSpace: lambda s: coal.Halfspace(np.array([0.0, 0.0, 1.0]), 0.0),
    }
    columns = [
        (makers[k](p.size[i]), coal.Transform3s(p.rotation[i], p.position[i]))
        for k, p in placed.items()
        for i in range(3)
    ]
    batch = random_configurations(arm, 10)
    distances = jax.jit(jax.vmap(lambda q: dynamics.obstacle_distances(arm, q, world)))(batch)
    assert distances.shape == (10, 5, 12)  # the foot does not move
    assert distances[0].size == len(names)
    for q, ours in zip(batch, np.asarray(distances), strict=True):
        theirs = pinocchio_shapes(arm_path, q)
        for row, shape in enumerate(NAMES[1:]):
            expected = [coal_distance(theirs[NAMES.index(shape)], c) for c in columns]
            if shape == "brick":
                assert np.all(ours[row] <= np.array(expected) + 1e-9)
            else:
                np.testing.assert_allclose(ours[row], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [(0.3, 0.08, 0.1), (0.2, 0.2, 0.2), (0.01, 0.5, 0.3), (1, 0, 0)])
def test_shapes_are_enclosed(arm: Robot, size: tuple[float, float, float]) -> None:
    shape = dataclasses.replace(arm.topology.collision_shapes[3], size=size)
    capsule = enclosing_capsule(shape)
    start, end, radius = capsule.start, capsule.end, capsule.radius
    corners = np.stack(np.meshgrid(*[(-0.5, 0.5)] * 3), axis=-1).reshape(-1, 3) * size
    corners = shape.position + corners @ shape.rotation.T
    along = np.clip(
        (corners - start) @ (end - start) / max((end - start) @ (end - start), 1e-9), 0, 1
    )
    gap = np.linalg.norm(corners - start - along[:, None] * (end - start), axis=1)
    assert gap.max() == pytest.approx(radius, abs=1e-9)


@pytest.mark.parametrize("size", [(0.3, 0.08, 0.1), (0.2, 0.25, 0.2), (0.01, 0.5, 0.3)])
def test_enclosing_capsules_are_of_least_volume(arm: Robot, size: tuple[float, ...]) -> None:
    shape = dataclasses.replace(arm.topology.collision_shapes[3], size=size)
    capsule = enclosing_capsule(shape)
    start, end, radius = capsule.start, capsule.end, capsule.radius

    def volume(length: Any, radius: Any) -> Any:
        return np.pi * radius**2 * (length + 4 / 3 * radius)

    *others, longest = np.sort(size) / 2
    inset = np.linspace(0, longest, 20001)  # of the axis' end, from the face
    least = volume(2 * (longest - inset), np.sqrt(np.sum(np.square(others)) + inset**2)).min()
    assert least <= volume(np.linalg.norm(end - start), radius) * (1 + 1e-9) <= least * (1 + 1e-3)


# --- Shapes and obstacles as numbers --------------------------------------------------------------


def surface(kind: str, size: np.ndarray, n: int = 2000) -> np.ndarray:
    """Points (n, 3), m, on the surface of a shape, in its own frame."""
    rng = np.random.default_rng(3)
    way = rng.normal(size=(n, 3))
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    if kind == "sphere":
        return size[0] * way
    if kind == "box":
        return 0.5 * size * way / np.abs(way).max(axis=1, keepdims=True)
    if kind == "capsule":
        return size[0] * way + 0.5 * size[1] * np.sign(way[:, 2:]) * np.array([0.0, 0.0, 1.0])
    around = way[:, :2] / np.linalg.norm(way[:, :2], axis=1, keepdims=True)
    return np.column_stack([size[0] * around, size[1] * rng.uniform(-0.5, 0.5, n)])


@pytest.mark.parametrize("kind", SIZES)
def test_rounded_boxes_and_capsules_contain_shapes(kind: ShapeKind) -> None:
    size = np.array([0.1, 0.25, 0.2])[: len(SIZES[kind])]
    points = surface(kind, size)
    half, radius = rounded_box(kind, tuple(size))
    outside = np.linalg.norm(np.maximum(np.abs(points) - half, 0.0), axis=1)
    assert outside.max() == pytest.approx(radius, abs=1e-3)
    assert (np.abs(points).max(axis=0) <= np.array(half) + radius + 1e-12).all()

    turned = Rotation.from_rotvec([0.3, -0.4, 0.5]).as_matrix()
    shape = Shape(kind, tuple(size), np.array([0.1, 0.2, 0.3]), turned)
    capsule = enclosing_capsule(shape)
    start, end = np.asarray(capsule.start), np.asarray(capsule.end)
    along = (end - start) / max(np.linalg.norm(end - start), 1e-12)
    at = points @ turned.T + shape.position - start
    foot = np.clip(at @ along, 0.0, np.linalg.norm(end - start))
    gap = np.linalg.norm(at - foot[:, None] * along, axis=1) - float(np.asarray(capsule.radius))
    assert gap.max() < 1e-12
    assert kind in ("box", "cylinder") or gap.min() > -1e-12


def test_obstacles_are_shapes_where_they_are(x64: None) -> None:
    """A shape's conversion to numbers is the inverse of theirs to shapes."""
    world = obstacles()
    drawn = dynamics.obstacle_shapes(world, (0.1, 0.2, 0.3, 0.4))
    assert [s.kind for s in drawn.values()] == ["sphere"] * 2 + ["capsule"] * 2 + ["box"] * 2
    assert {s.rgba for s in drawn.values()} == {(0.1, 0.2, 0.3, 0.4)}
    ball, rod, brick = drawn[1], drawn[3], drawn[5]
    assert world.spheres is not None
    assert world.capsules is not None
    assert world.boxes is not None
    np.testing.assert_array_equal(ball.position, world.spheres.position[1])
    np.testing.assert_array_equal(ball.size, (world.spheres.radius[1],))
    tip = rod.position + 0.5 * rod.size[1] * rod.rotation[:, 2]
    np.testing.assert_allclose(tip, world.capsules.end[1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(rod.rotation), 1.0, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(brick.size, 2 * world.boxes.half_extents[1])
    for i, shape in drawn.items():
        same = replace_obstacle(world, i, shape)
        chex.assert_trees_all_close(same, world, rtol=0, atol=1e-12)
    active = np.arange(8) % 3 == 0
    assert list(dynamics.obstacle_shapes(dataclasses.replace(world, active=active))) == [0, 3]
    with pytest.raises(IndexError, match="obstacle 6, expected less than 6"):
        replace_obstacle(world, 6, ball)


def test_one_obstacle_is_replaced(x64: None) -> None:
    world = obstacles()
    for i, shape in dynamics.obstacle_shapes(world).items():
        turn = Rotation.from_rotvec([0.3, 0.1 * i, -0.5]).as_matrix()
        there = dataclasses.replace(shape, position=np.array([0.1, 0.2, 0.3]), rotation=turn)
        after = dynamics.obstacle_shapes(replace_obstacle(world, i, there))
        np.testing.assert_allclose(after[i].position, there.position, rtol=0, atol=1e-12)
        np.testing.assert_allclose(after[i].size, shape.size, rtol=0, atol=1e-12)
        if shape.kind != "sphere":
            axis = after[i].rotation[:, 2]
            np.testing.assert_allclose(axis, turn[:, 2], rtol=0, atol=1e-12)
        for j, other in dynamics.obstacle_shapes(world).items():
            if j != i:
                np.testing.assert_array_equal(after[j].position, other.position)


def test_obstacles_are_placed_by_their_centres(x64: None) -> None:
    world, centres = obstacles(), np.arange(18.0).reshape(6, 3)
    placed = place_obstacles(world, jnp.asarray(centres))
    np.testing.assert_allclose(obstacle_centres(placed), centres, rtol=0, atol=1e-12)
    before, after = (dynamics.obstacle_shapes(o) for o in (world, placed))
    for i, shape in before.items():
        np.testing.assert_allclose(after[i].position, centres[i], rtol=0, atol=1e-12)
        np.testing.assert_allclose(after[i].size, shape.size, rtol=0, atol=1e-12)
        np.testing.assert_allclose(after[i].rotation, shape.rotation, rtol=0, atol=1e-12)


def test_bounding_spheres_and_half_axes(x64: None) -> None:
    """The corners, or the ends, are at the half axes, and the farthest point is as far."""
    shapes = dynamics.obstacle_shapes(obstacles())
    kinds = bounded(obstacles()).values()
    radii = np.concatenate([kind.bounding_radius for kind in kinds])
    axes = [row for kind in kinds for row in np.asarray(kind.half_axes)]
    for i, shape in shapes.items():
        farthest = np.linalg.norm(surface(shape.kind, np.array(shape.size)), axis=1).max()
        assert farthest <= radii[i] + 1e-12
        assert farthest > 0.95 * radii[i]
        half, _ = rounded_box(shape.kind, shape.size)
        columns = (shape.rotation * half)[:, np.array(half) > 0]
        np.testing.assert_allclose(axes[i], columns.T, rtol=0, atol=1e-12)


def test_rows_and_columns_can_be_chosen(x64: None, arm: Robot) -> None:
    world, q = obstacles(), jnp.array([0.3, -0.4])
    chosen = ("finger", "tip", "foot", "tube")

    @partial(jax.jit, compiler_options=QUICK)
    def distances(q: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        boxes = Obstacles(boxes=world.boxes)
        return (
            dynamics.obstacle_distances(arm, q, world),
            dynamics.obstacle_distances(arm, q, world, shapes=chosen),
            dynamics.obstacle_distances(arm, q, boxes),
        )

    whole, some, boxes = distances(q)
    assert some.shape == (4, 8)
    moving = NAMES[1:]
    for row, name in enumerate(chosen):
        if name in moving:
            np.testing.assert_allclose(some[row], whole[moving.index(name)], rtol=0, atol=1e-14)
    assert dynamics.obstacle_distance_names(arm, world, shapes=chosen)[8] == "tip - spheres[0]"
    np.testing.assert_allclose(boxes, whole[:, 4:6], rtol=0, atol=1e-14)


def test_nothing_to_keep_away_from(arm: Robot) -> None:
    none = np.zeros((0, 2), int)
    topology = dataclasses.replace(arm.topology, collision_shapes=(), self_collision_pairs=none)
    bare = arm.replace(topology=topology)

    def distances(q: jax.Array) -> list[jax.Array]:
        return [
            dynamics.obstacle_distances(arm, q, Obstacles()),
            dynamics.obstacle_distances(arm, q, obstacles(), shapes=()),
            dynamics.obstacle_distances(bare, q, obstacles()),
            dynamics.self_distances(bare, q),
        ]

    found = jax.jit(distances)(jnp.zeros(2))
    assert [x.shape for x in found] == [(5, 0), (0, 8), (0, 8), (0,)]
    assert dynamics.self_distance_names(bare) == ()


def test_inactive_obstacles(x64: None, arm: Robot) -> None:
    world, q = obstacles(), jnp.array([0.3, -0.4])
    active = np.array([True, False] * 4)

    def distances(q: jax.Array, active: jax.Array) -> tuple[jax.Array, ...]:
        some = dynamics.obstacle_distances(arm, q, dataclasses.replace(world, active=active))
        return some, (some, dynamics.obstacle_distances(arm, q, world))

    derivative = jax.jit(jax.jacfwd(distances, has_aux=True), compiler_options=QUICK)
    gradient, (some, whole) = derivative(q, active)
    np.testing.assert_array_equal(some[:, 1::2], FAR)
    np.testing.assert_allclose(some[:, ::2], whole[:, ::2], rtol=0, atol=1e-14)
    np.testing.assert_array_equal(gradient[:, 1::2], 0.0)
    assert np.all(np.any(gradient[:, ::2] != 0, axis=-1)[3:])


def test_nearest_obstacles(x64: None, arm: Robot) -> None:
    """Of each kind those that come first when all are sorted, wherever they go from there."""
    rng = np.random.default_rng(7)
    velocity = jnp.asarray(rng.normal(size=(16, 3)))
    world = dataclasses.replace(obstacles(4), active=rng.random(16) < 0.8, velocity=velocity)

    @partial(jax.jit, compiler_options=QUICK)
    def distances(q: jax.Array) -> tuple[jax.Array, ...]:
        near = dynamics.nearest_obstacles(arm, q, world, 2)
        later = [dynamics.move_obstacles(around, 0.1) for around in (world, near)]
        chosen = dynamics.obstacle_distances(arm, q, near, shapes=("finger", "tip"))
        tables = [dynamics.obstacle_distances(arm, q, o) for o in (world, near, *later)]
        return (*tables, chosen)

    whole, near, whole_later, near_later, chosen = distances(jnp.array([0.3, -0.4]))
    assert near.shape == (5, 8)
    for kind in range(4):
        columns, mine = slice(4 * kind, 4 * kind + 4), slice(2 * kind, 2 * kind + 2)
        first = np.argsort(whole[:, columns], axis=1, stable=True)[:, :2]
        for all_of_them, some in ((whole, near), (whole_later, near_later)):
            expected = np.take_along_axis(np.asarray(all_of_them[:, columns]), first, axis=1)
            np.testing.assert_allclose(some[:, mine], expected, rtol=0, atol=1e-12)
    rows = [NAMES[1:].index(name) for name in ("finger", "tip")]
    np.testing.assert_allclose(chosen, near[np.array(rows)], rtol=0, atol=1e-12)


def test_nearest_obstacles_are_active_if_any_are(x64: None, arm: Robot) -> None:
    """What fills the places of those that are missing is far from every shape, of every kind."""
    active = np.arange(16) % 4 == 3
    world, q = dataclasses.replace(obstacles(4), active=active), jnp.array([0.3, -0.4])
    near = nearest(arm, q, world, 2)
    assert near.active is None
    found, there = (np.asarray(distances(arm, q, o)) for o in (near, world))
    np.testing.assert_allclose(found[:, ::2], there[:, active], rtol=0, atol=1e-12)
    assert found[:, 1::2].min() > 0.5 * FAR


def test_nearest_obstacles_have_names(arm: Robot) -> None:
    world = obstacles(3)
    near = nearest(arm, np.zeros(2), world, 2)
    names = dynamics.obstacle_distance_names(arm, near)
    assert len(names) == 5 * 8
    assert names[-1] == "finger - nearest half_spaces[1]"
    assert dynamics.obstacle_count(near) == 8
    assert dynamics.nearest_obstacles(arm, np.zeros(2), world, 3) is world
    assert dynamics.nearest_obstacles(arm, np.zeros(2), near, 1) is near


def test_shared_kinematics_and_precision(x64: None, arm: Robot) -> None:
    """Given kinematics are used, whatever `q` is; and float32 stays float32 where x64 is on."""

    @partial(jax.jit, compiler_options=QUICK)
    def distances(q: jax.Array) -> list[jax.Array]:
        shared = (dynamics.compute_kinematics(arm, q), dynamics.forward_kinematics(arm, q))
        calls = [(q, None), *((0 * q, kin) for kin in shared)]
        return [
            jnp.append(
                dynamics.obstacle_distances(arm, q, obstacles(), kin=kin).ravel(),
                dynamics.self_distances(arm, q, kin=kin),
            )
            for q, kin in calls
        ]

    expected, *found = distances(jnp.array([0.3, -0.4], np.float32))
    for ours in found:
        assert ours.dtype == expected.dtype == np.float32
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6)


def test_accelerations_of_distances_to_moving_obstacles(x64: None, arm: Robot) -> None:
    """d2/dt2 along a motion of the arm and of the obstacles, as a barrier differentiates it."""
    q, v = jnp.array([0.3, -0.4]), jnp.array([0.7, -1.1])
    world = obstacles()
    drift = jax.tree.map(lambda x: 0.3 * jnp.cos(jnp.arange(x.size)).reshape(x.shape), world)

    def at(t: jax.Array) -> jax.Array:
        moved = jax.tree.map(lambda x, d: x + t * d, world, drift)
        return jnp.concatenate(
            [
                dynamics.obstacle_distances(arm, q + t * v, moved, shapes=["finger"]).ravel(),
                dynamics.self_distances(arm, q + t * v),
            ]
        )

    def rate(t: jax.Array) -> jax.Array:
        return jax.jvp(at, (t,), (1.0,))[1]

    derivatives = jax.jit(lambda t: jax.jvp(rate, (t,), (1.0,)), compiler_options=QUICK)
    h = 1e-5
    (before, _), (_, acceleration), (after, _) = map(derivatives, (-h, 0.0, h))
    np.testing.assert_allclose(acceleration, (after - before) / (2 * h), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("floating", [False, True])
def test_rates_of_a_robots_shapes(x64: None, tmp_path: Path, floating: bool) -> None:
    path = tmp_path / "arm.urdf"
    path.write_text(ARM.replace('<link name="base">', f'<link name="base">{INERTIAL}'))
    robot = dynamics.load_urdf(path, floating_base=floating)
    assert robot.topology.travels == floating
    v = np.random.default_rng(8).normal(size=robot.nv)
    q = dynamics.integrate(robot, dynamics.neutral(robot), 0.3 * v, 1.0)

    def geometry(t: jax.Array) -> dynamics.RobotGeometry:
        return dynamics.robot_geometry(robot, dynamics.integrate(robot, q, t * v, 1.0))

    @partial(jax.jit, compiler_options=QUICK)
    def both(t: jax.Array) -> tuple[dynamics.RobotGeometry, dynamics.RobotGeometry]:
        here, moved = jax.jvp(geometry, (t,), (jnp.ones(()),))
        kin = dynamics.compute_kinematics(robot, q)
        twists = body_twists(robot, kin, jnp.asarray(v))
        return dynamics.robot_geometry_rate(robot, here, kin, twists), moved

    ours, theirs = both(jnp.zeros(()))
    assert all(x.size for x in jax.tree.leaves(ours))
    chex.assert_trees_all_close(ours, theirs, rtol=1e-7, atol=1e-12)


def test_third_derivatives_are_those_of_the_norm(x64: None) -> None:
    x, v = jnp.array([0.3, -0.2, 0.5]), jnp.array([-0.7, 0.4, 1.1])

    def both(t: jax.Array) -> jax.Array:
        distance = dynamics.sphere_sphere(Sphere(x + t * v, 0.1), BALL)
        return jnp.stack([distance, jnp.sqrt(jnp.sum((x + t * v) ** 2))])

    derivative = jax.jacfwd(jax.jacfwd(jax.jacfwd(both)))
    ours, theirs = jax.jit(derivative, compiler_options=QUICK)(0.2).tolist()
    assert abs(theirs) > 0.1
    assert ours == pytest.approx(theirs, rel=1e-12)


BALL = Sphere(np.zeros(3), 0.1)
WRONG: dict[str, tuple[Callable[[Robot], Any], type[Exception], tuple[str, ...]]] = {
    "a primitive": (
        lambda arm: dynamics.sphere_sphere(BALL, Sphere(np.zeros(2), 0.1)),
        ArrayError,
        ("position of Sphere has shape (2,), expected (3,)", "jax.vmap"),
    ),
    "many, where one is expected": (
        lambda arm: dynamics.sphere_box(BALL, place(Box, 4, 0).ours),
        ArrayError,
        ("position of Box has shape (4, 3), expected (3,)", "jax.vmap"),
    ),
    "one, where many are expected": (
        lambda arm: dynamics.obstacle_distances(arm, np.zeros(2), Obstacles(spheres=BALL)),
        ArrayError,
        ("position of obstacles.spheres has shape (3,), expected (m, 3)", "leading axis"),
    ),
    "one radius for all": (
        lambda arm: dynamics.obstacle_distances(
            arm, np.zeros(2), Obstacles(spheres=Sphere(np.zeros((4, 3)), 0.1))
        ),
        ArrayError,
        ("radius of obstacles.spheres has shape (), expected (m,)",),
    ),
    "lengths": (
        lambda arm: dynamics.obstacle_distances(
            arm, np.zeros(2), Obstacles(capsules=Capsule(np.zeros((4, 3)), np.zeros((5, 3)), 0.1))
        ),
        ArrayError,
        ("end of obstacles.capsules has shape (5, 3), expected (4, 3)",),
    ),
    "the mask": (
        lambda arm: dynamics.obstacle_distances(
            arm, np.zeros(2), dataclasses.replace(obstacles(), active=np.ones(3, bool))
        ),
        ArrayError,
        ("active of Obstacles has shape (3,) and dtype bool, expected (8,) and bool",),
    ),
    "the mask's dtype": (
        lambda arm: dynamics.obstacle_distances(
            arm, np.zeros(2), dataclasses.replace(obstacles(), active=np.ones(8))
        ),
        ArrayError,
        ("active of Obstacles has shape (8,) and dtype float", "bool"),
    ),
    "the velocities": (
        lambda arm: dynamics.obstacle_rates(
            dataclasses.replace(obstacles(), velocity=np.zeros((3, 3)))
        ),
        ArrayError,
        ("velocity of Obstacles has shape (3, 3), expected (8, 3)",),
    ),
    "the configuration": (
        lambda arm: dynamics.self_distances(arm, np.zeros(3)),
        ArrayError,
        ("q of robot 'arm' has shape (3,), expected (2,)",),
    ),
    "a name": (
        lambda arm: dynamics.obstacle_distances(arm, np.zeros(2), obstacles(), shapes=["fingr"]),
        UnknownNameError,
        ("unknown collision shape 'fingr' of robot 'arm'", "Did you mean 'finger'?"),
    ),
}


def test_obstacles_chosen_for_another_robot(arm: Robot, panda: Robot) -> None:
    near = dynamics.nearest_obstacles(arm, np.zeros(2), obstacles(3), 1)
    with pytest.raises(ArrayError, match=r"among 6 .* has 22: .*another robot.*nearest_obstacles"):
        dynamics.obstacle_distances(panda, panda.q_default, near)


def test_obstacles_are_counted() -> None:
    assert dynamics.obstacle_count(obstacles()) == 8
    assert dynamics.obstacle_count(Obstacles()) == 0


@pytest.mark.parametrize("what", WRONG)
def test_errors(arm: Robot, what: str) -> None:
    call, error, parts = WRONG[what]
    with pytest.raises(error) as caught:
        call(arm)
    for part in parts:
        assert part in str(caught.value)
