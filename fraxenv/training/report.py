"""The summary of a run: its numbers, and a table of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..envs import Measure
from ..errors import import_extra
from ..storage.files import write_atomic
from .config import TrainConfig
from .evaluation import Evaluation
from .rounds import Metrics

EVALUATION = "evaluation.json"


def summary(result: Evaluation) -> dict[str, float]:
    """Success rate, mean return, and median and 95th percentile of measures; of NumPy arrays."""
    measures = {}
    for name, values in result.measures.items():
        measures[f"{name}_median"] = float(np.median(values))
        with np.errstate(invalid="ignore"):  # between infinite ones there is no number
            measures[f"{name}_p95"] = float(np.quantile(values, 0.95))
    return {
        "episodes": len(result.success),
        "success_rate": float(np.mean(result.success)),
        **measures,
        "return_mean": float(np.mean(result.episode_return)),
        "diverged": int(np.sum(result.diverged)),
    }


def measure_rows(
    reported: Iterable[Measure], numbers: Mapping[str, float]
) -> list[tuple[str, str]]:
    """Title and text of the measures in a `summary`: medians, and the tails of errors."""
    rows = []
    for measure in reported:
        median, p95 = (numbers[f"{measure.name}_{part}"] for part in ("median", "p95"))
        rows.append((f"{measure.label}, median", measure.text(median)))
        if measure.below:  # the smaller the better, so that the tail is of the worst episodes
            rows.append((f"{measure.label}, 95th percentile", measure.text(p95)))
    return rows


def save_summary(path: str | Path, result: Evaluation, **about: Any) -> None:
    """Write `summary`, and what it is about, as JSON, null for what is not finite; atomic."""
    numbers = {k: x if np.isfinite(x) else None for k, x in summary(result).items()}
    write_atomic(path, json.dumps({**about, **numbers}, indent=2).encode() + b"\n")


def table(
    result: Evaluation,
    metrics: Sequence[Metrics],
    wall_seconds: float,
    title: str,
    reported: Iterable[Measure],
    counted: str = TrainConfig.counted,
) -> Any:
    """The summary of a run, as a rich table.

    Args:
        result: the final evaluation, of NumPy arrays.
        metrics: of all rounds.
        wall_seconds: from the start of the command to now.
        title: heads the table.
        reported: the task's measures to show.
        counted: what a step is of.
    """
    rich_table = import_extra("rich.table", "cli", "The report")
    train_seconds = metrics[-1]["train_seconds"] if metrics else 0.0
    steps = metrics[-1]["step"] if metrics else 0
    # The first round of a process compiles; the median is of those that only ran.
    speed = float(np.median([m["steps_per_second"] for m in metrics])) if metrics else 0.0
    numbers = summary(result)
    rows = [
        ("success rate", f"{100 * numbers['success_rate']:.1f} %"),
        *((f"final {title}", text) for title, text in measure_rows(reported, numbers)),
        ("episodes evaluated", f"{numbers['episodes']}"),
        (counted, f"{steps:,.0f}"),
        (f"{counted}/s", f"{speed:,.0f}"),
        ("training time", _duration(train_seconds)),
        ("wall time of this command", _duration(wall_seconds)),
    ]
    result_table = rich_table.Table(title=title, show_header=False)
    result_table.add_column(justify="left")
    result_table.add_column(justify="right")
    for row in rows:
        result_table.add_row(*row)
    return result_table


def _duration(seconds: float) -> str:
    return f"{int(seconds // 60)} min {seconds % 60:02.0f} s"
