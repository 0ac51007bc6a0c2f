"""Stack: what is drawn, what counts and what nearly would, and an expert that does it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experts import N, rollout
from objects import changed, measure, tilted, touching

import fraxenv
from fraxenv import dynamics
from fraxenv.envs import Stack
from fraxenv.errors import ConfigError


@pytest.fixture(scope="module")
def stack():
    return fraxenv.make("PandaStack-v0")


@pytest.fixture(scope="module")
def stacked(stack):
    return rollout(*stack)


def test_the_expert_stacks_and_lets_go(stacked) -> None:
    _, results = stacked
    state, _, last = results[-1]
    assert last["success"].all()
    assert not last["grasped"].any()
    unsolved = sum(int((~info["contact_converged"]).sum()) for _, _, info in results)
    assert unsolved <= 0.001 * N * len(results)
    # Held, and not passed by: success of the last ten steps.
    assert np.mean([np.asarray(info["success"]) for _, _, info in results[-10:]]) > 0.99
    cube, base = (np.asarray(state.world.objects[name].q) for name in ("cube", "base"))
    np.testing.assert_allclose(cube[:, 2] - base[:, 2], 0.04, atol=5e-4)
    assert np.linalg.norm(cube[:, :2] - base[:, :2], axis=1).max() < 0.01
    # 64 g on the base.
    pairs = state.world.contacts.between("cube", "base")
    np.testing.assert_allclose(pairs.normal_force[:, 0], 0.064 * 9.81, rtol=0.02)


@pytest.mark.slow
def test_the_expert_of_a_thousand_episodes(stack) -> None:
    _, results = rollout(*stack, n=1000, seed=7)
    assert np.mean(results[-1][2]["success"]) >= 0.99


def test_rewards_rise_with_every_stage(stacked) -> None:
    """Near the cube, held, above its place, on it, let go of."""
    _, results = stacked
    rewards = np.array([np.asarray(reward) for _, reward, _ in results])
    held, done = (
        np.array([np.asarray(info[name]) for _, _, info in results])
        for name in ("grasped", "success")
    )
    distance = np.array([np.asarray(info["object_distance"]) for _, _, info in results])
    on_base = np.array([np.asarray(info["reward_terms"]["release"]) > 0 for _, _, info in results])
    for i in range(N):
        grasp, lands, success = held[:, i].argmax(), on_base[:, i].argmax(), done[:, i].argmax()
        fetched, over = grasp + 3, lands - 3
        assert 0 < grasp < over < lands < success
        stages = rewards[[0, grasp - 3, fetched, over, lands, success], i]
        assert (np.diff(stages) > 0).all(), (i, stages)
        assert distance[over, i] < distance[fetched, i]
    assert rewards.max() < 1.0


def test_cubes_are_apart_and_in_their_boxes() -> None:
    robot, task = dynamics.load_robot("panda_gripper"), Stack()
    keys = jax.random.split(jax.random.key(0), 4096)
    _, drawn = jax.jit(jax.vmap(lambda key: task.reset(key, robot)))(keys)
    cube, base = np.asarray(drawn.start), np.asarray(drawn.base)
    # No two squares of 40 mm overlap whose centres are their diagonal apart.
    assert np.linalg.norm(cube[:, :2] - base[:, :2], axis=1).min() > 0.04 * np.sqrt(2)
    for q in (cube, base):
        np.testing.assert_allclose(q[:, 2], 0.02, atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(q[:, 3:], axis=1), 1.0, atol=1e-6)
        assert len(np.unique(q[:, 6])) > 4000
        assert (np.abs(q[:, :2] - [0.5, 0.0]) <= np.array([0.1, 0.15]) + 1e-6).all()
    assert abs(np.corrcoef(cube[:, 6], base[:, 6])[0, 1]) < 0.1


# --- what counts ----------------------------------------------------------------------------------


def test_near_misses_are_refused(stack, stacked) -> None:
    """A stack is spoilt in one respect at a time; what does not matter does not spoil it."""
    _, results = stacked
    state = jax.tree.map(lambda x: x[0], results[-1][0])
    base = jnp.asarray(state.world.objects["base"].q)
    on_top = (
        jnp.asarray(state.world.objects["cube"].q).at[:3].set(base[:3] + jnp.array([0, 0, 0.04]))
    )
    still = jnp.zeros(6)

    def cube(shift=(0.0, 0.0, 0.0), angle=0.0, v=still):
        q = tilted(on_top, angle)
        return changed(state, "cube", q.at[:3].add(jnp.asarray(shift)), v)

    away = changed(cube(shift=(0.0, 0.2, 0.0)), "base", base.at[1].add(0.2))
    accepted = {
        "on top": cube(),
        "near the tolerance": cube(shift=(0.019, 0.0, 0.0)),
        "slowly": cube(v=still.at[0].set(0.009).at[5].set(0.4)),
        "slightly tilted": cube(angle=0.09),
        "on another face": cube(angle=np.pi / 2),
        "the base elsewhere": away,
        "the base upside down": changed(cube(), "base", tilted(base, np.pi)),
    }
    refused = {
        "off its place": cube(shift=(0.021, 0.0, 0.0)),
        "off its place along both axes": cube(shift=(0.015, 0.015, 0.0)),
        "too high": cube(shift=(0.0, 0.0, 0.006)),
        "too low": cube(shift=(0.0, 0.0, -0.006)),
        "tilted": cube(angle=0.12),
        "on its edge": cube(angle=np.pi / 4),
        "sliding": cube(v=still.at[1].set(0.011)),
        "falling": cube(v=still.at[2].set(-0.011)),
        "turning": cube(v=still.at[5].set(0.6)),
        "rolling": cube(v=still.at[3].set(0.6)),
        "not touching the base": touching(cube(), "cube", "base", False),
        "touched by a finger": touching(cube(), "left_pad", "cube", True),
        "touched by the other": touching(cube(), "cube", "right_pad", True),
        "beside the base": cube(shift=(0.041, 0.0, -0.04)),
        "on the table": changed(state, "cube", state.task_state.start, still),
        "below the base": changed(
            changed(state, "cube", base, still), "base", base.at[2].add(0.04)
        ),
        "the base gone": changed(cube(), "base", base.at[0].add(0.1)),
    }
    states = [*accepted.values(), *refused.values()]
    states = jax.tree.map(lambda *x: jnp.stack(x), *states)
    found = measure(*stack, states)["success"]
    names = [*accepted, *refused]
    assert {n for n, ok in zip(names, found, strict=True) if ok} == set(accepted)


def test_a_cube_in_hand_on_the_base_is_no_success(stacked) -> None:
    _, results = stacked
    held = 0
    for _, _, info in results:
        there = np.asarray(info["grasped"]) & (np.asarray(info["object_distance"]) < 0.01)
        held += there.sum()
        assert not (there & np.asarray(info["success"])).any()
    assert held > 100


def test_only_what_stays_up_counts(stack) -> None:
    """Let go of in several poses, and left alone for a second."""
    env, params = stack
    base = jnp.array([0.45, 0.1, 0.02, 1.0, 0.0, 0.0, 0.0])
    at = base.at[2].add(0.0405)
    cases = {
        "on top": (at, True),
        "turned": (at.at[3:].set(jnp.array([0.924, 0.0, 0.0, 0.383])), True),
        "15 mm off": (at.at[0].add(0.015), True),
        "dropped from 10 mm": (at.at[2].add(0.01), True),
        "over the edge": (at.at[0].add(0.023), False),
        "over a corner": (at.at[:2].add(0.022), False),
        "beside, on the table": (base.at[1].add(-0.041), False),
        "leaning on the base": (tilted(base.at[1].add(-0.045), -0.4).at[2].add(0.006), False),
    }
    _, state = env.reset(jax.random.key(0), params)
    states = [changed(changed(state, "base", base), "cube", q) for q, _ in cases.values()]
    states = jax.tree.map(lambda *x: jnp.stack(x), *states)
    keys = jax.random.split(jax.random.key(1), len(cases))
    step = jax.jit(jax.vmap(lambda k, s, a: env.step_env(k, s, a, params)[1::3]))
    for _ in range(50):
        states, info = step(keys, states, jnp.zeros((len(cases), 7)))
    found = dict(zip(cases, np.asarray(info["success"]), strict=True))
    assert found == {name: ok for name, (_, ok) in cases.items()}


def test_goal_environments_want_both_cubes_in_place(stack) -> None:
    env, params = fraxenv.make("PandaStack-v0", goal_env=True)
    obs, state = env.reset(jax.random.key(0), params)
    assert obs["achieved_goal"].shape == obs["desired_goal"].shape == (6,)
    plain = stack[0].observation_space(stack[1]).shape[0]
    assert obs["observation"].shape == (plain - 3,)
    np.testing.assert_allclose(obs["achieved_goal"][3:], state.task_state.base[:3], atol=1e-6)
    desired = obs["desired_goal"]
    np.testing.assert_allclose(desired[:3] - desired[3:], [0.0, 0.0, 0.04], atol=1e-6)
    for part in (0, 4):
        for shift, reward in ((0.019, 0.0), (0.021, -1.0)):
            assert env.compute_reward(desired.at[part].add(shift), desired) == reward


def test_refusals() -> None:
    with pytest.raises(ConfigError, match=r"heights from 0.06 to 0.1 m, expected 0.06 m"):
        fraxenv.make("PandaStack-v0", task_options={"goal_high": (0.6, 0.15, 0.1)})
    with pytest.raises(ConfigError, match=r"least_distance=0.06 m, expected at least 0.0693 m"):
        fraxenv.make("PandaStack-v0", task_options={"least_distance": 0.06})
    task = Stack()
    assert task.goals(None) == task.markers(None) == []
    with pytest.raises(ConfigError, match="Stack has no goal that can be moved"):
        task.with_goal(None, 0, (0.5, 0.0, 0.1), np.eye(3))
