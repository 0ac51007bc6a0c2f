"""Stack: what is drawn, what counts and what nearly would, and an expert that does it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experts import N, over_time, rollout
from objects import batched, changed, check_near_misses, left_alone, tilted, touching

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_rewards_rise_with_every_stage(stacked) -> None:
    """Near the cube, held, above its place, on it, let go of."""
    _, results = stacked
    names = "grasped", "success", "object_distance"
    rewards, held, done, distance = over_time(results, *names)
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


def test_near_misses_are_refused(stack) -> None:
    """A stack is spoilt in one respect at a time; what does not matter does not spoil it."""
    env, params = stack
    _, state = env.reset(jax.random.key(0), params)
    begun, base = (jnp.asarray(x) for x in (state.task_state.start, state.task_state.base))
    place = base[:3] + jnp.array([0.0, 0.0, 0.04])
    nowhere, still = (0.0, 0.0, 0.0), jnp.zeros(6)

    def at(shift=nowhere, angle=0.0, v=still, base_shift=nowhere, base_angle=0.0, on_base=True,
           touched=(), below=False):  # fmt: skip
        """The cube beside its place, m, and turned; the base likewise; or one for the other."""
        upper = tilted(begun.at[:3].set(place + jnp.asarray(shift)), angle)
        lower = tilted(base.at[:3].add(jnp.asarray(base_shift)), base_angle)
        upper, lower = (lower, upper) if below else (upper, lower)
        moved = changed(changed(state, "cube", upper, v), "base", lower, still)
        moved = touching(moved, "cube", "base", on_base)
        for pad in touched:
            moved = touching(moved, pad, "cube", True)
        return moved

    accepted = {
        "slowly": {"v": still.at[0].set(0.009).at[5].set(0.4)},
        "on another face": {"angle": np.pi / 2},
        "somewhere else": {"shift": (0.0, 0.2, 0.0), "base_shift": (0.0, 0.2, 0.0)},
        "the base upside down": {"base_angle": np.pi},
    }
    misses = {
        "off its place": ("shift", (0.021, 0.0, 0.0), (0.019, 0.0, 0.0)),
        "off the other way": ("shift", (-0.021, 0.0, 0.0), (-0.019, 0.0, 0.0)),
        "off to the left": ("shift", (0.0, 0.021, 0.0), (0.0, 0.019, 0.0)),
        "off to the right": ("shift", (0.0, -0.021, 0.0), (0.0, -0.019, 0.0)),
        "off along both axes": ("shift", (0.015, 0.015, 0.0), (0.014, 0.014, 0.0)),
        "too high": ("shift", (0.0, 0.0, 0.0051), (0.0, 0.0, 0.0049)),
        "too low": ("shift", (0.0, 0.0, -0.0051), (0.0, 0.0, -0.0049)),
        "off, somewhere else": (
            "shift", (0.021, 0.2, 0.0), (0.019, 0.2, 0.0), {"base_shift": (0.0, 0.2, 0.0)}
        ),
        "tilted": ("angle", 0.11, 0.09),
        "tilted the other way": ("angle", -0.11, -0.09),
        "tilted, on another face": ("angle", np.pi / 2 + 0.11, np.pi / 2 + 0.09),
        "on its edge": ("angle", np.pi / 4, 0.0),
        "sliding": ("v", still.at[1].set(0.011), still.at[1].set(0.009)),
        "falling": ("v", still.at[2].set(-0.011), still.at[2].set(-0.009)),
        "turning": ("v", still.at[5].set(0.51), still.at[5].set(0.49)),
        "rolling": ("v", still.at[3].set(0.51), still.at[3].set(0.49)),
        "not touching the base": ("on_base", False, True),
        "touched by a finger": ("touched", ["left_pad"], []),
        "touched by the other": ("touched", ["right_pad"], []),
        "in hand": ("touched", ["left_pad", "right_pad"], []),
        "beside the base": ("shift", (0.041, 0.0, -0.04), nowhere),
        "where it began": ("shift", begun[:3] - place, nowhere),
        "below the base": ("below", True, False),
        "the base gone": ("base_shift", (0.1, 0.0, 0.0), nowhere),
        "the base moved on": ("base_shift", (0.0, 0.021, 0.0), (0.0, 0.019, 0.0)),
    }  # fmt: skip
    check_near_misses(env, params, at, misses, accepted)


@pytest.mark.slow
def test_a_cube_in_hand_on_the_base_is_no_success(stacked) -> None:
    _, results = stacked
    held = 0
    for _, _, info in results:
        there = np.asarray(info["grasped"]) & (np.asarray(info["object_distance"]) < 0.01)
        held += there.sum()
        assert not (there & np.asarray(info["success"])).any()
    assert held > 100


@pytest.mark.slow
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
    states = batched(changed(changed(state, "base", base), "cube", q) for q, _ in cases.values())
    _, infos = left_alone(env, params, states, 50)
    found = dict(zip(cases, np.asarray(infos[-1]["success"]), strict=True))
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
