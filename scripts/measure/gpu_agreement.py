"""Whether a GPU computes what the CPU does: a step of each environment, and gradients of some.

    python scripts/measure/gpu_agreement.py                     # all, in float64
    python scripts/measure/gpu_agreement.py --ids PandaPick-v0 --dtypes float32 float64

Both begin in the same states with the same actions. What the CPU computed is kept in `--out`, and
computed again only where it is missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

BATCH, STEPS = 256, 5
TOLERANCE = 1e-9
"""Of a step in float64, relative to the largest of the numbers of its kind."""

GRADIENTS = ("PandaReach-v0", "PandaReachObstacles-v0", "PandaPush-v0")
"""Environments whose rollouts are differentiated as well, in float64."""


@dataclass(frozen=True)
class Options:
    """Options of the comparison.

    Attributes:
        ids: environments; all if omitted.
        dtypes: what is computed in.
        out: folder for what was computed.
        jobs: processes at a time; half the cores if omitted.
        seconds: that a process may take.
        within: seconds that all may take; what has not begun or ended then is told, as a failure.
        platforms: who computes: the CPU alone, in advance, or both.
    """

    ids: tuple[str, ...] = ()
    dtypes: tuple[Literal["float32", "float64"], ...] = ("float64",)
    out: Path = Path("runs/gpu_agreement")
    jobs: int = 0
    seconds: float = 300.0
    within: float = float("inf")
    platforms: tuple[Literal["cpu", "cuda"], ...] = ("cpu", "cuda")


def main(options: Options) -> int:
    """Compute and compare; returns the exit status."""
    import fraxenv

    options.out.mkdir(parents=True, exist_ok=True)
    wanted = [
        (id, dtype, platform)
        for id in options.ids or fraxenv.list_envs()
        for dtype in options.dtypes
        for platform in options.platforms
    ]
    jobs = options.jobs or max(1, (os.cpu_count() or 2) // 2)
    console, end = Console(stderr=True), time.monotonic() + options.within
    with ThreadPoolExecutor(jobs) as pool:
        done = pool.map(lambda w: computed(options, *w, end), wanted)
        failures = [x for x in track(done, "Computing", total=len(wanted), console=console) if x]
    table = Table("environment", "dtype", "a step", f"{STEPS} steps", "lanes beyond", "gradient")
    wrong = len(failures)
    for id in options.ids or fraxenv.list_envs():
        for dtype in options.dtypes:
            both = [path(options.out, id, dtype, p) for p in ("cpu", "cuda")]
            if not all(p.exists() for p in both):
                continue
            row, good = compared(*(dict(np.load(p, allow_pickle=False)) for p in both), dtype)
            wrong += not good
            table.add_row(id, dtype, *row)
    Console(width=120).print(table)
    for failure in failures:
        print(failure)
    return min(wrong, 1)


def path(folder: Path, id: str, dtype: str, platform: str) -> Path:
    """Where a result is kept."""
    return folder / f"{id}-{dtype}-{platform}.npz"


def computed(options: Options, id: str, dtype: str, platform: str, end: float) -> str:
    """Compute in a process of its own, until `end`, s; what failed, if anything did."""
    target = path(options.out, id, dtype, platform)
    if platform == "cpu" and target.exists():
        return ""
    seconds = min(options.seconds, end - time.monotonic())
    if seconds <= 0:
        return f"{id}, {dtype}, {platform}: not begun within {options.within:.0f} s"
    environment = os.environ | {
        "JAX_PLATFORMS": platform,
        "JAX_ENABLE_X64": str(int(dtype == "float64")),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "FRAXENV_BACKEND": "native",
    }
    command = [sys.executable, __file__, "--only", id, dtype, str(target)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return f"{id}, {dtype}, {platform}: not done in {seconds:.0f} s"
    if done.returncode:
        return f"{id}, {dtype}, {platform}: {done.stderr[-800:]}"
    return ""


def compute(id: str, dtype: str, target: Path) -> None:
    """Step from random states, and write what is seen."""
    import jax
    import jax.numpy as jnp

    import fraxenv

    env, params = fraxenv.make(id)
    step = jax.jit(jax.vmap(env.step_env, (0, 0, 0, None)))
    keys = jax.random.split(jax.random.key(0), BATCH)
    _, state = jax.jit(jax.vmap(env.reset_env, (0, None)))(keys, params)
    draw = np.random.default_rng(0)
    kept: dict[str, Any] = {}
    for k in range(STEPS):
        action = jnp.asarray(draw.uniform(-1, 1, (BATCH, env.num_actions)), jnp.result_type(float))
        obs, state, reward, *_ = step(keys, state, action, params)
        kept |= {f"{k}-obs": obs, f"{k}-reward": reward, f"{k}-q": state.q, f"{k}-v": state.v}
    if id in GRADIENTS and dtype == "float64":
        kept["gradient"] = gradient(env.with_transition_gradients(), params, keys[:32])
    np.savez(target, **{name: np.asarray(x) for name, x in kept.items()})


def gradient(env: Any, params: Any, keys: Any) -> Any:
    """Of the return of a few steps, by the actions."""
    import jax
    import jax.numpy as jnp

    _, start = jax.jit(jax.vmap(env.reset_env, (0, None)))(keys, params)
    actions = jax.random.uniform(jax.random.key(1), (4, len(keys), env.num_actions), minval=-1)

    def cost(actions: Any) -> Any:
        def one(state: Any, action: Any) -> Any:
            _, state, reward, *_ = jax.vmap(env.step, (0, 0, 0, None))(keys, state, action, params)
            return state, reward

        return jnp.sum(jax.lax.scan(one, start, actions)[1])

    return jax.jit(jax.grad(cost))(actions)


def compared(
    cpu: dict[str, np.ndarray], gpu: dict[str, np.ndarray], dtype: str
) -> tuple[list[str], bool]:
    """The cells of a row: how far apart they are; and whether that is near enough."""
    tolerance = TOLERANCE if dtype == "float64" else 1e-4

    def apart(name: str) -> np.ndarray:
        """By lane."""
        a, b = cpu[name], gpu[name]
        scale = max(1.0, float(np.abs(a).max(initial=0.0)))
        far: np.ndarray = np.abs(a - b).reshape(len(a), -1).max(axis=1) / scale
        return np.where(np.isnan(far), np.inf, far)

    def steps(k: int) -> Iterator[np.ndarray]:
        return (apart(f"{k}-{part}") for part in ("obs", "reward", "q", "v"))

    first, last = (np.max(list(steps(k)), axis=0) for k in (0, STEPS - 1))
    cells = [f"{first.max():.0e}", f"{last.max():.0e}", str(int((first > tolerance).sum())), ""]
    good = bool(first.max() <= tolerance)
    if "gradient" in cpu:
        found = float(apart("gradient").max())
        cells[3], good = f"{found:.0e}", good and found <= 1e-8
    return cells, good


if __name__ == "__main__":
    if sys.argv[1:2] == ["--only"]:
        compute(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    else:
        sys.exit(main(tyro.cli(Options)))
