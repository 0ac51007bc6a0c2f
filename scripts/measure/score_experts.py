"""How experts score, with our numbers or with another suite's.

    python scripts/measure/score_experts.py PandaPick-v0
    python scripts/measure/score_experts.py PandaPick-v0 --like maniskill panda-gym
    python scripts/measure/score_experts.py PandaPick-v0 -s 'randomisation.object_size=[0.8, 1.2]'

Success once: at any step. At the end: at the last step, the first of success where that ends the
episode. Sparse return: the sum of -1 for every step without success, as of goal environments.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from rich.console import Console
from rich.table import Table

import fraxenv
from fraxenv.cli.subject import EnvArguments, recipe
from fraxenv.envs import Environment, EnvParams
from fraxenv.recording.scripted import expert_policy


@dataclass(frozen=True)
class Options(EnvArguments):
    """Options of the scores.

    Attributes:
        like: suites whose numbers are taken; ours alone if omitted.
        episodes: of each.
        seed: decides them.
    """

    like: tuple[str, ...] = ()
    episodes: int = 1000
    seed: int = 0


def main(options: Options) -> None:
    """Run, and print the table."""
    made = recipe(options)
    table = Table("numbers", "at reset", "once", "at the end", "steps to success", "sparse return")
    for like in options.like or (None,):
        env, params = fraxenv.make(**made, **({"like": like} if like else {}))
        run = jax.jit(partial(score, env, params, options.episodes))
        first, success, lasts = jax.device_get(run(options.seed))
        # Steps without success while the episode lasts.
        without = np.sum(lasts & ~success, axis=0)
        once = np.any(lasts & success, axis=0)
        last = np.sum(lasts, axis=0) - 1
        arrives = np.argmax(success, axis=0)[once] + 1
        table.add_row(
            like or "ours",
            f"{100 * first.mean():.2f} %",
            f"{100 * once.mean():.1f} %",
            f"{100 * success[last, np.arange(len(last))].mean():.1f} %",
            f"{np.median(arrives):.0f} of {len(success)}" if once.any() else "-",
            f"{-without.mean():.1f}",
        )
    Console(width=100).print(table)
    print(f"{options.episodes} episodes each, seed {options.seed}.")


def score(env: Environment, params: EnvParams, episodes: int, seed: Any) -> tuple[Array, ...]:
    """Success at reset (n,), and after every step (steps, n); and whether the step was still one.

    An episode goes on in its arrays after its end, where it does not count.
    """
    act = expert_policy(env, params)
    keys = jax.random.split(jax.random.key(seed), episodes)
    obs, state = jax.vmap(lambda key: env.reset_env(key, params))(keys)
    measured = jax.vmap(
        lambda s: s.own_task(params.task).measures(*env._inputs(s, params))["success"]
    )(state)

    def step(carry: Any, _: None) -> tuple[Any, tuple[Array, Array]]:
        obs, state, lasts = carry
        action = jax.vmap(act)(obs, keys)
        obs, state, _, ended, info = jax.vmap(lambda k, s, a: env.step_env(k, s, a, params))(
            keys, state, action
        )
        return (obs, state, lasts & ~ended), (info["success"], lasts)

    begin = obs, state, jnp.ones(episodes, bool)
    steps = int(env.default_params.max_steps_in_episode)
    _, (success, lasts) = jax.lax.scan(step, begin, length=steps)
    return measured, success, lasts


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
