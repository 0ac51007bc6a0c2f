"""A contender's process: answers requests on standard input, one JSON object a line.

{"do": "prepare", "batch": 64}     make a case, call it for the first time
{"do": "measure", "seconds": 0.2}  time calls of it
{"do": "result"}                   what it computed, for the comparison
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .contenders import CONTENDERS, Case, UnavailableError
from .workloads import COMPARED, WORKLOADS

_GROUP = 2e-4
"""s; shorter calls are timed several at a time."""

_SLOW = 300.0
"""s; a first call that takes longer, with what it compiles, is not repeated."""

_SAMPLES = 200
"""Times in one answer."""


def serve(name: str, workload_name: str, threads: int) -> int:
    """Answer until standard input ends."""
    # Libraries print to standard output; answers have one of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**values: Any) -> None:
        print(json.dumps(values), file=answers, flush=True)

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    contender, workload = CONTENDERS[name], WORKLOADS[workload_name]
    try:
        prepare = contender.prepare()
    except Exception as error:
        answer(error=_reason(error))
        return 1
    base = _status("VmRSS")
    answer(ready=True)

    case, once = None, 0.0
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "prepare":
                case = None  # frees the one before
                _forget_peak()
                case = prepare(workload, request["batch"], threads)
                first = _timed(case.call)
                once = _timed(case.call) if first < _SLOW else first
                compiled = case.compile_seconds + max(0.0, first - once)
                peak = None if contender.one_each else _status("VmHWM")  # those have processes
                answer(
                    seconds=once,
                    evaluations=case.evaluations,
                    compile_seconds=compiled if case.compiles else None,
                    peak_bytes=None if peak is None or base is None else peak - base,
                    operations=case.operations(),
                    note=case.note,
                )
            elif request["do"] == "measure":
                answer(samples=_measure(_of(case), once, request["seconds"]))
            else:
                answer(rows=_rows(_of(case)), work=_work(_of(case)))
        except Exception as error:
            answer(error=_reason(error))
    return 0


def _of(case: Case | None) -> Case:
    if case is None:
        raise RuntimeError("nothing is prepared")
    return case


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    if isinstance(error, UnavailableError):
        return text
    if isinstance(error, ModuleNotFoundError):
        return f"not installed ({text})"
    return f"{type(error).__name__}: {text}"


def _timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _measure(case: Case, once: float, seconds: float) -> list[float]:
    """Seconds per call."""
    group = max(1, round(_GROUP / max(once, 1e-7)))
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while not samples or time.perf_counter() < end:
        began = time.perf_counter()
        for _ in range(group):
            case.call()
        samples.append((time.perf_counter() - began) / group)
    samples.sort()
    if len(samples) > _SAMPLES:
        chosen = np.linspace(0, len(samples) - 1, _SAMPLES).round().astype(int)
        samples = [samples[i] for i in chosen]
    return samples


def _rows(case: Case) -> list[list[float]] | None:
    if case.result is None:
        return None
    rows = np.asarray(case.result(), float)[:COMPARED]
    return rows.reshape(len(rows), -1).tolist()  # type: ignore[no-any-return]


def _work(case: Case) -> dict[str, float]:
    return case.work() if case.work else {}


def _status(key: str) -> int | None:
    """Bytes of this process' memory, as Linux knows them."""
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return None
    return next(1024 * int(line.split()[1]) for line in text.splitlines() if line.startswith(key))


def _forget_peak() -> None:
    """Make `VmHWM` the peak from now on."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return
