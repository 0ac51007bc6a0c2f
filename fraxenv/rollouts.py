"""One environment's rollout to look at: recorded, with the states that a film needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
from jax import Array

from .recording import Policy, Recording, record
from .video import save_video

if TYPE_CHECKING:
    from .envs import Environment, EnvParams, EnvState


def roll_out(
    env: Environment,
    params: EnvParams,
    policy: Policy | None,
    key: Array,
    *,
    episodes: int = 3,
    recipe: Mapping[str, Any] | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: bool = False,
) -> tuple[Recording, list[EnvState]]:
    """Record some episodes of one environment, and the state after each step.

    Args:
        env: the environment.
        params: its parameters.
        policy: as of `record`.
        key: decides everything that is drawn.
        episodes: how many.
        recipe: as of `record`.
        stop: asked after every step; where it says True the rollout ends.
        progress: whether to show a progress bar.

    Returns:
        The recording, and the states; after an episode's end it is the first of the next one.
    """
    states: list[EnvState] = []

    def watch(batch: EnvState) -> bool:
        states.append(jax.tree.map(lambda x: x[0], jax.device_get(batch)))
        return stop()

    recording = record(
        env, params, policy, key, episodes=episodes, recipe=recipe, watch=watch, progress=progress
    )
    return recording, states


def film(
    path: str | Path,
    env: Environment,
    params: EnvParams,
    states: Sequence[EnvState],
    *,
    size: int = 320,
    frames_per_second: int = 25,
    on_frame: Callable[[int, int], bool] = lambda done, total: False,
) -> None:
    """Film states of an environment, with the target drawn, to a GIF or an MP4; atomic.

    Args:
        path: the file.
        env: the environment.
        params: its parameters.
        states: one for each policy step.
        size: width and height, pixels.
        frames_per_second: of the film, at most the policy's rate.
        on_frame: told how many frames of how many are drawn; the film ends where it returns True.
    """
    from .rendering import render_env

    every = max(1, round(env.policy_hz / frames_per_second))
    shown = states[::every]
    frames = []
    for state in shown:
        frames.append(render_env(env, state, params, width=size, height=size))
        if on_frame(len(frames), len(shown)):
            break
    save_video(path, frames, env.policy_hz / every)
