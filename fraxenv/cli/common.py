"""What commands have in common: parsing, and naming what was written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..errors import import_extra

FAILED, USAGE, INTERRUPTED = 1, 2, 130
"""Exit statuses, as shells have them."""

T = TypeVar("T")


def parse(options: type[T], command: str, argv: Sequence[str], default: T | None = None) -> T:
    """The options of a command line; exits with a message where it cannot be understood."""
    tyro = import_extra("tyro", "cli", "The command line")
    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalRequiredArgs)
    more = {} if default is None else {"default": default}
    parsed: T = tyro.cli(options, prog=f"fraxenv {command}", args=argv, config=config, **more)
    return parsed


def console() -> Any:
    """The console; as wide as it takes where nobody's terminal is."""
    rich = import_extra("rich.console", "cli", "The command line")
    made = rich.Console()
    return made if made.is_terminal else rich.Console(width=140)


def new_folder(runs: Path, name: str) -> Path:
    """Where a command that is not told otherwise leaves its files."""
    return runs / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def wrote(folder: Path, *files: str) -> None:
    """Name the files that were written."""
    print(f"Written to {folder}/: {', '.join(files)}")
