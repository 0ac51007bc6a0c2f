"""Figures in one style: learning curves, rollouts, evaluations, benchmarks."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import import_extra
from ..storage.files import write_atomic

if TYPE_CHECKING:
    from ..envs import Environment, EnvParams
    from ..recording import Recording

COLOURS = (
    "#1f6f8b",
    "#d95f02",
    "#3a7d44",
    "#7a5195",
    "#c0392b",
    "#8c6d31",
    "#4c9fc1",
    "#e377a2",
    "#7f8c8d",
)
"""Of lines, in order; the first ones can be told apart by everybody, and in grey."""

STYLE: Mapping[str, Any] = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "0.35",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.titlesize": 12,
    "xtick.color": "0.25",
    "ytick.color": "0.25",
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
}
"""matplotlib's settings."""

BAND = 0.18
"""Opacity of what shows a spread."""

_MOST_LEGEND = 9

_SMALLEST_SHOWN = 0.01
"""mm and degrees: errors below are rounding."""


@contextmanager
def picture(path: str | Path, width: float, height: float, dpi: int = 120) -> Iterator[Any]:
    """A matplotlib figure in this style, written to a PNG where the block ends; atomic.

    >>> with picture("figure.png", 6, 4) as figure:
    ...     figure.subplots().plot([0, 1], [0, 1])

    Args:
        path: the file.
        width: inches.
        height: inches.
        dpi: pixels per inch.
    """
    matplotlib = import_extra("matplotlib", "cli", "A picture")
    figures = import_extra("matplotlib.figure", "cli", "A picture")
    cycle = matplotlib.cycler(color=COLOURS)
    with matplotlib.rc_context({**STYLE, "axes.prop_cycle": cycle}):
        # Not pyplot, which opens windows and keeps figures.
        figure = figures.Figure(figsize=(width, height), dpi=dpi, layout="constrained")
        yield figure
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    write_atomic(path, buffer.getvalue())


# --- training ---

Metrics = Mapping[str, float]

_CURVES: tuple[tuple[str, str, float, dict[str, Any]], ...] = (
    ("return", "return of an episode", 1.0, {}),
    ("success", "success at the end, %", 100.0, {"ylim": (-3, 103)}),
    ("position_error", "final distance, median, mm", 1e3, {"yscale": "log"}),
)
"""Metric, label, factor and options of the panels."""


def plot_learning_curves(
    path: str | Path, groups: Mapping[str, Sequence[Sequence[Metrics]]], title: str
) -> None:
    """Draw what policies could do over environment steps to a PNG; atomic.

    Args:
        path: the file.
        groups: name -> runs that differ in their seed alone, each the metrics of its rounds, as
            `fraxenv.training.read_metrics` returns them. Of several runs the median and the range
            are shown.
        title: of the picture.
    """
    with picture(path, 10.5, 3.4) as figure:
        panels = figure.subplots(1, len(_CURVES))
        for (metric, label, factor, options), axes in zip(_CURVES, panels, strict=True):
            for (name, runs), colour in zip(groups.items(), _colours(len(groups)), strict=True):
                steps, values = _side_by_side(runs, metric)
                values = factor * values
                low, middle, high = np.quantile(values, (0, 0.5, 1), axis=0)
                marker = {"marker": "o", "markersize": 3} if len(steps) <= 60 else {}
                axes.plot(steps / 1e6, middle, color=colour, label=_counted(name, runs), **marker)
                axes.fill_between(steps / 1e6, low, high, color=colour, alpha=BAND, linewidth=0)
            axes.set(xlabel="environment steps, millions", ylabel=label, **options)
            axes.set_xlim(left=0)
            if options.get("yscale") == "log":
                _plain_log(axes)
        if len(groups) > 1 or any(len(runs) > 1 for runs in groups.values()):
            handles = panels[0].get_legend_handles_labels()
            figure.legend(*handles, loc="outside lower center", ncols=2)
        figure.suptitle(title)


def _counted(name: str, runs: Sequence[Any]) -> str:
    return name if len(runs) == 1 else f"{name}: median and range of {len(runs)} seeds"


def _side_by_side(
    runs: Sequence[Sequence[Metrics]], metric: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Steps (n,) that all runs have in common, and the metric (runs, n) at them."""
    by_step = [{m["step"]: m[metric] for m in run} for run in runs]
    steps = sorted(set.intersection(*(set(run) for run in by_step)))
    return np.array(steps, float), np.array([[run[s] for s in steps] for run in by_step], float)


# --- rollouts ---


def plot_rollout(
    path: str | Path, env: Environment, params: EnvParams, recording: Recording, title: str
) -> None:
    """Draw the first environment of a recording over time to a PNG; atomic.

    Errors of the hand, the safety filter's barriers where it is on, torques as parts of their
    limits, and the weighted reward terms. Vertical lines are where episodes end.

    Args:
        path: the file.
        env: what was recorded.
        params: its parameters.
        recording: with all `infos`.
        title: of the picture.
    """
    time = np.arange(1, recording.num_steps + 1) / env.policy_hz
    # A gap after each episode: what follows is the next one's.
    after = 1 + np.flatnonzero((recording.terminations | recording.truncations)[:-1, 0])
    ends = time[after - 1]
    time = np.insert(time, after, ends)
    infos = _with_gaps(recording.infos, after)
    panels = [_error_panel, _torque_panel, _reward_panel]
    if np.isfinite(infos["safety"]["min_barrier"]).any():
        panels.insert(1, _barrier_panel)
    with picture(path, 10.5, 1.0 + 2.1 * len(panels)) as figure:
        rows = figure.subplots(len(panels), 1, sharex=True)
        for axes, panel in zip(rows, panels, strict=True):
            panel(axes, time, infos, env, params)
            for end in ends:
                axes.axvline(end, color="0.7", linewidth=0.8, linestyle=":")
        rows[-1].set(xlabel="time, s", xlim=(0, time[-1]))
        figure.align_ylabels(rows)
        figure.suptitle(title)


def _error_panel(axes: Any, time: Any, infos: Any, env: Environment, params: EnvParams) -> None:
    from ..envs.tasks.hand_task import orientation_counts

    units = {"position": ("mm", 1e3)}
    if orientation_counts(params.task):
        units["orientation"] = ("degrees", 180 / np.pi)
    for colour, (name, (unit, scale)) in zip(COLOURS, units.items(), strict=False):
        axes.plot(time, scale * infos[f"{name}_error"], color=colour, label=f"{name}, {unit}")
        tolerance = getattr(params.task, f"{name}_tolerance", None)
        if tolerance is not None:
            height = scale * float(np.asarray(tolerance))
            axes.axhline(height, color=colour, lw=0.9, ls="--")
            axes.annotate(
                "reached below", (1.0, height), color=colour, fontsize=8.5, ha="right",
                va="bottom", xycoords=axes.get_yaxis_transform(),
            )  # fmt: skip
    axes.set(ylabel="error of the hand", yscale="log")
    axes.set_ylim(bottom=max(_SMALLEST_SHOWN, axes.get_ylim()[0]))
    _plain_log(axes)
    _legend(axes)


def _barrier_panel(axes: Any, time: Any, infos: Any, env: Environment, params: EnvParams) -> None:
    safety = infos["safety"]
    axes.plot(time, safety["min_barrier"], color=COLOURS[2], label="least value, unsafe below 0")
    axes.axhline(0, color="0.2", linewidth=0.9)
    axes.fill_between(
        time, 0, 1, where=safety["intervened"], transform=axes.get_xaxis_transform(),
        color=COLOURS[1], alpha=0.12, linewidth=0, step="pre", label="filter changes the torque",
    )  # fmt: skip
    axes.set(ylabel="barriers, m, rad, rad/s")
    _legend(axes)


def _torque_panel(axes: Any, time: Any, infos: Any, env: Environment, params: EnvParams) -> None:
    limits = np.broadcast_to(np.asarray(env.robot.effort_limits, float), env.robot.nv)
    bounded = bool(np.isfinite(limits).all())
    torques = infos["controller"]["torque"] / (limits if bounded else 1.0)
    for name, values, colour in zip(
        env.robot.topology.dof_names, torques.T, _colours(env.robot.nv), strict=True
    ):
        axes.plot(time, values, color=colour, linewidth=1.1, label=name)
    if bounded:
        axes.set(ylabel="torque, of its limit", ylim=(-1.05, 1.05))
    else:
        axes.set(
            ylabel="torque, N m" if all(env.robot.topology.dof_rotates) else "torque, N m and N"
        )
    _legend(axes)


def _reward_panel(axes: Any, time: Any, infos: Any, env: Environment, params: EnvParams) -> None:
    terms, weights = infos["reward_terms"], params.task.reward_weights
    for (name, values), colour in zip(terms.items(), _colours(len(terms)), strict=True):
        weight = float(np.asarray(weights.get(name, 1.0)))
        axes.plot(time, weight * values, color=colour, linewidth=1.3, label=name)
    axes.set(ylabel="reward, weighted")
    _legend(axes)


# --- evaluations ---


def plot_evaluation(path: str | Path, errors: Mapping[str, Any], tolerance: float | None) -> None:
    """Draw which part of episodes ended how near to the goal to a PNG; atomic.

    Args:
        path: the file.
        errors: name -> final distances (n,), m.
        tolerance: m, below which a goal is reached; None for none.
    """
    with picture(path, 6.4, 4.0) as figure:
        axes = figure.subplots()
        for (name, values), colour in zip(errors.items(), _colours(len(errors)), strict=True):
            ordered = np.sort(1e3 * np.asarray(values, float))
            part = 100 * np.arange(1, len(ordered) + 1) / len(ordered)
            axes.step(ordered, part, where="post", color=colour, label=name)
        if tolerance is not None:
            axes.axvline(1e3 * tolerance, color="0.3", linewidth=1.0, linestyle="--")
            axes.annotate(
                " reached", (1e3 * tolerance, 0.02), xycoords=axes.get_xaxis_transform(),
                ha="right", rotation=90, va="bottom", color="0.3", fontsize=9,
            )  # fmt: skip
        axes.set(
            xscale="log", xlabel="final distance, mm", ylabel="episodes at most as far, %",
            ylim=(-2, 102),
        )  # fmt: skip
        _plain_log(axes, "x")
        axes.legend(loc="upper left")


# --- benchmarks ---


def plot_throughput(
    path: str | Path,
    series: Mapping[str, tuple[Sequence[int], Sequence[float], Sequence[float], Sequence[float]]],
    title: str,
) -> None:
    """Draw environment steps per second over batch sizes to a PNG; atomic.

    Args:
        path: the file.
        series: executor -> batch sizes, and the median, least and largest rate at each.
        title: of the picture.
    """
    with picture(path, 6.4, 4.2) as figure:
        axes = figure.subplots()
        for (name, (batches, middle, low, high)), colour in zip(
            series.items(), _colours(len(series)), strict=True
        ):
            axes.plot(batches, middle, color=colour, marker="o", markersize=4, label=name)
            axes.fill_between(batches, low, high, color=colour, alpha=BAND, linewidth=0)
        axes.set(
            xscale="log", yscale="log", xlabel="environments in a batch",
            ylabel="environment steps per second", title=title,
        )  # fmt: skip
        ticks = sorted({b for batches, *_ in series.values() for b in batches})
        axes.set_xticks(ticks, [f"{t:,}" for t in ticks])
        _plain_log(axes)
        axes.minorticks_off()
        axes.legend(loc="best")


# --- parts ---


def _colours(n: int) -> list[Any]:
    """Colours of n lines: ours where they suffice, else a scale."""
    if n <= len(COLOURS):
        return list(COLOURS[:n])
    matplotlib = import_extra("matplotlib", "cli", "A picture")
    return list(matplotlib.colormaps["turbo"](np.linspace(0.05, 0.95, n)))


def _legend(axes: Any) -> None:
    """Beside the axes, where it covers nothing; of many lines in columns."""
    lines = len(axes.get_legend_handles_labels()[1])
    axes.legend(
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        ncols=1 + lines // (_MOST_LEGEND + 1),
        fontsize=8.5 if lines <= _MOST_LEGEND else 6.5,
        handlelength=1.4,
    )


def _plain_log(axes: Any, which: str = "y") -> None:
    """Powers of ten as people write them: 1,000, not 10^3."""
    ticker = import_extra("matplotlib.ticker", "cli", "A picture")
    axis = axes.yaxis if which == "y" else axes.xaxis
    axis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:,.0f}" if x >= 1 else f"{x:g}"))
    axis.set_minor_formatter(ticker.NullFormatter())


def _with_gaps(infos: Any, before: NDArray[np.intp]) -> Any:
    """What the first environment reported, (T, ...) each, with nothing before these steps."""
    if isinstance(infos, Mapping):
        return {name: _with_gaps(part, before) for name, part in infos.items()}
    own = np.asarray(infos)[:, 0]
    nothing = False if own.dtype.kind == "b" else np.nan
    own = own.astype(float) if own.dtype.kind in "iu" else own
    return np.insert(own, before, nothing, axis=0)
