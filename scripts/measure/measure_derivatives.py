"""Cost of the exact derivatives of forward dynamics, beside forward dynamics and differences.

    python scripts/measure/measure_derivatives.py

Prints, for plain `jax.vmap` and for fused kernels, compile time and time per evaluation of a batch
in float32: medians, least and greatest, and the ratio to forward dynamics in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fraxenv import dynamics, fuse
from fraxenv.dynamics import Robot

BATCHES = {"panda": 4096, "g1": 512}
REPEATS = 15
STEP = 1e-3

Function = Callable[[Array, Array, Array], Any]


def functions(robot: Robot) -> dict[str, Function]:
    """What is measured, for one environment."""

    def forward(q: Array, v: Array, tau: Array) -> Array:
        return dynamics.forward_dynamics(robot, q, v, tau)

    def derivatives(q: Array, v: Array, tau: Array) -> Any:
        return dynamics.forward_dynamics_derivatives(robot, q, v, tau)

    def differences(q: Array, v: Array, tau: Array) -> Any:
        steps = STEP * jnp.eye(robot.nv, dtype=q.dtype)

        def central(f: Callable[[Array], Array]) -> Array:
            return jax.vmap(lambda d: (f(d) - f(-d)) / (2 * STEP))(steps)

        return (
            central(lambda d: forward(dynamics.integrate(robot, q, d, 1.0), v, tau)),
            central(lambda d: forward(q, v + d, tau)),
            central(lambda d: forward(q, v, tau + d)),
        )

    return {
        "forward dynamics": forward,
        "exact derivatives": derivatives,
        "central differences": differences,
    }


def states(robot: Robot, batch: int) -> tuple[Array, Array, Array]:
    """A batch of random states and torques."""
    keys = jax.random.split(jax.random.key(0), batch)
    q = jax.jit(jax.vmap(lambda k: dynamics.random_configuration(robot, k)))(keys)
    v, tau = jax.random.uniform(jax.random.key(1), (2, batch, robot.nv), minval=-1)
    return q, v, tau


def measure(robot: Robot, batch: int, executor: str) -> Table:
    """The table for one robot and one way to run."""
    arguments = states(robot, batch)
    compiled, seconds_to_compile = {}, {}
    for name, f in functions(robot).items():
        program: Any = jax.jit(jax.vmap(f)) if executor == "vmap" else jax.jit(fuse(f, executor))
        began = time.perf_counter()
        compiled[name] = program.lower(*arguments).compile()
        seconds_to_compile[name] = time.perf_counter() - began
        jax.block_until_ready(compiled[name](*arguments))
    times: dict[str, list[float]] = {name: [] for name in compiled}
    for _ in track(range(REPEATS), f"{robot.name}, {executor}", transient=True):
        for name, program in compiled.items():
            began = time.perf_counter()
            jax.block_until_ready(program(*arguments))
            times[name].append((time.perf_counter() - began) / batch * 1e6)
    table = Table("", "compile, s", "us per evaluation", "least", "greatest", "ratio")
    table.title = f"{robot.name}, batch {batch}, {executor}"
    base = np.median(times["forward dynamics"])
    for name, us in times.items():
        middle = np.median(us)
        table.add_row(
            name,
            f"{seconds_to_compile[name]:.2f}",
            f"{middle:.3f}",
            f"{min(us):.3f}",
            f"{max(us):.3f}",
            f"{middle / base:.2f}",
        )
    return table


def main() -> None:
    """Measure both robots in both ways."""
    console = Console()
    for name, batch in BATCHES.items():
        for executor in ("vmap", "auto"):
            console.print(measure(dynamics.load_robot(name), batch, executor))


if __name__ == "__main__":
    main()
