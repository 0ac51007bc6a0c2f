"""`fraxenv bench`."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..errors import ConfigError, check_count
from ..interrupt import interruptible
from ..making.make import make
from ..progress import progress
from ..storage.files import write_atomic
from .common import INTERRUPTED, console, new_folder, wrote
from .subject import EnvArguments, recipe


@dataclass(frozen=True)
class Options(EnvArguments):
    """Measure how many steps of an environment this machine takes in a second.

    Random actions, autoreset, all in one program. Executors take turns, so that a machine that
    slows down slows down all of them.

    Attributes:
        batches: environments side by side.
        backends: executors to compare; what this machine uses by default, and plain jax.vmap, if
            omitted, which takes most of a minute to compile for each batch.
        steps: policy steps in a call.
        rounds: calls, of which the median counts.
        output: folder of the results; a new one in `runs/` if omitted.
    """

    batches: tuple[int, ...] = (1, 16, 256, 4096)
    backends: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]", help_behavior_hint="")
    ] = ()
    steps: int = 10
    rounds: int = 5
    output: Path | None = None


@dataclass(frozen=True)
class Throughput:
    """Throughput of one executor at one batch size, environment steps per second.

    Attributes:
        backend: the executor.
        batch: environments side by side.
        median: steps/s.
        least: steps/s, in the slowest call.
        most: steps/s, in the fastest one.
        compile_seconds: before the first call.
    """

    backend: str
    batch: int
    median: float
    least: float
    most: float
    compile_seconds: float


def run(options: Options) -> int:
    """Measure, print, draw; returns the exit status."""
    from ..media.plots import plot_throughput
    from ..storage.provenance import provenance

    for name, value in (("steps", options.steps), ("rounds", options.rounds)):
        check_count(f"--{name}", value)
    if not options.batches:
        raise ConfigError("--batches names none, expected one at least, such as --batches 256.")
    for batch in options.batches:
        check_count("--batches", batch)
    made = recipe(options)
    results, whole = measure(made, options)
    if not results:
        print("Interrupted before anything was measured; nothing was written.")
        return INTERRUPTED
    name = make(**made)[0].name
    output = options.output or new_folder(Path("runs"), f"bench-{name}")
    about = {"environment": made, **provenance(), "steps": options.steps, "rounds": options.rounds}
    text = json.dumps({**about, "results": [asdict(r) for r in results]}, indent=2)
    write_atomic(output / "bench.json", text.encode() + b"\n")
    series = {}
    for backend in dict.fromkeys(r.backend for r in results):
        own = [r for r in results if r.backend == backend]
        columns = ([getattr(r, n) for r in own] for n in ("batch", "median", "least", "most"))
        batches, median, least, most = columns
        series[backend] = (batches, median, least, most)
    plot_throughput(output / "bench.png", series, name)
    console().print(_table(results, name))
    wrote(output, "bench.json", "bench.png")
    return 0 if whole else INTERRUPTED


def measure(made: dict[str, Any], options: Options) -> tuple[list[Throughput], bool]:
    """Throughputs of all executors at all batch sizes, and whether none is missing, by Ctrl-C."""
    from ..kernels import check_backend, resolve
    from .timing import stepping

    backends = list(dict.fromkeys(options.backends or (resolve("auto"), "vmap")))
    for backend in backends:
        check_backend(backend)
    turns = len(backends) * (1 + options.rounds)
    results: list[Throughput] = []
    done = 0
    with (
        interruptible("Stopping after this call") as stop,
        progress("measuring", len(options.batches) * turns) as show,
    ):
        for batch in options.batches:
            calls, compiling = {}, {}
            seconds: dict[str, list[float]] = {}
            for backend in backends:
                if stop():
                    return results, False
                show(done, f"batch {batch}, {backend}: compiling")
                env, params = make(**{**made, "backend": backend})
                calls[backend], compiling[backend] = stepping(env, params, batch, options.steps)
                seconds[backend] = []
                done += 1
            for _ in range(options.rounds):
                for backend, call in calls.items():
                    if stop():
                        return results, False
                    seconds[backend].append(call())
                    done += 1
                    show(done)
            for backend, taken in seconds.items():
                rates = [batch * options.steps / s for s in taken]
                results.append(
                    Throughput(
                        backend,
                        batch,
                        statistics.median(rates),
                        min(rates),
                        max(rates),
                        compiling[backend],
                    )
                )
    return results, True


def _table(results: list[Throughput], name: str) -> Any:
    from rich.table import Table

    first = results[0].backend
    table = Table("batch", "executor", title=f"{name}: environment steps per second")
    for column in ("steps/s", "spread", f"{first} / this", "compile"):
        table.add_column(column, justify="right")
    reference = {r.batch: r.median for r in results if r.backend == first}
    for r in sorted(results, key=lambda r: r.batch):
        table.add_row(
            f"{r.batch:,}",
            r.backend,
            f"{r.median:,.0f}",
            f"±{50 * (r.most - r.least) / r.median:.0f} %",
            f"{reference[r.batch] / r.median:.2f}",
            f"{r.compile_seconds:.1f} s",
        )
    return table
