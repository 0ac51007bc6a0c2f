"""The compiled programs of recordings, shared by `record` and `replay`."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from ..envs import Environment, EnvParams, EnvState
from ..errors import ConfigError

_NOT_INFOS = ("terminated", "truncated", "final_observation")


def begin(
    env: Environment, params: EnvParams, key: Array, num_envs: int
) -> tuple[Array, Any, EnvState]:
    """The policy's key, and the batch's first observations and states."""
    key_reset, key_policy = jax.random.split(jax.random.fold_in(key, 0))
    obs, state = _reset(env, jax.random.split(key_reset, num_envs), params)
    return key_policy, obs, state


@functools.partial(jax.jit, static_argnames=("env",))
def _reset(env: Environment, keys: Array, params: EnvParams) -> Any:
    return jax.vmap(env.reset_env, (0, None))(keys, params)


@functools.partial(jax.jit, static_argnames=("env",))
def step(
    env: Environment, key: Array, t: int, state: EnvState, action: Array, params: EnvParams
) -> tuple[Any, EnvState, dict[str, Any]]:
    """One step of the batch; a program of its own, so that a replay runs the very same one."""
    keys = jax.random.split(jax.random.fold_in(key, 1 + t), action.shape[0])
    obs, state, reward, terminated, truncated, info = jax.vmap(env.step, (0, 0, 0, None))(
        keys, state, action, params
    )
    out = {
        "rewards": reward,
        "terminations": terminated,
        "truncations": truncated,
        "infos": info,
    }
    return obs, state, out


def split_final(out: dict[str, Any], infos: Sequence[str] | None) -> tuple[Any, dict[str, Any]]:
    """The final observations, and the rest with the entries of `info` that are asked for."""
    info = out["infos"]
    own = [name for name in info if name not in _NOT_INFOS]
    for name in infos or ():
        if name not in own:
            raise ConfigError(
                f"infos={tuple(infos or ())}: steps do not report {name!r}, expected names among "
                f"{', '.join(own)}."
            )
    kept = {name: info[name] for name in (own if infos is None else infos)}
    return info["final_observation"], {**out, "infos": kept}


def flat(name: str, tree: Any) -> dict[str, np.ndarray]:
    """The arrays of nested dicts, by names joined by slashes."""
    if not isinstance(tree, Mapping):
        return {name: np.asarray(tree)}
    return {
        k: v for part, x in tree.items() for k, v in flat(f"{name}/{_escaped(part)}", x).items()
    }


def _escaped(part: str) -> str:
    """A name without slashes, which those of objects may have; as JSON pointers have it."""
    return part.replace("~", "~0").replace("/", "~1")


def unescaped(part: str) -> str:
    """The name that was escaped."""
    return part.replace("~1", "/").replace("~0", "~")
