"""Time of an iteration of uneven rounds in a fused kernel, with and without refilled lanes.

    python scripts/measure/uneven_rounds.py

Problems like those of contact, `min 1/2 (a - s)' M (a - s) + 1/2 sum_i D_i min(0, J_i a - b_i)^2`
with 14 unknowns and 30 rows, most of them easy and some hard, by Newton's method with Cholesky in
float32: as a `while_loop`, with rounds unrolled before it, in a `cond`, and in a `scan` over steps
that begin where the last one ended. Each form takes its turn in every round of measurements; the
time is the least of the process' own on one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from rich.console import Console
from rich.table import Table

from fraxenv import fuse
from fraxenv.dynamics.solvers.cholesky import cholesky, cholesky_solve
from fraxenv.kernels import explain, set_threads
from fraxenv.kernels.native import gather, refill

BATCH = 4096
MEASUREMENTS = 36
UNKNOWNS, ROWS, MOST_ROUNDS, STEPS = 14, 30, 15, 20
HARD = 0.28
"""Share of the problems that are hard."""

_rng = np.random.default_rng(0)
_J = _rng.normal(size=(ROWS, UNKNOWNS)).astype(np.float32)
_A = _rng.normal(size=(UNKNOWNS, UNKNOWNS)).astype(np.float32)
_M = _A @ _A.T / UNKNOWNS + np.eye(UNKNOWNS, dtype=np.float32)

Lane = dict[str, Array]
Carry = tuple[Array, Array, Array]
"""The iterate, whether it is the answer, and the rounds so far."""


def problems(batch: int) -> Lane:
    """The numbers of a batch of problems, and where to start."""
    rng = np.random.default_rng(0)

    def normal(n: int) -> np.ndarray:
        return rng.normal(size=(batch, n))

    s, hard = normal(UNKNOWNS), rng.uniform(size=(batch, 1)) < HARD
    made = {
        "w": normal(ROWS) * (0.5 + 2.4 * hard),
        "b": normal(ROWS) * 1.5 - 4 * ~hard,
        "d": abs(normal(UNKNOWNS)),
        "s": s,
        "q": normal(UNKNOWNS),
        "a": s + (0.02 + hard) * normal(UNKNOWNS),
    }
    return {k: jnp.asarray(x, jnp.float32) for k, x in made.items()}


def newton_round(matrices: tuple[Array, ...], c: Carry) -> Carry:
    """A step of Newton's method, shortened where its slope says so; none from the answer."""
    M, J, D, b, s = matrices
    a, done, rounds = c
    x = J @ a - b
    active = jnp.where(x < 0, D, 0)
    g = M @ (a - s) + J.T @ (active * x)
    done = done | (g @ g <= (3e-5 * jnp.trace(M)) ** 2)
    p = -cholesky_solve(cholesky(M + J.T @ (active[:, None] * J)), g)
    Jp, Mp = J @ p, M @ p
    y = x + Jp
    after = jnp.where(y < 0, D, 0)
    slope = p @ (M @ (a + p - s)) + (after * y) @ Jp
    shorter = jnp.clip(1 - slope / (p @ Mp + after @ Jp**2), 0.05, 1.0)
    step = jnp.where(slope <= -0.01 * (g @ p), 1.0, shorter) * p
    return jnp.where(done, a, a + step), done, rounds + jnp.where(done, 0, 1)


def solve(lane: Lane, unrolled: int = 0, branch: bool = False) -> tuple[Array, Array]:
    """The answer, and the rounds that it took.

    Args:
        lane: one problem.
        unrolled: rounds before the loop.
        branch: whether the loop stands in a branch that is taken by those who need it.
    """
    c, d = jnp.cos(lane["q"]), lane["d"]
    M = _M * (1 + 0.2 * jnp.outer(c, c)) + jnp.diag(d)
    J = _J * (1 + 0.1 * jnp.outer(jnp.sin(lane["w"]), c))
    matrices = M, J, jnp.exp(lane["w"]), lane["b"], lane["s"]
    carry: Carry = lane["a"], ~jnp.any(lane["b"] < 1e9), jnp.int32(0)
    for _ in range(unrolled):
        carry = newton_round(matrices, carry)

    def rest(carry: Carry) -> Carry:
        return lax.while_loop(
            lambda c: ~c[1] & (c[2] < MOST_ROUNDS), partial(newton_round, matrices), carry
        )

    a, _, rounds = lax.cond(carry[1], lambda c: c, rest, carry) if branch else rest(carry)
    return a, rounds


def steps(lane: Lane) -> tuple[Array, Array]:
    """Problems one after the other, each of which begins with the last one's answer."""

    def step(c: tuple[Lane, Array], _: None) -> tuple[tuple[Lane, Array], None]:
        lane, total = c
        a, rounds = solve(lane)
        s = lane["s"] + 0.3 * jnp.sin(3 * a + lane["q"])
        return (lane | {"a": a, "s": s, "q": lane["q"] + 0.01 * a}, total + rounds), None

    (lane, total), _ = lax.scan(step, (lane, jnp.int32(0)), length=STEPS)
    return lane["a"], total


FORMS: dict[str, tuple[Callable[[Lane], Any], bool]] = {
    "loop, by vectors": (solve, False),
    "3 rounds, loop, by vectors": (partial(solve, unrolled=3), False),
    "3 rounds, loop in a branch": (partial(solve, unrolled=3, branch=True), False),
    "loop, refilled": (solve, True),
    "1 round, loop, refilled": (partial(solve, unrolled=1), True),
    "2 rounds, loop, refilled": (partial(solve, unrolled=2), True),
    "3 rounds, loop, refilled": (partial(solve, unrolled=3), True),
    f"{STEPS} steps, by vectors": (steps, False),
    f"{STEPS} steps, refilled": (steps, True),
}
"""What is measured, and whether lanes are refilled."""


def turns(rounds: np.ndarray, width: int) -> float:
    """The turns that refilled lanes need for each vector, by the rounds that each of them takes."""
    count = 0
    for waiting in np.split(
        rounds, range(width * gather.MOST_VECTORS, len(rounds), width * gather.MOST_VECTORS)
    ):
        queue = waiting.tolist()
        lanes, queue = queue[:width], queue[width:]
        while lanes:
            count += 1
            lanes = [n - 1 for n in lanes if n > 1]
            lanes += [queue.pop(0) for _ in range(min(width - len(lanes), len(queue)))]
    return count * width / len(rounds)


def main() -> None:
    """Measure all forms, and print the table."""
    set_threads(1)
    lanes, console, overhead = problems(BATCH), Console(width=110), refill.OVERHEAD
    table = Table("form", "operations", "rarely", "compiled in, s", "time, ms", "rounds")
    calls, reports, results, building = {}, {}, {}, {}
    times = {name: [np.inf] for name in FORMS}
    for name, (form, refilled) in FORMS.items():
        refill.OVERHEAD = overhead if refilled else -1.0
        fn = partial(form)  # its own kernel
        began = time.process_time()
        reports[name] = explain(fn, "native")(lanes)
        building[name] = time.process_time() - began
        calls[name] = fuse(fn, "native")
        results[name] = jax.block_until_ready(calls[name](lanes))
    for _ in range(MEASUREMENTS):
        for name, call in calls.items():
            began = time.process_time()
            jax.block_until_ready(call(lanes))
            times[name].append(time.process_time() - began)
    for name, report in reports.items():
        compiled = f"{building[name]:.1f}" + " (cached)" * report.cached
        table.add_row(
            name, str(report.operations_after), str(report.operations_rare), compiled,
            f"{1e3 * min(times[name]):.1f}", f"{np.mean(results[name][1]):.2f}",
        )  # fmt: skip
    console.print(table)
    rounds, width = np.asarray(results["loop, refilled"][1]) + 1, 16
    most = rounds.reshape(-1, width).max(1)
    console.print(
        f"rounds with the last check: mean {rounds.mean():.2f}, most {rounds.max()}, mean of the "
        f"largest of {width} {most.mean():.2f}; refilled {turns(rounds, width):.2f}"
    )
    same = np.array_equal(results["loop, by vectors"][0], results["loop, refilled"][0])
    console.print(f"refilled or not, the same bits: {same}")


if __name__ == "__main__":
    main()
