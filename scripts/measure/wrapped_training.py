"""Stable-Baselines3 learns the same reach in somebody's MuJoCo environment and in ours.

The Panda of PandaReach-v0 as a `MujocoEnv` of Gymnasium, torque motors and all, gets our actions by
`EndEffectorAction`; observations, rewards and episodes are those of PandaReach-v0. PPO trains eight
environments of each, one after the other, as `DummyVecEnv` steps them, and the same environment
with its torques; and eight of ours in one program. Printed are steps per second, and how many of
fresh goals the hand is at when an episode ends, by the steps of training. The results are in
docs/training/stable_baselines3.md.

    python scripts/measure/wrapped_training.py --steps 30000 --seeds 3
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import torch
import tyro
from gymnasium.envs.mujoco import MujocoEnv
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

import fraxenv  # noqa: F401 - registers the ids
from fraxenv import dynamics
from fraxenv.wrappers import EndEffectorAction, StableBaselinesVecEnv

POLICY_HZ, CONTROL_HZ = 50, 200
EPISODE = 50
"""Steps."""
PANDA = dynamics.load_robot("panda")
LOW, HIGH = np.asarray(PANDA.position_limits).T
MIDDLE, HALF = (LOW + HIGH) / 2, (HIGH - LOW) / 2
FASTEST = np.asarray(PANDA.velocity_limits)
OURS: dict[str, Any] = {
    "action": "ee_delta_position",
    "control_hz": CONTROL_HZ,
    "physics_hz": CONTROL_HZ,
    "max_episode_steps": EPISODE,
}


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    steps: int = 30_000
    """Of training."""
    num_envs: int = 8
    """Environments side by side."""
    seeds: int = 3
    """Trainings of each, with the seeds 0, 1, 2 and so on."""
    evaluations: int = 3
    """Over the training, evenly."""
    episodes: int = 50
    """Of an evaluation."""


def panda_file() -> Path:
    """An MJCF file of the bundled Panda, with torque motors and a site at its hand."""
    q = np.asarray(PANDA.q_default)
    spec = mujoco.MjSpec.from_file(str(Path(dynamics.__path__[0]) / "robots" / "panda.urdf"))
    spec.option.timestep = 1 / CONTROL_HZ
    spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    model = spec.compile()
    data = mujoco.MjData(model)
    data.qpos[:] = q
    mujoco.mj_kinematics(model, data)
    position, rotation = (np.asarray(x) for x in dynamics.frame_pose(PANDA, q, "hand"))
    last = spec.bodies[-1]
    turn, quaternion = data.xmat[-1].reshape(3, 3).T, np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, (turn @ rotation).ravel())
    last.add_site(name="hand", pos=turn @ (position - data.xpos[-1]), quat=quaternion)
    for joint, effort in zip(spec.joints, np.asarray(PANDA.effort_limits), strict=True):
        motor = spec.add_actuator(name=joint.name, target=joint.name)
        motor.trntype = mujoco.mjtTrn.mjTRN_JOINT
        motor.set_to_motor()
        motor.gear[0] = effort
        motor.ctrlrange, motor.ctrllimited = (-1, 1), True
    spec.compile()
    path = Path(tempfile.mkdtemp()) / "panda.xml"
    path.write_text(spec.to_xml())
    return path


class Panda(MujocoEnv):
    """The reach as a user of Gymnasium's writes it; its actions are torques."""

    metadata = {  # noqa: RUF012 - as Gymnasium wants it
        "render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"],
        "render_fps": POLICY_HZ,
    }

    def __init__(self, path: Path) -> None:
        space = gym.spaces.Box(-np.inf, np.inf, (23,), np.float32)
        super().__init__(str(path), CONTROL_HZ // POLICY_HZ, space)
        self.goal = np.zeros(3)
        self._hand = self.data.site("hand").xpos

    def step(self, action: NDArray[np.float32]) -> Any:
        """A step of 20 ms, and the terms of the reward that need no action."""
        self.do_simulation(action, self.frame_skip)
        error = np.linalg.norm(self.goal - self._hand)
        near, fine = 1 - np.tanh(error / 0.1), 1 - np.tanh(error / 0.02)
        speed = float(self.data.qvel @ self.data.qvel)
        reward = -0.2 * error + 0.1 * near + 0.2 * fine - 1e-4 * speed
        return self._seen(), reward, False, False, {"success": bool(error < 0.02)}

    def reset_model(self) -> Any:
        """Near the default configuration, and another goal."""
        q = np.asarray(PANDA.q_default) + self.np_random.uniform(-0.1, 0.1, 7)
        self.set_state(np.clip(q, LOW, HIGH), np.zeros(7))
        self.goal = self.np_random.uniform((0.3, -0.3, 0.15), (0.6, 0.3, 0.6))
        return self._seen()

    def _seen(self) -> NDArray[np.float32]:
        joints = (self.data.qpos - MIDDLE) / HALF
        hand = self._hand
        parts = (joints, self.data.qvel / FASTEST, hand, self.goal, 10 * (self.goal - hand))
        return np.concatenate(parts).astype(np.float32)


class LastAction(gym.Wrapper[Any, Any, Any, Any]):
    """What PandaReach-v0 makes of the action itself: the last observation, and a cost of change."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._still = np.zeros(env.action_space.shape or (), np.float32)
        size = 23 + len(self._still)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self._last = self._still

    def reset(self, **given: Any) -> Any:
        """As the environment does."""
        obs, info = self.env.reset(**given)
        self._last = self._still
        return np.concatenate([obs, self._last]), info

    def step(self, action: NDArray[np.float32]) -> Any:
        """As the environment does, less the change of the action."""
        obs, reward, *rest = self.env.step(action)
        change = action - self._last
        self._last = np.array(action)
        return np.concatenate([obs, action]), float(reward) - 1e-3 * float(change @ change), *rest


def wrapped(path: Path) -> gym.Env[Any, Any]:
    """Somebody's environment with our actions."""
    env = EndEffectorAction(Panda(path), OURS["action"], end_effector="hand")
    return gym.wrappers.TimeLimit(LastAction(env), EPISODE)


def bare(path: Path) -> gym.Env[Any, Any]:
    """The same environment without our actions: torques, as shares of the most."""
    return gym.wrappers.TimeLimit(LastAction(Panda(path)), EPISODE)


def ours() -> gym.Env[Any, Any]:
    """One of our environments."""
    return gym.make("fraxenv/PandaReach-v0", **OURS)


def batch(n: int) -> Any:
    """Some of our environments in one program."""
    mode = {"vectorization_mode": "vector_entry_point", "autoreset_mode": "SameStep"}
    return StableBaselinesVecEnv(
        gym.make_vec("fraxenv/PandaReach-v0", num_envs=n, **mode, **OURS)  # type: ignore[arg-type]
    )


class Curve(BaseCallback):
    """Success at some steps of a training; the time it takes is not the training's."""

    def __init__(self, env: gym.Env[Any, Any], options: Options) -> None:
        super().__init__()
        self.env, self.options = env, options
        self.success: list[float] = []
        self.away = 0.0

    def _on_step(self) -> bool:
        due = (len(self.success) + 1) * self.options.steps / self.options.evaluations
        if self.num_timesteps >= due:
            begin = time.perf_counter()
            self.success.append(self._evaluated())
            self.away += time.perf_counter() - begin
        return True

    def _evaluated(self) -> float:
        reached = 0
        for episode in range(self.options.episodes):
            obs, _ = self.env.reset(seed=10_000 + episode)
            over = False
            while not over:
                action, _ = self.model.predict(obs, deterministic=True)
                obs, _, terminated, truncated, info = self.env.step(action)
                over = terminated or truncated
            reached += bool(info["success"])
        return reached / self.options.episodes


def trained(
    envs: Any, judge: gym.Env[Any, Any], options: Options, seed: int
) -> tuple[float, list[float]]:
    """Seconds and curve of a training."""
    model = PPO(
        "MlpPolicy",
        VecMonitor(envs),
        n_steps=1024 // options.num_envs,
        batch_size=256,
        gamma=0.95,
        learning_rate=1e-3,
        seed=seed,
        device="cpu",
    )
    curve = Curve(judge, options)
    envs.reset()
    envs.step(np.zeros((options.num_envs, *envs.action_space.shape), np.float32))  # compiles
    begin = time.perf_counter()
    model.learn(options.steps, callback=curve)
    return time.perf_counter() - begin - curve.away, curve.success


def stepping(envs: Any, n: int) -> float:
    """Environments' steps per second without a learner, the median of some hundred steps."""
    envs.reset()
    size = envs.action_space.shape[0]
    actions = np.random.default_rng(0).uniform(-1, 1, (100, n, size)).astype(np.float32)
    envs.step(actions[0])
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        for action in actions:
            envs.step(action)
        times.append(time.perf_counter() - begin)
    return float(n * len(actions) / np.median(times))


def main() -> None:
    """Run the command line."""
    options = tyro.cli(Options)
    torch.set_num_threads(1)
    path, n = panda_file(), options.num_envs
    makers: dict[str, tuple[Callable[[], Any], Callable[[], gym.Env[Any, Any]]]] = {
        "wrapped": (lambda: DummyVecEnv([partial(wrapped, path)] * n), partial(wrapped, path)),
        "without a wrapper, torques": (
            lambda: DummyVecEnv([partial(bare, path)] * n),
            partial(bare, path),
        ),
        "ours, one by one": (lambda: DummyVecEnv([ours] * n), ours),
        "ours, one program": (lambda: batch(n), ours),
    }
    made = {name: (make(), judge()) for name, (make, judge) in makers.items()}
    alone = {name: stepping(envs, n) for name, (envs, _) in made.items()}
    found: dict[str, list[tuple[float, list[float]]]] = {name: [] for name in made}
    for seed in range(options.seeds):  # all in turn, since machines have better and worse hours
        for name, (envs, judge) in made.items():
            found[name].append(trained(envs, judge, options, seed))
            print(name, seed, found[name][-1], flush=True)
    points = [options.steps * (i + 1) // options.evaluations for i in range(options.evaluations)]
    table = Table("", "steps/s alone", "steps/s training", *(f"at {p}" for p in points))
    for name, results in found.items():
        rate = options.steps / np.median([seconds for seconds, _ in results])
        success = np.median([curve for _, curve in results], axis=0)
        shown = (f"{100 * x:.0f} %" for x in success)
        table.add_row(name, f"{alone[name]:.0f}", f"{rate:.0f}", *shown)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
