"""The base of pose controllers: options, checks, set-points, telemetry."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms
from fraxenv.dynamics.kinematics import frame_poses
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import check_choice, check_not_negative

from .base import Telemetry, check_target, checked_array, finite_or
from .hands import EndEffectors, Hands, PoseTarget
from .impedance import broadcast_gain
from .redundancy import POSTURES, PRIORITIES, Posture, Priority
from .setpoint import Ramp, interpolated, ramp_at

_SHAPES = {
    "position": (3,),
    "rotation": (3, 3),
    "velocity": (6,),
    "acceleration": (6,),
    "wrench": (6,),
    "kp": (6,),
    "damping_ratio": (6,),
}


@pytree_dataclass
class PoseController(ABC):
    """A controller that steers one frame, or several, to target poses.

    Attributes:
        end_effector: name of the frame to steer, or several in a tuple; then every array of the
            target has a leading axis, and so have errors and conditioning in the telemetry.
        task: "pose" steers position and orientation, "position" leaves the orientation free.
        posture: configuration that the nullspace is pulled to: the robot's default, the centre of
            its position limits (the default where there is none), zero, or "none" for no pull.
        priority: of several end effectors with conflicting targets, "equal" lets all give way,
            "ordered" the later ones: they move in the nullspace of the ones before them.
        max_linear_velocity: m/s, of the approach; may be infinite.
        max_angular_velocity: rad/s; may be infinite.
        singularity_damping: damping, at a singularity and far from the target, of the matrix that
            the control law inverts, relative to its mean diagonal. It vanishes with the error, so
            that a target near a singularity is reached exactly, and away from singularities.
        singularity_threshold: conditioning below which the damping sets in: the determinant of
            that matrix, scaled to a unit diagonal on average, 1 where all directions are equally
            easy and 0 at a singularity. A good value is a third of the conditioning in a
            comfortable posture.
        interpolation_time: s, in which the set-point reaches a new target, on a straight line from
            where it is; None to jump.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    end_effector: EndEffectors = static()
    task: Literal["pose", "position"] = static(default="pose")
    posture: Posture = static(default="default")
    priority: Priority = static(default="equal")
    max_linear_velocity: ArrayLike = 1.0
    max_angular_velocity: ArrayLike = 2.5
    singularity_damping: ArrayLike = 0.2
    singularity_threshold: ArrayLike = 1e-3
    interpolation_time: ArrayLike | None = None

    def __post_init__(self) -> None:
        Hands.of(self.end_effector)
        check_choice("task", self.task, ("pose", "position"))
        check_choice("posture", self.posture, POSTURES)
        check_choice("priority", self.priority, PRIORITIES)
        check_not_negative(self, "max_linear_velocity", "max_angular_velocity")
        check_not_negative(self, "singularity_damping", "singularity_threshold")
        check_not_negative(self, "interpolation_time")

    @property
    def hands(self) -> Hands:
        """The end effectors."""
        return Hands.of(self.end_effector)

    def init(self, robot: Robot, terms: Terms) -> Ramp | None:
        """Set-points where the end effectors are; None where targets are not interpolated.

        Raises:
            UnknownNameError: the robot has no such end effector.
        """
        self.hands.check(robot)
        if self.interpolation_time is None:
            return None
        return ramp_at(*frame_poses(robot, terms.q, self.hands.names, kin=terms.kin))

    def __call__(
        self,
        robot: Robot,
        terms: Terms,
        target: PoseTarget,
        state: Ramp | None,
        dt: ArrayLike,
    ) -> tuple[Array, Ramp | None, Telemetry]:
        """Torques (nv,), N m; the next state; telemetry.

        Telemetry: `position_error` (m) and `orientation_error` (rad) of the hand from the
        set-point, `conditioning` (as in `singularity_threshold`), `target_finite` (bool; if not,
        the hand is braked where it is), and the telemetry of the control law.

        Raises:
            UnknownNameError: the robot has no such end effector.
            ConfigError: the target is no `PoseTarget`, or has fields that the law cannot follow.
            ArrayError: an array of the target, or a gain, has the wrong shape.
        """
        hands = self.hands
        hands.check(robot)
        dt = jnp.asarray(dt, terms.v.dtype)
        goal = self.checked_target(target, terms.v.dtype)
        here = frame_poses(robot, terms.q, hands.names, kin=terms.kin)
        goal, finite = finite_or(goal, hold_target(goal, *here, **self._gains()))
        ramp = state
        if self.interpolation_time is not None:
            goal, ramp = interpolated(goal, state, self.interpolation_time, dt)
        tau, telemetry = self._law(robot, terms, goal)
        return tau, ramp, telemetry | {"target_finite": finite}

    def checked_target(self, target: PoseTarget, dtype: jnp.dtype) -> PoseTarget:
        """The target, checked, with an axis of hands.

        Raises:
            ConfigError: the target is no `PoseTarget`, or has fields that the law cannot follow.
            ArrayError: an array of the target has the wrong shape.
        """
        check_target(self, target, PoseTarget)
        hands = self.hands
        note = "" if hands.alone else f": one row for each of {', '.join(map(repr, hands.names))}"
        arrays = {}
        for name, shape in _SHAPES.items():
            value = getattr(target, name)
            if value is not None:
                expected = shape if hands.alone else (hands.count, *shape)
                what = f"{type(self).__name__}: target.{name}"
                arrays[name] = checked_array(what, value, expected, dtype, note)
        return hands.with_axis(PoseTarget(**arrays))

    @abstractmethod
    def _gains(self) -> dict[str, Any]:
        """The gains that a target may replace."""

    @abstractmethod
    def _law(self, robot: Robot, terms: Terms, goal: PoseTarget) -> tuple[Array, Telemetry]:
        """The control law: torques (nv,) for a set-point with an axis of hands; and telemetry."""


def hold_target(
    target: PoseTarget, position: Array, rotation: Array, **gains: ArrayLike
) -> PoseTarget:
    """A target with the fields of another one, that brings the hands to rest at these poses.

    Args:
        target: the other one, with an axis of k hands.
        position: (k, 3), m.
        rotation: (k, 3, 3).
        **gains: of the controller, in place of the target's.
    """
    rest: PoseTarget = jax.tree.map(jnp.zeros_like, target)
    own = {
        name: None
        if (x := getattr(target, name)) is None
        else broadcast_gain(name, gain, x.shape, x.dtype)
        for name, gain in gains.items()
    }
    return dataclasses.replace(rest, position=position, rotation=rotation, **own)
