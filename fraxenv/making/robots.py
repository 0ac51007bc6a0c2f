"""Robots placed as their setups say, and setups of users' own robots."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..controllers.hands import Hands
from ..dynamics import (
    Robot,
    frame_pose,
    load_robot,
    lock_joints,
    mount,
    random_configuration,
)
from ..dynamics.model.bundled import load_with_companion
from ..envs.tasks.reachability import reach
from ..errors import ConfigError, unknown_name
from .setups import EndEffectors, RobotSetup, read_setup

SAMPLES = 256
"""Random configurations that show along which axes a hand moves."""


def place_robot(setup: RobotSetup) -> Robot:
    """The robot of a setup, with soft stops at its position limits.

    Raises:
        UnknownNameError: there is no such robot, or it lacks a joint.
        RobotLoadError: its URDF cannot be loaded.
    """
    if setup.robot.endswith(".urdf"):
        robot = load_with_companion(Path(setup.robot), floating_base=setup.floating_base)
    else:
        robot = load_robot(setup.robot, floating_base=setup.floating_base)
    robot = lock_joints(robot, setup.locked)
    if setup.height:
        robot = mount(robot, (0.0, 0.0, setup.height))
    robot = _without_pairs(_in_posture(robot, setup.posture), setup.out_of_reach)
    ones = np.ones(robot.nv)
    armature = robot.armature if setup.armature is None else setup.armature * ones
    return robot.replace(
        stop_stiffness=setup.stop_stiffness * ones,
        stop_damping=setup.stop_damping * ones,
        armature=armature,
    )


def _in_posture(robot: Robot, posture: Mapping[str, float]) -> Robot:
    """A robot whose joints are, by default, where `posture` says."""
    q_default = np.array(robot.q_default)
    for joint, position in posture.items():
        if joint not in robot.joint_names:
            raise unknown_name("joint", joint, robot.joint_names, f"of robot {robot.name!r}")
        if not isinstance(position, int | float):
            raise ConfigError(f"posture: {joint}={position!r}, expected a number, rad or m.")
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


def load_setup(path: Path, end_effector: EndEffectors | None) -> tuple[RobotSetup, Robot]:
    """A setup from a YAML file, and its robot, placed.

    What the file leaves out is as in `default_setup`, and the robot is the URDF of the file's name
    beside it; a `robot` that is given is the name of a bundled one, or a path from the file.

    Raises:
        ConfigError: the file cannot be read, or it is not said which frame should act.
        UnknownNameError: the file has an unknown key, or the robot lacks a frame or a joint.
        RobotLoadError: the URDF cannot be loaded.
    """
    values = {"title": path.stem, "robot": f"{path.stem}.urdf", **read_setup(path)}
    if values["robot"].endswith(".urdf"):
        values["robot"] = str(path.parent / values["robot"])
    nowhere = {"goal_low": (0.0, 0.0, 0.0), "goal_high": (0.0, 0.0, 0.0)}
    robot = place_robot(RobotSetup(**{**nowhere, **values}))
    guessed = default_setup(robot, end_effector or values.get("end_effector"))
    return dataclasses.replace(guessed, **values), robot


def default_setup(robot: Robot, end_effector: EndEffectors | None) -> RobotSetup:
    """A setup for a user's own robot: goals around where its hands are by default.

    The box of goals reaches a fifth of the hand's distance from its first joint to every side, but
    at most 0.2 m, and is moved inwards where it would leave the hand's reach; that of obstacles is
    twice as large.

    Raises:
        ConfigError: it is not said which frame should act, and the robot does not say either.
        UnknownNameError: the robot lacks an end effector.
    """
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
