"""What a run leaves for people: a table, a learning curve, and a film of the policy."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..checkpoint import write_atomic
from ..errors import import_extra
from .evaluation import Evaluation
from .policy import Policy
from .ppo import Metrics

if TYPE_CHECKING:
    from ..envs import Environment, EnvParams

CURVE = "learning_curve.png"
FILM = "rollout.gif"


def table(result: Evaluation, metrics: Sequence[Metrics], wall_seconds: float, title: str) -> Any:
    """The summary of a run, as a rich table.

    Args:
        result: the final evaluation, of NumPy arrays.
        metrics: of all rounds.
        wall_seconds: from the start of the command to now.
        title: heads the table.
    """
    rich_table = import_extra("rich.table", "train", "The report")
    millimetres = 1e3 * np.asarray(result.position_error)
    train_seconds = metrics[-1]["train_seconds"] if metrics else 0.0
    steps = metrics[-1]["step"] if metrics else 0
    # The first round of a process compiles; the median is of those that only ran.
    speed = float(np.median([m["steps_per_second"] for m in metrics])) if metrics else 0.0
    rows = [
        ("success rate", f"{100 * np.mean(result.success):.1f} %"),
        ("final distance, median", f"{np.median(millimetres):.1f} mm"),
        ("final distance, 95th percentile", f"{np.quantile(millimetres, 0.95):.1f} mm"),
        ("episodes evaluated", f"{len(millimetres)}"),
        ("environment steps", f"{steps:,.0f}"),
        ("environment steps/s", f"{speed:,.0f}"),
        ("training time", _duration(train_seconds)),
        ("wall time of this command", _duration(wall_seconds)),
    ]
    result_table = rich_table.Table(title=title, show_header=False)
    result_table.add_column(justify="left")
    result_table.add_column(justify="right")
    for row in rows:
        result_table.add_row(*row)
    return result_table


def _duration(seconds: float) -> str:
    return f"{int(seconds // 60)} min {seconds % 60:02.0f} s"


def plot_learning_curve(path: str | Path, metrics: Sequence[Metrics], title: str) -> None:
    """Draw return, success rate and final distance over environment steps to a PNG; atomic."""
    figure_module = import_extra("matplotlib.figure", "train", "The learning curve")
    steps = [m["step"] / 1e6 for m in metrics]
    panels: tuple[tuple[str, list[float], dict[str, Any]], ...] = (
        ("return", [m["return"] for m in metrics], {}),
        (
            "success rate at the end, %",
            [100 * m["success"] for m in metrics],
            {"ylim": (-3, 103)},
        ),
        (
            "final distance, median, mm",
            [1e3 * m["position_error"] for m in metrics],
            {"yscale": "log"},
        ),
    )
    # Not pyplot, which opens windows and keeps figures.
    figure = figure_module.Figure(figsize=(10, 3.2), dpi=120, layout="constrained")
    for axes, (label, values, options) in zip(figure.subplots(1, 3), panels, strict=True):
        axes.plot(steps, values, color="#1f6f8b", marker="o", markersize=3, linewidth=1.6)
        axes.set(xlabel="environment steps, millions", ylabel=label, **options)
        axes.set_xlim(left=0)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=11)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    write_atomic(path, buffer.getvalue())


def film(
    path: str | Path,
    env: Environment,
    params: EnvParams,
    policy: Policy,
    *,
    episodes: int = 3,
    size: int = 320,
    frames_per_second: int = 25,
) -> None:
    """Film a policy, with the target drawn, to a GIF; atomic.

    Args:
        path: the file.
        env: the environment.
        params: its parameters.
        policy: what to film.
        episodes: how many.
        size: width and height, pixels.
        frames_per_second: of the film, at most the policy's rate.
    """
    image = import_extra("PIL.Image", "train", "The film")
    from ..rendering import render_env

    step = jax.jit(lambda key, obs, state: env.step_env(key, state, policy(obs), params))
    every = max(1, round(env.policy_hz / frames_per_second))
    frames = []
    for key in jax.random.split(jax.random.PRNGKey(2), episodes):
        obs, state = env.reset(key, params)
        for t in range(int(np.asarray(params.max_steps_in_episode))):
            if t % every == 0:
                frames.append(render_env(env, state, params, width=size, height=size))
            obs, state, *_ = step(key, obs, state)
    pictures = [image.fromarray(f).quantize(128, dither=image.Dither.NONE) for f in frames]
    buffer = io.BytesIO()
    pictures[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=1000 * every / env.policy_hz,
        loop=0,
    )
    write_atomic(path, buffer.getvalue())
