"""How an arm of an MJCF file follows our actions in a plain environment, and what they cost.

The hand is told to go up by 5 cm; printed is how far it came, and what a control step takes beside
the environment's own physics. Results are in docs/extend/environment.md.

    python scripts/measure/wrapped_arm.py ur5e/robot.xml right_hand --posture 0 -1.2 1.8 -2 -1.6 0
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import tyro

from fraxenv.wrappers import EndEffectorAction

STEPS = 20
"""Of the physics in a step of the environment."""


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    file: tyro.conf.Positional[Path]
    """An MJCF file of an arm with motors."""
    end_effector: tyro.conf.Positional[str]
    """A body or site of it."""
    posture: tuple[float, ...]
    """rad and m, of all joints, where it begins."""
    hz: int = 1000
    """Of physics and control."""
    seconds: float = 2.0
    """For the hand to arrive."""


class Plain(gymnasium.Env[Any, Any]):
    """Nothing but the arm."""

    def __init__(self, options: Options) -> None:
        self.model = mujoco.MjModel.from_xml_path(str(options.file))
        self.model.opt.timestep = 1 / options.hz
        self.data, self.posture = mujoco.MjData(self.model), options.posture
        low, high = self.model.actuator_ctrlrange.T.astype(np.float32)
        self.action_space = gymnasium.spaces.Box(low, high)
        size = self.model.nq + self.model.nv
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """The arm in its posture."""
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = self.posture
        mujoco.mj_forward(self.model, self.data)
        return np.concatenate([self.data.qpos, self.data.qvel]), {}

    def step(self, action: Any) -> Any:
        """A few steps of the physics."""
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data, nstep=STEPS)
        return np.concatenate([self.data.qpos, self.data.qvel]), 0.0, False, False, {}


def microseconds(step: Callable[[Any], Any], action: Any) -> float:
    """Of a physics step, the median of 20 times ten steps of the environment."""
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(10):
            step(action)
        times.append(time.perf_counter() - begin)
    return float(np.median(times)) / 10 / STEPS * 1e6


def main() -> None:
    """Run the command line."""
    options = tyro.cli(Options)
    plain = Plain(options)
    env = EndEffectorAction(
        plain, end_effector=options.end_effector, action_options={"target": "desired"}
    )
    env.reset(seed=0)
    still = np.zeros(env.action_space.shape or (), np.float32)
    up = still.copy()
    up[2] = 1.0

    def hand() -> Any:
        kind = mujoco.mjtObj.mjOBJ_BODY
        body = mujoco.mj_name2id(plain.model, kind, options.end_effector)
        if body >= 0:
            return plain.data.xpos[body].copy()
        return plain.data.site(options.end_effector).xpos.copy()

    steps = round(options.seconds * options.hz / STEPS)
    for _ in range(steps // 4):
        env.step(still)
    start = hand()
    env.step(up)
    for _ in range(steps):
        env.step(still)
    print(f"{options.file}: moved by {np.round((hand() - start) * 1e3, 2)} mm")
    with_control = microseconds(env.step, still)
    alone = microseconds(plain.step, plain.data.ctrl.copy())
    print(f"  {with_control - alone:.1f} us of control beside {alone:.1f} us of physics, each step")


if __name__ == "__main__":
    main()
