"""Proximal policy optimisation with rejax, in rounds that can be interrupted and resumed."""

from __future__ import annotations

import dataclasses
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..checkpoint import load_pytree, save_pytree, write_atomic
from ..errors import CheckpointError, import_extra
from ..registry import make
from ..wrappers import FiveTuple
from .config import TrainConfig, load_config, save_config
from .evaluation import evaluate
from .policy import Policy

if TYPE_CHECKING:
    from ..envs import Environment, EnvParams

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
            `train_seconds`, `steps_per_second`, `return`, `success`, `position_error`.

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
    state = init_state(algorithm, config.seed)
    done, train_seconds = 0, 0.0
    if resume and (run / CHECKPOINT).exists():
        state, metadata = load_pytree(run / CHECKPOINT, state)
        done, train_seconds = int(metadata["round"]), float(metadata["train_seconds"])
        _check_resumable(load_config(run / CONFIG), config)
    save_config(run / CONFIG, config)
    _truncate_metrics(run / METRICS, done)

    next_round = jax.jit(algorithm.train)
    with _interrupt_between_rounds() as interrupted:
        for index in range(done, config.rounds):
            start = time.perf_counter()
            state, evaluation = next_round(train_state=state)
            evaluation = jax.device_get(evaluation)  # waits for the round to end
            seconds = time.perf_counter() - start
            train_seconds += seconds
            metrics: Metrics = {
                "round": index + 1,
                "step": (index + 1) * config.round_timesteps,
                "train_seconds": train_seconds,
                "steps_per_second": config.round_timesteps / seconds,
                **{name: float(value[0]) for name, value in evaluation.items()},
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


def create_algorithm(config: TrainConfig, env: Environment, params: EnvParams) -> Any:
    """PPO of rejax for a configuration; one call of its `train` is one round."""
    rejax = import_extra("rejax", "train", "Training")

    def measure(algorithm: Any, state: Any, key: Array) -> dict[str, Array]:
        policy = Policy(algorithm.actor, state.actor_ts.params)
        result = evaluate(env, params, policy, key, config.eval_episodes)
        return {
            "return": jnp.mean(result.episode_return),
            "success": jnp.mean(result.success.astype(float)),
            "position_error": jnp.median(result.position_error),
        }

    algorithm = rejax.PPO.create(
        env=FiveTuple(env),
        env_params=params,
        num_envs=config.num_envs,
        num_steps=config.num_steps,
        num_epochs=config.num_epochs,
        num_minibatches=config.num_minibatches,
        learning_rate=config.learning_rate,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        clip_eps=config.clip_eps,
        ent_coef=config.ent_coef,
        vf_coef=config.vf_coef,
        max_grad_norm=config.max_grad_norm,
        agent_kwargs={
            "hidden_layer_sizes": config.hidden_layer_sizes,
            "activation": config.activation,
        },
        total_timesteps=config.round_timesteps,
        eval_freq=config.round_timesteps,
        skip_initial_evaluation=True,
    )
    return algorithm.replace(eval_callback=measure)


def init_state(algorithm: Any, seed: int) -> Any:
    """The algorithm's initial state, with strongly typed leaves."""
    # A raw key, because a typed one cannot be written to disk as numbers.
    state = algorithm.init_state(jax.random.PRNGKey(seed))
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.asarray(x).dtype), state)


@contextmanager
def _interrupt_between_rounds() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a question that is asked between rounds."""
    asked = False

    def handler(signum: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        print("\nStopping after this round; Ctrl-C again stops at once.", flush=True)

    try:
        before = signal.signal(signal.SIGINT, handler)
    except ValueError:  # not the main thread: there is no Ctrl-C to catch
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


_MAY_CHANGE = ("total_timesteps", "final_episodes")


def _check_resumable(stored: TrainConfig, asked: TrainConfig) -> None:
    changed = [
        f.name
        for f in dataclasses.fields(TrainConfig)
        if f.name not in _MAY_CHANGE and getattr(stored, f.name) != getattr(asked, f.name)
    ]
    if changed:
        raise CheckpointError(
            f"cannot resume with other values of {', '.join(changed)}: only "
            f"{' and '.join(_MAY_CHANGE)} may change. Leave them out, or start a new run."
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


def final_evaluation(
    config: TrainConfig, env: Environment, params: EnvParams, policy: Policy
) -> Any:
    """Evaluate on goals with fixed seeds that training never draws from; NumPy arrays."""
    key = jax.random.PRNGKey(np.uint32(0x5EED))
    run = jax.jit(lambda policy: evaluate(env, params, policy, key, config.final_episodes))
    return jax.tree.map(np.asarray, run(policy))
