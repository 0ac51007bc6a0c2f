"""The safety filter at work: a ball flies through the Panda's workspace, filter on and off.

Draws the barriers' least value, the hand's path error and the torques over time, and pictures of
both runs at the moment at which the ball is nearest.

    python scripts/examples/avoid_obstacle.py --output avoid_obstacle.png
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array

from fraxenv.controllers import OSC, PoseTarget, SafetyFilter
from fraxenv.dynamics import (
    Actuators,
    Obstacles,
    Robot,
    Sphere,
    compute_terms,
    frame_pose,
    load_robot,
    move_obstacles,
    obstacle_distances,
    obstacle_shapes,
    step,
)
from fraxenv.media.plots import COLOURS, picture
from fraxenv.rendering import Camera, render, scene

DT = 0.001


@dataclass(frozen=True)
class Options:
    """Options of the example."""

    seconds: float = 4.0
    """Length of the run."""
    speed: float = 0.25
    """m/s, of the ball."""
    output: Path = Path("avoid_obstacle.png")
    """The picture."""


def ball(options: Options) -> Obstacles:
    """A ball that comes from the robot's left, and crosses where its hand is."""
    start = jnp.array([[0.45, -0.5 * options.speed * options.seconds, 0.42]])
    return Obstacles(
        Sphere(start, jnp.array([0.08])), velocity=jnp.array([[0.0, options.speed, 0.0]])
    )


def run(robot: Robot, safety: SafetyFilter, options: Options) -> dict[str, Array]:
    """Hold the hand where it is while the ball passes."""
    osc, actuators = OSC("hand"), Actuators()
    q = jnp.asarray(robot.q_default, jnp.float32)
    v = jnp.zeros_like(q)
    target = PoseTarget(*frame_pose(robot, q, "hand"))
    around = ball(options)

    def control(carry: Any, k: Array) -> tuple[Any, dict[str, Array]]:
        q, v, state, motors = carry
        terms = compute_terms(robot, q, v)
        world = move_obstacles(around, DT * k)
        tau, state, telemetry = osc(robot, terms, target, state, DT)
        reach = actuators.range(robot, v, motors, DT)
        tau, report = safety(robot, terms, tau, DT, world, reach)
        applied, _, motors = actuators(robot, tau, v, motors, DT)
        distance = jnp.min(obstacle_distances(robot, q, world, kin=terms.kin))
        seen = {
            "q": q,
            "torque": applied / jnp.asarray(robot.effort_limits, q.dtype),
            "distance": distance,
            "barrier": report["min_barrier"],
            "error": telemetry["position_error"],
            "intervened": report["intervened"],
        }
        q, v = step(robot, q, v, applied, DT, terms=terms)
        return (q, v, state, motors), seen

    terms = compute_terms(robot, q, v)
    start = (q, v, osc.init(robot, terms), actuators.init(robot, terms.bias, DT))
    rounds = jnp.arange(round(options.seconds / DT), dtype=jnp.float32)
    return jax.jit(lambda: jax.lax.scan(control, start, rounds)[1])()


def view(robot: Robot, q: Array, options: Options, moment: int) -> np.ndarray:
    """The robot and the ball at a control step."""
    world = move_obstacles(ball(options), DT * moment)
    markers = obstacle_shapes(world, (0.85, 0.3, 0.2, 1.0)).values()
    camera = Camera(eye=(1.7, -1.1, 1.0), target=(0.25, 0.0, 0.4), fov=35.0)
    return render(scene(robot, q, markers), camera, 560, 480)


def main(options: Options) -> None:
    """Run with and without the filter, and draw both."""
    robot = load_robot("panda")
    runs = {
        "filter off": run(robot, SafetyFilter(end_effectors=("hand",), enabled=False), options),
        "filter on": run(robot, SafetyFilter(end_effectors=("hand",)), options),
    }
    time = DT * np.arange(len(runs["filter on"]["distance"]))
    moment = int(np.argmin(runs["filter off"]["distance"]))
    with picture(options.output, 10, 11, dpi=160) as figure:
        axes = figure.subplot_mosaic(
            [
                ["off", "on"],
                ["distance", "distance"],
                ["error", "error"],
                ["torque off", "torque on"],
            ],
            height_ratios=[2.6, 1, 1, 1.2],
        )
        for name, found in runs.items():
            short = name.split()[1]
            axes[short].imshow(view(robot, found["q"][moment], options, moment))
            axes[short].set_title(f"{name}, at {time[moment]:.2f} s")
            axes[short].axis("off")
            colour = {"on": COLOURS[0], "off": COLOURS[1]}[short]
            axes["distance"].plot(time, 1e3 * found["distance"], colour, label=name)
            axes["error"].plot(time, 1e3 * found["error"], colour, label=name)
            axes[f"torque {short}"].plot(time, found["torque"], lw=0.8)
            axes[f"torque {short}"].set(
                title=f"torques of the seven joints, {name}", ylim=(-1.05, 1.05),
                xlabel="time, s", ylabel="of their limits",
            )  # fmt: skip
        axes["distance"].axhline(0, color="black", lw=0.8)
        axes["distance"].set(ylabel="ball to robot, mm")
        axes["distance"].legend()
        axes["error"].set(ylabel="hand off its target, mm", xlabel="time, s")
    for name, found in runs.items():
        least, most = 1e3 * float(found["distance"].min()), float(jnp.abs(found["torque"]).max())
        print(f"{name:12s} ball comes to {least:6.1f} mm, torques to {most:.2f} of their limits")
    print(f"Wrote {options.output}.")


if __name__ == "__main__":
    main(tyro.cli(Options))
