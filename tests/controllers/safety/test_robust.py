"""The robust filter: what it allows for of a robot that is not quite the model."""

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
from fraxenv.dynamics import Obstacles, Robot, Sphere, Terms
from fraxenv.errors import ConfigError
from fraxenv.making.make import load_env_config

DT = 1e-3
HAND = ("link5_1", "hand_1", "hand_5")
"""Some of the collision shapes."""
PLAIN = SafetyFilter((barriers.obstacles(HAND, rate=10.0),), end_effectors=("hand",))
ROBUST = dataclasses.replace(PLAIN, robust=Robustness(reach=1.0, widest=10.0))


def panda() -> Robot:
    return dynamics.load_robot("panda")


def states(size: int) -> tuple[Array, Array, Array, Array]:
    """Near the default configuration, towards a sphere beside the hand, and errors of torque."""
    rng, robot = np.random.default_rng(0), panda()
    q = robot.q_default + 0.2 * rng.normal(size=(size, robot.nv))
    v, error = 0.2 * rng.normal(size=(size, robot.nv)), 4.0 * rng.normal(size=(size, robot.nv))
    beside = 0.25 * np.sign(rng.normal(size=(size, 3))) * rng.uniform(0.5, 1.0, (size, 3))
    q, v, error, beside = (jnp.asarray(x, float) for x in (q, v, error, beside))
    place = jax.vmap(lambda q: dynamics.frame_pose(robot, q, "hand")[0])(q) + beside
    return q, v, error, place


@pytest.mark.slow
def test_it_holds_for_the_estimate_its_error_and_all_between() -> None:
    """The plain filter, told any of them, finds nothing to change in the robust one's torques."""
    robot = panda()

    def one(q: Array, v: Array, error: Array, place: Array) -> Any:
        terms = dynamics.compute_terms(robot, q, v)
        world = Obstacles(Sphere(place[None], jnp.array([0.1])))
        wide = -1e4 * jnp.ones(robot.nv), 1e4 * jnp.ones(robot.nv)
        push = terms.bias + 5.0 * jnp.sign(error)

        def lacking(seen: Terms, tau: Array) -> Array:
            qp = PLAIN.quadratic_program(robot, seen, tau, DT, world, wide)
            return jnp.max(qp.b / jnp.maximum(jnp.linalg.norm(qp.A, axis=-1), 1e-3))

        tau, report = ROBUST(robot, terms, push, DT, world, wide, None, error)
        plain, _ = PLAIN(robot, terms, push, DT, world, wide)

        def told(share: Array, tau: Array) -> Array:
            return lacking(dataclasses.replace(terms, bias=terms.bias - share * error), tau)

        each = jax.vmap(jax.vmap(told, (0, None)), (None, 0))
        missed, of_plain = each(jnp.linspace(-1.0, 1.0, 5), jnp.stack([tau, plain]))
        return missed, of_plain.max(), report["feasible"]

    missed, of_plain, feasible = map(np.asarray, jax.jit(jax.vmap(one))(*states(50)))
    assert feasible.all()
    assert missed.max() < 1e-2  # rad/s^2
    assert (of_plain > 1.0).sum() > 10


def test_bounds_come_to_what_they_say() -> None:
    """Of position limits the gradients are the axes, so that demands can be written down."""
    robot, rate = panda(), 20.0
    q, v = jnp.asarray(robot.q_default, float), jnp.zeros(robot.nv)
    terms = jax.jit(dynamics.compute_terms)(robot, q, v)
    kept = (barriers.joint_position(rate=rate), barriers.joint_velocity(rate=50.0))

    @jax.jit
    def b(robustness: Robustness | None, error: Array | None = None) -> Array:
        safety = SafetyFilter(kept, robust=robustness)
        return safety.quadratic_program(robot, terms, terms.bias, DT, error=error).b

    none, inverse = b(None), np.linalg.inv(np.asarray(terms.mass_matrix, np.float64))
    wide: dict[str, Any] = {"widest": 10.0, "widest_speed": 100.0}
    error = np.array([3.0, -2.0, 1.0, 0.5, 0.2, 0.0, -0.1])
    more = b(Robustness(reach=1.0, **wide), jnp.asarray(error, float)) - none
    np.testing.assert_allclose(more, np.tile(np.abs(inverse @ error), 4), rtol=1e-3, atol=1e-2)
    more = b(Robustness(torque=np.abs(error), **wide)) - none
    box = np.abs(inverse) @ np.abs(error)
    np.testing.assert_allclose(more, np.tile(box, 4), rtol=1e-3, atol=1e-2)
    more = b(Robustness(position_noise=0.01, velocity_noise=0.1, **wide)) - none
    noise = np.repeat([rate**2 * 0.01 + 2 * rate * 0.1, 50.0 * 0.1], 14)
    np.testing.assert_allclose(more, noise, rtol=1e-3, atol=1e-2)
    more = b(Robustness(widest=0.02, widest_speed=0.5), jnp.full(7, 1e3)) - none
    np.testing.assert_allclose(more, np.repeat([rate**2 * 0.02, 50.0 * 0.5], 14), rtol=1e-3)
    np.testing.assert_array_equal(b(Robustness()), none)


@pytest.mark.slow
def test_far_from_everything_it_changes_nothing_bit_for_bit() -> None:
    robot = panda()
    q, v, error, place = states(20)

    def one(q: Array, v: Array, error: Array, place: Array) -> Any:
        terms = dynamics.compute_terms(robot, q, 0.1 * v)
        tau = terms.bias + 0.1 * error
        world = Obstacles(Sphere(place[None] + 5.0, jnp.array([0.1])))
        return tau, ROBUST(robot, terms, tau, DT, world, None, None, error)[0]

    tau, safe = jax.jit(jax.vmap(one))(q, v, error, place)
    np.testing.assert_array_equal(safe, tau)


def test_a_robust_filter_comes_with_an_observer() -> None:
    _, params = fraxenv.make("PandaReachObstacles-v0", safety="robust")
    assert params.safety.robust is not None
    assert params.safety.nearest == fraxenv.make("PandaReachObstacles-v0")[1].safety.nearest
    assert params.observer.informs == "safety"
    _, params = fraxenv.make("PandaReach-v0", safety="robust", observer={"gain": 20.0})
    assert (float(params.observer.gain), params.observer.informs) == (20.0, "both")
    _, params = fraxenv.make("PandaReachObstacles-v0", safety_options={"robust": Robustness()})
    assert params.observer is not None
    assert float(params.observer.gain) == 100.0
    with pytest.raises(ConfigError, match=r"'cbf', 'robust', 'none'"):
        fraxenv.make("PandaReach-v0", safety="robus")
    with pytest.raises(ConfigError, match="widest"):
        Robustness(widest=-1.0)
    assert MomentumObserver().informs == "both"


@pytest.mark.slow
def test_a_robot_that_it_does_not_know_is_kept_off() -> None:
    """Everything randomised, actions towards the nearest sphere: the plain filter lets many in."""
    drawn = load_env_config("panda-reach-everything")["randomisation"]
    n, collisions = 128, {}
    for safety in ("cbf", "robust"):
        env, params = fraxenv.make("PandaReachObstacles-v0", safety=safety, randomisation=drawn)

        def step(state: Any, key: Array, env: Any = env, params: Any = params) -> Any:
            def towards(q: Array, spheres: Sphere, turn: Array) -> Array:
                way = spheres.position - dynamics.frame_pose(panda(), q, "hand")[0]
                way = way[jnp.argmin(jnp.linalg.norm(way, axis=-1) - spheres.radius)]
                return jnp.concatenate([way / jnp.max(jnp.abs(way)), turn])

            turns = jax.random.uniform(key, (n, 3), minval=-1.0)
            action = jax.vmap(towards)(state.q, state.world.obstacles.spheres, turns)
            keys = jax.random.split(key, n)
            _, state, *_, info = jax.vmap(env.step, (0, 0, 0, None))(keys, state, action, params)
            return state, info["clearance"]

        keys = jax.random.split(jax.random.key(0), n)
        _, state = jax.vmap(env.reset, (0, None))(keys, params)
        keys = jax.random.split(jax.random.key(1), 100)
        _, clearance = jax.jit(lambda s, k, step=step: jax.lax.scan(step, s, k))(state, keys)
        collisions[safety] = int(jnp.sum(clearance < 0))
    assert collisions["cbf"] > 100
    assert collisions["robust"] == 0
