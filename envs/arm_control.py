"""The control of one arm by an action space: what environments do between two actions, without the
physics, for whoever else moves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from fraxenv.controllers import Controller
from fraxenv.dynamics import Robot, compute_terms, effort_bounds
from fraxenv.dynamics.actuation import felt_velocity

from .actions.base import ActionSpace


class ArmMemory(NamedTuple):
    """What is remembered from control step to control step.

    Attributes:
        space: the action space's memory.
        controller: the controller's.
        target: what the arm is told to do.
    """

    space: Any
    controller: Any
    target: Any


@dataclass(frozen=True)
class ArmControl:
    """Pure functions of one arm, with nq coordinates and nv degrees of freedom.

    Attributes:
        robot: the model.
        space: what an action means.
        controller: of the space's targets.
        dt: s, between control steps.
    """

    robot: Robot
    space: ActionSpace
    controller: Controller[Any]
    dt: float

    def begin(self, q: Array, v: Array) -> ArmMemory:
        """The memory of an arm that is told to stay at `q` (nq,), rad and m."""
        space = self.space.init(self.robot, q)
        return ArmMemory(
            space,
            self.controller.init(self.robot, compute_terms(self.robot, q, v)),
            self.space.hold(self.robot, q, space),
        )

    def aim(self, memory: ArmMemory, q: Array, action: Array) -> ArmMemory:
        """The memory after an action (k,), clipped to [-1, 1], at `q` (nq,)."""
        action = jnp.clip(action, -1.0, 1.0)
        target, space = self.space.command(self.robot, q, action, memory.space)
        return memory._replace(space=space, target=target)

    def control(self, memory: ArmMemory, q: Array, v: Array) -> tuple[Array, ArmMemory]:
        """Torques (nv,), N m and N, within the effort limits; and the memory after the step."""
        dt = jnp.asarray(self.dt, q.dtype)
        terms = compute_terms(self.robot, q, v)
        given = self.robot, terms, memory.target, memory.controller, dt
        tau, controller, _ = self.controller(*given)
        felt = felt_velocity(self.robot, v, terms.mass_matrix, dt)
        limited = jnp.clip(tau, *effort_bounds(self.robot, felt))
        return limited, memory._replace(controller=controller)
