"""Tune a controller's gains by gradient: the story of docs/stories/tune_gains.md.

    python scripts/examples/tune_gains.py
    python scripts/examples/tune_gains.py --iterations 100 --effort 0.3
    python scripts/examples/tune_gains.py --help

A Panda follows figures of eight, by the simplest of policies: go where the reference will be. How
well depends on the gains of its operational space control, and on how far ahead the policy looks,
which are parameters of the environment. Adam improves them along the derivative of the tracking
error over a batch of episodes. Drawn are new episodes, before and after. Needs the extra `train`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from jax import Array
from rich.console import Console
from rich.progress import track

import fraxenv
from fraxenv.dynamics import frame_pose
from fraxenv.envs import Environment, EnvParams
from fraxenv.media.plots import BAND, COLOURS, picture
from fraxenv.recording.scripted import scripted_policy

SETTLED = 50  # policy steps that are left out, while the hand comes from where it begins
FACTOR = 8.0  # by which a gain may become larger or smaller
LABELS = {
    "kp": ("kp, x", "kp, y", "kp, z"),
    "damping_ratio": ("ζ, x", "ζ, y", "ζ, z"),
    "posture_kp": ("kp, posture",),
    "posture_damping_ratio": ("ζ, posture",),
    "lookahead": ("lookahead",),
}


@dataclass(frozen=True)
class Options:
    """Tune gains by gradient."""

    iterations: int = 60
    """Steps of Adam."""
    learning_rate: float = 0.1
    """Of the gains' logarithms."""
    episodes: int = 32
    """In a batch."""
    steps: int = 200
    """Policy steps of an episode."""
    effort: float = 1.0
    """What a change of torque by a tenth of its limit in a policy step costs, in mm^2."""
    control_hz: int = 200
    """Controller updates and physics steps per second."""
    output: Path = Path("tune_gains.png")
    """The picture."""


def at_first(params: EnvParams) -> dict[str, Array]:
    """What is tuned: gains of the hand's position and of the posture, and the lookahead, s."""
    law = params.controller
    found = {name: jnp.broadcast_to(getattr(law, name), (6,))[:3] for name in list(LABELS)[:2]}
    found |= {name: jnp.asarray(getattr(law, name)) for name in list(LABELS)[2:4]}
    return found | {"lookahead": jnp.asarray(params.task.lookahead)}


def tuned(params: EnvParams, logs: dict[str, Array]) -> EnvParams:
    """The parameters with numbers given by their logarithms: positive, whatever Adam does."""
    law, numbers = params.controller, {name: jnp.exp(x) for name, x in logs.items()}
    task = dataclasses.replace(params.task, lookahead=numbers.pop("lookahead"))
    for name in ("kp", "damping_ratio"):
        turning = jnp.broadcast_to(getattr(law, name), (6,))[3:]
        numbers[name] = jnp.concatenate([numbers[name], turning])
    return params.replace(controller=dataclasses.replace(law, **numbers), task=task)


def rollout(env: Environment, params: EnvParams, steps: int) -> Callable[..., dict[str, Array]]:
    """What happened (T, n, ...) in episodes, by the logarithms of what is tuned."""
    policy = scripted_policy(env, params)
    step = jax.vmap(env.step_env, (0, 0, 0, None))
    limits = jnp.asarray(env.robot.effort_limits, jnp.float32)

    def run(logs: dict[str, Array], obs: Array, state: Any, key: Array) -> dict[str, Array]:
        given = tuned(params, logs)

        def one(carry: tuple[Array, Any], key: Array) -> tuple[tuple[Array, Any], Any]:
            obs, state = carry
            action = jax.vmap(lambda obs: policy(obs, key))(obs)
            keys = jax.random.split(key, len(obs))
            obs, state, _, _, info = step(keys, state, action, given)
            seen = {
                "q": state.q,
                "goal": state.task_state.position[:, 0],
                "error": info["position_error"],
                "torque": info["controller"]["torque"] / limits,
            }
            return (obs, state), seen

        return jax.lax.scan(one, (obs, state), jax.random.split(key, steps))[1]

    return run


def cost(seen: dict[str, Array], effort: float) -> Array:
    """The error's mean square, mm^2, and that of the changes of torque."""
    late = jax.tree.map(lambda x: x[SETTLED:], seen)
    jumps = jnp.diff(late["torque"], axis=0)
    return jnp.mean((1e3 * late["error"]) ** 2) + effort * jnp.mean((10 * jumps) ** 2)


def tune(
    loss: Callable[[Any], Array], logs: dict[str, Array], options: Options
) -> tuple[dict[str, Array], np.ndarray]:
    """Better logarithms, and the cost (iterations,)."""
    adam = optax.adam(optax.cosine_decay_schedule(options.learning_rate, options.iterations))
    lowest = jax.tree.map(lambda x: x - np.log(FACTOR), logs)
    highest = jax.tree.map(lambda x: x + np.log(FACTOR), logs)

    @jax.jit
    def improve(logs: Any, moments: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(logs)
        changes, moments = adam.update(gradient, moments)
        moved = optax.apply_updates(logs, changes)
        return value, jax.tree.map(jnp.clip, moved, lowest, highest), moments

    moments, costs, console = adam.init(logs), [], Console()
    show = {"console": console, "transient": True, "disable": not console.is_terminal}
    for _ in track(range(options.iterations), "tuning", **show):
        value, logs, moments = improve(logs, moments)
        costs.append(float(value))
    return logs, np.array(costs)


def plot(
    options: Options,
    env: Environment,
    costs: np.ndarray,
    runs: dict[str, Any],
    change: dict[str, Any],
) -> None:
    """Draw the cost, two episodes, the errors over time, and the gains."""
    hands = jax.jit(jax.vmap(lambda q: frame_pose(env.robot, q, "hand")[0]))
    with picture(options.output, 11, 6.4, 110) as figure:
        places = [["cost", "before", "after"], ["gains", "error", "error"]]
        axes = figure.subplot_mosaic(places)
        axes["cost"].semilogy(costs, color=COLOURS[2])
        axes["cost"].set(xlabel="step of Adam", ylabel="cost, mm²", title="what is improved")
        moments = np.arange(1, options.steps + 1) / env.policy_hz
        for (name, seen), colour in zip(runs.items(), (COLOURS[1], COLOURS[0]), strict=True):
            way = np.asarray(hands(seen["q"][SETTLED:, 0]))
            goal = np.asarray(seen["goal"][SETTLED:, 0])
            axes[name].plot(*(1e3 * goal[:, 1:].T), color="0.6", linewidth=4, label="reference")
            axes[name].plot(*(1e3 * way[:, 1:].T), color=colour, linewidth=1.4, label="hand")
            axes[name].set(xlabel="y, mm", ylabel="z, mm", title=f"one episode, {name}")
            axes[name].set_aspect("equal", adjustable="datalim")
            axes[name].legend(loc="upper right")
            low, middle, high = np.percentile(1e3 * seen["error"], [5, 50, 95], axis=1)
            axes["error"].fill_between(moments, low, high, color=colour, alpha=BAND, linewidth=0)
            axes["error"].semilogy(moments, middle, color=colour, label=name)
        axes["error"].set(
            xlabel="time in the episode, s", ylabel="hand to reference, mm", xlim=(0, moments[-1]),
            title=f"{options.episodes} new episodes: median, 5th to 95th percentile",
        )  # fmt: skip
        axes["error"].yaxis.set_major_formatter("{x:g}")
        axes["error"].legend()
        labels = [label for own in LABELS.values() for label in own]
        ratios = np.concatenate([np.ravel(change[name]) for name in LABELS])
        axes["gains"].barh(labels, np.log2(ratios), color=COLOURS[0])
        axes["gains"].invert_yaxis()
        ticks = np.arange(-3, 4)
        axes["gains"].set_xticks(ticks, [f"{2.0**t:g}" for t in ticks])
        axes["gains"].set(title="how many times as large they become", xlim=(-3.1, 3.1))


def main(options: Options) -> None:
    """Tune, try on new episodes, and draw."""
    env, params = fraxenv.make(
        "PandaTrack-v0", control_hz=options.control_hz, physics_hz=options.control_hz
    )
    env = env.with_transition_gradients()
    logs = jax.tree.map(jnp.log, at_first(params))
    run = rollout(env, params, options.steps)
    reset = jax.jit(jax.vmap(env.reset_env, (0, None)))

    def episodes(seed: int) -> tuple[Array, Any, Array]:
        key = jax.random.key(seed)
        return *reset(jax.random.split(key, options.episodes), params), key

    seen, new = episodes(0), episodes(1)
    start = time.perf_counter()
    found, costs = tune(lambda logs: cost(run(logs, *seen), options.effort), logs, options)
    seconds = time.perf_counter() - start
    print(f"{options.iterations} steps of Adam in {seconds:.0f} s, compiling included")

    tried, runs = jax.jit(run), {}
    for name, given in (("before", logs), ("after", found)):
        runs[name] = jax.tree.map(np.asarray, tried(given, *new))
        late = {k: x[SETTLED:] for k, x in runs[name].items()}
        error = 1e3 * np.sqrt(np.mean(late["error"] ** 2))
        jump = 100 * np.sqrt(np.mean(np.diff(late["torque"], axis=0) ** 2))
        print(f"{name:7s} rms error {error:5.2f} mm, torque changes by {jump:.2f} % of its limit")
    before, after = (jax.tree.map(lambda x: np.exp(np.asarray(x)), x) for x in (logs, found))
    for name in LABELS:
        texts = (
            np.array2string(x[name], precision=2, suppress_small=True) for x in (before, after)
        )
        print(f"{name:22s}", " -> ".join(texts))
    change = jax.tree.map(np.divide, after, before)
    plot(options, env, costs, runs, change)
    print(f"Wrote {options.output}.")


if __name__ == "__main__":
    main(tyro.cli(Options))
