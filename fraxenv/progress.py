"""The progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .errors import import_extra


def on_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


@contextmanager
def progress(
    title: str, total: int, done: int = 0, *, extra: str = "cli", show: bool = True
) -> Iterator[Callable[..., None]]:
    """A progress bar that is told how much is done and, if it wants to say more, a text.

    Elsewhere than on a terminal each text is a line, or the end alone where there are none.

    Args:
        title: what goes on.
        total: how much there is to do.
        done: how much of it is done already.
        extra: the extra of fraxenv that installs what the bar needs.
        show: whether there is one at all.

    Raises:
        MissingExtraError: the extra is not installed.
    """
    if not show:
        yield lambda done, text="": None
        return
    rich = import_extra("rich.progress", extra, "The progress bar")
    if not on_terminal():
        print(f"{title} ...", flush=True)

        said = ""

        def say(done: int, text: str = "") -> None:
            nonlocal said
            said = text or said
            if text:
                print(f"{title} {done}/{total}  {text}", flush=True)
            elif done == total and not said:
                print(f"{title} {total}/{total}", flush=True)

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
