"""Push and Pick: what is drawn, what counts, and experts that do it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experts import N, over_time, rollout
from objects import changed, check_near_misses

import fraxenv
from fraxenv import dynamics
from fraxenv.envs import Pick, Push, grasped, pad_forces, pad_names, slip_speed
from fraxenv.envs.steering import steering
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_push_expert_slides_the_cube(push) -> None:
    _, results = rollout(*push)
    _, _, last = results[-1]
    assert np.mean(last["success"]) > 0.95
    height = np.asarray(results[-1][0].world.objects["cube"].q)[:, 2]
    assert np.median(height) == pytest.approx(0.02, abs=1e-3)


ARMS = ("UR10", "Iiwa14")
"""Arms on whose flanges is a hand of two fingers; what needs a rollout of theirs is slow."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "id",
    ["PandaPush-v0", "PandaPick-v0"]
    + [f"{arm}{task}-v0" for arm in ARMS for task in ("Push", "Pick", "PickPose", "Stack", "Wipe")]
    + ["Iiwa14Insert-v0", "Iiwa14Slide-v0"],
)
def test_experts_of_a_thousand_episodes(id: str) -> None:
    _, results = rollout(*fraxenv.make(id), n=1000, seed=7)
    assert np.mean(results[-1][2]["success"]) >= 0.99


@pytest.mark.parametrize("arm", ["Panda", *ARMS])
def test_hands_begin_above_the_table_pointing_down(arm: str) -> None:
    """Over where the objects lie."""
    env, params = fraxenv.make(f"{arm}Pick-v0")
    robot = env.robot
    pose = jax.jit(lambda q: dynamics.frame_pose(robot, q, "hand"))
    position, rotation = pose(robot.q_default)
    low, high = np.asarray(params.task.object_low), np.asarray(params.task.object_high)
    assert (low < position[:2]).all()
    assert (position[:2] < high).all()
    assert position[2] == pytest.approx(0.2, abs=2e-3)
    np.testing.assert_allclose(rotation[:, 2], [0, 0, -1], atol=2e-3)
    assert pad_names(robot) == PADS


@pytest.mark.slow
def test_rewards_rise_with_every_stage(picked) -> None:
    """Nearer is better, held is better still, and there is best."""
    _, results = picked
    rewards, held, done = over_time(results, "grasped", "success")
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


@pytest.mark.parametrize("name", ["pick", "push"])
def test_near_misses_are_refused(name: str, request) -> None:
    """Cubes just beyond the tolerance, any way; and picked ones that are not at rest."""
    env, params = request.getfixturevalue(name)
    _, state = env.reset(jax.random.key(0), params)
    goal, start = state.task_state.position[0], state.task_state.start
    ways = np.array(
        [*np.eye(3), *-np.eye(3), *((a, b, c) for a in (-1, 1) for b in (-1, 1) for c in (-1, 1))]
    )
    ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    nowhere = (0.0, 0.0, 0.0)

    def at(way=nowhere, v=nowhere):
        q = start.at[:3].set(goal + jnp.asarray(way))
        return changed(state, "cube", q, jnp.zeros(6).at[:3].set(jnp.asarray(v)))

    misses = {f"off along {way}": ("way", 0.0251 * way, 0.0249 * way) for way in ways} | {
        f"off along {way}, moving": ("way", 0.0251 * way, 0.0249 * way, {"v": (0.0, 0.0, 0.04)})
        for way in ways[:3]
    }
    misses |= {
        "where it began": ("way", start[:3] - goal, nowhere),
        "far beside": ("way", (0.05, 0.0, 0.0), nowhere),
        "far above": ("way", (0.0, 0.0, 0.05), nowhere),
    }
    accepted = {f"a little off along {way}": {"way": 0.0249 * way} for way in ways}
    if name == "pick":
        misses |= {f"moving along {way}": ("v", 0.051 * way, 0.049 * way) for way in ways}
    else:
        accepted |= {"passing by": {"v": (0.3, 0.0, 0.0)}}
    found = check_near_misses(env, params, at, misses, accepted)
    for miss, (keyword, wrong, *_) in misses.items():
        if keyword == "v":
            speed = np.linalg.norm(wrong)
            assert found[miss]["object_speed"] == pytest.approx(speed, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("friction", "holds"), [(1.0, True), (0.0, False)])
def test_what_is_held_is_shaken(friction: float, holds: bool) -> None:
    """At 2 Hz, 5 cm to either side, for 4 s; without friction it drops."""
    env, params = fraxenv.make("PandaPick-v0", action="ee_pose")
    state = rollout(env, params, n=8)[1][-1][0]
    scene = env.physics.scene
    for name in scene.geom_names:
        scene = scene.with_geom(name, friction=friction)
    params = params.replace(scene=scene)
    steer = steering(env, params, ("hand",))
    pose = jax.vmap(lambda state: dynamics.frame_pose(env.robot, state.q, "hand"))

    @jax.jit
    def shaken(state):
        place, turn = pose(state)

        def step(state, t):
            # So fast, the hand gets about a quarter as far as its target.
            target = place.at[:, 1].add(0.2 * jnp.sin(4.0 * jnp.pi * t))
            here, now = pose(state)
            way = target - here, jax.vmap(dynamics.orientation_error)(turn, now)
            action = jax.vmap(lambda q, *way: steer(q, [way], jnp.zeros(())))(state.q, *way)
            _, state, _, _, info = jax.vmap(
                lambda s, a: env.step_env(jax.random.key(0), s, a, params)
            )(state, action)
            return state, (info["grasped"], pose(state)[0], state.world.objects["cube"].q[:, :3])

        return jax.lax.scan(step, state, 0.02 * jnp.arange(200))[1]

    held, hand, cube = map(np.asarray, shaken(state))
    assert np.ptp(hand[-50:, :, 1], axis=0).min() > 0.1
    way = cube - hand
    if holds:
        assert held.all()
        assert np.ptp(way, axis=0).max() < 3e-3
    else:
        assert not held[-1].any()
        assert (cube[-1, :, 2] < 0.03).all()


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


@pytest.mark.slow
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
    with pytest.raises(
        ConfigError, match="G1 has no gripper, expected one of the robots panda, ii"
    ):
        fraxenv.make(robot="g1", task="pick")
    with pytest.raises(ConfigError, match="robot 'panda' has no fingers"):
        pad_names(dynamics.load_robot("panda"))
    with pytest.raises(ConfigError, match="orientation=True"):
        Pick(orientation=True)
    with pytest.raises(ConfigError, match=r"least_distance=0.3 m, expected .* 0.2 m wide"):
        fraxenv.make("PandaPick-v0", task_options={"least_distance": 0.3})
    with pytest.raises(ConfigError, match="has no fingers"):
        fraxenv.make("PandaPush-v0", gripper="width")


@pytest.mark.parametrize("id", ["PandaPickPose-v0", "PandaStack-v0"])
def test_what_is_drawn_is_independent(id: str) -> None:
    """Of keys that are folded in, the first are those of `split`: none is taken twice."""
    env, params = fraxenv.make(id)
    keys = jax.random.split(jax.random.key(3), 2000)
    _, drawn = jax.jit(jax.vmap(lambda key: params.task.reset(key, env.robot)))(keys)
    start = np.asarray(drawn.start)
    turn = np.arctan2(start[:, 6], start[:, 3])
    if id == "PandaStack-v0":
        base = np.asarray(drawn.base)
        others = np.arctan2(base[:, 6], base[:, 3])[:, None]
    else:
        # The goal's turn about the world's axes, from how the box stands.
        up = np.asarray(drawn.rotation)[:, 0, :, 2]
        others = up[:, :2]
    columns = np.column_stack([start[:, :2], turn, drawn.position[:, 0, 1], others])
    correlation = np.corrcoef(columns.T)
    assert np.abs(correlation - np.eye(len(correlation))).max() < 0.1
