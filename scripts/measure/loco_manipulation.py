"""A quadruped that trots while its hand follows a path: a plan beside Fatrop's, tick by tick.

    python -m venv .plan && .plan/bin/pip install -e ".[bench-plan]"
    .plan/bin/python scripts/measure/loco_manipulation.py

The robot `b2z1`, 24 degrees of freedom, 14 knots of 25 ms, two feet held at a time as a trot has
them, forces within friction cones as a cost, torques within their limits exactly. At each tick both
begin with the plan of the tick before, one knot on: ours for some iterations, Fatrop until it has
converged. The robot then takes the first step of ours. The results are in docs/planning.md.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from legs_by_fatrop import BASE, Legs, Solver, inverse_dynamics
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fraxenv import dynamics, plan

FEET = "FL_foot", "FR_foot", "RL_foot", "RR_foot"
PAIRS = np.array([[True, False, False, True], [False, True, True, False]])
"""Feet that are held in each half of a trot."""
N, DT, HALF = 14, 0.025, 10
GAIN = 1 / DT
"""1/s: a foot that lands has no velocity after a step."""
SPEED, RISE = 0.3, 0.06
"""m/s of the trot, m by which feet rise."""
WEIGHTS = {
    "hand": 1e4, "upright": 300.0, "height": 1e3, "posture": 3.0, "speed": 3.0, "effort": 1e-4,
    "feet": 1e4, "cones": 1e-2, "end": 0.2,
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    ticks: int = 60
    """Steps of the robot; the first ten, in which it sets off, are not compared."""
    every: int = 5
    """Ticks between two that Fatrop solves as well."""
    iterations: tuple[int, ...] = (1, 2, 3)
    """Of ours; the first number is what the robot walks by."""


@dataclass(frozen=True)
class References:
    """Of the knots from some time on: `held` (N, 4), `hand` (N + 1, 3), `feet`, `follows`."""

    held: np.ndarray
    hand: np.ndarray
    feet: np.ndarray
    follows: np.ndarray


def references(first: int, feet: np.ndarray, hand: np.ndarray) -> References:
    """Of the knots from `first` on, of feet that stood at `feet` (4, 3), a hand that was there."""
    k = first + np.arange(N + 1)
    half, phase = np.divmod(k, HALF)
    held = PAIRS[half % 2]
    t = DT * k[:, None]
    figure = np.concatenate(
        [0.05 * np.sin(2 * np.pi * 0.5 * t), 0.1 * np.sin(np.pi * 0.5 * t), 0 * t], axis=1
    )
    ahead = np.array([SPEED, 0.0, 0.0])
    # A foot stands for one half, beneath the middle of the way that its hip makes meanwhile.
    to = feet + DT * HALF * (half[:, None, None] + 1.5) * ahead
    back = feet + DT * HALF * np.maximum(half[:, None, None] - 0.5, 0) * ahead
    share = ((phase + 1) / HALF)[:, None, None]
    path = back + share * (to - back) + RISE * np.sin(np.pi * share) * [0, 0, 1]
    return References(held[:N], hand + figure + t * ahead, path, (~held).astype(float))


def upright(robot: Any, terms: Any, tau: Any, reference: Any) -> Any:
    """Twice the vector of the base's quaternion."""
    return 2 * terms.q[4:7]


def height(robot: Any, terms: Any, tau: Any, reference: Any) -> Any:
    """Of the base, less what is wanted, m."""
    return terms.q[2:3] - reference


def problem(robot: dynamics.Robot, at: References) -> plan.Problem:
    """Ours."""
    w, n = WEIGHTS, robot.nv
    joints = np.arange(n) >= BASE
    along = SPEED * (np.arange(n) == 0)

    def part(share: float, hand: np.ndarray, **options: Any) -> dict[str, plan.Residual]:
        rest = robot.q_default
        return {
            "hand": plan.position("hand", hand, share * w["hand"], **options),
            "upright": plan.residual(upright, weight=share * w["upright"]),
            "height": plan.residual(height, rest[2], share * w["height"]),
            "posture": plan.posture(rest, share * w["posture"] * joints),
            "speed": plan.velocity(along, share * w["speed"]),
        }

    running = part(1.0, at.hand[:N], each=True) | {
        "cones": plan.friction_cone(0.7, w["cones"]),
        "effort": plan.torque(weight=w["effort"] * joints),
    }
    for i, foot in enumerate(FEET):
        weight = w["feet"] * at.follows[:N, i, None] * np.ones(3)
        running[foot] = plan.position(foot, at.feet[:N, i], weight, each=True)
    contacts = plan.schedule(FEET, at.held, gain=GAIN)
    return plan.Problem(
        robot, N, DT, running, part(w["end"], at.hand[N]), control_limits=True, contacts=contacts
    )


def controls(robot: dynamics.Robot, found: plan.Plan, held: np.ndarray) -> tuple[Any, Any]:
    """Accelerations (N, nv) and forces (N, 12) of a plan."""

    @jax.vmap
    def of(q: Any, v: Any, tau: Any, active: Any) -> Any:
        constraints = dynamics.FrameConstraints(FEET, active=active, gain=GAIN)
        a, force = dynamics.constrained_dynamics(robot, q, v, tau, constraints)
        return a, force.ravel()

    a, force = jax.jit(of)(found.q[:-1], found.v[:-1], found.tau, held)
    return np.asarray(a), np.asarray(force)


def check_models(robot: dynamics.Robot) -> float:
    """The largest difference, relative, of CasADi's inverse dynamics from ours."""
    import casadi as ca

    rng = np.random.default_rng(0)
    q = np.asarray(dynamics.integrate(robot, robot.q_default, rng.normal(size=robot.nv), 1.0))
    v, a = rng.normal(size=(2, robot.nv))
    force = rng.normal(size=12)
    x = [ca.SX.sym(name, len(value)) for name, value in zip("qvaf", (q, v, a, force), strict=True)]
    tau, _ = inverse_dynamics(robot, x[0], x[1], x[2], FEET, x[3])
    theirs = np.asarray(ca.Function("tau", x, [tau])(q, v, a, force)).ravel()
    ours = dynamics.rnea(robot, q, v, a) + robot.armature * a
    ours = np.asarray(dynamics.crba(robot, q) @ a + dynamics.bias_forces(robot, q, v))
    for foot, f in zip(FEET, force.reshape(4, 3), strict=True):
        ours = ours - np.asarray(dynamics.frame_jacobian(robot, q, foot))[:3].T @ f
    return float(np.abs(ours - theirs).max() / np.abs(ours).max())


def main(options: Options) -> None:
    """Measure, and print."""
    jax.config.update("jax_enable_x64", True)
    robot = dynamics.load_robot("b2z1")
    still = np.zeros(robot.nv)
    robot = robot.replace(damping=still, friction=still)
    print(f"inverse dynamics, CasADi's beside ours: {check_models(robot):.1e}")
    q, v = np.asarray(robot.q_default), still
    feet = np.array([dynamics.frame_pose(robot, q, foot)[0] for foot in FEET])
    hand = np.asarray(dynamics.frame_pose(robot, q, "hand")[0])

    @jax.jit
    def aimed(leaves: Any) -> Any:
        return leaves

    def solver(count: int, dtype: Any) -> Any:
        @jax.jit
        def solve(gait: plan.Problem, q: Any, v: Any, guess: plan.Guess) -> plan.Plan:
            return plan.solve(gait, (q, v), guess, plan.Options(count, 0.0))

        def run(gait: plan.Problem, q: Any, v: Any, guess: plan.Guess) -> plan.Plan:
            with jax.enable_x64(dtype is np.float64):
                given = jax.tree.map(lambda x: jnp.asarray(x, dtype), (q, v, guess))
                return jax.block_until_ready(solve(gait, *given))

        return run

    console = Console(width=110)
    ours = {count: solver(count, np.float64) for count in options.iterations}
    single = solver(options.iterations[0], np.float32)
    first = references(0, feet, hand)
    began = time.perf_counter()
    last = ours[options.iterations[0]](
        problem(robot, first), q, v, plan.guess(problem(robot, first), q)
    )
    print(f"compiled in {time.perf_counter() - began:.1f} s")
    sides = np.asarray(plan.friction_cone(0.7).reference)
    legs = Legs(robot, FEET, "hand", N, DT, GAIN, np.asarray(robot.q_default)[7:], sides, WEIGHTS)
    began = time.perf_counter()
    fatrop = Solver(legs)
    print(f"Fatrop's made in {time.perf_counter() - began:.1f} s")

    off, slipped, rows = [], [], []
    for tick in track(range(options.ticks), description="ticks"):
        at = references(tick, feet, hand)
        gait = problem(robot, at)
        shifted = plan.shift(gait, last)
        guess = plan.Guess(shifted.q, shifted.v, shifted.tau)
        timed = {}
        for count, solve in ours.items():
            began = time.perf_counter()
            found = solve(gait, q, v, guess)
            timed[count] = found, time.perf_counter() - began
        if tick >= 10 and tick % options.every == 0:
            began = time.perf_counter()
            single(gait, q, v, guess)
            timed["float32"] = None, time.perf_counter() - began
            best, _ = timed[max(options.iterations)]
            parameters = np.concatenate(
                [
                    np.zeros((N + 1, 0)),
                    at.hand,
                    np.tile([SPEED, 0, 0], (N + 1, 1)),
                    at.feet.reshape(N + 1, -1),
                    at.follows,
                ],
                axis=1,
            )
            own = np.asarray(best.q), np.asarray(best.v), *controls(robot, best, at.held)
            end = fatrop((q, v), at.held, parameters, own)
            rows.append((tick, timed, end))
        last = timed[options.iterations[0]][0]
        q, v = np.asarray(last.q[1]), np.asarray(last.v[1])
        off.append(
            np.linalg.norm(np.asarray(dynamics.frame_pose(robot, q, "hand")[0]) - at.hand[1])
        )
    table = Table(
        "tick",
        *(f"{k}: cost over Fatrop's, ms" for k in ours),
        "Fatrop: iterations, ms, of functions",
    )
    for tick, timed, end in rows:
        cells = [
            f"{100 * (float(timed[k][0].cost) / end['cost'] - 1):.3f} %, {1e3 * timed[k][1]:.1f}"
            for k in ours
        ]
        table.add_row(
            str(tick),
            *cells,
            f"{end['iterations']} {end['status']}, {1e3 * end['seconds']:.0f}, {1e3 * end['functions']:.0f}  cost {end['cost']:.5f}",
        )
    console.print(table)
    print(
        f"hand off, rms: {1e3 * np.sqrt(np.mean(np.square(off[10:]))):.1f} mm, {1e3 * max(off[10:]):.1f} at most"
    )


if __name__ == "__main__":
    main(tyro.cli(Options))
