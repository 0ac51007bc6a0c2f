"""Action spaces of the hand: changes of its pose, and poses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.controllers import OSC, PoseTarget
from fraxenv.controllers.hands import EndEffectors, Hands
from fraxenv.dynamics import (
    Robot,
    frame_pose,
    rotation_exp,
    rotation_log,
)
from fraxenv.dynamics.kinematics import frame_poses
from fraxenv.dynamics.math.algebra import cross, matmul, norm
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError, check_choice

from .base import ActionAxis, Displacements, decimals

LINEAR, ANGULAR = ("x", "y", "z"), ("rx", "ry", "rz")
AXES = LINEAR + ANGULAR

DEGENERATE = 1e-3
"""Length below which a column of a rotation counts as zero."""


@pytree_dataclass
class HandAction(ABC):
    """The base of action spaces whose target is a pose for each hand; their state is that target.

    Several hands have their actions one after the other.

    Attributes:
        end_effector: name of the frame to move, or several in a tuple.
    """

    end_effector: EndEffectors = static(default="hand")

    def __post_init__(self) -> None:
        Hands.of(self.end_effector)

    @property
    def hands(self) -> Hands:
        """The end effectors."""
        return Hands.of(self.end_effector)

    @abstractmethod
    def axes(self, robot: Robot) -> tuple[ActionAxis, ...]:
        """The meaning of every number of an action, in order."""

    def controller(self) -> OSC:
        """Operational space control of the pose, with its defaults."""
        return OSC(self.end_effector)

    def init(self, robot: Robot, q: Array) -> PoseTarget:
        """The pose at reset is the first target."""
        return self.hands.without_axis(self._poses(robot, q))

    def hold(self, robot: Robot, q: Array, state: PoseTarget) -> PoseTarget:
        """The first target."""
        return state

    def command(
        self, robot: Robot, q: Array, action: Array, state: PoseTarget
    ) -> tuple[PoseTarget, PoseTarget]:
        """The pose to go to, which is also the next state."""
        hands = self.hands
        here, before = self._poses(robot, q), hands.with_axis(state)
        rows = action.reshape(hands.count, -1)
        goals = [self._goal(i, rows[i], _row(here, i), _row(before, i)) for i in range(hands.count)]
        goal = hands.without_axis(jax.tree.map(lambda *x: jnp.stack(x), *goals))
        return goal, goal

    def _poses(self, robot: Robot, q: Array) -> PoseTarget:
        """The measured poses as a target with an axis of hands."""
        return PoseTarget(*frame_poses(robot, q, self.hands.names))

    @abstractmethod
    def _goal(self, i: int, action: Array, here: PoseTarget, before: PoseTarget) -> PoseTarget:
        """The target of hand `i`, from its measured pose `here` and its last target `before`."""


@pytree_dataclass
class EEDelta(HandAction):
    """Move the hand: the action is a change of its pose.

    The action, `[x y z rx ry rz]` or the part of it that `axes_used` names, is scaled to metres and
    to a rotation vector in radians. With `target="measured"` the controller's new target is the
    measured pose, changed by it; with `target="desired"` it is the previous target, changed by it,
    but never further from the measured pose than one full action, so that it cannot run away from a
    blocked hand. An orientation of which no axis is commanded is held as it is at reset.

    Several hands have their actions one after the other, and scales may have one row for each.

    Attributes:
        end_effector: name of the frame to move, or several in a tuple.
        axes_used: names of an action's numbers, in the order above.
        frame: axes of the change: "base" (world axes) or "ee" (the hand's own).
        target: pose that the change is added to, "measured" or "desired".
        position_scale: m per unit of action, scalar or (3,).
        rotation_scale: rad per unit of action, scalar or (3,).

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    axes_used: tuple[str, ...] = static(default=AXES)
    frame: Literal["base", "ee"] = static(default="base")
    target: Literal["measured", "desired"] = static(default="measured")
    position_scale: ArrayLike = 0.05
    rotation_scale: ArrayLike = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        used = self.axes_used
        if not used or tuple(a for a in AXES if a in used) != tuple(used):
            raise ConfigError(
                f"axes_used={used!r}, expected some of {', '.join(map(repr, AXES))}, in this order."
            )
        check_choice("frame", self.frame, ("base", "ee"))
        check_choice("target", self.target, ("measured", "desired"))

    def axes(self, robot: Robot) -> tuple[ActionAxis, ...]:
        """Changes of position and, where commanded, of orientation."""
        hands, names = self.hands, self.hands.names
        position = decimals("position_scale", self.position_scale, len(names), 3)
        rotation = decimals("rotation_scale", self.rotation_scale, len(names), 3)
        out = []
        for i, name in enumerate(names):
            robot.frame(name)
            scales = dict(zip(AXES, position[i] + rotation[i], strict=True))
            out += [
                ActionAxis(
                    f"{hands.prefix(name)}d{a}",
                    -scales[a],
                    scales[a],
                    "m" if a in LINEAR else "rad",
                )
                for a in self.axes_used
            ]
        return tuple(out)

    def _goal(self, i: int, action: Array, here: PoseTarget, before: PoseTarget) -> PoseTarget:
        change, scale = self._six(action), self._scale(i, action.dtype)
        turns = any(a in ANGULAR for a in self.axes_used)
        start = before
        if self.target == "measured":
            start = PoseTarget(here.position, here.rotation if turns else before.rotation)
        axes = here.rotation if self.frame == "ee" else jnp.eye(3, dtype=change.dtype)
        position = start.position + matmul(axes, scale[:3] * change[:3])
        rotation = start.rotation
        if turns:
            rotation = matmul(rotation_exp(matmul(axes, scale[3:] * change[3:])), rotation)
        if self.target == "desired":
            lead = matmul(axes.T, position - here.position)
            position = here.position + matmul(axes, jnp.clip(lead, -scale[:3], scale[:3]))
            if turns:
                lead = matmul(axes.T, rotation_log(matmul(rotation, here.rotation.T)))
                lead = matmul(axes, jnp.clip(lead, -scale[3:], scale[3:]))
                rotation = matmul(rotation_exp(lead), here.rotation)
        return PoseTarget(position, rotation)

    def towards(self, robot: Robot, q: Array, displacements: Displacements) -> Array:
        """The displacements along the used axes."""
        parts = []
        for name, (move, turn) in displacements.items():
            if self.frame == "ee":
                rotation = frame_pose(robot, q, name)[1]
                move, turn = matmul(rotation.T, move), matmul(rotation.T, turn)
            six = dict(zip(AXES, jnp.concatenate([move, turn]), strict=True))
            parts += [six[axis] for axis in self.axes_used]
        return jnp.stack(parts)

    def _six(self, used: Array) -> Array:
        """The change along all axes (6,), zero along unused ones."""
        parts = dict(zip(self.axes_used, used, strict=True))
        return jnp.stack([parts.get(a, jnp.zeros((), used.dtype)) for a in AXES])

    def _scale(self, i: int, dtype: Any) -> Array:
        """Scales of hand `i` (6,)."""
        shape = (self.hands.count, 3)
        scales = (self.position_scale, self.rotation_scale)
        return jnp.concatenate([jnp.broadcast_to(jnp.asarray(s, dtype), shape)[i] for s in scales])


@pytree_dataclass
class EEPose(HandAction):
    """Set the hand's pose: the action is a pose in the world.

    The action is `[x y z]`, mapped to the workspace box, and the first two columns of the hand's
    rotation matrix, which need not be orthogonal nor of unit length (Zhou et al., "On the
    continuity of rotation representations in neural networks", CVPR 2019, section 4.2). Where a
    column is zero, or both are parallel, the orientation of the last target stays.

    Several hands have their actions one after the other.

    Attributes:
        end_effector: name of the frame to move, or several in a tuple.
        low: (3,), m, corner of the workspace box, world; or one row per hand.
        high: (3,), m, the other corner.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    low: ArrayLike = field(kw_only=True)
    high: ArrayLike = field(kw_only=True)

    def axes(self, robot: Robot) -> tuple[ActionAxis, ...]:
        """Position, and two columns of the rotation matrix."""
        hands, names = self.hands, self.hands.names
        low = decimals("low", self.low, len(names), 3)
        high = decimals("high", self.high, len(names), 3)
        out = []
        for i, name in enumerate(names):
            robot.frame(name)
            start = hands.prefix(name)
            box = zip(LINEAR, low[i], high[i], strict=True)
            out += [ActionAxis(start + a, smallest, largest, "m") for a, smallest, largest in box]
            out += [ActionAxis(f"{start}r{c}{a}", -1.0, 1.0, "1") for c in "xy" for a in LINEAR]
        return tuple(out)

    def towards(self, robot: Robot, q: Array, displacements: Displacements) -> Array:
        """The poses after the displacements."""
        parts = []
        for name, (move, turn) in displacements.items():
            position, rotation = frame_pose(robot, q, name)
            columns = matmul(rotation_exp(turn), rotation)[:, :2]
            parts += [position + move, columns.T.ravel()]
        return jnp.concatenate(parts)

    def _goal(self, i: int, action: Array, here: PoseTarget, before: PoseTarget) -> PoseTarget:
        shape = (self.hands.count, 3)
        corners = (jnp.asarray(x, action.dtype) for x in (self.low, self.high))
        low, high = (jnp.broadcast_to(x, shape)[i] for x in corners)
        return PoseTarget(
            low + (high - low) * 0.5 * (1 + action[:3]),
            rotation_from_columns(action[3:6], action[6:9], before.rotation),
        )


def _row(poses: PoseTarget, i: int) -> PoseTarget:
    return PoseTarget(poses.position[i], poses.rotation[i])


def rotation_from_columns(x: Array, y: Array, instead: Array) -> Array:
    """The rotation (3, 3) of two columns (3,), by Gram-Schmidt; `instead` of degenerate ones."""
    safe_x = jnp.where(norm(x) > DEGENERATE, x, jnp.eye(3, dtype=x.dtype)[0])
    first = safe_x / norm(safe_x)
    rest = y - jnp.sum(first * y) * first
    defined = (norm(x) > DEGENERATE) & (norm(rest) > DEGENERATE)
    # Of degenerate columns, any second one not parallel to the first, so that nothing is NaN.
    other = jnp.where(jnp.abs(first[0]) < 0.9, jnp.eye(3, dtype=x.dtype)[0], jnp.eye(3)[1])
    rest = jnp.where(defined, rest, cross(first, other.astype(x.dtype)))
    second = rest / norm(rest)
    columns = jnp.stack([first, second, cross(first, second)], axis=1)
    return jnp.where(defined, columns, instead)
