"""A trained policy, as a function of the observation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array

from ..checkpoint import load_pytree
from .config import TrainConfig, load_config

if TYPE_CHECKING:
    from ..envs import Environment, EnvParams

CHECKPOINT = "checkpoint.npz"
POLICY = "policy.npz"
CONFIG = "config.yaml"


@partial(jax.tree_util.register_dataclass, data_fields=["weights"], meta_fields=["actor"])
@dataclass(frozen=True)
class Policy:
    """A deterministic policy: the mean of the trained Gaussian, clipped to the action space.

    Attributes:
        actor: rejax's policy network.
        weights: its parameters.
    """

    actor: Any
    weights: Any

    def __call__(self, obs: Array) -> Array:
        """Action (k,) in [-1, 1] for an observation (n,)."""

        def mean(actor: Any, x: Array) -> Array:
            return actor.action_mean(actor.features(x))  # type: ignore[no-any-return]

        action = self.actor.apply(self.weights, obs[None], method=mean)[0]
        return jnp.clip(action, -1.0, 1.0)


def load_policy(run: str | Path) -> tuple[Policy, Environment, EnvParams, TrainConfig]:
    """The policy of a training run, and the environment it was trained on.

    Args:
        run: the run's folder, e.g. `runs/PandaReach-v0`.

    Raises:
        CheckpointError: the run has no policy, or a damaged one.
        ConfigError: the run's configuration cannot be read.
    """
    from .ppo import create_algorithm, init_state, make_env

    run = Path(run)
    config = load_config(run / CONFIG)
    env, params = make_env(config)
    algorithm = create_algorithm(config, env, params)
    template = init_state(algorithm, config.seed).actor_ts.params
    weights, _ = load_pytree(run / POLICY, template)
    return Policy(algorithm.actor, weights), env, params, config
