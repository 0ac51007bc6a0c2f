"""Followers freed: the same mechanics with a coordinate more, held to the leader's."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from fraxenv import dynamics
from fraxenv.dynamics import box_geom, build_scene, free_body, joint_equality, plane_geom
from fraxenv.dynamics.crba import crba
from fraxenv.dynamics.scene.followers import free_followers
from fraxenv.dynamics.scene.step import scene_step

FINGER = 7


@pytest.fixture
def scene(x64: None):
    robot = dynamics.load_robot("panda_gripper")
    robot = robot.replace(friction=np.full(robot.nv, 0.5), armature=np.full(robot.nv, 0.1))
    cube = free_body("cube", box_geom("", (0.02,) * 3), mass=0.1, position=(0.5, 0, 0.02))
    return build_scene(robot, [cube], [plane_geom("table")], integrator="discrete")


def test_it_moves_as_before(scene) -> None:
    """With equal coordinates it has the energy, the power lost and the places that it had."""
    freed, q_of, v_of = free_followers(scene)
    assert (freed.nq, freed.nv) == (scene.nq + 1, scene.nv + 1)
    rng = np.random.default_rng(0)
    q = np.array(scene.system.q_default)
    q[:8] += rng.uniform(-0.01, 0.01, 8)
    full = q_of.out(q)
    np.testing.assert_allclose(q_of.back(full), q, rtol=0, atol=1e-15)
    assert full[FINGER] == full[FINGER + 1]
    J = np.stack([v_of.out(unit) for unit in np.eye(scene.nv)], axis=1)
    np.testing.assert_allclose(
        J.T @ jax.jit(crba)(freed.system, full) @ J, jax.jit(crba)(scene.system, q), atol=1e-13
    )
    for name in ("damping", "armature", "friction"):
        ours, theirs = (np.asarray(getattr(s.system, name)) for s in (scene, freed))
        np.testing.assert_allclose(J.T @ np.diag(theirs) @ J, np.diag(ours), atol=1e-13)
    ours, theirs = (
        jax.jit(dynamics.frame_pose, static_argnums=2)(s.system, x, "panda_rightfinger")[0]
        for s, x in ((scene, q), (freed, full))
    )
    np.testing.assert_allclose(theirs, ours, atol=1e-14)
    assert freed.equality_names == ("panda_finger_joint2 follows",)
    assert freed.members["cube"].q == slice(9, 16)


@pytest.mark.slow
def test_it_stays_together(scene) -> None:
    """Fingers that close on nothing, and the hand shaken: both are where they would be in one."""
    freed, q_of, v_of = free_followers(scene)
    tau = np.zeros(scene.nv)
    tau[:8] = [5.0, -20.0, 5.0, 10.0, 1.0, 1.0, 0.5, -5.0]

    def motion(scene, q, tau):
        def step(state, _):
            q, v, _ = scene_step(scene, *state, tau)
            return (q, v), q

        return jax.lax.scan(step, (q, np.zeros(len(tau))), None, 100)[1]

    q = np.asarray(scene.system.q_default, float)
    ours = np.asarray(jax.jit(lambda: motion(scene, q, tau))())
    theirs = np.asarray(
        jax.jit(lambda: motion(freed, q_of.out(q), v_of.share * tau[v_of.source]))()
    )
    assert np.ptp(ours[:, FINGER]) > 0.005
    assert np.ptp(ours[:, 1]) > 0.05
    assert np.abs(theirs[:, FINGER] - theirs[:, FINGER + 1]).max() < 2e-5
    back = np.array([q_of.back(x) for x in theirs])
    assert np.abs(back - ours).max() < 2e-4


def test_what_is_numbered_by_joint_is_numbered_anew() -> None:
    """A coupling of joints, and limits, behind the follower."""
    hand, arm = dynamics.load_robot("panda_gripper"), dynamics.load_robot("double_pendulum")
    names = [j.name for j in arm.topology.joints]
    scene = build_scene(hand, [arm], pairs=[], equalities=[joint_equality(*names)])
    freed = free_followers(scene).scene
    first = freed.constraints.layout.equalities[0]
    assert [freed.system.topology.dof_names[i] for i in (first.first, first.second)] == names
    for s in (scene, freed):
        limited = [s.system.topology.dof_names[i] for i in s.constraints.layout.limited]
        assert "panda_finger_joint1" in limited
        assert "panda_finger_joint2" not in limited
    assert freed.to_mujoco().neq == 2


def test_without_followers_it_is_the_same_scene() -> None:
    scene = build_scene(dynamics.load_robot("panda"), pairs=[])
    freed, q_of, _ = free_followers(scene)
    assert freed.system.topology == scene.system.topology
    np.testing.assert_array_equal(q_of.source, np.arange(scene.nq))
