"""The report of a cross-check: a table of errors, and a picture of the trajectories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import DTypeLike, NDArray

from fraxenv import dynamics
from fraxenv.dynamics import Robot

from ..errors import import_extra
from ..media.plots import COLOURS, picture
from .comparison import Errors, Trajectories
from .scenes import Check

_COLOURED = 8
_OTHERS = "#c4c4c4"


def error_table(
    errors: Mapping[str, Errors], tolerances: Mapping[str, Errors], left_out: Iterable[str]
) -> Any:
    """The worst relative error of each quantity against each oracle, as a rich table.

    Args:
        errors: oracle -> quantity -> error.
        tolerances: likewise.
        left_out: oracles that there are no errors of.
    """
    table = import_extra("rich.table", "cross-check", "The table").Table(
        title="Worst relative error", title_justify="left"
    )
    table.add_column("quantity")
    for name in errors:
        table.add_column(name, justify="right")
        table.add_column("allowed", justify="right", style="dim")
    for name in left_out:
        table.add_column(name, justify="right", style="dim")
    table.add_column("")
    for quantity in dict.fromkeys(q for by_quantity in errors.values() for q in by_quantity):
        cells, within = [], True
        for name, by_quantity in errors.items():
            if quantity not in by_quantity:
                cells += ["", ""]
                continue
            error, allowed = by_quantity[quantity], tolerances[name][quantity]
            within = within and error <= allowed
            cells += [f"{error:.1e}", f"{allowed:.0e}"]
        cells += ["left out" for _ in left_out]
        verdict = "[green]pass[/green]" if within else "[bold red]FAIL[/bold red]"
        table.add_row(quantity, *cells, verdict)
    return table


def check_table(checks: Iterable[Check]) -> Any:
    """The worst error of each quantity of a scene against MuJoCo, as a rich table."""
    table = import_extra("rich.table", "cross-check", "The table").Table(
        title="Worst error against MuJoCo", title_justify="left"
    )
    table.add_column("quantity")
    table.add_column("error", justify="right")
    table.add_column("allowed", justify="right", style="dim")
    table.add_column("")
    for check in checks:
        count = isinstance(check.error, int)
        error = f"{check.error}" if count else f"{check.error:.1e}"
        if check.allowed is None:
            table.add_row(check.quantity, error, "", "reported")
            continue
        allowed = f"{check.allowed}" if count else f"{check.allowed:.0e}"
        verdict = "[green]pass[/green]" if check.within else "[bold red]FAIL[/bold red]"
        table.add_row(check.quantity, error, allowed, verdict)
    return table


def plot_trajectories(
    path: str | Path,
    robot: Robot,
    moved: Trajectories,
    allowed: float | None,
    dtype: DTypeLike,
    until: float | None = None,
) -> None:
    """Draw both trajectories, and their difference on a logarithmic scale, to a PNG; atomic.

    The degrees of freedom that differ most are in colour.

    Args:
        path: the file.
        robot: the model.
        moved: the trajectories.
        allowed: the difference that is allowed, rad and m; None if it is only reported.
        dtype: what we computed in, for the title.
        until: s, the end of what is compared, if there is more.
    """
    topology = robot.topology
    ours, theirs = (_displacements(robot, q) for q in (moved.ours, moved.theirs))
    difference = np.abs(moved.difference)
    worst = moved.error if until is None else difference[moved.time <= until].max(initial=0)
    size = np.nan_to_num(difference, nan=np.inf).max(axis=0)
    coloured = sorted(np.argsort(-size, kind="stable")[:_COLOURED].tolist())
    styles = {i: {"color": _OTHERS, "zorder": 1} for i in range(robot.nv)}
    styles |= {
        i: {"color": colour, "zorder": 2, "label": topology.dof_names[i]}
        for i, colour in zip(coloured, COLOURS, strict=False)
    }

    kinds = [("angle, rad", topology.dof_rotates), ("displacement, m", ~topology.dof_rotates)]
    kinds = [(label, chosen) for label, chosen in kinds if chosen.any()]
    with picture(path, 10, 2.6 * (len(kinds) + 1)) as figure:
        panels = figure.subplots(len(kinds) + 1, 1, sharex=True)
        for axes, (label, chosen) in zip(panels, kinds, strict=False):
            for i in np.flatnonzero(chosen).tolist():
                style = {"color": styles[i]["color"], "zorder": styles[i]["zorder"]}
                axes.plot(moved.time, ours[:, i], linewidth=3.2, alpha=0.4, **style)
                axes.plot(moved.time, theirs[:, i], linewidth=0.9, linestyle=(0, (6, 3)), **style)
            axes.set_ylabel(f"{label},\nsince the start")
        line = import_extra("matplotlib.lines", "cross-check", "The picture").Line2D
        panels[0].legend(
            [
                line([], [], color="#444444", linewidth=3.2, alpha=0.4),
                line([], [], color="#444444", linewidth=0.9, linestyle=(0, (6, 3))),
            ],
            [f"fraxenv, {np.dtype(dtype)}", "MuJoCo"],
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            ncols=2,
            fontsize=9,
        )

        last = panels[-1]
        for i in range(robot.nv):
            visible = np.where(difference[:, i] > 0, difference[:, i], np.nan)
            last.plot(moved.time, visible, linewidth=1.1, **styles[i])
        if allowed is not None:
            last.axhline(allowed, color="#b00020", linewidth=1.2, linestyle="--")
            last.annotate(
                f"allowed, {allowed:.0e}",
                (0.005, allowed),
                xycoords=last.get_yaxis_transform(),
                xytext=(0, -3),
                textcoords="offset points",
                va="top",
                color="#b00020",
                fontsize=9,
            )
        if until is not None:
            last.axvline(until, color="#444444", linewidth=1.0, linestyle=":")
            last.annotate(
                "from here on MuJoCo parts from its own twin",
                (until, 0.02),
                xycoords=last.get_xaxis_transform(),
                xytext=(4, 0),
                textcoords="offset points",
                color="#444444",
                fontsize=9,
            )
        last.set(yscale="log", xlabel="time, s", ylabel="difference, rad and m")
        for axes in panels:
            axes.set_xlim(0, moved.time[-1])
        hidden = robot.nv - len(coloured)
        figure.legend(
            *last.get_legend_handles_labels(),
            loc="outside right center",
            fontsize=9,
            title="largest difference" if hidden else None,
            alignment="left",
        )
        figure.suptitle(
            f"{robot.name}: the same torques here and in MuJoCo, "
            f"at most {worst:.1e} rad or m apart" + (f" until {until:g} s" if until else ""),
            fontsize=11,
        )


def _displacements(robot: Robot, q: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """(n, nv), how far each degree of freedom is from where it began, for configurations (n, nq).

    A free rotation is a rotation vector, of at most half a turn: where it jumps, nothing is drawn.
    """
    start = np.asarray(robot.q_default)
    moved = np.array(jax.jit(jax.vmap(lambda x: dynamics.difference(robot, start, x)))(q))
    jumps = np.abs(np.diff(moved, axis=0)) > np.pi / 2
    moved[1:][jumps] = np.nan
    return moved
