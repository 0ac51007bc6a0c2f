"""The registry of environments: ids, and the robots and tasks behind them. It loads no JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import unknown_name
from .setups import SETUPS, EndEffectors, RobotSetup

if TYPE_CHECKING:
    from ..dynamics import Robot, Scene
    from ..envs import Task

Triple = tuple[float, float, float]

NAMESPACE = "fraxenv"
"""Gymnasium namespace: the id `PandaReach-v0` is `fraxenv/PandaReach-v0` there."""

CUSTOM = "Custom-v0"
"""Id of what `gymnasium.make` composes of `robot` and `task`; `fraxenv.make` needs none for it."""

MAX_STEPS = 150
"""Policy steps of an episode."""


@dataclass(frozen=True)
class TaskSpec:
    """A task that every robot can be given.

    Attributes:
        title: ends the ids of its environments.
        description: one line, of what the robot does.
        build: the task of a robot's setup and its end effectors; imports it only now.
        safety: "cbf" or "none": whether torques go through the safety filter by default.
        control_hz: controller updates per second by default, if the policy's rate divides it; None
            for 1000, and 500 of scenes.
        scene: of tasks with objects, the scene of a robot with a gripper, and of those that walk
            the ground; None of other tasks.
        scene_options: its options and their defaults.
        action: name of the action space by default.
        action_options: options of the action space by default, as far as it has them.
        joint_controller_options: of joint impedance control by default.
        walks: whether it is a task of robots that walk, and of no others.
    """

    title: str
    description: str
    build: Callable[[RobotSetup, EndEffectors], Task]
    safety: str = "none"
    control_hz: int | None = None
    scene: Callable[..., Scene] | None = None
    scene_options: Mapping[str, Any] = field(default_factory=dict)
    action: str = "ee_delta_pose"
    action_options: Mapping[str, Any] = field(default_factory=dict)
    joint_controller_options: Mapping[str, Any] = field(default_factory=dict)
    walks: bool = False


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
    from ..envs import Reach

    return Reach(**_goals(setup, hands, "reach"))


def _reach_pose(setup: RobotSetup, hands: EndEffectors) -> Task:
    from ..envs import POSE_WEIGHTS, Reach

    options = _goals(setup, hands, "reach_pose")
    return Reach(orientation=True, reward_weights=dict(POSE_WEIGHTS), **options)


def _track(setup: RobotSetup, hands: EndEffectors) -> Task:
    from ..envs import FigureEight, Track

    return Track(end_effector=hands, reference=FigureEight(**setup.task_options.get("track", {})))


def _reach_obstacles(setup: RobotSetup, hands: EndEffectors) -> Task:
    from ..envs import ReachObstacles

    options = _goals(setup, hands, "reach_obstacles")
    options |= {"obstacle_low": setup.obstacle_low, "obstacle_high": setup.obstacle_high}
    return ReachObstacles(**options)


def _with_scene(kind: str, name: str) -> Callable[[RobotSetup, EndEffectors], Task]:
    """The builder of a task with a scene: a class of `envs`, and its name in `task_options`."""

    def build(setup: RobotSetup, hands: EndEffectors) -> Task:
        from .. import envs

        task: Task = getattr(envs, kind)(end_effector=hands, **setup.task_options.get(name, {}))
        return task

    return build


def _palms(robot: Robot, hand: bool) -> dict[str, Any]:
    from ..envs.tasks.tabletop import palm_names

    return {"palms": palm_names(robot)} if hand else {}


def _push_scene(
    robot: Robot, half_extents: Triple, mass: float, hand: bool, **frictions: Any
) -> Scene:
    from ..envs import block, pad_names, tabletop_scene, with_closed_fingers
    from ..envs.tasks.tabletop import CUBE

    cube, touching = block(CUBE, half_extents, mass=mass), _palms(robot, hand)
    closed, pads = with_closed_fingers(robot), pad_names(robot)
    return tabletop_scene(closed, pads, [cube], **touching, **frictions)


def _pick_scene(
    robot: Robot, half_extents: Triple, mass: float, hand: bool, **frictions: Any
) -> Scene:
    from ..envs import block, pad_names, tabletop_scene
    from ..envs.tasks.tabletop import CUBE, STIFF

    cube = block(CUBE, half_extents, mass=mass)
    soft = {**_palms(robot, hand), **frictions, **STIFF}
    return tabletop_scene(robot, pad_names(robot), [cube], **soft)


def _pick_pose_scene(
    robot: Robot, half_extents: Triple, mass: float, hand: bool, **frictions: Any
) -> Scene:
    from ..envs import block, pad_names, tabletop_scene
    from ..envs.tasks.tabletop import BOX, STIFF

    box = block(BOX, half_extents, mass=mass)
    soft = {**_palms(robot, hand), **frictions, **STIFF}
    return tabletop_scene(robot, pad_names(robot), [box], **soft)


def _stack_scene(
    robot: Robot,
    half_extents: Triple,
    mass: float,
    base_half_extents: Triple,
    base_mass: float,
    hand: bool,
    **frictions: Any,
) -> Scene:
    from ..envs import block, pad_names, tabletop_scene
    from ..envs.tasks.tabletop import BASE, BASE_COLOR, CUBE, STACKED_COLOR, STIFF

    upper = block(CUBE, half_extents, mass=mass, color=STACKED_COLOR)
    lower = block(BASE, base_half_extents, mass=base_mass, place=(0.5, 0.1), color=BASE_COLOR)
    soft = {**_palms(robot, hand), **frictions, **STIFF}
    return tabletop_scene(robot, pad_names(robot), [upper, lower], **soft)


def _upright_scene(robot: Robot) -> Scene:
    from ..envs import block, pad_names, tabletop_scene
    from ..envs.tasks.tabletop import PEG

    peg = block(PEG, (0.12, 0.025, 0.025), mass=0.3)
    return tabletop_scene(robot, pad_names(robot), [peg])


def _insert_scene(
    robot: Robot,
    half_extents: Triple,
    mass: float,
    clearance: float,
    half_depth: float,
    half_size: float,
    **frictions: Any,
) -> Scene:
    from ..envs import pad_names, peg, socket, tabletop_scene, with_hand_across
    from ..envs.tasks.tabletop import PEG, SOCKET, STIFF, TABLE, WALLS

    pads, hole = pad_names(robot), (half_extents[2], clearance, half_depth, half_size)
    return tabletop_scene(
        with_hand_across(robot),
        pads,
        [peg(half_extents, mass=mass), socket(*hole)],
        pairs=[
            *((PEG, thing) for thing in (TABLE, *WALLS)),
            *((pad, thing) for pad in pads for thing in (PEG, TABLE, SOCKET)),
        ],
        **frictions,
        **STIFF,
    )


def _slide_scene(robot: Robot) -> Scene:
    from ..envs import pad_names, tabletop_scene, with_closed_fingers
    from ..envs.tasks.tabletop import PUCK, TABLE, puck

    pads, foot = pad_names(robot), f"{PUCK}_foot"
    return tabletop_scene(
        with_closed_fingers(robot),
        pads,
        [puck()],
        pairs=[(foot, TABLE), *((pad, thing) for pad in pads for thing in (PUCK, TABLE))],
        frictions={foot: 0.04, TABLE: 0.04},
    )


def _wipe_scene(robot: Robot) -> Scene:
    from ..envs import pad_names, tabletop_scene, with_closed_fingers

    closed, pads = with_closed_fingers(robot), pad_names(robot)
    return tabletop_scene(closed, pads, [], friction=0.1, solref=(0.03, 1.0))


def _drawer_scene(robot: Robot) -> Scene:
    from ..envs import drawer, furniture_scene, pad_names, with_hand_across

    return furniture_scene(with_hand_across(robot), pad_names(robot), drawer())


def _door_scene(robot: Robot) -> Scene:
    from ..envs import door, furniture_scene, pad_names, with_hand_across

    return furniture_scene(with_hand_across(robot), pad_names(robot), door())


def _ground(robot: Robot, friction: float) -> Scene:
    from ..envs import walking_scene

    return walking_scene(robot, friction=friction)


def _sled(robot: Robot, friction: float, mass: float, resistance: float) -> Scene:
    from ..envs import pulling_scene

    return pulling_scene(robot, friction=friction, mass=mass, resistance=resistance)


_WALKING: dict[str, Any] = {
    "control_hz": 250,
    "scene": _ground,
    "scene_options": {"friction": 0.8},
    "action": "joint_position",
    "action_options": {"about": 0.5},
    # Mass matrix and bias force of a robot whose base floats are not those of its legs.
    "joint_controller_options": {
        "decoupling": "none",
        "gravity_compensation": False,
        "coriolis_compensation": False,
    },
    "walks": True,
}

_OTHERS = {"friction": 1.0, "pad_friction": 1.0, "hand": False}
_CUBE = {"half_extents": (0.02, 0.02, 0.02), "mass": 0.064, **_OTHERS}
_BOX = {"half_extents": (0.02, 0.02, 0.03), "mass": 0.096, **_OTHERS}
_PEG = {
    "half_extents": (0.1, 0.02, 0.02),
    "mass": 0.16,
    "clearance": 0.003,
    "half_depth": 0.1,
    "half_size": 0.06,
    "friction": 0.3,
    "pad_friction": 1.0,
}
_CUBES = {"base_half_extents": (0.02, 0.02, 0.02), "base_mass": 0.064, **_CUBE}

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
    "push": TaskSpec(
        "Push",
        "push a cube over the table to a random position",
        _with_scene("Push", "push"),
        scene=_push_scene,
        scene_options=_CUBE,
    ),
    "pick": TaskSpec(
        "Pick",
        "grasp a cube and hold it at a random position",
        _with_scene("Pick", "pick"),
        scene=_pick_scene,
        scene_options=_CUBE,
    ),
    "pick_pose": TaskSpec(
        "PickPose",
        "grasp a box and hold it at a random pose",
        _with_scene("PickPose", "pick_pose"),
        scene=_pick_pose_scene,
        scene_options=_BOX,
    ),
    "stack": TaskSpec(
        "Stack",
        "put a red cube on a green one and let go of it",
        _with_scene("Stack", "stack"),
        scene=_stack_scene,
        scene_options=_CUBES,
    ),
    "upright": TaskSpec(
        "Upright",
        "stand a peg on its end and let go of it",
        _with_scene("Upright", "upright"),
        scene=_upright_scene,
    ),
    "insert": TaskSpec(
        "Insert",
        "put a peg into the hole of a block",
        _with_scene("Insert", "insert"),
        scene=_insert_scene,
        scene_options=_PEG,
        action_options={"position_scale": 0.1},
    ),
    "slide": TaskSpec(
        "Slide",
        "strike a puck so that it comes to rest at a random position far away",
        _with_scene("Slide", "slide"),
        scene=_slide_scene,
        action_options={"position_scale": 0.15},
    ),
    "wipe": TaskSpec(
        "Wipe",
        "wipe marks off the table, and press neither too little nor too much",
        _with_scene("Wipe", "wipe"),
        scene=_wipe_scene,
    ),
    "drawer": TaskSpec(
        "Drawer",
        "open a drawer by its handle",
        _with_scene("Drawer", "drawer"),
        scene=_drawer_scene,
    ),
    "door": TaskSpec(
        "Door", "open a door by its handle", _with_scene("Door", "door"), scene=_door_scene
    ),
    "trot": TaskSpec(
        "Trot",
        "go to a random place in a trot, and trot on there",
        _with_scene("Trot", "trot"),
        **_WALKING,
    ),
    "pull": TaskSpec(
        "Pull",
        "pull a sled by its handle, standing, with feet that do not slip",
        _with_scene("Pull", "pull"),
        **{
            **_WALKING,
            "scene": _sled,
            "scene_options": {"friction": 0.8, "mass": 20.0, "resistance": 100.0},
        },
    ),
    "trot_track": TaskSpec(
        "Track",
        "keep the hand on a figure eight, and trot on the spot",
        _with_scene("TrotTrack", "trot_track"),
        **_WALKING,
    ),
}
"""The tasks by name."""


def _description(setup: RobotSetup, task: TaskSpec) -> str:
    what = task.description
    if not isinstance(setup.end_effector, str):
        what = what.replace("the hand", "both hands").replace("a random", "random")
        what = what.replace("position", "positions").replace("pose", "poses", 1)
    return f"{setup.title}: {what}"


def has_parts_for(setup: RobotSetup, task: TaskSpec) -> bool:
    """Whether a robot has what a task needs: legs to walk, or hands, and fingers for objects."""
    if setup.walks or task.walks:
        return setup.walks and task.walks
    return task.scene is None or bool(setup.gripper)


_SPECS = {
    spec.id: spec
    for robot, setup in SETUPS.items()
    for name, task in TASKS.items()
    if has_parts_for(setup, task) and name not in setup.without
    for spec in [EnvSpec(f"{setup.title}{task.title}-v0", _description(setup, task), robot, name)]
}


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
