"""The control loop: from a controller's target to motion, between two actions of a policy.

    controller        (terms, target) -> nominal torque
    safety filter     the nearest torque within the actuators' range that keeps every barrier
    actuators         limits, gain, delay -> applied torque
    physics           one or more integration steps; the world moves along

All of it is one pure function of small arrays; data flow one way.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from fraxenv.controllers import Controller
from fraxenv.controllers.safety.filter import (
    SafetyFilter,
    SafetyReport,
    no_safety_report,
    worse_report,
)
from fraxenv.dynamics import (
    Actuators,
    ActuatorState,
    Robot,
    Terms,
    compute_terms,
    move_obstacles,
)
from fraxenv.dynamics import step as dynamics_step
from fraxenv.errors import ConfigError, check_count

from .state import EnvParams
from .world import World, move_world


@dataclass(frozen=True)
class Rates:
    """Rates, Hz, each a multiple of the one before.

    Attributes:
        policy: actions.
        control: updates of the controller.
        physics: integration steps.

    Raises:
        ConfigError: a rate is no whole number, or no multiple.
    """

    policy: int
    control: int
    physics: int

    def __post_init__(self) -> None:
        rates = {f"{name}_hz": rate for name, rate in vars(self).items()}
        for name, rate in rates.items():
            check_count(name, rate, of="Hz")
        for slow, fast in pairwise(rates):
            if rates[fast] % rates[slow]:
                raise ConfigError(
                    f"{fast}={rates[fast]} is not a multiple of {slow}={rates[slow]}. Choose a "
                    f"{fast} that is, e.g. {rates[slow] * max(1, rates[fast] // rates[slow])}."
                )


class Physics(Protocol):
    """One step in time of a robot under joint torques.

    It is a part of an environment's identity: hashable by content, and constant in its programs.
    """

    differentiable: ClassVar[bool]
    """Whether a step has derivatives."""

    def check(self, where: str, params: EnvParams) -> None:
        """Check that this physics has what an environment's parameters need.

        Args:
            where: name of the environment.
            params: its parameters.

        Raises:
            ConfigError: it has not.
        """

    def step(
        self, robot: Robot, q: Array, v: Array, tau: Array, dt: Array, terms: Terms | None
    ) -> tuple[Array, Array]:
        """Configuration (nq,) and velocity (nv,) after `dt`, s, under the torques `tau` (nv,).

        `terms` are the robot's at `q` and `v`, or None for the physics to compute them.
        """


@dataclass(frozen=True)
class RigidBodyPhysics:
    """`fraxenv.dynamics.step`: semi-implicit Euler, with implicit damping, friction and stops."""

    differentiable: ClassVar[bool] = True

    def check(self, where: str, params: EnvParams) -> None:
        """Nothing is refused."""

    def step(
        self, robot: Robot, q: Array, v: Array, tau: Array, dt: Array, terms: Terms | None
    ) -> tuple[Array, Array]:
        """Configuration (nq,) and velocity (nv,) after `dt`, s."""
        return dynamics_step(robot, q, v, tau, dt, terms=terms)


class LoopState(NamedTuple):
    """The part of an environment's state that the control loop changes.

    Attributes:
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        world: the robot's surroundings.
        controller: state of the controller.
        actuators: state of the motors.
    """

    q: Array
    v: Array
    world: World
    controller: Any
    actuators: ActuatorState


class LoopParts(NamedTuple):
    """The parts of the control loop.

    Attributes:
        robot: the model that controller, filter and motors have.
        true_robot: the model that the physics has, if another; None for the same one.
        controller: the control law.
        safety: the filter of its torques; None for none.
        actuators: the motors.
        physics: the integrator of the robot's motion.
    """

    robot: Robot
    true_robot: Robot | None
    controller: Controller[Any]
    safety: SafetyFilter | None
    actuators: Actuators
    physics: Physics


def control_loop(
    parts: LoopParts, state: LoopState, target: Any, rates: Rates
) -> tuple[LoopState, dict[str, Array], SafetyReport]:
    """The control steps of one policy step.

    Args:
        parts: robot, controller, filter, motors, physics.
        state: at the beginning of the policy step.
        target: of the controller, for the whole policy step.
        rates: of policy, controller and physics.

    Returns:
        The state afterwards; the telemetry of the last control step, with `torque` (nv,), N m and
        N, commanded, and `saturation`, the fraction of the joints of which the controller asked for
        more than the motors' range; the worst of the filter's reports.
    """
    robot, true_robot, controller, safety, actuators, physics = parts
    moving = robot if true_robot is None else true_robot
    dtype = state.q.dtype
    dt = jnp.asarray(1.0 / rates.physics, dtype)
    control_dt = jnp.asarray(1.0 / rates.control, dtype)
    policy_dt = jnp.asarray(1.0 / rates.policy, dtype)
    if safety is not None:
        nearby = safety.look_around(robot, state.q, state.world.obstacles)

    def control_step(carry: tuple[Any, ...], k: Array) -> tuple[tuple[Any, ...], dict[str, Array]]:
        q, v, controller_state, actuator_state, worst = carry
        terms = compute_terms(robot, q, v)
        tau, controller_state, telemetry = controller(
            robot, terms, target, controller_state, control_dt
        )
        lower, upper = actuators.range(robot, v, actuator_state, control_dt)
        saturated = (tau < lower) | (tau > upper)
        if safety is not None:
            obstacles = move_obstacles(nearby, control_dt * k.astype(dtype))
            tau, report = safety(robot, terms, tau, dt, obstacles, (lower, upper))
            worst = worse_report(worst, report)
        applied, commanded, actuator_state = actuators(robot, tau, v, actuator_state, control_dt)
        for substep in range(rates.physics // rates.control):
            known = terms if substep == 0 and moving is robot else None
            q, v = physics.step(moving, q, v, applied, dt, known)
        telemetry |= {"saturation": jnp.mean(saturated.astype(dtype)), "torque": commanded}
        return (q, v, controller_state, actuator_state, worst), telemetry

    start = (state.q, state.v, state.controller, state.actuators, no_safety_report(dtype))
    steps = jnp.arange(rates.control // rates.policy, dtype=jnp.int32)
    (q, v, controller_state, actuator_state, worst), telemetry = jax.lax.scan(
        control_step, start, steps
    )
    world = move_world(state.world, policy_dt)
    last = jax.tree.map(lambda x: x[-1], telemetry)
    return LoopState(q, v, world, controller_state, actuator_state), last, worst
