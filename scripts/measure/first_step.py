"""How long an environment's first batch takes in a new process, caches empty and full.

    python scripts/measure/first_step.py
    python scripts/measure/first_step.py PandaReach-v0 G1Reach-v0 --times 5

The results are in docs/kernels.md. "cached" is a second process, which finds the robot and the
kernels where the first one left them; XLA compiles its program again. Importing JAX is not counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    ids: tyro.conf.Positional[tuple[str, ...]] = ("PandaReach-v0", "PandaReachObstacles-v0")
    """Some of `fraxenv list`."""
    times: int = 3
    envs: int = 256
    child: bool = False
    """Take the first of them here, and print how long it took."""


def seconds(id: str, envs: int) -> list[float]:
    """Of `make`, of the first `reset` and of the first `step`."""
    import jax

    began = [time.perf_counter()]
    import fraxenv

    env, params = fraxenv.make(id)
    began.append(time.perf_counter())
    keys = jax.random.split(jax.random.key(0), envs)
    reset = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))
    _, state = jax.block_until_ready(reset(keys, params))
    began.append(time.perf_counter())
    actions = np.zeros((envs, env.num_actions), np.float32)
    step = jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, None)))
    jax.block_until_ready(step(keys, state, actions, params))
    return np.diff([*began, time.perf_counter()]).tolist()


def main(options: Options) -> None:
    """Measure, and print."""
    if options.child:
        print(json.dumps(seconds(options.ids[0], options.envs)))
        return
    table = Table("", "caches", "make, s", "reset, s", "step, s")
    turns = [(id, k) for id in options.ids for k in range(options.times)]
    found: dict[tuple[str, str], list[list[float]]] = {}
    for id, _ in track(turns, description="processes"):
        with tempfile.TemporaryDirectory() as cache:
            for full in ("empty", "full"):
                command = [sys.executable, __file__, id, "--envs", str(options.envs), "--child"]
                env = os.environ | {"XDG_CACHE_HOME": cache}
                told = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
                found.setdefault((id, full), []).append(json.loads(told.stdout.splitlines()[-1]))
    for (id, full), rows in found.items():
        cells = [" ".join(f"{x:.1f}" for x in sorted(column)) for column in zip(*rows, strict=True)]
        table.add_row(id, full, *cells)
    Console(width=120).print(table)


if __name__ == "__main__":
    main(tyro.cli(Options))
