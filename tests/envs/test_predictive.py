"""The policy that plans: what it sees, and that it arrives."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import fraxenv
from fraxenv import record
from fraxenv.controllers.planning import residuals
from fraxenv.dynamics import (
    compute_terms,
    frame_pose,
    load_robot,
    obstacle_distances,
    residual_derivatives,
)
from fraxenv.dynamics.math.rotation import quaternion_to_matrix
from fraxenv.envs import mpc_policy, observed
from fraxenv.envs.predictive_cube import seen_dragged, seen_free
from fraxenv.errors import ConfigError

KEY = jax.random.key(7)
FLOATING = load_robot("panda", floating_base=True)
ALL_KINDS = {
    "sphere_count": 3,
    "capsule_count": 2,
    "box_count": 3,
    "clearance": 0.3,
    "moving_count": 2,
}


def test_what_is_observed_is_what_is_there() -> None:
    """Joints, goals, obstacles of all kinds and how they move, also those that are left out."""
    options = {"task_options": ALL_KINDS, "randomisation": {"start_velocity": 0.3}}
    env, params = fraxenv.make("PandaReachObstacles-v0", backend="vmap", **options)
    robot, task = env.robot, params.task

    def apart(key: Array) -> Any:
        obs, state = env.reset_env(key, params)
        seen = observed.terms_of(env, obs)
        q = observed.configuration(env, seen["joint_position"])
        v = observed.velocity(env, seen["joint_velocity"])
        goal = frame_pose(robot, q, "hand")[0] + observed.ways_to_goals(seen)[0][0]
        around = observed.obstacles(env, task, seen, q)
        there = state.world.obstacles
        found = q, v, goal, obstacle_distances(robot, q, around), around.velocity
        true = state.q, state.v, state.task_state.position[0]
        velocity = jnp.where(there.active[:, None], there.velocity, 0.0)
        return found, (*true, obstacle_distances(robot, state.q, there), velocity), there.active

    found, true, active = jax.jit(jax.vmap(apart))(jax.random.split(KEY, 16))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), found, true)
    assert np.abs(true[1]).max() > 0.1
    assert np.abs(true[4]).max() > 0.05
    assert 0.3 < np.mean(active) < 1.0


@pytest.mark.parametrize(
    ("id", "state"),
    [
        ("PandaPush-v0", seen_dragged),
        pytest.param("PandaPick-v0", seen_free, marks=pytest.mark.slow),
    ],
)
def test_where_a_cube_is_planned_from_is_where_it_is(id: str, state: Any) -> None:
    env, params = fraxenv.make(id, action="torque")
    policy = mpc_policy(env, params)

    def apart(key: Array) -> Any:
        obs, there = env.reset_env(key, params)
        seen = observed.terms_of(env, obs)
        q, v = state(env, seen)
        aim = policy.aim(seen, q)
        poses = [frame_pose(policy.robot, q, name) for name in ("cube", "hand")]
        return poses, v, aim["cube"], there.world.scene.objects["cube"].q, there.q

    (cube, hand), v, goal, true, joints = jax.jit(jax.vmap(apart))(jax.random.split(KEY, 8))
    np.testing.assert_allclose(cube[0], true[:, :3], atol=1e-5)
    turned = jax.vmap(quaternion_to_matrix)(true[:, 3:])
    np.testing.assert_allclose(cube[1], turned, atol=1e-5)
    of_robot = jax.vmap(lambda q: frame_pose(env.robot, q, "hand")[0])(joints)
    np.testing.assert_allclose(hand[0], of_robot, atol=2e-5)
    assert v.shape == (8, policy.robot.nv)
    assert np.linalg.norm(goal - cube[0], axis=1).min() > 0.05


def test_what_picks_is_planned_with_the_contacts_of_the_cube() -> None:
    env, params = fraxenv.make("PandaPick-v0", action="torque", policy_hz=100)
    problem = mpc_policy(env, params).mpc.problem
    there, planned = (s.constraints.layout for s in (env.physics.scene, problem.scene))
    names = [{planned.geoms[k].name for k in pair.geoms} for pair in planned.pairs]
    assert names == [{"cube", name} for name in ("table", "left_pad", "right_pad")]
    assert (there.slots, planned.slots) == (28, 20)


@pytest.mark.parametrize("closes", [0.0, 0.3, 1.0])
def test_derivatives_of_a_grip_are_the_automatic_ones(closes: float) -> None:
    env, params = fraxenv.make("PandaPick-v0", action="torque", policy_hz=100)
    problem = mpc_policy(env, params).mpc.problem
    robot, grip = problem.robot, problem.running["grip"]

    def both(tau: Array) -> Any:
        q, v = jnp.asarray(robot.q_default), jnp.zeros(robot.nv)
        term = dataclasses.replace(grip, reference=jnp.asarray(closes))

        def at(q: Array, v: Array, tau: Array) -> Array:
            return residuals.value(term, robot, dataclasses.replace(terms, q=q, v=v), tau)

        terms = compute_terms(robot, q, v)
        own = residuals.slopes(term, robot, terms, tau)
        return own, residual_derivatives(robot, at, q, v, tau)

    own, automatic = jax.jit(both)(jnp.linspace(-20.0, 20.0, robot.nv))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), own, automatic)
    assert np.abs(np.concatenate(own, axis=1)).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("id", "off"), [("PandaPush-v0", 0.02), ("PandaPick-v0", 1e-3)])
def test_it_handles_a_cube(id: str, off: float) -> None:
    """To the goal in two seconds and a half, and there it stays."""
    env, params = fraxenv.make(id, action="torque", policy_hz=100, max_steps_in_episode=300)
    recording = record(env, params, mpc_policy(env, params), KEY, steps=299, num_envs=16)
    success, distance = (np.asarray(recording.infos[k]) for k in ("success", "object_distance"))
    assert success.any(0).all()
    assert success[250:].all(0).sum() >= 15
    assert np.median(distance[-1]) < off


@pytest.mark.slow
@pytest.mark.parametrize(
    "action", ["torque", pytest.param("ee_delta_pose", marks=pytest.mark.slow)]
)
def test_it_arrives(action: str) -> None:
    """Sooner with torques; and there it stays."""
    env, params = fraxenv.make("PandaReach-v0", action=action, policy_hz=25)
    recording = record(env, params, mpc_policy(env, params), KEY, steps=40, num_envs=8)
    success = recording.infos["success"]
    assert success[30:].all()
    assert np.argmax(success, axis=0).max() < (15 if action == "torque" else 30)


@pytest.mark.slow
def test_its_plan_is_the_way_of_the_hand() -> None:
    """From where the hand is, to where it arrives."""
    env, params = fraxenv.make("PandaReach-v0", action="torque")
    policy = mpc_policy(env, params, iterations=10)
    obs, state = env.reset(KEY, params)
    _, memory = jax.jit(policy)(obs, KEY, policy.begin(obs))
    path = policy.path(memory, state)
    assert path.shape == (1, policy.mpc.problem.horizon + 1, 3)
    np.testing.assert_allclose(path[0, 0], frame_pose(env.robot, state.q, "hand")[0], atol=1e-4)
    goal = state.task_state.position[0]
    away = np.linalg.norm(path[0] - goal, axis=1)
    assert away[-1] < 0.1 * away[0]


@pytest.mark.slow
@pytest.mark.parametrize(("action", "off"), [("torque", 1e-3), ("ee_delta_pose", 5e-3)])
def test_it_follows(action: str, off: float) -> None:
    """A figure eight, in the root mean square; scripted it is 6.5 mm."""
    env, params = fraxenv.make("PandaTrack-v0", action=action)
    recording = record(env, params, mpc_policy(env, params), KEY, steps=150, num_envs=32)
    arrived = np.asarray(recording.infos["position_error"])[25:]
    assert np.sqrt(np.mean(arrived**2)) < off
    assert np.mean(recording.infos["success"][25:]) > 0.99


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        ({"id": "PandaStack-v0"}, "needs a task of hands and goals for them"),
        ({"id": "PandaSlide-v0"}, "needs a task of hands and goals for them"),
        ({"id": "PandaPick-v0"}, "for the action space EEDelta .* action='torque'"),
        ({"id": "PandaReach-v0", "goal_env": True}, "in a flat observation"),
        ({"robot": FLOATING, "task": "reach", "end_effector": "hand"}, "its base floats"),
    ],
)
def test_it_says_what_it_cannot(recipe: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        mpc_policy(*fraxenv.make(**recipe))


@pytest.mark.slow
@pytest.mark.parametrize("id", ["PandaReach-v0", "PandaReachObstacles-v0"])
def test_a_thousand_episodes(id: str) -> None:
    env, params = fraxenv.make(id, action="torque")
    recording = record(
        env, params, mpc_policy(env, params), KEY, episodes=1000, num_envs=1000,
        infos=["success", "clearance"] if "Obstacles" in id else ["success"],
    )  # fmt: skip
    succeeded, ended = recording.num_successful
    assert succeeded >= 0.99 * ended
    assert np.median(np.argmax(recording.infos["success"], axis=0)) / env.policy_hz < 0.35
    if "clearance" in recording.infos:
        assert (recording.infos["clearance"] > 0).all()
