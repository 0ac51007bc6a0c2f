"""Ways out of what moves."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import fraxenv
from fraxenv import dynamics
from fraxenv.controllers import Foresight, SafetyFilter, barriers, default_barriers
from fraxenv.controllers.safety.braking import RATE, braking_torque
from fraxenv.controllers.safety.foresight import MOMENTS, WayOut, escape_torque, is_clear, way_out
from fraxenv.dynamics import Obstacles, Robot, Sphere
from fraxenv.envs import control_loop
from fraxenv.envs.episode import foreseen
from fraxenv.errors import ConfigError, UnknownNameError
from fraxenv.kernels import fusible

DT = 1e-3
N = 48
HAND = ("link5_1", "hand_1", "hand_5")
"""Some of the collision shapes."""
KEPT = (barriers.joint_position(), barriers.joint_velocity(), barriers.obstacles(HAND))
LOOK = Foresight(ways=24)
FAR = np.array([0.0, 0.0, 9.0])
"""m, where a sphere is in nobody's way."""
PLAIN = SafetyFilter(KEPT, end_effectors=("hand",))
AHEAD = dataclasses.replace(PLAIN, foresight=LOOK)


def panda() -> Robot:
    return dynamics.load_robot("panda")


def arms() -> tuple[Array, Array]:
    """Configurations and velocities (N, 7) near the default one, at up to half a rad/s."""
    rng, robot = np.random.default_rng(0), panda()
    q = robot.q_default + 0.2 * rng.normal(size=(N, robot.nv))
    return jnp.asarray(q, float), jnp.asarray(rng.uniform(-0.5, 0.5, (N, robot.nv)), float)


def balls(q: Array, speed: float, distance: float = 0.4, radius: float = 0.05) -> Obstacles:
    """A sphere for each of N arms on its way to where the hand is, from all around; not in it."""
    way = np.random.default_rng(1).normal(size=(N, 3))
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    return moving_and_resting(hands(q) - distance * way, speed * way, jnp.full(N, radius))


def hands(q: Array) -> Array:
    """Where they are (N, 3), m."""
    return jax.vmap(lambda q: dynamics.frame_pose(panda(), q, "hand")[0])(q)


def moving_and_resting(
    place: Any, velocity: Any, radius: Any, rests: Any = FAR, size: Any = 0.05
) -> Obstacles:
    """Two spheres for each of N arms, so that programs are the same for all tests."""
    places = jnp.stack([jnp.asarray(x, float) * jnp.ones((N, 3)) for x in (place, rests)], 1)
    radii = jnp.stack([jnp.asarray(x, float) * jnp.ones(N) for x in (radius, size)], 1)
    velocities = jnp.stack([jnp.asarray(velocity, float) * jnp.ones((N, 3)), jnp.zeros((N, 3))], 1)
    return Obstacles(Sphere(places, radii), velocity=velocities)


def found(q: Array, v: Array, world: Obstacles) -> tuple[WayOut, Array]:
    """The way out of an arm, and whether it is clear."""
    robot = panda()
    terms = dynamics.compute_terms(robot, q, v)
    way = AHEAD.look_ahead(robot, terms, world)
    assert way is not None
    return way, is_clear(robot, terms, KEPT, world, LOOK, way.velocity)


def moved(safety: SafetyFilter, q: Array, v: Array, world: Obstacles, way: WayOut | None) -> Any:
    """A control step of an arm that is to stay: torque, report, motion."""
    robot = panda()
    terms = dynamics.compute_terms(robot, q, v)
    asked = terms.bias - 20.0 * terms.v
    tau, report = safety(robot, terms, asked, DT, world, way=way)
    return tau, report, dynamics.step(robot, q, v, tau, DT, terms=terms)


later = jax.jit(jax.vmap(partial(dynamics.move_obstacles, dt=DT)))
look = jax.jit(jax.vmap(fusible(found)))
plain = jax.jit(jax.vmap(fusible(partial(moved, PLAIN, way=None))))
ahead = jax.jit(jax.vmap(fusible(partial(moved, AHEAD))))
"""Of N arms, each to be compiled once."""


@jax.jit
@jax.vmap
def least_distance(q: Array, world: Obstacles) -> Array:
    return jnp.min(dynamics.obstacle_distances(panda(), q, world, shapes=HAND))


def test_where_to_brake_is_enough_nothing_is_changed() -> None:
    """Bit for bit, whatever moves elsewhere, and however near is what rests."""
    q, v = arms()
    leaving, resting = balls(q, -0.5, distance=1.5), balls(q, 0.0, distance=0.2)
    off = np.asarray(least_distance(q, resting)) < 0.03
    assert off.sum() < N / 2
    there = Sphere(resting.spheres.position.at[off].add(2.0), resting.spheres.radius)
    resting = dataclasses.replace(resting, spheres=there)
    for world in (leaving, resting):
        way, clear = look(q, v, world)
        assert not way.taken.any()
        assert clear.all()
        np.testing.assert_array_equal(way.velocity, 0.0)
        for a, b in zip(
            jax.tree.leaves(plain(q, v, world)),
            jax.tree.leaves(ahead(q, v, world, way)),
            strict=True,
        ):
            np.testing.assert_array_equal(a, b)


def test_arms_get_out_of_the_way() -> None:
    """Of spheres at 1.5 m/s that fly at their hands, which conditions alone do not keep off."""
    q0, v0 = arms()
    world0 = balls(q0, 1.5, distance=0.5, radius=0.12)
    free = np.asarray(least_distance(q0, world0)) > 0.05
    assert free.sum() > 0.8 * N
    limit = np.asarray(panda().effort_limits, np.float32)
    hit = {}
    for name in ("plain", "ahead"):
        q, v, world = q0, v0, world0
        least, stuck = np.full(N, np.inf), np.zeros(N, bool)
        for k in range(500):
            if name == "plain":
                tau, report, (q, v) = plain(q, v, world)
            else:
                if k % 20 == 0:
                    way, _ = look(q, v, world)
                tau, report, (q, v) = ahead(q, v, world, way)
            assert (np.abs(tau) <= limit).all()
            world = later(world)
            least = np.minimum(least, least_distance(q, world))
            stuck |= ~np.asarray(report["feasible"])
        hit[name] = ((least < 0) & free).sum(), (stuck & free).sum()
    assert min(hit["plain"]) > 1
    assert hit["ahead"] == (0, 0)


def test_ways_are_taken_before_there_is_no_other() -> None:
    """As soon as to brake is none, while most of them still keep the margin."""
    q, v = arms()
    far, near = (look(q, 0 * v, balls(q, 1.0, distance=d))[0] for d in (1.2, 0.4))
    assert not far.taken.any()
    assert near.taken.mean() > 0.9
    assert near.wide.mean() > 0.5


def test_a_way_is_what_its_torque_does() -> None:
    """The arm is where it was foreseen at every moment, where torques suffice."""
    robot = panda()
    q, v = arms()
    rng = np.random.default_rng(2)
    target = jnp.asarray(rng.uniform(-0.4, 0.4, (N, 7)), float)
    smooth = dataclasses.replace(robot, damping=np.zeros(7), friction=np.zeros(7))

    @jax.jit
    @jax.vmap
    def step(q: Array, v: Array, w: Array) -> tuple[Array, Array]:
        terms = dynamics.compute_terms(smooth, q, v)
        return dynamics.step(smooth, q, v, escape_torque(smooth, terms, w), DT, terms=terms)

    seen: list[Any] = []

    def place(robot: Robot, situation: Any, barrier: Any) -> Array:
        jax.debug.callback(lambda *x: seen.append(x), situation.q, situation.v)
        return jnp.ones(1)

    kept = (barriers.Barrier(place, name="place"),)
    terms = dynamics.compute_terms(robot, q[0], v[0])
    is_clear(robot, terms, kept, barriers.NO_OBSTACLES, LOOK, target[0])
    jax.effects_barrier()
    times = np.round(np.asarray(LOOK.horizon) * MOMENTS / DT).astype(int)
    there = {}
    now = q, v
    for k in range(times[-1]):
        now = step(*now, target)
        there[k + 1] = now
    assert len(seen) == len(times)
    for k, (q_seen, v_seen) in zip(times, seen, strict=True):
        np.testing.assert_allclose(there[int(k)][0][0], q_seen, atol=5e-3)
        np.testing.assert_allclose(there[int(k)][1][0], v_seen, atol=2e-2)


def test_to_brake_is_a_way() -> None:
    robot = panda()
    q, v = arms()
    limit = jnp.asarray(robot.effort_limits, float)
    for k in range(3):
        terms = dynamics.compute_terms(robot, q[k], v[k])
        expected = braking_torque(robot, terms, -limit, limit)
        torque = escape_torque(robot, terms, jnp.zeros(7))
        np.testing.assert_allclose(torque, expected, atol=1e-3)
        slow = RATE * terms.mass_matrix @ v[k]
        np.testing.assert_allclose(terms.bias - torque, slow, atol=1e-3)


def test_margins_are_of_what_moves_and_no_more_than_it_moves() -> None:
    """A sphere that passes by at 3 cm: taken with a margin of 6, at 0.5 m/s, not at 0.05."""
    robot = panda()
    q = jnp.asarray(robot.q_default, float)
    terms = dynamics.compute_terms(robot, q, jnp.zeros(7))
    ball = Sphere(jnp.asarray([[0.9, 0.0, 0.6]], float), jnp.asarray([0.05]))
    one = jax.tree.map(lambda x: x[None], Obstacles(ball))
    near = Sphere(ball.position, ball.radius + least_distance(q[None], one) - 0.03)
    kept = (barriers.obstacles(HAND),)

    @jax.jit
    def taken(speed: Array, margin: Array) -> Array:
        world = Obstacles(near, velocity=jnp.stack([speed, 0 * speed, 0 * speed])[None])
        few = Foresight(margin=margin, ways=1)
        return way_out(robot, terms, kept, world, few).taken

    assert taken(jnp.array(0.5), jnp.array(0.06))
    assert not taken(jnp.array(0.5), jnp.array(0.0))
    assert not taken(jnp.array(0.05), jnp.array(0.06))
    assert not taken(jnp.array(0.0), jnp.array(0.06))


def test_margins_are_no_reason_to_touch_what_rests() -> None:
    """Hands in a gap, between a sphere that rests at 8 mm and one that passes by at 3 cm."""
    q, v = arms()
    rng = np.random.default_rng(3)
    u, t = np.linalg.qr(rng.normal(size=(N, 3, 2)))[0].transpose(2, 0, 1)
    here, there = hands(q) + 0.3 * u, hands(q) - 0.3 * u
    passing, resting = (
        0.05 + least_distance(q, moving_and_resting(place, 0.0, 0.05)) - off
        for place, off in ((here, 0.03), (there, 0.008))
    )
    way, clear = look(q, 0 * v, moving_and_resting(here, 0.5 * t, passing, there, resting))
    assert way.taken.all()
    assert clear.mean() > 0.9


def test_a_batch_is_its_arms_and_a_kernel_is_a_loop() -> None:
    q, v = arms()
    coming = balls(q, 1.0)
    sense = jnp.where(jnp.arange(N) % 3 == 0, -1.0, 1.0)[:, None, None]
    world = dataclasses.replace(coming, velocity=sense * coming.velocity)
    way, clear = look(q, v, world)
    assert 0 < way.taken.sum() < N
    assert 0 < (way.taken & way.wide).sum() < way.taken.sum()
    assert way.wide[~way.taken].all()
    alone = jax.jit(found)
    for k in range(0, N, 7):
        own = alone(q[k], v[k], jax.tree.map(lambda x, k=k: x[k], world))
        np.testing.assert_array_equal(own[0].taken, way.taken[k])
        np.testing.assert_array_equal(own[1], clear[k])
    spoilt = dataclasses.replace(world, velocity=world.velocity.at[3].set(jnp.nan))
    again, _ = look(q, v, spoilt)
    np.testing.assert_array_equal(np.delete(way.velocity, 3, 0), np.delete(again.velocity, 3, 0))
    assert not again.taken[3]


def test_a_filter_looks_itself_if_it_is_given_no_way() -> None:
    q, v = arms()
    world = balls(q, 1.5, distance=0.3)
    way, _ = look(q, v, world)
    given = ahead(q, v, world, way)
    itself = jax.jit(jax.vmap(fusible(partial(moved, AHEAD, way=None))))(q, v, world)
    np.testing.assert_allclose(given[0], itself[0], atol=1e-3)
    assert (np.abs(given[0] - plain(q, v, world)[0]).max(axis=1) > 1.0).any()


def test_robots_without_motors_have_no_ways() -> None:
    robot = dynamics.load_robot("g1")
    q = jnp.asarray(robot.q_default, float)
    safety = SafetyFilter(foresight=Foresight())
    terms = dynamics.compute_terms(robot, q, jnp.zeros(robot.nv))
    with pytest.raises(ConfigError, match=r"foresight of robot .*no motor.*Leave `foresight`"):
        safety.look_ahead(robot, terms)
    assert SafetyFilter().look_ahead(robot, terms) is None
    assert SafetyFilter(barriers=(), foresight=Foresight()).look_ahead(robot, terms) is None


@pytest.mark.parametrize("name", ["margin", "reaction", "horizon", "ways"])
def test_wrong_numbers_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Foresight(**{name: -1})


def test_no_horizon_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"horizon=0\.0, expected a positive time"):
        Foresight(horizon=0.0)


def test_without_obstacles_nothing_is_taken() -> None:
    robot = panda()
    terms = dynamics.compute_terms(robot, jnp.asarray(robot.q_default), jnp.zeros(robot.nv))
    way = jax.jit(lambda: way_out(robot, terms, default_barriers(), Obstacles(), LOOK))()
    assert not way.taken
    np.testing.assert_array_equal(way.velocity, 0.0)


def test_options_of_environments() -> None:
    def made(given: Any) -> Any:
        options = {"foresight": given}
        return fraxenv.make("PandaReachObstacles-v0", safety_options=options)[1].safety

    assert made(None).foresight is None
    assert made(True).foresight == Foresight()
    assert made({"ways": 8, "margin": 0.1}).foresight == Foresight(margin=0.1, ways=8)
    assert made(LOOK).foresight == LOOK
    assert [b.name for b in made(True).barriers] == [b.name for b in default_barriers()]
    with pytest.raises(ConfigError, match=r"foresight of .*: 0\.15, expected True, a dict"):
        made(0.15)
    with pytest.raises(UnknownNameError, match="far"):
        made({"far": 1.0})


@pytest.mark.parametrize("informs", ["both", "safety", "controller"])
def test_environments_look_ahead_with_the_estimate(informs: Any, monkeypatch: Any) -> None:
    """Of the observer, if it informs the filter, with the scene, and with all obstacles."""
    env, params = fraxenv.make(
        "PandaReachObstacles-v0",
        safety="robust",
        safety_options={"foresight": True},
        task_options={"moving_count": 1, "obstacle_speed": 0.5},
    )
    params = dataclasses.replace(
        params, observer=dataclasses.replace(params.observer, informs=informs)
    )
    _, state = env.reset(jax.random.key(0), params)
    estimate = jnp.linspace(1.0, 7.0, env.robot.nv)
    memory = dataclasses.replace(state.observer_state, estimate=estimate)
    state = dataclasses.replace(state, observer_state=memory)

    class AskedError(Exception):
        pass

    def asked(_: Robot, terms: Any, kept: Any, near: Obstacles, look: Any, scene: Any) -> None:
        raise AskedError(terms, scene, near)

    monkeypatch.setattr(control_loop, "way_out", asked)
    with pytest.raises(AskedError) as caught:
        foreseen(env.robot, state, params, env.rates, env.physics)
    terms, scene, obstacles = caught.value.args
    spheres = state.world.obstacles.spheres
    assert obstacles.spheres.radius.shape == spheres.radius.shape
    assert scene is state.world.scene
    bare = dynamics.compute_terms(env.robot, state.q, state.v)
    expected = 0.0 if informs == "controller" else estimate
    np.testing.assert_allclose(bare.bias - terms.bias, expected, atol=1e-4)
