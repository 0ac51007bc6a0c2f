"""The filter of an arm with a gripper: it knows the hand's shapes, and leaves fingers alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv import dynamics
from fraxenv.controllers import SafetyFilter
from fraxenv.controllers.groups import finger_mask
from fraxenv.dynamics import Obstacles, Robot, Shape, Sphere
from fraxenv.envs.tasks.tabletop import palm_names

QUICK = {"xla_backend_optimization_level": 0}  # to compile
HANDS = {"panda_gripper": "franka_hand", "ur10_gripper": "two_finger_hand"}
SIZE = 24


@pytest.fixture(scope="module")
def gripper() -> Robot:
    return dynamics.load_robot("panda_gripper")


def filtered(robot: Robot, q, v, tau, spheres):
    terms = dynamics.compute_terms(robot, q, v)
    around = Obstacles(Sphere(spheres, jnp.full(2, 0.05)))
    return SafetyFilter(end_effectors=("hand",))(robot, terms, tau, 0.002, around)


many = jax.jit(jax.vmap(filtered, (None, 0, 0, 0, 0)), compiler_options=QUICK)


@pytest.mark.slow
def test_the_arm_is_kept_safe_as_if_its_fingers_were_locked(gripper: Robot) -> None:
    """And the servo's force is the servo's, however hard it closes."""
    rng = np.random.default_rng(0)
    fingers = finger_mask(gripper)
    assert fingers.tolist() == [False] * 7 + [True]
    locked = dynamics.lock_joints(gripper, ("panda_finger_joint1",))
    lower, upper = np.asarray(gripper.position_limits).T
    q = rng.uniform(lower, upper, (SIZE, 8))
    q[:, 7] = np.asarray(gripper.q_default)[7]
    v = 0.5 * rng.normal(size=(SIZE, 8))
    v[:, 7] = 0.0
    tau = rng.uniform(-1, 1, (SIZE, 8)) * np.asarray(gripper.effort_limits)
    hand = jax.vmap(lambda q: dynamics.frame_pose(gripper, q, "hand")[0])(jnp.asarray(q))
    spheres = np.asarray(hand)[:, None] + 0.15 * rng.normal(size=(SIZE, 2, 3))
    safe, report = many(gripper, *map(jnp.asarray, (q, v, tau, spheres)))
    np.testing.assert_array_equal(safe[:, 7], tau.astype(np.float32)[:, 7])
    assert np.asarray(report["intervened"]).mean() > 0.5
    arm, expected = many(locked, *map(jnp.asarray, (q[:, :7], v[:, :7], tau[:, :7], spheres)))
    met = np.asarray(report["feasible"]) & np.asarray(expected["feasible"])
    assert met.sum() > SIZE / 2
    np.testing.assert_allclose(safe[met, :7], arm[met], atol=2e-3 * np.abs(tau[:, :7]).max())


def surface(shape: Shape, rng: np.random.Generator, count: int = 400) -> np.ndarray:
    """Points (count, 3), m, of a box, in the frame of its body."""
    half = 0.5 * np.asarray(shape.size)
    points = rng.uniform(-half, half, (count, 3))
    side = rng.integers(3, size=count)
    points[np.arange(count), side] = half[side] * rng.choice([-1.0, 1.0], count)
    return shape.position + points @ np.asarray(shape.rotation).T


@pytest.mark.slow
@pytest.mark.parametrize("name", HANDS)
@pytest.mark.parametrize("width", [0.0, 0.04, 0.08])
def test_hand_and_fingers_are_within_their_shapes(name: str, width: float) -> None:
    """What is drawn of them is at most 12 mm outside of what the filter keeps off obstacles."""
    robot, rng = dynamics.load_robot(name), np.random.default_rng(0)
    topology = robot.topology
    q = np.array(robot.q_default, np.float32)
    q[-1] = 0.5 * width
    poses = dynamics.forward_kinematics(robot, q)
    position, rotation = (np.asarray(x, float) for x in poses)
    palm = robot.frame("hand").body
    drawn = [s for s in topology.visual_shapes if s.body >= palm and s.kind == "box"]
    points = np.concatenate(
        [position[s.body] + surface(s, rng) @ rotation[s.body].T for s in drawn]
    )
    spheres = Sphere(jnp.asarray(points, jnp.float32), jnp.zeros(len(points)))
    gaps = dynamics.obstacle_distances(robot, q, Obstacles(spheres))
    assert float(jnp.min(gaps, axis=0).max()) < 0.012


@pytest.mark.parametrize("name", ["panda_gripper", "ur10_gripper", "iiwa14_gripper"])
def test_hands_are_kept_off_their_arms(name: str) -> None:
    robot = dynamics.load_robot(name)
    topology = robot.topology
    palm = robot.frame("hand").body
    bodies = [s.body for s in topology.collision_shapes]
    palms = set(palm_names(robot))
    assert palms
    pairs = [(topology.collision_shapes[i].name, topology.collision_shapes[j].name)
             for i, j in topology.self_collision_pairs]  # fmt: skip
    hands = [p for p in pairs if any(n.startswith(("hand_", "palm_")) for n in p)]
    assert len(hands) >= 2
    assert all(bodies[i] != bodies[j] for i, j in topology.self_collision_pairs)
    assert palm in bodies
