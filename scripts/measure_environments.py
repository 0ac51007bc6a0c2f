"""How fast each registered environment is, and what randomisation costs.

Batches of random actions, in turn, so that a machine that slows down slows all of them down. The
results are in docs/environments.md.

    python scripts/measure_environments.py
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

import fraxenv
from fraxenv.timing import stepping

REFERENCE = "PandaReach-v0"

RANDOMISED: dict[str, Any] = {
    "link_mass": (0.7, 1.3),
    "link_com": 0.01,
    "payload": (0.0, 1.0),
    "damping": (0.5, 2.0),
    "motor_gain": (0.9, 1.1),
    "motor_delay": (0.0, 0.005),
    "gravity": 0.1,
    "observation_noise": 0.01,
    "action_delay": (0.0, 0.02),
}


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    ids: tuple[str, ...] = ()
    """Environments; all if omitted."""
    batch: int = 4096
    """Environments in a batch."""
    steps: int = 10
    """Policy steps in a call."""
    rounds: int = 7
    """Rounds in which the environments take turns."""


def prepare(id: str, options: Options, **overrides: Any) -> tuple[Callable[[], float], int, float]:
    """A call that makes some steps, the degrees of freedom, and the seconds to compile it."""
    env, params = fraxenv.make(id, **overrides)
    call, seconds = stepping(env, params, options.batch, options.steps)
    return call, env.robot.nv, seconds


def main() -> int:
    """Run the command line; returns the exit status."""
    options = tyro.cli(Options)
    ids = list(options.ids or fraxenv.list_envs())
    if REFERENCE not in ids:
        ids.insert(0, REFERENCE)
    cases = {id: prepare(id, options) for id in track(ids, "compiling", transient=True)}
    randomised = f"{REFERENCE}, randomised"
    cases[randomised] = prepare(REFERENCE, options, randomisation=RANDOMISED)
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in track(range(options.rounds), "measuring", transient=True):
        for name, (call, *_) in cases.items():
            seconds[name].append(call())
    per_call = options.batch * options.steps
    rate = {name: per_call / statistics.median(s) for name, s in seconds.items()}
    reference = rate[REFERENCE] * cases[REFERENCE][1]
    table = Table(
        "environment", "steps/s", "spread", "x degrees of freedom, PandaReach = 1", "compile"
    )
    for name, (_, nv, compiling) in cases.items():
        low, high = np.percentile(seconds[name], (25, 75))
        table.add_row(
            name,
            f"{rate[name]:,.0f}",
            f"{50 * (high - low) / statistics.median(seconds[name]):.0f} %",
            f"{rate[name] * nv / reference:.2f}",
            f"{compiling:.1f} s",
        )
    Console(width=120).print(table)
    print(f"Randomisation costs {rate[REFERENCE] / rate[randomised]:.2f} times the steps without.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
