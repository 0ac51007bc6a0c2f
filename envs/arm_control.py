"""The control of one arm by an action space: what environments do between two actions, without the
physics, for whoever else moves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from fraxenv.controllers import Controller
from fraxenv.controllers.observer import MomentumObserver, ObserverState
from fraxenv.controllers.safety.barriers import NO_OBSTACLES
from fraxenv.controllers.safety.filter import SafetyFilter, SafetyReport, no_safety_report
from fraxenv.dynamics import (
    Obstacles,
    Payload,
    Robot,
    compute_terms,
    effort_bounds,
    move_obstacles,
    terms_with_payload,
    with_payload,
)
from fraxenv.dynamics.actuation import felt_velocity

from .actions.base import ActionSpace
from .control_loop import informed, steps_ahead


class ArmMemory(NamedTuple):
    """What is remembered from control step to control step.

    Attributes:
        space: the action space's memory.
        controller: the controller's.
        target: what the arm is told to do.
        observer: the observer's; None without one.
    """

    space: Any
    controller: Any
    target: Any
    observer: ObserverState | None = None


@dataclass(frozen=True)
class ArmControl:
    """Pure functions of one arm, with nq coordinates and nv degrees of freedom.

    Attributes:
        robot: the model.
        space: what an action means.
        controller: of the space's targets.
        dt: s, between control steps.
        safety: the filter of its torques; None for none.
        observer: of torques that act and are not in the model; None for none.
    """

    robot: Robot
    space: ActionSpace
    controller: Controller[Any]
    dt: float
    safety: SafetyFilter | None = None
    observer: MomentumObserver | None = None

    def begin(self, q: Array, v: Array) -> ArmMemory:
        """The memory of an arm that is told to stay at `q` (nq,), rad and m."""
        space, terms = self.space.init(self.robot, q), compute_terms(self.robot, q, v)
        return ArmMemory(
            space,
            self.controller.init(self.robot, terms),
            self.space.hold(self.robot, q, space),
            None if self.observer is None else self.observer.init(terms),
        )

    def aim(self, memory: ArmMemory, q: Array, action: Array) -> ArmMemory:
        """The memory after an action (k,), clipped to [-1, 1], at `q` (nq,)."""
        action = jnp.clip(action, -1.0, 1.0)
        target, space = self.space.command(self.robot, q, action, memory.space)
        return memory._replace(space=space, target=target)

    def control(
        self,
        memory: ArmMemory,
        q: Array,
        v: Array,
        obstacles: Obstacles = NO_OBSTACLES,
        load: Payload | None = None,
    ) -> tuple[Array, ArmMemory, SafetyReport]:
        """Torques (nv,), N m and N, within the effort limits; the next memory; the report.

        Args:
            memory: after the last step, or after `aim`.
            q: (nq,), rad and m.
            v: (nv,), rad/s and m/s.
            obstacles: in the world, for the filter.
            load: what the arm carries besides; None for nothing.
        """
        robot, dt = self.robot, jnp.asarray(self.dt, q.dtype)
        terms = compute_terms(robot, q, v)
        if load is not None:
            terms = terms_with_payload(robot, terms, load)
            robot = with_payload(robot, load)
        observed, told = informed(self.observer, robot, terms, memory.observer, dt)
        tau, controller, _ = self.controller(robot, told[0], memory.target, memory.controller, dt)
        bounds = effort_bounds(robot, felt_velocity(robot, v, terms.mass_matrix, dt))
        report = no_safety_report(q.dtype)
        if self.safety is not None:
            near = self.safety.look_around(robot, q, obstacles, kin=terms.kin)
            late = steps_ahead(self.observer)
            near = move_obstacles(near, late * dt) if late else near
            error = None if self.safety.robust is None or observed is None else observed.error
            tau, report = self.safety(robot, told[1], tau, dt, near, bounds, error=error)
        tau = jnp.clip(tau, *bounds)
        if self.observer is not None and observed is not None:
            observed = self.observer.after(robot, terms, tau, observed, dt)
        return tau, memory._replace(controller=controller, observer=observed), report
