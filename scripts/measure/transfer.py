"""Whether policies do in MuJoCo what they do here: the same episodes with either physics.

    python scripts/measure/transfer.py                          # experts, of all tasks with objects
    python scripts/measure/transfer.py --ids PandaPick-v0 --episodes 1000
    python scripts/measure/transfer.py --runs runs/pick         # a trained policy

Both begin in the same states and see the same observations; MuJoCo steps one environment at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import fraxenv
from fraxenv.cross_check.physics import with_mujoco
from fraxenv.envs import ContactPhysics, Environment, EnvParams
from fraxenv.recording.scripted import scripted_policy
from fraxenv.training import load_policy


@dataclass(frozen=True)
class Options:
    """Options of the comparison.

    Attributes:
        ids: environments, moved by their experts; all with a scene if neither these nor runs.
        runs: folders of training runs.
        episodes: of each.
        seed: decides them.
    """

    ids: tuple[str, ...] = ()
    runs: tuple[Path, ...] = ()
    episodes: int = 200
    seed: int = 0


Act = Callable[[Any, Any], Any]


def main(options: Options) -> None:
    """Run, and print the table."""
    ids = options.ids or ([] if options.runs else with_scene())
    subjects: list[tuple[str, Environment, EnvParams, Act]] = []
    for id in ids:
        env, params = fraxenv.make(id)
        subjects.append((f"{id}, expert", env, params, scripted_policy(env, params)))
    for folder in options.runs:
        policy, env, params, _ = load_policy(folder)
        subjects.append((str(folder), env, params, lambda obs, _, policy=policy: policy(obs)))
    table = Table("policy", "fraxenv", "MuJoCo", "only here", "only there", "apart, mm")
    for name, env, params, act in subjects:
        here, there = (
            outcome(e, params, act, options.episodes, options.seed) for e in (env, with_mujoco(env))
        )
        ours, theirs = here["success"], there["success"]
        apart = 1e3 * np.median(np.abs(here["object"] - there["object"]).max(axis=1, initial=0.0))
        table.add_row(
            name,
            f"{100 * ours.mean():.1f} %",
            f"{100 * theirs.mean():.1f} %",
            str(np.sum(ours & ~theirs)),
            str(np.sum(theirs & ~ours)),
            f"{apart:.2g}",
        )
    Console(width=100).print(table)
    print(f"{options.episodes} episodes each, seed {options.seed}; success at the last step.")
    print("Apart: where the first object ends, from where it ends with the other physics; median.")


def with_scene() -> list[str]:
    """Ids of environments whose robot touches things."""
    made = {id: fraxenv.make(id)[0] for id in fraxenv.list_envs()}
    return [id for id, env in made.items() if isinstance(env.physics, ContactPhysics)]


def outcome(
    env: Environment, params: EnvParams, act: Act, episodes: int, seed: int
) -> dict[str, NDArray[Any]]:
    """By episode, whether it ended in success (n,), and where its first object is (n, 3), m.

    (n, 0) where there is none.
    """
    length = int(np.asarray(params.max_steps_in_episode))

    def episode(key: Any) -> Any:
        obs, state = env.reset(key, params)

        def step(carry: Any, key: Any) -> Any:
            obs, state, _ = carry
            obs, state, _, _, info = env.step_env(key, state, act(obs, key), params)
            return (obs, state, info["success"]), None

        start = (obs, state, np.bool_(False))
        (_, state, success), _ = jax.lax.scan(step, start, jax.random.split(key, length))
        places = [x.q[:3] for x in state.world.objects.values()]
        return success, places[0] if places else jnp.zeros(0)

    keys = jax.random.split(jax.random.key(seed), episodes)
    success, place = jax.jit(jax.vmap(episode))(keys)
    return {"success": np.asarray(success), "object": np.asarray(place)}


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
