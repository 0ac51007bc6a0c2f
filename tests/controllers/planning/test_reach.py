"""Motions among obstacles, judged by Pinocchio's kinematics and by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy.interpolate import BSpline

from fraxenv import dynamics, plan
from fraxenv.controllers.planning.splines import b_spline
from fraxenv.dynamics import Obstacles, Robot, Sphere
from fraxenv.dynamics.collision_geometry import shape_layout
from fraxenv.errors import ArrayError, ConfigError, UnknownNameError

COUNT = 12
QUICK: dict[str, Any] = {"seeds": 8, "iterations": 40}


@pytest.fixture(scope="module")
def panda() -> Robot:
    return dynamics.load_robot("panda")


@pytest.fixture(scope="module")
def between(panda: Robot) -> tuple[Array, Array, Obstacles]:
    """Configurations without contact among eight spheres, and a straight line that is none."""
    draw, (lower, upper) = np.random.default_rng(2), np.asarray(panda.position_limits).T
    places = draw.uniform([-0.8, -0.8, 0.1], [0.8, 0.8, 1.0], (4000, 8, 3))
    sizes = draw.uniform(0.05, 0.15, (4000, 8))
    begin, end = draw.uniform(lower, upper, (2, 4000, 7))

    def distance(q: Array, place: Array, size: Array) -> Array:
        around = dynamics.obstacle_distances(panda, q, Obstacles(spheres=Sphere(place, size)))
        return jnp.minimum(jnp.min(around), jnp.min(dynamics.self_distances(panda, q)))

    @jax.jit
    @jax.vmap
    def least(begin: Array, end: Array, place: Array, size: Array) -> Array:
        s = jnp.linspace(0, 1, 9)[:, None]
        return jax.vmap(lambda q: distance(q, place, size))(begin + s * (end - begin))

    found = np.asarray(least(begin, end, places, sizes))
    wanted = (found[:, 0] > 0.03) & (found[:, -1] > 0.03) & (found.min(axis=1) < -0.01)
    i = np.flatnonzero(wanted)[:COUNT]
    assert len(i) == COUNT
    spheres = Sphere(jnp.asarray(places[i], jnp.float32), jnp.asarray(sizes[i], jnp.float32))
    return jnp.asarray(begin[i]), jnp.asarray(end[i]), Obstacles(spheres=spheres)


@pytest.fixture(scope="module")
def motions(panda: Robot, between: Any) -> tuple[plan.Motion, Callable[..., plan.Motion]]:
    def one(q: Array, goal: Array, obstacles: Obstacles) -> plan.Motion:
        return plan.reach(panda, q, goal, obstacles, **QUICK)

    program = jax.jit(jax.vmap(one))
    return program(*between), program


@pytest.mark.slow
def test_nothing_touches_anything(panda: Robot, between: Any, motions: Any, pinocchio: Any) -> None:
    """Where Pinocchio has the robot's spheres; finer than the motion was looked at."""
    motion, (_, _, obstacles) = motions[0], between
    assert motion.found.all()
    model, fixed = pinocchio("panda"), shape_layout(panda.topology).spheres
    names = [panda.topology.body_names[i] for i in fixed.body if i >= 0]
    moving, zero = fixed.body >= 0, np.zeros(7)
    for k in range(COUNT):
        path = np.asarray(motion.q[k], float)
        path = np.concatenate([path[:-1], path[1:] / 2 + path[:-1] / 2])
        nearest = np.inf
        for q in path:
            poses = model.terms(q, zero, tuple(dict.fromkeys(names))).poses
            pose = dict(zip(dict.fromkeys(names), poses, strict=True))
            centres = np.stack(
                [pose[n].act(p) for n, p in zip(names, fixed.start[moving], strict=True)]
            )
            away = np.linalg.norm(centres[:, None] - obstacles.spheres.position[k], axis=-1)
            gaps = away - fixed.radius[moving, None] - np.asarray(obstacles.spheres.radius[k])
            # What no joint moves does not count.
            nearest = min(nearest, gaps[shape_layout(panda.topology).moves[moving]].min())
        assert nearest > -1e-3
        assert nearest > motion.clearance[k] - 5e-3


def test_it_goes_from_rest_to_rest_within_limits(panda: Robot, between: Any, motions: Any) -> None:
    motion, (begin, end, _) = motions[0], between
    np.testing.assert_allclose(motion.q[:, 0], begin, atol=1e-6)
    np.testing.assert_allclose(motion.q[:, -1], end, atol=1e-6)
    np.testing.assert_allclose(motion.v[:, [0, -1]], 0.0, atol=1e-5)
    lower, upper = np.asarray(panda.position_limits, np.float32).T
    assert ((motion.q >= lower - 1e-6) & (motion.q <= upper + 1e-6)).all()
    used = jnp.max(jnp.abs(motion.v) / jnp.asarray(panda.velocity_limits), axis=(1, 2))
    np.testing.assert_allclose(used, 0.5, rtol=1e-5)
    dt = motion.duration[:, None, None] / (motion.q.shape[1] - 1)
    steps = (motion.q[:, 2:] - motion.q[:, :-2]) / (2 * dt)
    np.testing.assert_allclose(steps, motion.v[:, 1:-1], atol=0.02)


def test_motions_are_independent(between: Any, motions: Any) -> None:
    """One whose goal is in an obstacle is not found, nor is one of NaN; others keep their bits."""
    motion, program = motions
    begin, end, obstacles = between
    inside = obstacles.spheres.position.at[0, 0].set(jnp.asarray([0.0, 0.0, 0.6]))
    broken = program(
        begin.at[1, 0].set(jnp.nan),
        end,
        Obstacles(spheres=Sphere(inside, obstacles.spheres.radius.at[0, 0].set(0.3))),
    )
    assert not broken.found[:2].any()
    assert broken.clearance[0] < 0
    for a, b in zip(motion, broken, strict=True):
        np.testing.assert_array_equal(a[2:], b[2:])


@pytest.mark.slow
def test_a_pose_is_reached(panda: Robot, between: Any) -> None:
    begin, end, obstacles = between
    poses = jax.vmap(lambda q: dynamics.frame_pose(panda, q, "hand"))(end)

    @jax.jit
    @jax.vmap
    def to(q: Array, target: Any, obstacles: Obstacles) -> plan.Motion:
        return plan.reach(panda, q, target, obstacles, end_effector="hand", **QUICK)

    motion = to(begin, poses, obstacles)
    assert motion.found.sum() >= COUNT - 1
    there = jax.vmap(lambda q: dynamics.frame_pose(panda, q, "hand"))(motion.q[:, -1])
    np.testing.assert_allclose(there[0][motion.found], poses[0][motion.found], atol=1e-4)
    np.testing.assert_allclose(there[1][motion.found], poses[1][motion.found], atol=1e-3)
    out_of_reach = to(
        begin[:1], (poses[0][:1] + 3.0, poses[1][:1]), jax.tree.map(lambda x: x[:1], obstacles)
    )
    assert not out_of_reach.found.any()


def test_it_goes_straight_where_nothing_is_in_the_way(x64: None) -> None:
    """A robot without shapes: nothing is at any distance."""
    robot = dynamics.load_robot("double_pendulum")
    begin, end = np.array([0.2, -0.4]), np.array([1.0, 0.6])
    motion = jax.jit(lambda q, goal: plan.reach(robot, q, goal, seeds=4))(begin, end)
    assert motion.found
    assert motion.clearance == np.inf
    along = (motion.q - begin) @ (end - begin) / np.sum((end - begin) ** 2)
    assert jnp.abs(motion.q - begin - along[:, None] * (end - begin)).max() < 0.02
    assert (jnp.diff(along) > -1e-3).all()


def test_splines_are_scipys() -> None:
    places = np.linspace(0, 1, 33)
    for controls in (4, 5, 9):
        knots = np.r_[np.zeros(3), np.linspace(0, 1, controls - 2), np.ones(3)]
        expected = BSpline(knots, np.eye(controls), 3)
        value, slope = b_spline(places, controls)
        np.testing.assert_allclose(value, expected(places), atol=1e-12)
        np.testing.assert_allclose(slope, expected.derivative()(places), atol=1e-12)


def test_wrong_input_is_told(panda: Robot) -> None:
    q = np.asarray(panda.q_default)
    with pytest.raises(ArrayError, match="q of robot 'panda' has shape"):
        plan.reach(panda, q, q[:6])
    with pytest.raises(ConfigError, match="goal is a tuple"):
        plan.reach(panda, q, (np.zeros(3), np.eye(3)))
    with pytest.raises(UnknownNameError, match="unknown frame 'hnd'"):
        plan.reach(panda, q, (np.zeros(3), np.eye(3)), end_effector="hnd")
    with pytest.raises(ConfigError, match="controls=4"):
        plan.reach(panda, q, q, controls=4)
    floating = dynamics.load_robot("g1", floating_base=True)
    with pytest.raises(ConfigError, match="joints of quaternions"):
        plan.reach(floating, floating.q_default, floating.q_default)
