"""How plans through contact push a cube, beside the scripted expert: PandaPush-v0.

    python scripts/measure/push_by_plan.py
    python scripts/measure/push_by_plan.py --ways scripted dragged dragged-50 --episodes 256
    python scripts/measure/push_by_plan.py --ways whole --episodes 16

Model-predictive control with the torques of the arm as actions, by the policy `mpc` or with other
problems in its place; every plan begins with the last.
The hand is sent to a station behind the cube as seen from the goal, first above it, then down; once
it is there, into the cube, so that it touches; and the cube to the goal. Ways to plan:

- "dragged": the cube moves in the plane, and what the table's friction does at a tenth of a metre a
  second resists it in proportion to its speed; two balls in the place of the pads touch it.
- "dragged-50": the same with 50 plans a second in place of 100, of steps twice as long.
- "aimless": as "dragged", but the cube's distance from the goal costs nothing.
- "balls": the cube is free, and lies on the table; two balls in the place of the pads.
- "whole": the environment's own scene, pads and table and all, its contacts softer.

Success is that of the last step, and "once" that of any; the time to the goal is that after which
every step is one of success. Plans of one robot alone are those of the first episode, again.
"Converged" and "regularisation" are how plans end that begin at rest where a pad touches the cube
and are given 50 iterations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from rich.console import Console
from rich.table import Table

import fraxenv
from fraxenv import plan
from fraxenv.dynamics import Scene, build_scene, plane_geom
from fraxenv.envs import Environment, EnvParams, PredictivePolicy, block, mpc_policy
from fraxenv.envs.observed import terms_of
from fraxenv.envs.predictive_cube import (
    balls,
    dragged_scene,
    push_problem,
    seen_free,
    softer,
)
from fraxenv.recording.scripted import expert_policy

Way = Literal["scripted", "dragged", "dragged-50", "aimless", "balls", "whole"]

ID, SECONDS = "PandaPush-v0", 3.0
HAND, CUBE, TABLE = "hand", "cube", "table"


@dataclass(frozen=True)
class Options:
    """Options of the measurement.

    Attributes:
        ways: to push.
        episodes: of each.
        seed: decides them.
        iterations: of each plan.
        ends: how many plans are solved to their ends; none if 0.
    """

    ways: tuple[Way, ...] = ("scripted", "dragged", "dragged-50", "aimless")
    episodes: int = 64
    seed: int = 0
    iterations: int = 2
    ends: int = 0


def planned_scene(env: Environment, way: Way, dt: float) -> Scene:
    """What is planned: arm and cube, with contacts whose time constant is two steps."""
    physics: Any = env.physics
    task: Any = env.default_params.task
    if way == "whole":
        return softer(physics.scene, 2.0 * dt)
    if way != "balls":
        return dragged_scene(env.robot, task, dt)
    pads = balls(HAND)
    scene = build_scene(
        env.robot,
        [block(CUBE)],
        [plane_geom(TABLE)],
        geoms=pads,
        pairs=[*((b.name, CUBE) for b in pads), (CUBE, TABLE)],
        impratio=10.0,
        integrator="discrete",
    )
    return softer(scene, 2.0 * dt)


def policy_of(
    env: Environment, params: EnvParams, way: Way, iterations: int
) -> PredictivePolicy | None:
    """What plans in a way; None where nothing does."""
    if way == "scripted":
        return None
    policy = mpc_policy(env, params, iterations)
    dt, task = 1.0 / env.policy_hz, cast(Any, params.task)
    place = 0.0 if way == "aimless" else 40.0
    problem = push_problem(planned_scene(env, way, dt), env.robot, task, dt, place)
    other = dataclasses.replace(policy, mpc=plan.MPC(problem, plan.Options(iterations)))
    free = way in ("balls", "whole")
    return dataclasses.replace(other, state=partial(seen_free, env)) if free else other


def made(way: Way) -> tuple[Environment, EnvParams]:
    """The environment, with the actions of a way to push."""
    if way == "scripted":
        return fraxenv.make(ID)
    hz = 50 if way.endswith("50") else 100
    steps = round(SECONDS * hz)
    return fraxenv.make(ID, action="torque", policy_hz=hz, max_steps_in_episode=steps)


def main(options: Options) -> None:
    """Run, and print the table."""
    table = Table(
        "way", "success", "once", "time to goal, s", "90 %", "at the end, mm", "90 %",
        "rad/s, 99 %", "ms a plan", "95 %", "compiles, s",
        title=f"{ID}, {options.episodes} episodes",
    )  # fmt: skip
    told = []
    for way in options.ways:
        env, params = made(way)
        planner = policy_of(env, params, way, options.iterations)
        began = perf_counter()
        run = jax.jit(partial(rollout, env, params, planner, options.episodes))
        compiled = run.lower(options.seed).compile()
        built = perf_counter() - began
        out, seen, touched = jax.device_get(compiled(options.seed))
        success, off = out["success"], 1e3 * out["distance"][-1]
        last = np.where(success.all(0), 0, len(success) - np.argmax(~success[::-1], axis=0))
        times = last[success[-1]] / env.policy_hz
        took = [] if planner is None else times_of_plans(planner, seen)
        table.add_row(
            way,
            f"{100 * success[-1].mean():.1f} %",
            f"{100 * success.any(0).mean():.1f} %",
            *(f"{np.quantile(times, p):.2f}" if len(times) else "-" for p in (0.5, 0.9)),
            *(f"{np.quantile(off, p):.1f}" for p in (0.5, 0.9)),
            f"{np.quantile(out['speed'], 0.99):.1f}",
            *(f"{1e3 * np.quantile(took, p):.2f}" if len(took) else "-" for p in (0.5, 0.95)),
            f"{built:.0f}",
        )
        if planner is not None and options.ends:
            told.append(f"{way}: {ends(planner, seen, touched, options.ends)}")
    Console(width=130).print(table)
    print(*told, sep="\n")


def times_of_plans(planner: PredictivePolicy, seen: Array) -> list[float]:
    """s, of each plan of the first episode, of the observations (steps, episodes, n)."""
    first = seen[:, 0]
    key, act, memory = jax.random.key(0), jax.jit(planner), jax.jit(planner.begin)(first[0])
    jax.block_until_ready(act(first[0], key, memory))
    times = []
    for one in first:
        began = perf_counter()
        _, memory = jax.block_until_ready(act(one, key, memory))
        times.append(perf_counter() - began)
    return times


def ends(planner: PredictivePolicy, seen: Array, touched: np.ndarray, count: int) -> str:
    """How plans end that begin at rest, from states in which a pad touches the cube."""
    which = np.flatnonzero(touched.ravel())
    which = which[np.linspace(0, len(which) - 1, count).astype(int)]
    some = seen.reshape(-1, seen.shape[-1])[which]
    problem = planner.mpc.problem

    def solved(obs: Array) -> Any:
        terms_seen = terms_of(planner.env, obs)
        q, v = planner.state(terms_seen)
        aim = planner.aim(terms_seen, q)

        def aimed(terms: Any) -> Any:
            own = {k: dataclasses.replace(terms[k], reference=x) for k, x in aim.items()}
            return {**terms, **own}

        own = dataclasses.replace(
            problem, running=aimed(problem.running), terminal=aimed(problem.terminal)
        )
        found = plan.solve(own, (q, v), plan.guess(own, q, v), plan.Options(50))
        return found.status, found.iterations

    status, iterations = jax.device_get(jax.jit(jax.vmap(solved))(some))
    shares = (f"{100 * np.mean(status == i):.0f} % {name}" for i, name in enumerate(plan.STATUS))
    return f"{', '.join(shares)}; {np.median(iterations):.0f} iterations in the median"


def rollout(
    env: Environment, params: EnvParams, planner: PredictivePolicy | None, episodes: int, seed: Any
) -> Any:
    """What was measured, what was observed, and whether a pad touched the cube then.

    Leading axes are steps and episodes.
    """
    keys = jax.random.split(jax.random.key(seed), episodes)
    obs, state = jax.vmap(lambda key: env.reset_env(key, params))(keys)
    physics: Any = env.physics
    on_cube = np.array([CUBE in pair and TABLE not in pair for pair in physics.pairs])
    scripted: Callable[..., Any] | None = None if planner else expert_policy(env, params)
    memory = None if planner is None else jax.vmap(planner.begin)(obs)

    def step(carry: Any, _: None) -> tuple[Any, Any]:
        seen, state, memory = carry
        if planner is None:
            assert scripted is not None
            action = jax.vmap(scripted)(seen, keys)
        else:
            action, memory = jax.vmap(planner)(seen, keys, memory)
        touched = jnp.any(state.world.contacts.normal_force[:, on_cube] > 0, axis=1)
        obs, state, _, _, info = jax.vmap(lambda k, s, a: env.step_env(k, s, a, params))(
            keys, state, action
        )
        measured = {
            "success": info["success"],
            "distance": info["object_distance"],
            "speed": jnp.max(jnp.abs(state.v), axis=-1),
        }
        return (obs, state, memory), (measured, seen, touched)

    steps = int(env.default_params.max_steps_in_episode)
    return jax.lax.scan(step, (obs, state, memory), length=steps)[1]


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
