"""Slide: what is drawn, what counts and what nearly would, and an expert that does it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experts import N, over_time, rollout
from objects import batched, changed, check_near_misses, left_alone

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
    rewards, done, speed = over_time(results, "success", "object_speed")
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
    after, infos = left_alone(env, params, batched(states), 90)
    assert min(np.asarray(info["reward_terms"]["aim"]).min() for info in infos) > 0.9
    q = np.asarray(after.world.objects["puck"].q)
    np.testing.assert_allclose(q[:, :2] - start[:2], way, atol=0.005)
    assert np.asarray(infos[-1]["success"]).all()


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
    """Pucks just beyond the tolerance, any way; and at the goal, but not at rest."""
    env, params = slide
    _, state = env.reset(jax.random.key(0), params)
    goal, start = state.task_state.position[0], state.task_state.start
    nowhere = (0.0, 0.0, 0.0)

    def at(way=nowhere, v=nowhere):
        q = start.at[:3].set(goal + jnp.asarray(way))
        return changed(state, "puck", q, jnp.zeros(6).at[:3].set(jnp.asarray(v)))

    angles = np.pi / 4 * np.arange(8)
    ways = np.column_stack([np.cos(angles), np.sin(angles), np.zeros(8)])
    ahead, up = ways[0], np.array([0.0, 0.0, 1.0])
    misses = {
        **{f"off along {way}": ("way", 0.0501 * way, 0.0499 * way) for way in ways},
        **{f"sliding along {way}": ("v", 0.0201 * way, 0.0199 * way) for way in ways},
        "passing by": ("v", 0.3 * ahead, nowhere),
        "falling": ("v", -0.1 * up, nowhere),
        "above": ("way", 0.0501 * up, 0.0499 * up),
        "nearly there, and slow": ("way", -0.0501 * ahead, -0.0499 * ahead, {"v": 0.0199 * ahead}),
        "at the border, and fast": ("v", 0.0201 * ahead, 0.0199 * ahead, {"way": -0.0499 * ahead}),
        "where it began": ("way", start[:3] - goal, nowhere),
    }
    check_near_misses(env, params, at, misses, {})


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
