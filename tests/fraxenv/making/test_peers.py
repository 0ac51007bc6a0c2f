"""`like=`: other suites' numbers, against the table of them that was read in their sources."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experts import rollout
from objects import batched, changed, measure
from scipy.spatial.transform import Rotation
from support import with_slow

import fraxenv
from fraxenv.cli.subject import EnvArguments, recipe
from fraxenv.envs import Pick, Stack
from fraxenv.errors import ConfigError, UnknownNameError
from fraxenv.making.peers import list_peers, with_peer
from fraxenv.recording.exporting import gymnasium_spec
from fraxenv.training.config import PPOConfig, load_config, save_config

TASKS = {
    "push": "Push",
    "pick": "Pick",
    "pick_pose": "PickPose",
    "stack": "Stack",
    "insert": "Insert",
}

# Half extents (mm), mass (kg), friction with the table and with the pads, tolerance (mm), width of
# the objects' box (mm), steps, and actions per second.
TABLE: dict[tuple[str, str], tuple[Any, ...]] = {
    ("maniskill", "push"): ((20, 20, 20), 0.064, 0.3, 1.15, 100, (200, 200), 50, 20),
    ("maniskill", "pick"): ((20, 20, 20), 0.064, 0.3, 1.15, 25, (200, 200), 50, 20),
    ("maniskill", "stack"): ((20, 20, 20), 0.064, 0.3, 1.15, 33.3, (200, 400), 50, 20),
    ("maniskill", "insert"): ((105, 20, 20), 0.336, 0.3, 1.15, 15, (200, 300), 100, 20),
    ("panda-gym", "push"): ((20, 20, 20), 1.0, 0.25, 0.5, 50, (300, 300), 50, 25),
    ("panda-gym", "pick"): ((20, 20, 20), 1.0, 0.25, 0.5, 50, (300, 300), 50, 25),
    ("fetch", "push"): ((25, 25, 25), 2.0, 1.0, 1.0, 50, (300, 300), 50, 25),
    ("fetch", "pick"): ((25, 25, 25), 2.0, 1.0, 1.0, 50, (300, 300), 50, 25),
    ("robosuite", "pick"): ((21, 21, 21), 0.074, 1.0, 2.0, 25, (60, 60), 1000, 20),
    ("robosuite", "stack"): ((20, 20, 20), 0.064, 1.0, 2.0, 50, (162, 160), 1000, 20),
    ("playground", "pick"): ((20, 20, 30), 0.096, 1.0, 1.0, 25, (400, 400), 150, 50),
    ("playground", "pick_pose"): ((20, 20, 30), 0.096, 1.0, 1.0, 25, (400, 400), 150, 50),
    ("isaaclab", "pick"): ((24, 24, 24), 0.11, 0.5, 0.5, 20, (200, 500), 250, 50),
    ("metaworld", "push"): ((20, 20, 20), 0.75, 1.0, 2.0, 50, (100, 200), 500, 80),
    ("metaworld", "pick"): ((20, 20, 20), 0.75, 1.0, 2.0, 70, (100, 200), 500, 80),
}

BUILT = [
    ("maniskill", "push"),
    ("maniskill", "pick"),
    ("maniskill", "insert"),
    ("panda-gym", "push"),
    ("panda-gym", "pick"),
    ("fetch", "pick"),
    ("robosuite", "pick"),
    ("robosuite", "stack"),
]
"""What other tests make, too; the others are slow."""


@functools.cache
def made(peer: str, task: str) -> Any:
    return fraxenv.make(f"Panda{TASKS[task]}-v0", like=peer)


def drawn(peer: str, task: str, n: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """The task; where n objects begin (n, 3), and their goals (n, 3), m."""
    env, params = made(peer, task)
    keys = jax.random.split(jax.random.key(0), n)
    _, state = jax.jit(jax.vmap(lambda key: params.task.reset(key, env.robot)))(keys)
    return params.task, np.asarray(state.start)[:, :3], np.asarray(state.position)[:, 0]


def test_all_are_in_the_table() -> None:
    assert {(peer, task) for peer, tasks in list_peers().items() for task in tasks} == set(TABLE)


@pytest.mark.parametrize("case", with_slow(TABLE, *(set(TABLE) - set(BUILT))))
def test_numbers_are_those_of_the_table(case: tuple[str, str]) -> None:
    half, mass, friction, of_pads, tolerance, box, steps, hz = TABLE[case]
    env, params = made(*case)
    scene, own = env.physics.scene, params.task
    geoms = scene.constraints.geoms
    thing = scene.geom(own.object)
    np.testing.assert_allclose(1e3 * geoms.size[thing], half, atol=1e-6)
    assert float(np.asarray(own.half_height)) == pytest.approx(geoms.size[thing][2])
    body = scene.members[own.object].bodies
    assert np.asarray(scene.system.mass)[body] == pytest.approx(mass)

    def between(one: str, other: str) -> float:
        return float(max(geoms.friction[scene.geom(name)][0] for name in (one, other)))

    assert between(own.object, "table") == pytest.approx(friction)
    assert [between(own.object, pad) for pad in own.pads] == pytest.approx([of_pads] * 2)
    assert 1e3 * float(own.position_tolerance) == pytest.approx(tolerance)
    np.testing.assert_allclose(1e3 * np.subtract(own.object_high, own.object_low), box, atol=1e-3)
    assert (int(params.max_steps_in_episode), env.policy_hz) == (steps, hz)


@pytest.mark.parametrize(
    ("peer", "task", "percent"),
    [
        ("panda-gym", "push", 7.5),
        ("panda-gym", "pick", 3.2),
        ("maniskill", "pick", 0.26),
        ("maniskill", "push", 0.0),
    ],
)
def test_some_begin_solved_as_they_do_there(peer: str, task: str, percent: float) -> None:
    """As a Monte Carlo of their own distributions says."""
    own, start, goal = drawn(peer, task, 100_000)
    near = np.linalg.norm(goal - start, axis=1) < float(own.position_tolerance)
    assert 100 * near.mean() == pytest.approx(percent, abs=0.15)


@pytest.mark.parametrize(("peer", "share"), [("panda-gym", 0.3), ("fetch", 0.5)])
def test_goals_on_the_table(peer: str, share: float) -> None:
    own, start, goal = drawn(peer, "pick", 20_000)
    np.testing.assert_allclose(start[:, 2], own.half_height, atol=1e-6)
    assert np.mean(np.isclose(goal[:, 2], start[:, 2])) == pytest.approx(share, abs=0.02)
    assert goal[:, 2].min() >= float(own.half_height) - 1e-6


def test_goals_from_the_object() -> None:
    _, start, goal = drawn("maniskill", "push", 1000)
    np.testing.assert_allclose(goal - start, np.tile([0.2, 0.0, 0.0], (1000, 1)), atol=1e-6)


# --- rules of success -----------------------------------------------------------------------------


def at_goal(
    env: Any, params: Any, shift: Any = (0.0, 0.0, 0.0), q: Any = None, v: Any = 0.0
) -> Any:
    """A state at reset with its cube at the goal, or near it, and joints that move."""
    _, state = env.reset(jax.random.key(0), params)
    pose = state.task_state.start.at[:3].set(state.task_state.position[0] + jnp.asarray(shift))
    state = changed(state, params.task.object, pose if q is None else q)
    return state.replace(v=state.v.at[2].set(v))


def success(env: Any, params: Any, states: list[Any]) -> list[bool]:
    found: list[bool] = measure(env, params, batched(states))["success"].tolist()
    return found


def test_the_arm_rests_and_success_ends_the_episode() -> None:
    """As of PickCube: the cube may still move, the arm may not."""
    env, params = made("maniskill", "pick")
    still, slow, fast = (at_goal(env, params, v=v) for v in (0.0, 0.19, 0.21))
    fingers = still.replace(v=still.v.at[-1].set(0.3))
    cube = changed(still, "cube", v=jnp.array([1.0, 0, 0, 0, 0, 0]))
    far = at_goal(env, params, (0.026, 0.0, 0.0))
    states = [still, slow, fingers, cube, fast, far]
    expected = [True, True, True, True, False, False]
    assert success(env, params, states) == expected
    ends = [bool(params.task.terminated(*env._inputs(s, params))) for s in (still, far)]
    assert ends == [True, False]


@pytest.mark.slow
def test_a_peg_is_in_as_there() -> None:
    """By `has_peg_inserted` of mani_skill 3.0.1: deep enough is far enough."""
    env, params = made("maniskill", "insert")
    _, begun = env.reset(jax.random.key(0), params)
    task, goal = params.task, begun.task_state
    assert (float(task.half_length), float(task.aside_tolerance)) == pytest.approx((0.105, 0.023))
    # The hole is in the middle of a block that is as high as the peg is long.
    assert goal.position[0, 2] == pytest.approx(0.105)
    rng = np.random.default_rng(0)
    low, high = (-0.04, -0.03, -0.03), (0.04, 0.03, 0.03)
    heads, turns = rng.uniform(low, high, (400, 3)), rng.normal(0.0, 0.3, (400, 3))
    hole = Rotation.from_matrix(np.asarray(goal.rotation[0], float))
    states, inside = [], []
    for head, turn in zip(heads, turns, strict=True):
        peg = hole * Rotation.from_rotvec(turn)
        tip = np.asarray(goal.position[0], float) + hole.apply(head)
        centre = tip - peg.apply([0.105, 0.0, 0.0])
        q = np.array([*centre, *np.roll(peg.as_quat(), 1)], np.float32)
        states.append(changed(begun, "peg", q, np.array([0.5, 0, 0, 0, 0, 0], np.float32)))
        inside.append(bool(head[0] >= -0.015 and (np.abs(head[1:]) <= 0.023).all()))
    assert success(env, params, states) == inside
    assert 50 < sum(inside) < 350
    ends = [task.terminated(*env._inputs(s, params)) for s in states[:20]]
    assert list(map(bool, ends)) == inside[:20]


def test_a_lift_is_a_height() -> None:
    env, params = made("robosuite", "pick")
    start = at_goal(env, params).task_state.start
    states = [
        at_goal(env, params, q=start.at[2].set(z).at[0].add(x))
        for z, x in ((0.021, 0.0), (0.039, 0.0), (0.041, 0.0), (0.041, 0.3))
    ]
    assert success(env, params, states) == [False, False, True, True]
    assert not params.task.terminated(*env._inputs(states[-1], params))


def test_cubes_of_two_sizes() -> None:
    """The smaller one's place is 45 mm above the larger one's centre, and they do not overlap."""
    env, params = made("robosuite", "stack")
    keys = jax.random.split(jax.random.key(0), 4096)
    _, state = jax.jit(jax.vmap(lambda key: params.task.reset(key, env.robot)))(keys)
    cube, base = np.asarray(state.start), np.asarray(state.base)
    np.testing.assert_allclose((cube[:, 2].mean(), base[:, 2].mean()), (0.02, 0.025), atol=1e-6)
    assert np.linalg.norm(cube[:, :2] - base[:, :2], axis=1).min() > 0.045 * math.sqrt(2)
    desired = jax.vmap(params.task.desired_goal)(state)
    np.testing.assert_allclose(desired[:, 2] - desired[:, 5], 0.045, atol=1e-6)
    sizes = env.physics.scene.constraints.geoms.size[env.physics.scene.geom("base")]
    np.testing.assert_allclose(sizes, 0.025)


@pytest.mark.slow
@pytest.mark.parametrize(("peer", "task"), TABLE)
def test_they_step(peer: str, task: str) -> None:
    """By the expert, until it touches something."""
    env, params = made(peer, task)
    first, results = rollout(env, params, n=16, steps=40)
    state, reward, last = results[-1]
    assert np.isfinite(reward).all()
    assert not last["diverged"].any()
    assert (np.abs(state.q - first.q).max(axis=1) > 0.1).all()


# --- how they are asked for -----------------------------------------------------------------------


def test_arguments_that_are_given_win() -> None:
    options: Any = {"policy_hz": 50, "task_options": {"position_tolerance": 0.01}}
    env, params = fraxenv.make("PandaPick-v0", like="fetch", action="torque", **options)
    assert env.policy_hz == 50
    assert float(params.task.position_tolerance) == pytest.approx(0.01)
    assert float(params.task.half_height) == pytest.approx(0.025)
    composed = fraxenv.make(robot="ur10", task="pick", like="fetch")
    assert int(composed[1].max_steps_in_episode) == 50
    assert with_peer("PandaPick-v0", {"like": None, "policy_hz": 20}) == {"policy_hz": 20}


def test_refusals() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'maniskill'"):
        made("maniskil", "pick")
    with pytest.raises(ConfigError, match=r"like='fetch' with the task 'stack'.*: push, pick\. .*"):
        made("fetch", "stack")
    with pytest.raises(ConfigError, match="'pick_pose' have playground"):
        made("metaworld", "pick_pose")
    with pytest.raises(ConfigError, match="Leave like out"):
        fraxenv.make("PandaReach-v0", like="fetch")
    with pytest.raises(ConfigError, match="like='fetch' with the task"):
        fraxenv.make(robot="panda", task=Pick(), like="fetch")
    with pytest.raises(UnknownNameError, match="'half_extents'"):
        fraxenv.make("PandaPick-v0", scene_options={"half_extent": (0.02, 0.02, 0.02)})
    for wrong in ((0.02, 0.02), 0.02, (0.02, 0.02, -0.02)):
        with pytest.raises(ConfigError, match="half_extents of PandaPick-v0"):
            fraxenv.make("PandaPick-v0", scene_options={"half_extents": wrong})
    with pytest.raises(ConfigError, match="scene_options of PandaReach-v0, whose task brings no"):
        fraxenv.make("PandaReach-v0", scene_options={"mass": 1.0})
    with pytest.raises(ConfigError, match="table_share=2, expected a number from 0 to 1"):
        Pick(table_share=2)
    with pytest.raises(ConfigError, match="the cube's place is on the base"):
        Stack(goal_from_object=True)


def test_gymnasium_has_the_horizon() -> None:
    one: Any = gym.make("fraxenv/PandaPick-v0", like="maniskill").unwrapped
    assert one.environment.default_params.max_steps_in_episode == 50
    many: Any = gym.make_vec("fraxenv/PandaPick-v0", num_envs=2, like="maniskill")
    assert many.environment.default_params.max_steps_in_episode == 50
    with pytest.warns(UserWarning, match="max_episode_steps=1000"):
        gym.make("fraxenv/PandaPick-v0", like="robosuite")
    with pytest.raises(ConfigError, match="max_episode_steps=1000"):
        gym.make_vec("fraxenv/PandaPick-v0", num_envs=2, like="robosuite")


def test_what_is_saved_says_like(tmp_path: Path) -> None:
    asked = recipe(EnvArguments("PandaPick-v0", set=("like=maniskill",)))
    assert asked == {"id": "PandaPick-v0", "like": "maniskill"}
    assert gymnasium_spec(asked).max_episode_steps == 50
    config = PPOConfig(env="PandaPick-v0", overrides={"like": "maniskill"})
    save_config(tmp_path / "c.yaml", config)
    assert load_config(tmp_path / "c.yaml") == config
