"""The parts that `make` composes environments of, built from its arguments."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..controllers import (
    OSC,
    ArmWithGripper,
    Barrier,
    Controller,
    Foresight,
    JointImpedance,
    MomentumObserver,
    Robustness,
    SafetyFilter,
    barriers,
    default_barriers,
)
from ..controllers.groups import finger_joints, only_finger_joint
from ..controllers.hands import Hands
from ..dynamics import Actuators, Payload, Robot, Scene
from ..envs import (
    ActionSpace,
    ContactPhysics,
    HeldObject,
    ObjectGoals,
    Randomisation,
    Task,
    VariableImpedance,
    WithGripper,
    among_obstacles,
    joint_action_names,
    make_action,
)
from ..envs.actions.gripper import MODES
from ..envs.tasks.tabletop import palm_names
from ..errors import ConfigError, check_choice, unknown_name
from ..storage.config import check_kind
from .registry import TASKS, EnvSpec
from .robots import default_setup, load_setup, place_robot
from .setups import SETUPS, EndEffectors, RobotSetup

NEAREST = 3
"""Obstacles of each kind that the safety filter keeps every collision shape off."""

BESIDE_OBSTACLES, ABOVE_TABLE = 0.02, 0.03
"""m, of the arm from obstacles, and of the hand's palm above the table, where both are."""

BESIDE = 0.05
"""m, beyond the box of goals of reaching, in which hands above a table may be told to be."""
SIZES = {
    "half_height": ("half_extents", -1),
    "half_length": ("half_extents", 0),
    "base_half_height": ("base_half_extents", -1),
    "clearance": ("clearance", 0),
}
"""Option of tasks with objects -> option of their scenes, and which of its numbers it is."""

CONTROL_HZ = 1000
"""Updates of controllers and physics per second, where nothing says otherwise."""

CONTACT_HZ = 500
"""The same of scenes: contacts cost most, and their time constants are tens of milliseconds."""


def subject(
    spec: EnvSpec | None, name: str, robot: object, task: object, end_effector: object
) -> tuple[str, RobotSetup, Robot, str | None]:
    """Name of the environment, setup and robot, and name of the task (None for a user's own)."""
    task = spec.task if task is None and spec is not None else task
    known = TASKS.get(task) if isinstance(task, str) else None
    with_objects = known is not None and known.scene is not None and not known.walks
    setup, own = _robot(spec, name, robot, end_effector, with_objects)
    if task is None:
        raise ConfigError(
            f"{name} has no task. Pass an id, or task='...', one of {', '.join(TASKS)}."
        )
    if isinstance(task, str) and task not in TASKS:
        raise unknown_name("task", task, TASKS, f"of {name}")
    if known is not None and setup.walks and not known.walks:
        walking = ", ".join(n for n, t in TASKS.items() if t.walks)
        raise ConfigError(
            f"{name}: {setup.title} walks, and task={task!r} is for hands, expected one of the "
            f"tasks {walking}, or a Task of your own."
        )
    if spec is None:
        kind = TASKS[task].title if isinstance(task, str) else type(task).__name__
        name = f"{setup.title}{kind}"
    return name, setup, own, task if isinstance(task, str) else None


def _robot(
    spec: EnvSpec | None, name: str, given: object, end_effector: Any, with_objects: bool
) -> tuple[RobotSetup, Robot]:
    if end_effector is not None:
        Hands.of(end_effector)
    given = spec.robot if given is None and spec is not None else given
    if isinstance(given, Robot):
        return (SETUPS[spec.robot] if spec else default_setup(given, end_effector)), given
    if not isinstance(given, str):
        raise ConfigError(
            f"robot={given!r}, expected the name of a bundled one ({', '.join(SETUPS)}), a YAML "
            "file of its setup, a Robot, such as dynamics.load_urdf('my.urdf') returns, or a Scene."
        )
    if given.endswith((".yaml", ".yml")):
        setup, robot = load_setup(Path(given), end_effector)
    elif given in SETUPS:
        setup = SETUPS[given]
        if with_objects:
            setup = _with_gripper(name, setup)
        robot = place_robot(setup)
    else:
        raise unknown_name("robot", given, SETUPS, f"of {name}")
    if end_effector is not None and end_effector != setup.end_effector:
        kept = {
            name: getattr(setup, name) for name in ("title", "walks", "joint_controller_options")
        }
        setup = dataclasses.replace(default_setup(robot, end_effector), **kept)
    return setup, robot


def _with_gripper(name: str, setup: RobotSetup) -> RobotSetup:
    """The setup with fingers, above the table."""
    if not setup.gripper:
        has = ", ".join(n for n, s in SETUPS.items() if s.gripper)
        raise ConfigError(
            f"{name}: {setup.title} has no gripper, expected one of the robots {has}, or a Robot "
            "with fingers, such as dynamics.load_robot('panda_gripper')."
        )
    # Absolute positions of the hand reach the table, and around what lies at the border.
    low, high = np.array(setup.goal_low, float), np.array(setup.goal_high, float)
    low[:2], high[:2] = low[:2] - BESIDE, high[:2] + BESIDE
    low[2] = 0.0
    options = {**setup.controller_options, **setup.tabletop_controller_options}
    return dataclasses.replace(
        setup,
        robot=setup.gripper,
        posture=setup.tabletop_posture,
        goal_low=tuple(low.tolist()),
        goal_high=tuple(high.tolist()),
        controller_options=options,
    )


def task_physics(
    name: str, task: str | None, robot: Robot, options: Mapping[str, Any] | None
) -> ContactPhysics | None:
    """The physics of the scene of a task with objects, with its options; None of other tasks."""
    scene = None if task is None else TASKS[task].scene
    if task is None or scene is None:
        if options:
            raise ConfigError(
                f"scene_options of {name}, whose task brings no scene. Leave them out, or choose "
                f"one of {', '.join(t for t, spec in TASKS.items() if spec.scene)}."
            )
        return None
    known = TASKS[task].scene_options
    for key, value in (options or {}).items():
        if key not in known:
            raise unknown_name("scene option", key, known, f"of {name}")
        what = f"scene option {key} of {name}"
        check_kind(what, value, known[key])
        numbers = np.asarray(value, float)
        possible = (numbers >= 0) & np.isfinite(numbers)
        if numbers.shape != np.shape(known[key]) or not possible.all():
            raise ConfigError(
                f"{what}: {value!r}, expected something like {known[key]!r}, at least zero."
            )
    return ContactPhysics(scene(robot, **{**known, **(options or {})}), robot.name)


def build_physics(name: str, given: object, member: object) -> ContactPhysics | None:
    """The physics of a scene; None of a robot."""
    if isinstance(given, Scene):
        return ContactPhysics(given, str(member or ""))
    if member is not None:
        raise ConfigError(
            f"member={member!r} of {name}, whose robot is no scene. Leave it out, or pass "
            "robot=scene."
        )
    return None


def build_task(
    setup: RobotSetup,
    hands: EndEffectors,
    name: str | None,
    given: object,
    options: Mapping[str, Any] | None,
    scene_options: Mapping[str, Any] | None,
) -> Task:
    """The task of a name, or the one that is given, with its options.

    Where the scene's objects have another size, so have the task's.
    """
    task = TASKS[name].build(setup, hands) if name is not None else given
    if not isinstance(task, Task):
        raise ConfigError(
            f"task={task!r}, expected the name of one ({', '.join(TASKS)}), or a Task."
        )
    sizes = {
        own: np.ravel((scene_options or {})[theirs])[which].item()
        for own, (theirs, which) in SIZES.items()
        if theirs in (scene_options or {}) and hasattr(task, own)
    }
    options = {**sizes, **(options or {})}
    return _with_options("task", task, options)  # type: ignore[no-any-return]


def build_obstacles(name: str, task: Task, given: object) -> Task:
    """The task among obstacles, with their options; as it is without."""
    if given is None or given is False:
        return task
    if given is not True and not isinstance(given, Mapping):
        raise ConfigError(
            f"obstacles={given!r} of {name}, expected True, or a dict of their options."
        )
    options = given if isinstance(given, Mapping) else {}
    return _with_options("obstacle", among_obstacles(task), options)  # type: ignore[no-any-return]


def own_task(name: str) -> Task:
    """A task of one's own, with its defaults, by the name that configurations give it.

    Args:
        name: "module:Class"; the module has to be one that Python finds.

    Raises:
        ConfigError: there is no such task, or it has no defaults.
    """
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


def build_actuators(given: object, options: Mapping[str, Any] | None) -> Actuators:
    """The motors, with their options."""
    actuators = Actuators() if given is None else given
    if not isinstance(actuators, Actuators):
        raise ConfigError(f"actuators={given!r}, expected an Actuators, such as Actuators(gain=1).")
    return _with_options("actuator", actuators, options)  # type: ignore[no-any-return]


def build_action(
    setup: RobotSetup,
    hands: EndEffectors,
    task: str | None,
    given: object,
    options: Mapping[str, Any] | None,
) -> ActionSpace:
    """The action space of a name, or of None the task's, or the given one; with its options."""
    action: Any = given
    if given is None:
        given = TASKS[task].action if task else "ee_delta_pose"
    if isinstance(given, str):
        if setup.walks and given not in joint_action_names():
            raise ConfigError(
                f"action={given!r} of {setup.title}, which walks: its hands and feet hang on a "
                f"base that floats. Expected one of {', '.join(joint_action_names())}, or an "
                "ActionSpace."
            )
        action = make_action(given, hands, (setup.goal_low, setup.goal_high), setup.hand_axes)
        space = action.space if isinstance(action, VariableImpedance) else action
        usual = {} if task is None else TASKS[task].action_options
        usual = {k: v for k, v in usual.items() if hasattr(space, k)}
        options = {**usual, **(options or {})}
    elif not dataclasses.is_dataclass(given) or not hasattr(given, "axes"):
        raise ConfigError(f"action={given!r}, expected the name of one, or an ActionSpace.")
    options = dict(options or {})
    if isinstance(action, VariableImpedance):
        fields = {f.name for f in dataclasses.fields(action.space)}
        inner_options = {k: options.pop(k) for k in list(options) if k in fields}
        space = _with_options("action", action.space, inner_options)
        action = dataclasses.replace(action, space=space)
    return _with_options("action", action, options)  # type: ignore[no-any-return]


def build_gripper(name: str, robot: Robot, action: ActionSpace, mode: Any) -> ActionSpace:
    """The action space with a number for the gripper, where the robot has one."""
    if mode is None and len(finger_joints(robot)) != 1:
        return action
    check_choice(f"gripper of {name}", mode or "width", MODES)
    only_finger_joint(robot, f"gripper={mode!r} of {name}")
    if isinstance(action, WithGripper):
        return action if mode is None else dataclasses.replace(action, gripper=mode)
    return WithGripper.of(action, robot, mode or "width")


def build_controller(
    setup: RobotSetup,
    task: str | None,
    action: ActionSpace,
    given: object,
    options: Mapping[str, Any] | None,
) -> Controller[Any]:
    """The controller of an action space, or the one that is given, with its options."""
    if isinstance(action, WithGripper) and not isinstance(given, ArmWithGripper):
        options = dict(options or {})
        known = {f.name for f in dataclasses.fields(ArmWithGripper)} - {"arm", "joint"}
        own = {k: options.pop(k) for k in list(options) if k in known}
        arm = build_controller(setup, task, action.space, given, options)
        return _with_options("controller", action.with_arm(arm), own)  # type: ignore[no-any-return]
    controller: Any = given
    if given is None:
        controller = action.controller()
        if isinstance(controller, OSC):
            controller = dataclasses.replace(controller, **setup.controller_options)
        elif isinstance(controller, JointImpedance):
            usual = {} if task is None else TASKS[task].joint_controller_options
            own = {**usual, **setup.joint_controller_options}
            controller = dataclasses.replace(controller, **own)
    elif not dataclasses.is_dataclass(given) or not hasattr(given, "init"):
        raise ConfigError(f"controller={given!r}, expected a Controller, such as OSC(...).")
    return _with_options("controller", controller, options)  # type: ignore[no-any-return]


def build_safety(
    name: str,
    hands: EndEffectors,
    task: str | None,
    given: object,
    options: Mapping[str, Any] | None,
) -> SafetyFilter | None:
    """The safety filter, with its options and those of its barriers; None for none."""
    options = dict(options or {})
    if "foresight" in options:
        options["foresight"] = _foresight(name, options["foresight"])
    of_barriers = {k: options.pop(k) for k in list(options) if k in _BARRIER_OPTIONS}
    if given is None:
        given = TASKS[task].safety if task else "none"
    if of_barriers and (isinstance(given, SafetyFilter) or "barriers" in options):
        raise ConfigError(
            f"safety_options {', '.join(of_barriers)} of {name}, whose filter has barriers of its "
            "own, expected it with safety='cbf' or 'robust' and the usual ones. Give the barriers "
            "these numbers."
        )
    if isinstance(given, str):
        check_choice(f"safety of {name}", given, ("cbf", "robust", "none"))
        names = Hands.of(hands).names
        robust = Robustness() if given == "robust" else None
        kept = _usual_barriers(name, of_barriers)
        usual = SafetyFilter(kept, end_effectors=names, nearest=NEAREST, robust=robust)
        given = None if given == "none" else usual
    elif not isinstance(given, SafetyFilter):
        raise ConfigError(
            f"safety={given!r} of {name}, expected 'cbf', 'robust', 'none' or a SafetyFilter."
        )
    if given is None and (options or of_barriers):
        raise ConfigError(
            f"safety_options of {name} without a safety filter. Pass safety='cbf' as well."
        )
    return _with_options("safety", given, options)  # type: ignore[no-any-return]


def _foresight(name: str, given: object) -> Foresight | None:
    """The filter's foresight: the usual one for True, with options in a dict, none for None."""
    if given is None or isinstance(given, Foresight):
        return given
    if given is True:
        return Foresight()
    what = f"safety option foresight of {name}"
    if not isinstance(given, Mapping):
        raise ConfigError(f"{what}: {given!r}, expected True, a dict, a Foresight or None.")
    return _with_options(what, Foresight(), given)  # type: ignore[no-any-return]


def _usual_barriers(name: str, options: Mapping[str, Any]) -> tuple[Barrier, ...]:
    """The barriers of a filter, with options."""
    for key, value in options.items():
        default = _BARRIER_OPTIONS[key].default
        if value is None and default is None:
            continue
        what = f"safety option {key} of {name}"
        check_kind(what, value, 0.0 if default is None else default)
        if np.ndim(value) or not 0 <= float(value) < np.inf:
            raise ConfigError(f"{what}: {value!r}, expected one number, finite and at least zero.")
    return default_barriers(**options)


_BARRIER_OPTIONS = inspect.signature(default_barriers).parameters
"""Options of the usual barriers."""


def filter_at_table(hands: EndEffectors, robot: Robot, *, robust: bool) -> SafetyFilter:
    """The filter of tasks with objects among obstacles.

    What the hand touches pushes it about, and the filter knows nothing of that but the table: so it
    begins early and keeps a distance. The nullspace is no cheaper to it than the task, which can
    wait.
    """
    kept = [
        barriers.joint_position(margin=5e-4),
        barriers.joint_velocity(margin=0.02),
        barriers.obstacles(rate=20.0, margin=BESIDE_OBSTACLES),
        barriers.self_collision(margin=0.002),
    ]
    if finger_joints(robot):
        up, palm = np.array([0.0, 0.0, 1.0]), palm_names(robot)
        kept.append(barriers.half_space(up, ABOVE_TABLE, 20.0, 0.002, palm))
    names = Hands.of(hands).names
    return SafetyFilter(
        tuple(kept),
        end_effectors=names,
        task_weight=1.0,
        nearest=NEAREST,
        robust=Robustness() if robust else None,
    )


def build_randomisation(hands: EndEffectors, given: object) -> Randomisation | None:
    """A randomisation, or the one of its fields in a dict; None for none."""
    if given is None or isinstance(given, Randomisation):
        randomisation = given
    elif isinstance(given, Mapping):
        randomisation = _with_options("randomisation", Randomisation(), given)
    else:
        raise ConfigError(
            f"randomisation={given!r}, expected a Randomisation, or a dict of its fields."
        )
    if randomisation is not None and not randomisation.end_effectors:
        names = Hands.of(hands).names
        randomisation = dataclasses.replace(randomisation, end_effectors=names)
    return randomisation


def build_payload(
    name: str,
    hands: EndEffectors,
    task: Task,
    robot: Robot,
    physics: ContactPhysics | None,
    given: object,
) -> Payload | HeldObject | None:
    """What controller and filter know that the hand carries; None for nothing."""
    hand = Hands.of(hands).names[0]
    load: Payload | HeldObject
    if given is None:
        return None
    if isinstance(given, Payload | HeldObject):
        load = given
    elif isinstance(given, Mapping):
        load = _with_options("payload", Payload(hand), given)
    elif given != "held":
        raise ConfigError(
            f"payload={given!r} of {name}, expected 'held', a Payload, or a dict of its fields."
        )
    elif physics is None or not isinstance(task, ObjectGoals) or not finger_joints(robot):
        raise ConfigError(
            f"payload='held' of {name}, expected a task whose object is grasped, such as 'pick'. "
            "Give the payload as dynamics.Payload(...), or envs.HeldObject.of(scene, ...)."
        )
    else:
        load = HeldObject.of(physics.scene, hand, task.object, task.pads)
    robot.frame(load.frame)
    return load


def build_observer(given: object, safety: object) -> MomentumObserver | None:
    """The observer of torques that the model lacks; None for none. A robust filter has one."""
    robust = isinstance(safety, SafetyFilter) and safety.robust is not None
    if given is None and robust:
        return MomentumObserver(gain=100.0, informs="safety")
    if given is None or isinstance(given, MomentumObserver):
        return given
    if isinstance(given, Mapping):
        return _with_options("observer", MomentumObserver(), given)  # type: ignore[no-any-return]
    if given != "momentum":
        raise ConfigError(
            f"observer={given!r}, expected 'momentum', a MomentumObserver, or a dict of its fields."
        )
    return MomentumObserver()


def rates(
    task: str | None,
    has_scene: bool,
    policy_hz: int,
    control_hz: int | None,
    physics_hz: int | None,
) -> dict[str, int]:
    """The three rates, Hz: the task's own control rate where it is not given and divides."""
    if control_hz is None:
        control_hz = CONTACT_HZ if has_scene else CONTROL_HZ
        usual = None if task is None else TASKS[task].control_hz
        if usual and isinstance(policy_hz, int) and policy_hz > 0 and usual % policy_hz == 0:
            control_hz = usual
    if has_scene and physics_hz is None:
        physics_hz = control_hz
    if physics_hz is None:
        physics_hz = max(CONTROL_HZ, control_hz) if isinstance(control_hz, int) else CONTROL_HZ
    return {"policy_hz": policy_hz, "control_hz": control_hz, "physics_hz": physics_hz}


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
            check_kind(f"{what} option {key} of {type(configuration).__name__}", value, known[key])
        if isinstance(known[key], dict):
            for name in value:
                if name not in known[key]:
                    raise unknown_name("entry", name, known[key], f"of {key}")
            value = {**known[key], **value}
        changes[key] = value
    return dataclasses.replace(configuration, **changes)
