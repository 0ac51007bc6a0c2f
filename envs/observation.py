"""Observations: what a task says of a state, in one vector, with noise and delay."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fraxenv.dynamics import Robot, forward_kinematics
from fraxenv.dynamics.delay import pushed

from .randomisation import with_noise
from .state import EnvParams, EnvState
from .tasks.base import Motion

OBSERVATION_BOUND = 10.0
"""Observations are clipped to plus and minus this; their terms are about one in magnitude."""


TaskInputs = tuple[Robot, Motion, Any]
"""The arguments of a task's functions: the model, the motion, the task's state."""


def task_inputs(robot: Robot, state: EnvState, previous_action: Array | None = None) -> TaskInputs:
    """What a task is told of a state; `previous_action` (k,) is the last one if omitted."""
    poses = forward_kinematics(robot, state.q)
    previous = state.action if previous_action is None else previous_action
    motion = Motion(state.q, state.v, poses, state.world, state.action, previous)
    return robot, motion, state.task_state


def observation(
    key: Array, robot: Robot, state: EnvState, params: EnvParams, hidden: tuple[str, ...]
) -> Array:
    """The observation (k,) of a state without delay: its terms, with noise, clipped.

    Args:
        key: decides the noise.
        robot: the model.
        state: to be observed.
        params: with the task and the size of the noise.
        hidden: names of the terms that are no part of the observation.
    """
    terms = state.own_task(params.task).observation_terms(*task_inputs(robot, state))
    obs = jnp.concatenate([x for name, x in terms.items() if name not in hidden])
    obs = with_noise(key, params.randomisation, obs)
    obs = jnp.where(jnp.isnan(obs), 0.0, obs)  # of a caller's state that is not finite
    return jnp.clip(obs, -OBSERVATION_BOUND, OBSERVATION_BOUND)


def with_delayed(state: EnvState, observe: Callable[[], Array]) -> EnvState:
    """The state with a new observation on its way to the policy; unchanged without a delay."""
    if state.episode is None or state.episode.observations is None:
        return state
    delayed = pushed(state.episode.observations, observe())
    episode = dataclasses.replace(state.episode, observations=delayed)
    return state.replace(episode=episode)  # type: ignore[no-any-return]


def named_shapes(
    arrays: Callable[[Array], dict[str, Array]],
) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes of named arrays, a function of a key, in their order; nothing is computed."""
    names: list[str] = []

    def listed(seed: Array) -> list[Array]:
        found = arrays(jax.random.key(seed))
        names.extend(found)  # here, because a dict comes out of a transformation sorted
        return [jnp.asarray(x) for x in found.values()]

    shapes = jax.eval_shape(listed, jax.ShapeDtypeStruct((), np.int32))
    return dict(zip(names, shapes, strict=True))
