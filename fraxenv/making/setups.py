"""Setups of robots: their end effectors, boxes of goals, posture and soft stops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigError, unknown_name
from ..storage.config import ROBOTS, check_kind, list_presets, read_yaml, with_tuples

EndEffectors = str | tuple[str, ...]
Corner = tuple[float, float, float] | tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class RobotSetup:
    """A robot in a place, ready for tasks: the keys of `configs/robots/NAME.yaml`.

    Attributes:
        title: begins the ids of its environments.
        goal_low: m, corner of the box of goals and of absolute positions, world; one row per hand
            if there are several.
        goal_high: m, the other corner.
        end_effector: the frame that acts, or several.
        obstacle_low: m, corner of the box of obstacles.
        obstacle_high: m, the other corner.
        robot: name of a bundled robot, or the path of a URDF, which may have a TOML file of its
            name beside it.
        floating_base: as of `dynamics.load_robot`.
        locked: joints that stay where they are by default.
        out_of_reach: locked links that nothing which moves can touch.
        posture: joint -> rad or m, where it is by default, if not where the robot's own default is.
        gripper: name of the bundled robot that is this one with fingers that move, which tasks with
            objects take; they need one.
        tabletop_posture: as `posture`, of these tasks: the hand above the table, pointing down.
        tabletop_controller_options: of these tasks, besides `controller_options`.
        height: m, of the root link.
        armature: kg m^2, of every joint; None for the robot's own.
        stop_stiffness: N m/rad, of the soft stops at the position limits.
        stop_damping: N m s/rad, likewise.
        hand_axes: along which the hands can move, of `envs.EEDelta`'s.
        controller_options: of the operational space controller; a `singularity_threshold` is a
            third of the conditioning at the default configuration.
        joint_controller_options: of joint impedance control.
        task_options: task -> its options.
        without: tasks of which there is no id with this robot; `make(robot=, task=)` composes them.
        walks: whether it walks: its base floats, and it has feet; its tasks are others.
    """

    title: str
    goal_low: Corner = (0.0, 0.0, 0.0)
    goal_high: Corner = (0.0, 0.0, 0.0)
    end_effector: EndEffectors = "hand"
    obstacle_low: tuple[float, float, float] = (0.25, -0.6, 0.05)
    obstacle_high: tuple[float, float, float] = (0.8, 0.6, 0.8)
    robot: str = ""
    floating_base: bool | None = None
    locked: tuple[str, ...] = ()
    out_of_reach: tuple[str, ...] = ()
    posture: Mapping[str, float] = field(default_factory=dict)
    gripper: str = ""
    tabletop_posture: Mapping[str, float] = field(default_factory=dict)
    tabletop_controller_options: Mapping[str, Any] = field(default_factory=dict)
    height: float = 0.0
    armature: float | None = None
    stop_stiffness: float = 2000.0
    stop_damping: float = 50.0
    hand_axes: tuple[str, ...] = ("x", "y", "z", "rx", "ry", "rz")
    controller_options: Mapping[str, Any] = field(default_factory=dict)
    joint_controller_options: Mapping[str, Any] = field(default_factory=dict)
    task_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    walks: bool = False


def read_setup(source: str | Path) -> dict[str, Any]:
    """The fields of a `RobotSetup` that a YAML file gives.

    Args:
        source: a file; or the name of a bundled robot that has environments.

    Raises:
        ConfigError: the file cannot be read, or a value is not of its field's kind.
        UnknownNameError: there is no such setup or field; names its neighbours.
    """
    values, where = read_yaml(source, ROBOTS)
    for key in values:
        if key not in _SAMPLES:
            raise unknown_name("key", key, _SAMPLES, f"in {where}")
    values = {key: with_tuples(value) for key, value in values.items()}
    for key, value in values.items():
        if key in _LISTS:
            if not (isinstance(value, tuple) and all(isinstance(name, str) for name in value)):
                raise ConfigError(f"{where}: {key}={value!r}, expected a list of names.")
        else:
            check_kind(f"{where}: {key}", value, _SAMPLES[key])
    return values


_SAMPLES: dict[str, Any] = {
    **vars(RobotSetup("Panda", (0.3, -0.3, 0.15), (0.6, 0.3, 0.6), robot="panda")),
    "floating_base": False,
    "armature": 0.01,
}
"""A value of the kind of each field."""

_LISTS = ("locked", "out_of_reach", "hand_axes", "without")
"""Fields that are lists of names."""

_FIRST = ("panda", "iiwa14", "ur10", "planar_mobile_manipulator", "g1", "a1", "b2z1")
"""Listed first, in this order; others follow by name."""


def _bundled() -> dict[str, RobotSetup]:
    known = list_presets(ROBOTS)
    names = [n for n in _FIRST if n in known] + [n for n in known if n not in _FIRST]
    return {name: RobotSetup(**{"robot": name, **read_setup(name)}) for name in names}


SETUPS: dict[str, RobotSetup] = _bundled()
"""The bundled robots that have environments, by name: `configs/robots/NAME.yaml`."""
