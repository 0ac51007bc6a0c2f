"""Groups: an arm's controller together with the servo of a gripper's fingers."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError, check_not_negative, unknown_name

from .base import Controller, Telemetry, check_target, checked_array, finite_or


def finger_joints(robot: Robot) -> tuple[str, ...]:
    """Names of the joints that open and close the robot's grippers, one for each.

    Such a joint is prismatic and moves one finger; the other one, on the same link, mimics it.
    """
    topology = robot.topology
    followed = [
        j.mimic.joint
        for j, parent in zip(topology.joints, topology.parent, strict=True)
        if j.mimic is not None
        and j.kind == topology.joints[j.mimic.joint].kind == "prismatic"
        and parent == topology.parent[j.mimic.joint]
    ]
    return tuple(topology.joints[i].name for i in dict.fromkeys(followed))


def finger_dof(robot: Robot, joint: str) -> int:
    """Index into `v` of a gripper's coordinate.

    Raises:
        UnknownNameError: the robot has no such finger joint.
    """
    known = finger_joints(robot)
    if joint not in known:
        raise unknown_name("finger joint", joint, known, f"of robot {robot.name!r}")
    topology = robot.topology
    return int(topology.v_index[[j.name for j in topology.joints].index(joint)])


def finger_mask(robot: Robot) -> np.ndarray:
    """(nv,) bool, which degrees of freedom are those of grippers."""
    mask = np.zeros(robot.nv, bool)
    mask[[finger_dof(robot, joint) for joint in finger_joints(robot)]] = True
    return mask


def finger_coordinate(robot: Robot, joint: str) -> int:
    """Index into `q` of a gripper's coordinate: half of its width.

    Raises:
        UnknownNameError: the robot has no such finger joint.
    """
    return int(np.asarray(robot.topology.dof_coordinate)[finger_dof(robot, joint)])


@pytree_dataclass
class GripperTarget:
    """A target of the arm's controller, and the width of the gripper.

    Attributes:
        arm: target of the arm's controller.
        width: (), m, between the fingers' pads.
    """

    arm: Any
    width: Array


@pytree_dataclass
class ArmWithGripper:
    """An arm's controller, and a servo of limited force for the fingers.

    The arm's controller works out all torques; the one of the fingers is replaced by

        clip(kp (width / 2 - x), -force, force)

    where `x` is the fingers' coordinate, half of the width. The servo's damper is the joint's own
    damping, which the physics integrates implicitly. Both pads share the force: what is held is
    pressed by half of it from either side.

    Attributes:
        arm: the arm's controller.
        joint: name of the finger joint; one of `finger_joints(robot)`.
        gripper_kp: N/m, stiffness of the coordinate.
        gripper_force: N, greatest force on it.

    Raises:
        ConfigError: a gain is negative.
    """

    arm: Controller[Any]
    joint: str = static()
    gripper_kp: ArrayLike = 1000.0
    gripper_force: ArrayLike = 40.0

    def __post_init__(self) -> None:
        check_not_negative(self, "gripper_kp", "gripper_force")

    def init(self, robot: Robot, terms: Terms) -> Any:
        """The state of the arm's controller.

        Raises:
            UnknownNameError: the robot has no such finger joint.
        """
        finger_dof(robot, self.joint)
        return self.arm.init(robot, terms)

    def __call__(
        self, robot: Robot, terms: Terms, target: GripperTarget, state: Any, dt: ArrayLike
    ) -> tuple[Array, Any, Telemetry]:
        """Torques (nv,), N m and N; the arm's next state; telemetry.

        Telemetry: that of the arm's controller, and `gripper_width` (m). `target_finite` is False
        as well if the width is not finite: the fingers are then held where they are.

        Raises:
            UnknownNameError: the robot has no such finger joint.
            ConfigError: the target is no `GripperTarget`.
            ArrayError: the width is not a single number.
        """
        check_target(self, target, GripperTarget)
        dof = finger_dof(robot, self.joint)
        tau, state, telemetry = self.arm(robot, terms, target.arm, state, dt)
        x = terms.q[finger_coordinate(robot, self.joint)]
        width = checked_array(f"{type(self).__name__}: target.width", target.width, (), x.dtype)
        width, finite = finite_or(width, 2.0 * x)
        kp, most = (jnp.asarray(g, x.dtype) for g in (self.gripper_kp, self.gripper_force))
        servo = jnp.clip(kp * (0.5 * width - x), -most, most)
        finite = finite & telemetry.get("target_finite", True)
        telemetry = telemetry | {"gripper_width": 2.0 * x, "target_finite": finite}
        return tau.at[dof].set(servo), state, telemetry


def only_finger_joint(robot: Robot, where: str) -> str:
    """The finger joint of a robot with one gripper.

    Raises:
        ConfigError: it has none, or several.
    """
    joints = finger_joints(robot)
    if len(joints) != 1:
        has = f"has the fingers {', '.join(joints)}" if joints else "has no fingers"
        raise ConfigError(
            f"{where}: robot {robot.name!r} {has}, expected one pair of them: a prismatic joint, "
            "and another one on the same link that mimics it, as dynamics.load_robot("
            "'panda_gripper') has. Leave gripper out, or take such a robot."
        )
    return joints[0]
