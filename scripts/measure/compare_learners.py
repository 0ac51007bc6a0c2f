"""What PPO, SAC and SHAC have learned after the same time of training.

Trains by the presets until the time is over, or the preset's steps are, and evaluates the policy at
each of some times on episodes that it never saw. Neither that nor compiling counts as training; the
evaluations of the rounds do. The results are in docs/training/shac.md.

Time is CPU time divided by the number of cores: what a quiet machine would take if all cores were
busy. The wall time is told beside it.

    python scripts/measure/compare_learners.py --output runs/compare_learners
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from fraxenv.media.plots import picture
from fraxenv.storage.files import write_atomic
from fraxenv.training.algorithms import create_algorithm, init_state, policy_of
from fraxenv.training.compiler import compiled_round
from fraxenv.training.config import AlgorithmName, APGConfig, preset
from fraxenv.training.evaluation import FRESH_GOALS, evaluate
from fraxenv.training.rounds import make_env


@dataclass(frozen=True)
class Options:
    """Options of the comparison."""

    output: Path = Path("runs/compare_learners")
    """Folder for the results and the picture."""
    envs: tuple[str, ...] = ("PandaReach-v0", "PandaReachPose-v0", "PandaReachObstacles-v0")
    """Ids of environments."""
    algorithms: tuple[AlgorithmName, ...] = ("ppo", "sac", "shac")
    """Learners."""
    times: tuple[float, ...] = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0)
    """Seconds of training after which the policy is evaluated."""
    episodes: int = 500
    """Episodes of each evaluation."""
    seeds: int = 1
    """Trainings of each, with the seeds 0, 1, 2 and so on."""


def measure(env_id: str, name: AlgorithmName, options: Options) -> list[dict[str, Any]]:
    """Success of a learner's policies by time, seed after seed."""
    config = preset(env_id, name)
    # PPO and SAC go on where there is time left; the others' learning rate is zero by then.
    ends = config.rounds * config.round_timesteps if isinstance(config, APGConfig) else 0
    env, params = make_env(config)
    algorithm = create_algorithm(config, env, params)
    state = init_state(algorithm, 0)
    structure = jax.tree.structure(state)
    update = compiled_round(algorithm, name)
    jax.block_until_ready(update(state))  # compiles

    @jax.jit
    def success(weights: Any) -> jax.Array:
        policy = policy_of(config, algorithm, weights)
        key = jax.random.PRNGKey(FRESH_GOALS)
        return evaluate(env, params, policy, key, options.episodes).success.mean()

    success(state.actor_ts.params)  # compiles
    cores = len(os.sched_getaffinity(0))
    results = []
    for seed in range(options.seeds):
        state = jax.tree.unflatten(structure, jax.tree.leaves(init_state(algorithm, seed)))
        state = jax.block_until_ready(state)
        seconds, wall, reached, steps = 0.0, 0.0, {}, 0
        for at in options.times:
            while seconds < at and not (ends and steps >= ends):
                before = time.process_time(), time.perf_counter()
                state, _ = jax.block_until_ready(update(state))
                seconds += (time.process_time() - before[0]) / cores
                wall += time.perf_counter() - before[1]
                steps += config.round_timesteps
            reached[at] = float(success(state.actor_ts.params))
        row = {"env": env_id, "algorithm": name, "seed": seed, "success": reached}
        results.append(row | {"steps": steps, "seconds": seconds, "wall": wall})
        print(json.dumps(results[-1]), flush=True)
    return results


def main() -> int:
    """Run the command line; returns the exit status."""
    options = tyro.cli(Options)
    results = [r for e in options.envs for a in options.algorithms for r in measure(e, a, options)]
    table = Table("environment", "learner", *(f"{t:g} s" for t in options.times), "steps in all")
    with picture(options.output / "learners.png", 4.0 * len(options.envs), 3.2) as figure:
        panels = np.atleast_1d(figure.subplots(1, len(options.envs), sharey=True))
        for env, axes in zip(options.envs, panels, strict=True):
            for name in options.algorithms:
                rows = [r for r in results if (r["env"], r["algorithm"]) == (env, name)]
                values = 100 * np.array([[r["success"][t] for t in options.times] for r in rows])
                axes.plot(options.times, np.median(values, 0), marker="o", label=name.upper())
                axes.fill_between(options.times, values.min(0), values.max(0), alpha=0.2)
                cells = (" / ".join(f"{x:.1f}" for x in column) for column in values.T)
                table.add_row(env, name.upper(), *cells, f"{rows[0]['steps']:,}")
            axes.set(title=env, xlabel="seconds of training", xscale="log", ylim=(-3, 103))
            axes.set_xticks(options.times, [f"{t:g}" for t in options.times])
            axes.minorticks_off()
        panels[0].set_ylabel("success, %")
        panels[0].legend()
    Console(width=140).print(table)
    path = options.output / "results.json"
    write_atomic(path, json.dumps(results, indent=2).encode())
    print(f"Written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
