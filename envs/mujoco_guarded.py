"""An arm's control in a MuJoCo scene: among its geoms, with what it holds."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fraxenv.controllers.safety.barriers import NO_OBSTACLES
from fraxenv.controllers.safety.filter import SafetyReport, no_safety_report, worse_report

from .arm_control import ArmControl, ArmMemory
from .mujoco_arm import Numbers
from .mujoco_obstacles import GeomObstacles


class GuardedMemory(NamedTuple):
    """The arm's memory, and the worst of the filter's reports since the last action."""

    arm: ArmMemory
    report: SafetyReport


class GuardedArm(NamedTuple):
    """An arm's control among geoms: pure functions, as those of `ArmControl`.

    Attributes:
        law: of the arm.
        around: what its filter keeps it off; None for nothing.
        standing: what `read` gave of obstacles that never move; None if they do.
    """

    law: ArmControl
    around: GeomObstacles | None
    standing: Numbers | None

    def begin(self, q: Array, v: Array) -> GuardedMemory:
        """The memory of an arm that is told to stay at `q` (nq,)."""
        return GuardedMemory(self.law.begin(q, v), no_safety_report(q.dtype))

    def aim(self, memory: GuardedMemory, q: Array, action: Array) -> GuardedMemory:
        """The memory after an action (k,)."""
        aimed = self.law.aim(memory.arm, q, action)
        return GuardedMemory(aimed, no_safety_report(q.dtype))

    def control(
        self, memory: GuardedMemory, q: Array, v: Array, *seen: Array
    ) -> tuple[Array, GuardedMemory]:
        """Torques (nv,), N m and N; `seen` is what `read` gave of obstacles that move."""
        obstacles = NO_OBSTACLES
        if self.around is not None and self.around.names:
            state = seen[0] if seen else jnp.asarray(self.standing, q.dtype)
            obstacles = self.around.place(state)
        torque, arm, report = self.law.control(memory.arm, q, v, obstacles)
        return torque, GuardedMemory(arm, worse_report(memory.report, report))
