"""What actions of the hand cost over batches of MJX's worlds, on a CPU or a GPU.

A policy's step of an arm of an MJCF file: MJX's physics alone with constant inputs, and with the
arm's control at every physics step. Medians of some calls after the one that compiles; all in one
process.

    python scripts/measure/batched_arm.py scripts/measure/benchmark/scenes/arm.xml grasp
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import tyro
from mujoco import mjx
from rich.console import Console
from rich.table import Table

from fraxenv.wrappers import ee_action


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    file: tyro.conf.Positional[Path]
    """An MJCF file of an arm, of shapes that MJX knows."""
    end_effector: tyro.conf.Positional[str]
    """A body or site of it."""
    batches: tuple[int, ...] = (1, 64, 1024)
    """Worlds at once."""
    substeps: int = 10
    """Physics steps of an action."""
    safety: Literal["none", "cbf"] = "none"
    """The filter, of all that stands around in the file."""
    repeats: int = 7
    """Calls that are timed."""


def seconds(call: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Of the first call, and the median of the others."""
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - begin)
    return times[0], float(np.median(times[1:]))


def main(options: Options) -> None:
    """Measure, and print."""
    model = mujoco.MjModel.from_xml_path(str(options.file))
    safety = None if options.safety == "none" else options.safety
    arm = ee_action(model, end_effector=options.end_effector, safety=safety)
    put, one = mjx.put_model(model), mjx.make_data(model)

    @jax.jit
    @jax.vmap
    def alone(data: Any) -> Any:
        return jax.lax.fori_loop(0, options.substeps, lambda _, d: mjx.step(put, d), data)

    @jax.jit
    @jax.vmap
    def moved(data: Any, memory: Any, action: Any) -> Any:
        return arm.step(put, data, memory, action, data.ctrl, options.substeps)

    device = jax.devices()[0]
    table = Table(
        "worlds", "MJX alone, steps/s", "with control", "control, us a batch",
        "first call, s: alone", "with control",
        title=f"{device.device_kind} ({device.platform}), JAX {jax.__version__}",
    )  # fmt: skip
    for batch in options.batches:
        worlds = jax.tree.map(lambda x, n=batch: jnp.stack([x] * n), one)
        memory = jax.jit(jax.vmap(arm.init))(worlds.qpos, worlds.qvel)
        actions = jax.random.uniform(jax.random.key(0), (batch, len(arm.axes)), minval=-1)
        first, by_itself = seconds(lambda w=worlds: alone(w), options.repeats)
        then, controlled = seconds(
            lambda w=worlds, m=memory, a=actions: moved(w, m, a), options.repeats
        )
        count = batch * options.substeps
        price = (controlled - by_itself) / options.substeps * 1e6
        table.add_row(
            str(batch), f"{count / by_itself:.3g}", f"{count / controlled:.3g}", f"{price:.0f}",
            f"{first:.1f}", f"{then:.1f}",
        )  # fmt: skip
    Console(width=110).print(table)


if __name__ == "__main__":
    main(tyro.cli(Options))
