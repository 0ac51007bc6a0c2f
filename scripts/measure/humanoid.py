"""A humanoid that stands, is pushed, and steps, by plans through the contacts of its feet.

    python scripts/measure/humanoid.py
    python scripts/measure/humanoid.py --picture docs/pictures/humanoid.png
    python scripts/measure/humanoid.py --locked nothing
    python scripts/measure/humanoid.py --only steps --seconds 10 --physics mujoco

The robot is the bundled `g1_feet` on `walking_scene`'s floor, its arms locked, or with all its
joints (`--locked nothing`). A plan is of 0.35 s in steps of 10 ms, one iteration of it every 10 ms,
by motors within their limits; physics takes steps of 2 ms. Residuals are those of what walks
(docs/planning.md). Pushes are of 0.1 s at the pelvis, after half a second. "Fell" is a pelvis below
0.5 m.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fraxenv import dynamics, plan, rendering
from fraxenv.dynamics import Robot, Scene, Terms, compute_terms, frame_pose
from fraxenv.envs import walking_scene

FEET = ("left_foot", "right_foot")
PELVIS, TORSO = "pelvis", "torso_link"
DT, HORIZON = 0.01, 35
"""s, of a step of a plan, and how many it has."""

STEPS = 5
"""Of physics between two plans."""

PHASES = (0.0, 0.5)
STANDING = (1.0, 0.0, 1.0)
STEPPING = (2.0, 0.06, 0.6)
"""Cadence, height of a step, m, and share of a period for which a foot stands."""

PUSHES = ((0, 0), (10, 0), (-10, 0), (0, 10), (0, -10))
"""N s, ahead and to the left, where it stands; where it steps, twice as much."""

BEGINS, LASTS = 50, 10
"""Plans before a push, and during it."""

HARD, DIRECTIONS, TIMES, AFTERWARDS = (20, 50), 8, (50, 58, 66), 300
"""N s of pushes where it steps, in so many directions, after so many plans: three parts of a step;
and the plans for which it has to stay up.
"""

AHEAD = "steps, to 1 m ahead"
"""The row that is drawn."""

LOW = 0.5
"""m, of the pelvis that has fallen."""

ARMS = ("shoulder", "elbow", "wrist")


@dataclass(frozen=True)
class Options:
    """Options of the measurement.

    Attributes:
        only: which rows begin so: "stands" or "steps"; all if empty.
        seconds: of each row.
        physics: what moves the robot between plans.
        picture: where to draw the robot on its way, if anywhere.
        locked: joints whose names have one of these are.
    """

    only: str = ""
    seconds: float = 6.0
    physics: Literal["ours", "mujoco"] = "ours"
    picture: Path | None = None
    locked: tuple[str, ...] = ARMS


@dataclass
class Run:
    """What came of a row: of each plan the configuration, the feet's places, m, and ms."""

    q: np.ndarray
    feet: np.ndarray
    wanted: np.ndarray
    milliseconds: np.ndarray

    @property
    def pelvis(self) -> np.ndarray:
        """Its places (n, 3), m."""
        return self.q[:, :3]

    @property
    def fell(self) -> bool:
        """Whether it did."""
        return bool(self.pelvis[:, 2].min() < LOW)


def humanoid(locked: Sequence[str] = ARMS) -> Robot:
    """The robot, without joints whose names have one of `locked`."""
    robot = dynamics.load_robot("g1_feet")
    names = [j for j in robot.joint_names if any(part in j for part in locked)]
    return dynamics.lock_joints(robot, names)


def way(robot: Robot, terms: Terms, tau: Array, place: Array) -> Array:
    """From a place (2,), m, to the pelvis, and the sine of its heading."""
    position, axes = frame_pose(robot, terms.q, PELVIS, kin=terms.kin)
    return jnp.append(position[:2] - place, axes[1, 0])


def costs(robot: Robot, heights: Array, *, each: bool) -> dict[str, plan.Residual]:
    """The terms; `heights` of feet (2,), m, or (HORIZON, 2) with `each`."""
    home = np.asarray(robot.q_default, float)
    tall = float(home[2])
    limits = np.asarray(robot.effort_limits, float)
    joints = np.where(limits > 0, 1.0, 0.0)
    efforts = 0.02 * joints / np.where(limits > 0, limits, np.inf) ** 2
    return {
        "effort": plan.torque(weight=efforts),
        "upright": plan.upright(TORSO, 3.0, norm=plan.smooth_abs(0.05)),
        "height": plan.height(PELVIS, FEET, tall, 1.0, norm=plan.smooth_abs(0.04)),
        "balance": plan.balance(FEET, 0.9 * tall, 1.0, norm=plan.l2(0.1)),
        "place": plan.residual(way, jnp.zeros(2), 1.0, norm=plan.l2(0.1)),
        "posture": plan.posture(home, 0.05 * joints),
        "still": plan.velocity(weight=1e-3 * joints),
        "gait" if each else "gait at the end": plan.swing(
            FEET, heights, 20.0, sole=0.0, norm=plan.smooth_abs(0.03), each=each
        ),
    }


def controller(scene: Scene) -> plan.MPC:
    """Plans of the scene."""
    running = costs(scene.system, jnp.zeros((HORIZON, 2)), each=True)
    last = costs(scene.system, jnp.zeros(2), each=False)
    del last["effort"]
    terminal = {k: dataclasses.replace(t, weight=DT * t.weight) for k, t in last.items()}
    return plan.MPC(plan.Problem(scene, HORIZON, DT, running, terminal, control_limits=True))


def in_mujoco(scene: Scene) -> Callable[[Array, Array, Array, Array], tuple[Array, Array]]:
    """As `Walker._step`, in MuJoCo's engine."""
    import mujoco

    model = scene.to_mujoco()
    model.opt.timestep, model.opt.integrator = DT / STEPS, mujoco.mjtIntegrator.mjINT_EULER
    data = mujoco.MjData(model)

    def step(q: Array, v: Array, tau: Array, push: Array) -> tuple[Array, Array]:
        data.qpos, data.qvel, data.qfrc_applied = np.asarray(q), np.asarray(v), np.asarray(tau)
        data.qfrc_applied[:2] += np.asarray(push)
        mujoco.mj_step(model, data, STEPS)
        # Copies: the next step changes these arrays.
        return jnp.array(data.qpos, float), jnp.array(data.qvel, float)

    return step


class Walker:
    """Programs that plan and step, compiled once."""

    def __init__(
        self, locked: Sequence[str] = ARMS, physics: Literal["ours", "mujoco"] = "ours"
    ) -> None:
        self.scene = walking_scene(humanoid(locked))
        self.mpc = controller(self.scene)
        robot = self.scene.system
        self.q = jnp.asarray(robot.q_default, float)
        self.v = jnp.zeros(robot.nv)
        first = jax.jit(lambda q, v: self.mpc.init(robot, compute_terms(robot, q, v)))
        self.first = first(self.q, self.v)
        began = time.perf_counter()
        inputs = (self.q, self.v, self.first, jnp.zeros(()), jnp.zeros(3), jnp.zeros(2))
        self.tick = jax.jit(self._tick).lower(*inputs).compile()
        self.compiled = time.perf_counter() - began
        self.step = jax.jit(self._step) if physics == "ours" else in_mujoco(self.scene)

    def _tick(
        self, q: Array, v: Array, state: Any, now: Array, gait: Array, place: Array
    ) -> tuple[Any, ...]:
        robot = self.scene.system
        terms = compute_terms(robot, q, v)
        heights = plan.swing_heights(now + DT * jnp.arange(HORIZON + 1), PHASES, *gait)
        aim = {"gait": heights[:HORIZON], "gait at the end": heights[HORIZON], "place": place}
        state = self.mpc.replan(robot, terms, aim, state)
        tau = self.mpc.torque(robot, terms, state)
        feet = jnp.stack([frame_pose(robot, q, f, kin=terms.kin)[0] for f in FEET])
        return self.mpc.later(state, DT), tau, feet, heights[0]

    def _step(self, q: Array, v: Array, tau: Array, push: Array) -> tuple[Array, Array]:
        pushed = tau.at[:2].add(push)

        def one(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            return dynamics.scene_step(self.scene, *state, pushed, DT / STEPS)[:2], None

        return jax.lax.scan(one, (q, v), None, STEPS)[0]

    def run(
        self,
        plans: int,
        *,
        push: tuple[float, float] = (0.0, 0.0),
        begins: int = BEGINS,
        gait: tuple[float, float, float] = STANDING,
        place: tuple[float, float] = (0.0, 0.0),
    ) -> Run:
        """From the stand.

        Args:
            plans: how many, at most: it ends where the robot falls.
            push: N s, ahead and to the left.
            begins: plans before it.
            gait: cadence, height of a step, m, share of a period for which a foot stands.
            place: m, where to go.
        """
        q, v, state = self.q, self.v, self.first
        seen: list[Any] = []
        for k in range(plans):
            began = time.perf_counter()
            now = jnp.asarray(k * DT, float)
            inputs = (q, v, state, now, jnp.asarray(gait, float), jnp.asarray(place, float))
            state, tau, *told = jax.block_until_ready(self.tick(*inputs))
            seen.append((np.asarray(q), *told, 1e3 * (time.perf_counter() - began)))
            pushed = begins <= k < begins + LASTS
            force = jnp.asarray(push, float) / (LASTS * DT) if pushed else jnp.zeros(2)
            q, v = self.step(q, v, tau, force)
            if q[2] < LOW:
                break
        seen.append((np.asarray(q), *seen[-1][1:]))
        return Run(*(np.stack(x) for x in zip(*seen, strict=True)))


def draw(found: Run, robot: Robot, path: Path) -> None:
    """The robot in the second second, from its right, every 0.1 s."""
    from PIL import Image

    pictures = []
    for q in found.q[100:200:10]:
        x = float(q[0])
        camera = rendering.Camera(eye=(x + 0.9, -2.6, 0.9), target=(x, 0.0, 0.62), fov=30.0)
        pictures.append(rendering.render(rendering.scene(robot, q), camera, 150, 330, "raycast"))
    Image.fromarray(np.concatenate(pictures, axis=1)).save(path)


def main(options: Options) -> None:
    """Measure."""
    jax.config.update("jax_enable_x64", True)
    plans = round(options.seconds / DT)
    walker = Walker(options.locked, options.physics)
    rows: dict[str, dict[str, Any]] = {f"stands, {x} {y} N s": {"push": (x, y)} for x, y in PUSHES}
    for x, y in PUSHES:
        rows[f"steps, {2 * x} {2 * y} N s"] = {"push": (2 * x, 2 * y), "gait": STEPPING}
    rows[AHEAD] = {"gait": STEPPING, "place": (1.0, 0.0)}
    rows["steps, to 0.5 m to the left"] = {"gait": STEPPING, "place": (0.0, 0.5)}
    table = Table(
        "", "fell after, s", "pelvis, lowest m", "at the end, m", "feet, highest mm", "off, rms mm",
        "ms a plan", "5 and 95 %",
        title=f"{walker.scene.system.nv} degrees of freedom, compiled for {walker.compiled:.0f} s",
    )  # fmt: skip
    for name, given in rows.items():
        if not name.startswith(options.only):
            continue
        found = walker.run(plans, **given)
        if options.picture is not None and name == AHEAD:
            draw(found, walker.scene.system, options.picture)
        off = (found.feet[:, :, 2] - found.wanted)[found.wanted > 0]
        x, y, _ = found.pelvis[-1]
        low, high = np.percentile(found.milliseconds, (5, 95))
        table.add_row(
            name,
            f"{DT * (len(found.pelvis) - 1):.1f}" if found.fell else "-",
            f"{found.pelvis[:, 2].min():.2f}",
            f"{x:.2f}, {y:.2f}",
            f"{1e3 * found.feet[:, :, 2].max():.0f}",
            f"{1e3 * np.sqrt(np.mean(off**2)):.1f}" if len(off) else "-",
            f"{np.median(found.milliseconds):.1f}",
            f"{low:.1f}, {high:.1f}",
        )
    console = Console(width=150)
    console.print(table)
    for size in HARD:
        name = f"steps, pushed by {size} N s in {DIRECTIONS} directions, at {len(TIMES)} times"
        if name.startswith(options.only):
            fell = falls(walker, size)
            console.print(f"{name}: {sum(fell)} of {len(fell)} fell")


def falls(walker: Walker, size: float) -> list[bool]:
    """Whether it fell, of pushes in all directions at all times, N s."""
    fell = []
    for begins, k in track(list(itertools.product(TIMES, range(DIRECTIONS))), f"{size} N s"):
        angle = 2 * np.pi * k / DIRECTIONS
        push = (size * np.cos(angle), size * np.sin(angle))
        found = walker.run(begins + AFTERWARDS, push=push, begins=begins, gait=STEPPING)
        fell.append(found.fell)
    return fell


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
