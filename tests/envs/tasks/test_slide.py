"""Slide: what is drawn, what counts and what nearly would, and an expert that does it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experts import N, rollout
from objects import changed, measure

import fraxenv
from fraxenv import dynamics
from fraxenv.envs import Slide
from fraxenv.errors import ConfigError


@pytest.fixture(scope="module")
def slide():
    return fraxenv.make("PandaSlide-v0")


@pytest.mark.slow
def test_the_expert_of_a_thousand_episodes(slide) -> None:
    _, results = rollout(*slide, n=1000, seed=7)
    state, _, last = results[-1]
    assert np.mean(last["success"]) >= 0.99
    # It slid, and did not tip over.
    height = np.array([np.asarray(s.world.objects["puck"].q)[:, 2] for s, _, _ in results])
    np.testing.assert_allclose(height, 0.025, atol=1e-3)
    # None is touched at the end.
    assert not np.asarray(state.world.contacts.between("puck").active).any()


@pytest.mark.slow
def test_rewards_rise_with_every_stage(slide) -> None:
    """Near the puck, on its way to the goal, there."""
    _, results = rollout(*slide)
    rewards = np.array([np.asarray(reward) for _, reward, _ in results])
    done, speed = (
        np.array([np.asarray(info[name]) for _, _, info in results])
        for name in ("success", "object_speed")
    )
    for i in range(N):
        struck, success = (speed[:, i] > 0.1).argmax(), done[:, i].argmax()
        assert 0 < struck + 15 < success
        stages = rewards[[0, struck - 1, struck + 15, success], i]
        assert (np.diff(stages) > 0).all(), (i, stages)
    assert rewards.max() < 1.1


@pytest.mark.slow
def test_a_puck_stops_where_friction_says(slide) -> None:
    """Of every speed and direction v^2 / (2 mu g) away; the reward sees it coming."""
    env, params = slide
    _, state = env.reset(jax.random.key(0), params)
    start = jnp.asarray([0.6, 0.0, 0.025, 1.0, 0.0, 0.0, 0.0])
    angle = np.linspace(-1.0, 1.0, 8)
    speed = np.linspace(0.2, 0.6, 8)
    velocity = speed[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    way = speed[:, None] / (2 * 0.04 * 9.81) * velocity
    states = []
    for v, end in zip(velocity, way, strict=True):
        puck = changed(state, "puck", start, jnp.zeros(6).at[:2].set(jnp.asarray(v)))
        goal = state.task_state.position.at[0, :2].set(start[:2] + jnp.asarray(end))
        states.append(
            puck.replace(task_state=params.task.with_goal(puck.task_state, 0, goal[0], jnp.eye(3)))
        )
    states = jax.tree.map(lambda *x: jnp.stack(x), *states)
    keys = jax.random.split(jax.random.key(1), len(speed))
    step = jax.jit(jax.vmap(lambda k, s, a: env.step_env(k, s, a, params)[1::3]))
    for _ in range(90):
        states, info = step(keys, states, jnp.zeros((len(speed), 6)))
        assert np.asarray(info["reward_terms"]["aim"]).min() > 0.9
    q = np.asarray(states.world.objects["puck"].q)
    np.testing.assert_allclose(q[:, :2] - start[:2], way, atol=0.005)
    assert np.asarray(info["success"]).all()


def test_goals_are_further_than_the_pucks() -> None:
    robot, task = dynamics.load_robot("panda_gripper"), Slide()
    keys = jax.random.split(jax.random.key(0), 4096)
    _, drawn = jax.jit(jax.vmap(lambda key: task.reset(key, robot)))(keys)
    goal, start = np.asarray(drawn.position)[:, 0], np.asarray(drawn.start)
    assert (goal[:, 0] - start[:, 0]).min() > 0.299
    np.testing.assert_allclose(goal[:, 2], 0.025, atol=1e-6)
    np.testing.assert_allclose(start[:, 2], 0.025, atol=1e-6)
    assert np.ptp(goal[:, 1]) > 0.29


def test_near_misses_are_refused(slide) -> None:
    env, params = slide
    _, state = env.reset(jax.random.key(0), params)
    goal, start = state.task_state.position[0], state.task_state.start

    def at(way=(0.0, 0.0, 0.0), v=(0.0, 0.0, 0.0)):
        q = start.at[:3].set(goal + jnp.asarray(way))
        return changed(state, "puck", q, jnp.zeros(6).at[:3].set(jnp.asarray(v)))

    s = 0.0499 / np.sqrt(2)
    accepted = {
        "there": at(),
        "short of it": at((-0.0499, 0.0, 0.0)),
        "too far, but near enough": at((0.0499, 0.0, 0.0)),
        "beside it": at((0.0, 0.0499, 0.0)),
        "aslant of it": at((s, -s, 0.0)),
        "nearly at rest": at(v=(0.019, 0.0, 0.0)),
    }
    refused = {
        "too short": at((-0.0501, 0.0, 0.0)),
        "too far": at((0.0501, 0.0, 0.0)),
        "beside": at((0.0, -0.0501, 0.0)),
        "a little off both ways": at((0.036, 0.036, 0.0)),
        "passing by": at(v=(0.3, 0.0, 0.0)),
        "still sliding": at(v=(0.021, 0.0, 0.0)),
        "still sliding aslant": at(v=(0.015, 0.015, 0.0)),
        "coming back": at(v=(-0.021, 0.0, 0.0)),
        "falling": at(v=(0.0, 0.0, -0.1)),
        "above": at((0.0, 0.0, 0.06)),
        "where it began": changed(state, "puck", start, jnp.zeros(6)),
    }
    states = [*accepted.values(), *refused.values()]
    states = jax.tree.map(lambda *x: jnp.stack(x), *states)
    found = measure(env, params, states)["success"]
    names = [*accepted, *refused]
    assert {n for n, ok in zip(names, found, strict=True) if ok} == set(accepted)


def test_the_hand_is_faster_where_nothing_else_is_asked_for() -> None:
    def reach(**options) -> float:
        env, params = fraxenv.make("PandaSlide-v0", **options)
        return params.action.axes(env.robot)[0].high

    assert reach() == pytest.approx(0.15)
    assert reach(action_options={"position_scale": 0.05}) == pytest.approx(0.05)
    assert reach(action="ee_delta_position+impedance") == pytest.approx(0.15)
    assert reach(action="joint_delta") != pytest.approx(0.15)
    assert fraxenv.make("PandaPush-v0")[1].action.position_scale == pytest.approx(0.05)


def test_refusals() -> None:
    # Out of reach is what goals are here, but a box is one.
    fraxenv.make("PandaSlide-v0", task_options={"goal_high": (2.0, 0.15, 0.025)})
    with pytest.raises(ConfigError, match=r"expected finite corners of a box"):
        fraxenv.make("PandaSlide-v0", task_options={"goal_high": (0.7, 0.15, 0.025)})
    with pytest.raises(ConfigError, match=r"corner .* of object_low..object_high is out of reach"):
        fraxenv.make("PandaSlide-v0", task_options={"object_high": (1.5, 0.08)})
