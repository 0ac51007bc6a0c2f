"""Upright: what is drawn, what counts and what nearly would, and an expert that does it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experts import N, over_time, rollout
from objects import batched, changed, check_near_misses, left_alone, touching
from scipy.spatial.transform import Rotation

import fraxenv
from fraxenv import dynamics
from fraxenv.envs import Upright
from fraxenv.errors import ConfigError


@pytest.fixture(scope="module")
def upright():
    return fraxenv.make("PandaUpright-v0")


@pytest.fixture(scope="module")
def stood(upright):
    return rollout(*upright)


def peg(rotation: Rotation, height: float, place=(0.4, 0.0)):
    """A pose (7,)."""
    return jnp.asarray([*place, height, *np.roll(rotation.as_quat(), 1)], jnp.float32)


def leaning(angle: float, about: str = "x", end: int = 1) -> Rotation:
    """Upright on one of its ends, and turned by an angle, rad, about one of the world's axes."""
    up = Rotation.from_euler("y", -end * np.pi / 2)
    return Rotation.from_euler(about, angle) * up


@pytest.mark.slow
def test_the_expert_stands_it_up_and_lets_go(stood) -> None:
    _, results = stood
    state, _, last = results[-1]
    assert last["success"].all()
    assert not last["grasped"].any()
    # Held, and not passed by: success of the last ten steps.
    assert np.mean([np.asarray(info["success"]) for _, _, info in results[-10:]]) > 0.99
    q = np.asarray(state.world.objects["peg"].q, float)
    along = Rotation.from_quat(np.roll(q[:, 3:], -1, axis=1)).apply([1.0, 0.0, 0.0])
    assert np.abs(along[:, 2]).min() > np.cos(0.01)
    np.testing.assert_allclose(q[:, 2], 0.12, atol=1e-3)
    # 0.3 kg on the table.
    force = state.world.contacts.between("peg", "table").normal_force
    np.testing.assert_allclose(force[:, 0], 0.3 * 9.81, rtol=0.02)


@pytest.mark.slow
def test_the_expert_of_a_thousand_episodes(upright) -> None:
    _, results = rollout(*upright, n=1000, seed=7)
    assert np.mean(results[-1][2]["success"]) >= 0.99


@pytest.mark.slow
def test_rewards_rise_with_every_stage(stood) -> None:
    """Near the peg, held, upright in the air, let go of on the table."""
    _, results = stood
    names = "grasped", "success", "object_tilt", "object_distance"
    rewards, held, done, tilt, distance = over_time(results, *names)
    for i in range(N):
        grasp, success = held[:, i].argmax(), done[:, i].argmax()
        turned = grasp + (tilt[grasp:, i] < 0.1).argmax()
        assert 0 < grasp < turned < success
        assert distance[turned, i] > 0.005
        stages = rewards[[0, grasp - 3, grasp + 3, turned, success], i]
        assert (np.diff(stages) > 0).all(), (i, stages)
    assert rewards.max() < 1.0


def test_pegs_lie_in_their_box() -> None:
    robot, task = dynamics.load_robot("panda_gripper"), Upright()
    keys = jax.random.split(jax.random.key(0), 4096)
    _, drawn = jax.jit(jax.vmap(lambda key: task.reset(key, robot)))(keys)
    start = np.asarray(drawn.start)
    assert (start[:, :2] >= np.float32(task.object_low)).all()
    assert (start[:, :2] <= np.float32(task.object_high)).all()
    np.testing.assert_allclose(start[:, 2], 0.025, atol=1e-6)
    rotation = Rotation.from_quat(np.roll(start[:, 3:].astype(float), -1, axis=1))
    along = rotation.apply([1.0, 0.0, 0.0])
    assert np.abs(along[:, 2]).max() < 1e-6
    # In every direction.
    angle = np.arctan2(along[:, 1], along[:, 0])
    assert np.histogram(angle, 8, (-np.pi, np.pi))[0].min() > 4096 / 8 * 0.8
    np.testing.assert_allclose(drawn.position[:, 0, 2], 0.12, atol=1e-6)


def test_near_misses_are_refused(upright) -> None:
    """A peg that stands is spoilt in one respect at a time; what does not matter does not."""
    env, params = upright
    _, state = env.reset(jax.random.key(0), params)
    still = jnp.zeros(6)

    def at(lean=(0.0, 0.0), end=1, spin=0.0, height=0.12, place=(0.4, 0.0), v=still, touched=(),
           pose=None):  # fmt: skip
        """Leaning about both of the world's axes, rad; or in another pose altogether."""
        up = Rotation.from_rotvec([*lean, 0.0]) * leaning(0.0, end=end)
        stands = peg(Rotation.from_euler("z", spin) * up, height, place)
        moved = changed(state, "peg", stands if pose is None else pose, v)
        for pad in touched:
            moved = touching(moved, pad, "peg", True)
        return moved

    accepted = {
        "on its other end": {"end": -1},
        "turned about the vertical": {"spin": 1.0},
        "somewhere else": {"place": (0.6, -0.3)},
        "slowly": {"v": still.at[0].set(0.009).at[3].set(0.4)},
    }
    misses = {
        "leaning": ("lean", (0.082, 0.0), (0.078, 0.0)),
        "leaning the other way": ("lean", (-0.082, 0.0), (-0.078, 0.0)),
        "leaning about the other axis": ("lean", (0.0, 0.082), (0.0, 0.078)),
        "leaning back": ("lean", (0.0, -0.082), (0.0, -0.078)),
        "leaning about both axes": ("lean", (0.06, 0.06), (0.055, 0.055)),
        "leaning, on its other end": ("lean", (0.0, 0.082), (0.0, 0.078), {"end": -1}),
        "leaning, and turned": ("lean", (0.082, 0.0), (0.078, 0.0), {"spin": 1.0}),
        "leaning, a little too high": ("lean", (0.082, 0.0), (0.078, 0.0), {"height": 0.1249}),
        "10 mm up": ("height", 0.13, 0.1249),
        "5 mm up": ("height", 0.1251, 0.1249),
        "5 mm in the table": ("height", 0.1149, 0.1151),
        "5 mm up, on its other end": ("height", 0.1251, 0.1249, {"end": -1}),
        "5 mm up, leaning a little": ("height", 0.1251, 0.1249, {"lean": (0.078, 0.0)}),
        "as high as if it lay": ("height", 0.025, 0.12),
        "lying, as high as if it stood": ("lean", (0.0, np.pi / 2), (0.0, 0.0)),
        "aslant, as high as if it stood": ("lean", (0.0, np.pi / 4), (0.0, 0.0)),
        "lying": ("pose", peg(Rotation.identity(), 0.025), None),
        "lying on its side": ("pose", peg(Rotation.from_euler("x", np.pi / 2), 0.025), None),
        "where it began": ("pose", state.task_state.start, None),
        "sliding": ("v", still.at[1].set(0.011), still.at[1].set(0.009)),
        "falling": ("v", still.at[2].set(-0.011), still.at[2].set(-0.009)),
        "tipping over": ("v", still.at[4].set(0.51), still.at[4].set(0.49)),
        "turning": ("v", still.at[3].set(0.51), still.at[3].set(0.49)),
        "touched by a finger": ("touched", ["left_pad"], []),
        "touched by the other": ("touched", ["right_pad"], []),
        "in hand": ("touched", ["left_pad", "right_pad"], []),
    }
    found = check_near_misses(env, params, at, misses, accepted)
    assert found["leaning"]["object_tilt"] == pytest.approx(0.082, abs=1e-4)
    assert found["lying"]["object_tilt"] == pytest.approx(np.pi / 2, abs=1e-4)


@pytest.mark.slow
def test_a_peg_in_hand_is_no_success(stood) -> None:
    _, results = stood
    held = 0
    for _, _, info in results:
        there = np.asarray(info["grasped"]) & (np.asarray(info["object_distance"]) < 0.003)
        there &= np.asarray(info["object_tilt"]) < 0.05
        held += there.sum()
        assert not (there & np.asarray(info["success"])).any()
    assert held > 100


@pytest.mark.slow
def test_only_what_keeps_standing_counts(upright) -> None:
    """Let go of in several poses, and left alone for two seconds."""
    env, params = upright
    cases = {
        "standing": (peg(leaning(0.0), 0.1205), True),
        "on its other end": (peg(leaning(0.0, end=-1), 0.1205), True),
        "dropped from 5 mm": (peg(leaning(0.0), 0.125), True),
        "leaning, and falls back": (peg(leaning(0.03), 0.121), True),
        "leaning, and falls": (peg(leaning(0.3), 0.1225), False),
        "lying": (peg(Rotation.identity(), 0.0255), False),
    }
    _, state = env.reset(jax.random.key(0), params)
    states = batched(changed(state, "peg", q) for q, _ in cases.values())
    _, infos = left_alone(env, params, states, 100)
    found = dict(zip(cases, np.asarray(infos[-1]["success"]), strict=True))
    assert found == {name: ok for name, (_, ok) in cases.items()}


def test_goals_are_heights_and_angles() -> None:
    env, params = fraxenv.make("PandaUpright-v0", goal_env=True)
    obs, _ = env.reset(jax.random.key(0), params)
    np.testing.assert_allclose(obs["achieved_goal"], [0.025, np.pi / 2], atol=1e-5)
    np.testing.assert_allclose(obs["desired_goal"], [0.12, 0.0], atol=1e-6)
    desired = np.asarray(obs["desired_goal"])
    for part, near in ((0, 0.0049), (1, 0.079)):
        for way in (1.0, -1.0):
            shift = way * near * np.eye(2)[part]
            assert env.compute_reward(desired + shift, desired) == 0.0
            assert env.compute_reward(desired + 1.1 * shift, desired) == -1.0


def test_refusals() -> None:
    with pytest.raises(ConfigError, match=r"half_length=0.02 m, expected more than .*=0.025 m"):
        fraxenv.make("PandaUpright-v0", task_options={"half_length": 0.02})
    task = Upright()
    assert task.goals(None) == task.markers(None) == []
    with pytest.raises(ConfigError, match="Upright has no goal that can be moved"):
        task.with_goal(None, 0, (0.5, 0.0, 0.1), np.eye(3))
