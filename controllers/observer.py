"""The momentum observer: torques that act on the robot and are not in its model.

With `M`, `bias` and the resistance `d + D (v+ - v)` of the model, a step of `dynamics.step` is

    M v+ + dt D (v+ - v) = M v + dt (tau - bias - d + w)

where `w` is what the model lacks: a load, other masses, friction, a contact, a motor that is off.
The observer remembers the momentum that a step without `w` would end with, and compares:

    r+ = r + (1 - exp(-gain dt)) (w - r).

So the estimate `r` is `w` through a filter of first order, exactly, if the model is integrated with
the observer's `dt`; no acceleration is measured, only momenta are.

Sources: De Luca and Mattone, "Actuator failure detection and isolation using generalized momenta",
ICRA 2003, and "Sensorless robot collision detection and hybrid force/motion control", ICRA 2005.
Their observer is continuous in time, with `C^T v` for the change of `M`; here that is in the step.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms, compute_terms, integrate, spd_solve
from fraxenv.dynamics.joint_resistance import implicit_resistance
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import check_choice, check_count, check_not_negative


@pytree_dataclass
class ObserverState:
    """What an observer remembers from control step to control step.

    Attributes:
        estimate: (nv,), N m and N, of the torques that act and are not in the model.
        error: (nv,), N m and N, how far it was off: what acted in the last control step, less the
            estimate of before.
        inertia: (nv, nv), kg m^2 and kg, `M + dt D` of the last control step.
        momentum: (nv,), expected now, if nothing but the model acts.
        commands: (late, nv), N m and N, on their way to the motors, the newest first.
    """

    estimate: Array
    error: Array
    inertia: Array
    momentum: Array
    commands: Array


@pytree_dataclass
class MomentumObserver:
    """Estimates the torques that act on a robot and are not in its model.

    Once per control step, and without an acceleration being measured:

        state = observer(robot, terms, state, dt)        # what was done in the last step
        seen = observer.informed(terms, state)           # the bias forces, less the estimate
        ...                                              # torques of a controller, with these terms
        state = observer.after(robot, terms, command, state, dt)

    The torque to be remembered is the one that was commanded, after all limits. What a controller
    compensates as a bias force it compensates as well where it is not in the model.

    Attributes:
        gain: 1/s, at which the estimate follows.
        late: control steps that commands take to the motors. The observer then counts with the
            command of that time, and `ahead` with those that are on their way.
        informs: who gets the estimate in an environment: the "controller", the "safety" filter, or
            "both".

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    gain: ArrayLike = 50.0
    late: int = static(default=0)
    informs: Literal["both", "controller", "safety"] = static(default="both")

    def __post_init__(self) -> None:
        check_not_negative(self, "gain")
        check_count("MomentumObserver: late", self.late, least=0, of="control steps")
        check_choice("informs", self.informs, ("both", "controller", "safety"))

    def init(self, terms: Terms) -> ObserverState:
        """The state of an observer of a robot that has been held, and that the model describes."""
        M, v = terms.mass_matrix, terms.v
        zero = jnp.zeros_like(v)
        return ObserverState(zero, zero, M, matmul(M, v), jnp.tile(terms.bias, (self.late, 1)))

    def __call__(
        self, robot: Robot, terms: Terms, state: ObserverState, dt: ArrayLike
    ) -> ObserverState:
        """The state with the estimate of this moment.

        It is at most the effort limits, which no controller could compensate more of; and it stays
        where a velocity is not finite.

        Args:
            robot: the model.
            terms: its terms at this state.
            state: after the last control step, `after`, or of `init`.
            dt: s, since then.
        """
        dt = jnp.asarray(dt, terms.v.dtype)
        off = (matmul(state.inertia, terms.v) - state.momentum) / dt - state.estimate
        off = jnp.where(jnp.all(jnp.isfinite(off)), off, 0.0)
        share = -jnp.expm1(-jnp.asarray(self.gain, dt.dtype) * dt)
        limit = jnp.asarray(robot.effort_limits, dt.dtype)
        estimate = jnp.clip(state.estimate + share * off, -limit, limit)
        return dataclasses.replace(state, estimate=estimate, error=jnp.clip(off, -limit, limit))

    def informed(self, terms: Terms, state: ObserverState) -> Terms:
        """Terms whose bias forces have the estimate in them."""
        return dataclasses.replace(terms, bias=terms.bias - state.estimate)

    def ahead(self, robot: Robot, terms: Terms, state: ObserverState, dt: ArrayLike) -> Terms:
        """Informed terms of the moment at which a command of now takes effect, `late` steps on.

        Args:
            robot: the model.
            terms: its terms at this state.
            state: with the estimate of this moment.
            dt: s, of a control step.
        """
        if self.late == 0:
            return self.informed(terms, state)
        time = self.late * jnp.asarray(dt, terms.v.dtype)
        force, slope = implicit_resistance(robot, terms.q, terms.v, time)
        tau = jnp.mean(state.commands, axis=0) + state.estimate
        M = terms.mass_matrix + jnp.diag(slope)
        change = time * spd_solve(M, tau - terms.bias - force)
        q = integrate(robot, terms.q, terms.v + 0.5 * change, time)
        return self.informed(compute_terms(robot, q, terms.v + change), state)

    def after(
        self,
        robot: Robot,
        terms: Terms,
        tau: Array,
        state: ObserverState,
        dt: ArrayLike,
        physics_dt: ArrayLike | None = None,
    ) -> ObserverState:
        """The state after a command.

        Args:
            robot: the model.
            terms: its terms at this state, without the estimate.
            tau: (nv,), N m and N, commanded, after all limits.
            state: with the estimate of this moment.
            dt: s, until the next control step.
            physics_dt: s, of the physics' steps, of which there may be several in a control step,
                each with implicit resistance. `dt` if None.
        """
        dt = jnp.asarray(dt, terms.v.dtype)
        h = dt if physics_dt is None else jnp.asarray(physics_dt, dt.dtype)
        # Of `dt / h` implicit steps the mean of the velocities that they end with.
        force, slope = implicit_resistance(robot, terms.q, terms.v, 0.5 * (dt + h))
        inertia = terms.mass_matrix + jnp.diag(slope)
        commands = jnp.concatenate([tau[None], state.commands])
        push = commands[-1] - terms.bias - force
        momentum = matmul(inertia, terms.v) + dt * push
        return dataclasses.replace(
            state, inertia=inertia, momentum=momentum, commands=commands[: self.late]
        )
