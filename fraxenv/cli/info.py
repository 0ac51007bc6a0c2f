"""`fraxenv info`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import import_extra
from ..making.make import OVERRIDES, make
from .common import console
from .subject import EnvArguments, recipe


@dataclass(frozen=True)
class Options(EnvArguments):
    """Say what an environment is: spaces in physical units, rates, rewards, all options."""


def run(options: Options) -> int:
    """Print tables; returns the exit status."""
    made = recipe(options)
    env, params = make(**made)
    out = console()
    out.print(f"[bold]{env.name}[/bold]: {_summary(type(params.task))}")
    out.print(_robot(env), markup=False, highlight=False)
    rates = (
        f"An action lasts {1e3 / env.policy_hz:g} ms ({env.policy_hz} Hz); the controller runs at "
        f"{env.control_hz} Hz, the physics at {env.physics_hz} Hz; an episode has "
        f"{int(np.asarray(params.max_steps_in_episode))} steps, "
        f"{int(np.asarray(params.max_steps_in_episode)) / env.policy_hz:g} s."
    )
    out.print(rates, highlight=False)
    tables = (_actions(env, params), _observations(env, params), _rewards(params))
    for table in (*tables, *([_measures(env, params)] if env.reported else [])):
        out.print(table)
    groups = [
        ("task_options", params.task),
        ("action_options", params.action),
        ("controller_options", params.controller),
        ("safety_options", params.safety),
        ("randomisation", params.randomisation),
    ]
    for key, value in groups:
        if value is not None:
            out.print(_options(key, value))
    out.print(_overrides(made))
    return 0


def _table(title: str, *columns: str, **kinds: str) -> Any:
    rich = import_extra("rich.table", "cli", "The command line")
    table = rich.Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in kinds.values() else "left")
    return table


def _robot(env: Any) -> str:
    robot = env.robot
    hands = ", ".join(robot.end_effectors) or "none"
    return f"Robot {robot.name}: {robot.nv} degrees of freedom, end effectors {hands}."


def _actions(env: Any, params: Any) -> Any:
    name = type(params.action).__name__
    table = _table(
        f"Action: {env.num_actions} numbers in [-1, 1], {name}", "", "name", "-1 means", "1 means",
        "unit", low="-1 means", high="1 means",
    )  # fmt: skip
    for i, axis in enumerate(params.action.axes(env.robot)):
        table.add_row(str(i), axis.name, f"{axis.low:g}", f"{axis.high:g}", axis.unit)
    return table


def _observations(env: Any, params: Any) -> Any:
    layout, units = env.observation_layout, params.task.observation_units
    total = sum(layout.values())
    table = _table(f"Observation: {total} numbers, clipped to [-10, 10]", "numbers", "term", "unit")
    start = 0
    for name, size in layout.items():
        numbers = str(start) if size == 1 else f"{start} ... {start + size - 1}"
        table.add_row(numbers, name, units.get(name, ""))
        start += size
    return table


def _measures(env: Any, params: Any) -> Any:
    table = _table("Measures", "name", "unit", "success below", below="success below")
    for measure in env.reported:
        tolerance = measure.tolerance(params.task)
        below = "" if tolerance is None else measure.text(tolerance)
        table.add_row(measure.name, measure.unit, below)
    return table


def _rewards(params: Any) -> Any:
    table = _table("Reward: the sum of", "term", "weight", weight="weight")
    for name, weight in params.task.reward_weights.items():
        table.add_row(name, f"{float(np.asarray(weight)):g}")
    return table


def _options(key: str, value: Any) -> Any:
    escape = import_extra("rich.markup", "cli", "The command line").escape
    table = _table(f"{key}, of {type(value).__name__}", "option", "default", "meaning")
    meanings = _meanings(type(value))
    for field in dataclasses.fields(value):
        shown = _shown(getattr(value, field.name)), meanings.get(field.name, "")
        table.add_row(field.name, *map(escape, shown))
    return table


def _overrides(made: dict[str, Any]) -> Any:
    escape = import_extra("rich.markup", "cli", "The command line").escape
    table = _table("Arguments of fraxenv.make, and of --set", "argument", "here", "meaning")
    for name, meaning in OVERRIDES.items():
        table.add_row(name, escape(_shown(made[name])) if name in made else "", meaning)
    return table


def _shown(value: Any) -> str:
    """A value as people write it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        fields = {name: x for name, x in fields.items() if not callable(x)}
        return "\n  ".join([type(value).__name__, *_lines(fields)])
    if isinstance(value, dict):
        return "\n".join(_lines(value))
    if isinstance(value, str | bool | None):
        return str(value)
    if isinstance(value, tuple | list):
        parts = [_shown(x) for x in value]
        return ("\n" if "\n" in "".join(parts) else ", ").join(parts) or "none"
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        return str(value)
    return f"{float(array):g}" if array.ndim == 0 else f"[{_shown(tuple(array.tolist()))}]"


def _lines(values: dict[str, Any]) -> list[str]:
    return [f"{name}: {_shown(value)}" for name, value in values.items()]


def _summary(kind: type) -> str:
    """The first line of a class's docstring."""
    return (kind.__doc__ or "").strip().splitlines()[0]


def _meanings(kind: type) -> dict[str, str]:
    """Descriptions of a dataclass's fields from its docstring, and from those of its bases."""
    parser = import_extra("docstring_parser", "cli", "The command line")
    found: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        if dataclasses.is_dataclass(cls):
            params = parser.parse(cls.__doc__ or "").params
            found |= {p.arg_name: " ".join((p.description or "").split()) for p in params}
    return found
