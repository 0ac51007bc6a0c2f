"""The safety filter: the torque nearest to a controller's that keeps every barrier.

    minimise    |a - a_nominal|^2, weighed apart in the task and in its nullspace
    subject to  rows a >= bounds, one row per barrier, softly,
                the effort limits on M a + bias, hard

over the accelerations `a`. The norm is that of the kinetic energy, `a^T M a`, which splits into the
task's part `(J a)^T Lambda (J a)` and the nullspace's; so without a task the filter gives way as
constraints do in Gauss's principle.

Source: Morton and Pavone, "Safe, task-consistent manipulation with operational space control
barrier functions", IROS 2025.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import (
    Kinematics,
    Obstacles,
    Poses,
    Robot,
    Terms,
    frame_jacobian,
    nearest_obstacles,
)
from fraxenv.dynamics.joint_resistance import implicit_resistance
from fraxenv.dynamics.math.algebra import matmul, norm, smallest
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.dynamics.solvers.cholesky import cholesky, cholesky_solve, solve_upper
from fraxenv.dynamics.solvers.qp import QP, solve_qp
from fraxenv.errors import check_count

from ..groups import finger_mask
from .barriers import (
    NO_OBSTACLES,
    SINGULAR,
    Barrier,
    barrier_names,
    joint_position,
    joint_velocity,
    obstacles,
    self_collision,
    situation,
)
from .braking import braking_torque
from .conditions import Conditions, barrier_conditions, velocity_conditions
from .foresight import Foresight, WayOut, closer_way, escape_torque, is_clear, way_out
from .robust import Robustness, robust_demand

SafetyReport = dict[str, Array]
"""The report of a filter, scalars by name; see `SafetyFilter`."""

INTERVENTION = 1e-5
"""Deviation from the nominal torque, relative to its size, that counts as an intervention."""


def default_barriers(
    margin: float = 0.002,
    position_margin: float = 5e-4,
    velocity_margin: float = 0.02,
    *,
    bounded_curvature: bool = False,
    obstacle_margin: float | None = None,
) -> tuple[Barrier, ...]:
    """Joint limits, obstacles and self-collision.

    Margins are what a control step of 2 ms can cost.

    Args:
        margin: m, of distances.
        position_margin: rad and m, of joints' position limits.
        velocity_margin: rad/s and m/s, of joints' velocity limits.
        bounded_curvature: of distances, for robots of capsules and boxes; see `obstacles`.
        obstacle_margin: m, of distances from obstacles; `margin` if None.
    """
    off = margin if obstacle_margin is None else obstacle_margin
    return (
        joint_position(margin=position_margin),
        joint_velocity(margin=velocity_margin),
        obstacles(margin=off, bounded_curvature=bounded_curvature),
        self_collision(margin=margin, bounded_curvature=bounded_curvature),
    )


@pytree_dataclass
class SafetyFilter:
    """Changes a controller's torques (or velocities) as little as barriers demand.

    Fingers of grippers (`finger_joints`) keep their torques, and count as moving on as they do: the
    filter knows nothing of what they press on. Barriers of joint limits are those of the arm.

    Attributes:
        barriers: to be kept; any of `fraxenv.controllers.barriers`, or one's own.
        end_effectors: names of the frames whose motion is the task; none for a filter in joint
            space.
        task_weight: weight of a change of the task's motion, against one for its nullspace.
        enabled: whether torques are changed; if not, barriers are only reported.
        max_active: rows that may be active at a time; see `solve_qp`.
        max_iterations: see `solve_qp`.
        nearest: obstacles of each kind that every collision shape is kept off, the nearest ones at
            the last `look_around`; None for all. Much faster where there are many.
        robust: what is allowed for of a robot that is not quite the model; None for nothing.
        foresight: how it looks for ways out of what moves; None for not at all.

    The report of a filter is a dict of scalars: `min_barrier`, the smallest barrier value, in its
    unit, and `min_barrier_row`, its index in `barrier_names` (-1 for none); `slack`, by how much
    the worst row's acceleration falls short, and `feasible`, whether none does and all are numbers;
    `deviation`, the norm of the change of torque, N m; `intervened`; `residual`, of the quadratic
    program.

    Where a condition is not a finite number, of an obstacle or of a state that is none, the robot
    brakes (`braking_torque`), and the report is not `feasible`, with no `slack`; `min_barrier` is
    then the smallest value of those that are.

    With `foresight` the filter knows a way out, a motion along which it foresees the barriers. It
    is taken where to brake does not leave the margin that foresight asks for, as if the controller
    had asked for it, and where not all conditions can be met, as it is: then what it foresees keeps
    all barriers, and the report is `feasible` all the same.
    """

    barriers: tuple[Barrier, ...] = field(default_factory=default_barriers)
    end_effectors: tuple[str, ...] = static(default=())
    task_weight: ArrayLike = 10.0
    enabled: bool = static(default=True)
    max_active: int | None = static(default=None)
    max_iterations: int | None = static(default=None)
    nearest: int | None = static(default=None)
    robust: Robustness | None = None
    foresight: Foresight | None = None

    def __post_init__(self) -> None:
        if self.nearest is not None:
            each = "obstacles per collision shape, or None for all"
            check_count("SafetyFilter: nearest", self.nearest, of=each)

    def look_around(
        self,
        robot: Robot,
        q: ArrayLike,
        obstacles: Obstacles,
        *,
        kin: Kinematics | Poses | None = None,
    ) -> Obstacles:
        """The nearest obstacles, for the filter's next steps, until something has moved far.

        Environments look around once per policy step.

        Args:
            robot: the model.
            q: (nq,), rad and m.
            obstacles: in the world.
            kin: kinematics at `q`, or the bodies' poses, if already computed.
        """
        if self.nearest is None:
            return obstacles
        return nearest_obstacles(robot, q, obstacles, self.nearest, kin=kin)

    def look_ahead(
        self, robot: Robot, terms: Terms, obstacles: Obstacles = NO_OBSTACLES, scene: Any = None
    ) -> WayOut | None:
        """A way out, for the filter's next steps; None without `foresight`.

        Environments look ahead once per policy step; a filter that is given no way looks itself.

        Args:
            robot: the model, each of whose joints has a motor.
            terms: its terms at this state.
            obstacles: in the world, or around the robot; what moves may come from far.
            scene: see `Situation`.

        Raises:
            ConfigError: the robot has joints that no motor drives, such as a floating base.
        """
        if self.foresight is None or not self.barriers:
            return None
        here = robot, terms, self.barriers, obstacles, self.foresight
        return closer_way(*here, way_out(*here, scene), scene)

    def __call__(
        self,
        robot: Robot,
        terms: Terms,
        tau: Array,
        dt: ArrayLike,
        obstacles: Obstacles = NO_OBSTACLES,
        bounds: tuple[Array, Array] | None = None,
        scene: Any = None,
        error: Array | None = None,
        way: WayOut | None = None,
    ) -> tuple[Array, SafetyReport]:
        """Safe torques (nv,), N m and N, and the report.

        Args:
            robot: the model.
            terms: its terms at this state.
            tau: (nv,), N m and N, of the controller. Where it is not finite the robot is held
                against gravity.
            dt: s, the physics' time step, over which damping and friction are implicit.
            obstacles: in the world.
            bounds: smallest and largest torque (nv,). Default: the effort limits.
            scene: what else barriers may read, `Situation.scene`.
            error: (nv,), N m and N, with `robust`: by how much the estimate that is in `terms` was
                off, `ObserverState.error`. Nothing if None.
            way: with `foresight`, of the last `look_ahead`; from here if None.
        """
        nominal, lower, upper = self._nominal(robot, terms, tau, bounds)
        if not self.barriers:
            return nominal, no_safety_report(nominal.dtype)
        asked, escape = nominal, nominal
        if self.foresight is None or not self.enabled:
            way = None
        elif way is None:
            way = self.look_ahead(robot, terms, obstacles, scene)
        if way is not None:
            away = jnp.clip(escape_torque(robot, terms, way.velocity), lower, upper)
            escape = jnp.where(finger_mask(robot), nominal, away)
            nominal = jnp.where(way.taken, escape, nominal)
        around = obstacles, scene
        M, safe, problem = self._torque_problem(
            robot, terms, nominal, dt, around, lower, upper, error
        )
        if not self.enabled:
            least = _least(safe.values)
            return nominal, _completed(_unchanged(nominal.dtype), least, nominal - nominal, nominal)
        change, report = self._solve(robot.nv, safe, problem)

        kept = jnp.clip(nominal + matmul(M, change), lower, upper)
        if self.foresight is not None and way is not None:
            here = robot, terms, self.barriers, obstacles, self.foresight, way.velocity, scene
            stuck = ~report["feasible"] & _known(safe)
            instead = jax.lax.cond(stuck, lambda: is_clear(*here), lambda: jnp.zeros((), bool))
            kept = jnp.where(instead, escape, kept)
            report["feasible"] |= instead
        told = asked, kept, _least(safe.values)

        def braked() -> tuple[Array, Array, tuple[Array, Array]]:
            known = jnp.where(jnp.isfinite(asked), asked, 0.0)
            torque = braking_torque(robot, terms, lower, upper)
            torque = jnp.where(finger_mask(robot), known, torque)
            return known, torque, _least(_numbers(safe.values))

        asked, filtered, least = jax.lax.cond(_known(safe), lambda: told, braked)
        return filtered, _completed(report, least, filtered - asked, asked)

    def quadratic_program(
        self,
        robot: Robot,
        terms: Terms,
        tau: Array,
        dt: ArrayLike,
        obstacles: Obstacles = NO_OBSTACLES,
        bounds: tuple[Array, Array] | None = None,
        scene: Any = None,
        error: Array | None = None,
    ) -> QP:
        """The quadratic program for these arguments, in changes of acceleration (nv,)."""
        nominal, lower, upper = self._nominal(robot, terms, tau, bounds)
        around = obstacles, scene
        _, _, problem = self._torque_problem(robot, terms, nominal, dt, around, lower, upper, error)
        return problem()

    def filter_velocity(
        self, robot: Robot, terms: Terms, v: Array, obstacles: Obstacles = NO_OBSTACLES
    ) -> tuple[Array, SafetyReport]:
        """Safe joint velocities (nv,), rad/s and m/s, and the report.

        For robots that are commanded in velocities: the barriers of relative degree two are kept
        as if of degree one, the velocity limits hold hard, and barriers of the velocity do not
        apply. In the report `slack` is one of barrier rates and `deviation` one of velocities.

        Args:
            robot: the model.
            terms: its terms at this configuration.
            v: (nv,), commanded; zero where it is not finite.
            obstacles: in the world.
        """
        dtype = terms.v.dtype
        limit = jnp.asarray(robot.velocity_limits, dtype)
        nominal = jnp.clip(jnp.where(jnp.isfinite(v), v, 0).astype(dtype), -limit, limit)
        barriers = [b for b in self.barriers if b.relative_degree == 2]
        if not barriers:
            return nominal, no_safety_report(dtype)
        still = dataclasses.replace(terms, v=jnp.zeros_like(terms.v))
        here = situation(robot, still, obstacles)
        safe = velocity_conditions(robot, barriers, here, nominal)
        least = _least(_numbers(safe.values))
        if not self.enabled:
            return nominal, _completed(_unchanged(dtype), least, jnp.zeros_like(nominal), nominal)

        def problem() -> QP:
            eye = jnp.eye(robot.nv, dtype=dtype)
            metric = self._metric(robot, terms)
            limits = -limit - nominal, limit - nominal
            return QP(metric, safe.matrix(robot.nv), safe.b, eye, *limits)

        change, report = self._solve(robot.nv, safe, problem)
        filtered = jnp.where(_known(safe), jnp.clip(nominal + change, -limit, limit), 0.0)
        return filtered, _completed(report, least, filtered - nominal, nominal)

    def row_names(self, robot: Robot, obstacles: Obstacles = NO_OBSTACLES) -> tuple[str, ...]:
        """Names of the rows that `min_barrier_row` counts; of `nearest` obstacles, if it is set."""
        around = self.look_around(robot, robot.q_default, obstacles)
        return barrier_names(robot, self.barriers, around)

    def _nominal(
        self, robot: Robot, terms: Terms, tau: Array, bounds: tuple[Array, Array] | None
    ) -> tuple[Array, Array, Array]:
        """The torque to be filtered, and its bounds."""
        dtype = terms.v.dtype
        limit = jnp.asarray(robot.effort_limits, dtype)
        lower, upper = (-limit, limit) if bounds is None else bounds
        nominal = jnp.where(jnp.all(jnp.isfinite(tau)), tau, terms.bias).astype(dtype)
        return jnp.clip(nominal, lower, upper), lower, upper

    def _torque_problem(
        self,
        robot: Robot,
        terms: Terms,
        nominal: Array,
        dt: ArrayLike,
        around: tuple[Obstacles, Any],
        lower: Array,
        upper: Array,
        error: Array | None,
    ) -> tuple[Array, Conditions, Callable[[], QP]]:
        """Inertia (nv, nv), the barriers' conditions, and the quadratic program that meets them.

        The program is not computed here: most states do not need it.
        """
        dt = jnp.asarray(dt, nominal.dtype)
        force, slope = implicit_resistance(robot, terms.q, terms.v, dt)
        M = terms.mass_matrix + jnp.diag(slope)
        fingers, held = finger_mask(robot), terms
        if fingers.any():
            M = _apart(M, fingers)
            held = dataclasses.replace(terms, mass_matrix=_apart(terms.mass_matrix, fingers))
        factor = cholesky(M)
        push = nominal - terms.bias - force
        free = cholesky_solve(factor, jnp.where(fingers, 0.0, push) if fingers.any() else push)
        here = situation(robot, terms, *around)
        safe = barrier_conditions(robot, self.barriers, here, free)
        if fingers.any():
            moving = safe.A
            safe = safe._replace(A=lambda x: moving(jnp.where(fingers, 0.0, x)))

        if self.robust is not None:
            more = robust_demand(self.robust, self.barriers, safe, factor, error)
            safe = safe._replace(b=safe.b + more)

        def problem() -> QP:
            metric = self._metric(robot, held)
            bounds = lower - nominal, upper - nominal
            return QP(metric, safe.matrix(robot.nv), safe.b, M, *bounds)

        return M, safe, problem

    def _solve(
        self, nv: int, safe: Conditions, problem: Callable[[], QP]
    ) -> tuple[Array, SafetyReport]:
        """The smallest safe change `x` (nv,), and its report; zero where nothing is lacking."""
        b, known = safe.b, _known(safe)

        def solve() -> tuple[Array, SafetyReport]:
            solution = solve_qp(
                problem(), max_active=self.max_active, max_iterations=self.max_iterations
            )
            return solution.x, {k: getattr(solution, k) for k in _unchanged(b.dtype)}

        def keep() -> tuple[Array, SafetyReport]:
            return jnp.zeros(nv, b.dtype), _unchanged(b.dtype)

        # The bounds hold without a change, so only barriers can ask for one.
        change, report = jax.lax.cond(known & jnp.any(b > 0), solve, keep)
        return change, {**report, "feasible": report["feasible"] & known}

    def _metric(self, robot: Robot, terms: Terms) -> Array:
        """`M + (task_weight - 1) J^T Lambda J` (nv, nv)."""
        M = terms.mass_matrix
        if not self.end_effectors:
            return M
        J = jnp.concatenate(
            [frame_jacobian(robot, terms.q, e, kin=terms.kin) for e in self.end_effectors]
        )
        X = solve_upper(cholesky(M), J.T)
        inverse_inertia = matmul(X.T, X)
        # Position and orientation have different units, so each is damped by its own mean.
        mean = jnp.mean(jnp.diagonal(inverse_inertia).reshape(-1, 3), axis=-1)
        if robot.nv < 6:  # a slide turns nothing, a hinge in the hand moves nothing: any unit does
            mean = jnp.where(mean > 0, mean, 1.0)
        damped = inverse_inertia + SINGULAR * jnp.diag(jnp.repeat(mean, 3))
        half = solve_upper(cholesky(damped), J)
        return M + (jnp.asarray(self.task_weight, M.dtype) - 1) * matmul(half.T, half)


def _apart(M: Array, fingers: np.ndarray) -> Array:
    """An inertia matrix (nv, nv) in which fingers (nv,) and the rest do not feel each other."""
    return jnp.where(fingers[:, None] == fingers, M, 0.0)


def no_safety_report(dtype: jnp.dtype) -> SafetyReport:
    """The report of a step without a filter: no barrier (it is infinite), and nothing changed."""
    return {
        **_unchanged(dtype),
        "min_barrier": jnp.full((), jnp.inf, dtype),
        "min_barrier_row": jnp.full((), -1, jnp.int32),
        "deviation": jnp.zeros((), dtype),
        "intervened": jnp.zeros((), bool),
    }


def worse_report(a: SafetyReport, b: SafetyReport) -> SafetyReport:
    """The worst of two steps: the smaller barrier, the larger slack, deviation and residual."""
    smaller = b["min_barrier"] < a["min_barrier"]
    return {
        "min_barrier": jnp.where(smaller, b["min_barrier"], a["min_barrier"]),
        "min_barrier_row": jnp.where(smaller, b["min_barrier_row"], a["min_barrier_row"]),
        "slack": jnp.maximum(a["slack"], b["slack"]),
        "deviation": jnp.maximum(a["deviation"], b["deviation"]),
        "intervened": a["intervened"] | b["intervened"],
        "residual": jnp.maximum(a["residual"], b["residual"]),
        "feasible": a["feasible"] & b["feasible"],
    }


def _unchanged(dtype: jnp.dtype) -> SafetyReport:
    """The quadratic program's part of the report of a step that is safe without a change."""
    zero = jnp.zeros((), dtype)
    return {"slack": zero, "residual": zero, "feasible": jnp.ones((), bool)}


def _known(safe: Conditions) -> Array:
    """Whether all conditions are numbers, and nothing endless is asked for."""
    return jnp.all(safe.b < jnp.inf)


def _numbers(values: Array) -> Array:
    """Values (m,), infinite where they are not finite."""
    return jnp.where(jnp.isfinite(values), values, jnp.inf)


def _least(values: Array) -> tuple[Array, Array]:
    """The smallest of the values (m,), and its index; infinite, and -1, of none."""
    if not len(values):
        return jnp.full((), jnp.inf, values.dtype), jnp.full((), -1, jnp.int32)
    return smallest(values)


def _completed(
    report: SafetyReport, least: tuple[Array, Array], change: Array, nominal: Array
) -> SafetyReport:
    """The report of a step, from the quadratic program's part of it."""
    deviation = norm(change)
    value, row = least
    return {
        **report,
        "min_barrier": value,
        "min_barrier_row": row,
        "deviation": deviation,
        "intervened": deviation > INTERVENTION * (1 + norm(nominal)),
    }
