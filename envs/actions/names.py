"""The action spaces by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from fraxenv.controllers.hands import EndEffectors
from fraxenv.errors import unknown_name

from .base import ActionSpace
from .hand import AXES, LINEAR, EEDelta, EEPose
from .impedance import VariableImpedance
from .joint import JointDelta, JointPosition, JointRate, JointTorque

IMPEDANCE = "+impedance"
"""Appended to the name of an action space: its gains are actions as well."""

Box = tuple[ArrayLike, ArrayLike]
Axes = tuple[str, ...]

ACTION_SPACES: dict[str, Callable[[EndEffectors, Box, Axes], ActionSpace]] = {
    "ee_delta_pose": lambda hands, box, axes: EEDelta(hands, axes),
    "ee_delta_position": lambda hands, box, axes: EEDelta(
        hands, tuple(a for a in axes if a in LINEAR)
    ),
    "ee_pose": lambda hands, box, axes: EEPose(hands, low=box[0], high=box[1]),
    "joint_delta": lambda hands, box, axes: JointDelta(),
    "joint_position": lambda hands, box, axes: JointPosition(),
    "joint_velocity": lambda hands, box, axes: JointRate(),
    "torque": lambda hands, box, axes: JointTorque(),
}
"""Name -> constructor; each takes the arguments of `make_action`."""


def action_names() -> list[str]:
    """All names for `make_action`, including the ones with `+impedance`."""
    with_gains = ("ee_delta_pose", "ee_delta_position", "ee_pose", "joint_delta", "joint_position")
    return [*ACTION_SPACES, *(n + IMPEDANCE for n in with_gains)]


def joint_action_names() -> list[str]:
    """Of these names those of the joints, which need no hand and no base that stands."""
    return [name for name in action_names() if not name.startswith("ee_")]


def make_action(
    name: str, end_effector: EndEffectors, workspace: Box, axes: Axes = AXES
) -> ActionSpace:
    """The action space of a name, with its default options.

    Args:
        name: one of `action_names()`.
        end_effector: the frame to move, or several in a tuple.
        workspace: two corners (3,), m, of the box that absolute positions are mapped to; or one row
            for each end effector.
        axes: axes of `EEDelta` along which the hands can move.

    Raises:
        UnknownNameError: there is no such action space; names the closest ones.
    """
    if name not in action_names():
        raise unknown_name("action space", name, action_names())
    space: Any = ACTION_SPACES[name.removesuffix(IMPEDANCE)](end_effector, workspace, axes)
    return VariableImpedance(space) if name.endswith(IMPEDANCE) else space
