"""Action spaces of the joints: changes, positions, velocities and torques.

They have one number for each degree of freedom that motors drive, `Topology.driven`: all of them
but those of a base that floats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.controllers import Controller, JointImpedance, JointTarget, JointVelocity, Torque
from fraxenv.dynamics import Robot, difference, frame_jacobian, gravity_forces, integrate
from fraxenv.dynamics.manifold import among_all, driven_part, scalar_coordinates
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
        scale: rad or m per unit of action, scalar or (n,).

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    target: Literal["measured", "desired"] = static(default="measured")
    scale: ArrayLike = 0.1

    def __post_init__(self) -> None:
        check_choice("target", self.target, ("measured", "desired"))

    def axes(self, robot: Robot) -> tuple[ActionAxis, ...]:
        """One change per degree of freedom that is driven."""
        scale = np.array(decimals("scale", self.scale, len(robot.topology.driven)))
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
            behind = driven_part(robot, difference(robot, q, state.position))
            lead = jnp.clip(behind + lead, -scale, scale)
        lead = among_all(robot, lead)
        goal = JointTarget(_within_limits(robot, integrate(robot, q, lead, 1.0)))
        return goal, goal

    def towards(self, robot: Robot, q: Array, displacements: Displacements) -> Array:
        """The least joint motion for the displacements."""
        return joint_motion(robot, q, displacements)


@pytree_dataclass
class JointPosition:
    """Set the joints' positions: the action is mapped to a range of them.

    A base that floats has no position to be set, and is left alone.

    Attributes:
        low: (n,), rad or m; the lower position limits if None, and -pi for joints that turn
            without one.
        high: (n,), likewise.
        about: rad or m per unit of action, about the default configuration, scalar or (n,), in
            place of `low` and `high`.

    Raises:
        ConfigError: `about` is given, and `low` or `high` as well.
    """

    low: ArrayLike | None = None
    high: ArrayLike | None = None
    about: ArrayLike | None = None

    def __post_init__(self) -> None:
        if self.about is not None and not (self.low is None and self.high is None):
            raise ConfigError(
                f"JointPosition: about={self.about!r} with low or high, expected one of both: a "
                "range about the default configuration, or its ends. Leave the other out."
            )

    def axes(self, robot: Robot) -> tuple[ActionAxis, ...]:
        """One position per degree of freedom that is driven.

        Raises:
            ConfigError: a joint has no limits to scale by, or a quaternion for a position.
        """
        topology = robot.topology
        for i in topology.driven:
            name, coordinate = topology.dof_names[i], topology.dof_coordinate[i]
            if coordinate < 0:
                raise ConfigError(
                    f"action space 'joint_position': {name!r} of robot {robot.name!r} is a part of "
                    "a rotation in space, which no range of positions describes. Use 'joint_delta'."
                )
        low, high = self._range(robot, np)
        n = len(topology.driven)
        low, high = decimals("low", low, n), decimals("high", high, n)
        for i, a, b in zip(topology.driven, low, high, strict=True):
            name = topology.dof_names[i]
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
        position = low + (high - low) * 0.5 * (1 + action)
        if len(robot.topology.driven) < robot.nv:
            position = q.at[self._coordinates(robot)].set(position)
        goal = JointTarget(position)
        return goal, goal

    def towards(self, robot: Robot, q: Array, displacements: Displacements) -> Array:
        """The configuration after the least joint motion for the displacements."""
        here: Array = driven_part(robot, scalar_coordinates(robot, q))
        return here + joint_motion(robot, q, displacements)

    def _coordinates(self, robot: Robot) -> np.ndarray:
        """Indices (n,) into `q` of the joints that are driven."""
        coordinates: np.ndarray = robot.topology.dof_coordinate[robot.topology.driven]
        return coordinates

    def _range(self, robot: Robot, xp: Any) -> tuple[Any, Any]:
        """Lowest and highest positions (n,), rad or m; limits that are traced need `jax.numpy`."""
        if self.about is not None:
            home = xp.asarray(robot.q_default, float)[self._coordinates(robot)]
            about = xp.asarray(self.about, float)
            return home - about, home + about
        lower, upper = driven_part(robot, xp.asarray(robot.position_limits, float)).T
        half_turn = np.where(driven_part(robot, robot.topology.dof_rotates), np.pi, np.inf)
        low = xp.where(xp.isfinite(lower), lower, -half_turn) if self.low is None else self.low
        high = xp.where(xp.isfinite(upper), upper, half_turn) if self.high is None else self.high
        return low, high


@pytree_dataclass
class LimitFraction(ABC):
    """The base of action spaces that are fractions of the joints' limits; they have no state.

    Attributes:
        scale: fraction of the limit per unit of action, scalar or (n,).
    """

    scale: ArrayLike = 1.0

    name: ClassVar[str]
    quantity: ClassVar[str]
    """Name of the limit: "velocity" for `robot.velocity_limits`."""

    symbol: ClassVar[str]
    units: ClassVar[tuple[str, str]]
    """Units of revolute and of prismatic joints."""

    def axes(self, robot: Robot) -> tuple[ActionAxis, ...]:
        """One number per degree of freedom that is driven.

        Raises:
            ConfigError: a joint has no limit to scale by.
        """
        driven = robot.topology.driven
        names = [robot.topology.dof_names[i] for i in driven]
        limits = decimals(f"{self.quantity}_limits", self._limits(robot), len(driven))
        for name, limit in zip(names, limits, strict=True):
            if not np.isfinite(limit):
                raise ConfigError(
                    f"action space {self.name!r}: joint {name!r} of robot {robot.name!r} "
                    f"has no {self.quantity} limit to scale the action by. Add "
                    f'<limit {self.quantity}="..."> to its URDF, or use '
                    f"robot.replace({self.quantity}_limits=...)."
                )
        scaled = np.multiply(limits, decimals("scale", self.scale, len(driven)))
        return _dof_axes(robot, f"{self.symbol}_", -scaled, scaled, *self.units)

    def init(self, robot: Robot, q: Array) -> tuple[()]:
        """No state."""
        return ()

    def command(
        self, robot: Robot, q: Array, action: Array, state: tuple[()]
    ) -> tuple[Array, tuple[()]]:
        """The joints' quantity (nv,), in the units of the limits; zero of a base that floats."""
        limits = jnp.asarray(self._limits(robot), q.dtype)
        return among_all(robot, jnp.asarray(self.scale, q.dtype) * limits * action), state

    def _limits(self, robot: Robot) -> ArrayLike:
        """Limits (n,) of the joints that are driven."""
        limits: ArrayLike = driven_part(robot, getattr(robot, f"{self.quantity}_limits"))
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
    """The least motion (n,), rad and m, of the driven joints; damped least squares."""
    J = jnp.concatenate([frame_jacobian(robot, q, name) for name in displacements])
    if len(robot.topology.driven) < robot.nv:
        J = J[:, robot.topology.driven]
    target = jnp.concatenate([jnp.concatenate(x) for x in displacements.values()])
    gram = matmul(J, J.T) + DAMPING**2 * jnp.eye(len(J), dtype=J.dtype)
    return matmul(J.T, jnp.linalg.solve(gram, target))


def _dof_axes(
    robot: Robot, start: str, low: np.ndarray, high: np.ndarray, revolute: str, prismatic: str
) -> tuple[ActionAxis, ...]:
    """One axis per driven degree of freedom, from `low` to `high` (n,); `start` begins its name."""
    topology = robot.topology
    names = [f"{start}{topology.dof_names[i]}" for i in topology.driven]
    units = np.where(topology.dof_rotates[topology.driven], revolute, prismatic).tolist()
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
