"""What commands have in common: parsing, progress, and naming what was written."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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


def on_terminal() -> bool:
    """Whether somebody watches."""
    return sys.stdout.isatty()


@contextmanager
def progress(title: str, total: int, done: int = 0) -> Iterator[Callable[..., None]]:
    """A progress bar that is told how much is done and, if it wants to say more, a text.

    Elsewhere than on a terminal each text is a line.
    """
    rich = import_extra("rich.progress", "cli", "The progress bar")
    if not on_terminal():
        print(f"{title} ...", flush=True)

        def say(done: int, text: str = "") -> None:
            if text:
                print(f"{title} {done}/{total}  {text}", flush=True)

        yield say
        return
    columns = (
        rich.TextColumn(title),
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TextColumn("{task.description}"),
        rich.TimeElapsedColumn(),
        rich.TextColumn("left"),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns) as bar:
        task = bar.add_task("", total=total, completed=done)
        yield lambda done, text="": bar.update(task, completed=done, description=text)


def new_folder(runs: Path, name: str) -> Path:
    """Where a command that is not told otherwise leaves its files."""
    return runs / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def wrote(folder: Path, *files: str) -> None:
    """Name the files that were written."""
    print(f"Written to {folder}/: {', '.join(files)}")
