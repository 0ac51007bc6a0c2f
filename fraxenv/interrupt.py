"""Ctrl-C that ends long work where its result is whole."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible(message: str) -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a question that the work asks itself where it may stop.

    The second one raises `KeyboardInterrupt`. Outside the main thread, which alone is sent Ctrl-C,
    the answer is always no.

    Args:
        message: printed at the first Ctrl-C: when the work will stop.
    """
    asked = False

    def handler(signum: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        print(f"\n{message}; Ctrl-C again stops at once.", flush=True)

    try:
        before = signal.signal(signal.SIGINT, handler)
    except ValueError:
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
