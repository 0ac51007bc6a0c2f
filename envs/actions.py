"""Action spaces: what the numbers in [-1, 1] that a policy emits mean.

An action space is an immutable pytree. It turns a normalised action into a controller's target,
once per policy step, and may remember something in an explicit state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.controllers import OSC, Controller, PoseTarget, Torque
from fraxenv.dynamics import Robot, frame_pose, rotation_exp, rotation_log
from fraxenv.dynamics.algebra import matmul
from fraxenv.dynamics.errors import ConfigError, check_choice


@dataclass(frozen=True)
class ActionAxis:
    """What one number of an action means: it is mapped linearly from [-1, 1] to [low, high]."""

    name: str
    low: float
    high: float
    unit: str


class ActionSpace(Protocol):
    """The map from actions in [-1, 1] to a controller's targets."""

    def axes(self, robot: Robot) -> tuple[ActionAxis, ...]:
        """The meaning of every number of an action, in order."""

    def controller(self) -> Controller[Any]:
        """The controller that takes these targets, with its default options."""

    def init(self, robot: Robot, q: Array) -> Any:
        """Initial state at the configuration `q` (nq,): a pytree of arrays."""

    def command(self, robot: Robot, q: Array, action: Array, state: Any) -> tuple[Any, Any]:
        """The controller's target for an action in [-1, 1], and the next state."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EEDelta:
    """Move the hand: the action is a change of its pose.

    The action `[x y z]` or `[x y z rx ry rz]` is scaled to metres and to a rotation vector in
    radians. With `target="measured"` the controller's new target is the measured pose, changed by
    it; with `target="desired"` it is the previous target, changed by it, but never further from the
    measured pose than one full action, so that it cannot run away from a blocked hand.

    Attributes:
        end_effector: name of the frame to move.
        orientation: "commanded" (six numbers), or "held" as it is at reset (three numbers).
        frame: axes of the change: "base" (world axes) or "ee" (the hand's own).
        target: what the change is added to, see above.
        position_scale: m per unit of action, scalar or (3,).
        rotation_scale: rad per unit of action, scalar or (3,).
    """

    end_effector: str = field(default="hand", metadata={"static": True})
    orientation: Literal["commanded", "held"] = field(
        default="commanded", metadata={"static": True}
    )
    frame: Literal["base", "ee"] = field(default="base", metadata={"static": True})
    target: Literal["measured", "desired"] = field(default="measured", metadata={"static": True})
    position_scale: ArrayLike = 0.05
    rotation_scale: ArrayLike = 0.5

    def __post_init__(self) -> None:
        check_choice("orientation", self.orientation, ("commanded", "held"))
        check_choice("frame", self.frame, ("base", "ee"))
        check_choice("target", self.target, ("measured", "desired"))

    def axes(self, robot: Robot) -> tuple[ActionAxis, ...]:
        """Changes of position and, if commanded, of orientation."""
        position = _decimals(self.position_scale, 3)
        rotation = _decimals(self.rotation_scale, 3)
        axes = [ActionAxis(f"d{n}", -s, s, "m") for n, s in zip("xyz", position, strict=True)]
        if self.orientation == "commanded":
            axes += [
                ActionAxis(f"dr{n}", -s, s, "rad") for n, s in zip("xyz", rotation, strict=True)
            ]
        return tuple(axes)

    def controller(self) -> OSC:
        """Operational space control of the pose, with its defaults."""
        return OSC(self.end_effector)

    def init(self, robot: Robot, q: Array) -> PoseTarget:
        """The pose at reset is the first target."""
        return PoseTarget(*frame_pose(robot, q, self.end_effector))

    def command(
        self, robot: Robot, q: Array, action: Array, state: PoseTarget
    ) -> tuple[PoseTarget, PoseTarget]:
        """The pose to go to, which is also the next state."""
        position, rotation = frame_pose(robot, q, self.end_effector)
        if self.target == "measured":
            start = PoseTarget(
                position, rotation if self.orientation == "commanded" else state.rotation
            )
        else:
            start = state
        axes = rotation if self.frame == "ee" else jnp.eye(3, dtype=q.dtype)

        position_scale = jnp.asarray(self.position_scale, q.dtype)
        new_position = start.position + matmul(axes, position_scale * action[:3])
        new_rotation = start.rotation
        if self.orientation == "commanded":
            turn = matmul(axes, jnp.asarray(self.rotation_scale, q.dtype) * action[3:])
            new_rotation = matmul(rotation_exp(turn), start.rotation)
        if self.target == "desired":
            lead = matmul(axes.T, new_position - position)
            lead = jnp.clip(lead, -position_scale, position_scale)
            new_position = position + matmul(axes, lead)
            if self.orientation == "commanded":
                new_rotation = self._leash(new_rotation, rotation, axes)
        goal = PoseTarget(new_position, new_rotation)
        return goal, goal

    def _leash(self, desired: Array, measured: Array, axes: Array) -> Array:
        scale = jnp.asarray(self.rotation_scale, desired.dtype)
        lead = matmul(axes.T, rotation_log(matmul(desired, measured.T)))
        return matmul(rotation_exp(matmul(axes, jnp.clip(lead, -scale, scale))), measured)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class JointTorque:
    """Joint torques, scaled by the effort limits. Gravity is not compensated.

    Attributes:
        scale: fraction of the effort limit per unit of action, scalar or (nv,).
    """

    scale: ArrayLike = 1.0

    def axes(self, robot: Robot) -> tuple[ActionAxis, ...]:
        """One torque per joint.

        Raises:
            ConfigError: a joint has no effort limit to scale by.
        """
        limits = np.asarray(robot.effort_limits, float)
        for name, limit in zip(robot.topology.dof_names, limits, strict=True):
            if not np.isfinite(limit):
                raise ConfigError(
                    f"action space 'torque': joint {name!r} of robot {robot.name!r} has no effort "
                    'limit to scale the action by. Add <limit effort="..."> to its URDF, or use '
                    "robot.replace(effort_limits=...)."
                )
        torques = [
            t * s for t, s in zip(limits.tolist(), _decimals(self.scale, len(limits)), strict=True)
        ]
        units = np.where(robot.topology.dof_rotates, "N m", "N").tolist()
        return tuple(
            ActionAxis(f"tau_{n}", -t, t, u)
            for n, t, u in zip(robot.topology.dof_names, torques, units, strict=True)
        )

    def controller(self) -> Torque:
        """Torque pass-through."""
        return Torque()

    def init(self, robot: Robot, q: Array) -> tuple[()]:
        """No state."""
        return ()

    def command(
        self, robot: Robot, q: Array, action: Array, state: tuple[()]
    ) -> tuple[Array, tuple[()]]:
        """Torques (nv,), N m and N."""
        limits = jnp.asarray(robot.effort_limits, q.dtype)
        return jnp.asarray(self.scale, q.dtype) * limits * action, state


def _decimals(scale: ArrayLike, n: int) -> list[float]:
    """Scales as people wrote them: 0.02 in float32 is 0.02, not 0.019999999552965164."""
    return [float(str(s)) for s in np.broadcast_to(np.asarray(scale), (n,))]


ACTION_SPACES: dict[str, Callable[..., ActionSpace]] = {
    "ee_delta_pose": EEDelta,
    "ee_delta_position": lambda **options: EEDelta(orientation="held", **options),
    "torque": lambda end_effector, **options: JointTorque(**options),
}
"""Name -> constructor; each takes `end_effector` and the options of its class."""
