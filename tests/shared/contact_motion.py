"""Batches of the benchmark's scenes, in contact beside others that touch nothing, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fraxenv
from fraxenv import dynamics
from fraxenv.dynamics import Scene
from fraxenv.dynamics.scene.step import scene_step

FOLDER = Path(__file__).parents[2] / "scripts" / "measure" / "benchmark" / "scenes"
SCENES = ("cube", "grasp", "quadruped", "stack")
MOST, STEPS = 4096, 8
ROOMY = 1.0
"""m, by which free bodies of every second environment are lifted."""

Arguments = tuple[Any, Any, Any, Any, Any]
"""Configuration, velocity, force, warm start and controls, (n, ...) each."""
Poison = Callable[[list[np.ndarray]], Any]
"""Spoils arguments of the first step."""


@cache
def load(name: str) -> Scene:
    """One of `SCENES`."""
    return dynamics.load_mjcf(FOLDER / f"{name}.xml")


@cache
def arguments(name: str) -> Arguments:
    """The first step's, of `MOST` environments, float32: no two alike, every second in the air."""
    scene, rng = load(name), np.random.default_rng(0)
    keys = list(scene.keyframes.values())
    at = np.stack([k.q for k in keys])[np.arange(MOST) % len(keys)]
    ctrl = np.stack([k.ctrl for k in keys])[np.arange(MOST) % len(keys)].reshape(MOST, scene.nu)
    moved = 0.01 * rng.normal(size=(MOST, scene.nv))
    for i, joint in enumerate(scene.system.topology.joints):
        if joint.kind == "floating":
            start = scene.system.topology.v_index[i]
            moved[:, start + 2] = np.where(np.arange(MOST) % 2, ROOMY, -1e-4)
    moving = jax.jit(jax.vmap(lambda q, x: dynamics.integrate(scene.system, q, x, 1.0)))
    q = moving(at, moved)
    inertia = np.diagonal(jax.jit(dynamics.crba)(scene.system, at[0]))
    v, tau = 0.3 * rng.normal(size=(2, MOST, scene.nv))
    given = q, v, 30 * inertia * tau, np.zeros_like(v), ctrl
    return tuple(np.array(x, np.float32) for x in given)  # type: ignore[return-value]


@cache
def stepper(name: str) -> Callable[..., Any]:
    """The kernel of a step."""
    scene = load(name)

    def step(q: Any, v: Any, tau: Any, warm_start: Any, ctrl: Any) -> Any:
        return scene_step(scene, q, v, tau, None, warm_start, None, ctrl)

    return jax.jit(fraxenv.fuse(step, "native"))


def motion(name: str, rows: Sequence[int] | range, poison: Poison | None = None) -> list[Any]:
    """Configuration, velocity and solution, (n, ...), of every step of these environments."""
    given = [x[np.asarray(rows)] for x in arguments(name)]
    if poison is not None:
        poison(given)
    q, v, tau, warm_start, ctrl = (jnp.asarray(x) for x in given)
    found = []
    for _ in range(STEPS):
        q, v, solution = stepper(name)(q, v, tau, warm_start, ctrl)
        warm_start = solution.acceleration
        found.append((q, v, solution))
    return found
