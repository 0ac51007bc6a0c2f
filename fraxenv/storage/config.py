"""Configurations in YAML: presets that ship with fraxenv, and users' own files."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ..errors import ConfigError, unknown_name
from .files import write_atomic

ENVIRONMENTS, PEERS, ROBOTS, TRAINING = "environments", "peers", "robots", "training"
"""Folders of `fraxenv.configs`."""


def list_presets(kind: str) -> list[str]:
    """Names of the presets in a folder of `fraxenv.configs`."""
    folder = resources.files("fraxenv.configs").joinpath(kind)
    return sorted(
        f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")
    )


def describe_preset(kind: str, name: str) -> str:
    """The comment that a preset begins with."""
    text = resources.files("fraxenv.configs").joinpath(kind, f"{name}.yaml").read_text("utf-8")
    comment = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    return " ".join(line.lstrip("# ") for line in comment)


def apply_settings(values: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Values with a command line's settings applied: `control_hz=500`, `task_options.a=3`.

    Args:
        values: nested dicts; not changed.
        assignments: `KEY=VALUE`, dots in the key leading into dicts, the value YAML.

    Raises:
        ConfigError: one is not of this form.
    """
    result = _copied(values)
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        keys = path.split(".")
        if not equals or not all(keys):
            raise ConfigError(
                f"--set {assignment}, expected KEY=VALUE, such as control_hz=500 or "
                "action_options.position_scale=0.02."
            )
        inner = result
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
            if not isinstance(inner, dict):
                raise ConfigError(
                    f"--set {assignment}: {key} is {inner!r}, which has nothing below it."
                )
        inner[keys[-1]] = with_tuples(parse_yaml(text, f"--set {assignment}"))
    return result


def merge(values: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dicts merged key by key; values of `other` win."""
    result = _copied(values)
    for key, value in other.items():
        inner = result.get(key)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            value = merge(inner, value)
        result[key] = value
    return result


def read_yaml(source: str | Path, kind: str) -> tuple[dict[str, Any], str]:
    """The mapping in a YAML file, or in a preset of this kind; and its name for messages.

    Raises:
        ConfigError: the file cannot be read, or does not hold `key: value` lines.
        UnknownNameError: there is neither such a file nor such a preset.
    """
    path = Path(source)
    is_name = path.suffix not in (".yaml", ".yml") and len(path.parts) == 1
    names = list_presets(kind) if is_name else []
    # What we bundle is found whatever lies in the folder that one happens to be in.
    if str(source) in names or (is_name and not path.exists()):
        if str(source) not in names:
            raise unknown_name(f"preset of {kind}, or file,", str(source), names)
        file = resources.files("fraxenv.configs").joinpath(kind, f"{source}.yaml")
        text, where = file.read_text("utf-8"), file.name
    else:
        try:
            text, where = path.read_text("utf-8"), str(path)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            raise ConfigError(f"cannot read the configuration {str(path)!r}: {reason}.") from error
    values = parse_yaml(text, where)
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: expected `key: value` lines, found a {type(values).__name__}.")
    return values, where


def parse_yaml(text: str, where: str) -> Any:
    """The value of a text in YAML, of plain types alone.

    Raises:
        ConfigError: it is not YAML, or names other types.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except Exception as error:  # PyYAML's own, and a KeyError for `!!bool x`, among others
        raise ConfigError(f"{where}: not valid YAML: {error}") from error


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, for which 1e-3 is a number, as in YAML 1.2, and not a text.

    Aliases are refused: a few lines of them are as many values as one likes, or endless.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(
                None, None, "aliases (*name) are refused. Write the value out", mark
            )
        return super().compose_node(parent, index)


_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))


def write_yaml(path: str | Path, values: Mapping[str, Any]) -> None:
    """Write nested dicts of plain values; atomic."""
    write_atomic(path, yaml.safe_dump(_lists(values), sort_keys=False).encode())


def with_tuples(value: Any) -> Any:
    """The lists of JSON and YAML as tuples: options that are static have to be hashable."""
    if isinstance(value, Mapping):
        return {name: with_tuples(part) for name, part in value.items()}
    return tuple(map(with_tuples, value)) if isinstance(value, list | tuple) else value


def _lists(value: Any) -> Any:
    """Tuples as lists, which YAML has."""
    if isinstance(value, Mapping):
        return {k: _lists(v) for k, v in value.items()}
    return list(map(_lists, value)) if isinstance(value, list | tuple) else value


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copied(v) if isinstance(v, Mapping) else v for k, v in values.items()}


def check_kind(what: str, value: Any, default: Any) -> None:
    """Check that an option is of its default's kind: what its value may be is checked elsewhere.

    Raises:
        ConfigError: it is not, such as a text where a number has to be.
    """
    kinds: dict[str, tuple[bool, Callable[[Any], bool]]] = {
        "True or False": (isinstance(default, bool), lambda x: isinstance(x, bool)),
        "a name": (isinstance(default, str), lambda x: isinstance(x, str | tuple)),
        "a dict": (isinstance(default, dict), lambda x: isinstance(x, Mapping)),
        "a number, or several": (_numeric(default), _numeric),
    }
    for kind, (concerned, fits) in kinds.items():
        if concerned and not fits(value):
            shown = default if np.ndim(default) == 0 else np.asarray(default).tolist()
            raise ConfigError(f"{what}: {value!r}, expected {kind}, such as {shown!r}.")


def _numeric(value: Any) -> bool:
    if not hasattr(value, "dtype"):
        try:
            value = np.asarray(value)
        except ValueError:  # rows of different lengths
            return False
    return value.dtype.kind in "iuf"
