"""Compiled programs of environments, shared by equal ones, and the rewards of goals."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from ...envs import Environment, EnvState
from ...errors import ArrayError
from ...kernels import fusible, resolve
from .packing import packed
from .seeding import Words, key_of_step
from .values import Flags, Info, Numbers, Observation

_REWARD_ROWS: Final = 256

Transition = tuple[Any, Array, Array, Array, Info]


@dataclass(frozen=True, eq=False)
class Programs:
    """An environment's programs. Episodes have a key of two words, of shape (2,) or (n, 2).

    What `step` returns of a transition is in NumPy, scalars in Python.

    `reward` gives those of exactly `_REWARD_ROWS` pairs of goals. There is one program for however
    many are asked for, so that a reward's last bit does not depend on which others come with it.
    """

    env: Environment
    reset: Callable[[Words], tuple[Any, EnvState]]
    step: Callable[
        [Words, EnvState, Numbers], tuple[tuple[Observation, float, bool, bool, Info], EnvState]
    ]
    reset_batch: Callable[[Words, Flags, Any, EnvState], tuple[Any, EnvState]]
    step_batch: Callable[[Words, EnvState, Numbers], tuple[Transition, EnvState]]
    reward: Callable[[Numbers, Numbers], Array] | None

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # Copies and pickles of an environment find the programs that there are.
        return programs_of, (self.env,)


@functools.lru_cache(maxsize=32)
def programs_of(env: Environment) -> Programs:
    """Compiled once for all environments that are equal; parameters are constants of them."""
    params = env.default_params

    def reset(words: Array) -> tuple[Any, EnvState]:
        return env.reset_env(key_of_step(words, 0), params)

    def step(words: Array, state: EnvState, action: Array) -> tuple[Transition, EnvState]:
        obs, new, reward, terminated, info = env.step_env(
            key_of_step(words, state.time + 1), state, action, params
        )
        truncated = env.is_truncated(new, params)
        transition = obs, reward, terminated, truncated, info
        return transition, new

    def reset_batch(words: Array, mask: Array, obs: Any, state: EnvState) -> tuple[Any, EnvState]:
        def choose(new: Array, old: Array) -> Array:
            return jnp.where(mask.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

        fresh = jax.vmap(fusible(reset, env.backend))(words)
        return jax.tree.map(choose, fresh, (obs, state))  # type: ignore[no-any-return]

    step_batch = jax.vmap(fusible(step, env.backend))
    compute_reward = getattr(env, "compute_reward", None)
    return Programs(
        env,
        jax.jit(_single(reset, env)),
        packed(_single(step, env)),
        jax.jit(reset_batch),
        jax.jit(step_batch),
        None if compute_reward is None else jax.jit(lambda a, d: compute_reward(a, d)),
    )


def _single(fn: Callable[..., Any], env: Environment) -> Callable[..., Any]:
    """A function of one environment, as a batch of one where batches are compiled kernels."""
    if resolve(env.backend) != "native":
        return fn
    batch = jax.vmap(fusible(fn, env.backend))

    @functools.wraps(fn)
    def single(*args: Any) -> Any:
        results = batch(*jax.tree.map(lambda x: x[None], args))
        return jax.tree.map(lambda x: x[0], results)

    return single


def goal_reward(name: str, programs: Programs) -> Callable[..., Any]:
    """`compute_reward` of an environment.

    Raises:
        AttributeError: it is no goal environment.
    """
    program = programs.reward
    if program is None:
        raise AttributeError(
            f"{name} has no compute_reward(): it is no goal environment. Make it with "
            "goal_env=True, e.g. for hindsight experience replay."
        )
    box = programs.env.observation_space().spaces["desired_goal"]

    def compute_reward(
        achieved_goal: ArrayLike, desired_goal: ArrayLike, info: Any = None
    ) -> float | NDArray[np.float64]:
        given = {"achieved_goal": achieved_goal, "desired_goal": desired_goal}
        achieved, desired = (_goals(name, what, x, box) for what, x in given.items())
        try:
            shape = np.broadcast_shapes(achieved.shape, desired.shape)
        except ValueError as error:
            raise ArrayError(
                f"{name}: compute_reward() was given achieved_goal of shape {achieved.shape} and "
                f"desired_goal of shape {desired.shape}, expected as many of the one as of the "
                "other. Pass rows that belong together."
            ) from error
        pairs = [np.broadcast_to(x, shape).reshape(-1, shape[-1]) for x in (achieved, desired)]
        rewards = np.empty(len(pairs[0]))
        for start in range(0, len(rewards), _REWARD_ROWS):
            rows = [x[start : start + _REWARD_ROWS] for x in pairs]
            count = len(rows[0])
            filled = (
                np.concatenate([x, np.zeros((_REWARD_ROWS - count, x.shape[1]), x.dtype)])
                for x in rows
            )
            rewards[start : start + count] = np.asarray(program(*filled))[:count]
        return rewards.reshape(shape[:-1]) if len(shape) > 1 else float(rewards[0])

    return compute_reward


def _goals(name: str, what: str, goals: ArrayLike, box: Any) -> Numbers:
    """Goals (..., g) in the dtype of their space."""
    try:
        array = np.asarray(goals)
    except ValueError as error:
        raise ArrayError(
            f"{name}: compute_reward() was given {what}={goals!r}, expected an array of shape "
            f"(..., {box.shape[0]}). Pass a NumPy array."
        ) from error
    if array.shape[-1:] != box.shape or not np.issubdtype(array.dtype, np.number):
        raise ArrayError(
            f"{name}: compute_reward() was given {what} of shape {array.shape} and dtype "
            f"{array.dtype}, expected (..., {box.shape[0]}) numbers. Pass what observations hold "
            "under that name."
        )
    return array.astype(box.dtype)
