"""Demonstrations put to use: their states as beginnings, their motions in other action spaces."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

import fraxenv
from fraxenv import Recording, convert, record, recorded_starts, replay
from fraxenv.errors import ConfigError
from fraxenv.recording.scripted import scripted_policy

KEY = jax.random.key(5)
REACH = {"id": "PandaReach-v0", "max_steps_in_episode": 60}


@pytest.fixture(scope="module")
def reaching() -> Recording:
    env, params = fraxenv.make(**REACH)
    policy = scripted_policy(env, params)
    return record(env, params, policy, KEY, episodes=16, num_envs=8, recipe=REACH)


@pytest.mark.slow
def test_the_same_motion_in_another_action_space(reaching: Recording) -> None:
    """Absolute poses of the same controller: what was meant is meant again."""
    recipe = REACH | {"action": "ee_pose"}
    found = convert(reaching, *fraxenv.make(**recipe), recipe=recipe, infos=["success"])
    assert found.actions.shape[2] == 9
    assert found.num_successful == reaching.num_successful
    assert found.num_successful[0] >= 15
    n = fraxenv.make(**REACH)[0].observation_layout["joint_position"]
    there, then = (r.observations[..., :n] for r in (found, reaching))
    assert np.abs(there - then).max() < 2e-3
    assert np.abs(then - then[0]).max() > 0.1
    assert replay(found).identical


def test_episodes_that_are_others_are_not_converted(reaching: Recording) -> None:
    recipe = REACH | {"task_options": {"goal_high": [0.5, 0.3, 0.6]}}
    with pytest.raises(ConfigError, match=r"task_state.* is not as recorded when episodes begin"):
        convert(reaching, *fraxenv.make(**recipe), recipe=recipe)
    with pytest.raises(ConfigError, match="for JointTorque"):
        convert(reaching, *fraxenv.make("PandaReach-v0", action="torque"))


def test_beginnings_are_states_that_were_recorded(reaching: Recording) -> None:
    """Each observation of the pool is a recorded one, unsolved, and of the state beside it."""
    env, params = fraxenv.make(**REACH)
    obs, states = recorded_starts(reaching, KEY, size=32, share=0.75)
    assert obs.shape == (32, reaching.observations.shape[2])
    assert not np.any(states.time)
    solved = np.concatenate([np.zeros((1, 8), bool), reaching.infos["success"]])
    among = {row.tobytes(): solved[t, n] for (t, n), row in _rows(reaching.observations)}
    kinds = [among.get(np.asarray(row).tobytes()) for row in obs]
    assert kinds == [False] * 24 + [None] * 8
    observe = jax.jit(jax.vmap(lambda s: env.observe(KEY, s, None, params)))
    np.testing.assert_allclose(observe(states), obs, atol=1e-5)
    # Resets draw from it.
    pooled = params.replace(reset_pool=(obs, states))
    drawn, _ = jax.vmap(env.reset, (0, None))(jax.random.split(KEY, 64), pooled)
    assert {x.tobytes() for x in np.asarray(drawn)} <= {x.tobytes() for x in np.asarray(obs)}


def _rows(observations: np.ndarray) -> Any:
    return (((t, n), observations[t, n]) for t, n in np.ndindex(observations.shape[:2]))


def test_there_has_to_be_a_beginning(reaching: Recording) -> None:
    with pytest.raises(ConfigError, match="share=0, expected a number above 0"):
        recorded_starts(reaching, KEY, share=0)
    with pytest.raises(ConfigError, match="the recording tells no success"):
        recorded_starts(dataclasses.replace(reaching, infos={}), KEY)
    failed = {**reaching.infos, "success": np.zeros_like(reaching.infos["success"])}
    only = {**reaching.metadata, "successful": True}
    with pytest.raises(ConfigError, match="no whole episode to begin in"):
        recorded_starts(dataclasses.replace(reaching, infos=failed, metadata=only), KEY)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"action": "ee_pose"},
        {"action": "joint_position"},
        {"action": "joint_velocity"},
        {"action": "joint_delta", "action_options": {"scale": 0.3}},
        {"gripper": "binary"},
    ],
    ids=str,
)
def test_a_cube_is_picked_by_other_actions(options: dict[str, Any]) -> None:
    env, params = fraxenv.make("PandaPick-v0")
    policy = scripted_policy(env, params)
    picked = record(env, params, policy, KEY, episodes=64, num_envs=64, infos=["success"])
    recipe = {"id": "PandaPick-v0"} | options
    found = convert(picked, *fraxenv.make(**recipe), recipe=recipe)
    assert picked.num_successful == (64, 64)
    assert found.num_successful[0] >= 63
