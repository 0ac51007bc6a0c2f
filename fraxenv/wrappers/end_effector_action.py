"""Actions that say where the hand goes, over a Gymnasium environment that MuJoCo moves.

The controller runs in MuJoCo's own control callback, at every physics step, whatever code it is
that steps: a `MujocoEnv`, or anything else whose `mujoco.MjModel` and `MjData` are given. Where
something else moves the arm, an adapter of four methods says how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from ..envs import ActionSpace
from ..envs.adapted_arm import adapted_arm
from ..envs.mujoco_arm import Numbers
from ..envs.mujoco_guarded import ArmOptions, GuardedArm, guarded_arm
from ..envs.mujoco_load import held_bodies
from ..errors import ActionError, ConfigError, check_choice, import_extra
from ..making.composition import build_observer
from .arm_adapter import AdapterDrive, ArmAdapter, control_period
from .arm_programs import Programs
from .mujoco_drive import MujocoDrive
from .mujoco_physics import physics_of


class EndEffectorAction(gymnasium.Wrapper, RecordConstructorArgs):  # type: ignore[type-arg]
    """Moves the hand of a MuJoCo environment's arm by our action spaces and controllers.

    The arm is what moves between `root` and `end_effector`; other joints, as of fingers, are to the
    controller as they are at `qpos0`, and what carries the root stands still there. Each of its
    joints is driven by one actuator without a state of its own: a motor, or a position or velocity
    servo, whose input is then such that it gives the controller's torque, as far as its ranges
    allow. Where all are position servos, poses of the hand are brought about by differential
    inverse kinematics, and the servos keep their stiffness. Springs, damping and gravity
    compensation, which MuJoCo applies besides, are subtracted. What two bodies of the hand press
    on, against each other, and what moves freely, is a load that controller and filter know.

    An action is ours, `arm_axes` in [-1, 1], and after it what is left of the wrapped environment's
    action, in its own range: the gripper, for example. In place of the arm's part the environment
    gets zeros; a reward that counts these numbers counts none. MuJoCo's control callback is ours
    while `step` runs, and any other one is called before; environments that are stepped by threads
    of one process get into each other's way.

    Args:
        env: its unwrapped environment has `model`, a `mujoco.MjModel`, and `data`; or it is
            robosuite's or dm_control's.
        action: name of an action space, or an `ActionSpace` of the end effector "hand".
        end_effector: name of the body or site that the arm moves.
        root: name of the body at which the arm begins; by default the tree's first one.
        robot: a model of the arm in place of what MuJoCo's says of it, such as one with shapes or
            limits that are known better. Its root link is where `root` is.
        joints: what MuJoCo's model calls the joints of `robot`, in its order, if not the same.
        action_options: of the action space, as for `fraxenv.make`.
        controller: of its targets; by default the action space's own, an `OSC`, or for an arm of
            position servos differential inverse kinematics.
        gripper: "pass": what is left of the wrapped action follows ours; "binary": one number in
            its place, above zero the upper ends of its ranges, else the lower ones; or what above
            zero and else: `{"open": [0.04, 0.04], "closed": [0.0, 0.0]}`.
        drive: "actuators", or "joints" for torques on the joints themselves, of an arm that a mocap
            body pulls, which then lets go of it, or whose actuators stay at zero.
        arm_actions: which numbers of the wrapped action drive the arm, of a joint each; by default
            the inputs of its actuators, where the wrapped action is all inputs.
        model: the model, where the environment has it by another name.
        data: likewise; or a function that returns it, where resets make it anew.
        velocity_limits: of the arm's joints, rad/s and m/s, which MJCF does not have; none by
            default. A filter needs them to keep what it promises.
        safety: "cbf" or a `SafetyFilter` of the end effector "hand": the filter of the torques, at
            every physics step. It knows the arm's geoms that can touch something; of meshes the
            boxes around them.
        observer: of torques that act on the arm and that the model lacks, such as a load or
            friction, for controller and filter: "momentum", a `MomentumObserver`, or a dict of its
            fields. None by default, but with a robust filter.
        obstacles: names of geoms and bodies that the filter keeps the arm off; by default all that
            stand still in the world and can touch something. Geoms that are neither spheres,
            capsules, cylinders, boxes nor planes count as the boxes around them.
        adapter: of an environment that MuJoCo does not move, an `ArmAdapter`: `robot` is its arm
            then, and `end_effector` a frame of that. Options that name MuJoCo's things have no
            meaning. A filter keeps the joints' limits and the arm off itself.
        policy_hz: with an adapter, of our actions: the environment's steps between two of them are
            one of ours, and their rewards summed. By default there is one for each.
        backend: of the kernels; see `fraxenv.fuse`.

    With a filter `info["safety"]` is the worst of its reports in this step; see `SafetyFilter`.

    Raises:
        ConfigError: a joint of the arm has no actuator of its own, or one that cannot be given a
            torque; the environment's actions are not those of the actuators; the filter has
            obstacles, and knows no shape of the arm; `robot` moves otherwise than the model; or an
            option has a value that it cannot have.
        UnknownNameError: there is no such body, site, joint or action space.
        SceneLoadError: the arm has what a `Robot` cannot have.
        MissingExtraError: MuJoCo is not installed.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        action: str | ActionSpace = "ee_delta_pose",
        *,
        end_effector: str,
        root: str | None = None,
        robot: Any = None,
        joints: Sequence[str] | None = None,
        action_options: Mapping[str, Any] | None = None,
        controller: Any = None,
        gripper: str | Mapping[str, Sequence[float]] = "pass",
        drive: str = "actuators",
        arm_actions: Sequence[int] | None = None,
        model: Any = None,
        data: Any = None,
        velocity_limits: float | Sequence[float] | None = None,
        safety: Any = None,
        observer: Any = None,
        obstacles: Sequence[str] | None = None,
        adapter: ArmAdapter | None = None,
        policy_hz: float | None = None,
        backend: str = "auto",
    ) -> None:
        RecordConstructorArgs.__init__(
            self,
            action=action,
            end_effector=end_effector,
            root=root,
            robot=robot,
            joints=joints,
            action_options=action_options,
            controller=controller,
            gripper=gripper,
            drive=drive,
            arm_actions=arm_actions,
            model=model,
            data=data,
            velocity_limits=velocity_limits,
            safety=safety,
            observer=observer,
            obstacles=obstacles,
            adapter=adapter,
            policy_hz=policy_hz,
            backend=backend,
            _disable_deepcopy=True,
        )
        super().__init__(env)
        asked = ArmOptions(
            "EndEffectorAction",
            end_effector,
            root,
            action,
            action_options,
            controller,
            velocity_limits,
            safety,
            build_observer(observer, safety),
            obstacles,
            robot,
            joints,
            drive,
        )
        inner = _box(env)
        size = len(inner.low)
        own = None if arm_actions is None else np.asarray(arm_actions, int)
        if adapter is not None:
            mujocos = {"model": model, "data": data, "root": root, "joints": joints}
            mujocos |= {"obstacles": obstacles, "drive": None if drive == "actuators" else drive}
            moved = _by_adapter(asked, adapter, mujocos, own, policy_hz, backend)
        else:
            moved = _by_mujoco(env, asked, model, data, size, own, policy_hz, backend)
        guarded, self._programs, own = moved.arm, moved.programs, moved.own
        self._drive: AdapterDrive | MujocoDrive = moved.drive
        self.robot, self._around = guarded.law.robot, guarded.around
        self._filtered = guarded.law.safety is not None
        self.arm_axes = guarded.law.space.axes(self.robot)
        self._rest = np.setdiff1d(np.arange(size), own)  # an own of -1 is of a joint without input
        self._still = np.zeros(size, inner.low.dtype)
        left = _gripper(gripper, inner.low[self._rest], inner.high[self._rest])
        self._fingers = left.numbers
        ours = np.ones(len(self.arm_axes), inner.low.dtype)
        self.action_space = gymnasium.spaces.Box(
            np.concatenate([-ours, left.low]),
            np.concatenate([ours, left.high]),
            dtype=inner.low.dtype.type,
        )
        self._size = len(ours) + len(left.low)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are made as this one was, over a copy of the environment.

        Machine code and MuJoCo's callbacks are of one process.
        """
        return _made, (self.env, self._saved_kwargs), self._drive.memory

    def __setstate__(self, memory: Any) -> None:
        """Go on with what was remembered."""
        self._drive.memory = memory

    @property
    def obstacle_names(self) -> tuple[str, ...]:
        """Geoms that the filter keeps the arm off, in the order in which it counts them."""
        return () if self._around is None else self._around.names

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; the arm is then told to stay where it is."""
        result = self.env.reset(seed=seed, options=options)
        self._drive.memory = self._programs.begin(*self._drive.state())
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step of the environment, the hand on its way.

        Raises:
            ActionError: the action has another shape, or is not finite.
        """
        action = np.asarray(action, self._still.dtype)
        own, size = len(self.arm_axes), self._size
        if action.shape != (size,) or not all(map(isfinite, action.tolist())):
            names = ", ".join(axis.name for axis in self.arm_axes)
            raise ActionError(
                f"EndEffectorAction: the action is {action.tolist()}, expected {size} finite "
                f"numbers: {names}, and then {size - own} of the environment's own."
            )
        inner = self._still.copy()
        inner[self._rest] = self._fingers(action[own:])
        obs, reward, terminated, truncated, info = self._drive.step(self.env, inner, action[:own])
        if self._filtered:
            info = info | {"safety": self._programs.report(self._drive.memory)}
        return obs, reward, terminated, truncated, info


def _made(env: gymnasium.Env[Any, Any], options: dict[str, Any]) -> EndEffectorAction:
    return EndEffectorAction(env, **options)


class _Moved(NamedTuple):
    """How an arm is moved, and which numbers of the environment's action are its own."""

    arm: GuardedArm
    programs: Programs
    drive: AdapterDrive | MujocoDrive
    own: NDArray[np.intp]


def _by_adapter(
    asked: ArmOptions,
    adapter: ArmAdapter,
    mujocos: Mapping[str, Any],
    own: NDArray[np.intp] | None,
    policy_hz: float | None,
    backend: str,
) -> _Moved:
    """By somebody else's simulator; `mujocos` are options that it has no use for."""
    for name, given in mujocos.items():
        if given is not None:
            raise ConfigError(
                f"EndEffectorAction: adapter=... and {name}={given!r}, which is of an "
                "environment that MuJoCo moves. Pass one of them."
            )
    arm = adapted_arm(asked, control_period(adapter))
    programs, sizes = Programs.of(arm, backend), (arm.law.robot.nq, arm.law.robot.nv)
    own = np.zeros(0, int) if own is None else own
    return _Moved(arm, programs, AdapterDrive(adapter, programs, own, sizes, policy_hz), own)


def _by_mujoco(
    env: gymnasium.Env[Any, Any],
    asked: ArmOptions,
    model: Any,
    data: Any,
    size: int,
    own: NDArray[np.intp] | None,
    policy_hz: float | None,
    backend: str,
) -> _Moved:
    """By MuJoCo, whose model and data the environment has, or the caller gives."""
    if policy_hz is not None:
        raise ConfigError(
            f"EndEffectorAction: policy_hz={policy_hz} without an adapter: actions come as often "
            "as the environment is stepped."
        )
    mujoco = import_extra("mujoco", "mujoco", "EndEffectorAction")
    physics = physics_of(env, model, data)
    held = held_bodies(mujoco, physics.model, asked.end_effector)
    arm, driven = guarded_arm(mujoco, physics.model, asked, held is not None)
    if own is None and size != physics.model.nu:
        raise ConfigError(
            f"EndEffectorAction: the environment's action has {size} numbers, and the model "
            f"{physics.model.nu} inputs. Say which of the numbers drive the arm: "
            "arm_actions=[...], one for each joint."
        )
    programs = Programs.of(arm, backend)
    drive = MujocoDrive(mujoco, physics, arm, driven, programs, held, backend)
    return _Moved(arm, programs, drive, driven.at.ctrl if own is None else own)


class Gripper(NamedTuple):
    """What of an action is not the arm's: its ranges, and the wrapped action's numbers of it."""

    low: Numbers
    high: Numbers
    numbers: Callable[[Numbers], Numbers]


def _gripper(given: str | Mapping[str, Sequence[float]], low: Numbers, high: Numbers) -> Gripper:
    """The gripper's numbers, for an option `gripper` and the ranges of what is left."""
    if isinstance(given, str):
        check_choice("gripper", given, ("pass", "binary"))
        if given == "pass" or not len(low):
            return Gripper(low, high, lambda numbers: numbers)
        given = {"open": high.tolist(), "closed": low.tolist()}
    if set(given) != {"open", "closed"} or any(np.shape(x) != low.shape for x in given.values()):
        raise ConfigError(
            f"EndEffectorAction: gripper={dict(given)}, expected 'pass', 'binary', or 'open' and "
            f"'closed', each with the {len(low)} numbers of the environment's action that the arm "
            "leaves."
        )
    opened, closed = (np.asarray(given[name], low.dtype) for name in ("open", "closed"))
    one = np.ones(1, low.dtype)
    return Gripper(-one, one, lambda number: opened if number[0] > 0 else closed)


def _box(env: gymnasium.Env[Any, Any]) -> gymnasium.spaces.Box:
    space = env.action_space
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        raise ConfigError(
            f"EndEffectorAction: the environment's action space is {space}, expected a Box of one "
            "axis."
        )
    return space
