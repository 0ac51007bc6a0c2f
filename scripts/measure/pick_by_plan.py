"""How plans through contact pick a cube up, beside the scripted expert: PandaPick-v0.

    python scripts/measure/pick_by_plan.py
    python scripts/measure/pick_by_plan.py --ways planned led --episodes 64 --seed 1

Model-predictive control of the environment's own scene, with all contacts of the cube and these
softer, 100 plans a second; the arm's actions are the plan's torques, the gripper's the width to
which its spring pulls as the plan says. Where the hand is sent, and when it closes, is the
expert's. "planned": the cube's distance from the goal costs. "led", the policy `mpc`: it costs
nothing, and the hand alone is sent to where the cube is at its goal.

Success is that of the last step, and "once" that of any; the time to the goal is that after which
every step is one of success. Plans are timed in the batch, with the environment's steps.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Literal, cast

import jax
import numpy as np
import tyro
from jax import Array
from rich.console import Console
from rich.table import Table

import fraxenv
from fraxenv import plan
from fraxenv.envs import Environment, EnvParams, PredictivePolicy, mpc_policy
from fraxenv.envs.predictive_cube import pick_problem
from fraxenv.recording.scripted import expert_policy

Way = Literal["scripted", "planned", "led"]

ID, HZ, SECONDS = "PandaPick-v0", 100, 3.0


@dataclass(frozen=True)
class Options:
    """Options of the measurement.

    Attributes:
        ways: to pick.
        episodes: of each.
        seed: decides them.
        iterations: of each plan.
    """

    ways: tuple[Way, ...] = ("scripted", "planned", "led")
    episodes: int = 32
    seed: int = 0
    iterations: int = 2


def main(options: Options) -> None:
    """Run, and print the table."""
    table = Table(
        "way", "success", "once", "time to goal, s", "90 %", "at the end, mm", "most",
        "ms a plan", "compiles, s", title=f"{ID}, {options.episodes} episodes",
    )  # fmt: skip
    for way in options.ways:
        env, params, planner = made(way, options.iterations)
        began = perf_counter()
        run = jax.jit(partial(rollout, env, params, planner, options.episodes))
        compiled = run.lower(options.seed).compile()
        built = perf_counter() - began
        began = perf_counter()
        success, distance = jax.device_get(compiled(options.seed))
        took = 1e3 * (perf_counter() - began) / success.size
        off = 1e3 * distance[-1]
        last = np.where(success.all(0), 0, len(success) - np.argmax(~success[::-1], axis=0))
        times = last[success[-1]] / env.policy_hz
        table.add_row(
            way,
            f"{100 * success[-1].mean():.1f} %",
            f"{100 * success.any(0).mean():.1f} %",
            *(f"{np.quantile(times, p):.2f}" if len(times) else "-" for p in (0.5, 0.9)),
            *(f"{np.quantile(off, p):.2f}" for p in (0.5, 1.0)),
            f"{took:.1f}" if planner else "-",
            f"{built:.0f}",
        )
    Console(width=120).print(table)


def made(way: Way, iterations: int) -> tuple[Environment, EnvParams, PredictivePolicy | None]:
    """The environment, and what plans in it."""
    if way == "scripted":
        return *fraxenv.make(ID, max_steps_in_episode=round(SECONDS * 50)), None
    steps = round(SECONDS * HZ)
    env, params = fraxenv.make(ID, action="torque", policy_hz=HZ, max_steps_in_episode=steps)
    policy = mpc_policy(env, params, iterations)
    if way == "planned":
        physics, task = cast(Any, env.physics), cast(Any, params.task)
        problem = pick_problem(physics.scene, env.robot, task, 1.0 / HZ, place=20.0)
        policy = dataclasses.replace(policy, mpc=plan.MPC(problem, plan.Options(iterations)))
    return env, params, policy


def rollout(
    env: Environment, params: EnvParams, planner: PredictivePolicy | None, episodes: int, seed: Any
) -> tuple[Array, Array]:
    """Success, and the cube's distance from its goal, m, (steps, episodes) each."""
    keys = jax.random.split(jax.random.key(seed), episodes)
    obs, state = jax.vmap(lambda key: env.reset_env(key, params))(keys)
    memory = jax.vmap(planner.begin)(obs) if planner else None
    scripted = None if planner else expert_policy(env, params)

    def step(carry: Any, _: None) -> tuple[Any, tuple[Array, Array]]:
        obs, state, memory = carry
        if planner is not None:
            action, memory = jax.vmap(planner)(obs, keys, memory)
        else:
            action = jax.vmap(scripted)(obs, keys)  # type: ignore[arg-type]
        obs, state, _, _, info = jax.vmap(lambda k, s, a: env.step_env(k, s, a, params))(
            keys, state, action
        )
        return (obs, state, memory), (info["success"], info["object_distance"])

    steps = round(SECONDS * env.policy_hz)
    return jax.lax.scan(step, (obs, state, memory), length=steps)[1]  # type: ignore[no-any-return]


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
