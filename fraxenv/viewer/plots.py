"""Plots of the last seconds before the snapshot that is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

SECONDS: Final = 6.0
"""How much of the past a plot shows."""

_FONT: Final = "11px sans-serif"

_COLORS: Final = (
    "#3b6fd4", "#e0812b", "#2f9e5b", "#cf3f3f", "#8a5cc7", "#8c5a43", "#d463b2", "#6b7280",
    "#a8a51f", "#1fa7b8",
)  # fmt: skip


class Plot:
    """Lines over time.

    Args:
        gui: of the viser server.
        title: of the plot, with the unit.
        names: of the lines.
        limits: the vertical axis; None to fit what there is.
    """

    def __init__(
        self,
        gui: Any,
        title: str,
        names: Sequence[str],
        limits: tuple[float, float] | None = None,
    ) -> None:
        self._names, self._limits = names, limits
        lines = [
            {"label": name, "stroke": _COLORS[i % len(_COLORS)], "width": 1.5}
            for i, name in enumerate(names)
        ]
        scales: dict[str, Any] = {"x": {"time": False}}
        if limits is not None:
            scales["y"] = {"range": limits}
        self._handle = gui.add_uplot(
            data=tuple(np.zeros(1) for _ in range(len(names) + 1)),
            series=({}, *lines),
            title=title,
            scales=scales,
            axes=(
                {
                    "size": 34,
                    "font": _FONT,
                    "label": "time, s",
                    "labelFont": _FONT,
                    "labelSize": 16,
                },
                {"size": 48, "font": _FONT},
            ),
            legend={"live": False},
            padding=(10, 24, 0, 0),  # above, so that no number is cut
            aspect=2.0,
        )

    def show(self, times: Sequence[float], rows: Sequence[Mapping[str, float]]) -> None:
        """Show rows of numbers by name at times, s; a name that is not in a row is a gap."""
        if not len(times):
            return
        table = np.array([[row.get(name, np.nan) for name in self._names] for row in rows], float)
        if self._limits is not None:
            table = np.clip(table, *self._limits)
        self._handle.data = (np.asarray(times, float), *np.ascontiguousarray(table.T))
