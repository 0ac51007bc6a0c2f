"""The registry of environments, and `make`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .dynamics.errors import check_choice
from .errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from .controllers import SafetyFilter
    from .dynamics import Robot
    from .envs import ActionSpace, Environment, EnvParams, Task

NAMESPACE = "fraxenv"
"""Gymnasium namespace: the id `PandaReach-v0` is `fraxenv/PandaReach-v0` there."""


@dataclass(frozen=True)
class EnvSpec:
    """A registered environment.

    Attributes:
        id: its name, e.g. `PandaReach-v0`.
        description: one line.
        robot: name of a bundled robot.
        task: constructor of the task; takes `end_effector` and the task's options.
        end_effector: name of the end effector that acts.
        action: name of the default action space.
        max_steps_in_episode: policy steps.
        safety: whether torques go through the safety filter.
        stop_stiffness: N m/rad, of the soft stops at the position limits.
        stop_damping: N m s/rad, likewise.
    """

    id: str
    description: str
    robot: str
    task: Callable[..., Task]
    end_effector: str = "hand"
    action: str = "ee_delta_pose"
    max_steps_in_episode: int = 150
    safety: Literal["cbf", "none"] = "none"
    stop_stiffness: float = 2000.0
    stop_damping: float = 50.0


def _reach(**options: Any) -> Task:
    from .envs import Reach

    return Reach(**options)


def _reach_pose(**options: Any) -> Task:
    from .envs import POSE_WEIGHTS, Reach

    return Reach(**{"orientation": True, "reward_weights": dict(POSE_WEIGHTS), **options})


def _reach_obstacles(**options: Any) -> Task:
    from .envs import ReachObstacles

    return ReachObstacles(**options)


_SPECS = {
    spec.id: spec
    for spec in (
        EnvSpec("PandaReach-v0", "Panda: bring the hand to a random position", "panda", _reach),
        EnvSpec(
            "PandaReachPose-v0", "Panda: bring the hand to a random pose", "panda", _reach_pose
        ),
        EnvSpec(
            "PandaReachObstacles-v0",
            "Panda: bring the hand to a random position among spheres, with the safety filter on",
            "panda",
            _reach_obstacles,
            safety="cbf",
        ),
    )
}

_OVERRIDES = {
    "robot": "a Robot, in place of the registered one",
    "action": "name of an action space, or an ActionSpace",
    "action_options": "options of the action space, a dict",
    "controller": "a Controller, in place of the action space's own",
    "controller_options": "options of the controller, a dict",
    "task_options": "options of the task, a dict",
    "safety": "'cbf', 'none', or a SafetyFilter",
    "safety_options": "options of the safety filter, a dict",
    "policy_hz": "actions per second",
    "control_hz": "controller updates per second",
    "physics_hz": "integration steps per second",
    "max_steps_in_episode": "policy steps after which an episode is truncated",
    "backend": "how batches are computed; see fraxenv.fuse",
}


def list_envs() -> list[str]:
    """Ids of all registered environments."""
    return list(_SPECS)


def env_spec(id: str) -> EnvSpec:
    """The registration of an id.

    Raises:
        UnknownNameError: there is no such id; names the closest ones.
    """
    name = id.removeprefix(f"{NAMESPACE}/")
    if name not in _SPECS:
        raise unknown_name("environment", id, _SPECS)
    return _SPECS[name]


def make(id: str, **overrides: Any) -> tuple[Environment, EnvParams]:
    """Make an environment and its parameters, as gymnax does.

    >>> env, params = make("PandaReach-v0", action="torque", max_steps_in_episode=100)

    Args:
        id: one of `list_envs()`.
        **overrides: any of
            `robot` (a `Robot`), `action` (name of an action space, or one), `action_options`,
            `controller` (one), `safety` ("cbf", "none" or a `SafetyFilter`), `controller_options`,
            `task_options`, `safety_options` (dicts of the fields of the classes concerned),
            `policy_hz`, `control_hz`, `physics_hz` (whole numbers),
            `max_steps_in_episode`, `backend` (how batches are computed; see `fraxenv.fuse`).

    Returns:
        The environment and its default parameters.

    Raises:
        UnknownNameError: an unknown id, override or option; names the closest and the valid ones.
        ConfigError: an override has a value that it cannot have.
    """
    spec = env_spec(id)
    if overrides.get("backend") == "mujoco":
        raise ConfigError(
            f"{spec.id}: backend='mujoco', expected it with gymnasium.make alone: MuJoCo's physics "
            "runs on the host, for one environment. Use "
            f"gymnasium.make('{NAMESPACE}/{spec.id}', backend='mujoco'), or several of these by "
            "gymnasium.make_vec(..., vectorization_mode='sync')."
        )
    for key in overrides:
        if key not in _OVERRIDES:
            raise unknown_name(f"override of {spec.id}", key, _OVERRIDES)

    for key in ("action_options", "controller_options", "task_options", "safety_options"):
        if not isinstance(overrides.get(key, {}), Mapping):
            raise ConfigError(f"{key}={overrides[key]!r}, expected a dict of option -> value.")

    from .dynamics import Robot, load_robot
    from .envs import Environment, EnvParams

    robot = overrides.get("robot")
    if robot is not None and not isinstance(robot, Robot):
        raise ConfigError(
            f"robot={robot!r}, expected a Robot, such as dynamics.load_robot('panda') or "
            "dynamics.load_urdf('my.urdf') returns."
        )
    if robot is None:
        robot = load_robot(spec.robot)
        ones = np.ones(robot.nv)
        robot = robot.replace(
            stop_stiffness=spec.stop_stiffness * ones, stop_damping=spec.stop_damping * ones
        )
    action = _action(spec, robot, overrides)
    controller = overrides.get("controller") or action.controller()
    controller = _with_options("controller", controller, overrides.get("controller_options"))
    task = _with_options(
        "task", spec.task(end_effector=spec.end_effector), overrides.get("task_options")
    )
    action.axes(robot)  # an action space that does not fit the robot says so here

    max_steps = overrides.get("max_steps_in_episode", spec.max_steps_in_episode)
    if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1:
        raise ConfigError(f"max_steps_in_episode={max_steps!r}, expected a whole number >= 1.")
    options = ("policy_hz", "control_hz", "physics_hz", "backend")
    rates = {k: overrides[k] for k in options if k in overrides}
    if "control_hz" in rates:
        rates.setdefault("physics_hz", max(1000, rates["control_hz"]))
    safety = _safety(spec, overrides)
    params = EnvParams(max_steps, action, controller, task, safety)
    env = Environment(spec.id, robot, params, **rates)
    return env, env.default_params


def _safety(spec: EnvSpec, overrides: Mapping[str, Any]) -> SafetyFilter | None:
    from .controllers import SafetyFilter

    safety = overrides.get("safety", spec.safety)
    options = overrides.get("safety_options")
    if isinstance(safety, str):
        check_choice(f"safety of {spec.id}", safety, ("cbf", "none"))
        safety = SafetyFilter(end_effectors=(spec.end_effector,)) if safety == "cbf" else None
    elif not isinstance(safety, SafetyFilter):
        raise ConfigError(
            f"safety={safety!r} of {spec.id}, expected 'cbf', 'none' or a SafetyFilter."
        )
    if safety is None and options:
        raise ConfigError(
            f"safety_options of {spec.id} without a safety filter. Pass safety='cbf' as well."
        )
    return _with_options("safety", safety, options)  # type: ignore[no-any-return]


def _action(spec: EnvSpec, robot: Robot, overrides: Mapping[str, Any]) -> ActionSpace:
    from .envs import ACTION_SPACES

    action = overrides.get("action", spec.action)
    if isinstance(action, str):
        if action not in ACTION_SPACES:
            raise unknown_name(f"action space of {spec.id}", action, ACTION_SPACES)
        action = ACTION_SPACES[action](end_effector=spec.end_effector)
    return _with_options("action", action, overrides.get("action_options"))  # type: ignore[no-any-return]


def _with_options(what: str, configuration: Any, options: Mapping[str, Any] | None) -> Any:
    """Change fields of a configuration; dict-valued ones (weights) are merged, key by key."""
    if not options:
        return configuration
    known = {f.name: getattr(configuration, f.name) for f in dataclasses.fields(configuration)}
    changes = {}
    for key, value in options.items():
        if key not in known:
            raise unknown_name(f"{what} option of {type(configuration).__name__}", key, known)
        if isinstance(known[key], dict):
            for name in value:
                if name not in known[key]:
                    raise unknown_name(f"entry of {key}", name, known[key])
            value = {**known[key], **value}
        changes[key] = value
    return dataclasses.replace(configuration, **changes)
