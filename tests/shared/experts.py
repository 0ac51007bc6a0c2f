"""Episodes of experts."""

from __future__ import annotations

import jax
import numpy as np

from fraxenv.recording.scripted import scripted_policy

N, STEPS = 64, 150


def rollout(env, params, n=N, seed=0, steps=STEPS):
    """First states, and by step the states, rewards and infos of the expert's episodes."""
    act = scripted_policy(env, params)
    keys = jax.random.split(jax.random.key(seed), n)

    @jax.jit
    @jax.vmap
    def step(key, obs, state):
        obs, state, reward, _, info = env.step_env(key, state, act(obs, key), params)
        return obs, state, reward, info

    obs, first = jax.vmap(lambda key: env.reset(key, params))(keys)
    state, results = first, []
    for _ in range(steps):
        obs, state, reward, info = step(keys, obs, state)
        results.append((state, reward, info))
    return first, results


def over_time(results, *names: str):
    """Rewards (steps, n) of a rollout, and what it measured, by name, each likewise."""
    rewards = np.array([np.asarray(reward) for _, reward, _ in results])
    return rewards, *(np.array([np.asarray(info[k]) for _, _, info in results]) for k in names)
