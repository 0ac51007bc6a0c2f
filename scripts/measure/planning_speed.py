"""Time of inverse kinematics, of plans by samples and of motions among obstacles, of a Panda.

    python scripts/measure/planning_speed.py
    python scripts/measure/planning_speed.py --calls 1000 --poses 10000

Each program has its turn after the other, many times, in one process. On a busy machine times are
judged by that of all cores together, and by a yardstick, as many steps of the dynamics alone.
Poses are those of random configurations within the limits. Motions are between random
configurations without contact, among eight spheres of 5 to 15 cm; "hard" ones are those whose
straight line is blocked.
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
from fraxenv.dynamics import Obstacles, Sphere
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
    motions: int = 100
    """Motions of which it is counted how many are found, of either kind."""


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


def gaps(q: Array, obstacles: Obstacles) -> Array:
    """The least distance of the robot from anything, m."""
    around = dynamics.obstacle_distances(ROBOT, q, obstacles)
    return jnp.minimum(jnp.min(around), jnp.min(dynamics.self_distances(ROBOT, q)))


def among_obstacles(count: int, hard: bool) -> tuple[Array, Array, Obstacles]:
    """Beginnings and ends (count, 7), and obstacles with an axis of motions."""
    draw, (lower, upper) = np.random.default_rng(0), np.asarray(ROBOT.position_limits).T

    @jax.jit
    @jax.vmap
    def on_the_way(begin: Array, end: Array, obstacles: Obstacles) -> Array:
        s = jnp.linspace(0, 1, 17)[:, None]
        return jax.vmap(lambda q: gaps(q, obstacles))(begin + s * (end - begin))

    kept: list[Any] = []
    while sum(len(x[0]) for x in kept) < count:
        begin, end = jnp.asarray(draw.uniform(lower, upper, (2, 1000, ROBOT.nv)), float)
        places = draw.uniform([-0.8, -0.8, 0.0], [0.8, 0.8, 1.0], (1000, 8, 3))
        sizes = draw.uniform(0.05, 0.15, (1000, 8))
        spheres = Sphere(jnp.asarray(places, float), jnp.asarray(sizes, float))
        case = begin, end, Obstacles(spheres=spheres)
        found = np.asarray(on_the_way(*case))
        # The shoulder can be buried by no motion's fault.
        wanted = (found[:, [0, -1]] > 0.03).all(1)
        wanted &= (np.linalg.norm(places[..., :2], axis=-1) - sizes).min(axis=1) > 0.15
        if hard:
            wanted &= found.min(axis=1) < 0
        kept.append(jax.tree.map(lambda x, i=wanted: x[np.flatnonzero(i)], case))
    whole: tuple[Array, Array, Obstacles] = jax.tree.map(
        lambda *x: jnp.concatenate(x)[:count], *kept
    )
    return whole


def show_motions(console: Console, count: int) -> None:
    """How many motions are found, and how long each takes on its own."""
    to_configuration = jax.jit(lambda q, goal, obstacles: plan.reach(ROBOT, q, goal, obstacles))
    to_pose = jax.jit(
        lambda q, goal, obstacles: plan.reach(ROBOT, q, goal, obstacles, end_effector="hand")
    )
    along = jax.jit(jax.vmap(gaps, (0, None)))
    for hard in (False, True):
        begin, end, obstacles = among_obstacles(count, hard)
        hand = jax.vmap(lambda q: dynamics.frame_pose(ROBOT, q, "hand"))(end)
        for kind, program, goals in (
            ("a configuration", to_configuration, end),
            ("a pose", to_pose, hand),
        ):
            cases = [
                jax.tree.map(lambda x, k=k: x[k], (begin, goals, obstacles)) for k in range(count)
            ]
            jax.block_until_ready(program(*cases[0]))
            found, free, ms = [], [], []
            for case in cases:
                began = time.perf_counter_ns()
                motion = jax.block_until_ready(program(*case))
                ms.append((time.perf_counter_ns() - began) / 1e6)
                found.append(bool(motion.found))
                free.append(bool(jnp.min(along(motion.q, case[2])) > 0))
            assert found == free
            low, middle, high = np.percentile(ms, [5, 50, 95])
            console.print(
                f"{count} {'hard ' if hard else ''}motions to {kind}: {sum(found)} found; "
                f"{middle:.1f} ms in the median, {low:.1f} to {high:.1f}"
            )


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
    """Milliseconds (2, calls) of every call, of the clock and of all cores; programs in turns."""
    for program in programs.values():
        jax.block_until_ready(program())
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    for _ in range(calls):
        for name, program in programs.items():
            began = time.perf_counter_ns(), time.process_time_ns()
            jax.block_until_ready(program())
            ended = time.perf_counter_ns(), time.process_time_ns()
            took = [(e - b) / 1e6 for b, e in zip(began, ended, strict=True)]
            times[name].append((took[0], took[1]))
    return {name: np.array(ms).T for name, ms in times.items()}


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
    title = f"ms, {threads} threads, JAX {version}"
    table = Table("", "median", "5 %", "95 %", "of all cores", "ratio of these", title=title)
    times = measure(programs, options.calls)
    base = np.median(times[YARDSTICK][1])
    for name, (clock, cores) in times.items():
        low, middle, high = np.percentile(clock, [5, 50, 95])
        both = np.median(cores)
        row = f"{middle:.2f}", f"{low:.2f}", f"{high:.2f}", f"{both:.2f}", f"{both / base:.2f}"
        table.add_row(name, *row)
    console.print(table)
    show_motions(console, options.motions)


if __name__ == "__main__":
    main(tyro.cli(Options))
