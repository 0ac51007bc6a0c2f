"""The safety filter in bad worlds.

Obstacles and states that are no numbers, obstacles that appear in the arm, sensors that freeze,
motors that die.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import fraxenv
from fraxenv import dynamics
from fraxenv.controllers import MomentumObserver, Robustness, SafetyFilter, barriers
from fraxenv.controllers.safety import braking
from fraxenv.dynamics import Obstacles, Robot, Sphere
from fraxenv.kernels import fusible

DT = 1e-3
N = 25
NAN, INF = float("nan"), float("inf")
HAND = ("link5_1", "hand_1", "hand_5")
"""Some of the collision shapes."""
FILTER = SafetyFilter(
    (barriers.joint_position(), barriers.obstacles(HAND)), end_effectors=("hand",), nearest=2
)


def panda() -> Robot:
    return dynamics.load_robot("panda")


def limits() -> np.ndarray:
    return np.asarray(panda().effort_limits, np.float32)


def moving() -> tuple[Array, Array]:
    """Configurations and velocities (N, 7) near the default one, at up to 1 rad/s."""
    rng, robot = np.random.default_rng(0), panda()
    q = robot.q_default + 0.2 * rng.normal(size=(N, robot.nv))
    return jnp.asarray(q, float), jnp.asarray(rng.uniform(-1, 1, (N, robot.nv)), float)


def spheres() -> Obstacles:
    """Four around each of N arms, which do not move."""
    place = np.array([[0.8, 0.0, 0.5], [0.0, 0.8, 0.5], [0.0, -0.8, 0.5], [0.5, 0.5, 1.2]])
    world = Obstacles(Sphere(place, np.full(4, 0.05)), velocity=np.zeros((4, 3)))
    return jax.tree.map(lambda x: jnp.asarray(np.tile(x, (N, *[1] * x.ndim)), float), world)


@jax.jit
def spoilt(world: Obstacles, which: Any, place: Any, radius: Any, velocity: Any) -> Obstacles:
    """The obstacles, with other numbers of one of each world's."""
    one = jnp.arange(4) == jnp.asarray(which)[..., None]
    place, radius, velocity = (
        jnp.where(one, jnp.asarray(x)[..., None], 0.0) for x in (place, radius, velocity)
    )
    balls = world.spheres
    balls = Sphere(balls.position.at[..., 0].add(place), balls.radius + radius)
    return dataclasses.replace(
        world, spheres=balls, velocity=world.velocity.at[..., 1].add(velocity)
    )


def step(q: Array, v: Array, world: Obstacles, push: Array) -> Any:
    """Where an arm moves on that is held, and pushed: torque, report, acceleration, motion."""
    robot = panda()
    terms = dynamics.compute_terms(robot, q, v)
    around = FILTER.look_around(robot, q, world)
    tau, report = FILTER(robot, terms, terms.bias + push, DT, around)
    a = dynamics.spd_solve(terms.mass_matrix, tau - terms.bias)
    return tau, report, a, dynamics.step(robot, q, v, tau, DT, terms=terms)


moved = jax.jit(jax.vmap(fusible(step)))
"""Of N arms, to be compiled once."""


def together(q: Array, v: Array, world: Obstacles) -> Any:
    """Of N arms that are pushed a little."""
    return moved(q, v, world, jnp.ones((N, 7)))


def roll(q: Array, v: Array, world: Obstacles, steps: int) -> Any:
    """Torques, reports, and where they end."""
    told = []
    for _ in range(steps):
        tau, report, _, (q, v) = together(q, v, world)
        told.append((tau, report))
    return jax.tree.map(lambda *x: np.stack(x, axis=1), *told), (q, v)


def test_what_is_no_number_brakes_the_arm() -> None:
    """Along its way, within the limits, wherever the number is; and no other arm of the batch."""
    bad = [(NAN, 0, 0), (INF, 0, 0), (0, NAN, 0), (0, 0, NAN), (0, 0, INF), (0, INF, 0)]
    which = [
        (k if velocity == 0 else 0, place, radius, velocity)
        for place, radius, velocity in bad
        for k in range(4)
    ]
    each = [np.array(x, float) for x in zip(*which, strict=True)]
    (q, v), world = moving(), spheres()
    usual = jax.tree.map(np.asarray, together(q, v, world))
    rest = jax.tree.map(lambda x: np.asarray(x)[1:], world)
    spoil = jax.vmap(spoilt)(rest, each[0].astype(int), *each[1:])
    world = jax.tree.map(lambda a, b: np.concatenate([a[:1], b]), world, spoil)
    tau, report, a, _ = jax.tree.map(np.asarray, together(q, v, world))
    for given, found in zip(
        jax.tree.leaves(usual), jax.tree.leaves(together(q, v, world)), strict=True
    ):
        np.testing.assert_array_equal(given[0], found[0])
    assert report["feasible"][0]
    assert not report["feasible"][1:].any()
    assert report["intervened"][1:].all()
    assert (np.abs(tau) <= limits()).all()
    along = np.sum(a * v, axis=1) / np.sum(v * v, axis=1)
    np.testing.assert_allclose(a[1:], along[1:, None] * np.asarray(v)[1:], atol=2e-2)
    assert (along[1:] >= -1.001 * braking.RATE).all()
    assert (along[1:] < -0.1 * braking.RATE).all()
    assert all(np.isfinite(x).all() for x in report.values())
    assert (report["slack"][1:] == 0).all()
    names = FILTER.row_names(panda(), jax.tree.map(lambda x: x[0], world))
    clear = ["joint" in names[k] for k in usual[1]["min_barrier_row"]]
    np.testing.assert_array_equal(report["min_barrier"][clear], usual[1]["min_barrier"][clear])
    assert sum(clear) > 0
    assert (report["min_barrier"] >= usual[1]["min_barrier"]).all()


def test_an_arm_that_brakes_comes_to_rest_and_stays() -> None:
    (q, v), world = moving(), spheres()
    blind = spoilt(world, np.arange(N) % 4, NAN, 0.0, 0.0)
    (tau, _), (rest, speed) = roll(q, v, blind, 500)
    assert (np.abs(tau) <= limits()).all()
    assert np.abs(speed).max() < 1e-3
    # A straight way, of about the speed at first by the rate.
    way, length = np.asarray(rest - q), np.linalg.norm(rest - q, axis=1)
    turned = np.sum(way * v, axis=1) / length / np.linalg.norm(v, axis=1)
    assert (turned > 0.99).all()
    assert (length / np.linalg.norm(v, axis=1) < 2.0 / braking.RATE).all()


def test_a_state_that_is_no_number() -> None:
    """Held against gravity as long as that is known; never a torque that is not within limits."""
    robot = panda()
    q, v = moving()
    held = jax.jit(dynamics.gravity_forces)(robot, q[0])
    v, q = v.at[0, 3].set(NAN), q.at[1, 6].set(NAN)
    tau, report, _, _ = together(q, v, spheres())
    np.testing.assert_allclose(tau[0], held, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(tau[1], 0)
    np.testing.assert_array_equal(report["feasible"], np.arange(N) > 1)
    assert all(np.isfinite(x).all() for x in report.values())


def test_torques_that_are_no_numbers_are_held() -> None:
    """And none is beyond the limits, whatever is asked for."""
    robot, half = panda(), N // 2
    q, v = moving()
    q, v = q.at[:half].set(jnp.asarray(robot.q_default, float)), v.at[:half].set(0.0)
    asked = np.random.default_rng(0).uniform(-2.0, 2.0, (N, 7)) * limits()
    asked[:half] = np.resize([NAN, INF, -INF], (half, 1))
    tau, report, _, _ = moved(q, v, spheres(), jnp.asarray(asked, float))
    held = jax.jit(dynamics.gravity_forces)(robot, q[0])
    np.testing.assert_allclose(tau[:half], np.tile(held, (half, 1)), rtol=1e-5, atol=1e-5)
    assert report["feasible"][:half].all()
    assert (np.abs(tau) <= limits()).all()
    assert (np.abs(tau) == limits()).any()
    assert report["intervened"][half:].any()
    assert all(np.isfinite(x).all() for x in report.values())


@pytest.mark.slow
def test_velocities_in_a_bad_world() -> None:
    robot, world = panda(), spheres()

    def told(q: Array, world: Obstacles) -> Any:
        terms = dynamics.compute_terms(robot, q, jnp.zeros(7))
        return FILTER.filter_velocity(robot, terms, jnp.full(7, 0.1), world)

    q, _ = moving()
    bad = spoilt(world, np.arange(N) % 4, np.where(np.arange(N) < 5, NAN, 0.0), 0.0, 0.0)
    velocity, report = jax.jit(jax.vmap(fusible(told)))(q, bad)
    np.testing.assert_array_equal(velocity[:5], 0)
    np.testing.assert_allclose(velocity[5:], 0.1, rtol=1e-6)
    np.testing.assert_array_equal(report["feasible"], np.arange(N) >= 5)
    assert np.isfinite(report["min_barrier"]).all()


def test_obstacles_that_appear_in_the_arm_are_left() -> None:
    """With no more than the limits; where no motion is a way out, at the very centre, reported."""
    robot, world = panda(), spheres()
    q = jnp.tile(jnp.asarray(robot.q_default, float), (N, 1))
    names = [s.name for s in robot.topology.collision_shapes]
    at = dynamics.robot_geometry(robot, q[0]).spheres.position[names.index("hand_1")]
    off = np.random.default_rng(0).normal(size=(N, 3))
    off *= np.linspace(0.0, 0.05, N)[:, None] / np.linalg.norm(off, axis=1, keepdims=True)
    place = world.spheres.position.at[:, 0].set(at + off)
    world = dataclasses.replace(world, spheres=dataclasses.replace(world.spheres, position=place))
    (tau, report), _ = roll(q, jnp.zeros_like(q), world, 1500)
    assert np.isfinite(tau).all()
    assert (np.abs(tau) <= limits()).all()
    assert (report["min_barrier"][:, 0] < -0.03).all()
    assert not report["feasible"][0, 0]
    assert (report["min_barrier"][1:, -1] > -1e-3).all()


FAILURES = {
    "none": ((), 1.0, 1e-5),
    "all sensors": (tuple(range(7)), 1.0, 1e-5),
    "one sensor": ((3,), 1.0, 1e-5),
    "unnoticed": (tuple(range(7)), 1.0, 10.0),
    "motor": ((), 0.0, 1e-5),
}
"""Joints whose sensors freeze, what is left of a motor, resolution to the observer."""
STEPS = 1000


@pytest.fixture(scope="module")
def failures() -> dict[str, dict[str, np.ndarray]]:
    """Arms that swing as they are told, with the robust filter, and fail in the middle."""
    robot, safety = panda(), dataclasses.replace(FILTER, robust=Robustness())
    motors, idle, world = dynamics.Actuators(), dynamics.ActuatorState(), spheres()
    q = jnp.asarray(robot.q_default, float)

    def observer(resolution: Array) -> MomentumObserver:
        return MomentumObserver(gain=100.0, resolution=resolution)

    def move(carry: Any, time: Array, stuck: Array, works: Array, resolution: Array) -> Any:
        q, v, sensed, state = carry
        fails, watching = time >= DT * STEPS / 2, observer(resolution)
        seen_q, seen_v = (
            jnp.where(stuck & fails, old, new) for old, new in zip(sensed, (q, v), strict=True)
        )
        terms = dynamics.compute_terms(robot, seen_q, seen_v)
        state = watching(robot, terms, state, DT)
        terms = watching.believed(robot, terms, state, DT)
        seen = watching.informed(terms, state)
        goal = robot.q_default + 0.3 * jnp.sin(3.0 * time)
        tau = terms.bias + terms.mass_matrix @ (100 * (goal - seen_q) - 20 * seen_v)
        bounds = motors.range(robot, seen_v, idle, DT)
        around = jax.tree.map(lambda x: x[0], world)
        tau, report = safety(robot, seen, tau, DT, around, bounds, None, state.error)
        _, command, _ = motors(robot, tau, seen_v, idle, DT)
        state = watching.after(robot, terms, command, state, DT)
        q, v = dynamics.step(robot, q, v, jnp.where(fails, works, 1.0) * command, DT)
        told = {"v": v, "seen": seen.v, "torque": command, "feasible": report["feasible"]}
        return (q, v, (seen_q, seen_v), state), told

    sensors, motor, resolution = zip(*FAILURES.values(), strict=True)
    stuck = jnp.array([np.isin(np.arange(7), x) for x in sensors])
    works = jnp.array([np.where(np.arange(7) == 3, x, 1.0) for x in motor])
    terms = dynamics.compute_terms(robot, q, jnp.zeros(7))
    start = q, jnp.zeros(7), (q, jnp.zeros(7)), observer(jnp.zeros(())).init(terms)
    carry = jax.tree.map(lambda x: jnp.tile(x, (len(stuck), *[1] * x.ndim)), start)
    step = jax.jit(jax.vmap(fusible(move), (0, None, 0, 0, 0)))
    told = []
    for k in range(STEPS):
        carry, now = step(carry, DT * k, stuck, works, jnp.array(resolution))
        state = carry[-1]
        told.append({**now, "estimate": state.estimate, "error": state.error})
    found = jax.tree.map(lambda *x: np.stack(x), *told)
    assert (np.abs(found["torque"]) <= limits()).all()
    return {name: {k: x[:, i] for k, x in found.items()} for i, name in enumerate(FAILURES)}


Failures = dict[str, dict[str, np.ndarray]]
HALF = STEPS // 2


@pytest.mark.slow
def test_where_nothing_fails_nothing_is_seen(failures: Failures) -> None:
    found = failures["none"]
    assert found["feasible"].all()
    assert np.abs(found["error"]).max() < 0.1
    np.testing.assert_array_equal(failures["motor"]["v"][:HALF], found["v"][:HALF])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["all sensors", "one sensor"])
def test_a_frozen_sensor_is_seen_and_the_arm_stops(failures: Failures, name: str) -> None:
    found = failures[name]
    first = np.abs(found["v"][HALF - 1])
    assert first.min() > 0.3
    # At once, and for good.
    assert not found["feasible"][HALF + 1 :].any()
    assert np.isnan(found["error"][HALF + 1 :, FAILURES[name][0]]).all()
    assert np.abs(found["v"][HALF + 250 :]).max() < 0.01 * first.max()
    assert np.abs(found["seen"] - found["v"])[HALF + 1 :].max() < 0.05 * first.max()
    unnoticed = failures["unnoticed"]
    assert unnoticed["feasible"].all()
    assert np.abs(unnoticed["v"][HALF + 250 :]).max() > 2 * first.max()


@pytest.mark.slow
def test_a_motor_that_dies_is_the_torque_that_is_missing(failures: Failures) -> None:
    found = failures["motor"]
    missing = -found["torque"][:, 3]
    late = slice(HALF + 30, HALF + 60)
    np.testing.assert_allclose(found["estimate"][late, 3], missing[late], rtol=0.2)
    assert np.abs(missing[late]).min() > 8.0


@pytest.mark.slow
@pytest.mark.parametrize("safety", ["cbf", "robust"])
def test_in_an_environment(safety: str) -> None:
    """One arm of a batch has an obstacle of no numbers: it stops, and the others go on as ever."""
    env, params = fraxenv.make("PandaReachObstacles-v0", safety=safety)
    n = 4
    _, state = jax.jit(jax.vmap(env.reset, (0, None)))(
        jax.random.split(jax.random.key(0), n), params
    )
    world = state.world.obstacles
    place = jnp.asarray(world.spheres.position).at[1, 5].set(NAN)
    active = jnp.asarray(world.active).at[1, 5].set(True)
    balls = dataclasses.replace(world.spheres, position=place)
    blind = dataclasses.replace(world, spheres=balls, active=active)
    bad = state.replace(world=dataclasses.replace(state.world, obstacles=blind))

    @jax.jit
    def run(state: Any) -> Any:
        def act(state: Any, key: Array) -> Any:
            action = jax.random.uniform(key, (n, env.num_actions), minval=-1.0)
            keys = jax.random.split(key, n)
            _, state, *_, info = jax.vmap(env.step_env, (0, 0, 0, None))(
                keys, state, action, params
            )
            return state, (state.q, state.v, info["safety"], info["controller"]["torque"])

        return jax.lax.scan(act, state, jax.random.split(jax.random.key(1), 20))[1]

    usual, found = run(state), run(bad)
    others = np.array([0, 2, 3])
    for a, b in zip(jax.tree.leaves(usual), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(a[:, others], b[:, others])
    _, v, report, torque = found
    assert not report["feasible"][:, 1].any()
    assert np.isfinite(torque).all()
    assert (np.abs(torque) <= limits()).all()
    assert np.abs(v[-1, 1]).max() < 1e-3
    assert np.abs(v[-1, others]).max() > 0.05
