"""Variable impedance: action spaces with the controller's gains among the actions.

Martin-Martin et al., "Variable impedance control in end-effector space: an action space for
reinforcement learning in contact-rich tasks", IROS 2019.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.controllers import Controller, JointTarget, PoseTarget
from fraxenv.dynamics import Robot
from fraxenv.dynamics.manifold import among_all
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError, check_choice

from .base import ActionAxis, Displacements
from .hand import AXES, EEDelta, EEPose, HandAction
from .joint import JointDelta, JointPosition

_FITTING = (EEDelta, EEPose, JointDelta, JointPosition)


@pytree_dataclass
class VariableImpedance:
    """Another action space, followed by the controller's gains.

    The gains are mapped linearly, so that zero is the middle of their range: with the defaults, the
    controllers' own gains. robosuite calls the two choices `variable` and `variable_kp`.

    Attributes:
        space: the action space in front: of the end effector's pose, or of joint positions.
        gains: "stiffness_and_damping" (12 numbers per hand, or 2 for each joint that is driven), or
            "stiffness" (6, or 1), with the controller's own damping ratio.
        kp_range: (2,), 1/s^2, smallest and largest stiffness.
        damping_ratio_range: (2,), smallest and largest damping ratio.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    space: EEDelta | EEPose | JointDelta | JointPosition
    gains: Literal["stiffness_and_damping", "stiffness"] = static(default="stiffness_and_damping")
    kp_range: ArrayLike = (0.0, 300.0)
    damping_ratio_range: ArrayLike = (0.0, 2.0)

    def __post_init__(self) -> None:
        check_choice("gains", self.gains, ("stiffness_and_damping", "stiffness"))
        if not isinstance(self.space, _FITTING):
            raise ConfigError(
                f"VariableImpedance: space={type(self.space).__name__}, expected one of "
                f"{', '.join(c.__name__ for c in _FITTING)}: the others' controllers have no "
                "stiffness. Leave '+impedance' out."
            )

    def axes(self, robot: Robot) -> tuple[ActionAxis, ...]:
        """Axes of the space in front, then stiffnesses, then damping ratios."""
        names = self._gain_names(robot)
        out = [ActionAxis(f"kp_{n}", *_pair(self.kp_range), "1/s^2") for n in names]
        if self.gains == "stiffness_and_damping":
            ratios = _pair(self.damping_ratio_range)
            out += [ActionAxis(f"damping_ratio_{n}", *ratios, "1") for n in names]
        return (*self.space.axes(robot), *out)

    def controller(self) -> Controller[Any]:
        """The controller of the space in front."""
        return self.space.controller()

    def init(self, robot: Robot, q: Array) -> Any:
        """The state of the space in front."""
        return self.space.init(robot, q)

    def hold(self, robot: Robot, q: Array, state: Any) -> Any:
        """The target of the space in front, with gains in the middle of their ranges."""
        n = self._gain_count(robot)
        return self._with_gains(robot, self.space.hold(robot, q, state), jnp.zeros(n, q.dtype))

    def command(self, robot: Robot, q: Array, action: Array, state: Any) -> tuple[Any, Any]:
        """The target of the space in front, with the gains."""
        n = self._gain_count(robot)
        target, state = self.space.command(robot, q, action[:-n], state)
        return self._with_gains(robot, target, action[-n:]), state

    def towards(self, robot: Robot, q: Array, displacements: Displacements) -> Array:
        """The action of the space in front, without gains."""
        return self.space.towards(robot, q, displacements)

    def _gain_names(self, robot: Robot) -> list[str]:
        if isinstance(self.space, HandAction):
            hands = self.space.hands
            return [hands.prefix(name) + a for name in hands.names for a in AXES]
        return [robot.topology.dof_names[i] for i in robot.topology.driven]

    def _gain_count(self, robot: Robot) -> int:
        return len(self._gain_names(robot)) * (2 if self.gains == "stiffness_and_damping" else 1)

    def _with_gains(self, robot: Robot, target: PoseTarget | JointTarget, action: Array) -> Any:
        if isinstance(target, PoseTarget):
            kp, *ratio = action.reshape(-1, *target.position.shape[:-1], 6)
        else:
            rows = action.reshape(-1, len(robot.topology.driven))
            kp, *ratio = (among_all(robot, row) for row in rows)
        gains: dict[str, Any] = {"kp": _mapped(kp, self.kp_range)}
        if ratio:
            gains["damping_ratio"] = _mapped(ratio[0], self.damping_ratio_range)
        return dataclasses.replace(target, **gains)


def _pair(bounds: Any) -> tuple[float, float]:
    low, high = bounds
    return float(str(low)), float(str(high))


def _mapped(action: Array, bounds: ArrayLike) -> Array:
    low, high = jnp.asarray(bounds, action.dtype)
    mapped: Array = low + (high - low) * 0.5 * (1 + action)
    return mapped
