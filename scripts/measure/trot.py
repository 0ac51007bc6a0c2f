"""A quadruped that trots by plans: MuJoCo MPC's task "Quadruped Flat", with exact derivatives.

    python scripts/measure/trot.py
    python scripts/measure/trot.py --physics mujoco --picture trot.png
    python scripts/measure/trot.py --derivatives exact

The scene is `benchmark/scenes/a1.xml`; costs, gait, horizon (0.35 s, steps of 10 ms) and one
iteration a plan are as there (mjpc/tasks/quadruped: quadruped.cc, task_flat.xml). It begins at rest
in "home" without a plan. "Cost" is the running cost of the states that were there, as MuJoCo MPC
counts it; "of the plans" the mean over a plan's horizon. A row "differences" is the same solver
with one-sided differences of steps, of 1e-6, in place of derivatives, by our kernels; "mujoco" has
them from MuJoCo's `mjd_transitionFD`, in one thread. "--physics mujoco" steps MuJoCo's engine at
2 ms with the torques of the plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from rich.console import Console
from rich.table import Table

from fraxenv import dynamics, plan
from fraxenv.controllers.planning import ddp
from fraxenv.controllers.planning.motion import advanced
from fraxenv.controllers.planning.problem import Problem
from fraxenv.controllers.planning.states import between, moved
from fraxenv.dynamics import compute_terms
from fraxenv.envs import Trot
from fraxenv.envs.predictive_gait import (
    HORIZON,
    STEP,
    gait_cost,
    gait_problem,
    gait_references,
)
from fraxenv.kernels import fusible

SCENE = Path(__file__).parent / "benchmark" / "scenes" / "a1.xml"

DT = STEP
TASK = Trot(feet=("FL", "RL", "FR", "RR"))
PLACE = jnp.array([0.3, 0.0])
HOME = np.array([0, 0, 0.26, 1, 0, 0, 0, *(0, 0.9, -1.8) * 4])
SOLE = 0.01
"""m, where feet of 2 cm stand on the floor at -1 cm."""

MOVE = 1e-6
"""Of differences: MuJoCo MPC's."""


@dataclass(frozen=True)
class Options:
    """Options of the measurement.

    Attributes:
        derivatives: which rows.
        physics: what moves the robot between plans.
        plans: how many.
        float32: in single precision.
        picture: where to draw feet and trunk of the first row, if anywhere.
    """

    derivatives: tuple[Literal["exact", "differences", "mujoco"], ...] = (
        "exact",
        "differences",
        "mujoco",
    )
    physics: Literal["ours", "mujoco"] = "ours"
    plans: int = 250
    float32: bool = False
    picture: Path | None = None


@contextmanager
def replaced(by: Callable[[Problem, plan.Options, Any], tuple[Array, Array]]) -> Iterator[None]:
    """The solver with other derivatives of steps: A and B of all knots."""
    linearised, expanded = ddp.linearised, ddp._expanded

    def none(problem: Problem, *_: Any) -> tuple[Array, Array]:
        n = problem.robot.nv
        return jnp.zeros((2 * n, 2 * n)), jnp.zeros((2 * n, n))

    def with_others(problem: Problem, options: plan.Options, now: Any) -> Any:
        knots, last, own = expanded(problem, options, now)
        A, B = by(problem, options, now)
        return knots._replace(A=A, B=B), last, own

    ddp.linearised, ddp._expanded = none, with_others
    try:
        yield
    finally:
        ddp.linearised, ddp._expanded = linearised, expanded


def differences(problem: Problem, options: plan.Options, now: Any) -> tuple[Array, Array]:
    """One-sided differences of our steps."""
    m = 2 * problem.robot.nv

    def after(q: Array, v: Array, tau: Array, z: Array) -> tuple[Array, Array]:
        q, v = moved(problem.robot, q, v, z[:m])
        return advanced(problem, compute_terms(problem.robot, q, v), tau + z[m:], None)

    moves = jnp.concatenate([jnp.zeros((1, 3 * m // 2)), MOVE * jnp.eye(3 * m // 2)])
    of_knot = jax.vmap(fusible(after, options.backend), (None, None, None, 0))
    q, v = jax.vmap(of_knot, (0, 0, 0, None))(now.q[:-1], now.v[:-1], now.tau, moves)
    far = jax.vmap(jax.vmap(lambda *x: between(problem.robot, *x), (None, None, 0, 0)))
    J = jnp.swapaxes(far(q[:, 0], v[:, 0], q[:, 1:], v[:, 1:]), 1, 2) / MOVE
    return J[..., :m], J[..., m:]


def of_mujoco() -> Callable[[Problem, plan.Options, Any], tuple[Array, Array]]:
    """MuJoCo's own differences of its steps, by the torques of its motors."""
    import mujoco

    model = mujoco.MjModel.from_xml_path(str(SCENE))
    model.opt.timestep = DT
    data, n, gain = mujoco.MjData(model), model.nv, model.actuator_gainprm[:, 0]

    def on_host(qs: Any, vs: Any, taus: Any) -> tuple[np.ndarray, np.ndarray]:
        A, B = np.zeros((len(taus), 2 * n, 2 * n)), np.zeros((len(taus), 2 * n, n))
        by_motors = np.zeros((2 * n, model.nu))
        for k, tau in enumerate(np.asarray(taus)):
            data.qpos, data.qvel = np.asarray(qs[k]), np.asarray(vs[k])
            data.ctrl = tau[6:] / gain
            mujoco.mjd_transitionFD(model, data, MOVE, False, A[k], by_motors, None, None)
            B[k, :, 6:] = by_motors / gain
        return A, B

    def found(problem: Problem, options: plan.Options, now: Any) -> tuple[Array, Array]:
        N, dtype = len(now.tau), np.dtype("float64")
        shapes = [jax.ShapeDtypeStruct((N, 2 * n, k), dtype) for k in (2 * n, n)]
        A, B = jax.pure_callback(on_host, tuple(shapes), now.q[:-1], now.v[:-1], now.tau)
        return A, B

    return found


@dataclass
class Run:
    """What came of a row: per plan, but for the time that compiling took, s."""

    compiled: float
    seconds: np.ndarray
    costs: np.ndarray
    of_plans: np.ndarray
    q: np.ndarray
    feet: np.ndarray


def run(options: Options) -> Run:
    """A row."""
    scene = dynamics.load_mjcf(SCENE)
    problem = gait_problem(scene, TASK, SOLE, HOME)
    mpc = plan.MPC(problem)
    robot = problem.robot

    @jax.jit
    def tick(q: Array, v: Array, state: Any, time: Array) -> Any:
        terms = compute_terms(robot, q, v)
        state = mpc.replan(robot, terms, gait_references(TASK, time, PLACE), state)
        tau = mpc.torque(robot, terms, state)
        return mpc.later(state, DT), tau, state.plan.cost / (HORIZON * DT)

    @jax.jit
    def seen_by(q: Array, v: Array, tau: Array, time: Array) -> tuple[Array, Array]:
        feet = jnp.stack([dynamics.frame_pose(robot, q, f)[0][2] for f in TASK.feet])
        terms = compute_terms(robot, q, v)
        return gait_cost(problem, TASK, SOLE, terms, tau, time, PLACE), feet

    @jax.jit
    def step(q: Array, v: Array, tau: Array) -> tuple[Array, Array]:
        return dynamics.scene_step(scene, q, v, tau, DT)[:2]

    move = step if options.physics == "ours" else in_mujoco()
    q, v = jnp.asarray(HOME, float), jnp.zeros(18)
    state = jax.jit(lambda q, v: mpc.init(robot, compute_terms(robot, q, v)))(q, v)
    began = time.perf_counter()
    ready = tick.lower(q, v, state, jnp.zeros(())).compile()
    compiled = time.perf_counter() - began
    jax.block_until_ready(ready(q, v, state, jnp.zeros(())))
    seen: list[Any] = []
    for k in range(options.plans):
        now, began = jnp.asarray(k * DT, float), time.perf_counter()
        state, tau, of_plan = jax.block_until_ready(ready(q, v, state, now))
        took = time.perf_counter() - began
        cost, feet = seen_by(q, v, tau, now)
        seen.append((took, cost, of_plan, feet, q))
        q, v = move(q, v, tau)
    seconds, costs, of_plans, feet, qs = (np.stack(x) for x in zip(*seen, strict=True))
    return Run(compiled, seconds, costs, of_plans, qs, feet)


def in_mujoco() -> Any:
    """A step of 10 ms in MuJoCo's engine."""
    import mujoco

    model = mujoco.MjModel.from_xml_path(str(SCENE))
    model.opt.timestep = 0.002
    data = mujoco.MjData(model)

    def step(q: Array, v: Array, tau: Array) -> tuple[Array, Array]:
        data.qpos, data.qvel, data.qfrc_applied = np.asarray(q), np.asarray(v), np.asarray(tau)
        mujoco.mj_step(model, data, round(DT / model.opt.timestep))
        # Copies: the next step changes these arrays.
        return jnp.array(data.qpos, float), jnp.array(data.qvel, float)

    return step


def draw(found: Run, path: Path) -> None:
    """Heights of feet, as wanted and as they are, and the trunk's."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    at = DT * np.arange(len(found.q))
    wanted = np.asarray(TASK.heights(jnp.asarray(at)))
    figure, axes = plt.subplots(3, 1, figsize=(9, 6.4), sharex=True, layout="constrained")
    for axis, i in ((axes[0], 0), (axes[1], 2)):
        axis.fill_between(at, 1e3 * wanted[:, i], color="#cfd8e3", label="wanted")
        axis.plot(at, 1e3 * (found.feet[:, i] - SOLE), color="#1f5fa8", label="foot")
        axis.set_ylabel(f"{TASK.feet[i]}, mm")
    axes[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
    axes[2].plot(at, 1e3 * found.q[:, 2], color="#b5482a")
    axes[2].set_ylabel("trunk, mm")
    axes[2].set_xlabel("time, s")
    figure.savefig(path, dpi=100)


def main(options: Options) -> None:
    """Measure."""
    jax.config.update("jax_enable_x64", not options.float32)
    table = Table(
        "derivatives", "cost", "last second", "of the plans", "feet in the air, rms mm",
        "trunk, mm", "ms a plan", "5 and 95 %", "all plans, s", "compiled, s",
        title=f"{options.plans} plans, physics: {options.physics}",
    )  # fmt: skip
    for i, kind in enumerate(options.derivatives):
        if kind == "exact":
            found = run(options)
        else:
            with replaced(differences if kind == "differences" else of_mujoco()):
                found = run(options)
        wanted = np.asarray(TASK.heights(DT * jnp.arange(options.plans)))
        off = (found.feet - SOLE - wanted)[wanted > 0]
        ms = 1e3 * found.seconds
        trunk = 1e3 * found.q[-100:, 2]
        table.add_row(
            kind,
            f"{found.costs.mean():.4f}",
            f"{found.costs[-100:].mean():.4f}",
            f"{found.of_plans.mean():.4f}",
            f"{1e3 * np.sqrt(np.mean(off**2)):.1f}",
            f"{trunk.min():.0f} to {trunk.max():.0f}",
            f"{np.median(ms):.1f}",
            f"{np.percentile(ms, 5):.1f}, {np.percentile(ms, 95):.1f}",
            f"{found.seconds.sum():.2f}",
            f"{found.compiled:.1f}",
        )
        if i == 0 and options.picture is not None:
            draw(found, options.picture)
    Console(width=150).print(table)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
