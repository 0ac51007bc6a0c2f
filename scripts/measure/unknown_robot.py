"""What the safety filter keeps of a robot that it does not know, as it is and robust.

`PandaReachObstacles-v0` with everything randomised (payload, masses, friction, motors, delays),
random actions and such that push the hand to the nearest sphere. Counts collisions and barriers
below zero, and measures what a policy step costs. The results are in docs/safety.md.

    python scripts/measure/unknown_robot.py --control-steps 10000000
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from rich.console import Console
from rich.progress import track
from rich.table import Table

import fraxenv
from fraxenv import dynamics
from fraxenv.controllers.safety.barriers import situation
from fraxenv.controllers.safety.conditions import barrier_conditions
from fraxenv.controllers.safety.robust import robust_demand
from fraxenv.dynamics import Obstacles, Sphere
from fraxenv.dynamics.solvers.cholesky import cholesky
from fraxenv.making.make import load_env_config

ID = "PandaReachObstacles-v0"
RANDOMISED = load_env_config("panda-reach-everything")["randomisation"]
PUSHED = 0.001
"""m, rad and rad/s: barriers further below zero than that are counted."""

FILTERS: dict[str, dict[str, Any]] = {
    "plain": {"safety": "cbf"},
    "plain, with the estimate": {"safety": "cbf", "observer": {"informs": "safety"}},
    "robust": {"safety": "robust"},
    "robust, with foresight": {"safety": "robust", "safety_options": {"foresight": True}},
    "robust, 3 cm off": {"safety": "robust", "safety_options": {"obstacle_margin": 0.03}},
    "robust, with foresight, 3 cm off": {
        "safety": "robust",
        "safety_options": {"foresight": True, "obstacle_margin": 0.03},
    },
}
Policy = Literal["random", "towards"]


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    control_steps: int = 10_000_000
    """Control steps of each row of the table."""
    envs: int = 4096
    """Environments at a time."""
    moving: int = 0
    """Spheres of the eight that move, at up to `speed` along each axis."""
    speed: float = 0.1
    """m/s."""
    filters: tuple[str, ...] = tuple(FILTERS)[:4]
    """Which: "plain", "plain, with the estimate", "robust", "robust, with foresight", "robust,
    3 cm off" and "robust, with foresight, 3 cm off"."""
    policies: tuple[Policy, ...] = ("random", "towards")
    """Uniformly random actions; full deflections towards the nearest sphere, turning at random."""
    known: bool = False
    """Whether the robot is the one that the filter knows."""
    rounds: int = 15
    """Of the measurement of cost; 0 for none."""
    seed: int = 0
    """Of the actions and the scenes."""


def made(name: str, options: Options) -> Any:
    """The environment with a filter, and its parameters."""
    task = movement(options.moving, options.speed)
    drawn = None if options.known else RANDOMISED
    return fraxenv.make(ID, task_options=task, randomisation=drawn, **FILTERS[name])


def movement(count: int, speed: float) -> dict[str, Any]:
    """Options of the task in which some of the spheres move at up to a speed, m/s, per axis."""
    return {"moving_count": count, "obstacle_speed": speed} if count else {}


def towards(robot: dynamics.Robot, q: Array, spheres: Sphere, drawn: Array) -> Array:
    """An action (k,) that moves the hand to the nearest sphere, and turns it as `drawn` does."""
    position, _ = dynamics.frame_pose(robot, q, "hand")
    way = spheres.position - position
    length = jnp.linalg.norm(way, axis=-1)
    way = way[jnp.argmin(length - spheres.radius)]
    return jnp.concatenate([way / jnp.max(jnp.abs(way)), drawn[3:]])


def count(name: str, policy: Policy, options: Options) -> dict[str, float]:
    """Policy steps in which something happened, by what it was."""
    env, params = made(name, options)
    n, chunk = options.envs, 25
    per_chunk = n * chunk * (env.control_hz // env.policy_hz)
    limit = jnp.asarray(env.robot.effort_limits, jnp.float32)

    @jax.jit
    def roll(state: Any, key: Array) -> tuple[Any, dict[str, Array]]:
        def step(state: Any, key: Array) -> tuple[Any, dict[str, Array]]:
            key_action, key_step = jax.random.split(key)
            action = jax.random.uniform(key_action, (n, env.num_actions), minval=-1.0)
            if policy == "towards":
                spheres = state.world.obstacles.spheres
                action = jax.vmap(towards, (None, 0, 0, 0))(env.robot, state.q, spheres, action)
            keys = jax.random.split(key_step, n)
            _, state, *_, info = jax.vmap(env.step, (0, 0, 0, None))(keys, state, action, params)
            report, clearance = info["safety"], info["clearance"]
            barrier = report["min_barrier"]
            torque = jnp.abs(info["controller"]["torque"])
            return state, {
                "collisions": jnp.sum(clearance < 0),
                "deepest": jnp.min(clearance),
                "below": jnp.sum(barrier < -PUSHED),
                "least": jnp.min(barrier),
                "torques": jnp.sum(jnp.any(torque > limit, axis=1)),
                "infeasible": jnp.sum(~report["feasible"]),
                "intervened": jnp.sum(report["intervened"]),
                "diverged": jnp.sum(info["diverged"]),
            }

        state, found = jax.lax.scan(step, state, jax.random.split(key, chunk))
        least = ("deepest", "least")
        return state, {k: jnp.min(x) if k in least else jnp.sum(x) for k, x in found.items()}

    keys = jax.random.split(jax.random.key(options.seed), 2)
    state = jax.jit(jax.vmap(env.reset, (0, None)))(jax.random.split(keys[0], n), params)[1]
    chunks = -(-options.control_steps // per_chunk)
    total: dict[str, float] = {"deepest": np.inf, "least": np.inf}
    began = time.perf_counter()
    for key in track(jax.random.split(keys[1], chunks), description=f"{name}, {policy}"):
        state, found = roll(state, key)
        for k, x in found.items():
            worst = k in ("deepest", "least")
            total[k] = min(total[k], float(x)) if worst else total.get(k, 0) + float(x)
    return total | {
        "control steps": chunks * per_chunk,
        "policy steps": chunks * n * chunk,
        "seconds": time.perf_counter() - began,
    }


def cost(options: Options) -> tuple[list[str], dict[str, float]]:
    """Time of a policy step with each filter, times the first one's; and margins of the robust one.

    Of the same random actions, from states after half a second of them.
    """
    n, length = options.envs, 25
    rolls, states, times = {}, {}, {}
    for name in options.filters:
        env, params = made(name, options)

        def roll(state: Any, key: Array, env: Any = env, params: Any = params) -> Any:
            def step(state: Any, key: Array) -> tuple[Any, None]:
                action = jax.random.uniform(key, (n, env.num_actions), minval=-1.0)
                keys = jax.random.split(key, n)
                return jax.vmap(env.step, (0, 0, 0, None))(keys, state, action, params)[1], None

            return jax.lax.scan(step, state, jax.random.split(key, length))[0]

        keys = jax.random.split(jax.random.key(1), n)
        _, state = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)
        rolls[name], times[name] = jax.jit(roll), []
        states[name] = jax.block_until_ready(rolls[name](state, jax.random.key(2)))
    for _ in range(options.rounds):
        for name, roll in rolls.items():
            began = time.perf_counter()
            jax.block_until_ready(roll(states[name], jax.random.key(3)))
            times[name].append(time.perf_counter() - began)
    base = np.array(next(iter(times.values())))
    lines = []
    for name, seconds in times.items():
        low, middle, high = np.quantile(np.array(seconds) / base, [0.1, 0.5, 0.9])
        each = 1e6 * np.median(seconds) / (n * length)
        lines.append(f"{name}: {each:.2f} us, {middle:.2f} times ({low:.2f} to {high:.2f})")
    if "robust" not in states:
        return lines, {}
    return lines, margins(*made("robust", options), states["robust"])


def margins(env: Any, params: Any, state: Any) -> dict[str, float]:
    """Margins, mm, of distances below 0.1 m, of these environments of the robust filter."""
    robot, safety = env.robot, params.safety
    (off,) = [barrier for barrier in safety.barriers if barrier.name == "obstacles"]

    def one(q: Array, v: Array, obstacles: Obstacles, memory: Any) -> tuple[Array, Array]:
        terms = dynamics.compute_terms(robot, q, v)
        near = safety.look_around(robot, q, obstacles)
        here = situation(robot, terms, near)
        found = barrier_conditions(robot, (off,), here, jnp.zeros_like(v))
        factor = cholesky(terms.mass_matrix)
        more = robust_demand(safety.robust, (off,), found, factor, memory.error)
        return found.values, more / jnp.asarray(off.rate, more.dtype) ** 2

    distance, margin = jax.jit(jax.vmap(one))(
        state.q, state.v, state.world.obstacles, state.observer_state
    )
    near = 1e3 * np.asarray(margin)[np.asarray(distance) < 0.1]
    return {f"{100 * x:g} %": float(np.quantile(near, x)) for x in (0.5, 0.9, 0.99)}


def main(options: Options) -> None:
    """Print the table."""
    table = Table(title=f"{ID}, {'as modelled' if options.known else 'everything randomised'}")
    headings = (
        "filter", "actions", "control steps", "policy steps in collision", "deepest, mm",
        "barrier < -0.001", "least", "over torque limit", "infeasible", "filter at work", "s",
    )  # fmt: skip
    for heading in headings:
        table.add_column(heading, justify="left" if heading in headings[:2] else "right")
    for policy in options.policies:
        for name in options.filters:
            found = count(name, policy, options)
            table.add_row(
                name,
                policy,
                f"{found['control steps']:,.0f}",
                f"{found['collisions']:,.0f}",
                f"{1e3 * max(0.0, -found['deepest']):.1f}",
                f"{found['below']:,.0f}",
                f"{found['least']:.2g}",
                f"{found['torques']:.0f}",
                f"{found['infeasible']:,.0f}",
                f"{100 * found['intervened'] / found['policy steps']:.1f} %",
                f"{found['seconds']:.0f}",
            )
    console = Console(width=150)
    console.print(table)
    if options.rounds:
        lines, widths = cost(options)
        console.print("policy steps: " + "; ".join(lines))
        console.print("margins below: " + ", ".join(f"{k} {x:.2g} mm" for k, x in widths.items()))


if __name__ == "__main__":
    main(tyro.cli(Options))
