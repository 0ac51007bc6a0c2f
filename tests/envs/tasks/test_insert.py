"""Insert: what is drawn, what counts and what nearly would, and an expert that puts pegs in."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experts import N, over_time, rollout
from objects import batched, changed, check_near_misses, left_alone
from scipy.spatial.transform import Rotation

import fraxenv
from fraxenv import dynamics
from fraxenv.envs import Insert, socket
from fraxenv.envs.tasks.tabletop import SOCKET, WALLS
from fraxenv.errors import ConfigError


@pytest.fixture(scope="module")
def insert():
    return fraxenv.make("PandaInsert-v0")


@pytest.fixture(scope="module")
def inserted(insert):
    return rollout(*insert)


@pytest.mark.slow
def test_the_expert_puts_it_in_and_holds_it(inserted) -> None:
    first, results = inserted
    state, _, last = results[-1]
    assert last["success"].all()
    assert last["grasped"].all()
    assert not np.asarray(results[0][2]["success"]).any()
    assert not any(np.asarray(info["diverged"]).any() for _, _, info in results)
    # Held, and not passed by: success of the last ten steps.
    assert np.mean([np.asarray(info["success"]) for _, _, info in results[-10:]]) > 0.99
    # The block stays where it was put, whatever pushes it.
    before, after = (np.asarray(s.world.objects[SOCKET].q) for s in (first, state))
    assert np.abs(after - before).max() < 2e-4
    # No part of the peg is in a wall: its head is within the hole.
    task_state = state.task_state
    thing = state.world.objects["peg"]
    rotation = Rotation.from_quat(np.roll(np.asarray(thing.q, float)[:, 3:], -1, axis=1))
    head = np.asarray(thing.q)[:, :3] + rotation.apply([0.1, 0.0, 0.0])
    local = np.einsum(
        "nji,nj->ni", task_state.rotation[:, 0], head - np.asarray(task_state.position)[:, 0]
    )
    assert (np.abs(local[:, 1:]) < 0.0035).all()
    assert (np.abs(local[:, 0] + 0.005) < 0.005).all()


@pytest.mark.slow
@pytest.mark.parametrize(("clearance", "least"), [(0.003, 0.99), (0.0005, 0.9)])
def test_the_expert_of_a_thousand_episodes(clearance: float, least: float) -> None:
    made = fraxenv.make("PandaInsert-v0", scene_options={"clearance": clearance})
    _, results = rollout(*made, n=1000, seed=7)
    assert np.mean(results[-1][2]["success"]) >= least


@pytest.mark.slow
def test_rewards_rise_with_every_stage(inserted) -> None:
    """Near the peg, held, in line with the hole, half of it in, all."""
    _, results = inserted
    names = "grasped", "success", "depth_lacking", "head_aside"
    rewards, held, done, lacking, aside = over_time(results, *names)
    for i in range(N):
        grasp, success = held[:, i].argmax(), done[:, i].argmax()
        line = grasp + (aside[grasp:, i] < 0.003).argmax()
        half = line + (lacking[line:, i] < 0.05).argmax()
        assert 0 < grasp < line < half < success
        stages = rewards[[0, grasp - 3, grasp + 3, half, success], i]
        assert (np.diff(stages) > 0).all(), (i, stages)
    assert rewards.max() < 1.0


def test_pegs_and_blocks_are_in_their_boxes() -> None:
    robot, task = dynamics.load_robot("panda_gripper"), Insert()
    keys = jax.random.split(jax.random.key(0), 4096)
    q, drawn = jax.jit(jax.vmap(lambda key: task.reset(key, robot)))(keys)
    start = np.asarray(drawn.start, float)
    assert (start[:, :2] >= np.float32(task.object_low)).all()
    assert (start[:, :2] <= np.float32(task.object_high)).all()
    np.testing.assert_allclose(start[:, 2], 0.02, atol=1e-6)
    ahead = Rotation.from_quat(np.roll(start[:, 3:], -1, axis=1)).apply([1.0, 0.0, 0.0])
    heading = np.arctan2(ahead[:, 1], ahead[:, 0])
    turn = np.arctan2(drawn.rotation[:, 0, 1, 0], drawn.rotation[:, 0, 0, 0])
    for angle, low, high in (
        (heading, np.pi / 4, 3 * np.pi / 4),
        (turn, *(float(x) for x in task.goal_turn)),
    ):
        assert low - 1e-5 <= angle.min() < low + 0.01
        assert high - 0.01 < angle.max() <= high + 1e-5
    place = np.asarray(drawn.position)[:, 0]
    assert (place >= np.float32(task.goal_low)).all()
    assert (place <= np.float32(task.goal_high)).all()
    # Independent of each other.
    several = np.stack([*start[:, :2].T, heading, turn, *place[:, :2].T])
    assert np.abs(np.corrcoef(several) - np.eye(6)).max() < 0.06
    # The block of the world is where the goal is.
    one = jax.tree.map(lambda x: x[0], drawn)
    block = task.world(jax.random.key(0), robot, q[0], one).objects[SOCKET].q
    np.testing.assert_allclose(block, [place[0, 2], *place[0, :2], turn[0]], atol=1e-6)
    # A peg that lies is never so near that it begins in the block.
    heads = start[:, :2] + 0.1 * ahead[:, :2]
    front = place[:, :2] - 0.1 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    assert (front[:, 1] - heads[:, 1]).min() > 0.0


def inside(state, head=(-0.01, 0.0, 0.0), turn=(0.0, 0.0, 0.0)):
    """The pose (7,) of a peg whose head is somewhere in the hole's frame, turned, rad, about it."""
    hole = np.asarray(state.task_state.rotation[0], float)
    rotation = Rotation.from_matrix(hole) * Rotation.from_rotvec(turn)
    tip = np.asarray(state.task_state.position[0]) + hole @ np.asarray(head)
    centre = tip - rotation.apply([0.1, 0.0, 0.0])
    return jnp.asarray([*centre, *np.roll(rotation.as_quat(), 1)], jnp.float32)


def test_near_misses_are_refused(insert) -> None:
    """A peg that is in is spoilt in one respect at a time; what does not matter does not."""
    env, params = insert
    _, state = env.reset(jax.random.key(0), params)
    still, well = jnp.zeros(6), (-0.01, 0.0, 0.0)

    def at(head=well, turn=(0.0, 0.0, 0.0), v=still, flipped=False, pose=None):
        """The head in the hole's frame; or, flipped, the tail; or in another pose altogether."""
        if flipped:
            head, turn = (head[0] - 0.2, *head[1:]), (0.0, 0.0, np.pi)
        return changed(state, "peg", inside(state, head, turn) if pose is None else pose, v)

    accepted = {
        "through": {"head": (0.09, 0.0, 0.0)},
        "against the left wall": {"head": (-0.01, 0.003, 0.0)},
        "against the upper wall": {"head": (-0.01, 0.0, 0.003)},
        "on its side": {"turn": (np.pi / 2, 0.0, 0.0)},
        "askew, as far as it goes": {"turn": (0.0, 0.0, 0.02)},
        "turning": {"v": still.at[3].set(0.5)},
    }
    deep = {"head": (0.09, 0.0, 0.0)}
    misses = {
        "not far enough": ("head", (-0.0151, 0.0, 0.0), (-0.0149, 0.0, 0.0)),
        "half in": ("head", (-0.06, 0.0, 0.0), well),
        "at the mouth": ("head", (-0.1, 0.0, 0.0), well),
        "before the hole": ("head", (-0.13, 0.0, 0.0), well),
        "not far enough, and slow": (
            "head", (-0.0151, 0.0, 0.0), (-0.0149, 0.0, 0.0), {"v": still.at[0].set(0.049)}
        ),
        "on the block": ("head", (-0.01, 0.0, 0.081), well),
        "beside the block": ("head", (-0.01, 0.081, 0.0), well),
        "beside it on the other side": ("head", (-0.01, -0.081, 0.0), well),
        "below it": ("head", (-0.01, 0.0, -0.081), well),
        "in the upper wall": ("head", (-0.01, 0.0, 0.0231), (-0.01, 0.0, 0.0229)),
        "in the lower wall": ("head", (-0.01, 0.0, -0.0231), (-0.01, 0.0, -0.0229)),
        "in the left wall": ("head", (-0.01, 0.0231, 0.0), (-0.01, 0.0229, 0.0)),
        "in the right wall": ("head", (-0.01, -0.0231, 0.0), (-0.01, -0.0229, 0.0)),
        "in two walls": ("head", (-0.01, 0.0231, 0.0231), (-0.01, 0.0229, 0.0229)),
        "in line, 0.2 m above": ("head", (-0.01, 0.0, 0.2), well),
        "tail first": ("flipped", True, False),
        "tail first, and through": ("flipped", True, False, deep),
        "moving on": ("v", still.at[1].set(0.051), still.at[1].set(0.049)),
        "moving back": ("v", still.at[0].set(-0.051), still.at[0].set(-0.049)),
        "falling": ("v", still.at[2].set(-0.051), still.at[2].set(-0.049)),
        "shot through": ("v", still.at[1].set(1.0), still, deep),
        "upright before it": (
            "pose", inside(state, (-0.13, 0.0, 0.1), (0.0, -np.pi / 2, 0.0)), None
        ),
        "across the mouth": ("pose", inside(state, (-0.12, 0.1, 0.0), (0.0, 0.0, np.pi / 2)), None),
        "where it began": ("pose", state.task_state.start, None),
    }  # fmt: skip
    found = check_near_misses(env, params, at, misses, accepted)
    assert found["in the upper wall"]["head_aside"] == pytest.approx(0.0231, abs=1e-6)
    assert found["half in"]["depth_lacking"] == pytest.approx(0.045, abs=1e-6)


@pytest.mark.slow
def test_walls_hold_what_is_too_thick_or_askew(insert) -> None:
    """A peg that is pushed: into the hole it goes, into its edge it does not."""
    env, params = insert
    _, state = env.reset(jax.random.key(0), params)
    cases = {
        "in line": ((-0.11, 0.0, 0.0), True),
        "2 mm aside": ((-0.11, 0.002, 0.0), True),
        "10 mm aside": ((-0.11, 0.01, 0.0), False),
        "10 mm too high": ((-0.11, 0.0, 0.01), False),
    }
    ahead = np.asarray(state.task_state.rotation[0])[:, 0]
    v = jnp.asarray([*(1.0 * ahead), 0.0, 0.0, 0.0], jnp.float32)
    states = batched(changed(state, "peg", inside(state, head), v) for head, _ in cases.values())
    _, infos = left_alone(env, params, states, 10)
    deepest = np.min([info["depth_lacking"] for info in infos], axis=0)
    for (name, (_, enters)), lacking in zip(cases.items(), deepest, strict=True):
        assert (lacking < 0.05) if enters else (lacking > 0.07), (name, lacking)


def test_goals_are_the_head_in_the_hole() -> None:
    env, params = fraxenv.make("PandaInsert-v0", goal_env=True)
    obs, state = env.reset(jax.random.key(0), params)
    np.testing.assert_allclose(obs["desired_goal"], [-0.015, 0.0, 0.0], atol=1e-7)
    rotation = Rotation.from_quat(np.roll(np.asarray(state.task_state.start, float)[3:], -1))
    head = np.asarray(state.task_state.start)[:3] + rotation.apply([0.1, 0.0, 0.0])
    local = np.asarray(state.task_state.rotation[0]).T @ (head - state.task_state.position[0])
    np.testing.assert_allclose(obs["achieved_goal"], local, atol=1e-6)
    desired = np.asarray(obs["desired_goal"])
    for shift, reached in (
        ((0.001, 0.0, 0.0), True),
        ((0.1, 0.0, 0.0), True),
        ((-0.001, 0.0, 0.0), False),
        ((0.01, 0.0229, -0.0229), True),
        ((0.01, 0.0231, 0.0), False),
        ((0.01, 0.0, -0.0231), False),
    ):
        assert env.compute_reward(desired + np.float32(shift), desired) == (reached - 1.0), shift


def test_the_hole_is_as_wide_as_asked() -> None:
    _, params = fraxenv.make("PandaInsert-v0", scene_options={"clearance": 0.0005})
    assert float(params.task.aside_tolerance) == pytest.approx(0.0205)
    block = socket(clearance=0.0005)
    geoms = {g.name: g for g in block.geoms}
    assert set(geoms) == {*WALLS, SOCKET}
    for name, axis, side in zip(WALLS, (1, 1, 2, 2), (1, -1, 1, -1), strict=True):
        wall = geoms[name]
        inner = side * wall.position[axis] - wall.size[axis]
        outer = side * wall.position[axis] + wall.size[axis]
        assert (inner, outer) == (pytest.approx(0.0205), pytest.approx(0.06))


def test_refusals() -> None:
    with pytest.raises(ConfigError, match=r"half_width=0\.02, clearance=0\.05"):
        fraxenv.make("PandaInsert-v0", scene_options={"clearance": 0.05})
    with pytest.raises(ConfigError, match=r"half_width=0\.02, clearance=0,"):
        socket(clearance=0.0)
    task = Insert()
    assert task.goals(None) == task.markers(None) == []
    with pytest.raises(ConfigError, match="Insert has no goal that can be moved"):
        task.with_goal(None, 0, (0.5, 0.0, 0.1), np.eye(3))
