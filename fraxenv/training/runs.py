"""Reading back what a training run left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..checkpoint import load_pytree
from .config import TrainConfig, load_config
from .policy import Policy
from .ppo import CONFIG, POLICY, create_algorithm, init_state, make_env

if TYPE_CHECKING:
    from ..envs import Environment, EnvParams


def load_policy(run: str | Path) -> tuple[Policy, Environment, EnvParams, TrainConfig]:
    """The policy of a training run, and the environment it was trained on.

    Args:
        run: the run's folder, e.g. `runs/PandaReach-v0`.

    Raises:
        CheckpointError: the run has no policy, or a damaged one.
        ConfigError: the run's configuration cannot be read.
    """
    run = Path(run)
    config = load_config(run / CONFIG)
    env, params = make_env(config)
    algorithm = create_algorithm(config, env, params)
    template = init_state(algorithm, config.seed).actor_ts.params
    weights, _ = load_pytree(run / POLICY, template)
    return Policy(algorithm.actor, weights), env, params, config
