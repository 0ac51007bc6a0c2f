"""How long what is always computed of the safety filter takes: of all obstacles, or of near ones.

    python scripts/measure/filter_share.py

A Panda among eight spheres, 4096 at once: 20 control steps of the dynamics' terms alone, and with
the values and conditions of all barriers, for every shape of all spheres and of the nearest
three. Medians of calls in turns; microseconds of an environment's policy step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array

import fraxenv
from fraxenv.controllers import SafetyFilter
from fraxenv.controllers.safety.barriers import situation
from fraxenv.controllers.safety.conditions import barrier_conditions
from fraxenv.dynamics import Obstacles, Sphere, compute_terms
from fraxenv.kernels import fuse

CONTROL_STEPS, DT = 20, 1e-3
SPHERES = 8


@dataclass(frozen=True)
class Options:
    """Options of the measurement.

    Attributes:
        batch: environments at once.
        repeats: calls that are timed.
    """

    batch: int = 4096
    repeats: int = 25


def main(options: Options) -> None:
    """Measure, and print."""
    robot = fraxenv.make("PandaReachObstacles-v0")[0].robot
    n, draw = options.batch, np.random.default_rng(0)
    q = jnp.asarray(robot.q_default + 0.3 * draw.normal(size=(n, robot.nv)), jnp.float32)
    v, a = jnp.asarray(draw.normal(size=(2, n, robot.nv)), jnp.float32)
    centres = jnp.asarray(draw.normal(size=(n, SPHERES, 3)), jnp.float32)

    def around(nearest: int | None) -> Obstacles:
        def look(q: Array, centres: Array) -> Obstacles:
            spheres = Sphere(centres, jnp.full(SPHERES, 0.05, q.dtype))
            return SafetyFilter(nearest=nearest).look_around(robot, q, Obstacles(spheres=spheres))

        return jax.jit(jax.vmap(look))(q, centres)

    def steps(barriers: bool) -> Callable[..., Any]:
        def step(q: Array, v: Array, a: Array, obstacles: Obstacles) -> Any:
            def one(carry: Any, _: None) -> Any:
                q, v, told = carry
                terms = compute_terms(robot, q, v)
                if barriers:
                    here = situation(robot, terms, obstacles)
                    safe = barrier_conditions(robot, SafetyFilter().barriers, here, a)
                    told = told + jnp.min(safe.values) + jnp.any(safe.b > 0)
                force = terms.bias + terms.mass_matrix @ a
                return (q + DT * v, v + 0.1 * DT * force, told), None

            start = q, v, jnp.zeros((), q.dtype)
            return jax.lax.scan(one, start, None, length=CONTROL_STEPS)[0]

        return jax.jit(fuse(step))

    near = around(3)
    cases = {
        "the dynamics' terms": (steps(False), near),
        "with conditions, all spheres": (steps(True), around(None)),
        "with conditions, nearest three": (steps(True), near),
    }
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(options.repeats + 1):  # the first ones compile
        for name, (call, obstacles) in cases.items():
            began = time.perf_counter()
            jax.block_until_ready(call(q, v, a, obstacles))
            taken[name].append(1e6 * (time.perf_counter() - began) / n)
    for name, times in taken.items():
        print(f"{name}: {np.median(times[1:]):.2f} us, {min(times[1:]):.2f} at least")


if __name__ == "__main__":
    main(tyro.cli(Options))
