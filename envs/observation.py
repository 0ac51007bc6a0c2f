"""Observations: what a task says of a state, as one vector, with noise."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from fraxenv.dynamics import Robot, forward_kinematics

from .randomisation import with_noise
from .state import EnvParams, EnvState
from .tasks.base import Motion

OBSERVATION_BOUND = 10.0
"""Observations are clipped to plus and minus this; their terms are about one in magnitude."""


def motion_of(robot: Robot, state: EnvState, previous_action: Array) -> Motion:
    """The argument of the task's functions."""
    poses = forward_kinematics(robot, state.q)
    return Motion(state.q, state.v, poses, state.world, state.action, previous_action)


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
    motion = motion_of(robot, state, state.action)
    terms = params.task.observation_terms(robot, motion, state.task_state)
    obs = jnp.concatenate([x for name, x in terms.items() if name not in hidden])
    obs = with_noise(key, params.randomisation, obs)
    obs = jnp.where(jnp.isnan(obs), 0.0, obs)  # of a caller's state that is not finite
    return jnp.clip(obs, -OBSERVATION_BOUND, OBSERVATION_BOUND)
