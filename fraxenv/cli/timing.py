"""Timing of steps, for `fraxenv bench` and the scripts that measure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
from jax import Array

from ..envs import Environment, EnvParams


def stepping(
    env: Environment, params: EnvParams, batch: int, steps: int
) -> tuple[Callable[[], float], float]:
    """A program that takes steps with random actions and autoreset, as a policy's training does.

    Args:
        env: the environment.
        params: its parameters.
        batch: environments side by side.
        steps: policy steps of each in one call.

    Returns:
        A function that goes on from where it was and returns the seconds it took, which has been
        called once; and the seconds to compile it.
    """

    @jax.jit
    def run(state: Any, key: Array) -> Any:
        def step(state: Any, key: Array) -> tuple[Any, None]:
            key_action, key_step = jax.random.split(key)
            action = jax.random.uniform(key_action, (batch, env.num_actions), minval=-1.0)
            keys = jax.random.split(key_step, batch)
            return jax.vmap(env.step, (0, 0, 0, None))(keys, state, action, params)[1], None

        return jax.lax.scan(step, state, jax.random.split(key, steps))[0]

    keys = jax.random.split(jax.random.key(0), batch)
    state = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)[1]
    began = time.perf_counter()
    compiled = run.lower(state, jax.random.key(0)).compile()
    seconds = time.perf_counter() - began
    calls = 0

    def call() -> float:
        nonlocal state, calls
        calls += 1
        began = time.perf_counter()
        state = jax.block_until_ready(compiled(state, jax.random.key(calls)))
        return time.perf_counter() - began

    call()
    return call, seconds
