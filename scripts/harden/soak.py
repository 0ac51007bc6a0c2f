"""Many steps of hard use: whatever the actions are, nothing may break, grow or be compiled again.

Batches of environments with everything randomised, half of them with random actions, the others
with adversarial ones: full deflections that hold for a while and then reverse, numbers far out of
range, infinities and NaNs. Counts what must not happen; exits 1 if any of it did. The results are
in docs/reliability.md.

    python scripts/harden/soak.py --steps 100000000
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import tyro
from jax import Array
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import fraxenv
from fraxenv.making.make import load_env_config
from fraxenv.storage.files import write_atomic

RANDOMISED = load_env_config("panda-reach-everything")["randomisation"]
HOLD = 16
"""Policy steps for which a full deflection lasts."""

NEVER = ("non-finite", "outside the space", "torque beyond limit", "unexplained divergence")
COMPILED = "/jax/core/compile/backend_compile_duration"


@dataclass(frozen=True)
class Options:
    """Options of the soak."""

    ids: tuple[str, ...] = ("PandaReach-v0", "PandaReachObstacles-v0")
    """Environments, one after the other."""
    steps: int = 100_000_000
    """Environment steps of all of them together."""
    batch: int = 4096
    """Environments in a batch."""
    seed: int = 0
    """Seed of everything."""
    output: Path | None = None
    """A JSON file for the counts."""


def actions(key: Array, t: Array, shape: tuple[int, int]) -> Array:
    """Actions (n, k): random ones, full deflections, far out of range, and seldom not finite."""
    n, _ = shape
    key_kind, key_some, key_bad, key_which = jax.random.split(key, 4)
    drawn = jax.random.uniform(key_some, shape, minval=-1.0, maxval=1.0)
    # The same for HOLD steps, for each environment and axis another sign.
    held = jnp.sign(jax.random.uniform(jax.random.key(t // HOLD), shape, minval=-1.0))
    adversarial = jnp.where(jnp.arange(n)[:, None] % 4 == 3, 1e30 * held, held)
    action = jnp.where(jnp.arange(n)[:, None] % 2 == 0, drawn, adversarial)
    bad = jnp.array([jnp.nan, jnp.inf, -jnp.inf])[jax.random.randint(key_which, shape, 0, 3)]
    strikes = jax.random.uniform(key_bad, (n, 1)) < 1e-3
    one_axis = jax.random.uniform(key_kind, shape) < 0.3
    return jnp.where(strikes & one_axis, bad, action)


def soak(id: str, steps: int, options: Options, progress: Progress) -> dict[str, Any]:
    """Counts over that many steps of one environment."""
    env, params = fraxenv.make(id, randomisation=RANDOMISED)
    n, length = options.batch, 50
    limit = jnp.asarray(env.robot.effort_limits, jnp.float32)
    space = env.observation_space(params)

    @partial(jax.jit, donate_argnums=0)
    def roll(state: Any, key: Array, start: Array) -> tuple[Any, dict[str, Array]]:
        def step(state: Any, x: tuple[Array, Array]) -> tuple[Any, dict[str, Array]]:
            key, t = x
            key_action, key_step = jax.random.split(key)
            action = actions(key_action, t, (n, env.num_actions))
            obs, state, reward, terminated, truncated, info = jax.vmap(env.step, (0, 0, 0, None))(
                jax.random.split(key_step, n), state, action, params
            )
            numbers = [x for x in jax.tree.leaves((obs, state, reward, info)) if _is_float(x)]
            finite = jnp.stack([jnp.all(_finite(x).reshape(n, -1), axis=1) for x in numbers]).all(
                axis=0
            )
            inside = jnp.all((obs >= space.low) & (obs <= space.high), axis=1)
            refused = ~jnp.all(jnp.isfinite(action), axis=1)
            beyond = jnp.any(jnp.abs(info["controller"]["torque"]) > limit, axis=1)
            return state, {
                "non-finite": jnp.sum(~finite),
                "outside the space": jnp.sum(~inside),
                "torque beyond limit": jnp.sum(beyond),
                "unexplained divergence": jnp.sum(info["diverged"] & ~refused),
                "actions refused": jnp.sum(refused),
                "episodes truncated": jnp.sum(truncated),
                "episodes terminated": jnp.sum(terminated),
                "filter intervened": jnp.sum(info["safety"]["intervened"]),
                "barrier below zero": jnp.sum(info["safety"]["min_barrier"] < 0),
            }

        times = start + jnp.arange(length)
        state, counts = jax.lax.scan(step, state, (jax.random.split(key, length), times))
        return state, jax.tree.map(jnp.sum, counts)

    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if event == COMPILED else None
    )
    key = jax.random.key(options.seed)
    _, state = jax.jit(jax.vmap(env.reset, (0, None)))(jax.random.split(key, n), params)
    rounds = -(-steps // (n * length))
    task = progress.add_task(id, total=rounds)
    total: dict[str, int] = {}
    programs = memory = 0
    began = time.perf_counter()
    for k in range(rounds):
        state, counts = roll(state, jax.random.fold_in(key, k), jnp.int32(k * length))
        for name, count in counts.items():
            total[name] = total.get(name, 0) + int(count)
        progress.update(task, advance=1)
        if k == 1:  # by then everything has been compiled and laid out
            programs, memory = len(compiled), _memory()
    return {
        "id": id,
        "steps": rounds * n * length,
        **total,
        "programs compiled after the second round": len(compiled) - programs if rounds > 1 else 0,
        "memory grown, MiB": round(_memory() - memory, 1) if rounds > 1 else 0.0,
        "seconds": round(time.perf_counter() - began, 1),
    }


def _is_float(x: Array) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def _finite(x: Array) -> Array:
    # A barrier that does not exist is infinitely far away.
    return jnp.isfinite(x) | (x == jnp.inf)


def _memory() -> float:
    """Largest resident memory so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = tyro.cli(Options, args=argv)
    share = -(-options.steps // len(options.ids))
    with Progress(transient=True) as progress:
        results = [soak(id, share, options, progress) for id in options.ids]
    table = Table("", *(r["id"] for r in results))
    for name in [k for k in results[0] if k != "id"]:
        table.add_row(name, *(f"{r[name]:,}" for r in results))
    Console().print(table)
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(options.output, json.dumps(results, indent=2).encode())
        print(f"Written to {options.output}")
    never = (*NEVER, "programs compiled after the second round")
    broken = [f"{r['id']}: {name}: {r[name]}" for r in results for name in never if r[name]]
    broken += [
        f"{r['id']}: memory grew by {r['memory grown, MiB']} MiB"
        for r in results
        if r["memory grown, MiB"] > 64
    ]
    for line in broken:
        print(line, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
