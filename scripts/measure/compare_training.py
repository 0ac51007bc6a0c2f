"""What the safety filter and domain randomisation are worth: policies trained with and without.

Trains policies by the presets, with several seeds each, and evaluates them on episodes that they
never saw. The results are in docs/environments.md.

    python scripts/measure/compare_training.py --output runs/compare_training
"""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from rich.console import Console
from rich.progress import Progress, track
from rich.table import Table

import fraxenv
from fraxenv.storage.files import write_atomic
from fraxenv.training import TrainConfig, load_policy, train
from fraxenv.training.config import preset
from fraxenv.training.rounds import Metrics

FILTER_OFF: dict[str, Any] = {"safety": "none"}
RANDOMISED: dict[str, Any] = {
    "randomisation": {
        "link_mass": [0.7, 1.3],
        "payload": [0.0, 1.0],
        "action_delay": [0.0, 0.02],
    }
}
HARDEST: dict[str, Any] = {
    "randomisation": {
        "link_mass": [0.7, 1.3],
        "payload": [1.0, 1.0],
        "action_delay": [0.02, 0.02],
    }
}
"""+-30 % link mass, a payload of 1 kg that the controller does not know of, 20 ms of delay."""
MARGIN: dict[str, Any] = {
    "randomisation": {
        "link_mass": [0.6, 1.4],
        "payload": [0.0, 1.5],
        "action_delay": [0.0, 0.02],
    }
}


@dataclass(frozen=True)
class Row:
    """A kind of policy: what it is trained on, and what it is evaluated on."""

    name: str
    env: str
    algorithm: str = "ppo"
    training: dict[str, Any] = field(default_factory=dict)
    evaluation: dict[str, Any] = field(default_factory=dict)
    total_timesteps: int | None = None
    """Environment steps of its training; the preset's if None."""


ROWS = (
    Row("obstacles, filter on", "PandaReachObstacles-v0"),
    Row("obstacles, filter off", "PandaReachObstacles-v0", "ppo", FILTER_OFF, FILTER_OFF),
    Row("obstacles, by gradient", "PandaReachObstacles-v0", "shac"),
    *(
        Row(f"{name}, {algorithm.upper()}", "PandaReach-v0", algorithm, training, HARDEST)
        for algorithm in ("sac", "ppo")
        for name, training in (("randomised", RANDOMISED), ("not randomised", {}))
    ),
    Row("randomised with a margin, PPO", "PandaReach-v0", "ppo", MARGIN, HARDEST, 2_000_000),
)


@dataclass(frozen=True)
class Options:
    """Options of the comparison."""

    output: Path = Path("runs/compare_training")
    """Folder for the runs and the results."""
    episodes: int = 10_000
    """Episodes of each evaluation."""
    total_timesteps: int | None = None
    """Environment steps of each training; the row's if omitted."""
    rows: tuple[str, ...] = ()
    """Names of rows; all if omitted."""
    seeds: int = 3
    """Trainings of each row, with the seeds 0, 1, 2 and so on."""


def measure(row: Row, seed: int, options: Options) -> dict[str, Any]:
    """Train a policy, or finish its run if there is one, and evaluate it."""
    run = options.output / f"{row.name.replace(', ', '-').replace(' ', '-')}-{seed}"
    config = preset(row.env, row.algorithm)
    steps = options.total_timesteps or row.total_timesteps or config.total_timesteps
    config = dataclasses.replace(config, seed=seed, overrides=row.training, total_timesteps=steps)
    trained(config, run)
    policy, *_ = load_policy(run)
    env, params = fraxenv.make(row.env, **row.evaluation)
    chunk = min(1000, options.episodes)
    length = int(np.asarray(params.max_steps_in_episode))

    @jax.jit
    def episodes(key: Array) -> dict[str, Array]:
        keys = jax.random.split(key, chunk)
        obs, state = jax.vmap(env.reset, (0, None))(keys, params)

        def step(carry: tuple[Any, ...], key: Array) -> tuple[tuple[Any, ...], None]:
            obs, state, nearest, _ = carry
            keys = jax.random.split(key, chunk)
            actions = jax.vmap(policy)(obs)
            obs, state, _, _, info = jax.vmap(env.step_env, (0, 0, 0, None))(
                keys, state, actions, params
            )
            if "clearance" in info:
                nearest = jnp.minimum(nearest, info["clearance"])
            return (obs, state, nearest, (info["success"], info["position_error"])), None

        far = jnp.full(chunk, jnp.inf, state.q.dtype)
        carry = (obs, state, far, (jnp.zeros(chunk, bool), jnp.zeros_like(far)))
        (_, _, nearest, (success, error)), _ = jax.lax.scan(
            step, carry, jax.random.split(key, length)
        )
        return {"success": success, "nearest": nearest, "error": error}

    keys = jax.random.split(jax.random.key(0x5EED), options.episodes // chunk)
    found = [
        jax.device_get(episodes(k)) for k in track(keys, f"{row.name}: evaluating", transient=True)
    ]
    joined = {k: np.concatenate([f[k] for f in found]) for k in found[0]}
    return {
        "name": row.name,
        "seed": seed,
        "episodes": len(joined["success"]),
        "success": float(joined["success"].mean()),
        "collisions": int((joined["nearest"] < 0).sum()),
        "nearest_mm": float(1e3 * joined["nearest"].min()),
        "median_error_mm": float(1e3 * np.median(joined["error"])),
    }


def trained(config: TrainConfig, run: Path) -> None:
    with Progress(transient=True) as progress:
        rounds = progress.add_task(f"training into {run}", total=config.rounds)

        def show(metrics: Metrics) -> None:
            progress.update(rounds, completed=metrics["round"])

        if not train(config, run, resume=True, on_round=show):
            raise KeyboardInterrupt


def main() -> int:
    """Run the command line; returns the exit status."""
    options = tyro.cli(Options)
    names = [row.name for row in ROWS]
    for name in options.rows:
        if name not in names:
            print(f"unknown row {name!r}, expected some of {', '.join(names)}", file=sys.stderr)
            return 2
    rows = [r for r in ROWS if not options.rows or r.name in options.rows]
    results = [measure(row, seed, options) for row in rows for seed in range(options.seeds)]
    table = Table(
        "policy", "success", f"collisions in {options.episodes:,} episodes", "nearest, mm",
        "median error, mm",
    )  # fmt: skip
    for row in rows:
        of_row = [r for r in results if r["name"] == row.name]
        table.add_row(
            row.name,
            " / ".join(f"{100 * r['success']:.1f} %" for r in of_row),
            " / ".join(f"{r['collisions']:,}" for r in of_row),
            " / ".join(f"{r['nearest_mm']:.1f}" for r in of_row),
            " / ".join(f"{r['median_error_mm']:.1f}" for r in of_row),
        )
    Console().print(table)
    path = options.output / "results.json"
    write_atomic(path, json.dumps(results, indent=2).encode())
    print(f"Written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
