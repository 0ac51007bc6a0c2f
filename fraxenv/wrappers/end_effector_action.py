"""Actions that say where the hand goes, over a Gymnasium environment that MuJoCo moves.

The controller runs in MuJoCo's own control callback, at every physics step, whatever code it is
that steps: a `MujocoEnv`, or anything else whose `mujoco.MjModel` and `MjData` are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from jax import Array

from ..envs import ActionSpace
from ..envs.mujoco_arm import Numbers, mocap_welds, span
from ..envs.mujoco_guarded import ArmOptions, GuardedArm, guarded_arm
from ..envs.mujoco_load import held_bodies
from ..errors import ActionError, ConfigError, check_choice, import_extra
from ..kernels import BuildError, direct, resolve
from ..making.composition import build_observer
from .gymnasium.packing import layout_of, pack, unpack, unpack_here
from .mujoco_callback import NativeControl, called
from .mujoco_physics import physics_of, preceded


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
            backend=backend,
            _disable_deepcopy=True,
        )
        super().__init__(env)
        self._mujoco = import_extra("mujoco", "mujoco", "EndEffectorAction")
        self._physics = physics_of(env, model, data)
        self._model = self._physics.model
        self._held = held_bodies(self._mujoco, self._model, end_effector)
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
        holds = self._held is not None
        guarded, driven = guarded_arm(self._mujoco, self._model, asked, holds)
        self.robot, self._around = guarded.law.robot, guarded.around
        welds = mocap_welds(self._model, self.robot)
        self._loose = welds if drive == "joints" else welds[:0]
        self._qpos, self._qvel = span(driven.at.qpos), span(driven.at.qvel)
        self._driven, self._dt = driven, guarded.law.dt
        self._write = driven.written().writer()
        self.arm_axes = guarded.law.space.axes(self.robot)
        self._programs = Programs.of(guarded, backend)
        inner = _box(env)
        size = len(inner.low)
        own = driven.at.ctrl if arm_actions is None else np.asarray(arm_actions, int)
        if arm_actions is None and size != self._model.nu:
            raise ConfigError(
                f"EndEffectorAction: the environment's action has {size} numbers, and the model "
                f"{self._model.nu} inputs. Say which of the numbers drive the arm: "
                "arm_actions=[...], one for each joint."
            )
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
        self._memory: Any = None  # as the programs have it
        still_read = self._around is None or not self._around.moving
        self._may_call = still_read and resolve(backend) == "native"
        self._native: NativeControl | None = None
        self._before: Any = None
        self._time = -1.0

    @property
    def obstacle_names(self) -> tuple[str, ...]:
        """Geoms that the filter keeps the arm off, in the order in which it counts them."""
        return () if self._around is None else self._around.names

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; the arm is then told to stay where it is."""
        result = self.env.reset(seed=seed, options=options)
        self._memory = self._programs.begin(*self._state())
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step of the environment, the hand on its way.

        Raises:
            ActionError: the action has another shape, or is not finite.
        """
        action = np.asarray(action, self._still.dtype)
        own, size = len(self.arm_axes), self._size
        if action.shape != (size,) or not np.isfinite(action).all():
            names = ", ".join(axis.name for axis in self.arm_axes)
            raise ActionError(
                f"EndEffectorAction: the action is {action.tolist()}, expected {size} finite "
                f"numbers: {names}, and then {size - own} of the environment's own."
            )
        q, v = self._state()
        if self._memory is None:
            self._memory = self._programs.begin(q, v)
        seen = [q, action[:own]]
        if self._held is not None:
            data = self._physics.data()
            seen.append(self._held.read(self._mujoco, self._model, data))
        self._memory = self._programs.aim(self._memory, *seen)
        inner = self._still.copy()
        inner[self._rest] = self._fingers(action[own:])
        obs, reward, terminated, truncated, info = self._stepped(inner)
        if self._around is not None:
            info = info | {"safety": self._programs.report(self._memory)}
        return obs, reward, terminated, truncated, info

    def _stepped(self, action: Numbers) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step of the environment, in which the arm's inputs are ours.

        They are written when MuJoCo calls back, or right before it steps.
        """
        before, data = self._mujoco.get_mjcb_control(), self._physics.data()
        if len(self._loose):
            data.eq_active[self._loose] = 0
        native = self._called(data)
        if native is None or not (before is None or native.is_callback(before)):
            return self._stepped_by_python(action, before, data)
        native.begin(data, self._memory)
        self._mujoco.set_mjcb_control(native.callback)
        try:
            with self._first(lambda: native(data)):
                return self.env.step(action)
        finally:
            self._mujoco.set_mjcb_control(before)
            self._memory = native.end()

    def _stepped_by_python(
        self, action: Numbers, before: Any, ours: Any
    ) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """The same with a callback of Python's, which calls any other one before."""
        others, self._time = None if before is None else called(before), -1.0

        def control(model: Any, data: Any) -> None:
            if others is not None:
                others(model, data)
            if data is ours:
                self._control(data)

        self._mujoco.set_mjcb_control(control)
        try:
            with self._first(lambda: self._control(ours)):
                return self.env.step(action)
        finally:
            self._mujoco.set_mjcb_control(before)

    def _first(self, control: Callable[[], None]) -> AbstractContextManager[None]:
        """Meanwhile it is called right before a step, where MuJoCo would call back too early."""
        stepper = self._physics.stepper
        return preceded(stepper(), control) if stepper else nullcontext()

    def _called(self, data: Any) -> NativeControl | None:
        """What MuJoCo calls without Python, if it can."""
        if self._native is None and self._may_call:
            at, written = self._driven.at, self._driven.written()
            given = self._programs.source, self._memory, at, written, self._dt
            try:
                self._native = NativeControl(*given) if hasattr(data, "_address") else None
            except BuildError:  # the program of Python's says so
                self._native = None
            self._may_call = self._native is not None
        return self._native

    def _control(self, data: Any) -> None:
        """Write the inputs of the arm's actuators, at this moment of the physics."""
        if not 0 <= data.time - self._time < 0.75 * self._dt:
            # Once for each physics step, however often an integrator asks within it.
            self._before, self._time = self._memory, data.time
        v = data.qvel[self._qvel]
        seen = [self._before, data.qpos[self._qpos], v]
        if self._around is not None and self._around.moving:
            seen.append(self._around.read(self._mujoco, self._model, data))
        torque, self._memory = self._programs.control(*seen)
        self._write(np.asarray(torque) - data.qfrc_passive[self._qvel], data, v)

    def _state(self) -> tuple[Numbers, Numbers]:
        data = self._physics.data()
        return data.qpos[self._qpos], data.qvel[self._qvel]


class Programs(NamedTuple):
    """An arm's control, compiled; its memory is one array, which only these programs read.

    `source` is what `control` is compiled from.
    """

    begin: Callable[[Numbers, Numbers], Array]
    aim: Callable[..., Array]
    control: Callable[..., tuple[Array, Array]]
    report: Callable[[Array], dict[str, Any]]
    source: Callable[..., tuple[Array, Array]]

    @staticmethod
    def of(arm: GuardedArm, backend: str) -> Programs:
        """Machine code that Python calls, where kernels are native; elsewhere programs of JAX."""
        dtype = jnp.result_type(float)
        still = (jax.ShapeDtypeStruct((n,), dtype) for n in (arm.law.robot.nq, arm.law.robot.nv))
        layout = layout_of(jax.eval_shape(arm.begin, *still))

        def begin(q: Array, v: Array) -> Array:
            return pack(arm.begin(q, v), layout)

        def aim(memory: Array, q: Array, action: Array, *load: Array) -> Array:
            return pack(arm.aim(unpack(memory, layout), q, action, *load), layout)

        def control(memory: Array, q: Array, v: Array, *seen: Array) -> tuple[Array, Array]:
            torque, after = arm.control(unpack(memory, layout), q, v, *seen)
            return torque, pack(after, layout)

        def report(memory: Array) -> dict[str, Any]:
            found: dict[str, Any] = unpack_here(np.asarray(memory), layout).report
            return found

        def program(fn: Callable[..., Any]) -> Callable[..., Any]:
            if resolve(backend) == "native":
                return direct(fn)
            jitted = jax.jit(fn)

            def called(*args: Numbers) -> Any:
                # Copies: they may be MuJoCo's own memory, which moves on.
                return jitted(*(x if x.dtype == np.int32 else jnp.array(x, dtype) for x in args))

            return called

        return Programs(program(begin), program(aim), program(control), report, control)


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
