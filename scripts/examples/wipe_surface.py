"""Let a Panda wipe a surface that is not quite where it should be, by a schedule of stiffness.

    python scripts/examples/wipe_surface.py
    python scripts/examples/wipe_surface.py --tilt 10 --force 15 --output wipe.png

The hand comes down, wipes in loops, and lifts again. It is told a level surface; the real one is
tilted. A hand that stays stiff pushes where the surface is too high and loses it where it is too
low. With a schedule it is stiff on the way and soft along the normal while it wipes, and the force
comes from a wrench that is commanded besides: it stays near what is wanted wherever the surface is.
Both come with the target, `PoseTarget(kp=..., wrench=...)`. The surface is a half-space, whose
contact is a spring, a damper and friction at the hand. Needs the extra `train`, for the picture.
"""

from __future__ import annotations

import dataclasses
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
CENTRE = (0.53, 0.0, 0.2)  # m, of the area to wipe
DOWN, LIFT = 1.5, 1.0  # s, on the way to the surface and away from it
STIFF, SOFT = 600.0, 15.0  # 1/s^2
DAMPING = 40.0  # 1/s, along the normal while it wipes
SPRING, DAMPER, FRICTION = 2e4, 100.0, 0.3  # N/m, N s/m, 1: of the surface
COLOURS = dict(zip(("by schedule", "stiff"), PALETTE, strict=False))


@dataclass(frozen=True)
class Options:
    """Wipe a tilted surface.

    Attributes:
        tilt: of the real surface about x, degrees.
        force: that the hand should press with, N.
        seconds: of wiping, s.
        output: the PNG.
    """

    tilt: float = 5.0
    force: float = 10.0
    seconds: float = 6.0
    output: Path = Path("wipe_surface.png")


def smooth(x: Array) -> Array:
    """From 0 at x <= 0 to 1 at x >= 1."""
    x = jnp.clip(x, 0.0, 1.0)
    return x * x * (3 - 2 * x)


def target(options: Options, rotation: Array, t: Array, *, scheduled: bool) -> PoseTarget:
    """Where the hand should be at the time `t`, s, how stiff, and with which wrench."""
    wiping = t - DOWN
    phase = 2 * jnp.pi * smooth(wiping / options.seconds)
    loops = jnp.stack([0.06 * jnp.sin(6 * phase), -0.15 * jnp.cos(phase), 0 * t])
    away = 1 - smooth(t / DOWN) + smooth((wiping - options.seconds) / LIFT)
    position = jnp.array(CENTRE) + loops + jnp.array([0.0, 0.0, 0.12]) * away

    # Soft along z while it wipes: from shortly before the surface is touched.
    touching = smooth((0.3 - away) / 0.3) if scheduled else 0 * t
    along_normal = STIFF + (SOFT - STIFF) * touching
    kp = jnp.full(6, STIFF).at[2].set(along_normal)
    ratio = jnp.ones(6).at[2].add(touching * (DAMPING / (2 * jnp.sqrt(along_normal)) - 1))
    wrench = jnp.zeros(6).at[2].set(-options.force * touching)
    return PoseTarget(position, rotation, wrench=wrench, kp=kp, damping_ratio=ratio)


def contact(options: Options, position: Array, velocity: Array) -> tuple[Array, Array]:
    """Force (3,) of the surface on the hand, N, and its normal part."""
    angle = np.radians(options.tilt)
    normal = jnp.array([0.0, -np.sin(angle), np.cos(angle)])
    depth = -jnp.dot(normal, position - jnp.array(CENTRE))
    rate = -jnp.dot(normal, velocity)
    pressing = jnp.where(depth > 0, jnp.maximum(SPRING * depth + DAMPER * rate, 0.0), 0.0)
    sliding = velocity + rate * normal
    speed = jnp.sqrt(jnp.sum(sliding**2) + 1e-6)
    return pressing * (normal - FRICTION * sliding / speed), pressing


def wipe(robot: Robot, options: Options, *, scheduled: bool) -> Any:
    """Time, normal force, target and hand (steps, 3), stiffness along z, q (steps, nv)."""
    osc, actuators = OSC("hand"), Actuators()
    _, rotation = dynamics.frame_pose(robot, robot.q_default, "hand")

    def position(t: Array) -> Array:
        return target(options, rotation, t, scheduled=scheduled).position

    def step(carry: Any, t: Array) -> Any:
        q, v, state, motors = carry
        goal = target(options, rotation, t, scheduled=scheduled)
        _, rate = jax.jvp(position, (t,), (jnp.ones_like(t),))
        goal = dataclasses.replace(goal, velocity=jnp.concatenate([rate, jnp.zeros(3)]))
        terms = dynamics.compute_terms(robot, q, v)
        tau, state, _ = osc(robot, terms, goal, state, DT)
        tau, _, motors = actuators(robot, tau, v, motors, DT)
        hand, _ = dynamics.frame_pose(robot, q, "hand", kin=terms.kin)
        J = dynamics.frame_jacobian(robot, q, "hand", kin=terms.kin)[:3]
        force, pressing = contact(options, hand, J @ v)
        q, v = dynamics.step(robot, q, v, tau + J.T @ force, DT, terms=terms)
        return (q, v, state, motors), (t, pressing, goal.position, hand, goal.kp[2], q)

    q, v = jnp.asarray(robot.q_default, float), jnp.zeros(robot.nv)
    terms = dynamics.compute_terms(robot, q, v)
    start = (q, v, osc.init(robot, terms), actuators.init(robot, terms.bias, DT))
    times = DT * jnp.arange(round((DOWN + options.seconds + LIFT) / DT))
    return jax.lax.scan(step, start, times)[1]


def view(robot: Robot, options: Options, q: np.ndarray, path: np.ndarray) -> np.ndarray:
    """The robot, the surface, and where the hand has been on it."""
    angle = np.radians(options.tilt)
    tilt = np.array(
        [[1, 0, 0], [0, np.cos(angle), -np.sin(angle)], [0, np.sin(angle), np.cos(angle)]]
    )
    middle = np.array(CENTRE) - 0.015 * tilt[:, 2]
    board = Shape("box", (0.26, 0.48, 0.03), middle, tilt, (0.85, 0.78, 0.66, 1.0))
    beads = [Shape("sphere", (0.005,), p, np.eye(3), (0.12, 0.44, 0.55, 1.0)) for p in path[::15]]
    camera = Camera(eye=(1.65, -0.8, 0.95), target=(0.28, 0.0, 0.32), fov=36.0)
    return render([*scene(robot, q), board, *beads], camera, 720, 720)


def plot(file: Path, robot: Robot, options: Options, runs: dict[str, Any]) -> None:
    """Draw the robot, force, stiffness and height; atomic."""
    with picture(file, 13, 4.6) as figure:
        grid = figure.add_gridspec(3, 2, width_ratios=(1, 1.9), height_ratios=(2, 1, 1.2))
        left = figure.add_subplot(grid[:, 0])
        force = figure.add_subplot(grid[0, 1])
        stiffness = figure.add_subplot(grid[1, 1], sharex=force)
        height = figure.add_subplot(grid[2, 1], sharex=force)

        t, _, goal, hand, _, q = (np.asarray(x) for x in runs["by schedule"])
        wiped = (t > DOWN) & (t < DOWN + options.seconds)
        middle = round((DOWN + 0.5 * options.seconds) / DT)
        left.imshow(view(robot, options, q[middle], hand[wiped]))
        left.set_axis_off()
        for name, (t, pressing, _, _, kp, _) in runs.items():
            force.plot(t, pressing, color=COLOURS[name], linewidth=1.2, label=name)
            stiffness.plot(t, kp, color=COLOURS[name], linewidth=1.5)
        force.axhline(options.force, color="0.3", linewidth=1.0, linestyle="--")
        surface = CENTRE[2] + np.tan(np.radians(options.tilt)) * hand[:, 1]
        height.plot(t[wiped], 1e3 * surface[wiped], color="0.75", linewidth=5, label="surface")
        height.plot(t, 1e3 * hand[:, 2], color=COLOURS["by schedule"], linewidth=1.2, label="hand")
        height.plot(t, 1e3 * goal[:, 2], color="0.3", linewidth=1.0, linestyle="--", label="target")
        force.set(ylabel="normal force, N")
        stiffness.set(ylabel="kp z, 1/s²")
        height.set(ylabel="height, mm", xlabel="time, s", xlim=(0, t[-1]), ylim=(170, 260))
        force.legend(loc="upper right")
        height.legend(loc="upper center", ncols=3)
        for axes in (force, stiffness):
            axes.tick_params(labelbottom=False)


def main(argv: list[str] | None = None) -> int:
    options = tyro.cli(Options, args=argv)
    robot = dynamics.load_robot("panda")
    runs = {
        name: jax.jit(lambda use=use: wipe(robot, options, scheduled=use))()
        for name, use in (("stiff", False), ("by schedule", True))
    }
    plot(options.output, robot, options, runs)
    print(f"{'normal force, N':16}{'mean':>8}{'least':>8}{'most':>8}{'in contact':>13}")
    for name, (t, pressing, *_) in runs.items():
        settled = (t > DOWN + 0.5) & (t < DOWN + options.seconds - 0.1)
        f = np.asarray(pressing)[np.asarray(settled)]
        contact_time = f"{100 * np.mean(f > 0):.1f} %"
        print(f"{name:16}{f.mean():8.2f}{f.min():8.2f}{f.max():8.2f}{contact_time:>13}")
    print(f"drawn to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
