"""What a run leaves for people: a table, and its numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import import_extra
from ..storage.files import write_atomic
from .evaluation import Evaluation
from .rounds import Metrics

EVALUATION = "evaluation.json"


def summary(result: Evaluation) -> dict[str, float]:
    """The numbers that say how good a policy is; of NumPy arrays."""
    error = np.asarray(result.position_error, float)
    return {
        "episodes": len(error),
        "success_rate": float(np.mean(result.success)),
        "position_error_median": float(np.median(error)),
        "position_error_p95": float(np.quantile(error, 0.95)),
        "orientation_error_median": float(np.median(result.orientation_error)),
        "return_mean": float(np.mean(result.episode_return)),
        "diverged": int(np.sum(result.diverged)),
    }


def save_summary(path: str | Path, result: Evaluation, **about: Any) -> None:
    """Write `summary`, and what it is about, as JSON; atomic."""
    write_atomic(path, json.dumps({**about, **summary(result)}, indent=2).encode() + b"\n")


def table(
    result: Evaluation,
    metrics: Sequence[Metrics],
    wall_seconds: float,
    title: str,
    turns: bool = False,
) -> Any:
    """The summary of a run, as a rich table.

    Args:
        result: the final evaluation, of NumPy arrays.
        metrics: of all rounds.
        wall_seconds: from the start of the command to now.
        title: heads the table.
        turns: whether orientations count.
    """
    rich_table = import_extra("rich.table", "cli", "The report")
    train_seconds = metrics[-1]["train_seconds"] if metrics else 0.0
    steps = metrics[-1]["step"] if metrics else 0
    # The first round of a process compiles; the median is of those that only ran.
    speed = float(np.median([m["steps_per_second"] for m in metrics])) if metrics else 0.0
    numbers = summary(result)
    degrees = np.degrees(numbers["orientation_error_median"])
    turned = [("final turn, median", f"{degrees:.1f}°")] if turns else []
    rows = [
        ("success rate", f"{100 * numbers['success_rate']:.1f} %"),
        ("final distance, median", f"{1e3 * numbers['position_error_median']:.1f} mm"),
        ("final distance, 95th percentile", f"{1e3 * numbers['position_error_p95']:.1f} mm"),
        *turned,
        ("episodes evaluated", f"{numbers['episodes']}"),
        ("environment steps", f"{steps:,.0f}"),
        ("environment steps/s", f"{speed:,.0f}"),
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
