"""Let a policy learn by the environment's gradients: docs/stories/learn_by_gradient.md.

    python scripts/examples/learn_by_gradient.py
    python scripts/examples/learn_by_gradient.py --algorithms shac ppo
    python scripts/examples/learn_by_gradient.py --help

What `fraxenv train` does, with the presets of an environment, one algorithm after the other. Drawn
is what the policies could do after how many environment steps. A run that is in the folder already
is gone on with, or, if it is complete, drawn as it is. Needs the extra `train`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.progress import Progress

from fraxenv.media.plots import plot_learning_curves
from fraxenv.training import preset, read_metrics, train
from fraxenv.training.rounds import make_env


@dataclass(frozen=True)
class Options:
    """Train policies by gradient, and others beside."""

    env: str = "PandaReach-v0"
    """The environment."""
    algorithms: tuple[str, ...] = ("shac",)
    """Of shac, apg, ppo and sac."""
    total_timesteps: int | None = None
    """Environment steps of each; its preset's if omitted."""
    folder: Path = Path("runs")
    """Where the runs are left."""
    output: Path = Path("learn_by_gradient.png")
    """The picture."""


def main(options: Options) -> None:
    """Train, tell and draw."""
    console, groups = Console(), {}
    for algorithm in options.algorithms:
        config = preset(options.env, algorithm)
        if options.total_timesteps is not None:
            config = replace(config, total_timesteps=options.total_timesteps)
        run = options.folder / f"{options.env}-{algorithm}"
        with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task(f"training, {algorithm}", total=config.total_timesteps)

            def show(metrics: Any, bar: Progress = bar, task: Any = task) -> None:
                bar.update(task, completed=metrics["step"])

            train(config, run, resume=run.exists(), on_round=show)
        found = read_metrics(run)
        last = found[-1]
        success, error = 100 * last["success"], 1e3 * last["position_error"]
        print(
            f"{algorithm:5s} {last['step']:9,} steps, {last['train_seconds']:4.0f} s with "
            f"compiling, reaches {success:5.1f} %, median {error:6.1f} mm"
        )
        groups[algorithm.upper()] = [found]
    env, _ = make_env(config)
    plot_learning_curves(options.output, groups, options.env, env.reported)
    print(f"Wrote {options.output}.")


if __name__ == "__main__":
    main(tyro.cli(Options))
