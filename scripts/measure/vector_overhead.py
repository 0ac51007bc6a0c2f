"""What sixteen environments cost a step through vector environments: ours, Gymnasium's, SB3's.

    python scripts/measure/vector_overhead.py
    python scripts/measure/vector_overhead.py --num-envs 64 --env PandaPick-v0

All step the same environment with the same random actions. The program alone is what JAX needs for
the batch; what a step takes beyond it, NumPy's arrays and Gymnasium's dictionaries, is overhead.
Each takes its turn in every round, and the medians of all rounds are told, with half of their
interquartile range. Stable-Baselines3 is left out where the extra `sb3` is missing. The results
are in docs/performance.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

import fraxenv
from fraxenv.wrappers import StableBaselinesVecEnv

Step = Callable[[], Any]


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    env: str = "PandaReach-v0"
    """Id of the environment."""
    num_envs: int = 16
    """Environments side by side."""
    rounds: int = 30
    """Turns of each vector environment."""
    steps: int = 20
    """Steps of each turn."""


def program(options: Options, actions: np.ndarray) -> Step:
    """The batch's step as a program of JAX, from where the last one ended."""
    env, params = fraxenv.make(options.env)
    step = jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, None)))
    keys = jax.random.split(jax.random.key(0), options.num_envs)
    latest = [jax.jit(jax.vmap(env.reset, in_axes=(0, None)))(keys, params)[1]]

    def run() -> None:
        latest[0] = jax.block_until_ready(step(keys, latest[0], actions, params))[1]

    return run


def stepped(envs: Any, actions: np.ndarray) -> Step:
    """A step of a vector environment, Gymnasium's or Stable-Baselines3's."""
    envs.reset()
    return lambda: envs.step(actions)


def contenders(options: Options, actions: np.ndarray) -> dict[str, Step]:
    """What is measured, by name."""
    name, n = f"fraxenv/{options.env}", options.num_envs
    singles = [lambda: gym.make(name)] * n
    found = {
        "the program alone": program(options, actions),
        "gym.make_vec": stepped(gym.make_vec(name, num_envs=n), actions),
        "Gymnasium's SyncVectorEnv of gym.make": stepped(
            gym.vector.SyncVectorEnv(singles), actions
        ),
        "Gymnasium's AsyncVectorEnv of gym.make": stepped(
            gym.vector.AsyncVectorEnv(singles, context="spawn"), actions
        ),
    }
    try:
        from stable_baselines3.common.vec_env import DummyVecEnv
    except ImportError:
        print("Stable-Baselines3 is left out: the extra 'sb3' is not installed.")
        return found
    batch = gym.make_vec(name, num_envs=n, autoreset_mode="SameStep")
    return found | {
        "StableBaselinesVecEnv of gym.make_vec": stepped(StableBaselinesVecEnv(batch), actions),
        "SB3's DummyVecEnv of gym.make": stepped(DummyVecEnv(singles), actions),
    }


def main() -> int:
    """Run the command line; returns the exit status."""
    options = tyro.cli(Options)
    env, _ = fraxenv.make(options.env)
    drawn = np.random.default_rng(0).uniform(-1, 1, (options.num_envs, env.num_actions))
    found = contenders(options, drawn.astype(np.float32))
    seconds: dict[str, list[float]] = {name: [] for name in found}
    for step in found.values():
        step()  # compiles
    for _ in range(options.rounds):
        for name, step in found.items():
            began = time.perf_counter()
            for _ in range(options.steps):
                step()
            seconds[name].append((time.perf_counter() - began) / options.steps)
    table = Table("", "us per step", "us per environment", title=f"{options.num_envs} environments")
    for name, taken in seconds.items():
        low, middle, high = np.quantile(taken, [0.25, 0.5, 0.75]) * 1e6
        each = f"{middle / options.num_envs:.1f}"
        table.add_row(name, f"{middle:.0f} +-{(high - low) / 2:.0f}", each)
    Console(width=100).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
