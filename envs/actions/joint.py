"""Action spaces of the joints: changes, positions, velocities and torques."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.controllers import Controller, JointImpedance, JointTarget, JointVelocity, Torque
from fraxenv.dynamics import Robot, difference, frame_jacobian, gravity_forces, integrate
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError, check_choice

from .base import ActionAxis, Displacements, decimals

DAMPING = 0.05
"""Damping of `joint_motion`: m or rad of hand motion per unit of joint motion."""

RATE = 4.0
"""1/s, of `JointRate.towards`: joint velocity per distance."""


@pytree_dataclass
class JointDelta:
    """Move the joints: the action is a change of their positions.

    With `target="measured"` the controller's new target is the measured configuration, changed by
    it; with `target="desired"` it is the previous target, changed by it, but never further from the
    measured configuration than one full action. Targets stay within the position limits.

    Attributes:
        target: configuration that the change is added to, "measured" or "desired".
        scale: rad or m per unit of action, scalar or (nv,).

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    target: Literal["measured", "desired"] = static(default="measured")
    scale: ArrayLike = 0.1

    def __post_init__(self) -> None:
        check_choice("target", self.target, ("measured", "desired"))

    def axes(self, robot: Robot) -> tuple[ActionAxis, ...]:
        """One change per degree of freedom."""
        scale = np.array(decimals("scale", self.scale, robot.nv))
        return _dof_axes(robot, "d", -scale, scale, "rad", "m")

    def controller(self) -> JointImpedance:
        """Joint impedance control, with its defaults."""
        return JointImpedance()

    def init(self, robot: Robot, q: Array) -> JointTarget:
        """The configuration at reset is the first target."""
        return JointTarget(q)

    def hold(self, robot: Robot, q: Array, state: JointTarget) -> JointTarget:
        """The first target."""
        return state

    def command(
        self, robot: Robot, q: Array, action: Array, state: JointTarget
    ) -> tuple[JointTarget, JointTarget]:
        """The configuration to go to, which is also the next state."""
        scale = jnp.asarray(self.scale, q.dtype)
        lead = scale * action
        if self.target == "desired":
            lead = jnp.clip(difference(robot, q, state.position) + lead, -scale, scale)
        goal = JointTarget(_within_limits(robot, integrate(robot, q, lead, 1.0)))
        return goal, goal

    def towards(self, robot: Robot, q: Array, displacements: Displacements) -> Array:
        """The least joint motion for the displacements."""
        return joint_motion(robot, q, displacements)


@pytree_dataclass
class JointPosition:
    """Set the joints' positions: the action is mapped to a range of them.

    Attributes:
        low: (nv,), rad or m; the lower position limits if None, and -pi for joints that turn
            without one.
        high: (nv,), likewise.
    """

    low: ArrayLike | None = None
    high: ArrayLike | None = None

    def axes(self, robot: Robot) -> tuple[ActionAxis, ...]:
        """One position per degree of freedom.

        Raises:
            ConfigError: a joint has no limits to scale by, or a quaternion for a position.
        """
        low, high = self._range(robot, np)
        low, high = decimals("low", low, robot.nv), decimals("high", high, robot.nv)
        for name, a, b, coordinate in zip(
            robot.topology.dof_names, low, high, robot.topology.dof_coordinate, strict=True
        ):
            if coordinate < 0:
                raise ConfigError(
                    f"action space 'joint_position': {name!r} of robot {robot.name!r} is a part of "
                    "a rotation in space, which no range of positions describes. Use 'joint_delta'."
                )
            if not (np.isfinite(a) and np.isfinite(b)):
                raise ConfigError(
                    f"action space 'joint_position': joint {name!r} of robot {robot.name!r} has no "
                    "position limits to scale the action by. Add <limit lower=... upper=...> to "
                    "its URDF, or pass action_options={'low': ..., 'high': ...}."
                )
        return _dof_axes(robot, "", np.array(low), np.array(high), "rad", "m")

    def controller(self) -> JointImpedance:
        """Joint impedance control, with its defaults."""
        return JointImpedance()

    def init(self, robot: Robot, q: Array) -> JointTarget:
        """The configuration at reset."""
        return JointTarget(q)

    def hold(self, robot: Robot, q: Array, state: JointTarget) -> JointTarget:
        """The configuration at reset."""
        return state

    def command(
        self, robot: Robot, q: Array, action: Array, state: JointTarget
    ) -> tuple[JointTarget, JointTarget]:
        """The configuration to go to, which is also the next state."""
        low, high = (jnp.asarray(x, q.dtype) for x in self._range(robot, jnp))
        goal = JointTarget(low + (high - low) * 0.5 * (1 + action))
        return goal, goal

    def towards(self, robot: Robot, q: Array, displacements: Displacements) -> Array:
        """The configuration after the least joint motion for the displacements."""
        return q + joint_motion(robot, q, displacements)

    def _range(self, robot: Robot, xp: Any) -> tuple[Any, Any]:
        """Lowest and highest positions (nv,), rad or m; limits that are traced need `jax.numpy`."""
        lower, upper = xp.asarray(robot.position_limits, float).T
        half_turn = np.where(robot.topology.dof_rotates, np.pi, np.inf)
        low = xp.where(xp.isfinite(lower), lower, -half_turn) if self.low is None else self.low
        high = xp.where(xp.isfinite(upper), upper, half_turn) if self.high is None else self.high
        return low, high


@pytree_dataclass
class LimitFraction(ABC):
    """The base of action spaces that are fractions of the joints' limits; they have no state.

    Attributes:
        scale: fraction of the limit per unit of action, scalar or (nv,).
    """

    scale: ArrayLike = 1.0

    name: ClassVar[str]
    quantity: ClassVar[str]
    """Name of the limit: "velocity" for `robot.velocity_limits`."""

    symbol: ClassVar[str]
    units: ClassVar[tuple[str, str]]
    """Units of revolute and of prismatic joints."""

    def axes(self, robot: Robot) -> tuple[ActionAxis, ...]:
        """One number per degree of freedom.

        Raises:
            ConfigError: a joint has no limit to scale by.
        """
        limits = decimals(f"{self.quantity}_limits", self._limits(robot), robot.nv)
        for name, limit in zip(robot.topology.dof_names, limits, strict=True):
            if not np.isfinite(limit):
                raise ConfigError(
                    f"action space {self.name!r}: joint {name!r} of robot {robot.name!r} "
                    f"has no {self.quantity} limit to scale the action by. Add "
                    f'<limit {self.quantity}="..."> to its URDF, or use '
                    f"robot.replace({self.quantity}_limits=...)."
                )
        scaled = np.multiply(limits, decimals("scale", self.scale, robot.nv))
        return _dof_axes(robot, f"{self.symbol}_", -scaled, scaled, *self.units)

    def init(self, robot: Robot, q: Array) -> tuple[()]:
        """No state."""
        return ()

    def command(
        self, robot: Robot, q: Array, action: Array, state: tuple[()]
    ) -> tuple[Array, tuple[()]]:
        """The joints' quantity (nv,), in the units of the limits."""
        limits = jnp.asarray(self._limits(robot), q.dtype)
        return jnp.asarray(self.scale, q.dtype) * limits * action, state

    def _limits(self, robot: Robot) -> ArrayLike:
        limits: ArrayLike = getattr(robot, f"{self.quantity}_limits")
        return limits

    @abstractmethod
    def controller(self) -> Controller[Any]:
        """The controller that takes these targets."""

    @abstractmethod
    def hold(self, robot: Robot, q: Array, state: tuple[()]) -> Array:
        """The target that keeps the robot where it is."""


@pytree_dataclass
class JointRate(LimitFraction):
    """Joint velocities, rad/s and m/s, scaled by the velocity limits."""

    name, quantity, symbol, units = "joint_velocity", "velocity", "v", ("rad/s", "m/s")

    def controller(self) -> JointVelocity:
        """Joint velocity control, with its defaults."""
        return JointVelocity()

    def hold(self, robot: Robot, q: Array, state: tuple[()]) -> Array:
        """No velocity."""
        return jnp.zeros(robot.nv, q.dtype)

    def towards(self, robot: Robot, q: Array, displacements: Displacements) -> Array:
        """Velocities in the direction of the least joint motion for the displacements."""
        return RATE * joint_motion(robot, q, displacements)


@pytree_dataclass
class JointTorque(LimitFraction):
    """Joint torques, N m and N, scaled by the effort limits. Gravity is not compensated."""

    name, quantity, symbol, units = "torque", "effort", "tau", ("N m", "N")

    def controller(self) -> Torque:
        """Torque pass-through."""
        return Torque()

    def hold(self, robot: Robot, q: Array, state: tuple[()]) -> Array:
        """The torques of gravity."""
        return gravity_forces(robot, q)


def joint_motion(robot: Robot, q: Array, displacements: Displacements) -> Array:
    """The least joint motion (nv,), rad and m, for displacements; damped least squares."""
    J = jnp.concatenate([frame_jacobian(robot, q, name) for name in displacements])
    target = jnp.concatenate([jnp.concatenate(x) for x in displacements.values()])
    gram = matmul(J, J.T) + DAMPING**2 * jnp.eye(len(J), dtype=J.dtype)
    return matmul(J.T, jnp.linalg.solve(gram, target))


def _dof_axes(
    robot: Robot, start: str, low: np.ndarray, high: np.ndarray, revolute: str, prismatic: str
) -> tuple[ActionAxis, ...]:
    """One axis per degree of freedom, from `low` to `high` (nv,); `start` begins its name."""
    topology = robot.topology
    names = [f"{start}{name}" for name in topology.dof_names]
    units = np.where(topology.dof_rotates, revolute, prismatic).tolist()
    rows = zip(names, low.tolist(), high.tolist(), units, strict=True)
    return tuple(ActionAxis(*row) for row in rows)


def _within_limits(robot: Robot, q: Array) -> Array:
    """`q` (nq,) with every angle and displacement within its position limits."""
    coordinate = robot.topology.dof_coordinate
    scalar = coordinate >= 0
    limits = jnp.asarray(robot.position_limits, q.dtype)[scalar]
    lower = jnp.full(q.shape, -jnp.inf, q.dtype).at[coordinate[scalar]].set(limits[:, 0])
    upper = jnp.full(q.shape, jnp.inf, q.dtype).at[coordinate[scalar]].set(limits[:, 1])
    return jnp.clip(q, lower, upper)
