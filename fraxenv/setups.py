"""What environments need to know of a robot: its hands, where they can go, how it is held."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import ConfigError

if TYPE_CHECKING:
    from .dynamics import Robot

SAMPLES = 256
"""Random configurations that show along which axes a hand moves."""

EndEffectors = str | tuple[str, ...]
Corner = tuple[float, float, float] | tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class RobotSetup:
    """A robot in a place, ready for tasks.

    Attributes:
        title: begins the ids of its environments.
        goal_low: m, corner of the box of goals and of absolute positions, world; one row per hand
            if there are several.
        goal_high: m, the other corner.
        end_effector: the frame that acts, or several.
        obstacle_low: m, corner of the box of obstacles.
        obstacle_high: m, the other corner.
        robot: name of a bundled robot.
        floating_base: as of `dynamics.load_robot`.
        locked: joints that stay where they are by default.
        out_of_reach: locked links that nothing which moves can touch.
        posture: joint -> rad or m, where it is by default, if not where the robot's own default is.
        height: m, of the root link.
        armature: kg m^2, of every joint; None for the robot's own.
        stop_stiffness: N m/rad, of the soft stops at the position limits.
        stop_damping: N m s/rad, likewise.
        hand_axes: along which the hands can move, of `envs.EEDelta`'s.
        controller_options: of the operational space controller; a `singularity_threshold` is a
            third of the conditioning at the default configuration.
        task_options: task -> its options.
    """

    title: str
    goal_low: Corner
    goal_high: Corner
    end_effector: EndEffectors = "hand"
    obstacle_low: tuple[float, float, float] = (0.25, -0.6, 0.05)
    obstacle_high: tuple[float, float, float] = (0.8, 0.6, 0.8)
    robot: str = ""
    floating_base: bool | None = None
    locked: tuple[str, ...] = ()
    out_of_reach: tuple[str, ...] = ()
    posture: Mapping[str, float] = field(default_factory=dict)
    height: float = 0.0
    armature: float | None = None
    stop_stiffness: float = 2000.0
    stop_damping: float = 50.0
    hand_axes: tuple[str, ...] = ("x", "y", "z", "rx", "ry", "rz")
    controller_options: Mapping[str, Any] = field(default_factory=dict)
    task_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def load(self) -> Robot:
        """The robot, with soft stops at its position limits."""
        from .dynamics import load_robot, lock_joints, mount

        robot = load_robot(self.robot, floating_base=self.floating_base)
        robot = lock_joints(robot, self.locked)
        if self.height:
            robot = mount(robot, (0.0, 0.0, self.height))
        robot = _without_pairs(_in_posture(robot, self.posture), self.out_of_reach)
        ones = np.ones(robot.nv)
        armature = robot.armature if self.armature is None else self.armature * ones
        return robot.replace(
            stop_stiffness=self.stop_stiffness * ones,
            stop_damping=self.stop_damping * ones,
            armature=armature,
        )


def _in_posture(robot: Robot, posture: Mapping[str, float]) -> Robot:
    """A robot whose joints are, by default, where `posture` says."""
    q_default = np.array(robot.q_default)
    for joint, position in posture.items():
        q_default[robot.topology.q_index[robot.joint_names.index(joint)]] = position
    return robot.replace(q_default=q_default)


def _without_pairs(robot: Robot, links: tuple[str, ...]) -> Robot:
    """A robot that does not look for collisions of its own with these links."""
    topology = robot.topology
    # Shapes are named after their links, with a number.
    left_out = [shape.name.startswith(links) for shape in topology.collision_shapes]
    pairs = [pair for pair in topology.self_collision_pairs if not any(left_out[i] for i in pair)]
    pairs_array = np.array(pairs, int).reshape(-1, 2)
    return robot.replace(topology=dataclasses.replace(topology, self_collision_pairs=pairs_array))


SETUPS: dict[str, RobotSetup] = {
    "panda": RobotSetup("Panda", (0.3, -0.3, 0.15), (0.6, 0.3, 0.6), robot="panda"),
    "iiwa14": RobotSetup(
        "Iiwa14",
        (0.4, -0.35, 0.2),
        (0.7, 0.35, 0.65),
        robot="iiwa14",
        obstacle_low=(0.3, -0.7, 0.05),
        obstacle_high=(0.9, 0.7, 0.9),
        controller_options={"singularity_threshold": 3e-4},
    ),
    "ur10": RobotSetup(
        "UR10",
        (0.5, -0.2, 0.35),
        (0.85, 0.5, 0.8),
        robot="ur10",
        obstacle_low=(0.35, -0.6, 0.05),
        obstacle_high=(1.1, 0.9, 1.0),
        controller_options={"singularity_threshold": 4.5e-5},
    ),
    "planar_mobile_manipulator": RobotSetup(
        "Mobile",
        (0.4, -0.35, 0.32),
        (1.15, 0.5, 0.32),
        robot="planar_mobile_manipulator",
        obstacle_low=(0.3, -0.8, 0.1),
        obstacle_high=(1.5, 0.9, 0.4),
        hand_axes=("x", "y", "rz"),
        task_options={
            "reach_pose": {"goal_rotation": (0.0, 0.0, 0.5)},
            "track": {"plane": "xy"},
        },
    ),
    "g1": RobotSetup(
        "G1",
        ((0.15, 0.08, 0.75), (0.15, -0.35, 0.75)),
        ((0.38, 0.35, 1.1), (0.38, -0.08, 1.1)),
        end_effector=("left_hand", "right_hand"),
        robot="g1",
        floating_base=False,
        locked=tuple(
            f"{side}_{joint}_joint"
            for side in ("left", "right")
            for joint in ("hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll")
        ),
        out_of_reach=(
            "left_knee_link",
            "left_ankle_roll_link",
            "right_knee_link",
            "right_ankle_roll_link",
        ),
        # Forearms forward, a little apart: hanging arms are all but at the hips.
        posture={
            "left_shoulder_roll_joint": 0.35,
            "left_elbow_joint": 0.0,
            "right_shoulder_roll_joint": -0.35,
            "right_elbow_joint": 0.0,
        },
        height=0.793,
        armature=0.01,
        obstacle_low=(0.25, -0.5, 0.6),
        obstacle_high=(0.7, 0.5, 1.4),
        controller_options={"singularity_threshold": 0.03},
    ),
}
"""The bundled robots that have environments, by name."""


def setup_for(robot: Robot, end_effector: EndEffectors | None) -> RobotSetup:
    """A setup for a user's own robot: goals around where its hands are by default.

    The box of goals reaches a fifth of the hand's distance from its first joint to every side, but
    at most 0.2 m, and is moved inwards where it would leave the hand's reach; that of obstacles is
    twice as large.

    Raises:
        ConfigError: it is not said which frame should act, and the robot does not say either.
        UnknownNameError: the robot lacks an end effector.
    """
    from .controllers.hands import Hands

    if end_effector is None:
        own = robot.end_effectors
        if len(own) != 1:
            has = f"has {', '.join(own)}" if own else "names none"
            raise ConfigError(
                f"robot {robot.name!r} {has} as end effectors, expected one to act. Pass "
                "end_effector='...', the name of a frame, or a tuple of several; its frames are "
                f"{', '.join(robot.frame_names)}."
            )
        end_effector = own[0]
    boxes = [_around_hand(robot, name) for name in Hands.of(end_effector).names]
    low, high = (
        tuple(tuple(x.round(6).tolist()) for x in corner) for corner in zip(*boxes, strict=True)
    )
    one = isinstance(end_effector, str)
    corners = np.asarray([low, high])
    middle, half = corners.mean(axis=0), 0.5 * (corners[1] - corners[0])
    return RobotSetup(
        robot.name,
        low[0] if one else low,
        high[0] if one else high,
        end_effector,
        tuple((middle - 2 * half - 0.05).min(axis=0).tolist()),
        tuple((middle + 2 * half + 0.05).max(axis=0).tolist()),
    )


def _around_hand(robot: Robot, name: str) -> tuple[Any, Any]:
    """Corners (3,), m, of a box about the hand at the default configuration, within its reach.

    Along an axis on which random configurations do not move the hand, as those of planar arms do
    not, the box has no extent.
    """
    import jax

    from .dynamics import frame_pose, random_configuration
    from .envs.tasks.reachability import reach

    hand = np.asarray(frame_pose(robot, np.asarray(robot.q_default), name)[0], float)
    keys = jax.random.split(jax.random.key(0), SAMPLES)
    places = jax.jit(
        jax.vmap(lambda k: frame_pose(robot, random_configuration(robot, k), name)[0])
    )(keys)
    moves = np.ptp(np.asarray(places, float), axis=0) > 1e-4
    anchor, length = reach(robot, name)
    way = hand - anchor
    distance = float(np.linalg.norm(way))
    half = moves * min(0.2, 0.2 * distance)
    furthest = 0.95 * length - float(np.linalg.norm(half))
    if distance > furthest:
        hand = anchor + way * furthest / distance
    return hand - half, hand + half
