"""How fast each registered environment is, and what randomisation costs.

All are compiled first, and then take turns in one process, so that a machine that slows down slows
all of them down.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from .records import EnvironmentSpeed

REFERENCE = "PandaReach-v0"
QUICK = (REFERENCE, "MobileReach-v0")

RANDOMISED = "panda-reach-everything"
"""The preset of the reference with all kinds of randomisation."""

STEPS = 10
"""Policy steps in one call."""


def measure(
    batch: int, threads: int, repeats: int, quick: bool, gpu: bool
) -> list[EnvironmentSpeed]:
    """Step every registered environment with random actions, and the reference randomised.

    Args:
        batch: environments at once.
        threads: that may be used.
        repeats: rounds in which they take turns.
        quick: only some of them.
        gpu: whether JAX may use a GPU.
    """
    os.environ["FRAXENV_CACHE"] = "0"  # compile times are those of a first run
    if not gpu:
        os.environ["JAX_PLATFORMS"] = "cpu"
    import fraxenv
    from fraxenv.cli.timing import stepping
    from fraxenv.kernels import set_threads
    from fraxenv.making.make import load_env_config

    set_threads(threads)
    console = Console(stderr=True)
    progress = functools.partial(
        track, console=console, transient=True, disable=not console.is_terminal
    )
    ids = QUICK if quick else fraxenv.list_envs()
    cases: dict[str, dict[str, Any]] = {id: {"id": id} for id in ids}
    cases[RANDOMISED] = load_env_config(RANDOMISED)
    calls, freedoms, compiling = [], [], []
    for options in progress(cases.values(), "Environments by id, compiling"):
        env, params = fraxenv.make(**options)
        call, seconds = stepping(env, params, batch, STEPS)
        calls.append(call)
        freedoms.append(env.robot.nv * env.physics_hz // env.policy_hz)
        compiling.append(seconds)
    rounds = progress(range(repeats), "Environments by id, measuring")
    samples = np.array([[call() for call in calls] for _ in rounds])
    median, low, high = batch * STEPS / np.quantile(samples, [0.5, 0.75, 0.25], axis=0)
    physics = median * freedoms
    relative = physics / physics[list(cases).index(REFERENCE)]
    rows = zip(
        median.tolist(), low.tolist(), high.tolist(), relative.tolist(), compiling, strict=True
    )
    return [EnvironmentSpeed(name, batch, *row) for name, row in zip(cases, rows, strict=True)]
