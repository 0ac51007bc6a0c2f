"""Let a Panda's hand follow a figure eight, with and without feed-forward.

    python scripts/examples/track_figure_eight.py
    python scripts/examples/track_figure_eight.py --period 2 --output eight.png

The hand draws a lemniscate in a vertical plane and keeps its orientation. Operational space control
that knows the reference's velocity and acceleration follows it to fractions of a millimetre; one
that only knows where it is lags behind. Needs the extra `train`, for the picture.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array

from fraxenv import dynamics
from fraxenv.controllers import OSC, PoseTarget
from fraxenv.dynamics import Actuators, Robot
from fraxenv.media.plots import COLOURS as PALETTE
from fraxenv.media.plots import picture
from fraxenv.rendering import Camera, Shape, render, scene

DT = 1e-3  # s
COLOURS = dict(zip(("with feed-forward", "without"), PALETTE, strict=False))


@dataclass(frozen=True)
class Options:
    """Track a figure eight.

    Attributes:
        period: of one round, s.
        width: of the figure, m; it is half as high.
        rounds: how often.
        output: the PNG.
    """

    period: float = 4.0
    width: float = 0.4
    rounds: int = 2
    output: Path = Path("track_figure_eight.png")


def reference(robot: Robot, options: Options, t: Array) -> PoseTarget:
    """The hand's pose at the time `t`, s, with its velocity and acceleration."""
    centre, rotation = dynamics.frame_pose(robot, robot.q_default, "hand")

    def position(t: Array) -> Array:
        settled = 0.1 * options.period  # the figure begins slowly
        phase = 2 * jnp.pi * (t - settled * (1 - jnp.exp(-t / settled))) / options.period
        half = options.width / 2
        return centre + half * jnp.stack([0 * t, jnp.sin(phase), 0.5 * jnp.sin(2 * phase)])

    def velocity(t: Array) -> Array:
        return jax.jvp(position, (t,), (jnp.ones_like(t),))[1]

    acceleration = jax.jvp(velocity, (t,), (jnp.ones_like(t),))[1]
    still = jnp.zeros(3)
    return PoseTarget(
        position(t),
        rotation,
        jnp.concatenate([velocity(t), still]),
        jnp.concatenate([acceleration, still]),
    )


def track(robot: Robot, options: Options, *, feed_forward: bool) -> Any:
    """Time, reference, hand (steps, 3), errors of position and orientation, q (steps, nv)."""
    osc, actuators = OSC("hand"), Actuators()

    def step(carry: Any, t: Array) -> Any:
        q, v, state, motors = carry
        goal = reference(robot, options, t)
        target = goal if feed_forward else PoseTarget(goal.position, goal.rotation)
        terms = dynamics.compute_terms(robot, q, v)
        tau, state, told = osc(robot, terms, target, state, DT)
        tau, _, motors = actuators(robot, tau, v, motors, DT)
        hand, _ = dynamics.frame_pose(robot, q, "hand", kin=terms.kin)
        seen = (t, goal.position, hand, told["position_error"], told["orientation_error"], q)
        return (*dynamics.step(robot, q, v, tau, DT, terms=terms), state, motors), seen

    q, v = jnp.asarray(robot.q_default, float), jnp.zeros(robot.nv)
    terms = dynamics.compute_terms(robot, q, v)
    start = (q, v, osc.init(robot, terms), actuators.init(robot, terms.bias, DT))
    times = DT * jnp.arange(round(options.rounds * options.period / DT))
    return jax.lax.scan(step, start, times)[1]


def view(robot: Robot, q: np.ndarray, path: np.ndarray) -> np.ndarray:
    """The robot, and the hand's path as a string of beads."""
    beads = [Shape("sphere", (0.006,), p, np.eye(3), (0.12, 0.44, 0.55, 1.0)) for p in path[::20]]
    camera = Camera(eye=(1.75, -0.75, 0.85), target=(0.2, 0.0, 0.38), fov=36.0)
    return render([*scene(robot, q), *beads], camera, 720, 720)


def plot(file: Path, robot: Robot, runs: dict[str, Any]) -> None:
    """Draw the robot, the paths, and the errors; atomic."""
    with picture(file, 13, 4.2) as figure:
        left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1.15, 1.5))
        t, goal, hand, _, _, q = runs["with feed-forward"]
        left.imshow(view(robot, np.asarray(q[len(q) // 12]), np.asarray(hand)))
        left.set_axis_off()
        middle.plot(goal[:, 1], goal[:, 2], color="0.75", linewidth=6, label="reference")
        for name, (t, _, hand, error, _, _) in runs.items():
            style = "-" if name == "with feed-forward" else "--"
            middle.plot(
                hand[:, 1], hand[:, 2], style, color=COLOURS[name], linewidth=1.4, label=name
            )
            right.semilogy(t[1:], 1e3 * error[1:], color=COLOURS[name], linewidth=1.2, label=name)
        middle.set(xlabel="y, m", ylabel="z, m", aspect="equal")
        middle.legend(loc="upper center", ncols=3, columnspacing=1.0)
        middle.margins(y=0.22)
        middle.locator_params(axis="x", nbins=5)
        right.set(
            xlabel="time, s",
            ylabel="error of position, mm",
            xlim=(0, float(t[-1])),
            ylim=(1e-2, 2e2),
        )
        right.legend(loc="center right")


def main(argv: list[str] | None = None) -> int:
    options = tyro.cli(Options, args=argv)
    robot = dynamics.load_robot("panda")
    runs = {
        name: jax.jit(lambda use=use: track(robot, options, feed_forward=use))()
        for name, use in (("with feed-forward", True), ("without", False))
    }
    plot(options.output, robot, runs)
    settled = round(0.5 * options.period / DT)
    print(f"{'':20}{'rms, mm':>10}{'largest, mm':>14}{'largest, deg':>14}")
    for name, (_, _, _, error, turn, _) in runs.items():
        mm, degrees = 1e3 * np.asarray(error)[settled:], np.degrees(turn)[settled:]
        print(f"{name:20}{np.sqrt(np.mean(mm**2)):10.3f}{mm.max():14.3f}{degrees.max():14.3f}")
    print(f"drawn to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
