"""The action spaces by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from fraxenv.controllers.pose import EndEffectors
from fraxenv.dynamics.errors import unknown_name

from .action_space import ActionSpace
from .ee_actions import LINEAR, EEDelta, EEPose
from .impedance_actions import VariableImpedance
from .joint_actions import JointDelta, JointPosition, JointRate, JointTorque

IMPEDANCE = "+impedance"
"""Appended to the name of an action space: its gains are actions as well."""

Box = tuple[ArrayLike, ArrayLike]

ACTION_SPACES: dict[str, Callable[[EndEffectors, Box], ActionSpace]] = {
    "ee_delta_pose": lambda hands, box: EEDelta(hands),
    "ee_delta_position": lambda hands, box: EEDelta(hands, axes_used=LINEAR),
    "ee_pose": lambda hands, box: EEPose(hands, low=box[0], high=box[1]),
    "joint_delta": lambda hands, box: JointDelta(),
    "joint_position": lambda hands, box: JointPosition(),
    "joint_velocity": lambda hands, box: JointRate(),
    "torque": lambda hands, box: JointTorque(),
}
"""Name -> constructor; each takes the end effectors and the workspace box, its corners in m."""


def action_names() -> list[str]:
    """All names that `make_action` knows, those with `+impedance` among them."""
    with_gains = ("ee_delta_pose", "ee_delta_position", "ee_pose", "joint_delta", "joint_position")
    return [*ACTION_SPACES, *(n + IMPEDANCE for n in with_gains)]


def make_action(name: str, end_effector: EndEffectors, workspace: Box) -> ActionSpace:
    """The action space of a name, with its default options.

    Args:
        name: one of `action_names()`.
        end_effector: the frame to move, or several in a tuple.
        workspace: two corners (3,), m, of the box that absolute positions are mapped to; or one row
            for each end effector.

    Raises:
        UnknownNameError: there is no such action space; names the closest ones.
    """
    if name not in action_names():
        raise unknown_name("action space", name, action_names())
    space: Any = ACTION_SPACES[name.removesuffix(IMPEDANCE)](end_effector, workspace)
    return VariableImpedance(space) if name.endswith(IMPEDANCE) else space
