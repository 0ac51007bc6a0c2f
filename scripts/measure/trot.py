"""A quadruped that trots by plans: MuJoCo MPC's task "Quadruped Flat", with exact derivatives.

    python scripts/measure/trot.py
    python scripts/measure/trot.py --physics mujoco --picture trot.png
    python scripts/measure/trot.py --derivatives exact

The scene is `benchmark/scenes/a1.xml`; costs, gait, horizon (0.35 s, steps of 10 ms) and one
iteration a plan are as there (mjpc/tasks/quadruped: quadruped.cc, task_flat.xml). It begins at rest
in "home" without a plan. "Cost" is the running cost of the states that were there, as MuJoCo MPC
counts it; "of the plans" the mean over a plan's horizon. A row "differences" is the same solver
with one-sided differences of steps, of 1e-6, in place of derivatives. "--physics mujoco" steps
MuJoCo's engine at 2 ms with the torques of the plan.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
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
from fraxenv.controllers.planning.problem import Problem, cost
from fraxenv.controllers.planning.states import between, moved
from fraxenv.dynamics import Scene, Terms, compute_terms
from fraxenv.kernels import fusible

SCENE = Path(__file__).parent / "benchmark" / "scenes" / "a1.xml"

N, DT = 35, 0.01
FEET, PHASES = ("FL", "RL", "FR", "RR"), (0.0, 0.5, 0.5, 0.0)
HOME = np.array([0, 0, 0.26, 1, 0, 0, 0, *(0, 0.9, -1.8) * 4])
SOLE = 0.01
"""m, where feet of 2 cm stand on the floor at -1 cm."""

GAIT = {"phases": PHASES, "cadence": 2.0, "amplitude": 0.03, "duty": 0.45}
STEP = 1e-6
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

    derivatives: tuple[Literal["exact", "differences"], ...] = ("exact", "differences")
    physics: Literal["ours", "mujoco"] = "ours"
    plans: int = 250
    float32: bool = False
    picture: Path | None = None


def costs(own: plan.Residual, torques: bool) -> dict[str, plan.Residual]:
    """The task's terms, with those of the feet in the air."""
    joints = np.array([*[0.0] * 6, *[1.0] * 12])
    hips = np.array([*[0.0] * 6, *(4.0, 1.0, 1.0) * 4])
    effort = {"effort": plan.torque(weight=0.03 * 0.02**2 * joints)} if torques else {}
    return effort | {
        "upright": plan.upright("trunk", 1.0, norm=plan.smooth_abs(0.05)),
        "height": plan.height("trunk", FEET, 0.25, 1.0, norm=plan.smooth_abs(0.04)),
        "position": plan.residual(_head, jnp.array([0.3, 0.0]), 0.2, plan.l2(0.1)),
        "balance": plan.balance(FEET, 0.25, 0.2, norm=plan.l2(0.1)),
        "posture": plan.posture(HOME, 0.02 * hips),
        "gait" if own.each else "gait at the end": own,
    }


def _head(robot: Any, terms: Terms, tau: Array, target: Array) -> Array:
    return dynamics.frame_pose(robot, terms.q, "head", kin=terms.kin)[0][:2] - target


def swinging(heights: Any, *, each: bool) -> plan.Residual:
    """The term of the feet in the air."""
    norm = plan.smooth_abs(0.03)
    return plan.swing(FEET, heights, 2.0, sole=SOLE, norm=norm, each=each)


def trot(scene: Scene) -> Problem:
    """The problem, with feet that stand."""
    running = costs(swinging(np.zeros((N, 4)), each=True), torques=True)
    last = costs(swinging(np.zeros(4), each=False), torques=False)
    terminal = {k: dataclasses.replace(t, weight=t.weight * DT) for k, t in last.items()}
    return plan.Problem(scene, N, DT, running, terminal, control_limits=True)


def steps(time: Array) -> dict[str, Array]:
    """References of the feet from a time on, s."""
    heights = plan.swing_heights(time + DT * jnp.arange(N + 1), **GAIT)
    return {"gait": heights[:N], "gait at the end": heights[N]}


def cost_now(problem: Problem, terms: Terms, tau: Array, time: Array) -> Array:
    """The running cost, (), at a time, s."""
    own = swinging(plan.swing_heights(time, **GAIT), each=False)
    return cost(problem.robot, problem.running | {"gait": own}, terms, tau)


@contextmanager
def differences() -> Iterator[None]:
    """The solver with differences of steps in place of derivatives."""
    linearised, expanded = ddp.linearised, ddp._expanded

    def none(problem: Problem, terms: Terms, tau: Array) -> tuple[Array, Array]:
        n = problem.robot.nv
        return jnp.zeros((2 * n, 2 * n)), jnp.zeros((2 * n, n))

    def by_differences(problem: Problem, options: plan.Options, now: Any) -> Any:
        knots, last, own = expanded(problem, options, now)
        m = 2 * problem.robot.nv

        def after(q: Array, v: Array, tau: Array, z: Array) -> tuple[Array, Array]:
            q, v = moved(problem.robot, q, v, z[:m])
            return advanced(problem, compute_terms(problem.robot, q, v), tau + z[m:])

        moves = jnp.concatenate([jnp.zeros((1, 3 * m // 2)), STEP * jnp.eye(3 * m // 2)])
        of_knot = jax.vmap(fusible(after, options.backend), (None, None, None, 0))
        q, v = jax.vmap(of_knot, (0, 0, 0, None))(now.q[:-1], now.v[:-1], now.tau, moves)
        far = jax.vmap(jax.vmap(lambda *x: between(problem.robot, *x), (None, None, 0, 0)))
        J = jnp.swapaxes(far(q[:, 0], v[:, 0], q[:, 1:], v[:, 1:]), 1, 2) / STEP
        return knots._replace(A=J[..., :m], B=J[..., m:]), last, own

    ddp.linearised, ddp._expanded = none, by_differences
    try:
        yield
    finally:
        ddp.linearised, ddp._expanded = linearised, expanded


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
    problem = trot(scene)
    mpc = plan.MPC(problem)
    robot = problem.robot

    @jax.jit
    def tick(q: Array, v: Array, state: Any, time: Array) -> Any:
        terms = compute_terms(robot, q, v)
        state = mpc.replan(robot, terms, steps(time), state)
        tau = mpc.torque(robot, terms, state)
        feet = jnp.stack([dynamics.frame_pose(robot, q, f)[0][2] for f in FEET])
        now = cost_now(problem, terms, tau, time)
        return mpc.later(state, DT), tau, now, state.plan.cost / (N * DT), feet

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
        began = time.perf_counter()
        state, tau, *told = jax.block_until_ready(ready(q, v, state, jnp.asarray(k * DT, float)))
        seen.append((time.perf_counter() - began, *told, q))
        q, v = move(q, v, tau)
    seconds, now, of_plans, feet, qs = (np.stack(x) for x in zip(*seen, strict=True))
    return Run(compiled, seconds, now, of_plans, qs, feet)


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
    wanted = np.asarray(plan.swing_heights(at, **GAIT))
    figure, axes = plt.subplots(3, 1, figsize=(9, 6.4), sharex=True, layout="constrained")
    for axis, i in ((axes[0], 0), (axes[1], 2)):
        axis.fill_between(at, 1e3 * wanted[:, i], color="#cfd8e3", label="wanted")
        axis.plot(at, 1e3 * (found.feet[:, i] - SOLE), color="#1f5fa8", label="foot")
        axis.set_ylabel(f"{FEET[i]}, mm")
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
            with differences():
                found = run(options)
        wanted = np.asarray(plan.swing_heights(DT * np.arange(options.plans), **GAIT))
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
            f"{found.compiled:.0f}",
        )
        if i == 0 and options.picture is not None:
            draw(found, options.picture)
    Console(width=150).print(table)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
