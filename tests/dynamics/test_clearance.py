"""Distances of robots from obstacles and from themselves, against Pinocchio and Coal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from placed_shapes import coal_library, obstacles, place

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
from fraxenv.dynamics.clearance import end_distance_names, end_distances, obstacle_distances
from fraxenv.dynamics.geometry.obstacles import FAR

QUICK = {"xla_backend_optimization_level": 0}  # to compile
nearest = jax.jit(dynamics.nearest_obstacles, static_argnums=3, compiler_options=QUICK)
distances = jax.jit(dynamics.obstacle_distances, compiler_options=QUICK)
NAMES = ("foot", "tube", "elbow", "brick", "tip", "finger")


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


def test_ends_of_capsules(x64: None, arm: Robot) -> None:
    """The nearest end is as near as the whole to what is flat, and never nearer than that."""
    active = np.array([True] * 6 + [False, True])
    world = dataclasses.replace(obstacles(), active=active)

    @partial(jax.jit, compiler_options=QUICK)
    def found(q: jax.Array) -> list[jax.Array]:
        near = dynamics.nearest_obstacles(arm, q, world, 1)
        both = (obstacle_distances, end_distances)
        return [f(arm, q, o) for o in (world, near) for f in both]

    whole, ends, nearest_whole, nearest_ends = found(jnp.array([0.3, -0.4]))
    names = end_distance_names(arm, world)
    assert names[:2] == ("tube start - capsules[0]", "tube start - capsules[1]")
    assert names[-1] == "finger end - half_spaces[1]"
    assert len(names) == ends.size
    capsules = [NAMES[1:].index(name.split()[0]) for name in names[:: ends.shape[1]]]
    for pairs, of_ends, kinds in ((whole, ends, 2), (nearest_whole, nearest_ends, 1)):
        pairs = np.asarray(pairs)[np.array(capsules)[: len(capsules) // 2], kinds:]
        nearer = np.minimum(*np.split(np.asarray(of_ends), 2))
        np.testing.assert_allclose(nearer[:, -kinds:], pairs[:, -kinds:], rtol=0, atol=1e-12)
        assert (nearer >= pairs - 1e-9).all()
    np.testing.assert_array_equal(np.asarray(ends)[:, 4], FAR)


def test_nearest_obstacles(x64: None, arm: Robot) -> None:
    """Of each kind those that come first when all are sorted, wherever they go from there."""
    rng = np.random.default_rng(7)
    velocity = jnp.asarray(rng.normal(size=(16, 3)))
    walls = jnp.array([[-0.5] * 3, [0.5] * 3])
    world = dataclasses.replace(
        obstacles(4), active=rng.random(16) < 0.8, velocity=velocity, walls=walls
    )

    @partial(jax.jit, compiler_options=QUICK)
    def distances(q: jax.Array) -> tuple[jax.Array, ...]:
        near = dynamics.nearest_obstacles(arm, q, world, 2)
        later = [dynamics.move_obstacles(around, 0.5) for around in (world, near)]
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


def test_obstacles_that_grow_are_nearer(x64: None, arm: Robot) -> None:
    """By how much they grow; boxes by that at least, and by no more than their corners do."""
    world, q = obstacles(4), jnp.array([0.3, -0.4])
    by = np.linspace(0.01, 0.04, 16)
    before = np.asarray(distances(arm, q, world))
    nearer = before - np.asarray(distances(arm, q, dynamics.grown_obstacles(world, by)))
    kinds = np.repeat(["spheres", "capsules", "boxes", "half_spaces"], 4)
    outside = before > by
    round_ones = outside & (kinds != "boxes")
    np.testing.assert_allclose(nearer[round_ones], (nearer * 0 + by)[round_ones], atol=1e-12)
    boxes = outside & (kinds == "boxes")
    assert boxes.any()
    growth = (nearer / by)[boxes]
    assert (growth > 1 - 1e-9).all()
    assert (growth < np.sqrt(3) + 1e-9).all()
    assert dynamics.grown_obstacles(world, None) is world


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


BALL = Sphere(np.zeros(3), 0.1)

WRONG: dict[str, tuple[Callable[[Robot], Any], type[Exception], tuple[str, ...]]] = {
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
    near = nearest(arm, np.zeros(2), obstacles(3), 2)
    with pytest.raises(ArrayError, match=r"among 6 .* has 22: .*another robot.*nearest_obstacles"):
        jax.eval_shape(dynamics.obstacle_distances, panda, panda.q_default, near)


@pytest.mark.parametrize("what", WRONG)
def test_errors(arm: Robot, what: str) -> None:
    call, error, parts = WRONG[what]
    with pytest.raises(error) as caught:
        jax.eval_shape(lambda: call(arm))
    for part in parts:
        assert part in str(caught.value)
