"""Descriptions of a task's measures: names, units, and their form for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fraxenv.errors import ConfigError, check_choice, unknown_name

SUCCESS = "success"
"""The measure that every task has: whether its goal is reached, () bool."""

CONVERSIONS: Mapping[tuple[str, str], float] = {
    ("m", "mm"): 1e3,
    ("m", "cm"): 1e2,
    ("m/s", "mm/s"): 1e3,
    ("rad", "deg"): 180 / np.pi,
    ("rad/s", "deg/s"): 180 / np.pi,
    ("s", "ms"): 1e3,
    ("1", "%"): 1e2,
}
"""(unit, shown unit) -> factor."""


@dataclass(frozen=True)
class Measure:
    """A number that a task measures in every step, and its form for people.

    >>> Measure("position_error", "m", shown="mm", label="distance", below="position_tolerance")

    Attributes:
        name: key of the number in the dict of `Task.measures`, and in files.
        unit: of the number; "" if none or unknown.
        shown: unit for people; `unit` if omitted.
        label: name for people; `name` without underscores if omitted.
        below: name of the task's field with the tolerance, in `unit`: success needs a number below
            it; "" if none.

    Raises:
        ConfigError: `unit` cannot be converted to `shown`.
    """

    name: str
    unit: str = ""
    shown: str = ""
    label: str = ""
    below: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or self.name.replace("_", " "))
        object.__setattr__(self, "shown", self.shown or self.unit)
        choices = (self.unit, *(to for unit, to in CONVERSIONS if unit == self.unit))
        check_choice(f"Measure({self.name!r}, {self.unit!r}): shown", self.shown, choices)

    @property
    def factor(self) -> float:
        """`shown` per `unit`."""
        return CONVERSIONS.get((self.unit, self.shown), 1.0)

    def title(self, statistic: str = "") -> str:
        """Label, statistic and unit, for an axis of a plot: "distance, median, mm"."""
        unit = self.shown.replace("deg", "degrees") if self.shown != "1" else ""
        return ", ".join(filter(None, (self.label, statistic, unit)))

    def text(self, value: Any) -> str:
        """A number in `unit` as text for people: "3.1 mm", "2.0°"."""
        x = self.factor * float(value)
        digits = f"{x:.1f}" if self.shown != self.unit else f"{x:.3g}"
        if self.shown in ("deg", "%"):
            return digits + {"deg": "°", "%": " %"}[self.shown]
        return digits if self.shown in ("", "1") else f"{digits} {self.shown}"

    def tolerance(self, task: Any) -> float | None:
        """The task's tolerance, in `unit`; None without one."""
        return float(np.asarray(getattr(task, self.below))) if self.below else None


def reported_measures(task: Any, measured: Mapping[str, Any]) -> tuple[Measure, ...]:
    """The task's descriptions, checked; of a task without, all its numbers, without units.

    Args:
        task: the task.
        measured: shapes and dtypes of its `measures`.

    Raises:
        ConfigError: `success` is missing, or a description is of something that is not a number.
        UnknownNameError: a described measure, or the field of its tolerance, does not exist.
    """
    kind = type(task).__name__
    success = measured.get(SUCCESS)
    if success is None or success.shape != () or success.dtype != bool:
        found = "none" if success is None else f"shape {success.shape}, {success.dtype}"
        raise ConfigError(
            f"{kind}.measures: {SUCCESS!r}, expected shape (), bool; found {found}. Return whether "
            "the goal is reached; jnp.zeros((), bool) where there is none."
        )
    numbers = [n for n, x in measured.items() if x.shape == () and x.dtype != bool]
    described = task.reported or tuple(map(Measure, numbers))
    for measure in described:
        if measure.name not in measured:
            raise unknown_name("measure", measure.name, measured, f"in {kind}.reported")
        if measure.name not in numbers:
            x = measured[measure.name]
            raise ConfigError(
                f"{kind}.reported: {measure.name!r} has shape {x.shape}, {x.dtype}, expected shape "
                "() and a number. Report its largest, for example, or leave its description out."
            )
        if measure.below and not hasattr(task, measure.below):
            fields = getattr(task, "__dataclass_fields__", ())
            where = f"of {kind}, the tolerance of the measure {measure.name!r}"
            raise unknown_name("field", measure.below, fields, where)
    return described


def told(measures: Iterable[Measure], values: Mapping[str, Any]) -> list[str]:
    """Texts of the measures that `values` has: "distance 3.1 mm"."""
    return [f"{m.label} {m.text(values[m.name])}" for m in measures if m.name in values]
