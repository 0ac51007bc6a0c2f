"""Wipe: which marks are drawn, what wipes them and what does not, and an expert that does it."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experts import N, over_time, rollout
from objects import batched, check_near_misses, measure

import fraxenv
from fraxenv import dynamics
from fraxenv.envs import Wipe
from fraxenv.envs.tasks.wipe import WipeState
from fraxenv.errors import ConfigError


@pytest.fixture(scope="module")
def wipe():
    return fraxenv.make("PandaWipe-v0")


@pytest.fixture(scope="module")
def wiped(wipe):
    return rollout(*wipe)


def pressing(state, *forces: float):
    """The state in which both pads press on the table, N."""
    contacts = state.world.contacts
    assert all("table" in pair for pair in contacts.pairs)
    contacts = dataclasses.replace(contacts, normal_force=jnp.asarray(forces))
    scene = dataclasses.replace(state.world.scene, contacts=contacts)
    return state.replace(world=dataclasses.replace(state.world, scene=scene))


@pytest.mark.slow
def test_the_expert_of_a_thousand_episodes(wipe) -> None:
    _, results = rollout(*wipe, n=1000, seed=7)
    last = results[-1][2]
    assert np.mean(last["success"]) >= 0.99
    force = np.array([np.asarray(info["force"]) for _, _, info in results])
    np.testing.assert_allclose(force.max(0), last["peak_force"], rtol=1e-6)
    assert force.max() < 60.0


@pytest.mark.slow
def test_marks_are_wiped_once_and_where_the_pads_were(wiped) -> None:
    """Recomputed from where the hand was, at every step, and how hard it pressed."""
    first, results = wiped
    marks = np.asarray(first.task_state.marks)
    gone = np.zeros(marks.shape[:2], bool)
    robot = fraxenv.make("PandaWipe-v0")[0].robot
    pose = jax.jit(jax.vmap(lambda q: dynamics.frame_pose(robot, q, "hand")))
    for state, _, info in results:
        position, rotation = (np.asarray(x) for x in pose(state.q))
        local = np.einsum("nki,nij->nkj", marks - position[:, None, :2], rotation[:, :2, :2])
        inside = (np.abs(local) < [0.00875, 0.0152]).all(-1)
        edge = (np.abs(np.abs(local) - [0.00875, 0.0152]) < 1e-5).any(-1)
        force = np.asarray(info["force"])[:, None]
        gone |= inside & (force >= 1.0) & (force <= 60.0)
        np.testing.assert_array_equal(gone | edge, np.asarray(state.task_state.wiped) | edge)
        gone = np.array(state.task_state.wiped)
    assert gone.all(1).mean() > 0.9


@pytest.mark.slow
def test_rewards_rise_with_every_mark(wiped) -> None:
    _, results = wiped
    rewards, left = over_time(results, "unwiped")
    for i in range(N):
        touch, half, done = ((left[:, i] <= x).argmax() for x in (0.95, 0.5, 0.0))
        assert 0 < touch < half < done
        assert rewards[0, i] < rewards[touch - 5, i] < rewards[half, i] < rewards[done, i]
    assert rewards.max() <= 1.0


def test_marks_are_on_arcs_within_their_box() -> None:
    robot, task = dynamics.load_robot("panda_gripper"), Wipe()
    keys = jax.random.split(jax.random.key(0), 2048)
    _, drawn = jax.jit(jax.vmap(lambda key: task.reset(key, robot)))(keys)
    marks = np.asarray(drawn.marks, float)
    assert marks.shape == (2048, 30, 2)
    assert not np.asarray(drawn.wiped).any()
    # Neighbours are as far from each other along every arc, and all turn the same way.
    steps = np.diff(marks, axis=1)
    np.testing.assert_allclose(np.linalg.norm(steps, axis=-1), 0.24 / 29, rtol=1e-3)
    angle = np.unwrap(np.arctan2(steps[..., 1], steps[..., 0]), axis=1)
    bend = np.diff(angle, axis=1)
    np.testing.assert_allclose(bend - bend.mean(1, keepdims=True), 0.0, atol=1e-3)
    assert 4.8 < np.abs(bend.mean(1)).max() * 29 / 0.24 < 5.01
    middle = 0.5 * (marks[:, 14] + marks[:, 15])
    assert (np.abs(middle - [0.5, 0.0]) < [0.051, 0.101]).all()


def test_near_misses_are_refused(wipe) -> None:
    """The last mark that counts is under the pads, or nearly; they press, or nearly."""
    env, params = wipe
    _, state = env.reset(jax.random.key(0), params)
    hand, rotation = (np.asarray(x, float) for x in dynamics.frame_pose(env.robot, state.q, "hand"))

    def at(local=(0.0, 0.0), forces=(5.0, 5.0), wiped=28, peak=10.0):
        """Of 30 marks one by the hand, others wiped before; the greatest force so far, N."""
        mark = hand[:2] + rotation[:2, :2] @ np.asarray(local)
        marks = np.tile(np.array([0.9, 0.5], np.float32), (30, 1))
        marks[0] = mark
        before = np.arange(30) > 29 - wiped
        own = WipeState(jnp.asarray(marks), jnp.asarray(before), jnp.float32(peak))
        return pressing(state.replace(task_state=own), *forces)

    accepted = {
        "by one pad": {"forces": (0.0, 1.1)},
        "all others wiped": {"wiped": 29},
        "never pressed on before": {"peak": 0.0},
        "wiped before, and the hand away": {"wiped": 29, "local": (0.3, 0.2), "forces": (0.0, 0.0)},
    }
    corners = {
        f"outside corner {x}, {y}": ("local", (x * 0.009, y * 0.015), (x * 0.0085, y * 0.015))
        for x in (-1, 1)
        for y in (-1, 1)
    }
    misses = {
        "in front": ("local", (0.009, 0.0), (0.0085, 0.0)),
        "behind": ("local", (-0.009, 0.0), (-0.0085, 0.0)),
        "to the left": ("local", (0.0, 0.0155), (0.0, 0.015)),
        "to the right": ("local", (0.0, -0.0155), (0.0, -0.015)),
        **corners,
        "far away": ("local", (0.3, 0.2), (0.0, 0.0)),
        "above the table": ("forces", (0.0, 0.0), (0.6, 0.5)),
        "too gently": ("forces", (0.49, 0.5), (0.51, 0.5)),
        "too gently with one": ("forces", (0.99, 0.0), (1.01, 0.0)),
        "too gently with the other": ("forces", (0.0, 0.99), (0.0, 1.01)),
        "too hard": ("forces", (30.1, 30.0), (29.9, 30.0)),
        "too hard with one": ("forces", (60.1, 0.0), (59.9, 0.0)),
        "too hard with the other": ("forces", (0.0, 60.1), (0.0, 59.9)),
        "too hard, and nothing left to wipe": ("forces", (60.1, 0.0), (59.9, 0.0), {"wiped": 29}),
        "once too hard before": ("peak", 60.1, 59.9),
        "far too hard before": ("peak", 200.0, 10.0),
        "too hard before, and nothing left to wipe": ("peak", 60.1, 59.9, {"wiped": 29}),
        "one mark more left": ("wiped", 27, 28),
        "half of them left": ("wiped", 14, 28),
        "all others left": ("wiped", 0, 28),
    }
    found = check_near_misses(env, params, at, misses, accepted)
    for name, (keyword, *_) in misses.items():
        if keyword == "local":
            assert found[name]["unwiped"] == pytest.approx(2 / 30, abs=1e-6)
    assert found["one mark more left"]["unwiped"] == pytest.approx(2 / 30, abs=1e-6)
    assert found["too hard"]["peak_force"] == pytest.approx(60.1)


def test_what_success_needs(wipe) -> None:
    env, params = wipe
    _, state = env.reset(jax.random.key(0), params)

    def case(count: int, peak: float):
        own = state.task_state
        own = dataclasses.replace(own, wiped=jnp.arange(30) < count, peak=jnp.float32(peak))
        return state.replace(task_state=own)

    cases = {(30, 10.0): True, (29, 10.0): True, (28, 10.0): False, (0, 0.0): False}
    cases |= {(30, 59.9): True, (30, 60.1): False, (29, 200.0): False}
    states = batched(case(*c) for c in cases)
    found = measure(env, params, states)
    assert [bool(x) for x in found["success"]] == list(cases.values())
    goals = jax.vmap(lambda s: params.task.achieved_goal(*env._inputs(s, params)))(states)
    reached = params.task.goal_distance(goals, jnp.ones((len(cases), 1))) < 1.0
    assert [bool(x) for x in reached] == list(cases.values())
    # It ends an episode only where it is asked to.
    ends = dataclasses.replace(params.task, force_ends=True)
    for task, expected in ((params.task, False), (ends, True)):
        assert bool(task.terminated(*env._inputs(case(3, 60.1), params))) is expected
    assert not bool(ends.terminated(*env._inputs(case(3, 59.9), params)))
    assert len(params.task.markers(case(28, 0.0).task_state)) == 2


def test_refusals() -> None:
    with pytest.raises(ConfigError, match=r"least_force=70 N and most_force=60 N"):
        fraxenv.make("PandaWipe-v0", task_options={"least_force": 70.0})
    with pytest.raises(ConfigError, match=r"middle_low..middle_high is out of reach"):
        fraxenv.make("PandaWipe-v0", task_options={"middle_high": (1.2, 0.1)})
    with pytest.raises(ConfigError, match=r"count=0"):
        Wipe(count=0)
