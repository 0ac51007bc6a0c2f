"""What barriers say of accelerations and velocities, against their own derivatives by time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support import with_slow

from fraxenv import dynamics
from fraxenv.controllers import Barrier, Situation, barriers
from fraxenv.controllers.safety.barriers import (
    NO_LIMIT,
    NO_OBSTACLES,
    barrier_names,
    situation,
)
from fraxenv.controllers.safety.conditions import (
    Conditions,
    barrier_conditions,
    velocity_conditions,
)
from fraxenv.dynamics import Box, Capsule, HalfSpace, Obstacles, Robot, Sphere
from fraxenv.dynamics.geometry.obstacles import FAR
from fraxenv.errors import ConfigError

QUICK = {"xla_backend_optimization_level": 0}  # to compile
NAMES = ("panda", "planar_mobile_manipulator", "g1")
FRAMES = {"panda": "hand", "planar_mobile_manipulator": "hand", "g1": "left_hand"}
RATE, MARGIN = 7.0, 0.03


def height(robot: Robot, x: Situation, barrier: Barrier) -> Array:
    """A user's own barrier is one function; its parameters here: a frame's least height, m."""
    position, _ = dynamics.frame_pose(robot, x.q, FRAMES[robot.name], kin=x.kin)
    return (position[2] - barrier.parameters)[None]


def momentum(robot: Robot, x: Situation, barrier: Barrier) -> Array:
    """One that looks at the velocity, and at the configuration and the obstacles as well."""
    return (barrier.parameters - x.v @ x.v * (1 + x.q[-1]) - x.obstacles.spheres.position[0, 0])[
        None
    ]


def library(name: str) -> dict[str, Barrier]:
    frame, box = FRAMES[name], ((-1.0, -2.0, -np.inf), (2.0, 1.0, 3.0))
    made = {
        "joint_position": barriers.joint_position(),
        "joint_velocity": barriers.joint_velocity(),
        "end_effector_box": barriers.end_effector_box(frame, *box),
        "whole_body_box": barriers.whole_body_box(*box),
        "half_space": barriers.half_space((0.0, 0.6, 0.8), -1.0),
        "obstacles": barriers.obstacles(),
        "self_collision": barriers.self_collision(),
        "manipulability": barriers.manipulability(frame, 0.01, rows="position"),
        "own": Barrier(height, 2, "height", parameters=0.3),
        "own of velocity": Barrier(momentum, 1, "momentum", parameters=30.0),
    }
    return {k: dataclasses.replace(b, rate=RATE, margin=MARGIN) for k, b in made.items()}


def world(rng: np.random.Generator, scale: float = 2.0) -> Obstacles:
    """Two spheres, a capsule, a box and a half-space, all moving, some of them in the robot."""
    place = scale * rng.normal(size=(5, 3))
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    return Obstacles(
        Sphere(place[:2], np.array([0.1, 0.2])),
        Capsule(place[2:3], place[3:4], np.array([0.1])),
        Box(place[4:5], turn[None], np.array([[0.1, 0.2, 0.3]])),
        HalfSpace(np.array([[0.0, 0.6, 0.8]]), np.array([-1.0])),
        velocity=rng.normal(size=(5, 3)),
    )


class Moment(NamedTuple):
    """A robot in motion, with an acceleration."""

    q: Array
    v: Array
    a: Array
    obstacles: Obstacles


def moment(robot: Robot, seed: int = 0) -> Moment:
    rng = np.random.default_rng(seed)
    q = jax.jit(dynamics.random_configuration)(robot, jax.random.key(seed))
    v, a = rng.normal(size=(2, robot.nv))
    return Moment(q, jnp.asarray(v), jnp.asarray(a), world(rng))


def values(
    robot: Robot, chosen: Sequence[Barrier], q: Array, v: Array, obstacles: Obstacles
) -> list[Array]:
    here = situation(robot, dynamics.compute_terms(robot, q, v), obstacles)
    return [barrier.function(robot, here, barrier) for barrier in chosen]


def along_path(robot: Robot, chosen: Sequence[Barrier], now: Moment, t: Array) -> list[Array]:
    """The barriers a time `t` later: `a` is the acceleration there to first order in `t`."""
    q = dynamics.integrate(robot, now.q, now.v * t + 0.5 * now.a * t * t, 1.0)
    return values(robot, chosen, q, now.v + now.a * t, dynamics.move_obstacles(now.obstacles, t))


def twice(h: Callable[[Array], list[Array]]) -> tuple[list[Array], list[Array], list[Array]]:
    """`h`, its rate and the rate of that, at zero."""

    def once(t: Array) -> Any:
        return jax.jvp(h, (t,), (jnp.ones_like(t),))

    zero = jnp.zeros(())
    (h0, h1), (_, h2) = jax.jvp(once, (zero,), (jnp.ones_like(zero),))
    return h0, h1, h2


def demand(degree: int, h: Any, rate: Any, second: Any) -> Any:
    """What is not to be negative."""
    if degree == 1:
        return rate + RATE * (h - MARGIN)
    return second + 2 * RATE * rate + RATE**2 * (h - MARGIN)


def given(robot: Robot, chosen: Sequence[Barrier], now: Moment) -> list[Conditions]:
    """Conditions on changes of half the acceleration: as much again is the change to all of it."""
    terms = dynamics.compute_terms(robot, now.q, now.v)
    here = situation(robot, terms, now.obstacles)
    return [barrier_conditions(robot, (barrier,), here, 0.5 * now.a) for barrier in chosen]


def assert_close(actual: Any, expected: Any, tolerance: float) -> None:
    scale = 1 + np.abs(np.asarray(expected)).max(initial=0)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


# --- Derivatives ----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=with_slow(NAMES[:2], "planar_mobile_manipulator"))
def derivatives(
    request: pytest.FixtureRequest, precision: Callable[[str], AbstractContextManager[Any]]
) -> dict[str, Any]:
    """By barrier: values, what is demanded of an acceleration, and what along its path is true."""
    with precision("float64"):
        robot = dynamics.load_robot(request.param)

        def compare(now: Moment) -> dict[str, Any]:
            names, chosen = zip(*library(request.param).items(), strict=True)
            paths = zip(*twice(lambda t: along_path(robot, chosen, now, t)), strict=True)
            found = {}
            for name, barrier, conditions, h in zip(
                names, chosen, given(robot, chosen, now), paths, strict=True
            ):
                rows, lacking = conditions.matrix(robot.nv), conditions.b
                demanded = conditions.A(0.5 * now.a) - conditions.b
                true = demand(barrier.relative_degree, *h)
                found[name] = (
                    conditions.values,
                    h[0],
                    demanded,
                    true,
                    rows @ (0.5 * now.a) - lacking,
                )
            return found

        return jax.jit(compare, compiler_options=QUICK)(moment(robot))


@pytest.mark.parametrize("name", library("panda"))
def test_conditions_are_derivatives_by_time(derivatives: dict[str, Any], name: str) -> None:
    values, h, demanded, true, spread = derivatives[name]
    assert_close(values, h, 1e-12)
    assert_close(demanded, true, 1e-9)
    assert_close(spread, true, 1e-9)


@pytest.mark.slow
def test_conditions_on_a_floating_base(x64: None) -> None:
    """By differences in time: its coordinates are not what a velocity is the rate of."""
    robot = dynamics.load_robot("g1")
    now, step = moment(robot), 1e-4
    times = jnp.array([-step, 0.0, step])

    def compare(now: Moment) -> list[tuple[Array, Array]]:
        found, chosen = [], [*library("g1").values()]
        paths = jax.vmap(lambda t: along_path(robot, chosen, now, t))(times)
        for barrier, conditions, path in zip(chosen, given(robot, chosen, now), paths, strict=True):
            before, h, after = path
            rates = (after - before) / (2 * step), (after - 2 * h + before) / step**2
            true = demand(barrier.relative_degree, h, *rates)
            found.append((conditions.A(0.5 * now.a) - conditions.b, true))
        return found

    for demanded, true in jax.jit(compare, compiler_options=QUICK)(now):
        assert_close(demanded, true, 1e-6)


def test_velocity_conditions_are_rates(x64: None) -> None:
    robot = dynamics.load_robot("panda")
    now = moment(robot)
    chosen = [b for b in library("panda").values() if b.relative_degree == 2]

    def compare(now: Moment) -> tuple[Array, Array]:
        terms = dynamics.compute_terms(robot, now.q, jnp.zeros_like(now.v))
        here = situation(robot, terms, now.obstacles)
        conditions = velocity_conditions(robot, chosen, here, 0.5 * now.v)
        straight = now._replace(a=jnp.zeros_like(now.a))
        paths = twice(lambda t: along_path(robot, chosen, straight, t))[:2]
        pairs = zip(*paths, strict=True)
        true = jnp.concatenate([rate + RATE * (h - MARGIN) for h, rate in pairs])
        return conditions.A(0.5 * now.v) - conditions.b, true

    assert_close(*jax.jit(compare, compiler_options=QUICK)(now), 1e-9)


# --- Names and limits -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", with_slow(NAMES, "planar_mobile_manipulator"))
def test_every_value_has_a_name(name: str) -> None:
    robot = dynamics.load_robot(name)
    around = world(np.random.default_rng(0))
    chosen = tuple(library(name).values())

    def values(q: Array) -> Array:
        terms = dynamics.compute_terms(robot, q, jnp.zeros(robot.nv))
        here = situation(robot, terms, around)
        return barrier_conditions(robot, chosen, here, jnp.zeros(robot.nv)).values

    shape = jax.eval_shape(values, jnp.asarray(robot.q_default, float)).shape
    names = barrier_names(robot, chosen, around)
    assert (len(names),) == shape
    assert len(set(names)) == len(names)
    assert names[-2:] == ("height: 0", "momentum: 0")
    assert names[2 * robot.nv] == f"joint velocity: {robot.topology.dof_names[0]} lower"
    if name == "panda":
        assert "self-collision: link0_1 - hand_1" in names
        assert "obstacles: hand_1 - half_spaces[0]" in names
        assert "hand box: z upper" in names


def test_no_limit_is_no_barrier() -> None:
    robot = dynamics.load_robot("panda")
    unlimited = np.array([[-np.inf, np.inf], *np.asarray(robot.position_limits)[1:]])
    velocity = np.asarray(robot.velocity_limits).copy()
    velocity[2] = np.inf
    robot = robot.replace(position_limits=unlimited, velocity_limits=velocity)
    chosen = (
        barriers.joint_position(),
        barriers.joint_velocity(),
        barriers.end_effector_box("hand", (-np.inf, -1, -1), (1, 1, np.inf)),
        barriers.whole_body_box((-np.inf,) * 3, (np.inf,) * 3),
        barriers.half_space((0.0, 0.0, 1.0), -np.inf),
    )

    def compute(q: Array) -> tuple[Array, Array, Array]:
        here = situation(robot, dynamics.compute_terms(robot, q, jnp.ones(robot.nv)))
        conditions = barrier_conditions(robot, chosen, here, jnp.zeros(robot.nv))
        return conditions.values, conditions.matrix(robot.nv), conditions.b

    values, rows, lacking = jax.jit(compute)(jnp.asarray(robot.q_default, float))
    free = np.asarray(values) == NO_LIMIT
    names = np.array(barrier_names(robot, chosen))
    assert list(names[free][:6]) == [
        "joint position: panda_joint1 lower",
        "joint position: panda_joint1 upper",
        "joint velocity: panda_joint3 lower",
        "joint velocity: panda_joint3 upper",
        "hand box: x lower",
        "hand box: z upper",
    ]
    assert all(n.startswith(("body box", "half-space")) for n in names[free][6:])
    assert free.sum() == 6 + 7 * (len(names) - 28 - 6) // 7
    assert not np.asarray(rows)[free].any()
    assert (np.asarray(lacking)[free] < 0).all()
    assert np.isfinite(values).all()


# --- Obstacles ------------------------------------------------------------------------------------


def conditions_of(robot: Robot, barrier: Barrier, now: Moment) -> tuple[Array, Array, Array]:
    def compute(now: Moment) -> tuple[Array, Array, Array]:
        (conditions,) = given(robot, (barrier,), now)
        rows, lacking = conditions.matrix(robot.nv), conditions.b
        return conditions.values, rows @ now.a, lacking

    return jax.jit(compute, compiler_options=QUICK)(now)


def test_masked_obstacles_demand_nothing(x64: None) -> None:
    robot = dynamics.load_robot("panda")
    now = moment(robot)
    hand, _ = jax.jit(lambda q: dynamics.frame_pose(robot, q, "hand"))(now.q)
    around = dataclasses.replace(
        now.obstacles, spheres=Sphere(np.stack([hand, hand + 0.3]), np.array([0.2, 0.1]))
    )
    active = np.array([False, True, False, False, False])
    alone = Obstacles(jax.tree.map(lambda x: x[1:], around.spheres), velocity=around.velocity[1:2])
    barrier = barriers.obstacles(("hand_1",), RATE, MARGIN)
    masked = now._replace(obstacles=dataclasses.replace(around, active=active))
    values, along, lacking = map(np.asarray, conditions_of(robot, barrier, masked))
    one = tuple(map(np.asarray, conditions_of(robot, barrier, now._replace(obstacles=alone))))
    assert (values == np.where(active, one[0], FAR)).all()
    left = along != 0
    assert left.sum() == 1
    np.testing.assert_allclose((along[left], lacking[left]), one[1:], rtol=1e-12)
    assert (lacking[~left] < -(RATE**2) * FAR / 2).all()


ROD = """<mujoco><option gravity="0 0 0"/><worldbody><body name="carriage" pos="0 0 .1">
 <joint name="up" type="slide" axis="0 0 1"/><geom size=".01" mass="1" contype="0" conaffinity="0"/>
 <body name="rod"><joint name="tilt" axis="0 1 0"/>
 <geom name="rod" type="capsule" fromto="-.2 0 0 .2 0 0" size=".05" mass="1"/></body></body>
</worldbody></mujoco>"""
UNDER = Obstacles(
    capsules=Capsule(np.array([[-1.0, 0, -0.1]]), np.array([[1.0, 0, -0.1]]), np.array([0.1])),
    boxes=Box(np.array([[0.0, 0.0, -0.1]]), np.eye(3)[None], np.array([[1.0, 1.0, 0.1]])),
    half_spaces=HalfSpace(np.array([[0.0, 0.0, 1.0]]), np.zeros(1)),
)
"""All with the plane z = 0 as their upper side, on the way of the rod."""


@pytest.mark.slow
def test_neither_end_of_a_capsule_sinks(x64: None) -> None:
    """What lets an end of a rod down breaks a row, for each kind of what the rod is level with."""
    pytest.importorskip("mujoco")
    robot = dynamics.load_mjcf_robot(ROD)
    barrier = barriers.obstacles(rate=RATE, margin=MARGIN, bounded_curvature=True)
    rng = np.random.default_rng(0)
    low, high = np.array([[-0.045, -3e-3], [0.0, 3e-3]])
    q, v = rng.uniform(low, high, (200, 2)), rng.uniform(-1, 1, (200, 2)) * [0.2, 1.0]
    a = rng.uniform(-5, 5, (200, 2))

    def over(q: Array, v: Array, a: Array) -> Array:
        (conditions,) = given(robot, (barrier,), Moment(q, v, a, UNDER))
        return conditions.A(0.5 * a) - conditions.b

    more = np.asarray(jax.jit(jax.vmap(over), compiler_options=QUICK)(q, v, a))
    assert more.shape == (200, 9)
    both = []
    for side in (-0.2, 0.2):  # z - side sin(tilt), above the plane, and its derivatives by time
        height = 0.1 + q[:, 0] - side * np.sin(q[:, 1]) - 0.05
        speed = v[:, 0] - side * np.cos(q[:, 1]) * v[:, 1]
        turning = np.cos(q[:, 1]) * a[:, 1] - np.sin(q[:, 1]) * v[:, 1] ** 2
        push = a[:, 0] - side * turning
        both.append(push + 2 * RATE * speed + RATE**2 * (height - MARGIN))
    for kind in range(3):
        least = more[:, kind::3].min(axis=1)
        np.testing.assert_array_less(least, np.minimum(*both) + 1e-9)


def test_no_shapes_and_no_obstacles_are_no_rows() -> None:
    robot = dynamics.load_robot("cartpole")
    now = Moment(jnp.zeros(2), jnp.zeros(2), jnp.zeros(2), NO_OBSTACLES)
    ends = barriers.obstacles(bounded_curvature=True)
    for barrier in (barriers.obstacles(), ends, barriers.self_collision()):
        assert [x.shape for x in conditions_of(robot, barrier, now)] == [(0,)] * 3


# --- Parameters -----------------------------------------------------------------------------------


def test_parameters_are_data() -> None:
    """They may be batched, and differentiated."""
    robot = dynamics.load_robot("panda")
    q = jnp.asarray(robot.q_default, float)

    def bound(low: Array, rate: Array) -> Array:
        barrier = Barrier(height, 2, parameters=low, rate=rate)
        here = situation(robot, dynamics.compute_terms(robot, q, jnp.zeros(7)))
        return barrier_conditions(robot, (barrier,), here, jnp.zeros(7)).b[0]

    lows = jnp.array([0.1, 0.2])
    found = jax.jit(jax.vmap(bound, (0, None)))(lows, jnp.asarray(2.0))
    np.testing.assert_allclose(found[1] - found[0], 4 * 0.1, rtol=1e-4)
    np.testing.assert_allclose(jax.jit(jax.grad(bound))(lows[0], jnp.asarray(2.0)), 4.0, rtol=1e-5)


@pytest.mark.parametrize("degree", [0, 3, 1.5, "2"])
def test_relative_degree_is_one_or_two(degree: Any) -> None:
    with pytest.raises(ConfigError, match=r"relative_degree=.* of barrier .*, expected 1 .* or 2"):
        Barrier(height, degree)


@pytest.mark.parametrize("rate", [0, -1.0, np.inf, np.nan])
def test_rates_are_positive(rate: float) -> None:
    with pytest.raises(ConfigError, match=r"rate=.*'joint position', expected a positive number"):
        barriers.joint_position(rate=rate)
