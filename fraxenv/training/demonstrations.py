"""Demonstrations to learn from: of a recording, or drawn from the task's expert."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from ..envs import Environment, EnvParams
from ..errors import ConfigError
from ..recording import Episode, load_recording, record
from ..recording.scripted import expert_policy
from .bc import Demonstrations
from .config import BCConfig

SIDE_BY_SIDE = 1000
"""Environments, at most, in which the expert acts."""


def demonstrations(config: BCConfig, env: Environment, params: EnvParams) -> Demonstrations:
    """What a configuration says to learn from.

    Raises:
        CheckpointError: the recording cannot be read, or is of another environment.
        ConfigError: the recording has too few demonstrations or tells no success, the environment
            has no expert, or the expert failed always.
    """
    if config.recording:
        return joined(_recorded(config, env))
    return joined(_drawn(config, env, params))


def joined(episodes: list[Episode]) -> Demonstrations:
    """The steps of episodes, one after the other."""
    ends = np.cumsum([len(e) for e in episodes])
    last = np.repeat(ends - 1, [len(e) for e in episodes])
    return Demonstrations(
        observations=jnp.asarray(np.concatenate([e.observations[:-1] for e in episodes])),
        actions=jnp.asarray(np.concatenate([e.actions for e in episodes])),
        last=jnp.asarray(last),
    )


def _recorded(config: BCConfig, env: Environment) -> list[Episode]:
    """The first successful episodes of a recording, or of those in a folder."""
    path = Path(config.recording)
    files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    successful = itertools.chain.from_iterable(_successful(file, env) for file in files)
    episodes = list(itertools.islice(successful, config.demonstrations))
    if len(episodes) < config.demonstrations:
        raise ConfigError(
            f"{config.recording}: has {len(episodes)} successful episodes, expected "
            f"demonstrations={config.demonstrations}. Record more, or ask for fewer."
        )
    return episodes


def _successful(file: Path, env: Environment) -> Iterator[Episode]:
    recording = load_recording(file)
    recording.check_is_of(env, file)
    return (episode for episode in recording.episodes() if episode.success)


def _drawn(config: BCConfig, env: Environment, params: EnvParams) -> list[Episode]:
    """The successful ones of so many episodes of the expert."""
    share = -(-config.demonstrations // SIDE_BY_SIDE)
    num_envs = -(-config.demonstrations // share)
    recording = record(
        env,
        params,
        expert_policy(env, params),
        # Apart from the key of the weights.
        jax.random.fold_in(jax.random.key(config.seed), 1),
        episodes=num_envs * share,
        num_envs=num_envs,
        infos=["success", "diverged"],
        successful=True,
    )
    episodes = list(itertools.islice(recording.episodes(), config.demonstrations))
    if not episodes:
        raise ConfigError(
            f"the expert of {env.name} never succeeded in {num_envs * share} episodes, expected it "
            "to. Change the environment's options, or record another policy."
        )
    return episodes
