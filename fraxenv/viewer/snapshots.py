"""Snapshots: an environment at one moment, as the viewer shows and plots it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fraxenv.controllers import SafetyFilter
from fraxenv.controllers.hands import EndEffectors, Hands
from fraxenv.controllers.safety.barriers import situation
from fraxenv.dynamics import compute_terms
from fraxenv.envs import Environment, EnvParams, EnvState, PoseGoals, World

Numbers = dict[str, float]
"""Plotted values by name."""


@dataclass(frozen=True)
class Snapshot:
    """A moment of one environment.

    Attributes:
        step: policy steps since the viewer was opened.
        state: of the environment, as NumPy arrays.
        reward: of the step that led here.
        info: that this step reported; None at a reset.
        obs: that the policy would see; None where nobody needs it.
        barriers: their smallest values, by name.
        key: that the episode is drawn from; None where nobody steps it here.
        action: (k,), of the step that led here; None where it had none of its own.
        intervention: whether a person gave it.
        closed: whether the gripper is told to be.
        memory: the policy's; None where it has not begun.
        path: (h, n, 3), m, where a policy that plans has the hands go; None of others.
    """

    step: int
    state: EnvState
    reward: float = 0.0
    info: Mapping[str, Any] | None = None
    obs: Any = None
    barriers: Numbers = field(default_factory=dict)
    key: Any = None
    action: NDArray[Any] | None = None
    intervention: bool = False
    closed: bool = False
    memory: Any = None
    path: NDArray[Any] | None = None

    @property
    def safety(self) -> Mapping[str, Any] | None:
        """The report of the safety filter."""
        return None if self.info is None else self.info.get("safety")


def torques(env: Environment, snapshot: Snapshot) -> Numbers:
    """N m and N, by joint, without the robot's name before it; none at a reset."""
    control = None if snapshot.info is None else snapshot.info.get("controller")
    if control is None:
        return {}
    names = env.robot.topology.dof_names
    robot = names[0].partition("_")[0] + "_"
    if all(name.startswith(robot) for name in names):
        names = tuple(name.removeprefix(robot) for name in names)
    return dict(zip(names, map(float, control["torque"]), strict=True))


def rewards(params: EnvParams, snapshot: Snapshot) -> Numbers:
    """The reward terms times their weights; none at a reset."""
    terms = None if snapshot.info is None else snapshot.info.get("reward_terms")
    weights = params.task.reward_weights
    return {name: float(weights.get(name, 1.0) * x) for name, x in (terms or {}).items()}


def contact_forces(env: Environment, snapshot: Snapshot) -> Numbers:
    """Normal forces, N, by pair of geoms; none without a scene, and at a reset."""
    contacts = None if snapshot.info is None else snapshot.info.get("contacts")
    if contacts is None:
        return {}
    names = (" and ".join(pair) for pair in env.physics.pairs)
    return dict(zip(names, map(float, contacts["normal_force"]), strict=True))


def hands_of(env: Environment, params: EnvParams) -> EndEffectors:
    """The frames that the task moves, or all of the robot's end effectors."""
    if isinstance(params.task, PoseGoals):
        return params.task.end_effector
    names = env.robot.end_effectors
    return names[0] if len(names) == 1 else tuple(names)


def default_filter(env: Environment) -> SafetyFilter:
    """The safety filter of an environment that has none of its own."""
    return SafetyFilter(end_effectors=Hands.of(hands_of(env, env.default_params)).names)


@functools.lru_cache(maxsize=8)
def barrier_meter(env: Environment) -> Callable[[EnvState], Numbers]:
    """A function that measures a state: the smallest value of each barrier of the safety filter.

    Of an environment without a filter it measures what the default filter would keep.
    """
    params = env.default_params
    robot = env.robot
    safety = params.safety or default_filter(env)

    @jax.jit
    def values(q: Any, v: Any, world: World) -> Any:
        terms = compute_terms(robot, q, v)
        here = situation(robot, terms, world.obstacles, world.scene)
        return [b.function(robot, here, b).min(initial=np.inf) for b in safety.barriers]

    names = [b.name for b in safety.barriers]
    return lambda state: dict(
        zip(names, map(float, values(state.q, state.v, state.world)), strict=True)
    )
