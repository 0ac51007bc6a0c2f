"""Modules whose names are imported when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    module: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module.

    Args:
        module: its `__name__`.
        homes: name -> the module that has it, from the package: `recording`, or `storage.state`;
            one that ends in a dot, `recording.`, is itself what has the name.
    """

    def getattribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home = importlib.import_module(f"{module}.{homes[name].removesuffix('.')}")
        value = home if homes[name].endswith(".") else getattr(home, name)
        setattr(sys.modules[module], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *homes})

    return getattribute, names
