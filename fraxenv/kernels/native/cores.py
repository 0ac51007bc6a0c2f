"""The cores of this machine, and threads on them in which LLVM compiles."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_STACK_BYTES = 64 * 2**20
"""Of a thread in which LLVM compiles: a main thread's may be larger than what others get."""

_starting = threading.Lock()


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def beside(fn: Callable[[], Any]) -> Future[Any]:
    """The result of a function that another thread computes, in which LLVM finds a large stack."""
    with _starting:
        others = threading.stack_size(_STACK_BYTES)
        try:
            return _threads().submit(fn)
        finally:
            threading.stack_size(others)


def at_once(fns: Sequence[Callable[[], T]]) -> list[T]:
    """The results of functions, of which other threads compute what they can.

    What none of them has begun when it is asked for is computed here, so that threads that ask do
    not wait for one another.
    """
    others = [beside(fn) for fn in fns[1:]]
    here = {0: fns[0]()}
    for k in reversed(range(1, len(fns))):  # the first ones are the first that others begin
        if others[k - 1].cancel():
            here[k] = fns[k]()
    return [here[k] if k in here else others[k - 1].result() for k in range(len(fns))]


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(available_cores(), "fraxenv-llvm")


if hasattr(os, "register_at_fork"):  # a process that was forked has none of them
    os.register_at_fork(after_in_child=_threads.cache_clear)
