"""One environment's rollout to look at: recorded, with the states that a film needs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from ..envs import Environment, EnvParams, EnvState
from ..recording import MemoryPolicy, Policy, Recording, record
from ..recording.policies import PlanningPolicy
from ..rendering import Shape, env_camera, env_scene
from ..rendering.pictures import draw_bar
from ..rendering.scenery import path_shapes
from .drawers import render_each
from .video import save_video


class RollOut(NamedTuple):
    """What happened in some episodes of one environment.

    Attributes:
        recording: of it.
        states: after each step; after an episode's end the first of the next one.
        paths: (h, n, 3), m, of each step, where a policy that plans had the hands go; none of
            other policies.
    """

    recording: Recording
    states: list[EnvState]
    paths: list[NDArray[Any]]


def roll_out(
    env: Environment,
    params: EnvParams,
    policy: Policy | MemoryPolicy | None,
    key: Array,
    *,
    episodes: int = 3,
    recipe: Mapping[str, Any] | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: bool = False,
) -> RollOut:
    """Record some episodes of one environment, the state after each step, and what was planned.

    Args:
        env: the environment.
        params: its parameters.
        policy: as of `record`.
        key: decides everything that is drawn.
        episodes: how many.
        recipe: as of `record`.
        stop: asked after every step; where it says True the rollout ends.
        progress: whether to show a progress bar.
    """
    states: list[EnvState] = []
    paths: list[NDArray[Any]] = []
    path = jax.jit(jax.vmap(policy.path)) if isinstance(policy, PlanningPolicy) else None

    def watch(batch: EnvState) -> bool:
        states.append(jax.tree.map(lambda x: x[0], jax.device_get(batch)))
        return stop()

    recording = record(
        env,
        params,
        policy,
        key,
        episodes=episodes,
        recipe=recipe,
        watch=watch,
        watch_memory=None if path is None else lambda *x: paths.append(np.asarray(path(*x))[0]),
        progress=progress,
    )
    return RollOut(recording, states, paths)


def film(
    path: str | Path,
    env: Environment,
    params: EnvParams,
    recording: Recording,
    states: Sequence[EnvState],
    paths: Sequence[NDArray[Any]] = (),
    *,
    size: int = 320,
    frames_per_second: int = 25,
    contacts: bool = False,
    on_frame: Callable[[int, int], bool] = lambda done, total: False,
    pool: Executor | None = None,
) -> None:
    """Film a rollout, with the target and what the safety filter does, to a GIF or an MP4; atomic.

    Args:
        path: the file.
        env: the environment.
        params: its parameters.
        recording: of one environment, with all `infos`, as `roll_out` returns it.
        states: after each of its steps, as `roll_out` returns them.
        paths: of hands, to be shown with each state; likewise.
        size: width and height, pixels.
        frames_per_second: of the film, at most the policy's rate.
        contacts: whether to draw contact forces, as `render_env` does.
        on_frame: told how many frames of how many are drawn; the film ends where it returns True.
        pool: processes that draw, of `drawers`.
    """
    every = max(1, round(env.policy_hz / frames_per_second))
    shown = range(0, len(states), every)
    over = recording.terminations | recording.truncations

    def report(t: int) -> Any:
        # The state after an episode's last step is the next one's first, of which nothing is known.
        at = operator.itemgetter((t, 0))
        return None if over[t, 0] else jax.tree.map(at, recording.infos["safety"])

    def shapes(t: int) -> list[Shape]:
        planned = path_shapes(paths[t]) if paths and not over[t, 0] else []
        return [*env_scene(env, states[t], params, report(t), contacts=contacts), *planned]

    scenes = map(shapes, shown)
    pictures = render_each(scenes, env_camera(env), size, size, pool)
    frames = []
    for t, picture in zip(shown, pictures, strict=True):
        draw_bar(picture, report(t))
        frames.append(picture)
        if on_frame(len(frames), len(shown)):
            break
    save_video(path, frames, env.policy_hz / every)
