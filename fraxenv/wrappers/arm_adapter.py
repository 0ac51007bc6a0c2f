"""How an environment that MuJoCo does not move is stepped, with an arm's torques ours."""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ..envs.mujoco_arm import Numbers
from ..errors import ConfigError
from .arm_programs import Programs

_CLOSE = 1e-6
"""How far a number of steps may be from a whole one, in parts of it."""


class ArmAdapter(Protocol):
    """What `EndEffectorAction` has to know of an environment whose arm takes torques.

    Each step of the environment is a control step: 1 / `control_rate` s long, a whole number of
    time steps of its physics.
    """

    def state(self) -> tuple[Numbers, Numbers]:
        """Positions (nq,), rad and m, and velocities (nv,) of the robot's joints, in its order."""
        ...

    def command(self, torque: Numbers) -> Numbers | None:
        """Have torques (nv,), N m and N, act during the environment's next step.

        Returns:
            The numbers of the environment's action that do so, those of `arm_actions`; or None,
            where it has been seen to.
        """
        ...

    def time_step(self) -> float:
        """Of the physics, s."""
        ...

    def control_rate(self) -> float:
        """Steps of the environment in a second, Hz."""
        ...


class AdapterDrive:
    """An arm that is driven through an adapter.

    Args:
        adapter: of the environment.
        programs: the arm's control.
        arm_actions: which numbers of the environment's action drive the arm.
        sizes: numbers of the robot's positions and velocities.
        policy_hz: of the actions; None for one at each step of the environment.

    Attributes:
        memory: the control's, as the programs have it; None before the first step.

    Raises:
        ConfigError: the rates do not divide.
    """

    def __init__(
        self,
        adapter: ArmAdapter,
        programs: Programs,
        arm_actions: NDArray[np.intp],
        sizes: tuple[int, int],
        policy_hz: float | None,
    ) -> None:
        self._adapter, self._programs = adapter, programs
        self._own, self._sizes = arm_actions, sizes
        hz = adapter.control_rate()
        self._steps = _whole("policy_hz", policy_hz or hz, 1 / hz, "steps of the environment")
        self.memory: Any = None

    def state(self) -> tuple[Numbers, Numbers]:
        """Positions (nq,) and velocities (nv,).

        Raises:
            ConfigError: they are not as many.
        """
        q, v = (np.asarray(x, float) for x in self._adapter.state())
        if (q.shape, v.shape) != tuple((n,) for n in self._sizes):
            raise ConfigError(
                f"EndEffectorAction: the adapter's state() gave positions {q.shape} and velocities "
                f"{v.shape}, expected {self._sizes[0]} and {self._sizes[1]}, of the robot's joints."
            )
        return q, v

    def step(self, env: gymnasium.Env[Any, Any], action: Numbers, asked: Numbers) -> Any:
        """The environment's steps until the next action; their rewards are summed.

        Args:
            env: the environment.
            action: its own, without the arm.
            asked: an action of ours.

        Raises:
            ConfigError: a command is not one number for each of `arm_actions`.
        """
        q, v = self.state()
        if self.memory is None:
            self.memory = self._programs.begin(q, v)
        self.memory = self._programs.aim(self.memory, q, asked)
        total: Any = 0.0
        for step in range(self._steps):
            if step:
                q, v = self.state()
            torque, self.memory = self._programs.control(self.memory, q, v)
            given = self._adapter.command(np.array(torque, float))
            if given is not None:
                action[self._own] = self._checked(given)
            obs, reward, terminated, truncated, info = env.step(action.copy())
            total += reward
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info

    def _checked(self, given: Numbers) -> Numbers:
        if np.shape(given) != self._own.shape:
            raise ConfigError(
                f"EndEffectorAction: the adapter's command() returned {np.shape(given)}, expected "
                f"one number for each of arm_actions={self._own.tolist()}, or None."
            )
        return given


def control_period(adapter: ArmAdapter) -> float:
    """s, between control steps.

    Raises:
        ConfigError: it is not a whole number of time steps.
    """
    hz = adapter.control_rate()
    _whole("the adapter's control_rate()", hz, adapter.time_step(), "time steps of its physics")
    return 1 / hz


def _whole(what: str, hz: float, period: float, parts: str) -> int:
    """How many parts, each a period (s), there are from one moment to the next."""
    count = 1 / (hz * period) if hz > 0 and period > 0 else 0.0
    if round(count) < 1 or abs(count - round(count)) > _CLOSE * count:
        raise ConfigError(
            f"EndEffectorAction: {what} of {hz:g} Hz is one in {count:g} {parts}, {period:g} s "
            "each: the rates do not divide, expected a whole number from 1."
        )
    return round(count)
