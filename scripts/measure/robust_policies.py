"""What the robust filter is worth to policies: trained with it on the robot as modelled, then let
loose on robots that are not as modelled, in our physics and in MuJoCo's.

    python scripts/measure/robust_policies.py
    python scripts/measure/robust_policies.py --seeds 1 --mujoco-episodes 50
    python scripts/measure/robust_policies.py --moving 4 --speed 0.5 --mujoco-episodes 0 \
        --filters robust "robust, 3 cm off"

PPO by its preset, on `PandaReachObstacles-v0` with each filter. Policies are evaluated on the robot
as modelled, and with everything randomised, with the filter that they were trained with; those of
the plain filter without one, too ("taken off"). MuJoCo has robots drawn alike, one for each
episode. Time to the goal is that after which every step is one of success; of episodes that end in
success. The results are in docs/safety.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from compare_training import trained
from jax import Array
from rich.console import Console
from rich.table import Table
from unknown_robot import FILTERS as COUNTED
from unknown_robot import ID, RANDOMISED, movement

import fraxenv
from fraxenv.cross_check.mujoco import MujocoOracle
from fraxenv.cross_check.physics import MujocoPhysics, with_mujoco
from fraxenv.dynamics import Robot
from fraxenv.envs import Environment, EnvParams
from fraxenv.storage.files import write_atomic
from fraxenv.training import load_policy
from fraxenv.training.config import preset

KINDS: dict[str, dict[str, Any]] = {
    **{kind: {"safety": kind} for kind in ("none", "cbf", "robust")},
    **{kind: COUNTED[kind] for kind in ("robust, 3 cm off", "robust, with foresight")},
}
FILTERS = {
    "none": ("none", "none"),
    "taken off": ("cbf", "none"),
    "cbf": ("cbf", "cbf"),
    "robust": ("robust", "robust"),
    "robust, 3 cm off": ("robust, 3 cm off", "robust, 3 cm off"),
    "robust, with foresight": ("robust, with foresight", "robust, with foresight"),
}
"""In training, and in evaluation."""

IN_MODEL = ("link_mass", "link_com", "link_inertia", "payload", "payload_offset", "armature",
            "gravity")  # fmt: skip
"""What MuJoCo's model holds; the rest of an episode's draws is applied from outside."""


@dataclass(frozen=True)
class Options:
    """Options of the comparison."""

    output: Path = Path("runs/robust_policies")
    """Folder for the runs and the results."""
    filters: tuple[str, ...] = tuple(FILTERS)[:4]
    """Which: "none", "taken off", "cbf", "robust", "robust, 3 cm off", "robust, with foresight"."""
    moving: int = 0
    """Spheres of the eight that move, at up to `speed` along each axis."""
    speed: float = 0.1
    """m/s."""
    seeds: int = 3
    """Trainings with each filter."""
    episodes: int = 2000
    """Of each evaluation in our physics."""
    mujoco_episodes: int = 200
    """Of each in MuJoCo's."""

    def made(self, kind: str) -> dict[str, Any]:
        """Arguments of `make` besides the id: the filter of a kind, and what moves."""
        return {**KINDS[kind], "task_options": movement(self.moving, self.speed)}


@dataclass(frozen=True)
class EachItsOwn(MujocoPhysics):
    """MuJoCo's physics of several robots: the k-th of a batch of environments has the k-th."""

    robots: tuple[Robot, ...] = ()

    @cached_property
    def oracles(self) -> list[MujocoOracle]:
        """A model of each."""
        return [MujocoOracle.from_robot(robot, self.timestep) for robot in self.robots]

    def _steps_on_host(self, *batch: Any) -> Any:
        arrays = [np.asarray(x) for x in batch]
        if arrays[0].ndim == 1:  # as it is traced, or of one environment
            return super()._steps_on_host(*batch)
        dtype, found = arrays[0].dtype, []
        for oracle, *row in zip(self.oracles, *arrays, strict=True):
            found.append(oracle.step(*(np.asarray(x, float) for x in row)))
        return tuple(np.stack(x).astype(dtype) for x in zip(*found, strict=True))


def drawn(count: int, seed: int) -> tuple[Robot, ...]:
    """Robots that are not as modelled."""
    env, params = fraxenv.make(ID, safety="none", randomisation=RANDOMISED)

    def one(key: Array) -> Robot:
        _, state = env.reset(key, params)
        robot = state.episode.true_robot(env.robot)
        return env.robot if robot is None else robot

    keys = jax.random.split(jax.random.key(seed), count)
    robots = jax.device_get(jax.jit(jax.vmap(one))(keys))
    return tuple(jax.tree.map(lambda x, k=k: x[k], robots) for k in range(count))


def in_mujoco(made: dict[str, Any], count: int) -> tuple[Environment, EnvParams]:
    """The environment with MuJoCo's physics, and everything randomised."""
    outside = {name: x for name, x in RANDOMISED.items() if name not in IN_MODEL}
    env, params = fraxenv.make(ID, randomisation=outside, **made)
    theirs = with_mujoco(env)
    theirs.physics = EachItsOwn(env.robot, theirs.physics.timestep, drawn(count, 1))
    return theirs, params


def evaluator(env: Environment, params: EnvParams, count: int) -> Any:
    """A compiled function: by episode success, the least clearance and the time to the goal."""
    length = int(np.asarray(params.max_steps_in_episode))

    def episodes(policy: Any, key: Array) -> dict[str, Array]:
        obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(key, count), params)

        def step(carry: Any, k: Array) -> tuple[Any, None]:
            obs, state, nearest, since, _ = carry
            keys = jax.random.split(jax.random.fold_in(key, k), count)
            action = jax.vmap(policy)(obs)
            obs, state, _, _, info = jax.vmap(env.step_env, (0, 0, 0, None))(
                keys, state, action, params
            )
            there = info["success"]
            since = jnp.where(there, since, k + 1)  # steps before the last that are all successes
            nearest = jnp.minimum(nearest, info["clearance"])
            return (obs, state, nearest, since, there), None

        far = jnp.full(count, jnp.inf, state.q.dtype)
        begin = obs, state, far, jnp.zeros(count, jnp.int32), jnp.zeros(count, bool)
        (_, _, nearest, since, there), _ = jax.lax.scan(step, begin, jnp.arange(length))
        return {"success": there, "nearest": nearest, "since": since}

    return jax.jit(episodes)


def main(options: Options) -> None:
    """Train, evaluate, print and write."""
    console, rows = Console(width=110), []
    table = Table("filter", "world", "success, %", "episodes in collision, %", "deepest, mm",
                  "to the goal, s")  # fmt: skip
    for name in options.filters:
        taught, safety = FILTERS[name]
        made = options.made(safety)
        where = options.output / (f"{options.moving}-{options.speed}" if options.moving else "")
        runs = [where / f"{taught}-{seed}" for seed in range(options.seeds)]
        for seed, run in enumerate(runs):
            trained(replace(preset(ID, "ppo"), seed=seed, overrides=options.made(taught)), run)
        policies = [load_policy(run)[0] for run in runs]
        many, few = options.episodes, options.mujoco_episodes
        worlds: dict[str, tuple[Any, int]] = {
            "as modelled": (fraxenv.make(ID, **made), many),
            "randomised": (fraxenv.make(ID, randomisation=RANDOMISED, **made), many),
        }
        if few:
            worlds["randomised, MuJoCo"] = in_mujoco(made, few), few
        for world, ((env, params), count) in worlds.items():
            with console.status(f"{name}, {world}"):
                run_episodes = evaluator(env, params, count)
                found = [
                    jax.device_get(run_episodes(policy, jax.random.key(0x5EED)))
                    for policy in policies
                ]
            row = {
                "filter": name, "world": world, "episodes": count,
                "success": [float(f["success"].mean()) for f in found],
                "collisions": [float((f["nearest"] < 0).mean()) for f in found],
                "deepest_mm": [float(max(0.0, -1e3 * f["nearest"].min())) for f in found],
                "seconds": [
                    float(np.median(f["since"][f["success"]]) / env.policy_hz)
                    if f["success"].any() else float("nan")
                    for f in found
                ],
            }  # fmt: skip
            rows.append(row)
            table.add_row(
                name, world,
                *(" / ".join(f"{100 * x:.1f}" for x in row[k]) for k in ("success", "collisions")),
                *(" / ".join(f"{x:.{n}f}" for x in row[k])
                  for k, n in (("deepest_mm", 1), ("seconds", 2))),
            )  # fmt: skip
            write_atomic(options.output / "results.json", json.dumps(rows, indent=2).encode())
    console.print(table)


if __name__ == "__main__":
    main(tyro.cli(Options))
