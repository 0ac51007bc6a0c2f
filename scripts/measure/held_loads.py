"""What it is worth that the controller knows what the hand holds: experts with and without.

The distance is that of the object from its goal at the end, where the expert holds it. The results
are in docs/controllers.md.

    python scripts/measure/held_loads.py
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

import fraxenv
from fraxenv.recording.scripted import scripted_policy

ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "Pick, 64 g": ("PandaPick-v0", {}),
    "Pick, 1 kg": ("PandaPick-v0", {"mass": 1.0}),
    "Insert, 3 mm": ("PandaInsert-v0", {}),
    "Insert, 0.5 mm": ("PandaInsert-v0", {"clearance": 0.0005}),
    "Insert, 0.1 mm": ("PandaInsert-v0", {"clearance": 0.0001}),
}


@dataclass(frozen=True)
class Options:
    """Options of the rollouts."""

    episodes: int = 1000
    """Of each row."""
    steps: int = 150
    """Policy steps of an episode."""
    seed: int = 7
    """Of the scenes."""


def roll(made: Any, options: Options) -> tuple[dict[str, Any], float]:
    """`info` of the last step of the expert's episodes, and CPU time of a step, us."""
    env, params = made
    act = scripted_policy(env, params)

    @jax.jit
    @jax.vmap
    def step(key: Any, obs: Any, state: Any) -> Any:
        obs, state, _, _, info = env.step_env(key, state, act(obs, key), params)
        return obs, state, info

    keys = jax.random.split(jax.random.key(options.seed), options.episodes)
    obs, state = jax.vmap(lambda key: env.reset(key, params))(keys)
    jax.block_until_ready(step(keys, obs, state))
    began = time.process_time()
    for _ in range(options.steps):
        obs, state, info = step(keys, obs, state)
    jax.block_until_ready(obs)
    taken = time.process_time() - began
    return info, 1e6 * taken / (options.steps * options.episodes)


def main(options: Options) -> None:
    """Print the table."""
    table = Table(title=f"Experts, {options.episodes} episodes of {options.steps} steps")
    for heading in ("", "payload", "success", "distance, mm", "90 %", "CPU us/step"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, (id, scene) in ROWS.items():
        for payload in (None, "held"):
            made = fraxenv.make(id, payload=payload, scene_options=scene)
            info, cost = roll(made, options)
            away = 1e3 * np.asarray(info["object_distance"])[np.asarray(info["grasped"])]
            middle, most = np.quantile(away, [0.5, 0.9])
            success = int(np.sum(np.asarray(info["success"])))
            texts = f"{success}", f"{middle:.3f}", f"{most:.3f}", f"{cost:.1f}"
            table.add_row(name, str(payload), *texts)
    Console(width=100).print(table)


if __name__ == "__main__":
    main(tyro.cli(Options))
