"""The poses of hands that controllers' targets mean, and the ways there."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from fraxenv.controllers import JointTarget, PoseTarget
from fraxenv.controllers.groups import GripperTarget
from fraxenv.dynamics import Robot, frame_pose, orientation_error
from fraxenv.errors import ConfigError


class HandPoses(NamedTuple):
    """Where hands should be.

    Attributes:
        position: (h, 3), m, world.
        rotation: (h, 3, 3), of the hands, to world.
        width: (), m, of the gripper; zero if there is none.
    """

    position: Array
    rotation: Array
    width: Array


def target_poses(robot: Robot, target: Any, hands: tuple[str, ...]) -> HandPoses:
    """The poses of h hands that a controller's target means.

    Raises:
        ConfigError: the target is neither of poses nor of joint positions.
    """
    width = jnp.zeros(())
    if isinstance(target, GripperTarget):
        target, width = target.arm, target.width
    if isinstance(target, PoseTarget):
        shape = target.position.reshape(-1, 3), target.rotation.reshape(-1, 3, 3)
        return HandPoses(*shape, width)
    if not isinstance(target, JointTarget):
        raise ConfigError(
            f"actions that mean a {type(target).__name__}, expected ones that mean poses of hands, "
            "or joint positions: only those say where hands should be."
        )
    poses = [frame_pose(robot, target.position, hand) for hand in hands]
    return HandPoses(jnp.stack([p for p, _ in poses]), jnp.stack([R for _, R in poses]), width)


def ways_to(
    robot: Robot, q: Array, hands: tuple[str, ...], poses: HandPoses
) -> list[tuple[Array, Array]]:
    """Displacement (3,), m, and turn (3,), rad, of each hand at `q` (nq,), world axes."""
    ways = []
    for hand, position, rotation in zip(hands, poses.position, poses.rotation, strict=True):
        here, R = frame_pose(robot, q, hand)
        ways.append((position - here, orientation_error(rotation, R)))
    return ways
