"""How an environment that MuJoCo moves is stepped, with an arm's inputs ours."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import gymnasium
import numpy as np

from ..envs.mujoco_arm import Applied, Drive, Numbers, mocap_welds, span
from ..envs.mujoco_guarded import GuardedArm
from ..kernels import BuildError, resolve
from .arm_programs import Programs
from .mujoco_callback import NativeControl, called
from .mujoco_physics import Physics, preceded


class MujocoDrive:
    """An arm that is driven through MuJoCo's control callback.

    Args:
        mujoco: the package.
        physics: the environment's.
        guarded: the arm, under control.
        driven: what drives its joints.
        programs: its control.
        held: what its hand may hold; None for nothing.
        backend: of the kernels.
    """

    def __init__(
        self,
        mujoco: Any,
        physics: Physics,
        guarded: GuardedArm,
        driven: Drive | Applied,
        programs: Programs,
        held: Any,
        backend: str,
    ) -> None:
        self._mujoco, self._physics, self._model = mujoco, physics, physics.model
        self._around, self._held, self._programs = guarded.around, held, programs
        welds = mocap_welds(physics.model, guarded.law.robot)
        self._loose = welds if isinstance(driven, Applied) else welds[:0]
        self._qpos, self._qvel = span(driven.at.qpos), span(driven.at.qvel)
        self._driven, self._dt = driven, guarded.law.dt
        self._write = driven.written().writer()
        self._memory: Any = None
        still_read = self._around is None or not self._around.moving
        self._may_call = still_read and resolve(backend) == "native"
        self._native: NativeControl | None = None
        self._before: Any = None
        self._time = -1.0

    def state(self) -> tuple[Numbers, Numbers]:
        """Positions (nq,) and velocities (nv,)."""
        data = self._physics.data()
        return data.qpos[self._qpos], data.qvel[self._qvel]

    @property
    def memory(self) -> Any:
        """The control's, as the programs have it; None before the first step."""
        return self._memory if self._native is None else self._native.memory

    @memory.setter
    def memory(self, memory: Any) -> None:
        self._memory = memory
        if self._native is not None:
            self._native.memory = memory

    def step(self, env: gymnasium.Env[Any, Any], action: Numbers, asked: Numbers) -> Any:
        """A step of the environment, in which the arm's inputs are ours.

        They are written when MuJoCo calls back, or right before it steps.

        Args:
            env: the environment.
            action: its own, without the arm.
            asked: an action of ours.
        """
        if self._memory is None:
            self.memory = self._programs.begin(*self.state())
        before, data = self._mujoco.get_mjcb_control(), self._physics.data()
        if len(self._loose):
            data.eq_active[self._loose] = 0
        ours = [asked]
        if self._held is not None:
            ours.append(self._held.read(self._mujoco, self._model, data))
        native = self._called(data, ours)
        if native is None or not (before is None or native.is_callback(before)):
            self.memory = self._programs.aim(self.memory, data.qpos[self._qpos], *ours)
            return self._step_by_python(env, action, before, data)
        native.begin(data, ours)
        self._mujoco.set_mjcb_control(native.callback)
        try:
            with self._first(lambda: native(data)):
                return env.step(action)
        finally:
            self._mujoco.set_mjcb_control(before)
            native.end()

    def _step_by_python(
        self, env: gymnasium.Env[Any, Any], action: Numbers, before: Any, ours: Any
    ) -> Any:
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
                return env.step(action)
        finally:
            self._mujoco.set_mjcb_control(before)

    def _first(self, control: Callable[[], None]) -> AbstractContextManager[None]:
        """Meanwhile it is called right before a step, where MuJoCo would call back too early."""
        stepper = self._physics.stepper
        return preceded(stepper(), control) if stepper else nullcontext()

    def _called(self, data: Any, asked: list[Numbers]) -> NativeControl | None:
        """What MuJoCo calls without Python, if it can."""
        if self._native is None and self._may_call:
            programs, at, written = self._programs, self._driven.at, self._driven.written()
            given = programs.source, programs.source_of_aim, self._memory, asked
            try:
                if hasattr(data, "_address"):
                    self._native = NativeControl(*given, at, written, self._dt)
                    self._native.memory = self._memory
            except BuildError:  # the program of Python's says so
                pass
            self._may_call = self._native is not None
        return self._native

    def _control(self, data: Any) -> None:
        """Write the inputs of the arm's actuators, at this moment of the physics."""
        if not 0 <= data.time - self._time < 0.75 * self._dt:
            # Once for each physics step, however often an integrator asks within it.
            self._before, self._time = self.memory, data.time
        v = data.qvel[self._qvel]
        seen = [self._before, data.qpos[self._qpos], v]
        if self._around is not None and self._around.moving:
            seen.append(self._around.read(self._mujoco, self._model, data))
        torque, self.memory = self._programs.control(*seen)
        self._write(np.asarray(torque) - data.qfrc_passive[self._qvel], data, v)
