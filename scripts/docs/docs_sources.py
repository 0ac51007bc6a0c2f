"""A hook of MkDocs: shows the sources to mkdocstrings as they are imported.

`dynamics/` is `fraxenv.dynamics` only once installed (see `[tool.setuptools.package-dir]`), which
tools that read files cannot follow in the checkout. They get a folder of links laid out alike.
"""

from __future__ import annotations

import tempfile
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority

ROOT = Path(__file__).parents[2]
FOLDER = tempfile.TemporaryDirectory(prefix="fraxenv-docs-")  # as long as MkDocs runs


@event_priority(100)  # before mkdocstrings reads its settings
def on_config(config: Any) -> Any:
    """Point mkdocstrings to the linked sources."""
    folder = Path(FOLDER.name)
    if not any(folder.iterdir()):  # `mkdocs serve` comes here again and again
        link_sources(folder)
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [FOLDER.name]
    return config


def link_sources(folder: Path) -> None:
    """Lay the packages out in a folder as they are imported."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    for package, source in sorted(settings["package-dir"].items()):
        target = folder.joinpath(*package.split("."))
        target.mkdir()
        for entry in (ROOT / source).iterdir():
            (target / entry.name).symlink_to(entry)
