"""The control loop: what happens between two actions of a policy, at the controller's rate.

    controller        (terms, target) -> torque that it asks for
    safety filter     the nearest torque that keeps every barrier
    motors            what is applied of it
    physics           one or more steps in time

All of it is one pure function of small arrays; data flow one way.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fraxenv.controllers import Controller
from fraxenv.controllers.limits import TorqueLimits, torque_range, with_torque
from fraxenv.controllers.safety.filter import (
    SafetyFilter,
    SafetyReport,
    no_safety_report,
    worse_report,
)
from fraxenv.dynamics import Obstacles, Robot, compute_terms, move_obstacles
from fraxenv.errors import ConfigError

from .physics import Physics
from .randomisation import Episode


@dataclass(frozen=True)
class Rates:
    """How often what happens, Hz: each a multiple of the one before.

    Attributes:
        policy: actions.
        control: updates of the controller.
        physics: integration steps.

    Raises:
        ConfigError: one is no whole number, or no multiple.
    """

    policy: int
    control: int
    physics: int

    def __post_init__(self) -> None:
        rates = {f"{name}_hz": rate for name, rate in vars(self).items()}
        for name, rate in rates.items():
            if isinstance(rate, bool) or not isinstance(rate, int) or rate <= 0:
                raise ConfigError(f"{name}={rate!r}, expected a positive whole number of Hz.")
        for slow, fast in pairwise(rates):
            if rates[fast] % rates[slow]:
                raise ConfigError(
                    f"{fast}={rates[fast]} is not a multiple of {slow}={rates[slow]}. Choose a "
                    f"{fast} that is, e.g. {rates[slow] * max(1, rates[fast] // rates[slow])}."
                )


class LoopState(NamedTuple):
    """What the control loop changes.

    Attributes:
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        controller: the controller's own.
        episode: what was drawn for the episode, and what is under way in it.
    """

    q: Array
    v: Array
    controller: Any
    episode: Episode | None


def control_loop(
    robot: Robot,
    physics: Physics,
    controller: Controller[Any],
    safety: SafetyFilter | None,
    obstacles: Obstacles,
    state: LoopState,
    target: Any,
    rates: Rates,
) -> tuple[LoopState, dict[str, Array], SafetyReport]:
    """The control steps of one policy step.

    Args:
        robot: what controller and filter take the robot for; the physics has the episode's.
        physics: what moves it.
        controller: with its nominal gains.
        safety: the filter of its torques; None for none.
        obstacles: what is around the robot, as it is when the policy step begins.
        state: then.
        target: the controller's, for the whole policy step.
        rates: of policy, controller and physics.

    Returns:
        The state afterwards; the telemetry of the last control step, `torque` (nv,) among it, N m
        and N, commanded; the worst of the filter's reports.
    """
    dtype = state.q.dtype
    dt = jnp.asarray(1.0 / rates.physics, dtype)
    control_dt = jnp.asarray(1.0 / rates.control, dtype)
    episode = state.episode
    true_robot = robot if episode is None else episode.true_robot(robot)
    same_robot = episode is None or not episode.robot
    if episode is not None:
        controller = episode.own_controller(controller)
    if safety is not None:
        obstacles = safety.look_around(robot, state.q, obstacles)

    def control_step(carry: tuple[Any, ...], k: Array) -> tuple[tuple[Any, ...], Any]:
        q, v, memory, torques, worst = carry
        terms = compute_terms(robot, q, v)
        bounds = None  # the robot's own
        if isinstance(controller, TorqueLimits):
            bounds = torque_range(controller, robot, memory.torque, control_dt)
        tau, memory, telemetry = controller(robot, terms, target, memory, control_dt)
        if safety is not None:
            around = move_obstacles(obstacles, control_dt * k.astype(dtype))
            tau, report = safety(robot, terms, tau, dt, around, bounds)
            worst = worse_report(worst, report)
            if bounds is not None:
                memory = with_torque(memory, tau)
        applied = tau
        if episode is not None:
            applied, torques = episode.applied_torque(robot, tau, torques)
        q, v = physics.step(true_robot, q, v, applied, dt, terms if same_robot else None)
        for _substep in range(rates.physics // rates.control - 1):
            q, v = physics.step(true_robot, q, v, applied, dt, None)
        return (q, v, memory, torques, worst), {"torque": tau, **telemetry}

    torques = None if episode is None else episode.torques
    start = (state.q, state.v, state.controller, torques, no_safety_report(dtype))
    steps = jnp.arange(rates.control // rates.policy, dtype=jnp.int32)
    (q, v, memory, torques, worst), telemetry = jax.lax.scan(control_step, start, steps)
    if episode is not None:
        episode = dataclasses.replace(episode, torques=torques)
    last = jax.tree.map(lambda x: x[-1], telemetry)
    return LoopState(q, v, memory, episode), last, worst
