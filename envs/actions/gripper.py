"""Action spaces with a gripper: another action space, followed by the gripper's width."""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.controllers.base import Controller
from fraxenv.controllers.groups import (
    ArmWithGripper,
    GripperTarget,
    finger_coordinate,
    finger_dof,
    only_finger_joint,
)
from fraxenv.dynamics import Robot
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError, check_choice

from .base import ActionAxis, ActionSpace, Displacements, Steerable, decimals
from .impedance import VariableImpedance
from .joint import JointDelta, JointPosition, JointRate, JointTorque

MODES = ("width", "binary")

_OF_JOINTS = (JointDelta, JointPosition, JointRate, JointTorque)


@pytree_dataclass
class WithGripper:
    """Another action space, followed by one number for the gripper.

    An action space of joints has no number for the finger joint then: the gripper's is in its
    place.

    Attributes:
        space: the action space in front.
        joint: name of the finger joint.
        gripper: "width": the number is mapped to 0 ... `max_width`; "binary": above zero the
            gripper opens, else it closes.
        max_width: m, between the pads.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    space: ActionSpace
    joint: str = static()
    gripper: Literal["width", "binary"] = static(default="width")
    max_width: ArrayLike = 0.08

    def __post_init__(self) -> None:
        check_choice("gripper", self.gripper, MODES)
        if isinstance(self.space, WithGripper):
            raise ConfigError(
                "WithGripper: space is a WithGripper, expected one without a gripper."
            )

    @classmethod
    def of(
        cls, space: ActionSpace, robot: Robot, gripper: Literal["width", "binary"] = "width"
    ) -> WithGripper:
        """The space with the only gripper of a robot, which opens as far as its fingers go.

        Raises:
            ConfigError: the robot has no gripper, or several; or there is no such mode.
        """
        joint = only_finger_joint(robot, f"gripper={gripper!r}")
        i = [j.name for j in robot.topology.joints].index(joint)
        furthest = float(np.asarray(robot.position_limits)[robot.topology.v_index[i], 1])
        return cls(space, joint, gripper, 2.0 * furthest)

    def axes(self, robot: Robot) -> tuple[ActionAxis, ...]:
        """Axes of the space in front, then the gripper's."""
        axes = self.space.axes(robot)
        widest = decimals("max_width", self.max_width)
        own = ActionAxis("gripper", 0.0, float(np.asarray(widest)), "m")
        return (*(axes[i] for i in self._kept(robot, len(axes))), own)

    def controller(self) -> ArmWithGripper:
        """The controller of the space in front, with the gripper's servo."""
        return ArmWithGripper(self.space.controller(), self.joint)

    def with_arm(self, arm: Controller[Any]) -> ArmWithGripper:
        """Another controller for the arm, with the gripper's servo."""
        return ArmWithGripper(arm, self.joint)

    def init(self, robot: Robot, q: Array) -> tuple[Any, Array]:
        """The state of the space in front, and the width at reset."""
        return self.space.init(robot, q), 2.0 * q[finger_coordinate(robot, self.joint)]

    def hold(self, robot: Robot, q: Array, state: tuple[Any, Array]) -> GripperTarget:
        """The target of the space in front, and the width at reset."""
        inner, width = state
        return GripperTarget(self.space.hold(robot, q, inner), width)

    def command(
        self, robot: Robot, q: Array, action: Array, state: tuple[Any, Array]
    ) -> tuple[GripperTarget, tuple[Any, Array]]:
        """The target of the space in front, and the width."""
        inner, opened = state
        arm, last = action[:-1], action[-1]
        if self._is_of_joints:
            rows = arm.reshape(-1, len(robot.topology.driven) - 1)
            arm = jnp.insert(rows, self._finger(robot), 0.0, axis=1).ravel()
        target, inner = self.space.command(robot, q, arm, inner)
        if self.gripper == "binary":
            last = jnp.where(last > 0, 1.0, -1.0).astype(action.dtype)
        width = jnp.asarray(self.max_width, action.dtype) * 0.5 * (1.0 + last)
        return GripperTarget(target, width), (inner, opened)

    def towards(self, robot: Robot, q: Array, displacements: Displacements) -> Array:
        """The action of the space in front, without what it lacks, and without the gripper.

        Raises:
            ConfigError: the space in front is not `Steerable`.
        """
        if not isinstance(self.space, Steerable):
            raise ConfigError(
                f"WithGripper: space={type(self.space).__name__} has no method `towards`, expected "
                "an action space of poses, or of joint positions or velocities."
            )
        arm = self.space.towards(robot, q, displacements)
        return arm[self._kept(robot, len(arm))]

    @property
    def _is_of_joints(self) -> bool:
        """Whether the space in front has one number, or several, for each driven joint."""
        space = self.space.space if isinstance(self.space, VariableImpedance) else self.space
        return isinstance(space, _OF_JOINTS)

    def _kept(self, robot: Robot, count: int) -> np.ndarray:
        """Of `count` numbers of the space in front, those that are not the finger joint's."""
        numbers = np.arange(count)
        if not self._is_of_joints:
            return numbers
        joints = len(robot.topology.driven)
        return np.delete(numbers, numbers % joints == self._finger(robot))

    def _finger(self, robot: Robot) -> int:
        """Which of the numbers of a space of joints is the finger joint's."""
        return int(np.flatnonzero(robot.topology.driven == finger_dof(robot, self.joint))[0])
