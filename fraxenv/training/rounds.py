"""Training in rounds that can be interrupted and resumed."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp

from ..envs import Environment, EnvParams
from ..errors import CheckpointError
from ..interrupt import interruptible
from ..making.make import make
from ..storage.files import write_atomic
from ..storage.pytrees import load_pytree, save_pytree
from .algorithms import create_algorithm, init_state, with_demonstrations
from .compiler import compiled_round
from .config import TrainConfig, load_config, save_config

CONFIG = "config.yaml"
CHECKPOINT = "checkpoint.npz"
POLICY = "policy.npz"
METRICS = "metrics.jsonl"

Metrics = dict[str, float]


def train(
    config: TrainConfig,
    run: str | Path,
    *,
    resume: bool = False,
    on_round: Callable[[Metrics], None] = lambda metrics: None,
) -> bool:
    """Train a policy and leave it in a folder.

    After every round the folder holds a checkpoint, the policy so far and one more line of
    `metrics.jsonl`. Ctrl-C ends the run after the round that is under way; a second one at once,
    which costs that round only.

    Args:
        config: what to train.
        run: the folder; must not hold another run unless `resume`.
        resume: continue from the folder's checkpoint.
        on_round: called with the metrics of every round, as they are written: `step`, `round`,
            `train_seconds`, `steps_per_second`, `return`, `success`, and the medians of the task's
            measures by name; of algorithms that differentiate the environment `lost_gradients`, how
            many steps so far had a gradient that is not finite.

    Returns:
        Whether the run is complete: False if it was interrupted.

    Raises:
        CheckpointError: the folder holds a run and `resume` is not asked for, or the checkpoint
            does not fit the configuration.
        MissingExtraError: the extra `train` is not installed.
    """
    run = Path(run)
    if (run / CHECKPOINT).exists() and not resume:
        raise CheckpointError(
            f"{run}: there is a run in this folder already. Continue it with --resume, or choose "
            "another --name."
        )
    env, params = make_env(config)
    algorithm = create_algorithm(config, env, params)
    algorithm = with_demonstrations(algorithm, config, env, params)
    state = init_state(algorithm, config.seed)
    done, train_seconds = 0, 0.0
    if resume and (run / CHECKPOINT).exists():
        _check_resumable(load_config(run / CONFIG), config)
        state, metadata = load_pytree(run / CHECKPOINT, state)
        done, train_seconds = int(metadata["round"]), float(metadata["train_seconds"])
    save_config(run / CONFIG, config)
    _truncate_metrics(run / METRICS, done)
    for torn in run.glob(".*.npz.*"):  # of a process that was killed as it wrote
        torn.unlink()

    known = jax.tree.map(jnp.asarray, getattr(algorithm, "demonstrations", None))

    next_round = compiled_round(algorithm, config.algorithm, known)

    with interruptible("Stopping after this round") as interrupted:
        for index in range(done, config.rounds):
            start = time.perf_counter()
            state, evaluation = next_round(state)
            evaluation = jax.device_get(evaluation)  # waits for the round to end
            seconds = time.perf_counter() - start
            train_seconds += seconds
            metrics: Metrics = {
                "round": index + 1,
                "step": (index + 1) * config.round_timesteps,
                "train_seconds": train_seconds,
                "steps_per_second": config.round_timesteps / seconds,
                **{name: float(value) for name, value in evaluation.items()},
            }
            # The metrics first: should the process die in between, resuming drops the line.
            with (run / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(metrics) + "\n")
            save_pytree(run / POLICY, state.actor_ts.params)
            save_pytree(
                run / CHECKPOINT, state, {"round": index + 1, "train_seconds": train_seconds}
            )
            on_round(metrics)
            if interrupted():
                return index + 1 == config.rounds
    return True


def make_env(config: TrainConfig) -> tuple[Environment, EnvParams]:
    """The environment of a configuration."""
    return make(config.env, **config.overrides)


def _check_resumable(stored: TrainConfig, asked: TrainConfig) -> None:
    before, after = dataclasses.asdict(stored), dataclasses.asdict(asked)
    changed = [
        name
        for name in before | after
        if name not in asked.may_change and before.get(name) != after.get(name)
    ]
    if changed:
        raise CheckpointError(
            f"cannot resume with other values of {', '.join(changed)}: only "
            f"{' and '.join(asked.may_change)} may change. Leave them out, or start a new run."
        )


def _truncate_metrics(path: Path, rounds: int) -> None:
    """Keep the lines of the rounds that the checkpoint has."""
    if path.exists():
        lines = path.read_text("utf-8").splitlines(keepends=True)[:rounds]
        write_atomic(path, "".join(lines).encode())


def read_metrics(run: str | Path) -> list[Metrics]:
    """The metrics of a run, one entry per round."""
    path = Path(run) / METRICS
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
