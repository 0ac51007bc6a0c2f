"""A hand that tracks on a robot that trots: what is seen and counts, and plans that do it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import episode_of

import fraxenv
from fraxenv.dynamics import frame_pose
from fraxenv.envs import Environment, EnvParams, TrotTrackState, mpc_policy
from fraxenv.envs.observed import terms_of
from fraxenv.envs.predictive_gait import HORIZON, STEP, seen_reference, seen_state
from fraxenv.errors import UnknownNameError

Env = tuple[Environment, EnvParams]


@pytest.fixture(scope="module")
def env() -> Env:
    return fraxenv.make("B2Z1Track-v0")


@pytest.fixture(scope="module")
def stepped(env: Env) -> Any:
    """Eight robots, after ten random steps each: before the last step, and after it."""
    environment, params = env

    @jax.jit
    def run(keys: Any) -> Any:
        obs, state = jax.vmap(environment.reset_env, (0, None))(keys, params)

        def step(carry: Any, key: Any) -> Any:
            action = jax.random.uniform(key, (8, environment.num_actions), minval=-1.0)
            out = jax.vmap(environment.step_env, (0, 0, 0, None))(keys, carry, action, params)
            return out[1], (out[0], out[4])

        state, (obs, info) = jax.lax.scan(step, state, jax.random.split(jax.random.key(1), 10))
        return state, obs[-1], jax.tree.map(lambda x: x[-1], info)

    return run(jax.random.split(jax.random.key(0), 8))


@pytest.mark.slow
def test_the_hand_is_seen_where_it_is(env: Env, stepped: Any) -> None:
    """And the reference where it is now, and after the lookahead, from the place to go to."""
    environment, params = env
    state, obs, info = stepped
    task: Any = params.task

    @jax.jit
    @jax.vmap
    def seen(obs: Any) -> Any:
        terms = terms_of(environment, obs)
        q, _ = seen_state(environment, task, terms)
        return q, seen_reference(environment, task, terms, q)

    q, places = seen(obs)
    np.testing.assert_allclose(q[:, 7:], state.q[:, 7:], atol=1e-5)
    task_state: TrotTrackState = state.task_state
    origin = jnp.pad(task_state.goal, ((0, 0), (0, 1)))
    np.testing.assert_allclose(places[:, 0] + origin, task_state.position, atol=1e-5)
    after = round(float(task.lookahead) / STEP)
    assert after < HORIZON
    then = jax.vmap(task.reference.at)(task_state.path, task_state.begun + task.lookahead)[0][:, 0]
    np.testing.assert_allclose(places[:, after] + origin, then, atol=1e-5)
    hand = jax.vmap(lambda q: frame_pose(environment.robot, q, "hand")[0])(state.q)
    off = np.linalg.norm(hand - task_state.position, axis=1)
    np.testing.assert_allclose(info["hand_error"], off, atol=1e-6)


@pytest.mark.slow
def test_it_is_no_success_with_the_hand_elsewhere(env: Env, stepped: Any) -> None:
    _, params = env
    _, _, info = stepped
    assert (info["hand_error"] > float(params.task.hand_tolerance)).any()
    assert not (info["success"] & (info["hand_error"] > float(params.task.hand_tolerance))).any()


def test_a_hand_that_is_not_there_is_told() -> None:
    with pytest.raises(UnknownNameError, match="paw"):
        fraxenv.make("B2Z1Track-v0", task_options={"hand": "paw"})


@pytest.mark.slow
@pytest.mark.parametrize(("action", "hz"), [("torque", 100), (None, 50)])
def test_plans_keep_the_hand_on_it(action: str | None, hz: int) -> None:
    """With torques, and with joints on springs."""
    options: Any = {"policy_hz": hz, "control_hz": 500, "max_steps_in_episode": 3 * hz}
    env, params = fraxenv.make("B2Z1Track-v0", action=action, **options)
    episode = episode_of(env, params, mpc_policy(env, params))
    for k in range(3):
        terminated, info = episode(jax.random.key(k))
        assert not terminated.any()
        begun = len(terminated) // 6  # half a second
        assert float(jnp.sqrt(jnp.mean(info["hand_error"][begun:] ** 2))) < 0.01
        assert float(info["foot_error"][-1]) < 0.01
        assert float(info["position_error"][-1]) < 0.05
