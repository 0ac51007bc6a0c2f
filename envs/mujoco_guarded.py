"""An arm's control in a MuJoCo scene: among its geoms, with what it holds."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fraxenv.controllers.safety.barriers import NO_OBSTACLES
from fraxenv.controllers.safety.filter import SafetyReport, no_safety_report, worse_report

from .arm_control import ArmControl, ArmMemory
from .mujoco_arm import Numbers
from .mujoco_load import NOTHING, payload_of
from .mujoco_obstacles import GeomObstacles


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
