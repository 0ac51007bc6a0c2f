"""What behaviour cloning learns from few demonstrations and from many.

Trains as `fraxenv train --algorithm bc` does, by as many steps of the optimiser each, and draws the
success on fresh goals by the number of demonstrations. The results are in docs/training/bc.md.

    python scripts/measure/clone_demonstrations.py
    python scripts/measure/clone_demonstrations.py --counts 10 100 1000 --seeds 3
"""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from fraxenv.media.plots import picture
from fraxenv.storage.files import write_atomic
from fraxenv.training import (
    TrainConfig,
    evaluate_in_parts,
    join_evaluations,
    load_policy,
    preset,
    train,
)
from fraxenv.training.rounds import CHECKPOINT


@dataclass(frozen=True)
class Options:
    """Options of the comparison."""

    output: Path = Path("runs/clone_demonstrations")
    """Folder of the trainings, the results and the picture."""
    env: str = "PandaPick-v0"
    """Id of an environment whose task has an expert."""
    counts: tuple[int, ...] = (10, 100, 1000, 100_000)
    """Numbers of demonstrations."""
    seeds: int = 1
    """Trainings of each, with the seeds 0, 1, 2 and so on."""
    total_timesteps: int = 10_240_000
    """Steps of demonstrations that each training learns from, most of them many times."""
    episodes: int = 1000
    """Episodes of each evaluation."""


def success(config: TrainConfig, folder: Path) -> float:
    """Success on fresh goals after a training, which is resumed if it was begun."""
    train(config, folder, resume=(folder / CHECKPOINT).exists())
    policy, env, params, _ = load_policy(folder)
    parts = evaluate_in_parts(env, params, policy, config.final_episodes)
    return float(np.mean(join_evaluations(list(parts)).success))


def main() -> int:
    """Run the command line; returns the exit status."""
    options = tyro.cli(Options)
    config = dataclasses.replace(
        preset(options.env, "bc"),
        total_timesteps=options.total_timesteps,
        final_episodes=options.episodes,
    )
    rows = []
    for count in options.counts:
        reached = []
        for seed in range(options.seeds):
            own = dataclasses.replace(config, demonstrations=count, seed=seed)
            reached.append(success(own, options.output / f"{count}-{seed}"))
        rows.append({"demonstrations": count, "success": reached})
        print(json.dumps(rows[-1]), flush=True)
    write_atomic(options.output / "results.json", json.dumps(rows, indent=2).encode())
    table = Table("demonstrations", f"success of {options.episodes} episodes")
    for row in rows:
        table.add_row(str(row["demonstrations"]), ", ".join(f"{x:.1%}" for x in row["success"]))
    Console().print(table)
    values = 100 * np.array([row["success"] for row in rows])
    with picture(options.output / "cloning.png", 4.8, 3.2) as figure:
        axes = figure.subplots()
        axes.plot(options.counts, np.median(values, 1), marker="o")
        axes.fill_between(options.counts, values.min(1), values.max(1), alpha=0.2)
        axes.set(title=options.env, xscale="log", ylim=(-3, 103))
        axes.set(xlabel="demonstrations of the expert", ylabel="success, %")
    print(f"Written to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
