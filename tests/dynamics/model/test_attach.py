"""Attached hands: the Panda with fingers that move against the one whose fingers are fixed."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import Array

from fraxenv import dynamics
from fraxenv.dynamics.model.bundled import bundled_urdf
from fraxenv.dynamics.model.combine import extract, member_slices
from fraxenv.errors import ConfigError, RobotLoadError, UnknownNameError

FINGER = "panda_finger_joint1"
HALF_OPEN = 0.02  # m, as the fingers of panda.urdf are


@jax.jit
def numbers(robot: dynamics.Robot, q: Array, v: Array) -> tuple[Array, ...]:
    """Mass matrices, bias forces, and poses of the hand, of a batch."""

    def single(q: Array, v: Array) -> tuple[Array, ...]:
        terms = dynamics.compute_terms(robot, q, v)
        pose = dynamics.frame_pose(robot, q, "hand", kin=terms.kin)
        return terms.mass_matrix, terms.bias, *pose

    return jax.vmap(single)(q, v)


def test_a_half_open_gripper_is_the_panda(x64: None, panda: dynamics.Robot) -> None:
    """Mass matrix, bias forces and the hand's pose; the fingers weigh on no joint of the arm."""
    gripper = dynamics.load_robot("panda_gripper")
    assert (gripper.nq, gripper.joint_names[-1]) == (8, FINGER)
    rng = np.random.default_rng(0)
    q, v = np.asarray(panda.q_default) + rng.uniform(-0.5, 0.5, (5, 7)), rng.uniform(-1, 1, (5, 7))
    Q, V = np.insert(q, 7, HALF_OPEN, axis=1), np.insert(v, 7, 0.0, axis=1)
    M, bias, *pose = numbers(gripper, Q, V)
    expected, arms_bias, *arms_pose = numbers(panda, q, v)
    np.testing.assert_allclose(M[:, :7, :7], expected, atol=1e-12)
    np.testing.assert_allclose(M[:, 7], [[0] * 7 + [0.03]] * 5, atol=1e-12)
    np.testing.assert_allclose(bias[:, :7], arms_bias, atol=1e-12)
    for ours, theirs in zip(pose, arms_pose, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_locked_fingers_make_it_the_panda(panda: dynamics.Robot) -> None:
    locked = dynamics.lock_joints(dynamics.load_robot("panda_gripper"), [FINGER])
    for leaf in ("mass", "com", "inertia", "position_limits", "effort_limits", "q_default"):
        np.testing.assert_allclose(getattr(locked, leaf), getattr(panda, leaf), atol=1e-12)
    names = [
        [{r.topology.collision_shapes[i].name for i in pair} for pair in
         r.topology.self_collision_pairs]
        for r in (locked, panda)
    ]  # fmt: skip
    assert all(pair in names[0] for pair in names[1])
    assert len(names[0]) == len(names[1])


def test_the_pads_meet_at_width_zero() -> None:
    """Full sizes 17.5 x 15.2 x 18.5 mm, around the tool centre point."""
    robot = dynamics.load_robot("panda_gripper")
    pads = [s for s in robot.topology.collision_shapes if s.name.endswith("_pad")]
    assert [p.size for p in pads] == [(0.0175, 0.0152, 0.0185)] * 2
    for x in (0.0, 0.04):
        q = np.append(robot.q_default[:7], x)
        _, _, (centre,), (axes,) = numbers(robot, q[None], np.zeros((1, 8)))
        poses = jax.jit(dynamics.forward_kinematics)(robot, q)
        at = [poses.position[p.body] + poses.rotation[p.body] @ p.position for p in pads]
        inner = [float((a - centre) @ axes[:, 1]) for a in at]
        np.testing.assert_allclose(inner, [x + 0.0076, -x - 0.0076], atol=1e-6)


def test_assemblies_are_known_by_name() -> None:
    grippers = ["iiwa14_gripper", "panda_gripper", "ur10_gripper"]
    assert dynamics.list_assemblies() == ["b2z1_gripper", "g1_feet", *grippers]
    assert "franka_hand" not in dynamics.list_robots()
    with pytest.raises(UnknownNameError, match="Did you mean 'panda_gripper'"):
        dynamics.load_robot("panda_griper")
    assert dynamics.load_robot("panda_gripper", floating_base=True).nv == 14


@pytest.mark.parametrize("arm", ["ur10", "iiwa14"])
def test_hands_on_bare_flanges(x64: None, arm: str) -> None:
    """The hand is 92.4 mm beyond the flange, weighs on the arm, and the fingers do not."""
    bare, robot = dynamics.load_robot(arm), dynamics.load_robot(f"{arm}_gripper")
    assert (robot.nv, robot.end_effectors) == (bare.nv + 1, ("hand",))
    assert np.sum(robot.mass) == pytest.approx(np.sum(bare.mass) + 0.66, abs=1e-9)
    q = np.asarray(bare.q_default) + 0.1
    flange, axes = jax.jit(dynamics.frame_pose, static_argnums=2)(bare, q, "hand")
    # Payloads do not depend on how far the fingers are open, which is symmetric.
    opened = np.stack([np.append(q, x) for x in (0.0, 0.04)])
    M, (closed, wide), hand, turned = numbers(robot, opened, np.zeros((2, robot.nv)))
    np.testing.assert_allclose(hand[0], flange + 0.0924 * axes[:, 2], atol=1e-12)
    np.testing.assert_allclose(turned[0], axes, atol=1e-12)
    np.testing.assert_allclose(M[1, -1], [0] * bare.nv + [0.06], atol=1e-12)
    np.testing.assert_allclose(wide[:-1], closed[:-1], atol=1e-12)


def test_the_z1s_gripper(x64: None) -> None:
    """A stator on the wrist, and a mover that turns about an axis 0.1 m ahead of it."""
    bare, robot = dynamics.load_robot("b2z1"), dynamics.load_robot("b2z1_gripper")
    assert (robot.nq, robot.nv) == (26, 25)
    assert set(robot.end_effectors) == set(bare.end_effectors)
    assert np.sum(robot.mass) == pytest.approx(np.sum(bare.mass) + 0.52603655 + 0.27621302)
    q = np.append(bare.q_default, -0.4)
    wrist, axes = jax.jit(dynamics.frame_pose, static_argnums=2)(bare, bare.q_default, "wrist_3")
    M, _, (hand,), _ = numbers(robot, q[None], np.zeros((1, robot.nv)))
    np.testing.assert_allclose(hand, wrist + 0.16 * axes[:, 0], atol=1e-12)
    # The mover's inertia about its axis, by the parallel axis theorem, and the rotor's.
    about = 0.00026787 + 0.27621302 * (0.01320633**2 + 0.00380534**2)
    assert M[0, -1, -1] == pytest.approx(about + 0.01, abs=1e-12)


def test_one_precision_within_another(x64: None) -> None:
    """Indices of robots that were put together fit traces of float32 where x64 is the rule."""
    whole, hand = dynamics.load_robot("b2z1_gripper"), dynamics.load_robot("panda_gripper")
    both = dynamics.combine(whole, hand, prefixes=("legs_", "arm_"))
    _, member = member_slices(whole, hand)
    for robot in (whole, dynamics.lock_joints(whole, ["joint6"]), both, extract(both, member, "")):
        assert robot.topology.parent.dtype == np.int32


def test_refusals() -> None:
    panda, hand = bundled_urdf("panda"), bundled_urdf("franka_hand")
    with pytest.raises(RobotLoadError, match=r"without=\['hand'\] names the link 'hand', expected"):
        dynamics.load_urdf(panda, without=["hand"])
    arm = dynamics.load_urdf(panda, without=["panda_hand"])
    with pytest.raises(ConfigError, match=r"is fixed in the world.*floating_base=True"):
        dynamics.attach(arm, dynamics.load_urdf(hand), "panda_link8")
    tool = dynamics.load_urdf(hand, floating_base=True)
    with pytest.raises(UnknownNameError, match="'flange'"):
        dynamics.attach(arm, tool, "flange")
    with pytest.raises(ConfigError, match="pairs names 'thumb'"):
        dynamics.attach(arm, tool, "panda_link8", pairs=[("thumb", "link0_1")])


def test_links_left_out_take_what_names_them_along() -> None:
    arm = dynamics.load_urdf(
        bundled_urdf("panda"),
        without=["panda_hand"],
        end_effectors={"hand": "panda_hand_tcp", "flange": "panda_link8"},
        self_collision_pairs=[("link0_1", "link6_2"), ("link0_1", "hand_1")],
    )
    assert arm.end_effectors == ("flange",)
    assert len(arm.topology.self_collision_pairs) == 1
    assert not {"panda_hand", "panda_leftfinger", "panda_hand_tcp"} & set(arm.frame_names)
