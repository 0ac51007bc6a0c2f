"""How well quadratic programs of the safety filter are solved in float32, and how fast.

Random states of a Panda among obstacles (free, crowded, at joint limits, at singularities, with
repeated and with contradictory rows, inside obstacles) give the problems; quadprog, in float64,
gives the answers. Compared are the active-set method that the filter uses, ADMM (the method of
OSQP) and, if it is installed, the interior-point method of qpax.

    python scripts/measure/compare_qp.py --states 100000
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import quadprog
import tyro
from jax import Array
from rich.console import Console
from rich.progress import track
from rich.table import Table

import fraxenv
from fraxenv.controllers import OSC, QP, PoseTarget, SafetyFilter, solve_qp
from fraxenv.dynamics import (
    Obstacles,
    Robot,
    Sphere,
    Terms,
    compute_terms,
    frame_pose,
    load_robot,
)
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.solvers.cholesky import cholesky, cholesky_solve

KINDS = ("free", "crowded", "at joint limits", "singular", "degenerate", "contradictory")
SINGULAR = ((3, -0.07), (5, 0.0), (1, 0.0))
"""Joints, and angles in rad, that make the Panda singular."""


@dataclass(frozen=True)
class Options:
    """Options of the comparison."""

    states: int = 100_000
    """Number of random states."""
    seed: int = 0
    """Seed of the states."""
    chunk: int = 5_000
    """States computed at a time."""
    write: Path | None = None
    """A Markdown file for the table."""


def random_state(key: Array, robot: Robot, kind: Array) -> tuple[Array, Array, Obstacles, Array]:
    """Configuration, velocity, obstacles and the hand's target, of one of `KINDS`."""
    k = jax.random.split(key, 9)
    lower, upper = jnp.asarray(robot.position_limits, jnp.float32).T
    q = lower + (upper - lower) * jax.random.uniform(k[0], (robot.nv,))
    edge = jnp.where(jax.random.bernoulli(k[1], 0.5, (robot.nv,)), lower, upper)
    at_edge = (kind == 2) & jax.random.bernoulli(k[2], 0.4, (robot.nv,))
    q = jnp.where(at_edge, edge, q)
    joints, angles = (jnp.asarray(x) for x in zip(*SINGULAR, strict=True))
    stretched = q.at[joints].set(angles.astype(q.dtype))
    q = jnp.where(kind == 3, stretched, q)
    v = jnp.asarray(robot.velocity_limits, q.dtype) * jax.random.uniform(
        k[3], (robot.nv,), minval=-1.0
    )
    v = v * jnp.where(kind == 0, 0.3, 1.0)
    low, high = jnp.array([-0.8, -0.8, 0.0]), jnp.array([0.8, 0.8, 1.2])
    position = low + (high - low) * jax.random.uniform(k[4], (8, 3))
    hand, _ = frame_pose(robot, q, "hand")
    near = hand + 0.15 * jax.random.normal(k[5], (8, 3))
    position = jnp.where((kind == 1) | (kind == 5), near, position)
    position = jnp.where(kind == 4, position.at[4:].set(position[:4]), position)
    radius = 0.03 + 0.05 * jax.random.uniform(k[6], (8,))
    radius = jnp.where(kind == 4, radius.at[4:].set(radius[:4]), radius)
    radius = jnp.where(kind == 5, 3 * radius, radius)
    target = hand + jax.random.uniform(k[7], (3,), minval=-0.3, maxval=0.3)
    return q, v, Obstacles(Sphere(position, radius)), target


def random_problem(
    key: Array, robot: Robot, safety: SafetyFilter
) -> tuple[Array, QP, tuple[Array, Array]]:
    """Kind, quadratic program, and the filter's torque with its limit."""
    key_kind, key_state = jax.random.split(key)
    kind = jax.random.randint(key_kind, (), 0, len(KINDS))
    q, v, obstacles, target = random_state(key_state, robot, kind)
    terms: Terms = compute_terms(robot, q, v)
    osc = OSC("hand")
    goal = PoseTarget(target, frame_pose(robot, q, "hand")[1])
    tau, _, _ = osc(robot, terms, goal, osc.init(robot, terms), 0.001)
    problem = safety.quadratic_program(robot, terms, tau, 0.001, obstacles)
    filtered, _ = safety(robot, terms, tau, 0.001, obstacles)
    limit = jnp.asarray(robot.effort_limits, q.dtype)
    return kind, problem, (filtered, jnp.max(jnp.abs(filtered) - limit))


def admm(problem: QP, iterations: int = 100) -> tuple[Array, Array, Array]:
    """OSQP's method without adaptation: minimiser, multipliers of `[A; C; -C]`, iterations.

    Stellato et al., "OSQP: an operator splitting solver for quadratic programs", 2020, algorithm 1.
    """
    H, A, b, C, lower, upper = problem
    rows = jnp.concatenate([A, C])
    # Rows of unit length; OSQP's own scaling does as much.
    scale = 1 / jnp.sqrt(jnp.sum(rows**2, axis=1) + 1e-12)
    rows = rows * scale[:, None]
    low = jnp.concatenate([b, lower]) * scale
    high = jnp.concatenate([jnp.full_like(b, jnp.inf), upper]) * scale
    rho, sigma = 1.0 * jnp.mean(jnp.diagonal(H)), 1e-6
    factor = cholesky(H + sigma * jnp.eye(len(H)) + rho * matmul(rows.T, rows))

    def iterate(_: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, z, y = state
        x = cholesky_solve(factor, sigma * x + matmul(rows.T, rho * z - y))
        image = 1.6 * matmul(rows, x) + (1 - 1.6) * z
        projected = jnp.clip(image + y / rho, low, high)
        return x, projected, y + rho * (image - projected)

    start = (jnp.zeros(len(H)), jnp.zeros(len(low)), jnp.zeros(len(low)))
    x, _, y = jax.lax.fori_loop(0, iterations, iterate, start)
    y = -y * scale
    m = len(b)
    multipliers = jnp.concatenate(
        [jnp.maximum(y[:m], 0), jnp.maximum(y[m:], 0), jnp.maximum(-y[m:], 0)]
    )
    return x, multipliers, jnp.asarray(iterations)


def active_set(problem: QP) -> tuple[Array, Array, Array]:
    """`solve_qp`, with its multipliers spread over all rows."""
    solution = solve_qp(problem)
    rows = len(problem.b) + 2 * len(problem.lower)
    here = (solution.active[:, None] == jnp.arange(rows)).astype(solution.x.dtype)
    return solution.x, jnp.sum(here * solution.multipliers[:, None], axis=0), solution.iterations


def interior_point(problem: QP) -> tuple[Array, Array, Array]:
    """qpax, Tracy and Manchester, "On the differentiability of the primal-dual interior-point
    method", 2024; with its default tolerance.
    """
    import qpax

    H, A, b, C, lower, upper = problem
    G = -jnp.concatenate([A, C, -C])
    h = -jnp.concatenate([b, lower, -upper])
    n = len(H)
    none = jnp.zeros((0, n)), jnp.zeros(0)
    x, _, z, _, _, iterations = qpax.solve_qp(H, jnp.zeros(n), *none, G, h, solver_tol=1e-4)
    return x, z, iterations


def kkt_residual(problem: QP, x: np.ndarray, multipliers: np.ndarray) -> np.ndarray:
    """Largest relative violation of the conditions of optimality, in float64; (N,).

    Each sum is measured by the size of its terms, as its rounding is: the gradient `H x - A^T l` by
    the largest term of `A^T l`, a row `A x - b` by `1 + |b| + |A| |x|`.
    """
    rows, bounds = _stack(problem)
    there = np.isfinite(bounds)
    bounds = np.where(there, bounds, 0)
    force, pull = np.einsum("nij,nj->ni", problem.H, x), np.einsum("nji,nj->ni", rows, multipliers)
    largest = np.einsum("nji,nj->ni", np.abs(rows), multipliers).max(1)
    stationarity = np.abs(force - pull).max(1) / (1e-6 + np.maximum(largest, np.abs(force).max(1)))
    gap = np.where(there, bounds - np.einsum("nij,nj->ni", rows, x), -1)
    size = 1 + np.abs(bounds) + np.einsum("nij,nj->ni", np.abs(rows), np.abs(x))
    short = (np.maximum(gap, 0) / size).max(1)
    left = np.where(there, multipliers * np.abs(gap), 0).sum(1)
    duality = left / (1 + (multipliers * np.abs(bounds)).sum(1))
    return np.maximum(np.maximum(stationarity, short), duality)


def oracle(problem: QP, index: int) -> float | None:
    """The least objective, by quadprog; None if the rows cannot be met."""
    H, (rows, bounds) = problem.H[index], _stack(problem, index)
    there = np.isfinite(bounds)
    # Rows of one length, and no two quite alike: quadprog may run in circles where they are.
    length = np.linalg.norm(rows, axis=1) + 1e-9
    apart = 1e-10 * np.random.default_rng(index).random(len(bounds)) * (1 + np.abs(bounds))
    rows, bounds = rows / length[:, None], (bounds - apart) / length
    try:
        _, value, *_ = quadprog.solve_qp(H, np.zeros(len(H)), rows[there].T, bounds[there])
    except ValueError:
        return None
    return float(value)


def _stack(problem: QP, index: Any = slice(None)) -> tuple[np.ndarray, np.ndarray]:
    _, A, b, C, lower, upper = (x[index] for x in problem)
    return np.concatenate([A, C, -C], axis=-2), np.concatenate([b, lower, -upper], axis=-1)


Method = Callable[[QP], tuple[Array, Array, Array]]


def methods() -> dict[str, Method]:
    """What is compared, by name."""
    found: dict[str, Method] = {
        "active set (ours)": active_set,
        "ADMM, 100 iterations": partial(admm, iterations=100),
        "ADMM, 1000 iterations": partial(admm, iterations=1000),
    }
    try:
        import qpax  # noqa: F401
    except ImportError:
        return found
    return found | {"interior point (qpax)": interior_point}


def _double(problem: QP) -> QP:
    return QP(*(np.asarray(x, np.float64) for x in problem))


def main(options: Options) -> None:
    """Solve all problems with all methods, and print the table."""
    robot = load_robot("panda")
    safety = SafetyFilter(end_effectors=("hand",))
    draw = fraxenv.fuse(lambda key: random_problem(key, robot, safety))
    solvers = methods()
    fused = {name: fraxenv.fuse(method) for name, method in solvers.items() if "qpax" not in name}
    fused |= {n: jax.jit(jax.vmap(m)) for n, m in solvers.items() if "qpax" in n}
    columns: dict[str, list[np.ndarray]] = {name: [] for name in solvers}
    kinds, feasible, excess, seconds = [], [], [], dict.fromkeys(solvers, 0.0)

    chunks = -(-options.states // options.chunk)
    keys = jax.random.split(jax.random.key(options.seed), chunks)
    for key in track(keys, description="states"):
        kind, problem, (torque, over) = draw(jax.random.split(key, options.chunk))
        double = _double(problem)
        best = [oracle(double, i) for i in range(options.chunk)]
        value = np.array([np.nan if b is None else b for b in best])
        kinds.append(np.asarray(kind))
        feasible.append(np.isfinite(value))
        finite = np.isfinite(np.asarray(torque)).all(1)
        excess.append(np.where(finite, np.asarray(over), np.inf))
        for name, solve in fused.items():
            jax.block_until_ready(solve(problem))
            began = time.perf_counter()
            x, multipliers, rounds = jax.block_until_ready(solve(problem))
            seconds[name] += time.perf_counter() - began
            x, multipliers = np.asarray(x, np.float64), np.asarray(multipliers, np.float64)
            finite = np.isfinite(x).all(1) & np.isfinite(multipliers).all(1)
            x, multipliers = np.nan_to_num(x), np.nan_to_num(multipliers)
            residual = kkt_residual(double, x, multipliers)
            objective = 0.5 * np.einsum("ni,nij,nj->n", x, double.H, x)
            error = np.abs(objective - value) / np.maximum(value, 1e-3)
            columns[name].append(np.stack([finite, residual, error, np.asarray(rounds)], axis=1))

    possible, kind = np.concatenate(feasible), np.concatenate(kinds)
    console = Console(width=110)
    table = Table(title=f"{len(kind)} problems, {possible.sum()} of them feasible; float32")
    for heading in ("method", "finite", "KKT <= 1e-4", "worst KKT", "objective <= 1e-3",
                    "worst objective", "rounds, mean (most)", "solved/s"):  # fmt: skip
        table.add_column(heading, justify="left" if heading == "method" else "right")
    lines = []
    for name, parts in columns.items():
        finite, residual, error, rounds = np.concatenate(parts).T
        row = [
            name,
            f"{100 * finite.mean():.3f} %",
            f"{100 * (residual[possible] <= 1e-4).mean():.3f} %",
            f"{residual[possible].max():.1e}",
            f"{100 * (error[possible] <= 1e-3).mean():.3f} %",
            f"{error[possible].max():.1e}",
            f"{rounds.mean():.1f} ({rounds.max():.0f})",
            f"{len(kind) / seconds[name]:,.0f}",
        ]
        table.add_row(*row)
        lines.append("| " + " | ".join(row) + " |")
    console.print(table)
    ours = np.concatenate(columns["active set (ours)"])
    for k, name in enumerate(KINDS):
        here = kind == k
        those = ours[here & possible]
        console.print(
            f"  {name:16s} {here.sum():6d} problems, {100 * possible[here].mean():5.1f} % feasible,"
            f" worst KKT {those[:, 1].max(initial=0):.1e}, worst objective "
            f"{those[:, 2].max(initial=0):.1e}, rounds {ours[here, 3].mean():.1f}"
        )
    console.print(f"torque beyond its limit, worst of all: {np.concatenate(excess).max():.1e} N m")
    if options.write is not None:
        options.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Options))
