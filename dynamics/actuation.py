"""Motors, from commanded to applied torque: limits of effort, rate and speed, gain and delay.

Damping, friction, armature and soft stops belong to the joint: `step` applies them.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from fraxenv.errors import ConfigError, check_count, check_not_negative, is_concrete

from .delay import Delay, delay_of, pushed
from .kinematics import checked_tangent
from .math.pytree import pytree_dataclass, static
from .model.robot import Robot
from .solvers.cholesky import cholesky, solve_upper

SPEED_MARGIN = 0.02
"""Range beyond the velocity limit, as a fraction of it, over which the torque bound fades out."""


@pytree_dataclass
class ActuatorState:
    """State of the motors between control steps.

    Attributes:
        command: (nv,), N m and N, the last command; None without a rate limit.
        delayed: commands (n, nv), N m and N, that are not applied yet; None without a delay.
    """

    command: Array | None = None
    delayed: Delay | None = None


@pytree_dataclass
class Actuators:
    """The motors of a robot's joints.

    A command is clipped to `range`: to the robot's `effort_bounds`, to `effort_limit` and to
    `rate_limit`. After the delay the motors apply it, times their gain, clipped to `effort_bounds`
    at that time. A floating joint has no motor: its effort limits are zero.

    Attributes:
        effort_limit: N m and N, scalar or (nv,), besides the robot's `effort_limits`.
        rate_limit: N m/s and N/s, scalar or (nv,), of the command. If set (infinity will do), the
            robot's `effort_rate_limits` hold as well; None for commands that may jump. The speed
            limit takes precedence.
        gain: applied torque per commanded torque, scalar or (nv,); None for 1.
        delay: s, (), from a command to its torque, rounded to control steps; None for none. Read
            when an episode begins, and clipped to `steps`.
        steps: capacity for delay, in control steps; None for the environment to choose it from
            `delay` when it is made, as `sized` does.

    Raises:
        ConfigError: a value is negative, or a gain or delay is not finite.
    """

    effort_limit: ArrayLike | None = None
    rate_limit: ArrayLike | None = None
    gain: ArrayLike | None = None
    delay: ArrayLike | None = None
    steps: int | None = static(default=None)

    def __post_init__(self) -> None:
        check_not_negative(self, "effort_limit", "rate_limit", "gain", "delay")
        for name in ("gain", "delay"):
            value = getattr(self, name)
            if (
                value is not None
                and is_concrete(value)
                and np.isinf(np.asarray(value, float)).any()
            ):
                raise ConfigError(f"Actuators: {name}={value!r}, expected it to be finite.")
        if self.steps is not None:
            check_count("Actuators: steps", self.steps, least=0)

    def sized(self, control_hz: int, steps: int = 0) -> Actuators:
        """With capacity for the present delay, and for at least `steps` control steps.

        The length of a traced delay is unknown: its capacity stays as it is.

        Raises:
            ConfigError: the capacity is set already, and too small for the delay.
        """
        if self.steps is None and not is_concrete(self.delay):
            return self
        delay = 0.0
        if self.delay is not None and is_concrete(self.delay):
            delay = float(np.max(np.asarray(self.delay)))
        needed = math.ceil(round(delay * control_hz, 6))
        if self.steps is not None and self.steps < needed:
            raise ConfigError(
                f"Actuators: delays of up to {needed} steps of the controller, but there is room "
                f"for steps={self.steps}. Make the environment with the longest delay that will be "
                "used, or with steps=..."
            )
        return dataclasses.replace(self, steps=max(self.steps or 0, needed, steps))

    def init(
        self, robot: Robot, tau: Real[ArrayLike, " nv"], dt: Real[ArrayLike, ""]
    ) -> ActuatorState:
        """State of motors that have been applying `tau` for a long time.

        Args:
            robot: the model.
            tau: N m and N, clipped to the effort limits.
            dt: s, time between commands.

        Raises:
            ArrayError: `tau`, or a parameter of the actuators, has the wrong shape.
            ConfigError: there is a delay, and `steps` is None.
        """
        tau = checked_tangent(robot, "tau", tau)
        limit = self._effort_limit(robot, tau.dtype)
        tau = jnp.clip(tau, -limit, limit)
        delayed = None
        if self.delay is not None:
            if self.steps is None:
                raise ConfigError(
                    "Actuators: delay is set, and steps is None, expected how many steps of the "
                    "controller there is room for. Make the environment with these actuators, or "
                    "give them steps=..., as sized(control_hz) does."
                )
            steps = jnp.asarray(self.delay, tau.dtype) / jnp.asarray(dt, tau.dtype)
            delayed = delay_of(tau, steps, self.steps)
        return ActuatorState(None if self.rate_limit is None else tau, delayed)

    def range(
        self, robot: Robot, v: Real[ArrayLike, " nv"], state: ActuatorState, dt: Real[ArrayLike, ""]
    ) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
        """Smallest and largest command, N m and N, that the motors accept now.

        Args:
            robot: the model.
            v: rad/s and m/s.
            state: after the previous step.
            dt: s, time since then.

        Raises:
            ArrayError: `v`, or a parameter of the actuators, has the wrong shape.
            ConfigError: there is a rate limit, and the state has no command.
        """
        v = checked_tangent(robot, "v", v)
        lower, upper = effort_bounds(robot, v)
        if self.effort_limit is not None:
            own = self._effort_limit(robot, v.dtype)
            lower, upper = jnp.maximum(lower, -own), jnp.minimum(upper, own)
        if self.rate_limit is None:
            return lower, upper
        if state.command is None:
            raise ConfigError(
                "Actuators: rate_limit is set, and the state has no command to count from, "
                "expected a state of these actuators' init, or of their last step."
            )
        rate = _per_joint(robot, "rate_limit", self.rate_limit, v.dtype)
        rate = jnp.minimum(rate, jnp.asarray(robot.effort_rate_limits, v.dtype))
        change = rate * jnp.asarray(dt, v.dtype)
        before = jnp.clip(state.command, lower, upper)
        return jnp.maximum(before - change, lower), jnp.minimum(before + change, upper)

    def __call__(
        self,
        robot: Robot,
        tau: Real[ArrayLike, " nv"],
        v: Real[ArrayLike, " nv"],
        state: ActuatorState,
        dt: Real[ArrayLike, ""],
    ) -> tuple[Float[Array, " nv"], Float[Array, " nv"], ActuatorState]:
        """One control step: applied torque, clipped command, both N m and N, and the next state.

        Args:
            robot: the model.
            tau: N m and N, requested; the command is `tau` clipped to `range`.
            v: rad/s and m/s.
            state: after the previous step, at first that of `init`.
            dt: s, time since then.

        Raises:
            ArrayError: an argument, or a parameter of the actuators, has the wrong shape.
            ConfigError: the state lacks a command or a delay of these actuators.
        """
        tau, v = checked_tangent(robot, "tau", tau), checked_tangent(robot, "v", v)
        command = jnp.clip(tau, *self.range(robot, v, state, dt))
        applied, delayed = command, state.delayed
        if self.delay is not None and delayed is None:
            raise ConfigError(
                "Actuators: delay is set, and the state has no commands on their way, expected a "
                "state of these actuators' init, or of their last step."
            )
        if delayed is not None:
            delayed = pushed(delayed, command)
            applied = delayed.due
        if self.gain is not None:
            applied = _per_joint(robot, "gain", self.gain, tau.dtype) * applied
        if delayed is not None or self.gain is not None:
            applied = jnp.clip(applied, *effort_bounds(robot, v))
        remembered = None if self.rate_limit is None else command
        return applied, command, ActuatorState(remembered, delayed)

    def _effort_limit(self, robot: Robot, dtype: jnp.dtype) -> Array:
        limit = jnp.asarray(robot.effort_limits, dtype)
        if self.effort_limit is None:
            return limit
        return jnp.minimum(_per_joint(robot, "effort_limit", self.effort_limit, dtype), limit)


def effort_bounds(
    robot: Robot, v: Real[ArrayLike, " nv"]
) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """Smallest and largest torque, N m and N, that the motors can apply at the velocity `v`.

    The effort limits; beyond the velocity limit, the bound on the side that speeds the joint up
    falls to zero within 2 % of that limit.

    Args:
        robot: the model.
        v: rad/s and m/s.

    Raises:
        ArrayError: `v` has the wrong shape.
    """
    v = checked_tangent(robot, "v", v)
    effort = jnp.asarray(robot.effort_limits, v.dtype)
    limit = jnp.asarray(robot.velocity_limits, v.dtype)
    limited, finite = jnp.isfinite(limit), jnp.isfinite(effort)
    width = _fading_width(limit)
    inverse = 1 / width  # constants of most programs: nothing is divided in them

    def bound(v: Array) -> Array:
        left = jnp.clip((jnp.where(limited, limit, 0.0) + width - v) * inverse, 0.0, 1.0)
        # An infinite effort times zero would be NaN, here and in derivatives.
        part = jnp.where(finite, left * jnp.where(finite, effort, 0.0), effort)
        faded = jnp.where(left < 1, jnp.where(left > 0, part, 0.0), effort)
        return jnp.where(limited, faded, effort)

    return -bound(-v), bound(v)


def felt_velocity(
    robot: Robot,
    v: Float[Array, " nv"],
    mass_matrix: Float[Array, "nv nv"],
    dt: Real[ArrayLike, ""],
) -> Float[Array, " nv"]:
    """The velocity `v`, to be given to motors whose command is held for `dt`.

    Its derivative is less than one, so that where `effort_bounds` fade, within 2 % of a velocity
    limit, a held torque does not seem to turn velocities around. The bounds fall so steeply that a
    joint at its limit of speed swings within these 2 %, each step's velocity being some -5 to -25
    times as sensitive as the last one's, while the joint as such just stays at the limit. The slope
    `k` of a bound becomes `k / (1 + dt k (M^-1)_jj)`, that of an implicit step, after which next to
    nothing is left of a change.

    Args:
        robot: the model.
        v: rad/s and m/s.
        mass_matrix: kg m^2 and kg, `M`.
        dt: s.
    """
    effort = jnp.asarray(robot.effort_limits, v.dtype)
    limit = jnp.asarray(robot.velocity_limits, v.dtype)
    fades = jnp.isfinite(limit) & jnp.isfinite(effort)
    slope = jnp.where(fades, effort, 0.0) / _fading_width(limit)
    return _felt(v, mass_matrix, jnp.asarray(dt, v.dtype) * slope)


@jax.custom_jvp
def _felt(v: Array, mass_matrix: Array, slope: Array) -> Array:
    return v


@_felt.defjvp
def _felt_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:  # type: ignore[type-arg]
    v, mass_matrix, slope = primals
    root = solve_upper(cholesky(mass_matrix), jnp.eye(len(v), dtype=v.dtype))
    growth = slope * jnp.sum(root * root, axis=0)
    return v, tangents[0] / jax.lax.stop_gradient(1 + growth)


def _fading_width(limit: Array) -> Array:
    """Range (nv,), rad/s and m/s, beyond limits of speed, over which the bounds of torque fade."""
    return jnp.where(jnp.isfinite(limit), SPEED_MARGIN * jnp.maximum(limit, 1e-6), 1.0)


def _per_joint(robot: Robot, name: str, value: ArrayLike, dtype: jnp.dtype) -> Array:
    """A scalar, or one value for each degree of freedom, as (nv,)."""
    array = jnp.asarray(value, dtype)
    if array.ndim == 0:
        return jnp.broadcast_to(array, robot.nv)
    return checked_tangent(robot, name, array)
