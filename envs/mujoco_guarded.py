"""An arm's control in a MuJoCo scene: among its geoms, with what it holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from fraxenv.controllers.observer import MomentumObserver
from fraxenv.controllers.safety.barriers import NO_OBSTACLES
from fraxenv.controllers.safety.filter import SafetyReport, no_safety_report, worse_report
from fraxenv.dynamics import Robot
from fraxenv.errors import ConfigError, check_choice

from .actions.base import ActionSpace
from .arm_control import ArmControl, ArmMemory
from .mujoco_arm import (
    Applied,
    Drive,
    Numbers,
    arm_of,
    arm_space,
    as_stepped,
    boxed,
    checked_velocity_limits,
    drive_of,
    first_body,
    given_arm,
    usual_controller,
    usual_filter,
    with_self_collision,
)
from .mujoco_load import NOTHING, payload_of
from .mujoco_obstacles import GeomObstacles, geom_obstacles

DRIVES = ("actuators", "joints")


class GuardedMemory(NamedTuple):
    """What is remembered from control step to control step.

    Attributes:
        arm: the arm's memory.
        report: the worst of the filter's reports since the last action.
        load: (10,), what the hand holds, as `HeldBodies.read` has it; None where it holds nothing.
    """

    arm: ArmMemory
    report: SafetyReport
    load: Array | None


class GuardedArm(NamedTuple):
    """An arm's control among geoms: pure functions, as those of `ArmControl`.

    Attributes:
        law: of the arm.
        around: what its filter keeps it off; None for nothing.
        standing: what `read` gave of obstacles that never move; None if they do.
        holds: whether the hand may hold something.
    """

    law: ArmControl
    around: GeomObstacles | None
    standing: Numbers | None
    holds: bool = False

    def begin(self, q: Array, v: Array) -> GuardedMemory:
        """The memory of an arm that is told to stay at `q` (nq,)."""
        load = jnp.asarray(NOTHING, q.dtype) if self.holds else None
        return GuardedMemory(self.law.begin(q, v), no_safety_report(q.dtype), load)

    def aim(self, memory: GuardedMemory, q: Array, action: Array, *load: Array) -> GuardedMemory:
        """The memory after an action (k,); `load` (10,) is what a hand that may hold holds."""
        aimed = self.law.aim(memory.arm, q, action)
        return GuardedMemory(aimed, no_safety_report(q.dtype), load[0] if load else None)

    def control(
        self, memory: GuardedMemory, q: Array, v: Array, *seen: Array
    ) -> tuple[Array, GuardedMemory]:
        """Torques (nv,), N m and N; `seen` is what `read` gave of obstacles that move."""
        obstacles = NO_OBSTACLES
        if self.around is not None and self.around.names:
            state = seen[0] if seen else jnp.asarray(self.standing, q.dtype)
            obstacles = self.around.place(state)
        load = None if memory.load is None else payload_of(memory.load)
        torque, arm, report = self.law.control(memory.arm, q, v, obstacles, load)
        return torque, GuardedMemory(arm, worse_report(memory.report, report), memory.load)


@dataclasses.dataclass(frozen=True)
class ArmOptions:
    """What is asked of an arm; as for `fraxenv.wrappers.EndEffectorAction`.

    Attributes:
        who: asks; begins errors.
        end_effector: name of a body or site.
        root: name of a body; None for the one that the tree begins with.
        action: name of an action space, or one.
        action_options: of the action space.
        controller: of its targets; None for the usual one.
        velocity_limits: of the joints; None for none.
        safety: the filter.
        observer: of torques that act and are not in the model; None for none.
        obstacles: names of geoms and bodies; None for what stands still.
        robot: a model of the arm; None for MuJoCo's.
        joints: what MuJoCo's model calls its joints; None if the same.
        drive: "actuators" or "joints".
    """

    who: str
    end_effector: str
    root: str | None
    action: str | ActionSpace
    action_options: Mapping[str, Any] | None
    controller: Any
    velocity_limits: float | Sequence[float] | None
    safety: Any
    observer: MomentumObserver | None
    obstacles: Sequence[str] | None
    robot: Robot | None = None
    joints: Sequence[str] | None = None
    drive: str = "actuators"


def guarded_arm(
    mujoco: Any, model: Any, asked: ArmOptions, holds: bool = False
) -> tuple[GuardedArm, Drive | Applied]:
    """An arm of a model, under control, and what drives its joints.

    Args:
        mujoco: the package.
        model: a `mujoco.MjModel`.
        asked: of the arm.
        holds: whether it is told what the hand holds.

    Raises:
        ConfigError: a joint of the arm cannot be driven, the filter has obstacles and knows no
            shape of the arm, or an option has a value that it cannot have.
        UnknownNameError: there is no such body, site, joint, geom or action space.
        SceneLoadError: the arm has what a `Robot` cannot have.
    """
    check_choice("drive", asked.drive, DRIVES)
    end_effector, root, guard = asked.end_effector, asked.root, usual_filter(asked.safety)
    if asked.robot is None:
        shown = model if guard is None else boxed(mujoco, model)
        robot = arm_of(mujoco, shown, end_effector, root)
    else:
        robot = given_arm(mujoco, model, asked.robot, end_effector, root, asked.joints)
    if asked.velocity_limits is not None:
        limits = checked_velocity_limits(asked.who, robot, asked.velocity_limits)
        robot = dataclasses.replace(robot, velocity_limits=limits)
    by_actuators = asked.drive == "actuators"
    drive = drive_of(mujoco, model, robot) if by_actuators else Applied.of(model, robot)
    robot = as_stepped(mujoco, model, robot, drive)
    space = arm_space(robot, asked.action, asked.action_options)
    law = asked.controller
    if law is None:
        law = usual_controller(robot, space, drive)
    around = standing = None
    if guard is not None:
        robot = with_self_collision(robot) if asked.robot is None else robot
        around = _around(mujoco, model, robot, asked)
        standing = _standing(mujoco, model, around)
    dt = float(model.opt.timestep)
    control = ArmControl(robot, space, law, dt, guard, asked.observer)
    return GuardedArm(control, around, standing, holds), drive


def _around(mujoco: Any, model: Any, robot: Robot, asked: ArmOptions) -> GeomObstacles:
    """What the filter keeps the arm off."""
    first = first_body(mujoco, model, asked.end_effector) if asked.root is None else asked.root
    body = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, first)
    found = geom_obstacles(mujoco, model, body, asked.obstacles)
    if found.names and not robot.topology.collision_shapes:
        raise ConfigError(
            f"{asked.who}: the filter knows no shape of the arm: none of its geoms can touch "
            "something. Give it some, or pass obstacles=() for its joints' limits alone."
        )
    return found


def _standing(mujoco: Any, model: Any, around: GeomObstacles) -> Numbers | None:
    """Where obstacles are that never move."""
    if around.moving:
        return None
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    return around.read(mujoco, model, data)
