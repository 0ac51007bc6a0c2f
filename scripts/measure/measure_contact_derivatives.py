"""Cost and errors of the matrices A and B of steps in contact, beside MuJoCo's differences.

    python scripts/measure/measure_contact_derivatives.py
    python scripts/measure/measure_contact_derivatives.py --executors vmap --batch 256

A grasp and a standing quadruped, along random motions, in float32: microseconds per state of
`contact_transition_derivatives`, of a batch on all cores, and of `mujoco.mjd_transitionFD` state by
state, in one thread and in as many as there are cores, one-sided and centred: medians, least,
greatest, and how many times as fast as MuJoCo's one-sided ones in one thread. Its solver keeps the
scene's own tolerance. Errors are relative to the largest entry of MuJoCo's centred differences with
a solver that converges; those that cross a border of zones count.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import mujoco
import numpy as np
import tyro
from jax import Array
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fraxenv import dynamics, fuse
from fraxenv.dynamics import Scene

SCENES = Path(__file__).parent / "benchmark" / "scenes"
STEP = 1e-6
THREADS = os.cpu_count() or 1


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    scenes: tuple[str, ...] = ("grasp", "quadruped")
    """Names of files in `benchmark/scenes`, with a keyframe each."""
    executors: tuple[Literal["fuse", "vmap"], ...] = ("fuse", "vmap")
    """How ours run: as a fused kernel, or as `jit(vmap(...))`."""
    batch: int = 1024
    """States at a time."""
    repeats: int = 9
    """Of each contender."""
    compared: int = 128
    """States that MuJoCo differentiates."""


States = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def states(model: mujoco.MjModel, n: int) -> tuple[States, float]:
    """q, v, controls and warm starts (n, ...) along a random motion; mean number of contacts."""
    data, rng, found, contacts = mujoco.MjData(model), np.random.default_rng(0), [], 0
    mujoco.mj_resetDataKeyframe(model, data, 0)
    ctrl = data.ctrl.copy()
    for step in range(2 * n):
        if step % 500 == 0:
            mujoco.mj_resetDataKeyframe(model, data, 0)
        if step % 20 == 0:
            data.ctrl[:] = ctrl + 0.03 * rng.normal(size=model.nu)
        mujoco.mj_step(model, data)
        if step % 2:
            mujoco.mj_forward(model, data)
            found.append([np.array(x) for x in (data.qpos, data.qvel, data.ctrl, data.qacc)])
            contacts += data.ncon
    q, v, u, warm = (np.stack(x) for x in zip(*found, strict=True))
    return (q, v, u, warm), contacts / n


def differences(
    model: mujoco.MjModel, data: mujoco.MjData, of: States, chosen: range, centred: bool
) -> np.ndarray:
    """A and B by the controls, side by side, of some states."""
    nv, nu = model.nv, model.nu
    found = np.zeros((len(chosen), 2 * nv, 2 * nv + nu))
    A, B = np.zeros((2 * nv, 2 * nv)), np.zeros((2 * nv, nu))
    for k, i in enumerate(chosen):
        data.qpos, data.qvel, data.ctrl, data.qacc_warmstart = (x[i] for x in of)
        mujoco.mjd_transitionFD(model, data, STEP, centred, A, B, None, None)
        found[k, :, : 2 * nv], found[k, :, 2 * nv :] = A, B
    return found


def ours(scene: Scene) -> Callable[[Array, Array, Array, Array], Any]:
    """A and B of one environment."""

    def derivatives(q: Array, v: Array, u: Array, warm: Array) -> Any:
        return dynamics.contact_transition_derivatives(
            scene, q, v, np.zeros(scene.nv), warm_start=warm, ctrl=u
        )

    return derivatives


def measure(name: str, options: Options) -> Table:
    """The table of one scene."""
    model = mujoco.MjModel.from_xml_path(str(SCENES / f"{name}.xml"))
    of, contacts = states(model, options.batch)
    scene = dynamics.load_mjcf(model)
    single = tuple(x.astype(np.float32) for x in of)
    runs: dict[str, tuple[Callable[[], Any], int]] = {}
    seconds: dict[str, float] = {}
    for executor in options.executors:
        f = ours(scene)
        program: Any = jax.jit(fuse(f) if executor == "fuse" else jax.vmap(f))
        began = time.perf_counter()
        ready = program.lower(*single).compile()
        seconds[f"ours, {executor}"] = time.perf_counter() - began
        runs[f"ours, {executor}"] = (
            lambda ready=ready: jax.block_until_ready(ready(*single)),
            options.batch,
        )
    datas = [mujoco.MjData(model) for _ in range(THREADS)]
    shares = [range(k, options.compared, THREADS) for k in range(THREADS)]

    def in_threads(pool: ThreadPoolExecutor, centred: bool) -> None:
        jobs = [
            pool.submit(differences, model, d, of, s, centred)
            for d, s in zip(datas, shares, strict=True)
        ]
        for job in jobs:
            job.result()

    every = range(options.compared)
    times: dict[str, list[float]] = {}
    with ThreadPoolExecutor(THREADS) as pool:
        for centred in (False, True):
            kind = "centred" if centred else "one-sided"
            runs[f"MuJoCo, {kind}"] = (
                lambda centred=centred: differences(model, datas[0], of, every, centred),
                options.compared,
            )
            runs[f"MuJoCo, {kind}, {THREADS} threads"] = (
                lambda centred=centred: in_threads(pool, centred),
                options.compared,
            )
        for run, _ in runs.values():
            run()
        for _ in track(range(options.repeats), name, transient=True):
            for label, (run, n) in runs.items():
                began = time.perf_counter()
                run()
                times.setdefault(label, []).append((time.perf_counter() - began) / n * 1e6)

    converged = copy.deepcopy(model)
    converged.opt.tolerance, converged.opt.iterations = 0, 200
    exact = differences(converged, datas[0], of, every, centred=True)
    table = Table("", "compile, s", "us", "least", "greatest", "ratio", "error")
    table.title = f"{name}: nv {model.nv}, nu {model.nu}, batch {options.batch}, "
    table.title += f"{contacts:.1f} contacts on average, {THREADS} cores"
    base = np.median(times["MuJoCo, one-sided"])
    for label, us in times.items():
        error = ""
        if label.startswith("ours"):
            A, _, B_ctrl = runs[label][0]()
            found = np.concatenate([A, B_ctrl], axis=2)[: options.compared]
            error = _errors(found, exact)
        elif "threads" not in label:
            error = _errors(runs[label][0](), exact)
        middle = np.median(us)
        table.add_row(
            label,
            f"{seconds[label]:.1f}" if label in seconds else "",
            f"{middle:.1f}",
            f"{min(us):.1f}",
            f"{max(us):.1f}",
            f"{base / middle:.1f}",
            error,
        )
    return table


def _errors(found: np.ndarray, exact: np.ndarray) -> str:
    """Median and 0.9 quantile over the states."""
    scale = np.abs(exact).max(axis=(1, 2))
    errors = np.abs(found - exact).max(axis=(1, 2)) / scale
    return f"{np.median(errors):.0e} ({np.quantile(errors, 0.9):.0e})"


def main(options: Options) -> None:
    """Measure all scenes."""
    console = Console()
    for name in options.scenes:
        console.print(measure(name, options))


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
