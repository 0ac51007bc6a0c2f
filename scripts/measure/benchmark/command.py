"""The command line."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fraxenv.storage.files import write_atomic

from . import ids, planning, report
from .contenders import CONTENDERS
from .machine import Machine, cores
from .records import HEADLINE, EnvironmentSpeed, LeftOut, Measurement, PlanningRun
from .runner import Run
from .worker import serve
from .workloads import WORKLOADS, Workload

BATCHES = (1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536)
QUICK_BATCHES = (1, 64)

PEERS = tuple(c.name for c in CONTENDERS.values() if c.offers)


@dataclass(frozen=True)
class CommandLine:
    """Measure fraxenv and its peers side by side, on this machine.

    Attributes:
        quick: small batches, few repeats, no slow peers: whether all works, not how fast it is.
        out: folder for `results.jsonl` and `throughput.png`.
        peers: contenders, fraxenv's executors among them; all if omitted.
        workloads: what to compute; all if omitted.
        contact: only the workloads in contact.
        plans: which benchmarks of planning; all if omitted.
        batches: batch sizes; 1 to 65536 if omitted.
        threads: of each contender; all cores if omitted.
        repeats: rounds in which the contenders take turns.
        seconds: of each turn.
        device: where JAX computes what can be computed on a GPU.
        write_docs: put the results into `docs/performance.md` and its picture.
    """

    quick: bool = False
    out: Path = Path("runs/benchmark")
    peers: tuple[Literal[PEERS], ...] = ()  # type: ignore[valid-type]
    workloads: tuple[Literal[tuple(WORKLOADS)], ...] = ()  # type: ignore[valid-type]
    contact: bool = False
    plans: tuple[Literal[tuple(planning.BENCHMARKS)], ...] = ()  # type: ignore[valid-type]
    batches: tuple[int, ...] = ()
    threads: int | None = None
    repeats: int = 5
    seconds: float = 0.3
    device: Literal["auto", "cpu", "gpu"] = "auto"
    write_docs: bool = False


def main() -> int:
    """Run the command line, or a contender's process; returns the exit status."""
    if sys.argv[1:2] == ["--only"]:
        return serve(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    options = tyro.cli(CommandLine, config=(tyro.conf.FlagCreatePairsOff,))
    threads = options.threads or cores()
    gpu = options.device == "gpu" or (options.device == "auto" and _has_gpu())
    machine = Machine.here(threads, gpu)
    measurements: list[Measurement] = []
    left_out: list[LeftOut] = []
    environments: list[EnvironmentSpeed] = []
    plans: list[PlanningRun] = []
    results = report.Results(machine, measurements, left_out, environments, plans, gpu)
    options.out.mkdir(parents=True, exist_ok=True)
    for workload in WORKLOADS.values():
        if options.workloads and workload.name not in options.workloads:
            continue
        if options.contact and workload.quantity != "contact":
            continue
        if workload.quantity == "planning":
            if not options.peers:
                plans += planning.measure(
                    options.plans, options.quick, options.out / "planning", _show
                )
        elif workload.quantity != "ids":
            _run(workload, options, threads, gpu, measurements, left_out)
        elif not options.peers or "native" in options.peers:
            environments += _environments(workload, options, threads, gpu)
        # After each: the figures of an hour outlive what ends this process.
        write_atomic(options.out / "results.jsonl", results.json_lines().encode())
    picture = options.out / "throughput.png"
    report.plot(picture, results)
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    for table in results.tables():
        console.print(table.rich())
    console.print(results.notes(), markup=False, highlight=False)
    console.print(f"Written to {options.out}", markup=False)
    if options.write_docs:
        report.write_docs(results, picture)
    return 0


def _run(
    workload: Workload,
    options: CommandLine,
    threads: int,
    gpu: bool,
    measurements: list[Measurement],
    left_out: list[LeftOut],
) -> None:
    contenders = [
        c
        for c in CONTENDERS.values()
        if workload.quantity in c.offers
        and (c.name in options.peers if options.peers else c.quick or not options.quick)
    ]
    batches = options.batches or (QUICK_BATCHES if options.quick else BATCHES)
    if workload.batches:
        batches = tuple({min(b, max(batches)) for b in workload.batches})
    if workload.quantity in ("environment", "pick"):  # where some have one per thread
        batches = (*batches, 1, threads)
    batches = tuple(sorted(set(batches)))
    repeats = 2 if options.quick else options.repeats
    seconds = 0.02 if options.quick else options.seconds
    columns = (
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"),
        TimeRemainingColumn(),
    )  # fmt: skip
    console = Console(stderr=True)
    if not console.is_terminal:
        text = f"{workload.title}: {len(contenders)} contenders, batches {batches}"
        console.print(text, soft_wrap=True, highlight=False)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        total = len(contenders) * len(batches) * (1 + repeats)
        task = progress.add_task(workload.title, total=total)
        Run(
            workload, contenders, batches, threads, gpu, repeats, seconds,
            lambda: progress.advance(task), measurements, left_out,
        ).run()  # fmt: skip


def _environments(
    workload: Workload, options: CommandLine, threads: int, gpu: bool
) -> list[EnvironmentSpeed]:
    batch = min(HEADLINE, max(options.batches or (QUICK_BATCHES if options.quick else BATCHES)))
    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(f"{workload.title}: batch {batch}", highlight=False)
    return ids.measure(batch, threads, 2 if options.quick else options.repeats, options.quick, gpu)


def _show(text: str) -> None:
    Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)


def _has_gpu() -> bool:
    code = "import jax; print(jax.default_backend())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() == "gpu"
