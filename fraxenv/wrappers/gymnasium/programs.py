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
from ...kernels import direct, fusible, resolve
from .packing import Layout, layout_of, pack, unpack, unpack_here
from .seeding import Words, key_of_step
from .values import Flags, Info, Numbers, Observation

_REWARD_ROWS: Final = 256

Transition = tuple[Any, Array, Array, Array, Info]


@dataclass(frozen=True, eq=False)
class Programs:
    """An environment's programs. Episodes have a key of two words, of shape (2,) or (n, 2).

    Those of one environment have its state in one array, which `pack` makes of a state, and
    `unpack` a state of; `first` is `reset` without that, for other programs. What `step` returns
    of a transition is in NumPy, scalars in Python.

    `reward` gives those of exactly `_REWARD_ROWS` pairs of goals. There is one program for however
    many are asked for, so that a reward's last bit does not depend on which others come with it.
    """

    env: Environment
    reset: Callable[[Words], tuple[Any, Array]]
    step: Callable[
        [Words, Array, Numbers], tuple[tuple[Observation, float, bool, bool, Info], Array]
    ]
    pack: Callable[[EnvState], Array]
    unpack: Callable[[Array], EnvState]
    first: Callable[[Words], tuple[Any, EnvState]]
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
    reset_one, step_one = _single(reset, env), _single(step, env)
    layouts: dict[str, Layout] = {}  # known when the programs have been traced

    def state_layout() -> Layout:
        if "state" not in layouts:  # a copy's, in a process of its own
            words = jax.ShapeDtypeStruct((2,), np.uint32)
            layouts["state"] = layout_of(jax.eval_shape(reset_one, words)[1])
        return layouts["state"]

    def reset_packed(words: Array) -> tuple[Any, Array]:
        obs, state = reset_one(words)
        layouts["state"] = layout_of(state)
        return obs, pack(state, layouts["state"])

    def packed(step: Callable[..., tuple[Transition, EnvState]]) -> Callable[..., Any]:
        def step_packed(words: Array, state: Array, action: Array) -> tuple[Array, Array]:
            transition, new = step(words, unpack(state, state_layout()), action)
            layouts["transition"] = layout_of(transition)
            return pack(transition, layouts["transition"]), pack(new, state_layout())

        return step_packed

    def pack_state(state: EnvState) -> Array:
        env.check_state(state, params)
        return pack(state, state_layout())

    @functools.cache  # when a step is asked for: what compiles kernels takes long to import
    def step_program() -> Callable[..., Any]:
        program = _named(packed(step_one), "step")
        if resolve(env.backend) != "native":
            return program
        return direct(packed(step), otherwise=program)

    def step_here(words: Words, state: Array, action: Numbers) -> tuple[Any, Array]:
        transition, new = step_program()(words, state, action)
        return unpack_here(np.asarray(transition), layouts["transition"]), new

    compute_reward = getattr(env, "compute_reward", None)
    return Programs(
        env,
        _named(reset_packed, "reset"),
        step_here,
        jax.jit(pack_state),
        jax.jit(lambda words: unpack(words, state_layout())),
        reset_one,
        jax.jit(reset_batch),
        jax.jit(step_batch),
        None if compute_reward is None else jax.jit(lambda a, d: compute_reward(a, d)),
    )


def _named(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A compiled program, by its name in JAX's messages."""
    fn.__name__ = name
    return jax.jit(fn)


def _single(fn: Callable[..., Any], env: Environment) -> Callable[..., Any]:
    """A function of one environment, as a batch of one where batches are compiled kernels."""
    batch = jax.vmap(fusible(fn, env.backend))

    @functools.wraps(fn)
    def single(*args: Any) -> Any:
        if resolve(env.backend) != "native":
            return fn(*args)
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
