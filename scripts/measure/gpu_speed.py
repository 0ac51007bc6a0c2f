"""How fast kernels are on this machine's GPU: dynamics, control, environments, contact, gradients.

    python scripts/measure/gpu_speed.py                       # all, 5 minutes
    python scripts/measure/gpu_speed.py --only dynamics --backends native pallas xla vmap

Each row is the median of some calls, after one that compiled; all in one process. Contact and picks
need MuJoCo, for their states.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

from benchmark import ours
from benchmark.workloads import WORKLOADS

DYNAMICS = ("panda-forward-dynamics", "g1-forward-dynamics", "rnea", "crba", "osc", "control-step")
CONTACT = (
    "contact-cube-rest", "contact-grasp-lift", "contact-stack", "contact-quadruped-kicked"
)  # fmt: skip
IDS = ("PandaReach-v0", "PandaReachObstacles-v0", "PandaPick-v0", "G1Reach-v0")

Kind = Literal["dynamics", "environments", "contact", "gradients"]


@dataclass(frozen=True)
class Options:
    """Options of the measurement.

    Attributes:
        only: kinds of rows; all if omitted.
        backends: executors; dynamics are computed by each, all else by the first.
        batches: environments at once.
        repeats: calls that are timed.
        out: file for the figures, a JSON object per line.
    """

    only: tuple[Kind, ...] = ()
    backends: tuple[str, ...] = ("native", "vmap")
    batches: tuple[int, ...] = (4096, 65_536, 262_144, 1_048_576)
    repeats: int = 7
    out: Path = Path("runs/gpu_speed.jsonl")


Prepared = tuple[Callable[[], float], float]
"""A call that returns its seconds, and how much it computes."""


def main(options: Options) -> None:
    """Measure, print and write."""
    import jax

    device = jax.devices()[0]
    title = f"{device.device_kind} ({device.platform}), JAX {jax.__version__}"
    table = Table("what", "executor", "batch", "per second", "spread", "first call", title=title)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    with options.out.open("w") as file:
        for name, backend, batch, prepare in track(list(_rows(options)), "Rows", console=console):
            began = time.perf_counter()
            try:
                call, count = prepare()
                call()
            except Exception as error:  # the others are measured all the same
                console.print(f"{name}, {backend}: {type(error).__name__}: {error}"[:300])
                continue
            first = time.perf_counter() - began
            speeds = count / np.array([call() for _ in range(options.repeats)])
            low, median, high = np.quantile(speeds, [0.25, 0.5, 0.75])
            spread = (high - low) / median
            table.add_row(
                name, backend, str(batch), f"{median:.3g}", f"{spread:.0%}", f"{first:.1f} s"
            )
            row = {
                "what": name, "backend": backend, "batch": batch, "per_second": float(median),
                "spread": float(spread), "first_call_s": first, "device": title,
            }  # fmt: skip
            file.write(json.dumps(row) + "\n")
            file.flush()
    Console(width=110).print(table)


def _rows(options: Options) -> Iterator[tuple[str, str, int, Callable[[], Prepared]]]:
    kinds, main_backend = options.only, options.backends[0]

    def wanted(kind: Kind) -> bool:
        return not kinds or kind in kinds

    for batch in options.batches:
        for name in DYNAMICS if wanted("dynamics") else ():
            for backend in options.backends:
                yield name, backend, batch, _case(name, backend, batch)
        for id in IDS if wanted("environments") else ():
            yield f"{id}, steps", main_backend, batch, _environment(id, main_backend, batch)
        for name in CONTACT if wanted("contact") else ():
            yield f"{name}, physics steps", main_backend, batch, _case(name, main_backend, batch)
        if wanted("gradients") and batch <= 65_536:
            name = "gradient-rollout"
            yield f"{name}, steps", main_backend, batch, _case(name, main_backend, batch)


def _case(name: str, backend: str, batch: int) -> Callable[[], Prepared]:
    def prepare() -> Prepared:
        case = ours.executor(backend)(WORKLOADS[name], batch, 1)

        def call() -> float:
            began = time.perf_counter()
            case.call()
            return time.perf_counter() - began

        return call, case.evaluations

    return prepare


def _environment(id: str, backend: str, batch: int) -> Callable[[], Prepared]:
    def prepare() -> Prepared:
        import fraxenv
        from fraxenv.cli.timing import stepping

        env, params = fraxenv.make(id, backend=backend)
        return stepping(env, params, batch, ours.ROLLOUT)[0], batch * ours.ROLLOUT

    return prepare


if __name__ == "__main__":
    main(tyro.cli(Options))
