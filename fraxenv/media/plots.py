"""Figures in one style: learning curves, rollouts, evaluations, benchmarks."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import import_extra
from ..storage.files import write_atomic

if TYPE_CHECKING:
    from ..envs import Environment, EnvParams, Measure
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
"""Colours of lines, in order; the first ones can be told apart by everybody, and in grey."""

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
"""Opacity of bands that show a spread."""

_MOST_LEGEND = 9

_SMALLEST_SHOWN = 5e-4
"""Smallest error that is drawn, as a part of its tolerance; what is below is rounding."""


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

_Curve = tuple[str, str, float, dict[str, Any]]
"""Metric, label, factor and options of a panel."""

_CURVES: tuple[_Curve, ...] = (
    ("return", "return of an episode", 1.0, {}),
    ("success", "success at the end, %", 100.0, {"ylim": (-3, 103)}),
)
"""Panels of all tasks."""


def plot_learning_curves(
    path: str | Path,
    groups: Mapping[str, Sequence[Sequence[Metrics]]],
    title: str,
    reported: Iterable[Measure],
) -> None:
    """Draw what policies could do over environment steps to a PNG; atomic.

    Args:
        path: the file.
        groups: name -> runs that differ in their seed alone, each the metrics of its rounds, as
            `fraxenv.training.read_metrics` returns them. Of several runs the median and the range
            are shown.
        title: of the picture.
        reported: the tasks' measures to show, where runs have them.
    """
    told = {metric for runs in groups.values() for run in runs for m in run for metric in m}
    curves = [*_CURVES, *(_curve(measure) for measure in reported if measure.name in told)]
    with picture(path, 3.5 * len(curves), 3.4) as figure:
        panels = figure.subplots(1, len(curves))
        for (metric, label, factor, options), axes in zip(curves, panels, strict=True):
            for (name, runs), colour in zip(groups.items(), _colours(len(groups)), strict=True):
                if not all(metric in m for run in runs for m in run):
                    continue  # of another task, or from before it was measured
                steps, values = _side_by_side(runs, metric)
                values = factor * values
                low, middle, high = np.quantile(values, (0, 0.5, 1), axis=0)
                marker = {"marker": "o", "markersize": 3} if len(steps) <= 60 else {}
                axes.plot(steps / 1e6, middle, color=colour, label=_run_label(name, runs), **marker)
                axes.fill_between(steps / 1e6, low, high, color=colour, alpha=BAND, linewidth=0)
            axes.set(xlabel="environment steps, millions", ylabel=label, **options)
            axes.set_xlim(left=0)
            if options.get("yscale") == "log":
                _plain_log(axes)
        if len(groups) > 1 or any(len(runs) > 1 for runs in groups.values()):
            handles = panels[0].get_legend_handles_labels()
            figure.legend(*handles, loc="outside lower center", ncols=2)
        figure.suptitle(title)


def _curve(measure: Measure) -> _Curve:
    options = {"yscale": "log"} if measure.below else {}  # errors are above zero
    return measure.name, f"final {measure.title('median')}", measure.factor, options


def _run_label(name: str, runs: Sequence[Any]) -> str:
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

    The task's errors with their tolerances and its other measures, the safety filter's barriers
    where it is on, torques as parts of their limits, and the weighted reward terms. Vertical lines
    are where episodes end.

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
    panels: list[Callable[..., None]] = []
    if any(measure.below for measure in env.reported):
        panels.append(_error_panel)
    if not all(measure.below for measure in env.reported):
        panels.append(_measure_panel)
    if np.isfinite(infos["safety"]["min_barrier"]).any():
        panels.append(_barrier_panel)
    panels += [_torque_panel, _reward_panel]
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
    """Measures that have a tolerance, each in a colour with its tolerance."""
    errors = [measure for measure in env.reported if measure.below]
    heights = []
    for colour, measure in zip(_colours(len(errors)), errors, strict=True):
        values = measure.factor * infos[measure.name]
        axes.plot(time, values, color=colour, label=measure.title())
        height = measure.factor * (measure.tolerance(params.task) or 0.0)
        heights.append(height)
        axes.axhline(height, color=colour, lw=0.9, ls="--")
        axes.annotate(
            "reached below", (1.0, height), color=colour, fontsize=8.5, ha="right",
            va="bottom", xycoords=axes.get_yaxis_transform(),
        )  # fmt: skip
    axes.set(ylabel="error", yscale="log")
    axes.set_ylim(bottom=max(_SMALLEST_SHOWN * min(heights), axes.get_ylim()[0]))
    _plain_log(axes)
    _legend(axes)


def _measure_panel(axes: Any, time: Any, infos: Any, env: Environment, params: EnvParams) -> None:
    """Measures without a tolerance."""
    others = [measure for measure in env.reported if not measure.below]
    for colour, measure in zip(_colours(len(others)), others, strict=True):
        values = measure.factor * infos[measure.name]
        axes.plot(time, values, color=colour, label=measure.title())
    axes.set(ylabel="measured")
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
    topology, driven = env.robot.topology, env.robot.topology.driven
    limits = np.broadcast_to(np.asarray(env.robot.effort_limits, float), env.robot.nv)[driven]
    bounded = bool(np.isfinite(limits).all())
    torques = infos["controller"]["torque"][:, driven] / (limits if bounded else 1.0)
    for i, values, colour in zip(driven, torques.T, _colours(len(driven)), strict=True):
        axes.plot(time, values, color=colour, linewidth=1.1, label=topology.dof_names[i])
    if bounded:
        axes.set(ylabel="torque, of its limit", ylim=(-1.05, 1.05))
    else:
        turns = all(topology.dof_rotates[driven])
        axes.set(ylabel="torque, N m" if turns else "torque, N m and N")
    _legend(axes)


def _reward_panel(axes: Any, time: Any, infos: Any, env: Environment, params: EnvParams) -> None:
    terms, weights = infos["reward_terms"], params.task.reward_weights
    for (name, values), colour in zip(terms.items(), _colours(len(terms)), strict=True):
        weight = float(np.asarray(weights.get(name, 1.0)))
        axes.plot(time, weight * values, color=colour, linewidth=1.3, label=name)
    axes.set(ylabel="reward, weighted")
    _legend(axes)


# --- evaluations ---


def plot_evaluation(
    path: str | Path,
    results: Mapping[str, Mapping[str, Any]],
    reported: Sequence[Measure],
    tolerances: Mapping[str, float],
) -> None:
    """Draw cumulative distributions of final measures over episodes to a PNG; atomic.

    Args:
        path: the file.
        results: name -> measure -> final values (n,), in the measure's unit.
        reported: the measures to show, at least one.
        tolerances: measure -> tolerance, in the measure's unit, where all results have the same.
    """
    with picture(path, 6.4 * len(reported), 4.0) as figure:
        panels = figure.subplots(1, len(reported), squeeze=False)[0]
        for measure, axes in zip(reported, panels, strict=True):
            _cumulative(axes, measure, results, tolerances.get(measure.name))


def _cumulative(
    axes: Any, measure: Measure, results: Mapping[str, Mapping[str, Any]], tolerance: float | None
) -> None:
    for (name, values), colour in zip(results.items(), _colours(len(results)), strict=True):
        if measure.name not in values:
            continue
        ordered = np.sort(measure.factor * np.asarray(values[measure.name], float))
        part = 100 * np.arange(1, len(ordered) + 1) / len(ordered)
        axes.step(ordered, part, where="post", color=colour, label=name)
    if tolerance is not None:
        at = measure.factor * tolerance
        axes.axvline(at, color="0.3", linewidth=1.0, linestyle="--")
        axes.annotate(
            " reached", (at, 0.02), xycoords=axes.get_xaxis_transform(),
            ha="right", rotation=90, va="bottom", color="0.3", fontsize=9,
        )  # fmt: skip
    axes.set(xlabel=f"final {measure.title()}", ylabel="episodes at or below, %", ylim=(-2, 102))
    if measure.below:
        axes.set(xscale="log")
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
    """Infos (T, ...) of the first environment, with a gap inserted before each of these steps."""
    if isinstance(infos, Mapping):
        return {name: _with_gaps(part, before) for name, part in infos.items()}
    own = np.asarray(infos)[:, 0]
    nothing = False if own.dtype.kind == "b" else np.nan
    own = own.astype(float) if own.dtype.kind in "iu" else own
    return np.insert(own, before, nothing, axis=0)
