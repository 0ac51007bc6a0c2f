"""Drawer and Door: what is drawn, what counts and what nearly would, and an expert that opens."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experts import N, over_time, rollout
from objects import changed, check_near_misses
from support import with_slow

import fraxenv
from fraxenv import dynamics
from fraxenv.envs import Door, Drawer, door, drawer, with_hand_across
from fraxenv.errors import ConfigError
from fraxenv.rendering import env_camera

IDS = ("PandaDrawer-v0", "PandaDoor-v0")
FURNITURE = {"drawer": (drawer(), Drawer()), "door": (door(), Door())}


@pytest.fixture(scope="module", params=with_slow(IDS, IDS[1]))
def opened(request: pytest.FixtureRequest):
    env, params = fraxenv.make(request.param)
    return env, params, *rollout(env, params)


@pytest.mark.slow
def test_the_expert_opens_and_holds_still(opened) -> None:
    _, params, first, results = opened
    state, _, last = results[-1]
    task = params.task
    assert last["success"].all()
    assert not last["diverged"].any()
    assert all(bool(info["contact_converged"].all()) for _, _, info in results)
    assert not np.asarray(results[0][2]["success"]).any()
    # It grips the bar, of 20 mm, from both sides, and touches nothing else.
    assert last["grasped"].all()
    assert np.mean([np.asarray(info["success"]) for _, _, info in results[-10:]]) > 0.99
    np.testing.assert_allclose(last["contacts"]["normal_force"][:, :2].sum(axis=1), 10.0, atol=0.3)
    assert not np.asarray(last["contacts"]["normal_force"])[:, 2:].any()
    assert np.asarray(last["slip_speed"]).max() < 0.01
    # The cabinet stays where it was put.
    before, after = (np.asarray(s.world.objects[task.object].q) for s in (first, state))
    assert np.abs(after - before)[:, :4].max() < 2e-4
    assert after[:, 4].min() > task.opening


@pytest.mark.slow
def test_rewards_rise_with_every_stage(opened) -> None:
    """Far from the handle, at it, half open, open, still."""
    _, params, _, results = opened
    rewards, held, done, opening = over_time(results, "grasped", "success", "opened")
    part = opening / params.task.opening
    for i in range(N):
        grasp, half, success = held[:, i].argmax(), (part[:, i] > 0.5).argmax(), done[:, i].argmax()
        assert 0 < grasp < half < success
        stages = rewards[[0, grasp - 3, grasp + 3, half, success], i]
        assert (np.diff(stages) > 0).all(), (i, stages)
    assert rewards.max() < 0.9


@pytest.mark.slow
@pytest.mark.parametrize("id", IDS)
def test_the_expert_of_a_thousand_episodes(id: str) -> None:
    _, results = rollout(*fraxenv.make(id), n=1000, seed=7)
    assert np.mean(results[-1][2]["success"]) >= 0.99


@pytest.mark.parametrize("id", with_slow(IDS, IDS[1]))
def test_near_misses_are_refused(id: str) -> None:
    """An open one is spoilt in one respect at a time; what does not matter does not spoil it."""
    env, params = fraxenv.make(id)
    task, name = params.task, params.task.object
    goal, slow = float(task.opening), float(task.speed_tolerance)
    state = env.reset(jax.random.key(0), params)[1]
    begin = jnp.asarray(state.task_state.start)
    wide, nearly, just = goal + 1e-3, goal - 1e-4, goal + 1e-5

    def at(opening=wide, speed=0.0, mount=(0.0, 0.0, 0.0, 0.0)):
        """Open, m or rad, of a cabinet elsewhere: height, x, y, m, and turn, rad."""
        moved = begin.at[4].set(opening).at[:4].add(jnp.asarray(mount))
        return changed(state, name, moved, jnp.zeros(5).at[4].set(speed))

    elsewhere = {"mount": (0.05, 0.1, -0.1, 0.5)}
    accepted = {"further": {"opening": 1.1 * goal}, "elsewhere": elsewhere}
    fast, bearable = 1.02 * slow, 0.98 * slow
    misses = {
        "nearly open": ("opening", nearly, just),
        "nearly open, opening": ("opening", nearly, just, {"speed": bearable}),
        "nearly open, closing": ("opening", nearly, just, {"speed": -bearable}),
        "nearly open, elsewhere": ("opening", nearly, just, elsewhere),
        "open by 19 of 20 parts": ("opening", 0.95 * goal, wide),
        "half open": ("opening", 0.5 * goal, wide),
        "closed again": ("opening", 0.0, wide),
        "closed again, elsewhere": ("opening", 0.0, wide, elsewhere),
        "ajar": ("opening", float(task.start_opening), wide),
        "pushed in": ("opening", -goal, wide),
        "as it was": ("opening", begin[4], wide),
        "opening fast": ("speed", fast, bearable),
        "swinging back fast": ("speed", -fast, -bearable),
        "just open, and fast": ("speed", fast, bearable, {"opening": just}),
        "just open, and closing fast": ("speed", -fast, -bearable, {"opening": just}),
        "thrown open": ("speed", 20.0 * slow, bearable, {"opening": 1.1 * goal}),
        "thrown shut": ("speed", -20.0 * slow, -bearable, {"opening": 1.1 * goal}),
        "opening fast, elsewhere": ("speed", fast, bearable, elsewhere),
        "the cabinet pulled in its place": (
            "opening", 0.0, wide, {"mount": (0.0, -goal, 0.0, 0.0)}
        ),
        "the cabinet pushed aside": ("opening", 0.0, wide, {"mount": (0.0, 0.0, goal, 0.0)}),
        "the cabinet lifted": ("opening", 0.0, wide, {"mount": (goal, 0.0, 0.0, 0.0)}),
        "the cabinet turned": ("opening", 0.0, wide, {"mount": (0.0, 0.0, 0.0, goal)}),
        "the cabinet turned the other way": (
            "opening", 0.0, wide, {"mount": (0.0, 0.0, 0.0, -goal)}
        ),
    }  # fmt: skip
    found = check_near_misses(env, params, at, misses, accepted)
    assert found["swinging back fast"]["opening_speed"] == pytest.approx(fast)
    assert found["half open"]["opened"] == pytest.approx(0.5 * goal)


@pytest.mark.parametrize("name", FURNITURE)
def test_handles_are_where_the_task_says(name: str) -> None:
    """Its closed form beside the kinematics of the scene's model; closed, it is at its place."""
    thing, task = FURNITURE[name]
    bar = next(g for g in thing.geoms if g.name == "handle")
    rng = np.random.default_rng(0)
    q = np.column_stack(
        [rng.uniform(-1, 1, (50, 3)), rng.uniform(-np.pi, np.pi, 50), rng.uniform(0, 0.35, 50)]
    )
    q[0, 4] = 0.0

    def both(q):
        position, rotation = dynamics.frame_pose(thing.model, q, name)
        return (
            position + rotation @ jnp.asarray(bar.position),
            -rotation[:2, 0],
            task.handle_pose(q),
        )

    position, facing, (told, faces) = jax.jit(jax.vmap(both))(jnp.asarray(q))
    np.testing.assert_allclose(told, position, atol=1e-6)
    np.testing.assert_allclose(faces, facing, atol=1e-6)
    np.testing.assert_allclose(told[0], q[0, [1, 2, 0]], atol=1e-6)
    # The joint opens towards where the handle faces.
    further = jax.vmap(lambda q: task.handle_pose(q.at[4].add(1e-3))[0])(jnp.asarray(q))
    assert (np.sum((further - told)[:, :2] * faces, axis=1) > 0).all()


@pytest.mark.parametrize("name", FURNITURE)
def test_furniture_stands_in_its_box_and_is_hardly_open(name: str) -> None:
    robot, (_, task) = dynamics.load_robot("panda_gripper"), FURNITURE[name]
    keys = jax.random.split(jax.random.key(0), 4096)
    _, drawn = jax.jit(jax.vmap(lambda key: task.reset(key, robot)))(keys)
    z, x, y, turn, ajar = np.asarray(drawn.start).T
    for values, low, high in (
        *zip((x, y, z), task.object_low, task.object_high, strict=True),
        (turn, -task.object_turn, task.object_turn),
        (ajar, 0.0, task.start_opening),
    ):
        assert low - 1e-6 <= values.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < values.max() <= high + 1e-6
    assert np.abs(np.corrcoef([x, y, z, turn, ajar]) - np.eye(5)).max() < 0.06


def test_hands_start_across_where_their_wrist_has_room() -> None:
    robot = dynamics.load_robot("panda_gripper")
    turned = with_hand_across(robot)
    (changed_at,) = np.flatnonzero(np.asarray(turned.q_default) != np.asarray(robot.q_default))
    assert robot.topology.joints[changed_at].name == "panda_joint7"
    rotations = [dynamics.frame_pose(r, r.q_default, "hand")[1] for r in (robot, turned)]
    np.testing.assert_allclose(rotations[0][:, 2], rotations[1][:, 2], atol=1e-6)
    assert abs(rotations[0][:, 1] @ rotations[1][:, 1]) < 1e-6
    with pytest.raises(ConfigError, match="robot 'panda' has no fingers"):
        with_hand_across(dynamics.load_robot("panda"))


def test_the_camera_is_before_the_front() -> None:
    env, params = fraxenv.make("PandaDrawer-v0")
    handle, facing = params.task.handle_pose(jnp.array([0.25, 0.65, 0.0, 0.0, 0.0]))
    assert np.dot(np.subtract(env_camera(env).eye, handle)[:2], facing) > 0.5


def test_goal_environments_want_it_open_so_far_or_further() -> None:
    env, params = fraxenv.make("PandaDrawer-v0", goal_env=True)
    spaces = env.observation_space(params).spaces
    assert spaces["achieved_goal"].shape == spaces["desired_goal"].shape == (1,)
    assert spaces["observation"].shape == (sum(env.observation_layout.values()) - 1,)
    state = jax.jit(env._begin)(jax.random.key(0), params)[1]
    achieved = params.task.achieved_goal(*env._inputs(state, params))
    np.testing.assert_allclose(achieved[0], state.task_state.start[4])
    desired = params.task.desired_goal(state.task_state)
    for shift, reward in ((0.001, 0.0), (0.1, 0.0), (-0.001, -1.0), (-0.3, -1.0)):
        assert env.compute_reward(desired + shift, desired) == reward
    distance = params.task.goal_distance(desired - jnp.array([[0.0], [0.3], [-1.0]]), desired)
    np.testing.assert_allclose(distance, [1.0, 2.0, 0.0], atol=1e-6)


def test_refusals() -> None:
    with pytest.raises(ConfigError, match=r"start_opening=0.3, opening=0.3 m, expected"):
        fraxenv.make("PandaDrawer-v0", task_options={"start_opening": 0.3})
    with pytest.raises(ConfigError, match=r"object_low..object_high is out of reach of 'hand'"):
        fraxenv.make("PandaDoor-v0", task_options={"object_high": (1.5, 0.1, 0.3)})
    with pytest.raises(ConfigError, match=r"Door: end_effector=.* expected one hand"):
        Door(end_effector=("left_hand", "right_hand"))
