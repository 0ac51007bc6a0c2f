"""The algorithms, rejax's and those built on it, made from configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..envs import Environment, EnvParams
from ..errors import ConfigError, import_extra, unknown_name
from ..wrappers import FiveTuple
from .config import COPIED, BCConfig, DAggerConfig, TrainConfig
from .evaluation import evaluate
from .policy import Policy

_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "ppo": (
        "num_steps",
        "num_epochs",
        "num_minibatches",
        "gae_lambda",
        "clip_eps",
        "ent_coef",
        "vf_coef",
        "max_grad_norm",
        "settling",
    ),
    "sac": ("num_epochs", "batch_size", "buffer_size", "fill_buffer", "polyak"),
    "apg": ("num_steps", "initial_std", "max_grad_norm"),
    "shac": (
        "num_steps",
        "initial_std",
        "max_grad_norm",
        "num_epochs",
        "num_minibatches",
        "td_lambda",
        "polyak",
    ),
    "bc": ("chunk", "batch_size", "updates_per_round"),
    "dagger": (
        "chunk",
        "batch_size",
        "updates_per_round",
        "num_steps",
        "num_epochs",
        "buffer_size",
    ),
}
"""Options of each algorithm that it names as our configurations do, besides the common ones."""

_BY_GRADIENT = ("apg", "shac")
"""Algorithms that differentiate the environment."""

_SQUASHED = ("sac", "apg", "shac")
"""Algorithms whose policies are brought into the action space by the hyperbolic tangent."""


def create_algorithm(config: TrainConfig, env: Environment, params: EnvParams) -> Any:
    """The algorithm of a configuration; one call of its `train` is one round.

    Raises:
        ConfigError: it needs gradients that the environment does not have.
        MissingExtraError: the extra `train` is not installed.
    """
    import_extra("rejax", "train", "Training")
    import flax.linen

    from .apg import APG
    from .bc import BC
    from .dagger import DAgger
    from .ppo import PPO
    from .sac import SAC
    from .shac import SHAC

    by_gradient = config.algorithm in _BY_GRADIENT
    if by_gradient and not env.supports_transition_gradients:
        raise ConfigError(
            f"algorithm={config.algorithm!r} differentiates the environment, and {env.name} has no "
            "gradients. Choose 'ppo' or 'sac'."
        )

    def measure(algorithm: Any, state: Any, key: Array) -> dict[str, Array]:
        policy = policy_of(config, algorithm, state.actor_ts.params)
        result = evaluate(env, params, policy, key, config.eval_episodes)
        return {
            "return": jnp.mean(result.episode_return),
            "success": jnp.mean(result.success.astype(float)),
            **{name: jnp.median(x) for name, x in result.measures.items()},
            **({"lost_gradients": state.lost_gradients} if by_gradient else {}),
        }

    names = ["num_envs", "learning_rate", "gamma", *_OPTIONS[config.algorithm]]
    network: dict[str, Any] = {"activation": config.activation}
    sizes: dict[str, Any] = {"hidden_layer_sizes": config.hidden_layer_sizes}
    # SAC takes the sizes from beside the rest of the network's options, PPO from among them.
    kind: Any = PPO
    own: dict[str, Any] = {"agent_kwargs": network | sizes}
    if config.algorithm == "sac":
        kind, own = SAC, {"agent_kwargs": network, **sizes}
    elif config.algorithm == "ppo":
        own["num_updates"] = config.rounds * config.updates_per_round
    elif by_gradient:
        kind = {"apg": APG, "shac": SHAC}[config.algorithm]
        own["agent_kwargs"]["activation"] = getattr(flax.linen, config.activation)
        own["num_updates"] = config.rounds * config.updates_per_round
        env = env.with_transition_gradients()
    elif isinstance(config, BCConfig):
        own["agent_kwargs"]["activation"] = getattr(flax.linen, config.activation)
        own["num_updates"] = config.rounds * config.updates_per_round
        own["hidden"] = _hidden(config, env)
        if isinstance(config, DAggerConfig):
            kind = DAgger
            own["num_updates"] *= config.num_epochs
        else:
            kind = BC
            names.remove("num_envs")
    algorithm = kind.create(
        env=FiveTuple(env),
        env_params=params,
        **{name: getattr(config, name) for name in names},
        **own,
        total_timesteps=config.round_timesteps,
        eval_freq=config.round_timesteps,
        skip_initial_evaluation=True,
    )
    return algorithm.replace(eval_callback=measure)


def _hidden(config: BCConfig, env: Environment) -> tuple[int, ...]:
    """The numbers of observations whose terms are hidden.

    Raises:
        UnknownNameError: the environment has no such term, nor has any by default.
    """
    layout = env.observation_layout
    for name in config.hidden:
        if name not in layout and name not in COPIED:
            raise unknown_name("observation term", name, layout, f"of {env.name}")
    return _numbers(config.hidden, env)


def _numbers(names: tuple[str, ...], env: Environment) -> tuple[int, ...]:
    """Which numbers of an observation are of these terms."""
    terms = [name for name, size in env.observation_layout.items() for _ in range(size)]
    return tuple(i for i, name in enumerate(terms) if name in names)


def with_demonstrations(
    algorithm: Any, config: TrainConfig, env: Environment, params: EnvParams
) -> Any:
    """The algorithm with what it learns from, if that is demonstrations.

    Apart from `create_algorithm`, since a policy that is only loaded needs none.

    Raises:
        CheckpointError: a recording cannot be read, or is of another environment.
        ConfigError: there are too few demonstrations, or there is no expert to draw them from.
    """
    if not isinstance(config, BCConfig):
        return algorithm
    from ..recording.scripted import expert_policy, seen_by_expert
    from .demonstrations import demonstrations

    algorithm = algorithm.replace(demonstrations=demonstrations(config, env, params))
    asks = isinstance(config, DAggerConfig)
    if asks:
        algorithm = algorithm.replace(expert=expert_policy(env, params))
    if config.hidden:
        return algorithm
    hidden: tuple[str, ...] = COPIED
    if asks or not config.recording:
        seen = seen_by_expert(env, params)
        hidden = tuple(name for name in env.observation_layout if name not in seen)
    return algorithm.replace(hidden=_numbers(hidden, env))


def policy_of(config: TrainConfig, algorithm: Any, weights: Any) -> Policy:
    """The deterministic policy of an algorithm's actor with these weights."""
    return Policy(algorithm.actor, weights, squashed=config.algorithm in _SQUASHED)


def init_state(algorithm: Any, seed: int) -> Any:
    """The algorithm's initial state, with strongly typed leaves."""
    # A raw key, because a typed one cannot be written to disk as numbers. One program: operation by
    # operation, networks' weights are sixty to compile.
    return _strongly_typed(jax.jit(algorithm.init_state)(jax.random.PRNGKey(seed)))


def weights_like(algorithm: Any) -> Any:
    """Weights of the actor in the shapes that `init_state` makes them, zero."""
    networks = jax.eval_shape(algorithm.initialize_network_params, jax.random.PRNGKey(0))
    return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), networks["actor_ts"].params)


def _strongly_typed(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.asarray(x).dtype), tree)
