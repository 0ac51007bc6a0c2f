"""`make`: environments from ids, or composed of robot and task; its options from YAML."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from ..errors import ConfigError, check_count, unknown_name
from ..storage.config import ENVIRONMENTS, read_yaml, with_tuples
from .peers import with_peer
from .registry import MAX_STEPS, NAMESPACE, env_spec

if TYPE_CHECKING:
    from ..controllers import Controller, MomentumObserver, SafetyFilter
    from ..dynamics import Actuators, Payload, Robot, Scene
    from ..envs import ActionSpace, Environment, EnvParams, HeldObject, Randomisation, Task

P = ParamSpec("P")
T = TypeVar("T")


def _with_known_keywords(function: Callable[P, T]) -> Callable[P, T]:
    """A function of an id and keywords that refuses unknown keywords and names the closest ones.

    What `like` stands for is filled in, where the keywords do not say otherwise.
    """
    known = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        id: Any = args[0] if args else kwargs.get("id")
        for key in kwargs:
            if key not in known:
                where = "of the environment" if id is None else f"of {id}"
                raise unknown_name("override", key, known[1:], where)
        if kwargs.get("like") is not None:
            filled = with_peer(id, kwargs)
            kwargs.clear()
            kwargs.update(filled)
        return function(*args, **kwargs)

    return checked


@_with_known_keywords
def make(
    id: str | None = None,
    *,
    like: str | None = None,
    robot: str | Robot | Scene | None = None,
    member: str | None = None,
    task: str | Task | None = None,
    end_effector: str | tuple[str, ...] | None = None,
    action: str | ActionSpace | None = None,
    action_options: Mapping[str, Any] | None = None,
    gripper: Literal["width", "binary"] | None = None,
    controller: Controller[Any] | None = None,
    controller_options: Mapping[str, Any] | None = None,
    actuators: Actuators | None = None,
    actuator_options: Mapping[str, Any] | None = None,
    task_options: Mapping[str, Any] | None = None,
    scene_options: Mapping[str, Any] | None = None,
    obstacles: bool | Mapping[str, Any] | None = None,
    safety: str | SafetyFilter | None = None,
    safety_options: Mapping[str, Any] | None = None,
    randomisation: Randomisation | Mapping[str, Any] | None = None,
    payload: str | Payload | HeldObject | Mapping[str, Any] | None = None,
    observer: str | MomentumObserver | Mapping[str, Any] | None = None,
    goal_env: bool = False,
    goal_reward: Literal["sparse", "dense"] | None = None,
    reset_pool: int = 0,
    policy_hz: int = 50,
    control_hz: int | None = None,
    physics_hz: int | None = None,
    max_steps_in_episode: int = MAX_STEPS,
    backend: str = "auto",
) -> tuple[Environment, EnvParams]:
    """Make an environment and its parameters, as gymnax does.

    >>> env, params = make("PandaReach-v0", action="torque", max_steps_in_episode=100)
    >>> env, params = make(robot="ur10", task="track", action="joint_velocity", safety="cbf")

    Args:
        id: one of `list_envs()`; None to compose one of `robot` and `task`.
        like: name of another suite ("maniskill", "panda-gym", "fetch", "robosuite", "playground",
            "isaaclab", "metaworld"), whose numbers are in place of ours: sizes, masses, friction,
            ranges, thresholds, horizon and rates; other arguments win over it.
        robot: name of a bundled robot, a YAML file of a robot's setup, a `Robot`, or a `Scene`.
        member: name of the scene's robot that acts; the scene's first member if omitted.
        task: name of a task ("reach", "reach_pose", "track", "reach_obstacles"; "push", "pick",
            "pick_pose", "stack", "upright", "insert", "slide", "wipe", "drawer", "door" and
            "trot", which come with a scene), "module:Class" of one's own, or a `Task`.
        end_effector: name of the frame that acts, or several in a tuple; the robot's own if
            omitted.
        action: name of an action space, or an `ActionSpace`; "ee_delta_pose" if omitted, and
            "joint_position" of robots that walk.
        action_options: options of the action space, a dict; some tasks have defaults of their own.
        gripper: what the action's last number says of a gripper: "width", or "binary" (above zero
            it opens, else it closes); "width" if omitted, of a robot whose fingers move.
        controller: a `Controller`, in place of the action space's own.
        controller_options: options of the controller, a dict.
        actuators: an `Actuators`, the motors; without limits besides the robot's if omitted.
        actuator_options: options of the actuators, a dict.
        task_options: options of the task, a dict.
        scene_options: options of the scene that a task with objects comes with, a dict: sizes (m),
            masses (kg) and coefficients of friction.
        obstacles: whether spheres move about where a task with an object on a table is done, with
            the safety filter on; or their options in a dict, as of `envs.TabletopObstacles`.
        safety: "cbf", "robust" for one that allows for what the model lacks, "none", or a
            `SafetyFilter`; the task's own choice if omitted.
        safety_options: options of the safety filter, a dict; and of its usual barriers, such as
            `obstacle_margin` (`fraxenv.controllers.default_barriers`). With `foresight`, True or
            its options in a dict, it looks for ways out of what moves (`Foresight`).
        randomisation: a `Randomisation`, or its fields in a dict.
        payload: what the hand carries and controller and filter know of: "held" for the task's
            object while it is grasped; or a `dynamics.Payload`, or its fields in a dict (`mass`,
            kg, `com`, m, and `inertia`, kg m^2, in the hand's frame); nothing if omitted.
        observer: of torques that act and that the model lacks, for controller and filter:
            "momentum", or a `MomentumObserver`, or its fields in a dict; if omitted, one for a
            robust filter, and else none.
        goal_env: whether observations and rewards are those of a goal environment.
        goal_reward: "sparse" or "dense", of a goal environment; sparse if omitted.
        reset_pool: how many initial states to work out once for resets to draw from.
        policy_hz: actions per second.
        control_hz: controller updates per second; 1000 if omitted, or the task's own choice; 500 of
            a scene.
        physics_hz: integration steps per second; 1000 if omitted, or `control_hz` if that is more;
            `control_hz` of a scene.
        max_steps_in_episode: policy steps after which an episode is truncated.
        backend: how batches are computed; see `fraxenv.fuse`.

    Returns:
        The environment and its default parameters.

    Raises:
        UnknownNameError: an unknown id, override or option; names the closest and the valid ones.
        ConfigError: an override has a value that it cannot have.
    """
    spec = None if id is None else env_spec(id)
    name = "the environment" if spec is None else spec.id
    if backend == "mujoco":
        raise ConfigError(
            f"{name}: backend='mujoco', expected it with gymnasium.make alone: MuJoCo's physics "
            "runs on the host, for one environment. Use "
            f"gymnasium.make('{NAMESPACE}/{spec.id if spec else '...'}', backend='mujoco'), or "
            "several of these by gymnasium.make_vec(..., vectorization_mode='sync')."
        )
    for key, values in (
        ("action_options", action_options),
        ("controller_options", controller_options),
        ("actuator_options", actuator_options),
        ("task_options", task_options),
        ("scene_options", scene_options),
        ("safety_options", safety_options),
    ):
        if not isinstance(values, Mapping | None):
            raise ConfigError(f"{key}={values!r}, expected a dict of option -> value.")

    # Here, because Gymnax and JAX take seconds to load, and help and ids need neither.
    from ..controllers.hands import Hands
    from ..envs import Environment, EnvParams, GoalEnvironment
    from . import composition as parts

    physics = parts.build_physics(name, robot, member)
    if physics is not None:
        robot = physics.robot
    if isinstance(task, str) and ":" in task:
        task = parts.own_task(task)
    name, setup, robot, task_name = parts.subject(spec, name, robot, task, end_effector)
    if physics is None:
        physics = parts.task_physics(name, task_name, robot, scene_options)
        robot = robot if physics is None else physics.robot
    elif scene_options:
        raise ConfigError(f"{name}: scene_options with a Scene. Build it with these options.")
    hands = end_effector or setup.end_effector
    Hands.of(hands).check(robot)
    built_task = parts.build_task(setup, hands, task_name, task, task_options, scene_options)
    built_task = parts.build_obstacles(name, built_task, obstacles)
    space = parts.build_action(setup, hands, task_name, action, action_options)
    space = parts.build_gripper(name, robot, space, gripper)
    law = parts.build_controller(setup, task_name, space, controller, controller_options)
    motors = parts.build_actuators(actuators, actuator_options)
    if safety in (None, "cbf", "robust") and obstacles not in (None, False):
        safety = parts.filter_at_table(hands, robot, robust=safety == "robust")
    safety_filter = parts.build_safety(name, hands, task_name, safety, safety_options)
    drawn = parts.build_randomisation(hands, randomisation)
    watching = parts.build_observer(observer, safety_filter)
    load = parts.build_payload(name, hands, built_task, robot, physics, payload)

    params = EnvParams(
        check_count("max_steps_in_episode", max_steps_in_episode, most=2**31 - 1),
        space,
        law,
        built_task,
        safety_filter,
        motors,
        randomisation=drawn,
        payload=load,
        observer=watching,
    )
    rates = parts.rates(task_name, physics is not None, policy_hz, control_hz, physics_hz)
    if not isinstance(goal_env, bool):
        raise ConfigError(f"goal_env={goal_env!r}, expected True or False.")
    if goal_reward is not None and not goal_env:
        raise ConfigError(
            f"{name}: goal_reward without a goal environment. Pass goal_env=True as well."
        )
    options: dict[str, Any] = {**rates, "backend": backend, "reset_pool": reset_pool}
    options["physics"] = physics
    if goal_env:
        options["goal_reward"] = goal_reward or "sparse"
    kind = GoalEnvironment if goal_env else Environment
    env = kind(name, robot, params, **options)
    return env, env.default_params


def _overrides() -> dict[str, str]:
    section = (inspect.getdoc(make) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    meanings = {name: " ".join(text.split()) for name, text in found}
    return {name: meanings.get(name, "") for name in list(inspect.signature(make).parameters)[1:]}


OVERRIDES = _overrides()
"""Arguments of `make` besides the id -> meaning."""


def load_env_config(source: str | Path) -> dict[str, Any]:
    """Arguments of `fraxenv.make`, from YAML.

    >>> env, params = fraxenv.make(**load_env_config("panda-reach-randomised"))

    Args:
        source: a file; or the name of a preset, one of `list_presets("environments")`.

    Returns:
        `id` and overrides; lists are tuples, as options take them.

    Raises:
        ConfigError: the file cannot be read, or does not hold `key: value` lines.
        UnknownNameError: there is no such preset, or `make` does not know a key; names its
            neighbours. What is below the keys is checked by `make`.
    """
    values, where = read_yaml(source, ENVIRONMENTS)
    return env_config(values, where)


def env_config(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Check that the keys are arguments of `fraxenv.make`; lists become tuples.

    Raises:
        UnknownNameError: one is not; names its neighbours.
    """
    known = ("id", *OVERRIDES)
    for key in values:
        if key not in known:
            raise unknown_name("key", key, known, f"in {where}")
    return {key: with_tuples(value) for key, value in values.items()}
