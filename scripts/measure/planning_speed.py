"""Time of inverse kinematics and of plans by samples, of a Panda.

    python scripts/measure/planning_speed.py
    python scripts/measure/planning_speed.py --calls 1000 --poses 10000

Each program has its turn after the other, many times, in one process; beside them is a yardstick,
the same number of steps of the dynamics alone, by which times on a busy machine may be judged.
Poses are those of random configurations within the limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from rich.console import Console
from rich.table import Table

import fraxenv
from fraxenv import dynamics, plan
from fraxenv.kernels import fusible, get_threads

ROBOT = dynamics.load_robot("panda")
SAMPLES, STEPS, POSES = 1024, 50, 100
YARDSTICK = f"{SAMPLES} x {STEPS} steps of the dynamics"


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    calls: int = 200
    """Calls of each program."""
    poses: int = 4000
    """Poses of which it is counted how many are reached."""


Program = Callable[[], Any]


def poses(count: int) -> tuple[Array, Array]:
    """Positions (count, 3) and rotations (count, 3, 3) of the hand."""
    keys = jax.random.split(jax.random.key(1), count)
    q = jax.vmap(lambda key: dynamics.random_configuration(ROBOT, key))(keys)
    hands: tuple[Array, Array] = jax.vmap(lambda q: dynamics.frame_pose(ROBOT, q, "hand"))(q)
    return hands


def reaching(seeds: int) -> Callable[..., plan.IKSolution]:
    def one(position: Array, rotation: Array) -> plan.IKSolution:
        return plan.inverse_kinematics(ROBOT, "hand", (position, rotation), seeds=seeds)

    return jax.jit(jax.vmap(one))


def sampling(horizon: int, **options: Any) -> Program:
    """Towards a pose, from the default posture."""
    goal = [0.5, 0.2, 0.4], np.diag([1.0, -1.0, -1.0])
    running = {
        "reach": plan.pose("hand", *goal, weight=10.0),
        "still": plan.velocity(weight=0.1),
        "effort": plan.torque(weight=1e-3, beyond_gravity=True),
    }
    terminal = {"reach": plan.pose("hand", *goal, weight=1e3), "still": plan.velocity(weight=10.0)}
    problem = plan.Problem(ROBOT, horizon, 0.02, running, terminal, control_limits=True)
    chosen = plan.Sampling(**options)
    state = jnp.asarray(ROBOT.q_default), jnp.zeros(ROBOT.nv)
    guess, key = plan.guess(problem, *state), jax.random.key(0)
    program = jax.jit(lambda state, guess, key: plan.sample(problem, state, guess, key, chosen))
    return lambda: program(state, guess, key)


def acting(samples: int, steps: int) -> Program:
    """Actions of an environment, each of twenty control steps."""
    env, params = fraxenv.make("PandaReach-v0")
    key = jax.random.key(0)
    _, state = env.reset(key, params)
    options = plan.Sampling(samples=samples, knots=4)

    @jax.jit
    def program(state: Any, actions: Array, key: Array) -> plan.Sampled:
        def cost(actions: Array) -> Array:
            def step(state: Any, action: Array) -> tuple[Any, Array]:
                _, state, reward, _, _ = env.step_env(key, state, action, params)
                return state, -reward

            return jnp.sum(jax.lax.scan(step, state, actions)[1])

        return plan.sample_controls(cost, actions, key, options, (-1.0, 1.0))

    actions = jnp.zeros((steps, env.num_actions))
    return lambda: program(state, actions, key)


def yardstick() -> Program:
    @fusible
    def roll(q: Array, v: Array, tau: Array) -> tuple[Array, Array]:
        def step(at: tuple[Array, Array], tau: Array) -> tuple[tuple[Array, Array], None]:
            return dynamics.step(ROBOT, *at, tau, 0.02), None

        return jax.lax.scan(step, (q, v), tau)[0]

    batch = jax.jit(jax.vmap(roll, (None, None, 0)))
    state = jnp.asarray(ROBOT.q_default), jnp.zeros(ROBOT.nv)
    tau = jnp.zeros((SAMPLES, STEPS, ROBOT.nv))
    return lambda: batch(*state, tau)


def measure(programs: dict[str, Program], calls: int) -> dict[str, np.ndarray]:
    """Milliseconds of every call, the programs in turns."""
    for program in programs.values():
        jax.block_until_ready(program())
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(calls):
        for name, program in programs.items():
            began = time.perf_counter_ns()
            jax.block_until_ready(program())
            times[name].append((time.perf_counter_ns() - began) / 1e6)
    return {name: np.array(ms) for name, ms in times.items()}


def main(options: Options) -> None:
    """Measure and print."""
    console = Console()
    few, many = poses(POSES), poses(options.poses)
    programs: dict[str, Program] = {YARDSTICK: yardstick()}
    for seeds in (8, 16):
        program = reaching(seeds)
        found: plan.IKSolution = program(*many)
        share, there = 100 * float(found.found.mean()), found.found
        worst = [float(jnp.max(error[there])) for error in found[1:3]]
        console.print(
            f"{seeds} seeds reach {share:.2f} % of {options.poses} poses, to {worst[0]:.0e} m and "
            f"{worst[1]:.0e} rad"
        )
        programs[f"inverse kinematics, {POSES} poses, {seeds} seeds"] = lambda p=program: p(*few)  # type: ignore[misc]
    for method in ("predictive", "mppi", "cem"):
        name = f"{method}, {SAMPLES} samples of {STEPS} steps"
        programs[name] = sampling(STEPS, method=method, samples=SAMPLES)
    programs["predictive, 60 samples of 55 steps"] = sampling(55, method="predictive", samples=60)
    programs["mppi, 256 samples of 16 actions of PandaReach-v0"] = acting(256, 16)

    threads, version = get_threads(), jax.__version__
    table = Table(
        "", "median, ms", "5 %", "95 %", "ratio", title=f"{threads} threads, JAX {version}"
    )
    times = measure(programs, options.calls)
    base = np.median(times[YARDSTICK])
    for name, ms in times.items():
        low, middle, high = np.percentile(ms, [5, 50, 95])
        table.add_row(name, f"{middle:.2f}", f"{low:.2f}", f"{high:.2f}", f"{middle / base:.2f}")
    console.print(table)


if __name__ == "__main__":
    main(tyro.cli(Options))
