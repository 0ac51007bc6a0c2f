"""A gait of Crocoddyl's, its feet held as the schedule says. The results are in docs/planning.md.

    python -m venv .plan && .plan/bin/pip install -e ".[bench-plan]"
    .plan/bin/python scripts/measure/gaits.py

The trot of `quadrupedal_gaits_fwddyn.py`: ANYmal, 56 knots of 10 ms, two of them impacts; costs and
weights term for term, to Crocoddyl's own stop, from the same guess. Crocoddyl's base moves along a
screw in a step and ours along a straight line, so that what they find differs in the third digit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import crocoddyl
import example_robot_data
import jax
import jax.numpy as jnp
import numpy as np
import pinocchio
import tyro
from crocoddyl.utils.quadruped import SimpleQuadrupedalGaitProblem
from planning_peers import medians
from rich.console import Console
from rich.table import Table

from fraxenv import dynamics, plan

FEET = "LF_FOOT", "RF_FOOT", "LH_FOOT", "RH_FOOT"
LENGTH, HEIGHT, DT, SWING, STAND = 0.15, 0.1, 1e-2, 25, 2
FRICTION, GAIN = 0.7, 50.0
BASE = 6
"""Degrees of freedom that nothing drives."""


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    rounds: int = 7
    """Of each measurement of time; contenders take turns."""


@dataclass(frozen=True)
class Knots:
    """What each of N knots is for: `held`, `swung` (N, 4) bool, `impacts` (N,), `feet`, `com`."""

    held: np.ndarray
    swung: np.ndarray
    impacts: np.ndarray
    feet: np.ndarray
    com: np.ndarray


def trot(feet: np.ndarray, com: np.ndarray) -> Knots:
    """The schedule of `createTrottingProblem`: two feet swing, then the others twice as far.

    Args:
        feet: (4, 3), m, where they stand.
        com: (3,), m, of all.
    """
    rows: list[tuple[Any, ...]] = []
    feet, com = feet.copy(), com.copy()
    for swung, length in (([1, 2], 0.5 * LENGTH), ([0, 3], LENGTH)):
        moving = np.isin(np.arange(4), swung)
        rows += [(np.ones(4, bool), np.zeros(4, bool), False, feet.copy(), com)] * STAND
        for k in range(SWING):
            up = HEIGHT * (1 - abs(k / (SWING / 2) - 1))
            ahead = np.array([length * (k + 1) / SWING, 0.0, 0.0])
            there = feet + moving[:, None] * (ahead + np.array([0.0, 0.0, up]))
            rows.append((~moving, moving, False, there, com + 0.5 * ahead))
        rows.append((moving, moving, True, rows[-1][3], com))
        feet[moving, 0] += length
        com = com + np.array([0.5 * length, 0.0, 0.0])
    return Knots(*(np.array(x) for x in zip(*rows, strict=True)))


def beyond(robot: dynamics.Robot, terms: dynamics.Terms, tau: Any, fastest: Any) -> Any:
    """How far joints are beyond their limits of speed."""
    return jnp.maximum(jnp.abs(terms.v) - fastest, 0)


def problem(robot: dynamics.Robot, q: np.ndarray, knots: Knots) -> plan.Problem:
    """The shooting problem of the trot."""
    n, impacts = robot.nv, knots.impacts
    contacts = plan.schedule(FEET, knots.held, impacts, gain=GAIN)

    def by_kind(step: np.ndarray, impact: np.ndarray) -> np.ndarray:
        # Costs of impacts are those of no time.
        return np.where(impacts[:, None], impact / DT, step)

    def parts(base: list[float], joints: float) -> np.ndarray:
        return np.array([x for x in base for _ in range(3)] + [joints] * (n - BASE)) ** 2

    posture = parts([0.0, 500.0], 0.01), parts([1.0, 1.0], 10.0)
    speed = parts([10.0, 10.0], 1.0), parts([10.0, 10.0], 10.0)
    fastest = np.where(np.arange(n) < BASE, np.inf, np.asarray(robot.velocity_limits))
    swings = knots.swung.any(axis=1) & ~impacts
    followed = np.where(impacts, 1e7 / DT, 1e6)[:, None] * knots.swung
    driven = np.arange(n) >= BASE

    def each(x: np.ndarray) -> np.ndarray:
        return np.broadcast_to(x, (len(impacts), *x.shape))

    still = np.zeros(n)
    running = {
        "com": plan.com(knots.com, (1e6 * swings)[:, None] * np.ones(3), each=True),
        "cones": plan.friction_cone(FRICTION, 1e1),
        "posture": plan.posture(each(q), 1e1 * by_kind(*posture), each=True),
        "speed": plan.velocity(each(still), 1e1 * by_kind(*speed), each=True),
        "limits": plan.residual(beyond, each(fastest), 1e3 * ~impacts[:, None] * driven, each=True),
        "effort": plan.torque(weight=1e-1 * driven),
    }
    for i, foot in enumerate(FEET):
        weight = followed[:, i, None] * np.ones(3)
        running[foot] = plan.position(foot, knots.feet[:, i], weight, each=True)
    terminal = {
        "posture": plan.posture(q, 1e1 * posture[0]),
        "speed": plan.velocity(still, 1e1 * speed[0]),
    }
    most = np.where(driven, np.inf, 0.0)
    return plan.Problem(
        robot, len(impacts), DT, running, terminal, control_limits=(-most, most), contacts=contacts
    )


# --- Crocoddyl's ----------------------------------------------------------------------------------


class Peer:
    """Crocoddyl's problem, and its numbers as ours: joints by name, the base along the world."""

    def __init__(self, robot: dynamics.Robot) -> None:
        loaded = example_robot_data.load("anymal")
        self.model = loaded.model
        self.q = self.model.referenceConfigurations["standing"].copy()
        self.begin = np.concatenate([self.q, np.zeros(self.model.nv)])
        gait = SimpleQuadrupedalGaitProblem(self.model, *FEET)
        self.problem = gait.createTrottingProblem(self.begin, LENGTH, HEIGHT, DT, SWING, STAND)
        theirs = list(self.model.names)[2:]
        ours = [name for name in robot.joint_names if name in theirs]
        self._order = np.array([theirs.index(name) for name in ours])
        states = [self.begin] * (self.problem.T + 1)
        self.guess = states, self.problem.quasiStatic(states[:-1])

    def solver(self) -> Any:
        """At its default stop, 1e-9."""
        return crocoddyl.SolverFDDP(self.problem)

    def our_q(self, q: np.ndarray) -> np.ndarray:
        """Quaternions are wxyz here, xyzw there."""
        return np.concatenate([q[:3], q[[6, 3, 4, 5]], q[7:][self._order]])

    def our_tau(self, u: np.ndarray) -> np.ndarray:
        """Zero for the base; at impacts there is none."""
        return np.concatenate([np.zeros(BASE), u[self._order] if len(u) else np.zeros(12)])

    def state(self, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Theirs, of ours."""
        back = np.argsort(self._order)
        xyzw = q[[4, 5, 6, 3]]
        turned = pinocchio.Quaternion(xyzw).toRotationMatrix()
        base = np.concatenate([turned.T @ v[:3], v[3:BASE]])
        return np.concatenate([q[:3], xyzw, q[7:][back], base, v[BASE:][back]])

    def cost(self, found: plan.Plan) -> float:
        """Of our states and torques, by their models."""
        back = np.argsort(self._order)
        states = [
            self.state(*x) for x in zip(np.asarray(found.q), np.asarray(found.v), strict=True)
        ]
        tau = [np.asarray(u)[BASE:][back] for u in found.tau]
        nu = [m.nu for m in self.problem.runningModels]
        torques = [u[:k] for u, k in zip(tau, nu, strict=True)]
        return float(self.problem.calc(states, torques))


def main(options: Options) -> None:
    """Measure, and print."""
    jax.config.update("jax_enable_x64", True)
    urdf = example_robot_data.load("anymal").urdf
    robot = dynamics.load_urdf(urdf, floating_base=True)
    still = np.zeros(robot.nv)
    robot = robot.replace(damping=still, friction=still, armature=still)
    peer = Peer(robot)
    q = peer.our_q(peer.q)
    kin = dynamics.compute_kinematics(robot, q)
    feet = np.array([dynamics.frame_pose(robot, q, foot, kin=kin)[0] for foot in FEET])
    com = feet.mean(axis=0)
    com[2] = dynamics.center_of_mass(robot, q)[2]
    gait = problem(robot, q, trot(feet, com))

    N = gait.horizon
    tau = np.array([peer.our_tau(u) for u in peer.guess[1]])
    guess = plan.Guess(np.tile(q, (N + 1, 1)), np.zeros((N + 1, robot.nv)), tau)
    first = plan.explain(gait, guess).cost
    print(f"cost of the guess: {first:.9f}, Crocoddyl's {peer.problem.calc(*peer.guess):.9f}")

    theirs = peer.solver()

    def crocoddyl_solves() -> Any:
        theirs.solve(*peer.guess, 100, False, 0.1)
        return theirs

    contenders: dict[str, Callable[[], Any]] = {"Crocoddyl": crocoddyl_solves}
    contenders["fraxenv"] = solver(gait, (q, still), guess, np.float64)
    contenders["fraxenv, float32"] = solver(gait, (q, still), guess, np.float32)
    found, compiled = {}, {}
    for name, run in contenders.items():
        began = time.perf_counter()
        found[name] = run()
        compiled[name] = time.perf_counter() - began
    times = medians(contenders, options.rounds)
    table = Table("", "iterations", "cost", "by Crocoddyl's models", "ms", "first call, s")
    for name, end in found.items():
        if isinstance(end, plan.Plan):
            own, count = float(end.cost), int(end.iterations)
            other, status = f"{peer.cost(end):.5f}", plan.STATUS[int(end.status)]
        else:
            own, count, other, status = end.cost, end.iter + 1, f"{end.cost:.5f}", "converged"
        seconds, spread = times[name]
        took = f"{1e3 * seconds:.1f} {spread}"
        table.add_row(
            name, f"{count}, {status}", f"{own:.5f}", other, took, f"{compiled[name]:.1f}"
        )
    Console(width=110).print(table)


def solver(
    gait: plan.Problem, state: tuple[Any, Any], guess: plan.Guess, dtype: type
) -> Callable[[], plan.Plan]:
    """Ours, compiled, to Crocoddyl's stop; in single precision to what that allows."""
    stop = 1e-9 if dtype is np.float64 else 1e-3
    jitted = jax.jit(lambda state, guess: plan.solve(gait, state, guess, plan.Options(100, stop)))

    def solve() -> plan.Plan:
        with jax.enable_x64(dtype is np.float64):
            given = jax.tree.map(lambda x: jnp.asarray(x, dtype), (state, guess))
            return jax.block_until_ready(jitted(*given))  # type: ignore[no-any-return]

    return solve


if __name__ == "__main__":
    main(tyro.cli(Options))
