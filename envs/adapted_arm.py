"""An arm that somebody else's simulator moves: its control, from a model and rates alone."""

from __future__ import annotations

import dataclasses

from fraxenv.dynamics import Robot
from fraxenv.errors import ConfigError

from .arm_control import ArmControl
from .mujoco_arm import (
    HAND,
    arm_space,
    checked_velocity_limits,
    usual_controller,
    usual_filter,
)
from .mujoco_guarded import ArmOptions, GuardedArm


def adapted_arm(asked: ArmOptions, dt: float) -> GuardedArm:
    """A user's arm, under control, that nothing stands around.

    A filter keeps its joints within their limits, and its shapes apart.

    Args:
        asked: of the arm, whose model has the end effector as one of its frames.
        dt: s, between control steps.

    Raises:
        ConfigError: there is no model, one of its joints is free or a ball, or an option has a
            value that it cannot have.
        UnknownNameError: there is no such frame or action space.
    """
    if asked.robot is None:
        raise ConfigError(
            f"{asked.who}: with an adapter there is no model of MuJoCo's to read the arm from. "
            "Pass robot=..., as of dynamics.load_robot."
        )
    robot = _with_hand(asked.robot, asked.end_effector)
    if robot.nq != len(robot.joint_names):
        raise ConfigError(
            f"{asked.who}: robot {robot.name!r} has a joint that is free or a ball, expected "
            "hinges and slides."
        )
    if asked.velocity_limits is not None:
        limits = checked_velocity_limits(asked.who, robot, asked.velocity_limits)
        robot = dataclasses.replace(robot, velocity_limits=limits)
    space = arm_space(robot, asked.action, asked.action_options)
    law = usual_controller(robot, space) if asked.controller is None else asked.controller
    guard = usual_filter(asked.safety)
    return GuardedArm(ArmControl(robot, space, law, dt, guard, asked.observer), None, None)


def _with_hand(robot: Robot, end_effector: str) -> Robot:
    """The robot, whose one end effector is a frame of it, called "hand"."""
    frame = robot.frame(end_effector)
    number = next(k for k, f in enumerate(robot.topology.frames) if f is frame)
    topology = dataclasses.replace(robot.topology, end_effectors={HAND: number})
    return dataclasses.replace(robot, topology=topology)
