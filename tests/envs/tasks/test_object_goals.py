"""Push and Pick: what is drawn, what counts, and experts that do it."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experts import N, rollout

import fraxenv
from fraxenv import dynamics
from fraxenv.envs import Pick, Push, grasped, pad_forces, pad_names, slip_speed
from fraxenv.errors import ConfigError, UnknownNameError

PADS = ("left_pad", "right_pad")


@pytest.fixture(scope="module")
def pick():
    return fraxenv.make("PandaPick-v0")


@pytest.fixture(scope="module")
def push():
    return fraxenv.make("PandaPush-v0")


@pytest.fixture(scope="module")
def picked(pick):
    return rollout(*pick)


def test_the_pick_expert_grasps_lifts_and_holds(picked) -> None:
    _, results = picked
    _, _, last = results[-1]
    assert last["success"].all()
    assert last["grasped"].all()
    assert not last["diverged"].any()
    assert all(bool(info["contact_converged"].all()) for _, _, info in results)
    # Half of kp (0.02 m - what the pads sink in) on each pad, and no creep.
    pads = np.asarray(last["contacts"]["normal_force"])[:, 3:]
    np.testing.assert_allclose(pads, 10.0, atol=0.3)
    a, b = (np.asarray(r[0].world.objects["cube"].q)[:, :3] for r in (results[-11], results[-1]))
    assert np.abs(a - b).max() < 5e-4
    assert np.asarray(last["slip_speed"]).max() < 1e-3


def test_the_push_expert_slides_the_cube(push) -> None:
    _, results = rollout(*push)
    _, _, last = results[-1]
    assert np.mean(last["success"]) > 0.95
    height = np.asarray(results[-1][0].world.objects["cube"].q)[:, 2]
    assert np.median(height) == pytest.approx(0.02, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("id", ["PandaPush-v0", "PandaPick-v0"])
def test_experts_of_a_thousand_episodes(id: str) -> None:
    _, results = rollout(*fraxenv.make(id), n=1000, seed=7)
    assert np.mean(results[-1][2]["success"]) >= 0.99


def test_rewards_rise_with_every_stage(picked) -> None:
    """Nearer is better, held is better still, and there is best."""
    _, results = picked
    rewards = np.array([np.asarray(reward) for _, reward, _ in results])
    held = np.array([np.asarray(info["grasped"]) for _, _, info in results])
    done = np.array([np.asarray(info["success"]) for _, _, info in results])
    far, near = rewards[0], rewards[np.maximum(held.argmax(0) - 3, 0), np.arange(N)]
    assert (near > far).all()
    assert rewards[held & ~done].mean() > near.max()
    assert rewards[done].mean() > rewards[held & ~done].mean()
    assert rewards[-1].max() < 1.0


@pytest.mark.parametrize("task", [Pick(), Push()])
def test_goals_are_far_enough_and_in_their_box(task) -> None:
    robot = dynamics.load_robot("panda_gripper")
    keys = jax.random.split(jax.random.key(0), 4096)
    _, drawn = jax.jit(jax.vmap(lambda key: task.reset(key, robot)))(keys)
    goal, start = np.asarray(drawn.position)[:, 0], np.asarray(drawn.start)
    assert np.linalg.norm(goal - start[:, :3], axis=1).min() > 0.0499
    assert (goal >= np.float32(task.goal_low) - 1e-6).all()
    assert (goal <= np.float32(task.goal_high) + 1e-6).all()
    assert (start[:, :2] >= np.float32(task.object_low)).all()
    assert (start[:, :2] <= np.float32(task.object_high)).all()
    assert len(np.unique(start[:, 6])) > 4000
    np.testing.assert_allclose(np.linalg.norm(start[:, 3:], axis=1), 1.0, atol=1e-6)


def test_a_cube_in_flight_is_no_success(pick) -> None:
    """At its goal at any speed below the tolerance, and no faster."""
    env, params = pick
    _, state = env.reset(jax.random.key(0), params)
    goal = state.task_state.position[0]
    for shift, speed, expected in ((0.0, 0.0, True), (0.0, 0.06, False), (0.026, 0.0, False)):
        cube = state.world.objects["cube"]
        cube = dataclasses.replace(
            cube,
            q=jnp.asarray(cube.q).at[:3].set(goal).at[0].add(shift),
            v=jnp.asarray(cube.v).at[1].set(speed),
        )
        scene = dataclasses.replace(state.world.scene, objects={"cube": cube})
        there = state.replace(world=dataclasses.replace(state.world, scene=scene))
        measured = params.task.measures(*env._inputs(there, params))
        assert bool(measured["success"]) == expected
        assert measured["object_speed"] == pytest.approx(speed)


def test_goal_environments_hide_the_goal(push) -> None:
    env, params = fraxenv.make("PandaPush-v0", goal_env=True)
    obs, _ = env.reset(jax.random.key(0), params)
    assert obs["achieved_goal"].shape == obs["desired_goal"].shape == (3,)
    plain = push[0].observation_space(push[1]).shape[0]
    assert obs["observation"].shape == (plain - 6,)
    desired = obs["desired_goal"]
    for shift, reward in ((0.024, 0.0), (0.026, -1.0)):
        moved = desired + jnp.array([shift, 0.0, 0.0])
        assert env.compute_reward(moved, desired) == reward


def test_grasps_are_read_from_contacts(picked) -> None:
    _, results = picked
    contacts = results[-1][0].world.contacts
    forces = jax.vmap(lambda c: pad_forces(c, PADS, "cube"))(contacts)
    assert forces.shape == (N, 2)
    assert jax.vmap(lambda c: grasped(c, PADS, "cube"))(contacts).all()
    assert not jax.vmap(lambda c: grasped(c, PADS, "cube", 1e3))(contacts).any()
    assert jax.vmap(lambda c: slip_speed(c, PADS, "cube"))(contacts).shape == (N,)
    with pytest.raises(UnknownNameError, match="geom 'thumb'"):
        pad_forces(contacts, ("thumb",), "cube")
    start = results[0][0].world.contacts
    assert not jax.vmap(lambda c: grasped(c, PADS, "cube"))(start).any()


def test_refusals() -> None:
    with pytest.raises(ConfigError, match="UR10 has no gripper, expected one of the robots panda"):
        fraxenv.make(robot="ur10", task="pick")
    with pytest.raises(ConfigError, match="robot 'panda' has no fingers"):
        pad_names(dynamics.load_robot("panda"))
    with pytest.raises(ConfigError, match="orientation=True"):
        Pick(orientation=True)
    with pytest.raises(ConfigError, match=r"least_distance=0.3 m, expected .* 0.2 m wide"):
        fraxenv.make("PandaPick-v0", task_options={"least_distance": 0.3})
    with pytest.raises(ConfigError, match="has no fingers"):
        fraxenv.make("PandaPush-v0", gripper="width")
