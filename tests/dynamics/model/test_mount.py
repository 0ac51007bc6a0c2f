"""Robots at other places: everything moves with the root link, and gravity stays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fraxenv import dynamics
from fraxenv.errors import ArrayError

POSITION = np.array([0.3, -0.2, 0.8])
ROTATION = np.asarray(dynamics.rotation_exp(jnp.array([0.4, -1.1, 0.7])), float)
ROTATION = np.linalg.svd(ROTATION)[0] @ np.linalg.svd(ROTATION)[2]  # to float64


@pytest.mark.parametrize("name", ["panda", "planar_mobile_manipulator"])
def test_frames_move_and_gravity_stays(x64: None, name: str) -> None:
    robot = dynamics.load_robot(name)
    mounted = dynamics.mount(robot, POSITION, ROTATION)
    rng = np.random.default_rng(0)
    q = np.asarray(robot.q_default) + rng.uniform(-0.3, 0.3, robot.nq)
    v, tau = rng.normal(size=(2, robot.nv))

    @jax.jit
    def seen(robot: dynamics.Robot) -> tuple[list[tuple[Array, Array]], Array, Array]:
        kin = dynamics.compute_kinematics(robot, q)
        poses = [dynamics.frame_pose(robot, q, name, kin=kin) for name in robot.frame_names]
        a = dynamics.forward_dynamics(robot, q, v, tau, kin=kin)
        return poses, a, dynamics.robot_geometry(robot, q, kin=kin).spheres.position

    turned = robot.replace(gravity=ROTATION.T @ np.asarray(robot.gravity))
    (moved, a, centres), (poses, expected, own) = map(seen, (mounted, turned))
    for (p, R), (position, rotation) in zip(poses, moved, strict=True):
        np.testing.assert_allclose(position, POSITION + ROTATION @ p, atol=1e-12)
        np.testing.assert_allclose(rotation, ROTATION @ R, atol=1e-12)
    np.testing.assert_allclose(a, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(centres, POSITION + np.asarray(own) @ ROTATION.T, atol=1e-12)
    np.testing.assert_array_equal(
        robot.topology.position[0], dynamics.load_robot(name).topology.position[0]
    )


def test_shapes_of_the_root_link_move_too() -> None:
    robot = dynamics.load_robot("panda")
    mounted = dynamics.mount(robot, (0.0, 0.0, 1.0))
    for before, after in zip(
        robot.topology.visual_shapes, mounted.topology.visual_shapes, strict=True
    ):
        lifted = 1.0 if before.body == dynamics.WORLD else 0.0
        np.testing.assert_allclose(after.position - before.position, [0, 0, lifted], atol=1e-12)
    assert mounted.topology != robot.topology
    assert mounted.topology == dynamics.mount(robot, (0.0, 0.0, 1.0)).topology


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((0.0, 0.0),), r"position=\(0.0, 0.0\), expected three finite"),
        (((0.0, 0.0, np.nan),), "expected three finite numbers, m"),
        (((0.0, 0.0, 0.0), np.diag([1.0, 1.0, -1.0])), "orthogonal, with determinant 1"),
        (((0.0, 0.0, 0.0), 2 * np.eye(3)), "orthogonal, with determinant 1"),
    ],
)
def test_wrong_places(arguments: Any, message: str) -> None:
    with pytest.raises(ArrayError, match=message):
        dynamics.mount(dynamics.load_robot("panda"), *arguments)
