"""The main job: train, evaluate, report. `python -m fraxenv.training --help`."""

from __future__ import annotations

import dataclasses
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from ..errors import CheckpointError, FraxenvError, import_extra
from .config import TrainConfig, load_config, preset
from .ppo import (
    CHECKPOINT,
    CONFIG,
    METRICS,
    POLICY,
    Metrics,
    final_evaluation,
    read_metrics,
    train,
)
from .runs import load_policy

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


@dataclass(frozen=True)
class CommandLine(TrainConfig):
    """Train a policy, evaluate it on fresh goals, and leave everything in `RUNS/NAME/`.

    The options' defaults are the environment's preset.

    Attributes:
        name: name of the run; a new one after the environment if omitted.
        runs: folder of all runs.
        resume: continue the run `name`, or the latest of the environment.
        config: a YAML file in place of the environment's preset.
    """

    name: str | None = None
    runs: Path = Path("runs")
    resume: bool = False
    config: Path | None = None


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    try:
        return _main(sys.argv[1:] if argv is None else argv)
    except FraxenvError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _main(argv: list[str]) -> int:
    started = time.perf_counter()
    command, run = _parse(argv)
    names = [f.name for f in dataclasses.fields(TrainConfig)]
    config = TrainConfig(**{name: getattr(command, name) for name in names})
    jax = import_extra("jax", "train", "Training")
    device = jax.devices()[0]
    print(
        f"{config.env}: PPO, {config.rounds * config.round_timesteps:,} environment steps, "
        f"{config.num_envs} environments on {device.platform} ({device.device_kind}); into {run}/",
        flush=True,
    )
    with _Progress(config, read_metrics(run) if command.resume else []) as progress:
        complete = train(config, run, resume=command.resume, on_round=progress.show)
    if not complete:
        print(
            f"Interrupted. {run / CHECKPOINT} is usable. Continue with: "
            f"bash scripts/run.sh --resume --name {run.name} --runs {run.parent}"
        )
        return INTERRUPTED
    _report(config, run, started)
    return 0


def _parse(argv: list[str]) -> tuple[CommandLine, Path]:
    tyro = import_extra("tyro", "train", "The command line")
    # Twice: the environment, or the run to resume, decides the defaults of everything else.
    asked = [a for a in argv if a not in ("-h", "--help")]
    first, _ = tyro.cli(CommandLine, args=asked, return_unknown_args=True)
    run = _run_folder(first)
    if first.resume:
        default = load_config(run / CONFIG)
    elif first.config is not None:
        default = load_config(first.config)
    else:
        default = preset(first.env)
    values = {f.name: getattr(default, f.name) for f in dataclasses.fields(TrainConfig)}
    return tyro.cli(CommandLine, args=argv, default=CommandLine(**values)), run


def _run_folder(command: CommandLine) -> Path:
    if command.name is not None:
        return command.runs / command.name
    if not command.resume:
        return command.runs / f"{command.env}-{time.strftime('%Y%m%d-%H%M%S')}"
    runs = [p.parent for p in command.runs.glob(f"*/{CHECKPOINT}")]
    runs = [r for r in runs if load_config(r / CONFIG).env == command.env]
    if not runs:
        raise CheckpointError(
            f"{command.runs}/ holds no run of {command.env} to resume. Start one without "
            "--resume, or name its folder with --runs."
        )
    return max(runs, key=lambda r: (r / CHECKPOINT).stat().st_mtime)


class _Progress:
    """A progress bar on a terminal; a line per round elsewhere."""

    def __init__(self, config: TrainConfig, before: list[Metrics]) -> None:
        progress = import_extra("rich.progress", "train", "The progress bar")
        self._config = config
        self._bar = progress.Progress(
            progress.TextColumn("training"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.description}"),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
        )
        self._task = self._bar.add_task("compiling ...", total=config.rounds, completed=len(before))
        self._terminal = self._bar.console.is_terminal

    def __enter__(self) -> _Progress:
        if self._terminal:
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._terminal:
            self._bar.stop()

    def show(self, metrics: Metrics) -> None:
        """Show one more round."""
        text = (
            f"{metrics['steps_per_second']:,.0f} steps/s  return {metrics['return']:.1f}  "
            f"success {100 * metrics['success']:.0f} %  {1e3 * metrics['position_error']:.1f} mm"
        )
        if self._terminal:
            self._bar.update(self._task, completed=metrics["round"], description=text)
            return
        left = self._config.rounds - metrics["round"]
        seconds = left * self._config.round_timesteps / metrics["steps_per_second"]
        print(
            f"round {metrics['round']}/{self._config.rounds}  {text}  {seconds:.0f} s left",
            flush=True,
        )


def _report(config: TrainConfig, run: Path, started: float) -> None:
    from .report import CURVE, FILM, film, plot_learning_curve, table

    policy, env, params, _ = load_policy(run)
    metrics = read_metrics(run)
    print(f"Evaluating on {config.final_episodes} fresh goals ...", flush=True)
    result = final_evaluation(config, env, params, policy)
    plot_learning_curve(run / CURVE, metrics, f"{config.env}, PPO, seed {config.seed}")
    print("Filming the policy ...", flush=True)
    film(run / FILM, env, params, policy)
    console = import_extra("rich.console", "train", "The report").Console()
    console.print(table(result, metrics, time.perf_counter() - started, config.env))
    files = [CONFIG, POLICY, CHECKPOINT, METRICS, CURVE, FILM]
    print(f"Written to {run}/: {', '.join(files)}")


if __name__ == "__main__":
    sys.exit(main())
