"""Every registered environment: finite, repeatable, compiled once, within its spaces."""

from __future__ import annotations

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support import with_slow

import fraxenv
from fraxenv.envs import Environment, EnvParams
from fraxenv.making.registry import env_spec

QUICK = ("Iiwa14ReachPose-v0", "UR10Track-v0", "MobileReachObstacles-v0", "G1Reach-v0")
"""Run with every change; the others with `--slow`. Between them every robot and every task."""

STEPPED = QUICK[:1]
"""Run for many steps with every change."""

IDS = fraxenv.list_envs()
SIZE = 256

Env = tuple[Environment, EnvParams]


@pytest.fixture(scope="module", params=with_slow(IDS, *(set(IDS) - set(STEPPED))))
def env(request: pytest.FixtureRequest) -> Env:
    return fraxenv.make(request.param)


def random_steps(env: Env, steps: int) -> Any:
    """A compiled function of a key: the last state, and what was seen of all steps."""
    environment, params = env
    observations, actions = environment.observation_space(params), environment.action_space(params)

    def step(carry: tuple[Array, Any], key: Array) -> tuple[tuple[Array, Any], dict[str, Array]]:
        key_action, key_step = jax.random.split(key)
        action = jax.vmap(actions.sample)(jax.random.split(key_action, SIZE))
        keys = jax.random.split(key_step, SIZE)
        obs, state, reward, terminated, truncated, info = jax.vmap(
            environment.step, (0, 0, 0, None)
        )(keys, carry[1], action, params)
        finite = [jnp.isfinite(x).all() for x in (obs, reward, state.q, state.v, action)]
        limit = jnp.asarray(environment.robot.effort_limits) * (1 + 1e-6)
        return (obs, state), {
            "finite": jnp.stack(finite).all(),
            "contained": jax.vmap(observations.contains)(obs).all(),
            "final_contained": jax.vmap(observations.contains)(info["final_observation"]).all(),
            "terminated": terminated.sum(),
            "truncated": truncated.sum(),
            "torques": (jnp.abs(info["controller"]["torque"]) <= limit).all(),
            "barrier": info["safety"]["min_barrier"].min(),
        }

    @jax.jit
    @chex.assert_max_traces(n=1)
    def run(key: Array) -> Any:
        key_reset, key_steps = jax.random.split(key)
        keys = jax.random.split(key_reset, SIZE)
        first = jax.vmap(environment.reset, (0, None))(keys, params)
        return jax.lax.scan(step, first, jax.random.split(key_steps, steps))

    return run


def check_random_steps(env: Env, steps: int) -> None:
    run = random_steps(env, steps)
    (obs, state), seen = run(jax.random.key(0))
    for name in ("finite", "contained", "final_contained", "torques"):
        assert bool(seen[name].all()), name
    assert int(seen["terminated"].sum()) == 0
    assert int(seen["truncated"].sum()) == SIZE * (steps // 150)
    if env[1].safety is not None:
        assert float(seen["barrier"].min()) > -2e-3
    again, _ = run(jax.random.key(0))
    chex.assert_trees_all_equal(again, (obs, state))
    (other, _), _ = run(jax.random.key(1))
    assert not np.array_equal(other, obs)


def test_random_steps(env: Env) -> None:
    """160 steps of 256 environments: a whole episode and the first steps of the next."""
    check_random_steps(env, 160)


@pytest.mark.slow
@pytest.mark.parametrize("id", fraxenv.list_envs())
def test_ten_thousand_random_steps(id: str) -> None:
    check_random_steps(fraxenv.make(id), 10_000)


@pytest.mark.parametrize("id", with_slow(IDS, *(set(IDS) - set(QUICK))))
def test_descriptions_and_names(id: str) -> None:
    spec = env_spec(id)
    assert spec.id == id
    assert 20 < len(spec.description) < 100
    assert "\n" not in spec.description


def test_there_are_many() -> None:
    ids = fraxenv.list_envs()
    assert len(ids) == len(set(ids)) == 49
    for known in ("PandaReach-v0", "PandaReachPose-v0", "PandaTrack-v0", "PandaReachObstacles-v0"):
        assert known in ids
    for arm in ("Panda", "UR10", "Iiwa14"):
        with_objects = "Push", "Pick", "PickPose", "Stack", "Wipe", "Drawer", "Door"
        assert {f"{arm}{task}-v0" for task in with_objects} < set(ids)
    for arm in ("Panda", "Iiwa14"):
        assert {f"{arm}Insert-v0", f"{arm}Slide-v0"} < set(ids)
    assert {"PandaUpright-v0", "A1Trot-v0", "B2Z1Track-v0", "B2Z1Pull-v0"} < set(ids)
    assert {"MobileReach-v0", "G1Reach-v0", "UR10Reach-v0", "Iiwa14Reach-v0"} < set(ids)


@pytest.mark.slow
@pytest.mark.parametrize("id", fraxenv.list_envs())
def test_vmap_equals_loop(id: str) -> None:
    """What a batch gives, one environment gives, whatever computes it."""
    environment, params = fraxenv.make(id)
    keys = jax.random.split(jax.random.key(0), 8)
    _, state = jax.vmap(environment.reset, (0, None))(keys, params)
    actions = jax.random.uniform(jax.random.key(1), (8, environment.num_actions), minval=-1.0)
    together = jax.vmap(environment.step, (0, 0, 0, None))(keys, state, actions, params)
    for i in range(8):
        one = jax.tree.map(lambda x, i=i: x[i], (keys, state, actions))
        alone = environment.step(*one, params)
        for a, b in ((alone[0], together[0][i]), (alone[1].q, together[1].q[i])):
            np.testing.assert_allclose(a, b, atol=2e-4, rtol=2e-4)
