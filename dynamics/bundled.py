"""Robots that ship with the package: `dynamics/robots/NAME.urdf` with its companion `NAME.toml`."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from .errors import unknown_name
from .robot import Robot
from .urdf import load_urdf


def list_robots() -> list[str]:
    """Names of the bundled robots."""
    files = resources.files(__package__).joinpath("robots").iterdir()
    return sorted(f.name.removesuffix(".urdf") for f in files if f.name.endswith(".urdf"))


@cache
def load_robot(name: str) -> Robot:
    """Load a bundled robot.

    Args:
        name: one of `list_robots()`.

    Raises:
        UnknownNameError: there is no such robot; names the closest ones.
    """
    if name not in list_robots():
        raise unknown_name("robot", name, list_robots())
    folder = resources.files(__package__).joinpath("robots")
    options: dict[str, Any] = tomllib.loads(folder.joinpath(f"{name}.toml").read_text("utf-8"))
    with resources.as_file(folder.joinpath(f"{name}.urdf")) as path:
        return load_urdf(path, **options)
