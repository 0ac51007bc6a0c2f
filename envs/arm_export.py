"""What of an environment runs on an arm: functions for `fraxenv.export`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fraxenv.controllers import Controller
from fraxenv.controllers.hands import Hands
from fraxenv.controllers.safety.barriers import NO_OBSTACLES
from fraxenv.dynamics import Obstacles, compute_terms, frame_jacobian, frame_pose

from .arm_control import ArmControl, ArmMemory
from .environment import Environment
from .state import EnvParams

UNITS = {
    "q": "rad and m",
    "v": "rad/s and m/s",
    "tau": "N m and N, within the effort limits",
    "mass_matrix": "kg m^2, kg m and kg",
    "bias": "N m and N, of gravity and of Coriolis' and centrifugal forces",
    "obstacles": "m and m/s, world",
}


def arm_library(
    env: Environment,
    params: EnvParams | None = None,
    policy: Callable[[Array], Array] | None = None,
) -> dict[str, Any]:
    """The arguments of `fraxenv.export`, besides a name, for a library that controls an arm.

        NAME_begin(q, v) -> memory                      the arm is to stay where it is
        NAME_aim(memory, q, action) -> memory           a policy's action, at the policy's rate
        NAME_control(memory, q, v, gains, obstacles) -> tau, memory, report
                                                        at the environment's control rate
        NAME_terms(q, v) -> bias, mass_matrix, and of each hand position, rotation and Jacobian
        NAME_policy(observation) -> action              of a policy, if one is given

    The controller's numbers are `gains`; `report` is the safety filter's. Both it and `obstacles`
    are there where the environment has a filter, and obstacles. Where it has an observer the memory
    has its state: what acts on the arm and is not in the model is compensated, and there to read.

    Args:
        env: the environment, of one arm.
        params: its parameters; the default ones if omitted.
        policy: action (k,) of an observation (n,).
    """
    params = env.default_params if params is None else params
    robot, space, safety = env.robot, params.action, params.safety
    rate = 1.0 / env.control_hz
    arm = ArmControl(robot, space, params.controller, rate, safety, params.observer)
    observation, state = env.reset(jax.random.key(0), params)
    ends = Hands.of(getattr(space, "end_effector", robot.frame_names[-1])).names

    def begin(q: Array, v: Array) -> ArmMemory:
        """The memory of an arm that is told to stay where it is."""
        return arm.begin(q, v)

    def aim(memory: ArmMemory, q: Array, action: Array) -> ArmMemory:
        """What the arm is told to do by an action."""
        return arm.aim(memory, q, action)

    def control(
        memory: ArmMemory,
        q: Array,
        v: Array,
        gains: Controller[Any],
        obstacles: Obstacles = NO_OBSTACLES,
    ) -> tuple[Any, ...]:
        """One control step: torques, and what is to be remembered until the next one."""
        done = dataclasses.replace(arm, controller=gains).control(memory, q, v, obstacles)
        return done if safety is not None else done[:2]

    def terms(q: Array, v: Array) -> dict[str, Any]:
        """The arm's dynamics, and where its hands are; a Jacobian is [linear; angular]."""
        t = compute_terms(robot, q, v)
        found: dict[str, Any] = {"mass_matrix": t.mass_matrix, "bias": t.bias}
        for end in ends:
            position, rotation = frame_pose(robot, q, end, kin=t.kin)
            jacobian = frame_jacobian(robot, q, end, kin=t.kin)
            found[end] = {"position": position, "rotation": rotation, "jacobian": jacobian}
        return found

    q, v = state.q, jnp.zeros_like(state.v)
    action = jnp.zeros(env.num_actions, q.dtype)
    memory = jax.jit(arm.begin)(q, v)
    stepped = [memory, q, v, params.controller]
    if safety is not None:
        stepped.append(state.world.obstacles)
    functions: dict[str, Any] = {"begin": begin, "aim": aim, "control": control, "terms": terms}
    examples = {"begin": [q, v], "aim": [memory, q, action], "control": stepped, "terms": [q, v]}
    report = ["report"] if safety is not None else []
    results: dict[str, Any] = {
        "begin": "memory", "aim": "memory", "control": ["tau", "memory", *report]
    }  # fmt: skip
    if policy is not None:

        def act(observation: Array) -> Array:
            return policy(observation)

        layout = ", ".join(f"{name} ({n})" for name, n in env.observation_layout.items())
        act.__doc__ = f"A trained policy's action. The observation: {layout}."
        functions["policy"], examples["policy"] = act, [observation]
        results["policy"] = "action"
    units = UNITS | {"action": _action_unit(env)}
    return {"fn": functions, "example_args": examples, "results": results, "units": units}


def _action_unit(env: Environment) -> str:
    """What the numbers of an action are."""
    axes = env.default_params.action.axes(env.robot)
    return f"each in [-1, 1], clipped: {', '.join(axis.name for axis in axes)}"
