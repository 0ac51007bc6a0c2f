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

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms, compute_terms, difference, integrate, spd_solve
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
            estimate of before. Not a number for joints whose sensor is frozen.
        measured: (nq,), rad and m, in the last control step.
        q: (nq,), likewise, as it was believed, which is as measured but for frozen sensors.
        v: (nv,), rad/s and m/s, likewise; zero at first.
        inertia: (nv, nv), kg m^2 and kg, `M + dt D` of the last control step.
        momentum: (nv,), expected now, if nothing but the model acts.
        commands: (late, nv), N m and N, on their way to the motors, the newest first.
    """

    estimate: Array
    error: Array
    measured: Array
    q: Array
    v: Array
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

    Where sensors may freeze, `terms = observer.believed(robot, terms, state, dt)` comes second.

    Attributes:
        gain: 1/s, at which the estimate follows.
        late: control steps that commands take to the motors. The observer then counts with the
            command of that time, and `ahead` with those that are on their way.
        informs: who gets the estimate in an environment: the "controller", the "safety" filter, or
            "both".
        resolution: rad and m, of sensors of position. One that says the same to the bit, while the
            joint moves by more in a control step, is frozen, until it says something else; and so
            are the others then that say the same.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    gain: ArrayLike = 50.0
    late: int = static(default=0)
    informs: Literal["both", "controller", "safety"] = static(default="both")
    resolution: ArrayLike = 1e-5

    def __post_init__(self) -> None:
        check_not_negative(self, "gain", "resolution")
        check_count("MomentumObserver: late", self.late, least=0, of="control steps")
        check_choice("informs", self.informs, ("both", "controller", "safety"))

    def init(self, terms: Terms) -> ObserverState:
        """The state of an observer of a robot that has been held, and that the model describes."""
        M, q, v = terms.mass_matrix, terms.q, terms.v
        zero, late = jnp.zeros_like(v), jnp.tile(terms.bias, (self.late, 1))
        return ObserverState(zero, zero, q, q, zero, M, matmul(M, v), late)

    def __call__(
        self, robot: Robot, terms: Terms, state: ObserverState, dt: ArrayLike
    ) -> ObserverState:
        """The state with the estimate of this moment.

        It is at most the effort limits, which no controller could compensate more of; and it stays
        where a velocity is not finite, or a sensor is frozen.

        Args:
            robot: the model.
            terms: its terms at this state.
            state: after the last control step, `after`, or of `init`.
            dt: s, since then.
        """
        dt = jnp.asarray(dt, terms.v.dtype)
        # Who turns around may be where it was.
        slower = jnp.minimum(state.v * jnp.sign(terms.v), jnp.abs(terms.v))
        far = dt * slower > jnp.asarray(self.resolution, dt.dtype)
        same = difference(robot, state.measured, terms.q) == 0
        frozen = same & (jnp.any(same & far) | jnp.isnan(state.error))
        off = (matmul(state.inertia, terms.v) - state.momentum) / dt - state.estimate
        off = jnp.where(jnp.all(jnp.isfinite(off) & ~frozen), off, 0.0)
        share = -jnp.expm1(-jnp.asarray(self.gain, dt.dtype) * dt)
        limit = jnp.asarray(robot.effort_limits, dt.dtype)
        estimate = jnp.clip(state.estimate + share * off, -limit, limit)
        error = jnp.where(frozen, jnp.nan, jnp.clip(off, -limit, limit))
        return dataclasses.replace(state, estimate=estimate, error=error, measured=terms.q)

    def believed(self, robot: Robot, terms: Terms, state: ObserverState, dt: ArrayLike) -> Terms:
        """The terms; where a sensor is frozen, those of the motion that the model expects.

        That is good for a stop. A robust filter brakes then, as the `error` is not a number.

        Args:
            robot: the model.
            terms: its terms at this state, as measured.
            state: with the estimate of this moment.
            dt: s, since the last control step.
        """
        frozen = jnp.isnan(state.error)

        def expected() -> Terms:
            time = jnp.asarray(dt, terms.v.dtype)
            v = spd_solve(state.inertia, state.momentum + time * state.estimate)
            v = jnp.where(frozen, v, terms.v)
            way = difference(robot, terms.q, integrate(robot, state.q, v, time))
            q = integrate(robot, terms.q, jnp.where(frozen, way, 0.0), 1.0)
            return compute_terms(robot, q, v)

        then: Terms = jax.lax.cond(jnp.any(frozen), expected, lambda: terms)
        return then

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
        left = commands[: self.late]
        return dataclasses.replace(
            state, q=terms.q, v=terms.v, inertia=inertia, momentum=momentum, commands=left
        )
