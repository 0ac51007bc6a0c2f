"""Recorded states to begin episodes at."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..envs import Environment, EnvParams, EnvState
from ..errors import ConfigError, check_count
from .record import Recording
from .replay import opened, visited


def recorded_starts(
    recording: Recording,
    key: Array,
    *,
    size: int = 1024,
    share: float = 1.0,
    env: Environment | None = None,
    params: EnvParams | None = None,
) -> tuple[Array, EnvState]:
    """A pool of initial states of which some are states of demonstrations.

    >>> pool = recorded_starts(recording, key, size=4096, share=0.05)
    >>> params = params.replace(reset_pool=pool)

    and every `reset` draws from it. States are of all the recording's `episodes()`, each as likely
    as any other, but for those in which the task is solved; time begins anew. Where it cannot be
    learnt from the beginning, it can from the end.

    Source: Nair et al., "Overcoming exploration in reinforcement learning with demonstrations",
    ICRA 2018, section IV-D.

    Args:
        recording: with `success` among its `infos`.
        key: decides which; typed or raw.
        size: of the pool.
        share: of the pool that is recorded, in (0, 1]; the rest is drawn as resets are.
        env: as of `replay`.
        params: as of `replay`.

    Returns:
        Observations and states (size, ...).

    Raises:
        ConfigError: an argument has a value that it cannot have, or there is no state to begin at.
        CheckpointError: the environment or the parameters are not those of the recording.
    """
    check_count("size", size, of="states")
    if not 0.0 < share <= 1.0:
        raise ConfigError(f"share={share}, expected a number above 0, and at most 1.")
    count = max(1, round(share * size))
    at = _unsolved(recording)
    chosen = at[np.asarray(jax.random.randint(key, (count,), 0, len(at)))]
    env, own, key_recorded, state = opened(recording, env, params)

    parts: list[tuple[Any, EnvState]] = []
    for t, states in enumerate(visited(recording, env, own, key_recorded, state)):
        rows = chosen[chosen[:, 0] == t, 1]
        if rows.size:
            seen = jax.tree.map(lambda x, t=t, rows=rows: x[t, rows], recording.observations)
            parts.append((seen, jax.tree.map(lambda x, rows=rows: x[rows], states)))
    obs, states = jax.tree.map(lambda *x: jnp.concatenate([jnp.asarray(a) for a in x]), *parts)
    pool: tuple[Array, EnvState] = obs, states.replace(time=jnp.zeros_like(states.time))
    if count < size:
        fresh = env.draw_pool(jax.random.fold_in(key, 1), own, size - count)
        pool = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), pool, fresh)
    return pool


def _unsolved(recording: Recording) -> np.ndarray:
    """Step and environment (k, 2) of the states before steps in which the task is not solved."""
    if "success" not in recording.infos:
        raise ConfigError(
            f"the recording tells no success: it kept {', '.join(recording.infos) or 'nothing'} of "
            "infos, and states that are solved are no beginning. Record with 'success' among them."
        )
    found = [
        (episode.first_step + i, episode.environment)
        for episode in recording.episodes()
        for i, solved in enumerate([False, *episode.infos["success"][:-1]])
        if not solved
    ]
    if not found:
        raise ConfigError(
            "the recording has no whole episode to begin in, expected at least one, and a "
            "successful one if only those count. Record more."
        )
    return np.array(found)
