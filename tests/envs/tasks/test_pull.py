"""Pull: the sled, what is seen and counts, and plans that pull it."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import episode_of

import fraxenv
from fraxenv.controllers.planning.problem import at_knot
from fraxenv.controllers.planning.residuals import slopes, value
from fraxenv.dynamics import compute_terms, frame_pose, integrate, random_configuration
from fraxenv.envs import Environment, EnvParams, mpc_policy
from fraxenv.envs.observed import terms_of
from fraxenv.envs.predictive_gait import gait_problem, seen_with_sled

Env = tuple[Environment, EnvParams]
RESISTANCE = 100.0


@pytest.fixture(scope="module")
def env() -> Env:
    return fraxenv.make("B2Z1Pull-v0", scene_options={"resistance": RESISTANCE})


@pytest.fixture(scope="module")
def stepped(env: Env) -> Any:
    """Eight robots after twenty steps: four stand, four are shaken."""
    environment, params = env
    half = jnp.repeat(jnp.array([0.0, 1.0]), 4)[:, None]

    @jax.jit
    def run(keys: Any) -> Any:
        obs, state = jax.vmap(environment.reset_env, (0, None))(keys, params)

        def step(carry: Any, key: Any) -> Any:
            action = half * jax.random.uniform(key, (8, environment.num_actions), minval=-1.0)
            out = jax.vmap(environment.step_env, (0, 0, 0, None))(keys, carry, action, params)
            return out[1], (out[0], out[4])

        state, (obs, info) = jax.lax.scan(step, state, jax.random.split(jax.random.key(1), 20))
        return state, obs[-1], info

    return run(jax.random.split(jax.random.key(0), 8))


def sled_place(environment: Environment) -> Any:
    physics: Any = environment.physics
    body = physics.objects["sled"].bodies.start
    return np.asarray(physics.scene.system.topology.position[body])


def test_derivatives_of_what_a_plan_costs(env: Env, x64: None) -> None:
    """Those that residuals have of their own are the automatic ones."""
    environment, params = env
    scene = cast(Any, environment.physics).scene
    problem = gait_problem(scene, cast(Any, params.task), sole=0.03)
    robot, n = problem.robot, problem.robot.nv
    terms = {**problem.running, **problem.terminal}
    own = {
        k: at_knot(t, (jax.tree.map(lambda x: x[1], t.reference), t.weight) if t.each else None)
        for k, t in terms.items()
        if hasattr(t.function, "slopes")
    }
    assert {"position", "pulled", "upright", "height", "balance"} <= set(own)
    assert any(name.startswith("stand ") for name in own)

    def moved(z: Any, d: Any) -> Any:
        q = integrate(robot, z[0], d[:n], 1.0)
        at = compute_terms(robot, q, z[1] + d[n : 2 * n]), z[2] + d[2 * n :]
        return {k: value(t, robot, *at) for k, t in own.items()}

    def both(z: Any) -> Any:
        at = compute_terms(robot, z[0], z[1]), z[2]
        found = {k: jnp.concatenate(slopes(t, robot, *at), axis=1) for k, t in own.items()}
        return found, jax.jacfwd(partial(moved, z))(jnp.zeros(3 * n))

    v, tau = np.random.default_rng(0).normal(size=(2, n))
    quick = jax.jit(both, compiler_options={"xla_backend_optimization_level": 0})
    found, automatic = quick((random_configuration(robot, jax.random.key(0)), v, tau))
    for name, x in found.items():
        np.testing.assert_allclose(x, automatic[name], rtol=0, atol=1e-11, err_msg=name)


@pytest.mark.slow
def test_the_hand_holds_the_handle(env: Env, stepped: Any) -> None:
    """Which goes along the world's x axis, and resists with what it should."""
    environment, _ = env
    state, _, _ = stepped
    hand = jax.vmap(lambda q: frame_pose(environment.robot, q, "hand")[0])(state.q)
    pulled = state.world.objects["sled"].q[:, 0]
    handle = sled_place(environment) - pulled[:, None] * np.array([1.0, 0.0, 0.0])
    np.testing.assert_allclose(hand, handle, atol=0.01)


@pytest.mark.slow
def test_the_observation_tells_the_state(env: Env, stepped: Any) -> None:
    environment, params = env
    task: Any = params.task
    state, obs, _ = stepped
    seen = jax.jit(
        jax.vmap(lambda obs: seen_with_sled(environment, task, terms_of(environment, obs)))
    )
    q, v = seen(obs)
    sled = state.world.objects["sled"]
    np.testing.assert_allclose(q[:, 2], state.q[:, 2], atol=1e-5)
    np.testing.assert_allclose(q[:, :2], state.q[:, :2], atol=0.01)  # as the hand holds the handle
    np.testing.assert_allclose(q[:, 7:25], state.q[:, 7:], atol=1e-5)
    np.testing.assert_allclose(q[:, 25:], sled.q, atol=1e-6)
    np.testing.assert_allclose(v[:, 24:], sled.v, atol=1e-6)


def test_feet_that_slip_are_counted(stepped: Any) -> None:
    """Over the whole episode, the speeds at which they do."""
    state, _, info = stepped
    assert (jnp.diff(info["slipped"], axis=0) >= 0).all()
    np.testing.assert_allclose(info["slipped"][-1], state.task_state.slipped.max(axis=1))
    assert float(info["slipped"][-1, 4:].min()) > float(info["slipped"][-1, :4].max())


def test_nobody_who_stands_has_pulled(stepped: Any) -> None:
    _, _, info = stepped
    assert not info["success"][:, :4].any()
    assert (info["pull_error"][:, :4] > 0.2).all()


@pytest.mark.slow
def test_plans_pull() -> None:
    """Against 100 N, without a foot that slips by 5 mm."""
    options: Any = {"policy_hz": 100, "control_hz": 500, "max_steps_in_episode": 300}
    env, params = fraxenv.make("B2Z1Pull-v0", action="torque", **options)
    episode = episode_of(env, params, mpc_policy(env, params))
    for k in range(3):
        terminated, info = episode(jax.random.key(k))
        assert not terminated.any()
        assert float(info["pull_error"][-1]) < 0.02
        assert bool(info["success"][-1])
        assert float(info["slipped"][-1]) < 0.005
