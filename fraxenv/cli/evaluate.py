"""`fraxenv eval`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ..errors import ConfigError, check_count
from .common import INTERRUPTED, console, evaluate_with_bar, new_folder, wrote
from .subject import EnvArguments, SettingArguments, check_run, recipe

if TYPE_CHECKING:
    from ..envs import Measure
    from ..training import Evaluation, TrainConfig


@dataclass(frozen=True)
class Options:
    """Evaluate trained policies on fresh goals, and draw how they learned.

    Of several runs that differ in their seed alone, the median and the range are drawn.

    Attributes:
        runs: folders of training runs.
        episodes: of each policy; the run's own number if omitted.
        seed: decides the episodes; the default is what training runs are judged by.
        env_config: evaluate with these arguments of fraxenv.make: a YAML file, or a preset's name.
        set: evaluate with this override of fraxenv.make, such as
            `--set 'randomisation.payload=[0, 1]'`; may be repeated.
        output: folder of the results; the run's own if there is one run, else a new one in `runs/`.
        backend: `mujoco` lets MuJoCo move all, one environment after the other: does the policy
            depend on whose physics it is?
    """

    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint=""),
    ]
    episodes: int | None = None
    seed: int | None = None
    env_config: Annotated[str, tyro.conf.arg(metavar="FILE|PRESET", help_behavior_hint="")] = ""
    set: SettingArguments = ()
    output: Path | None = None
    backend: Literal["mujoco"] | None = None


def run(options: Options) -> int:
    """Evaluate, print, draw; returns the exit status."""
    from ..making.make import make
    from ..media.plots import plot_evaluation, plot_learning_curves
    from ..training import load_policy, read_metrics
    from ..training.evaluation import FRESH_GOALS
    from ..training.report import save_summary

    if not options.runs:
        raise ConfigError("no run, expected folders of training runs, such as runs/PandaReach-v0.")
    if options.episodes is not None:
        check_count("--episodes", options.episodes)
    for folder in options.runs:
        check_run(folder)
    output = options.output or (
        options.runs[0] if len(options.runs) == 1 else new_folder(Path("runs"), "eval")
    )
    seed = FRESH_GOALS if options.seed is None else options.seed
    results: dict[str, Evaluation] = {}
    curves: dict[str, list[Any]] = {}
    reported: dict[str, Measure] = {}
    tolerances: dict[str, set[float]] = {}
    files, whole = [], True
    arguments = EnvArguments("", options.env_config, options.set)
    for folder in options.runs:
        policy, _, _, config = load_policy(folder)
        made = recipe(arguments, {"id": config.env, **config.overrides})
        env, params = make(**made)
        if options.backend == "mujoco":
            from ..cross_check.physics import with_mujoco

            env, made = with_mujoco(env), {**made, "backend": "mujoco"}
        name = folder.resolve().name
        episodes = options.episodes or config.final_episodes
        result, whole = evaluate_with_bar(env, params, policy, episodes, seed, name)
        results[name] = result
        for measure in env.reported:
            reported[measure.name] = measure
            tolerance = measure.tolerance(params.task)
            if tolerance is not None:
                tolerances.setdefault(measure.name, set()).add(tolerance)
        curves.setdefault(_group(config), []).append(read_metrics(folder))
        file = "evaluation.json" if len(options.runs) == 1 else f"{name}.json"
        save_summary(output / file, result, run=str(folder), seed=seed, environment=made)
        files.append(file)
        if not whole:
            break
    shown = tuple(reported.values())
    if shown:
        measured = {name: result.measures for name, result in results.items()}
        same = {name: values.pop() for name, values in tolerances.items() if len(values) == 1}
        plot_evaluation(output / "evaluation.png", measured, shown, same)
        files.append("evaluation.png")
    curve = "learning_curve.png" if len(options.runs) == 1 else "learning_curves.png"
    plot_learning_curves(output / curve, curves, "Learning curves", shown)
    console().print(_table(results, shown))
    wrote(output, *files, curve)
    return 0 if whole else INTERRUPTED


def _group(config: TrainConfig) -> str:
    """Title of the runs that differ from this one in their seed alone."""
    changed = ", ".join(f"{k}={v}" for k, v in config.overrides.items())
    return f"{config.env}, {config.algorithm.upper()}" + (f", {changed}" if changed else "")


def _table(results: dict[str, Evaluation], reported: tuple[Measure, ...]) -> Any:
    """A row for each run."""
    from rich.table import Table

    from ..training.report import measure_rows, summary

    rows = []
    for name, result in results.items():
        numbers = summary(result)
        own = [measure for measure in reported if measure.name in result.measures]
        rows.append(
            {
                "run": name,
                "episodes": f"{numbers['episodes']:,}",
                "success": f"{100 * numbers['success_rate']:.1f} %",
                **dict(measure_rows(own, numbers)),
                "return": f"{numbers['return_mean']:.2f}",
            }
        )
    table = Table()
    columns = dict.fromkeys(column for row in rows for column in row)
    for column in columns:
        table.add_column(column, justify="left" if column == "run" else "right")
    for row in rows:
        table.add_row(*(row.get(column, "") for column in columns))
    return table
