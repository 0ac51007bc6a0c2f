"""What the safety filter keeps: a random policy among obstacles, with the filter on and off.

Counts, at every control step, barriers that become negative and torques beyond their limits, and
measures what the filter costs. The results are in docs/safety.md.

    python scripts/measure/validate_safety.py --control-steps 10000000
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from rich.console import Console
from rich.progress import track
from rich.table import Table

import fraxenv
from fraxenv.controllers import OSC, PoseTarget, SafetyFilter
from fraxenv.dynamics import (
    Actuators,
    ActuatorState,
    Obstacles,
    Sphere,
    compute_terms,
    frame_pose,
    load_robot,
)
from fraxenv.making.make import load_env_config

MARGIN = 0.002
"""m, of the default barriers."""

RANDOMISED = load_env_config("panda-reach-everything")["randomisation"]


@dataclass(frozen=True)
class Options:
    """Options of the validation."""

    control_steps: int = 10_000_000
    """Control steps of each row of the table."""
    envs: int = 4096
    """Environments at a time."""
    seed: int = 0
    """Seed of the actions and the scenes."""
    write: Path | None = None
    """A Markdown file for the table."""


ROWS: dict[str, dict[str, Any]] = {
    "filter on": {},
    "on, policy at 1 kHz": {"policy_hz": 1000, "max_steps_in_episode": 3000},
    "filter off": {"safety_options": {"enabled": False}},
    "on, target runs ahead": {"action_options": {"target": "desired"}},
    "off, target runs ahead": {
        "action_options": {"target": "desired"},
        "safety_options": {"enabled": False},
    },
    "on, 4 of 8 spheres move": {"task_options": {"moving_count": 4}},
    "off, 4 of 8 spheres move": {
        "task_options": {"moving_count": 4},
        "safety_options": {"enabled": False},
    },
    "randomised: motors late": {"randomisation": {"motor_delay": RANDOMISED["motor_delay"]}},
    "randomised: all else": {"randomisation": {**RANDOMISED, "motor_delay": None}},
    "randomised: all": {"randomisation": RANDOMISED},
}


def count(name: str, changes: dict[str, Any], options: Options) -> dict[str, Any]:
    """Roll a random policy out, and count policy steps in which something happened."""
    env, params = fraxenv.make("PandaReachObstacles-v0", **changes)
    limit = jnp.asarray(env.robot.effort_limits, jnp.float32)
    n, chunk = options.envs, 25
    per_chunk = n * chunk * (env.control_hz // env.policy_hz)

    @jax.jit
    def roll(state: Any, key: Array) -> tuple[Any, dict[str, Array]]:
        def step(state: Any, key: Array) -> tuple[Any, dict[str, Array]]:
            key_action, key_step = jax.random.split(key)
            shape = (n, env.num_actions)
            action = jax.random.uniform(key_action, shape, minval=-1.0, maxval=1.0)
            keys = jax.random.split(key_step, n)
            obs, state, *_, info = jax.vmap(env.step, (0, 0, 0, None))(keys, state, action, params)
            report, control = info["safety"], info["controller"]
            barrier, row = report["min_barrier"], report["min_barrier_row"]
            return state, {
                "violations": jnp.sum(barrier < 0),
                "beyond the margin": jnp.sum(barrier < -MARGIN),
                "least": jnp.min(barrier),
                "row": row[jnp.argmin(barrier)],
                "interventions": jnp.sum(report["intervened"]),
                "infeasible": jnp.sum(~report["feasible"]),
                "collisions": jnp.sum(info["clearance"] < 0),
                "torques": jnp.sum(jnp.any(jnp.abs(control["torque"]) > limit, axis=1)),
                "not finite": jnp.sum(~jnp.isfinite(obs)) + jnp.sum(info["diverged"]),
            }

        state, found = jax.lax.scan(step, state, jax.random.split(key, chunk))
        worst = jnp.argmin(found["least"])
        picked = {"least": found["least"][worst], "row": found["row"][worst]}
        return state, {k: jnp.sum(v) for k, v in found.items()} | picked

    keys = jax.random.split(jax.random.key(options.seed), 2)
    state = jax.jit(jax.vmap(env.reset, (0, None)))(jax.random.split(keys[0], n), params)[1]
    chunks = -(-options.control_steps // per_chunk)
    total: dict[str, Any] = {}
    began = time.perf_counter()
    for key in track(jax.random.split(keys[1], chunks), description=f"{name:26s}"):
        state, found = roll(state, key)
        numbers = {k: float(v) for k, v in found.items()}
        if numbers["least"] > total.get("least", np.inf):
            numbers |= {"least": total["least"], "row": total["row"]}
        for k, v in numbers.items():
            total[k] = v if k in ("least", "row") else total.get(k, 0.0) + v
    total["policy steps"] = chunks * n * chunk
    total["control steps"] = chunks * per_chunk
    total["seconds"] = time.perf_counter() - began
    world = jax.tree.map(lambda x: x[0], state.world).obstacles
    total["worst"] = params.safety.row_names(env.robot, world)[int(total["row"])]
    return total


def far_from_everything(states: int, seed: int) -> float:
    """Largest change of torque, relative, about the ready pose with obstacles metres away."""
    robot = load_robot("panda")
    safety, osc = SafetyFilter(end_effectors=("hand",)), OSC("hand")
    world = Obstacles(Sphere(jnp.full((8, 3), 5.0), jnp.full(8, 0.05)))

    def one(key: Array) -> Array:
        k = jax.random.split(key, 3)
        q = jnp.asarray(robot.q_default, jnp.float32)
        q = q + 0.1 * jax.random.uniform(k[0], (robot.nv,), minval=-1.0)
        v = 0.1 * jax.random.uniform(k[1], (robot.nv,), minval=-1.0)
        terms = compute_terms(robot, q, v)
        position, rotation = frame_pose(robot, q, "hand")
        target = PoseTarget(position + 0.02 * jax.random.normal(k[2], (3,)), rotation)
        tau, _, _ = osc(robot, terms, target, osc.init(robot, terms), 0.001)
        tau, _, _ = Actuators()(robot, tau, v, ActuatorState(), 0.001)
        safe, _ = safety(robot, terms, tau, 0.001, world)
        return jnp.max(jnp.abs(safe - tau)) / (1 + jnp.max(jnp.abs(tau)))

    return float(jnp.max(fraxenv.fuse(one)(jax.random.split(jax.random.key(seed), states))))


def cost(envs: int, rounds: int = 15) -> tuple[float, float, float]:
    """Control steps with the filter, times without, and the spread (10 % and 90 %).

    States and targets of environments that a random policy has moved for half a second.
    """
    env, params = fraxenv.make("PandaReachObstacles-v0")
    robot, safety, osc = env.robot, params.safety, params.controller
    keys = jax.random.split(jax.random.key(1), envs)
    state = jax.vmap(env.reset, (0, None))(keys, params)[1]
    step = jax.jit(jax.vmap(env.step, (0, 0, 0, None)))
    for k in range(25):
        action = jax.random.uniform(jax.random.key(k), (envs, env.num_actions), minval=-1.0)
        _, state, *_ = step(keys, state, action, params)
    target = jax.vmap(lambda q, a, s: params.action.command(robot, q, a, s)[0])(
        state.q, action, state.action_state
    )

    def control(q: Array, v: Array, target: Any, spheres: Array, on: bool) -> Any:
        terms, actuators, motors = compute_terms(robot, q, v), Actuators(), ActuatorState()
        tau, _, _ = osc(robot, terms, target, osc.init(robot, terms), 0.001)
        report: dict[str, Array] = {}
        if on:
            around = Obstacles(Sphere(spheres, jnp.full(8, 0.05)))
            reach = actuators.range(robot, v, motors, 0.001)
            tau, report = safety(robot, terms, tau, 0.001, around, reach)
        applied, _, _ = actuators(robot, tau, v, motors, 0.001)
        return fraxenv.dynamics.step(robot, q, v, applied, 0.001, terms=terms), report

    kernels = [fraxenv.fuse(lambda q, v, t, s, on=on: control(q, v, t, s, on)) for on in (0, 1)]
    args = (state.q, state.v, target, state.world.obstacles.spheres.position)
    ratios = []
    for kernel in kernels:
        jax.block_until_ready(kernel(*args))
    for _ in range(rounds):
        seconds = []
        for kernel in kernels:
            times = []
            for _ in range(20):
                began = time.perf_counter()
                jax.block_until_ready(kernel(*args))
                times.append(time.perf_counter() - began)
            seconds.append(float(np.median(times)))
        ratios.append(seconds[1] / seconds[0])
    low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
    return float(middle), float(low), float(high)


def main(options: Options) -> int:
    """Run everything, print the table, and say whether all holds."""
    console = Console(width=130)
    table = Table(title="Panda among 8 spheres, random policy, float32")
    headings = (
        "", "control steps", "barrier < 0", "< -2 mm", "least", "collisions", "over torque limit",
        "filter at work", "infeasible", "not finite",
    )  # fmt: skip
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left")
    lines, notes, failed = [], [], []
    for name, changes in ROWS.items():
        found = count(name, changes, options)
        share = 100 / found["policy steps"]
        row = [
            name,
            f"{found['control steps']:,.0f}",
            f"{found['violations']:,.0f}",
            f"{found['beyond the margin']:,.0f}",
            f"{found['least']:.2g}",
            f"{found['collisions']:,.0f}",
            f"{found['torques']:.0f}",
            f"{share * found['interventions']:.1f} %",
            f"{share * found['infeasible']:.4f} %",
            f"{found['not finite']:.0f}",
        ]
        table.add_row(*row)
        lines.append("| " + " | ".join(row) + " |")
        kept = found["beyond the margin"] == found["torques"] == found["not finite"] == 0
        if "on" in name.split(",")[0].split() and not kept:
            failed.append(name)
        notes.append(f"{name}: least {found['worst']}, {found['seconds']:.0f} s")
    console.print(table)
    console.print("\n".join(notes))
    change = far_from_everything(20_000, options.seed)
    middle, low, high = cost(options.envs)
    texts = [
        f"far from everything, filtered torque equals nominal to {change:.1e} (limit 1e-5)",
        f"control step with the filter: {middle:.2f} times without ({low:.2f} to {high:.2f})",
    ]
    for text in texts:
        console.print(text)
    if change > 1e-5:
        failed.append("far from everything")
    for name in failed:
        console.print(f"does not hold: {name}")
    if options.write is not None:
        options.write.write_text("\n".join([*lines, *texts]) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
