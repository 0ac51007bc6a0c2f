"""One workload with all contenders: each in its process, all in turn."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .contenders import CONTENDERS, Contender
from .records import HEADLINE, LeftOut, Measurement
from .workloads import COMPARED, Workload

SCRIPT = Path(__file__).parents[1] / "benchmark.py"

PATIENCE = 900.0
"""s, for one answer of a contender."""

TOO_SLOW = 10.0
"""s; batches are left out of which one call would take longer."""

MEMORY_SHARE = 8
"""Batches are left out for which a contender would take more than one of so many parts of all."""

SLOW_COMPILER = 30.0
"""s; what compiles longer, for every batch size, does it for the smallest and `HEADLINE` only."""


class WorkerError(Exception):
    """A contender's process failed; the message says how."""


class Worker:
    """A contender's process, from here. It is ready when `ready` returns.

    Args:
        contender: which.
        workload: what it will compute.
        threads: that it may use.
        gpu: whether JAX may use a GPU.
    """

    def __init__(self, contender: Contender, workload: Workload, threads: int, gpu: bool) -> None:
        self.contender = contender
        self.prepared: list[tuple[int, dict[str, Any]]] = []
        environment = {
            k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_ENABLE_X64")
        }
        environment |= {
            "FRAXENV_CACHE": "0",  # compile times are those of a first run
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "PYTHONWARNINGS": "ignore",
        }
        if not gpu or contender.device == "cpu":
            environment["JAX_PLATFORMS"] = "cpu"
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by `stop`)
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), "--only", contender.name, workload.name, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment | contender.environment,
            start_new_session=True,  # so that `stop` reaches its own processes
        )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def ready(self) -> dict[str, Any]:
        """Wait for the answer to the last request, or for the process to be ready for the first.

        Raises:
            WorkerError: it answers with an error, too late, or not at all.
        """
        try:
            line = self._answers.get(timeout=PATIENCE)
        except queue.Empty:
            raise WorkerError(f"no answer within {PATIENCE:.0f} s") from None
        if not line:
            status = self._process.wait()
            if status < 0:
                raise WorkerError(f"killed by signal {-status}")
            self._log.seek(0)
            said = self._log.read().strip().splitlines()[-1:] or [""]
            raise WorkerError(f"ended with status {status}: {said[0][:200]}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer  # type: ignore[no-any-return]

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request; raises as `ready` does."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # if it has ended, `ready` says how
            print(json.dumps(request), file=self._process.stdin, flush=True)
        return self.ready()

    def stop(self) -> None:
        """End the process, and those that it started."""
        if self._process.returncode is None:
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
            self._process.wait()
        self._log.close()


@dataclass
class Run:
    """One workload with some contenders.

    Attributes:
        workload: what to compute.
        contenders: who takes part.
        batches: batch sizes, increasing.
        threads: of each contender.
        gpu: whether JAX may use a GPU.
        repeats: rounds in which they take turns.
        seconds: of each turn.
        advance: called after each of `steps`.
        measurements: what came out.
        left_out: what did not.
    """

    workload: Workload
    contenders: Sequence[Contender]
    batches: Sequence[int]
    threads: int
    gpu: bool
    repeats: int
    seconds: float
    advance: Callable[[], None]
    measurements: list[Measurement]
    left_out: list[LeftOut]

    def run(self) -> None:
        """Measure."""
        workers: dict[str, Worker] = {}
        try:
            for contender in self.contenders:
                if contender.device == "gpu" and not self.gpu:
                    self._leave_out(contender, None, "needs a GPU")
                    continue
                workers[contender.name] = self._start(contender)
            for name, worker in list(workers.items()):
                try:
                    worker.ready()
                except WorkerError as error:
                    self._drop(workers, name, None, error)
            reference = self._reference()
            for batch in self.batches:
                self._batch(workers, batch, reference)
        finally:
            for worker in workers.values():
                worker.stop()

    def _start(self, contender: Contender) -> Worker:
        return Worker(contender, self.workload, self.threads, self.gpu)

    def _reference(self) -> np.ndarray | None:
        """What the first rows of every batch should be; None if there is nothing to compare."""
        if self.workload.quantity in ("gymnasium", "memory", "gradient_rollout", "pick"):
            return None
        # The random numbers of environments are others in float64.
        exact = {"environment": "vmap", "contact": "mujoco-exact"}
        worker = self._start(CONTENDERS[exact.get(self.workload.quantity, "reference")])
        try:
            worker.ready()
            worker.ask(do="prepare", batch=COMPARED)
            return np.array(worker.ask(do="result")["rows"])
        except WorkerError as error:
            self._leave_out(worker.contender, None, f"nothing to compare with: {error}")
            return None
        finally:
            worker.stop()

    def _batch(self, workers: dict[str, Worker], batch: int, reference: np.ndarray | None) -> None:
        taking_part: dict[str, dict[str, Any]] = {}
        for name, worker in list(workers.items()):
            if worker.contender.one_each and batch not in (1, self.threads):
                continue
            reason = _too_much(worker, batch)
            if reason:
                self._leave_out(worker.contender, batch, reason)
                continue
            try:
                taking_part[name] = worker.ask(do="prepare", batch=batch)
                worker.prepared.append((batch, taking_part[name]))
            except WorkerError as error:
                self._drop(workers, name, batch, error)
            self.advance()
        samples: dict[str, list[float]] = {name: [] for name in taking_part}
        for _ in range(self.repeats):
            for name in list(taking_part):
                try:
                    answer = workers[name].ask(do="measure", seconds=self.seconds)
                    samples[name] += answer["samples"]
                except WorkerError as error:
                    del taking_part[name]
                    self._drop(workers, name, batch, error)
                self.advance()
        for name, prepared in taking_part.items():
            try:
                result = workers[name].ask(do="result")
            except WorkerError as error:
                self._drop(workers, name, batch, error)
                continue
            rows = result["rows"]
            error = None if reference is None or rows is None else _difference(rows, reference)
            self.measurements.append(
                self._measurement(name, batch, prepared, samples[name], error, result["work"])
            )

    def _measurement(
        self,
        name: str,
        batch: int,
        prepared: dict[str, Any],
        samples: list[float],
        error: float | None,
        work: dict[str, float],
    ) -> Measurement:
        seconds = np.quantile(samples, [0.5, 0.75, 0.25])
        median, low, high = (prepared["evaluations"] / seconds).tolist()
        operations = prepared["operations"]
        return Measurement(
            workload=self.workload.name,
            contender=name,
            batch=batch,
            dtype=CONTENDERS[name].dtype,
            per_second=median,
            low=low,
            high=high,
            samples=len(samples),
            compile_seconds=prepared["compile_seconds"],
            peak_bytes=prepared["peak_bytes"],
            operations=operations,
            operations_per_second=None if operations is None else operations * median,
            error=error,
            note=prepared["note"],
            **work,
        )

    def _leave_out(self, contender: Contender, batch: int | None, reason: str) -> None:
        self.left_out.append(LeftOut(self.workload.name, contender.name, batch, reason))

    def _drop(
        self, workers: dict[str, Worker], name: str, batch: int | None, error: WorkerError
    ) -> None:
        worker = workers.pop(name)
        worker.stop()
        self._leave_out(worker.contender, batch, str(error))


def _too_much(worker: Worker, batch: int) -> str:
    """Why a batch is not worth its time or memory, by smaller ones; empty if it is."""
    if not worker.prepared:
        return ""
    before, answer = worker.prepared[-1]
    seconds = answer["seconds"] * batch / before
    if seconds > TOO_SLOW and answer["seconds"] > 0.01 * TOO_SLOW:
        return f"one call would take {seconds:.0f} s"
    compiling = answer["compile_seconds"] or 0.0
    if compiling > SLOW_COMPILER and batch != HEADLINE:
        return f"{compiling:.0f} s of compiling for each batch size"
    near = batch <= 32 * before  # what a few environments take is noise, and foretells nothing
    if near and len(worker.prepared) > 1 and answer["peak_bytes"] is not None:
        # The compiler takes most of it, but for what grows with the batch.
        earlier, other = worker.prepared[-2]
        per_row = (answer["peak_bytes"] - other["peak_bytes"]) / (before - earlier)
        if per_row * batch > _memory() / MEMORY_SHARE:
            return f"it would take {per_row * batch / 2**30:.0f} GiB"
    return ""


def _memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _difference(rows: list[list[float]], reference: np.ndarray) -> float:
    """Largest difference, relative to the reference's largest entry."""
    expected = reference[: len(rows)]
    return float(np.max(np.abs(np.array(rows) - expected)) / np.max(np.abs(expected)))
