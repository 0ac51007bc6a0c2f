"""Let a G1 move both hands, until it cannot: who gives way then is a matter of priority.

    python scripts/examples/move_two_hands.py
    python scripts/examples/move_two_hands.py --apart 0.4 --output hands.png

One operational space controller steers both hands. They draw circles, and are then pulled apart to
the sides, further than the waist and the arms reach. As equals they share what is left of the way;
in order the left hand arrives, and the right one moves in its nullspace. The G1 is welded at its
pelvis. Needs the extra `train`, for the picture.
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
HANDS = ("left_hand", "right_hand")
ROUND, PULL, REST = 3.0, 2.0, 2.0  # s: a circle, pulling apart, coming to rest
RADIUS = 0.08  # m
HEIGHT = 0.793  # m, of the pelvis above the ground
COLOURS = dict(zip(HANDS, PALETTE, strict=False))


@dataclass(frozen=True)
class Options:
    """Move both hands of a G1.

    Attributes:
        apart: how far each hand is pulled to its side, m.
        output: the PNG.
    """

    apart: float = 0.35
    output: Path = Path("move_two_hands.png")


def load() -> Robot:
    """The G1, welded, with stops at its joint limits, and rotors: its wrists weigh so little."""
    robot = dynamics.load_robot("g1", floating_base=False)
    ones = np.ones(robot.nv)
    return robot.replace(armature=0.01 * ones, stop_stiffness=500.0 * ones, stop_damping=5.0 * ones)


def target(robot: Robot, options: Options, t: Array) -> PoseTarget:
    """Where both hands should be at the time `t`, s."""
    poses = [dynamics.frame_pose(robot, robot.q_default, hand) for hand in HANDS]
    start, rotation = (jnp.stack(x) for x in zip(*poses, strict=True))
    side = jnp.array([1.0, -1.0])
    phase = 2 * jnp.pi * _smooth(t / ROUND) * side
    circle = jnp.stack([0.05 + 0 * phase, jnp.sin(phase), 1 - jnp.cos(phase)], axis=-1)
    circle = circle * jnp.array([1.0, RADIUS, RADIUS])
    pull = _smooth((t - ROUND) / PULL)
    sideways = jnp.stack([-0.1 + 0 * side, options.apart * side, 0.3 + 0 * side], axis=-1)
    return PoseTarget(start + _smooth(2 * t / ROUND) * circle + pull * sideways, rotation)


def _smooth(x: Array) -> Array:
    """From 0 at x <= 0 to 1 at x >= 1."""
    x = jnp.clip(x, 0.0, 1.0)
    return x * x * (3 - 2 * x)


def move(robot: Robot, options: Options, osc: OSC) -> Any:
    """Time, targets and hands (steps, 2, 3), distances (steps, 2), torques and q (steps, nv)."""
    actuators = Actuators()

    def position(t: Array) -> Array:
        return target(robot, options, t).position

    def step(carry: Any, t: Array) -> Any:
        q, v, state, motors = carry
        goal = target(robot, options, t)
        _, rate = jax.jvp(position, (t,), (jnp.ones_like(t),))
        goal = dataclasses.replace(goal, velocity=jnp.concatenate([rate, 0 * rate], axis=-1))
        terms = dynamics.compute_terms(robot, q, v)
        tau, state, told = osc(robot, terms, goal, state, DT)
        tau, _, motors = actuators(robot, tau, v, motors, DT)
        poses = [dynamics.frame_pose(robot, q, hand, kin=terms.kin) for hand in HANDS]
        hands = jnp.stack([position for position, _ in poses])
        seen = (t, goal.position, hands, told["position_error"], tau, q)
        return (*dynamics.step(robot, q, v, tau, DT, terms=terms), state, motors), seen

    q, v = jnp.asarray(robot.q_default, float), jnp.zeros(robot.nv)
    terms = dynamics.compute_terms(robot, q, v)
    start = (q, v, osc.init(robot, terms), actuators.init(robot, terms.bias, DT))
    times = DT * jnp.arange(round((ROUND + PULL + REST) / DT))
    return jax.lax.scan(step, start, times)[1]


def pose(robot: Robot, q: np.ndarray, goals: np.ndarray) -> np.ndarray:
    """The robot on its feet, and where its hands should be."""
    up = np.array([0.0, 0.0, HEIGHT])
    body = [Shape(s.kind, s.size, s.position + up, s.rotation, s.rgba) for s in scene(robot, q)]
    balls = [
        Shape("sphere", (0.035,), goal + up, np.eye(3), (0.1, 0.75, 0.3, 0.55)) for goal in goals
    ]
    camera = Camera(eye=(2.6, -0.5, 1.5), target=(0.05, 0.0, 0.78), fov=34.0)
    return render([*body, *balls], camera, 600, 660)


def plot(file: Path, robot: Robot, runs: dict[str, Any]) -> None:
    """Draw the robot at the end of each run, and the distances of its hands; atomic."""
    with picture(file, 12.5, 4.6) as figure:
        grid = figure.add_gridspec(2, 3, width_ratios=(1, 1, 1.5))
        shared = None
        for column, (name, (t, goals, _, error, _, q)) in enumerate(runs.items()):
            view = figure.add_subplot(grid[:, column])
            view.imshow(pose(robot, np.asarray(q[-1]), np.asarray(goals[-1])))
            view.set_title(name)
            view.set_axis_off()
            axes = figure.add_subplot(grid[column, 2], sharex=shared, sharey=shared)
            shared = shared or axes
            for hand, mm in zip(HANDS, 1e3 * np.asarray(error).T, strict=True):
                label = hand.replace("_", " ")
                style = "-" if hand == "left_hand" else "--"
                axes.plot(t, mm, style, color=COLOURS[hand], linewidth=1.6, label=label)
            axes.axvline(ROUND, color="0.6", linewidth=0.8)
            axes.text(ROUND + 0.06, 20, "pulled apart", color="0.4", fontsize=9)
            axes.set(ylabel="distance, mm", xlim=(0, float(t[-1])), title=name)
        shared.legend(loc="upper left")
        shared.tick_params(labelbottom=False)
        axes.set(xlabel="time, s")


def main(argv: list[str] | None = None) -> int:
    options = tyro.cli(Options, args=argv)
    robot = load()
    equal = OSC(HANDS, singularity_threshold=0.03)
    ordered = OSC(HANDS, priority="ordered", singularity_threshold=0.03)
    runs = {
        name: jax.jit(lambda osc=osc: move(robot, options, osc))()
        for name, osc in (("equally important", equal), ("left before right", ordered))
    }
    plot(options.output, robot, runs)
    print(f"{'distance, mm':20}{'circles, most':>15}{'end, left':>12}{'end, right':>12}")
    for name, (t, _, _, error, _, _) in runs.items():
        mm = 1e3 * np.asarray(error)
        print(f"{name:20}{mm[np.asarray(t) < ROUND].max():15.2f}{mm[-1, 0]:12.2f}{mm[-1, 1]:12.2f}")
    print(f"drawn to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
