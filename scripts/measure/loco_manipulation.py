"""A quadruped that trots while its hand follows a path: a plan beside Fatrop's, tick by tick.

    python -m venv .plan && .plan/bin/pip install -e ".[bench-plan]"
    .plan/bin/python scripts/measure/loco_manipulation.py

The robot `b2z1_gripper`, 25 degrees of freedom, 14 knots of 25 ms, two feet held at a time as a
trot has them, forces within friction cones as a cost, torques within their limits exactly. At each
tick both begin with the plan of the tick before, one knot on: ours for some iterations, Fatrop
until it has converged. The robot then takes the first step of ours. The results are in
docs/planning.md.
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
FRICTION = 0.7
SETTING_OFF = 10
"""Ticks that are not compared: the robot begins at rest."""
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
    """Steps of the robot."""
    every: int = 7
    """Ticks between two that Fatrop solves as well."""
    iterations: tuple[int, ...] = (1, 2, 3)
    """Of ours."""
    robot: str = "b2z1_gripper"
    """Or "b2z1", whose fingers do not move: 24 degrees of freedom."""
    walks: str = "float32, 2"
    """The plan that the robot walks by."""


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
        "cones": plan.friction_cone(FRICTION, w["cones"]),
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
    ours = np.asarray(dynamics.crba(robot, q) @ a + dynamics.bias_forces(robot, q, v))
    for foot, f in zip(FEET, force.reshape(4, 3), strict=True):
        ours = ours - np.asarray(dynamics.frame_jacobian(robot, q, foot))[:3].T @ f
    return float(np.abs(ours - theirs).max() / np.abs(ours).max())


def solver(count: int, dtype: type) -> Callable[..., plan.Plan]:
    """Ours, compiled, of some iterations and a precision."""

    @jax.jit
    def solve(gait: plan.Problem, state: Any, guess: plan.Guess) -> plan.Plan:
        return plan.solve(gait, state, guess, plan.Options(count, 0.0))

    def run(gait: plan.Problem, state: Any, guess: plan.Guess) -> plan.Plan:
        with jax.enable_x64(dtype is np.float64):
            given = jax.tree.map(lambda x: jnp.asarray(x, dtype), (state, guess))
            return jax.block_until_ready(solve(gait, *given))  # type: ignore[no-any-return]

    return run


def main(options: Options) -> None:
    """Measure, and print."""
    jax.config.update("jax_enable_x64", True)
    robot = dynamics.load_robot(options.robot)
    still = np.zeros(robot.nv)
    robot = robot.replace(damping=still, friction=still)
    print(f"inverse dynamics, CasADi's beside ours: {check_models(robot):.1e}")
    q, v = np.asarray(robot.q_default), still
    feet = np.array([dynamics.frame_pose(robot, q, foot)[0] for foot in FEET])
    hand = np.asarray(dynamics.frame_pose(robot, q, "hand")[0])
    ours = {
        f"{dtype.__name__}, {count}": solver(count, dtype)
        for dtype in (np.float32, np.float64)
        for count in options.iterations
    }
    first = problem(robot, references(0, feet, hand))
    last = plan.solve(first, (q, v), None, plan.Options(20))
    for name, solve in ours.items():
        began = time.perf_counter()
        solve(first, (q, v), plan.guess(first, q))
        print(f"{name}: first call {time.perf_counter() - began:.1f} s")
    sides = np.asarray(plan.friction_cone(FRICTION).reference)
    legs = Legs(robot, FEET, "hand", N, DT, GAIN, np.asarray(robot.q_default)[7:], sides, WEIGHTS)
    fatrop = Solver(legs)

    off: list[float] = []
    over: dict[str, list[float]] = {name: [] for name in ours}
    seconds: dict[str, list[float]] = {name: [] for name in (*ours, "Fatrop", "of it, functions")}
    counts = []
    for tick in track(range(options.ticks), description="ticks"):
        at = references(tick, feet, hand)
        gait = problem(robot, at)
        shifted = plan.shift(gait, last)
        guess = plan.Guess(shifted.q, shifted.v, shifted.tau)
        found = {}
        for name, solve in ours.items():
            began = time.perf_counter()
            found[name] = solve(gait, (q, v), guess)
            if tick >= SETTING_OFF:
                seconds[name].append(time.perf_counter() - began)
        last = jax.tree.map(lambda x: jnp.asarray(x, float), found[options.walks])
        if tick >= SETTING_OFF and tick % options.every == 0:
            fixed = np.tile([SPEED, 0.0, 0.0], (N + 1, 1))
            parameters = np.hstack([at.hand, fixed, at.feet.reshape(N + 1, -1), at.follows])
            own = np.asarray(last.q), np.asarray(last.v), *controls(robot, last, at.held)
            end = fatrop((q, v), at.held, parameters, own)
            if not end["status"]:
                print(f"tick {tick}: Fatrop has not converged")
                continue
            counts.append(end["iterations"])
            seconds["Fatrop"].append(end["seconds"])
            seconds["of it, functions"].append(end["functions"])
            for name, ended in found.items():
                over[name].append(float(ended.cost) / end["cost"] - 1)
        q, v = np.asarray(last.q[1]), np.asarray(last.v[1])
        there = np.asarray(dynamics.frame_pose(robot, q, "hand")[0])
        if tick >= SETTING_OFF:
            off.append(float(np.linalg.norm(there - at.hand[1])))
    table = Table("", "ms, median", "5 and 95 %", "cost over Fatrop's, median", "most")
    for name, taken in seconds.items():
        low, middle, high = 1e3 * np.quantile(taken, [0.05, 0.5, 0.95])
        worse = [f"{100 * f(over[name]):.3f} %" for f in (np.median, max)] if name in over else []
        table.add_row(name, f"{middle:.1f}", f"{low:.1f}, {high:.1f}", *worse)
    Console(width=110).print(table)
    print(f"Fatrop: {np.median(counts):.0f} iterations in the median, of {len(counts)} ticks")
    rms, most = 1e3 * np.sqrt(np.mean(np.square(off))), 1e3 * max(off)
    print(f"the hand is off its path by {rms:.1f} mm rms, {most:.1f} mm at most")


if __name__ == "__main__":
    main(tyro.cli(Options))
