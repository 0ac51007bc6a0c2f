"""Train a policy to reach, and see what it has learned: the story of docs/stories/reach.md.

    python scripts/examples/train_reach.py
    python scripts/examples/train_reach.py --seeds 2 --steps 300000
    python scripts/examples/train_reach.py --help

Several seeds of rejax's PPO train side by side, as one compiled program. Drawn are what they
learned over time, the distance to the goal during new episodes, before training and after, and a
film strip. Needs the extra `train`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import rejax
import tyro
from jax import Array
from rich.console import Console

import fraxenv
from fraxenv.envs import Environment, EnvParams
from fraxenv.media.plots import picture
from fraxenv.rendering import Camera, render_env
from fraxenv.wrappers import FiveTuple

BEFORE, AFTER = "#b0b7bf", "#1f6f8b"
CAMERA = Camera(eye=(1.7, -1.1, 0.95), target=(0.25, 0.0, 0.38), fov=35.0)
EVALUATIONS = 20


@dataclass(frozen=True)
class Options:
    """Train a policy to reach."""

    steps: int = 400_000
    """Environment steps of every seed."""
    seeds: int = 4
    """Policies that train side by side."""
    num_envs: int = 128
    """Environments of every seed."""
    episodes: int = 256
    """New episodes that the trained policies are tried on."""
    control_hz: int = 200
    """Controller updates per second."""
    output: Path = Path("train_reach.png")
    """The picture."""


def algorithm(env: Environment, params: EnvParams, options: Options) -> Any:
    """PPO with settings that suit reaching."""
    return rejax.PPO.create(
        env=FiveTuple(env),
        env_params=params,
        total_timesteps=options.steps,
        eval_freq=max(options.steps // EVALUATIONS, 1),
        num_envs=options.num_envs,
        num_steps=32,
        num_epochs=4,
        num_minibatches=8,
        learning_rate=1e-3,
        gamma=0.95,
        gae_lambda=0.9,
        ent_coef=0.0,
        vf_coef=1.0,
        agent_kwargs={"hidden_layer_sizes": (64, 64), "activation": "tanh"},
    )


def episodes(
    env: Environment, params: EnvParams, act: Any, keys: Array
) -> tuple[Any, dict[str, Array]]:
    """States after every step, and infos, (n, T, ...), of an episode for each key."""
    length = int(params.max_steps_in_episode)

    def episode(key: Array) -> tuple[Any, dict[str, Array]]:
        obs, state = env.reset(key, params)

        def step(carry: tuple[Array, Any], key: Array) -> tuple[tuple[Array, Any], Any]:
            obs, state = carry
            obs, state, _, _, info = env.step_env(key, state, act(obs, key), params)
            return (obs, state), (state, {k: info[k] for k in ("position_error", "success")})

        return jax.lax.scan(step, (obs, state), jax.random.split(key, length))[1]

    return jax.vmap(episode)(keys)


def plot(
    path: Path,
    returns: np.ndarray,
    steps: np.ndarray,
    errors: dict[str, np.ndarray],
    film: list[tuple[float, np.ndarray]],
    policy_hz: int,
) -> None:
    """Draw the learning curve, the errors (n, T), m, before and after, and an episode's moments."""
    with picture(path, 11, 6.0, 110) as figure:
        top, bottom = figure.subfigures(2, 1, height_ratios=[1.15, 1])
        curve, error = top.subplots(1, 2)
        curve.plot(steps, returns.T, color=AFTER, alpha=0.3, linewidth=1)
        curve.plot(steps, returns.mean(axis=0), color=AFTER, linewidth=2)
        curve.set(
            xlabel="environment steps, thousands",
            ylabel="return of an episode",
            title=f"{len(returns)} seeds, and their mean",
            xlim=(0, steps[-1]),
        )
        time = np.arange(1, next(iter(errors.values())).shape[1] + 1) / policy_hz
        for (name, values), colour in zip(errors.items(), (BEFORE, AFTER), strict=True):
            low, middle, high = np.percentile(1e3 * values, [5, 50, 95], axis=0)
            error.fill_between(time, low, high, color=colour, alpha=0.3, linewidth=0)
            error.semilogy(time, middle, color=colour, linewidth=2, label=name)
        error.axhline(20, color="black", linewidth=0.8, linestyle="--")
        error.text(time[-1], 21, "reached", ha="right", va="bottom", fontsize=9)
        error.set(
            xlabel="time in the episode, s",
            ylabel="hand to goal, mm",
            title="new goals: median, 5th to 95th percentile",
            xlim=(0, time[-1]),
        )
        error.yaxis.set_major_formatter("{x:g}")
        error.legend()
        for axes, (moment, image) in zip(bottom.subplots(1, len(film)), film, strict=True):
            axes.imshow(image)
            axes.set_title(f"{moment:.1f} s")
            axes.axis("off")


def main(options: Options) -> None:
    """Train, try and draw."""
    env, params = fraxenv.make(
        "PandaReach-v0",
        action="ee_delta_position",
        control_hz=options.control_hz,
        max_steps_in_episode=75,
    )
    ppo = algorithm(env, params, options)
    keys = jax.random.split(jax.random.key(0), options.seeds)
    start = time.perf_counter()
    with Console().status(f"training {options.seeds} policies, as one program"):
        states, (_, returns) = jax.block_until_ready(jax.jit(jax.vmap(ppo.train))(keys))
    seconds = time.perf_counter() - start
    print(f"{options.seeds} x {options.steps:,} steps in {seconds:.0f} s, compiling included")

    best = int(np.argmax(np.asarray(returns)[:, -1].mean(axis=-1)))
    stages = {"untrained": jax.vmap(ppo.init_state)(keys), "trained": states}
    new = jax.random.split(jax.random.key(1), options.episodes)
    tried = jax.jit(lambda policy: episodes(env, params, ppo.make_act(policy), new))
    errors, film = {}, []
    for name, stage in stages.items():
        moved, info = tried(jax.tree.map(lambda x: x[best], stage))
        errors[name] = np.asarray(info["position_error"])
        reached = 100 * float(np.mean(info["success"][:, -1]))
        median = 1e3 * float(np.median(errors[name][:, -1]))
        print(f"{name:10s} reaches {reached:5.1f} % of {options.episodes}, median {median:6.1f} mm")
    furthest = int(np.argmax(errors["trained"][:, 0] * np.asarray(info["success"][:, -1])))
    for step in (0, 14, 29, 74):
        state = jax.tree.map(lambda x, i=step: np.asarray(x)[furthest, i], moved)
        film.append(((step + 1) / env.policy_hz, render_env(env, state, params, 360, 330, CAMERA)))

    mean_returns = np.asarray(returns).mean(axis=-1)
    done = np.linspace(0, options.steps / 1000, mean_returns.shape[1])
    plot(options.output, mean_returns, done, errors, film, env.policy_hz)
    print(f"Wrote {options.output}.")


if __name__ == "__main__":
    main(tyro.cli(Options))
