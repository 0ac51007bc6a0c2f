"""PickPose: what is drawn, what counts and what nearly would, and an expert that does it."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from experts import N, over_time, rollout
from objects import changed, check_near_misses
from scipy.spatial.transform import Rotation

import fraxenv
from fraxenv import dynamics
from fraxenv.envs import PickPose
from fraxenv.errors import ConfigError


@pytest.fixture(scope="module")
def pick_pose():
    return fraxenv.make("PandaPickPose-v0")


def rotations(quaternions) -> Rotation:
    """Of quaternions wxyz (..., 4)."""
    return Rotation.from_quat(np.roll(np.asarray(quaternions, float), -1, axis=-1))


@pytest.mark.slow
def test_the_expert_of_a_thousand_episodes(pick_pose) -> None:
    first, results = rollout(*pick_pose, n=1000, seed=7)
    state, _, last = results[-1]
    assert np.mean(last["success"]) >= 0.99
    unsolved = sum(int((~info["contact_converged"]).sum()) for _, _, info in results)
    assert unsolved <= 1e-4 * 1000 * len(results)
    # As SciPy sees it.
    goal = Rotation.from_matrix(np.asarray(first.task_state.rotation[:, 0], float))
    box = rotations(state.world.objects["box"].q[:, 3:])
    turn = (goal * box.inv()).magnitude()
    np.testing.assert_allclose(turn, last["object_turn"], atol=1e-5)
    assert np.median(turn) < 0.03


@pytest.mark.slow
def test_rewards_rise_with_every_stage(pick_pose) -> None:
    """Near the box, held, at its goal as it should be."""
    _, results = rollout(*pick_pose)
    rewards, held, done = over_time(results, "grasped", "success")
    for i in range(N):
        grasp, success = held[:, i].argmax(), done[:, i].argmax()
        assert 0 < grasp < success
        stages = rewards[[0, grasp - 3, grasp + 3, success, -1], i]
        assert (np.diff(stages) > 0).all(), (i, stages)
    assert rewards.max() < 1.0


def test_goals_are_turned_from_how_the_box_stands() -> None:
    robot, task = dynamics.load_robot("panda_gripper"), PickPose()
    keys = jax.random.split(jax.random.key(0), 4096)
    _, drawn = jax.jit(jax.vmap(lambda key: task.reset(key, robot)))(keys)
    goal, start = np.asarray(drawn.position)[:, 0], np.asarray(drawn.start)
    assert np.linalg.norm(goal - start[:, :3], axis=1).min() > 0.0499
    np.testing.assert_allclose(start[:, 2], 0.03, atol=1e-6)
    wanted = Rotation.from_matrix(np.asarray(drawn.rotation[:, 0], float))
    turn = (wanted * rotations(start[:, 3:]).inv()).as_rotvec()
    assert np.abs(turn).max() < 0.5 + 1e-5
    assert (turn.max(0) > 0.49).all()
    assert (turn.min(0) < -0.49).all()
    # Of the box as it stands, no corner of a goal is in the table.
    corners = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1) * [[0.02], [0.02], [0.03]]
    height = (wanted.as_matrix() @ corners)[:, 2] + goal[:, 2:]
    assert height.min() > 0.0


def test_near_misses_are_refused(pick_pose) -> None:
    """The box at its goal, off in one respect at a time."""
    env, params = pick_pose
    _, state = env.reset(jax.random.key(0), params)
    goal = np.asarray(state.task_state.position[0], float)
    wanted = Rotation.from_matrix(np.asarray(state.task_state.rotation[0], float))
    nowhere = (0.0, 0.0, 0.0)

    def at(shift=nowhere, turn=nowhere, v=nowhere, sign=1.0):
        """Beside its goal, m, and turned about its own axes by a rotation vector, rad."""
        rotation = wanted * Rotation.from_rotvec(turn)
        q = np.array([*(goal + shift), *(sign * np.roll(rotation.as_quat(), 1))], np.float32)
        return changed(state, "box", q, np.array([*v, 0.0, 0.0, 0.0], np.float32))

    axes = np.array([*np.eye(3), *-np.eye(3), [3**-0.5] * 3])
    shifts = {f"off along {x}": ("shift", 0.0251 * x, 0.0249 * x) for x in axes}
    turns = {f"turned about {x}": ("turn", 0.201 * x, 0.199 * x) for x in axes}
    speeds = {f"in flight along {x}": ("v", 0.0501 * x, 0.0499 * x) for x in axes}
    x, *_, z = np.eye(3)
    both = {
        "too far, and turned": ("shift", 0.0251 * x, 0.0249 * x, {"turn": 0.199 * x}),
        "turned too far, and off": ("turn", 0.201 * x, 0.199 * x, {"shift": 0.0249 * x}),
        "falling, and off": ("v", -0.0501 * z, -0.0499 * z, {"shift": 0.0249 * x}),
    }
    # About the box's own z, by quarter turns: after each it looks alike.
    alike = {f"{n} quarter turns": ("turn", n * np.pi / 2 * z, nowhere) for n in (1, 2, 3)}
    others = {
        "upside down": ("turn", np.pi * x, nowhere),
        "where it began": ("shift", np.asarray(state.task_state.start[:3]) - goal, nowhere),
    }
    accepted = {"as its quaternion's negative": {"sign": -1.0}}
    misses = {**shifts, **turns, **speeds, **both, **alike, **others}
    found = check_near_misses(env, params, at, misses, accepted)
    for name in turns:
        assert found[name]["object_turn"] == pytest.approx(0.201, abs=1e-4)
    assert found["2 quarter turns"]["object_turn"] == pytest.approx(np.pi, abs=2e-3)


def test_goal_environments_have_poses(pick_pose) -> None:
    env, params = fraxenv.make("PandaPickPose-v0", goal_env=True)
    obs, _ = env.reset(jax.random.key(0), params)
    assert obs["achieved_goal"].shape == obs["desired_goal"].shape == (9,)
    plain = pick_pose[0].observation_space(pick_pose[1]).shape[0]
    assert obs["observation"].shape == (plain - 9,)
    desired = np.asarray(obs["desired_goal"], float)
    columns = desired[3:].reshape(2, 3)
    for angle, reward in ((0.19, 0.0), (0.21, -1.0)):
        turned = Rotation.from_rotvec([0.0, angle, 0.0]).apply(columns)
        achieved = np.concatenate([desired[:3], turned.ravel()])
        assert env.compute_reward(achieved, desired) == reward


def test_orientations_count() -> None:
    with pytest.raises(ConfigError, match=r"PickPose: orientation=False, .* expected True"):
        PickPose(orientation=False)
    task = PickPose()
    names = [measure.name for measure in task.reported]
    assert names == ["object_distance", "object_turn", "object_speed"]
    _, drawn = task.reset(jax.random.key(0), dynamics.load_robot("panda_gripper"))
    assert [shape.kind for shape in task.markers(drawn)].count("sphere") == 1
    assert len(task.markers(drawn)) > 1
