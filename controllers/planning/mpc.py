"""Model-predictive control: a plan made again and again, and in between feedback about it.

Every time the last plan, moved on by the time that has passed, is where a few iterations of `solve`
begin. Between two plans the gains of the last one act, at whatever rate the controller is called.

Source: Diehl, Bock and Schlöder, "A real-time iteration scheme for nonlinear optimization in
optimal feedback control" (SIAM J. Control Optim. 43, 2005).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms, integrate
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ArrayError, ConfigError, is_concrete, unknown_name

from ..base import Telemetry, finite_or
from ..joint_velocity import joint_velocity_torque
from ..torque import BRAKING_GAIN
from .constraints import no_multipliers
from .ddp import ITERATIONS, LEAST, NOT_FINITE, Options, Plan, solve
from .guess import guess
from .problem import CONTACTS, Problem, clipped, of_dtype
from .residuals import Residual
from .states import between, displacement

References = Mapping[str, Any]
"""References by the names of a problem's terms; terms that are not named keep their own."""

LATE = 1e-3
"""Part of a step before a knot that counts as after it: sums of times are rounded."""

TORN = 1000.0
"""rad, m, rad/s and m/s: after a plan with such a gap the next one does not begin with it."""


@pytree_dataclass
class MPCState:
    """What a predictive controller remembers.

    Attributes:
        plan: the last one.
        time: (), s, since it began.
    """

    plan: Plan
    time: Array


@pytree_dataclass
class MPC:
    """Model-predictive control; the target is references of the problem's terms, by their names.

    "contacts" among them is another schedule of the problem's contacts, from now on.

        tau = tau_k + K_k [difference(q_k(t), q); v - v_k(t)], within the problem's control limits

    where `k` is the plan's step at the time `t` since it began, and `q_k(t)` and `v_k(t)` are
    between its knots. A plan that is not finite is not taken: the last one goes on, and
    `plan_finite` is False in the telemetry. After it, and after one whose states lie far apart, the
    next begins with a robot that stands still.

    A batch of controllers plans in every control step, taken or not, if `MPCState.time` is batched.
    It is the same for all: `jax.vmap(controller, (None, 0, 0, MPCState(0, None), None), (0,
    MPCState(0, None), 0))`. Or call `replan` and `torque`, each at its own rate.

    Attributes:
        problem: what is planned; the robot is that of the call.
        options: of `solve`, at every time.
        period: s, between two plans; `problem.dt` if None.
        aim: makes references of another target, such as the `PoseTarget` of an action space; None
            where targets are references.

    Raises:
        ConfigError: the period is not positive, or the problem's contacts have impacts.
    """

    problem: Problem
    options: Options = static(default=Options(iterations=1))
    period: ArrayLike | None = None
    aim: Callable[[Any], References] | None = static(default=None)

    def __post_init__(self) -> None:
        given = self.period is not None and is_concrete(self.period)
        if given and not np.all(np.asarray(self.period) > 0):
            raise ConfigError(f"MPC: period={self.period!r}, expected a positive time, s.")
        contacts = self.problem.contacts
        if contacts is not None and is_concrete(contacts.impacts) and np.any(contacts.impacts):
            raise ConfigError(
                "MPC: contacts with impacts, steps of no time, in which nobody can act. Schedule "
                "none: what lands is then held from its first step on, and stops by `gain`."
            )

    def init(self, robot: Robot, terms: Terms) -> MPCState:
        """The state of a controller that has been holding the robot still: a plan is due."""
        problem = self._problem(robot)
        return MPCState(_still(problem, terms), self._period())

    def __call__(
        self, robot: Robot, terms: Terms, target: Any, state: MPCState, dt: ArrayLike
    ) -> tuple[Array, MPCState, Telemetry]:
        """Torques (nv,), N m and N; the next state; telemetry.

        Telemetry: `target_finite` (bool; if not, the joints are slowed down, and gravity is
        compensated), `plan_finite` (bool), `plan_cost` and `plan_gap` (see `Plan`).

        Raises:
            UnknownNameError: the problem has no term of a name in the target.
            ArrayError: a reference is not of the form of the term's own.
        """
        dt = jnp.asarray(dt, state.time.dtype)
        now: MPCState = jax.lax.cond(
            state.time > self._period() - 0.5 * dt,
            lambda: self.replan(robot, terms, target, state),
            lambda: state,
        )
        _, finite = self._given(target)
        brake = joint_velocity_torque(terms, jnp.zeros_like(terms.v), BRAKING_GAIN)
        tau = jnp.where(finite, self.torque(robot, terms, now), clipped(self.problem, brake))
        telemetry = {
            "target_finite": finite,
            "plan_finite": now.plan.status != NOT_FINITE,
            "plan_cost": now.plan.cost,
            "plan_gap": now.plan.gap,
        }
        return tau.astype(terms.v.dtype), self.later(now, dt), telemetry

    def replan(self, robot: Robot, terms: Terms, target: Any, state: MPCState) -> MPCState:
        """The state with a plan that begins now.

        Args:
            robot: the model.
            terms: its terms at this state.
            target: as of the controller; where it is not finite, all references are the problem's.
            state: with the plan before.

        Raises:
            UnknownNameError: the problem has no term of a name in the target.
            ArrayError: a reference is not of the form of the term's own.
        """
        problem = _aimed(self._problem(robot), self._given(target)[0])
        last = shift(problem, state.plan, state.time / problem.dt)
        failed = (last.status == NOT_FINITE) | ~(last.gap < TORN)
        start = jax.lax.cond(failed, lambda: _still(problem, terms), lambda: last)
        new = solve(problem, (terms.q, terms.v), start, self.options)
        total = sum(jnp.sum(x) for x in (new.q, new.v, new.tau, new.gains))
        fine = (new.status != NOT_FINITE) & jnp.isfinite(total)
        instead = last._replace(status=jnp.full_like(new.status, NOT_FINITE))
        plan: Plan = jax.lax.cond(fine, lambda: new, lambda: instead)
        return MPCState(plan, jnp.zeros_like(state.time))

    def torque(self, robot: Robot, terms: Terms, state: MPCState) -> Array:
        """The plan's torques (nv,), N m and N, of this moment, with feedback."""
        problem, plan = self._problem(robot), state.plan
        steps = state.time / problem.dt
        k = _step(plan, steps)
        off = between(robot, *state_at(robot, plan, steps), terms.q, terms.v)
        return clipped(problem, plan.tau[k] + matmul(plan.gains[k], off))

    def later(self, state: MPCState, dt: ArrayLike) -> MPCState:
        """The state `dt` later, s."""
        return dataclasses.replace(state, time=state.time + jnp.asarray(dt, state.time.dtype))

    def _problem(self, robot: Robot) -> Problem:
        own = dataclasses.replace(self.problem, robot=robot)
        return of_dtype(own, jnp.result_type(float))

    def _period(self) -> Array:
        return jnp.asarray(self.problem.dt if self.period is None else self.period, float)

    def _given(self, target: Any) -> tuple[References, Array]:
        """A target's references, or where one is not finite the problem's; and whether all are."""
        given = target if self.aim is None else self.aim(target)
        own = {name: _own_reference(self.problem, name, x) for name, x in given.items()}
        return finite_or(dict(given), own)


def shift(problem: Problem, plan: Plan, steps: ArrayLike = 1.0) -> Plan:
    """A plan some steps on: where the next one begins. Beyond its end it stays as it ends.

    Args:
        problem: of the plan.
        plan: the plan.
        steps: (), how many; parts of steps are interpolated.
    """
    N = problem.horizon
    at = jnp.arange(N + 1) + jnp.asarray(steps, plan.v.dtype)
    q, v = jax.vmap(lambda s: state_at(problem.robot, plan, s))(at)
    during = jnp.clip(at[:-1], 0, N - 1)
    k = _step(plan, during)
    after = jnp.minimum(k + 1, N - 1)

    def mixed(x: Array) -> Array:
        part = jnp.maximum(during - k, 0).reshape(-1, *(1,) * (x.ndim - 1))
        return x[k] + part * (x[after] - x[k])

    nearest = jnp.minimum((at + 0.5).astype(jnp.int32), N)
    worth = tuple(x[nearest].at[0].set(0) for x in plan.multipliers)
    return plan._replace(q=q, v=v, tau=mixed(plan.tau), gains=mixed(plan.gains), multipliers=worth)


def state_at(robot: Robot, plan: Plan, steps: Array) -> tuple[Array, Array]:
    """Configuration (nq,) and velocity (nv,) of a plan, () steps from its beginning."""
    k = _step(plan, steps)
    part = jnp.clip(steps - k, 0, 1)
    way = displacement(robot, plan.q[k], plan.q[k + 1])
    q = integrate(robot, plan.q[k], part * way, 1.0)
    return q, plan.v[k] + part * (plan.v[k + 1] - plan.v[k])


def _aimed(problem: Problem, references: References) -> Problem:
    """The problem with other references, of running and of terminal terms alike."""

    def aim(terms: Mapping[str, Residual]) -> dict[str, Residual]:
        return {
            name: dataclasses.replace(term, reference=references.get(name, term.reference))
            for name, term in terms.items()
        }

    return dataclasses.replace(
        problem,
        running=aim(problem.running),
        terminal=aim(problem.terminal),
        contacts=references.get(CONTACTS, problem.contacts),
    )


def _own_reference(problem: Problem, name: str, given: Any) -> Any:
    """The reference that a term has, if one that is given is of its form.

    Raises:
        UnknownNameError: there is no such term.
        ArrayError: it is not.
    """
    known: dict[str, Any] = {
        name: term.reference for name, term in {**problem.terminal, **problem.running}.items()
    }
    if problem.contacts is not None:
        known[CONTACTS] = problem.contacts
    if name not in known:
        raise unknown_name("term", name, sorted(known), "of the problem")
    own = known[name]
    trees: list[Any] = [jax.tree.structure(x) for x in (given, own)]
    shapes = [[jnp.shape(leaf) for leaf in jax.tree.leaves(x)] for x in (given, own)]
    if trees[0] != trees[1] or shapes[0] != shapes[1]:
        raise ArrayError(
            f"the reference of {name!r} has arrays of the shapes {shapes[0]}, expected {shapes[1]} "
            "in a pytree like the problem's own. Make the problem with a reference of this form."
        )
    return own


def _step(plan: Plan, steps: Array) -> Array:
    """The step (...), int32, of a plan, (...) steps from its beginning."""
    return jnp.clip((steps + LATE).astype(jnp.int32), 0, len(plan.tau) - 1)


def _still(problem: Problem, terms: Terms) -> Plan:
    """The plan to stay where the robot is, without feedback."""
    still = guess(problem, terms.q, terms.v)
    N, n = still.tau.shape
    zero = jnp.zeros((), still.tau.dtype)
    gains = jnp.zeros((N, n, 2 * n), zero.dtype)
    count = jnp.zeros((), jnp.int32)
    worth = no_multipliers(problem, zero.dtype)
    ended = count, count + ITERATIONS, zero + LEAST
    return Plan(*still, gains, zero, zero, zero, worth, zero, *ended)
