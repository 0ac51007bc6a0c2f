"""The registry of environments, and `make`."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import ConfigError, check_choice, unknown_name
from .setups import SETUPS, EndEffectors, RobotSetup, setup_for

if TYPE_CHECKING:
    from .controllers import Controller, SafetyFilter
    from .dynamics import Robot
    from .envs import ActionSpace, Environment, EnvParams, Randomisation, Task

NAMESPACE = "fraxenv"
"""Gymnasium namespace: the id `PandaReach-v0` is `fraxenv/PandaReach-v0` there."""

MAX_STEPS = 150
"""Policy steps of an episode."""

NEAREST = 3
"""Obstacles of each kind that the safety filter keeps every collision shape off."""


@dataclass(frozen=True)
class TaskSpec:
    """A task that every robot can be given.

    Attributes:
        title: ends the ids of its environments.
        description: one line, of what the robot does.
        build: the task of a robot's setup and its end effectors.
        safety: "cbf" or "none": whether torques go through the safety filter by default.
        control_hz: controller updates per second by default, if the policy's rate divides it.
    """

    title: str
    description: str
    build: Callable[[RobotSetup, EndEffectors], Task]
    safety: str = "none"
    control_hz: int = 1000


@dataclass(frozen=True)
class EnvSpec:
    """A registered environment.

    Attributes:
        id: its name, e.g. `PandaReach-v0`.
        description: one line.
        robot: name of a bundled robot.
        task: name of the task.
        max_steps_in_episode: policy steps.
    """

    id: str
    description: str
    robot: str
    task: str
    max_steps_in_episode: int = MAX_STEPS


def _goals(setup: RobotSetup, hands: EndEffectors, task: str) -> dict[str, Any]:
    own = setup.task_options.get(task, {})
    return {"end_effector": hands, "goal_low": setup.goal_low, "goal_high": setup.goal_high, **own}


def _reach(setup: RobotSetup, hands: EndEffectors) -> Task:
    from .envs import Reach

    return Reach(**_goals(setup, hands, "reach"))


def _reach_pose(setup: RobotSetup, hands: EndEffectors) -> Task:
    from .envs import POSE_WEIGHTS, Reach

    options = _goals(setup, hands, "reach_pose")
    return Reach(orientation=True, reward_weights=dict(POSE_WEIGHTS), **options)


def _track(setup: RobotSetup, hands: EndEffectors) -> Task:
    from .envs import FigureEight, Track

    return Track(end_effector=hands, reference=FigureEight(**setup.task_options.get("track", {})))


def _reach_obstacles(setup: RobotSetup, hands: EndEffectors) -> Task:
    from .envs import ReachObstacles

    options = _goals(setup, hands, "reach_obstacles")
    options |= {"obstacle_low": setup.obstacle_low, "obstacle_high": setup.obstacle_high}
    return ReachObstacles(**options)


TASKS = {
    "reach": TaskSpec("Reach", "bring the hand to a random position", _reach),
    "reach_pose": TaskSpec("ReachPose", "bring the hand to a random pose", _reach_pose),
    "track": TaskSpec("Track", "keep the hand on a figure eight", _track),
    "reach_obstacles": TaskSpec(
        "ReachObstacles",
        "bring the hand to a random position among spheres, with the safety filter on",
        _reach_obstacles,
        safety="cbf",
        control_hz=500,
    ),
}
"""The tasks by name."""


def _description(setup: RobotSetup, task: TaskSpec) -> str:
    what = task.description
    if not isinstance(setup.end_effector, str):
        what = what.replace("the hand", "both hands").replace("a random", "random")
        what = what.replace("position", "positions").replace("pose", "poses", 1)
    return f"{setup.title}: {what}"


_SPECS = {
    spec.id: spec
    for robot, setup in SETUPS.items()
    for name, task in TASKS.items()
    for spec in [EnvSpec(f"{setup.title}{task.title}-v0", _description(setup, task), robot, name)]
}

OVERRIDES = {
    "robot": "name of a bundled robot, or a Robot",
    "task": "name of a task, or 'module:Class' of one's own, or a Task",
    "end_effector": "name of the frame that acts, or several in a tuple",
    "action": "name of an action space, or an ActionSpace",
    "action_options": "options of the action space, a dict",
    "controller": "a Controller, in place of the action space's own",
    "controller_options": "options of the controller, a dict",
    "task_options": "options of the task, a dict",
    "safety": "'cbf', 'none', or a SafetyFilter",
    "safety_options": "options of the safety filter, a dict",
    "randomisation": "a Randomisation, or its fields in a dict",
    "goal_env": "whether observations and rewards are those of a goal environment",
    "goal_reward": "'sparse' or 'dense', of a goal environment",
    "reset_pool": "how many initial states to work out once for resets to draw from",
    "policy_hz": "actions per second",
    "control_hz": "controller updates per second",
    "physics_hz": "integration steps per second",
    "max_steps_in_episode": "policy steps after which an episode is truncated",
    "backend": "how batches are computed; see fraxenv.fuse",
}
"""What `make` takes besides an id, and what it is."""


def list_envs() -> list[str]:
    """Ids of all registered environments."""
    return list(_SPECS)


def env_spec(id: str) -> EnvSpec:
    """The registration of an id.

    Raises:
        UnknownNameError: there is no such id; names the closest ones.
    """
    name = str(id).removeprefix(f"{NAMESPACE}/")
    if name not in _SPECS:
        raise unknown_name("environment", id, _SPECS)
    return _SPECS[name]


def with_tuples(value: Any) -> Any:
    """The lists of JSON and YAML as tuples: options that are static have to be hashable."""
    if isinstance(value, Mapping):
        return {name: with_tuples(part) for name, part in value.items()}
    return tuple(map(with_tuples, value)) if isinstance(value, list | tuple) else value


def make(id: str | None = None, **overrides: Any) -> tuple[Environment, EnvParams]:
    """Make an environment and its parameters, as gymnax does.

    >>> env, params = make("PandaReach-v0", action="torque", max_steps_in_episode=100)
    >>> env, params = make(robot="ur10", task="track", action="joint_velocity", safety="cbf")

    Args:
        id: one of `list_envs()`; None to compose one of `robot` and `task`.
        **overrides: any of
            `robot` (name of a bundled one, or a `Robot`), `task` (name: "reach", "reach_pose",
            "track", "reach_obstacles"; "module:Class" of one's own; or a `Task`), `end_effector` (a
            frame's name, or several in a tuple), `action` (name of an action space, or one),
            `action_options`, `controller` (one), `safety` ("cbf", "none" or a `SafetyFilter`),
            `controller_options`, `task_options`, `safety_options` (dicts of the fields of the
            classes concerned),
            `randomisation` (a `Randomisation`, or a dict of its fields), `goal_env` (True for one),
            `goal_reward` ("sparse" or "dense"), `reset_pool` (a number of states),
            `policy_hz`, `control_hz`, `physics_hz` (whole numbers),
            `max_steps_in_episode`, `backend` (how batches are computed; see `fraxenv.fuse`).

    Returns:
        The environment and its default parameters.

    Raises:
        UnknownNameError: an unknown id, override or option; names the closest and the valid ones.
        ConfigError: an override has a value that it cannot have.
    """
    named = overrides.get("task")
    if isinstance(named, str) and ":" in named:
        overrides["task"] = own_task(named)
    name, setup, robot, task_name = _subject(id, overrides)
    hands = overrides.get("end_effector") or setup.end_effector
    for frame in (hands,) if isinstance(hands, str) else hands:
        robot.frame(frame)

    from .envs import Environment, EnvParams, GoalEnvironment

    task = _task(setup, hands, task_name, overrides.get("task"))
    task = _with_options("task", task, overrides.get("task_options"))
    action = _action(setup, hands, overrides)
    controller = _controller(setup, action, overrides)
    safety = _safety(name, hands, task_name, overrides)
    randomisation = _randomisation(hands, overrides.get("randomisation"))

    max_steps = overrides.get("max_steps_in_episode", MAX_STEPS)
    whole = isinstance(max_steps, int) and not isinstance(max_steps, bool)
    if not whole or not 1 <= max_steps < 2**31:
        raise ConfigError(
            f"max_steps_in_episode={max_steps!r}, expected a whole number >= 1, below 2147483648."
        )
    keys = ("policy_hz", "control_hz", "physics_hz", "backend", "reset_pool")
    options = {k: overrides[k] for k in keys if k in overrides}
    policy_hz = options.get("policy_hz", 1)  # the usual one divides all usual rates
    if task_name is not None and isinstance(policy_hz, int) and policy_hz > 0:
        usual = TASKS[task_name].control_hz
        if usual % policy_hz == 0:
            options.setdefault("control_hz", usual)
    if isinstance(options.get("control_hz"), int):
        options.setdefault("physics_hz", max(1000, options["control_hz"]))
    params = EnvParams(max_steps, action, controller, task, safety, randomisation=randomisation)
    goal_env = overrides.get("goal_env", False)
    if not isinstance(goal_env, bool):
        raise ConfigError(f"goal_env={goal_env!r}, expected True or False.")
    if goal_env:
        options["goal_reward"] = overrides.get("goal_reward", "sparse")
        env: Environment = GoalEnvironment(name, robot, params, **options)
    else:
        if "goal_reward" in overrides:
            raise ConfigError(
                f"{name}: goal_reward without a goal environment. Pass goal_env=True as well."
            )
        env = Environment(name, robot, params, **options)
    return env, env.default_params


def _subject(
    id: str | None, overrides: Mapping[str, Any]
) -> tuple[str, RobotSetup, Robot, str | None]:
    """Name of the environment, setup and robot, and name of the task (None for a user's own)."""
    spec = None if id is None else env_spec(id)
    name = "the environment" if spec is None else spec.id
    if overrides.get("backend") == "mujoco":
        raise ConfigError(
            f"{name}: backend='mujoco', expected it with gymnasium.make alone: MuJoCo's physics "
            "runs on the host, for one environment. Use "
            f"gymnasium.make('{NAMESPACE}/{spec.id if spec else '...'}', backend='mujoco'), or "
            "several of these by gymnasium.make_vec(..., vectorization_mode='sync')."
        )
    for key in overrides:
        if key not in OVERRIDES:
            raise unknown_name("override", key, OVERRIDES, f"of {name}")
    for key in ("action_options", "controller_options", "task_options", "safety_options"):
        if not isinstance(overrides.get(key), Mapping | None):
            raise ConfigError(f"{key}={overrides[key]!r}, expected a dict of option -> value.")

    from .dynamics import Robot

    given = overrides.get("robot", None if spec is None else spec.robot)
    hands = overrides.get("end_effector")
    several = isinstance(hands, tuple) and hands and all(isinstance(n, str) for n in hands)
    if not (hands is None or isinstance(hands, str) or several):
        raise ConfigError(
            f"end_effector={hands!r}, expected the name of a frame, or several in a tuple."
        )
    if isinstance(given, str):
        if given not in SETUPS:
            raise unknown_name("robot", given, SETUPS, f"of {name}")
        setup, robot = SETUPS[given], SETUPS[given].load()
        if hands is not None and hands != setup.end_effector:
            setup = dataclasses.replace(setup_for(robot, hands), title=setup.title)
    elif isinstance(given, Robot):
        robot = given
        setup = SETUPS[spec.robot] if spec else setup_for(robot, hands)
    else:
        raise ConfigError(
            f"robot={given!r}, expected the name of a bundled one ({', '.join(SETUPS)}), or a "
            "Robot, such as dynamics.load_urdf('my.urdf') returns."
        )
    task = overrides.get("task", None if spec is None else spec.task)
    if task is None:
        raise ConfigError(
            f"{name} has no task. Pass an id, or task='...', one of {', '.join(TASKS)}."
        )
    if isinstance(task, str) and task not in TASKS:
        raise unknown_name("task", task, TASKS, f"of {name}")
    if spec is None:
        kind = TASKS[task].title if isinstance(task, str) else type(task).__name__
        name = f"{setup.title}{kind}"
    return name, setup, robot, task if isinstance(task, str) else None


def own_task(name: str) -> Task:
    """A task of one's own, with its defaults, by the name that configurations give it.

    Args:
        name: "module:Class"; the module has to be one that Python finds.

    Raises:
        ConfigError: there is no such task, or it has no defaults.
    """
    from .envs import Task

    module, _, kind = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), kind)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"task={name!r}, expected module:Class of a Task that can be imported ({error}). Start "
            "where the module's file is, or install it."
        ) from error
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise ConfigError(f"task={name!r}, expected a class derived from fraxenv.envs.Task.")
    try:
        return found()
    except TypeError as error:
        raise ConfigError(
            f"task={name!r}, expected a Task that can be made without arguments ({error}). Give "
            "its fields defaults; task_options changes them."
        ) from error


def _task(setup: RobotSetup, hands: EndEffectors, name: str | None, given: Any) -> Task:
    from .envs import Task

    if name is not None:
        return TASKS[name].build(setup, hands)
    if not isinstance(given, Task):
        raise ConfigError(
            f"task={given!r}, expected the name of one ({', '.join(TASKS)}), or a Task."
        )
    return given


def _controller(
    setup: RobotSetup, action: ActionSpace, overrides: Mapping[str, Any]
) -> Controller[Any]:
    from .controllers import OSC

    controller = overrides.get("controller")
    if controller is None:
        controller = action.controller()
        if isinstance(controller, OSC):
            controller = dataclasses.replace(controller, **setup.controller_options)
    elif not dataclasses.is_dataclass(controller) or not hasattr(controller, "init"):
        raise ConfigError(f"controller={controller!r}, expected a Controller, such as OSC(...).")
    return _with_options("controller", controller, overrides.get("controller_options"))  # type: ignore[no-any-return]


def _safety(
    name: str, hands: EndEffectors, task: str | None, overrides: Mapping[str, Any]
) -> SafetyFilter | None:
    from .controllers import SafetyFilter

    safety = overrides.get("safety", TASKS[task].safety if task else "none")
    options = overrides.get("safety_options")
    if isinstance(safety, str):
        check_choice(f"safety of {name}", safety, ("cbf", "none"))
        names = (hands,) if isinstance(hands, str) else tuple(hands)
        safety = SafetyFilter(end_effectors=names, nearest=NEAREST) if safety == "cbf" else None
    elif not isinstance(safety, SafetyFilter):
        raise ConfigError(f"safety={safety!r} of {name}, expected 'cbf', 'none' or a SafetyFilter.")
    if safety is None and options:
        raise ConfigError(
            f"safety_options of {name} without a safety filter. Pass safety='cbf' as well."
        )
    return _with_options("safety", safety, options)  # type: ignore[no-any-return]


def _action(setup: RobotSetup, hands: EndEffectors, overrides: Mapping[str, Any]) -> ActionSpace:
    from .envs import VariableImpedance, make_action

    action = overrides.get("action", "ee_delta_pose")
    if isinstance(action, str):
        action = make_action(action, hands, (setup.goal_low, setup.goal_high), setup.hand_axes)
    elif not dataclasses.is_dataclass(action) or not hasattr(action, "axes"):
        raise ConfigError(f"action={action!r}, expected the name of one, or an ActionSpace.")
    options = dict(overrides.get("action_options") or {})
    if isinstance(action, VariableImpedance):
        fields = {f.name for f in dataclasses.fields(action.space)}
        inner_options = {k: options.pop(k) for k in list(options) if k in fields}
        space = _with_options("action", action.space, inner_options)
        action = dataclasses.replace(action, space=space)
    return _with_options("action", action, options)  # type: ignore[no-any-return]


def _randomisation(hands: EndEffectors, given: Any) -> Randomisation | None:
    from .envs import Randomisation

    if given is None or isinstance(given, Randomisation):
        randomisation = given
    elif isinstance(given, Mapping):
        randomisation = _with_options("randomisation", Randomisation(), given)
    else:
        raise ConfigError(
            f"randomisation={given!r}, expected a Randomisation, or a dict of its fields."
        )
    if randomisation is not None and not randomisation.end_effectors:
        names = (hands,) if isinstance(hands, str) else tuple(hands)
        randomisation = dataclasses.replace(randomisation, end_effectors=names)
    return randomisation


def _with_options(what: str, configuration: Any, options: Mapping[str, Any] | None) -> Any:
    """Change fields of a configuration; dict-valued ones (weights) are merged, key by key."""
    if not options:
        return configuration
    fields = {f.name: f for f in dataclasses.fields(configuration)}
    known = {name: getattr(configuration, name) for name in fields}
    changes = {}
    for key, value in options.items():
        if key not in known:
            raise unknown_name(f"{what} option", key, known, f"of {type(configuration).__name__}")
        if value is not None or fields[key].default is not None:
            _check_kind(f"{what} option {key} of {type(configuration).__name__}", value, known[key])
        if isinstance(known[key], dict):
            for name in value:
                if name not in known[key]:
                    raise unknown_name("entry", name, known[key], f"of {key}")
            value = {**known[key], **value}
        changes[key] = value
    return dataclasses.replace(configuration, **changes)


def _check_kind(what: str, value: Any, default: Any) -> None:
    """Check that an option is of its default's kind: what its value may be is checked elsewhere.

    Raises:
        ConfigError: it is not, such as a text where a number has to be.
    """
    kinds: dict[str, tuple[bool, Callable[[Any], bool]]] = {
        "True or False": (isinstance(default, bool), lambda x: isinstance(x, bool)),
        "a name": (isinstance(default, str), lambda x: isinstance(x, str | tuple)),
        "a dict": (isinstance(default, dict), lambda x: isinstance(x, Mapping)),
        "a number, or several": (_numeric(default), _numeric),
    }
    for kind, (concerned, fits) in kinds.items():
        if concerned and not fits(value):
            shown = default if np.ndim(default) == 0 else np.asarray(default).tolist()
            raise ConfigError(f"{what}: {value!r}, expected {kind}, such as {shown!r}.")


def _numeric(value: Any) -> bool:
    if not hasattr(value, "dtype"):
        try:
            value = np.asarray(value)
        except ValueError:  # rows of different lengths
            return False
    return value.dtype.kind in "iuf"
