"""Drag the hand through obstacles, with the safety filter off and on: docs/stories/drag.md.

    python scripts/examples/drag_hand.py
    python scripts/examples/drag_hand.py --seconds 4 --output drag.png
    python scripts/examples/drag_hand.py --help

What a mouse does in the viewer, a fixed path does here: the target is dragged through two balls,
into the floor, and out of reach. The policy goes straight for the target. Drawn are both runs, how
far the robot stays from the balls and the floor, and how far the hand is from its target. Needs the
extra `train`, for the picture.
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

import fraxenv
from fraxenv.controllers import SafetyFilter, default_barriers
from fraxenv.dynamics import (
    HalfSpace,
    Obstacles,
    Robot,
    Shape,
    Sphere,
    frame_pose,
    obstacle_count,
    obstacle_distances,
    obstacle_shapes,
)
from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.envs import Motion, Task, World
from fraxenv.media.plots import COLOURS as PALETTE
from fraxenv.media.plots import picture
from fraxenv.rendering import Camera, render, scene

WAYPOINTS = jnp.array(
    [
        [0.55, -0.35, 0.45],
        [0.55, 0.35, 0.45],  # through the first ball
        [0.50, 0.30, 0.18],
        [0.50, -0.30, 0.18],  # through the second one
        [0.45, -0.25, -0.15],  # into the floor
        [0.45, -0.25, 0.35],
        [1.10, -0.20, 0.55],  # out of reach
        [0.45, -0.25, 0.45],
    ]
)
CENTRES = jnp.array([[0.55, 0.03, 0.45], [0.50, 0.0, 0.18]])
RADII = jnp.array([0.09, 0.08])
FLOOR = HalfSpace(jnp.array([[0.0, 0.0, 1.0]]), jnp.array([0.0]))
OBSTACLES = Obstacles(spheres=Sphere(CENTRES, RADII), half_spaces=FLOOR)
CAMERA = Camera(eye=(1.9, -1.5, 1.15), target=(0.3, 0.0, 0.36), fov=33.0)
COLOURS = {"off": PALETTE[1], "on": PALETTE[0]}
TARGET, BALL = (0.15, 0.65, 0.35, 1.0), (0.80, 0.35, 0.28, 1.0)


@dataclass(frozen=True)
class Options:
    """Drag the hand through obstacles."""

    seconds: float = 14.0
    """For the whole path."""
    control_hz: int = 1000
    """Controller and filter updates per second."""
    output: Path = Path("drag_hand.png")
    """The picture."""


def dragged(part: Array) -> Array:
    """Where the target is, (3,), m, after a part of the path, from 0 to 1."""
    legs = jnp.linalg.norm(jnp.diff(WAYPOINTS, axis=0), axis=1)
    done = jnp.concatenate([jnp.zeros(1), jnp.cumsum(legs)]) / jnp.sum(legs)
    return jnp.stack([jnp.interp(part, done, x) for x in WAYPOINTS.T])


@pytree_dataclass
class Drag(Task):
    """Keep the hand on a target that is dragged along the path; the state is the time, s.

    Attributes:
        seconds: for the whole path.
    """

    seconds: float = 14.0

    def reset(self, key: Array, robot: Robot) -> tuple[Array, Array]:
        """From the default configuration."""
        q = jnp.asarray(robot.q_default, float)
        return q, jnp.zeros((), q.dtype)

    def advance(self, state: Array, dt: Array) -> Array:
        """Time goes on."""
        return state + dt

    def error(self, robot: Robot, motion: Motion, state: Array) -> Array:
        """From the hand to the target, (3,), m."""
        hand, _ = frame_pose(robot, motion.q, "hand", kin=motion.poses)
        return dragged(state / self.seconds) - hand

    def observation_terms(self, robot: Robot, motion: Motion, state: Array) -> dict[str, Array]:
        """Where the target is, seen from the hand."""
        return {"to_target": self.error(robot, motion, state)}

    def reward_terms(self, robot: Robot, motion: Motion, state: Array) -> dict[str, Array]:
        """The nearer the better."""
        return {"distance": -jnp.linalg.norm(self.error(robot, motion, state))}

    def measures(self, robot: Robot, motion: Motion, state: Array) -> dict[str, Array]:
        """The distance to the target, m."""
        distance = jnp.linalg.norm(self.error(robot, motion, state))
        return {"success": distance < 0.02, "distance": distance}

    @property
    def obstacle_count(self) -> int:
        """Two balls, and the floor."""
        return obstacle_count(OBSTACLES)

    def world(self, key: Array, robot: Robot, q: Array, state: Array) -> World:
        """The same in every episode."""
        return World(OBSTACLES)


def run(options: Options, enabled: bool) -> dict[str, Array]:
    """What happened, (T, ...), at every policy step."""
    safety = SafetyFilter(barriers=default_barriers(), end_effectors=("hand",), enabled=enabled)
    env, params = fraxenv.make(
        robot="panda",
        task=Drag(options.seconds),
        action="ee_delta_position",
        action_options={"position_scale": 0.08},
        safety=safety,
        control_hz=options.control_hz,
        max_steps_in_episode=100_000,
    )
    key = jax.random.key(0)

    def step(carry: tuple[Array, Any], _: None) -> tuple[tuple[Array, Any], dict[str, Array]]:
        obs, state = carry
        obs, state, _, _, info = env.step_env(key, state, jnp.clip(obs / 0.08, -1, 1), params)
        distances = obstacle_distances(env.robot, state.q, OBSTACLES)
        seen = {
            "q": state.q,
            "clearance": jnp.min(distances),
            "distance": info["distance"],
            "intervened": info["safety"]["intervened"],
        }
        return (obs, state), seen

    steps = round(options.seconds * env.policy_hz)
    start = env.reset(key, params)
    seen = jax.jit(lambda start: jax.lax.scan(step, start, None, steps)[1])(start)
    return seen | {"robot": env.robot, "time": np.arange(1, steps + 1) / env.policy_hz}


def still(robot: Robot, seen: dict[str, Any], moment: int, options: Options) -> np.ndarray:
    """The robot, the target and the balls, with the way of the target in the last second."""
    markers = list(obstacle_shapes(OBSTACLES, BALL).values())
    now = seen["time"][moment]
    for back in np.linspace(0.0, min(1.0, now), 14):
        size = 0.028 if back == 0.0 else 0.007
        place = np.asarray(dragged((now - back) / options.seconds))
        markers.append(Shape("sphere", (size,), place, rgba=TARGET))
    return render(scene(robot, seen["q"][moment], markers), CAMERA, 400, 360)


def plot(runs: dict[str, dict[str, Any]], options: Options) -> None:
    """Draw four moments of both runs, and their distances over time."""
    way = np.array([dragged(t / options.seconds) for t in runs["on"]["time"]])
    in_balls = [np.argmin(np.linalg.norm(way - centre, axis=1)) for centre in CENTRES]
    moments = [*in_balls, np.argmin(way[:, 2]), np.argmax(way[:, 0])]
    with picture(options.output, 11.5, 9.6, 110) as figure:
        top, bottom = figure.subfigures(2, 1, height_ratios=[1.35, 1])
        for row, (name, seen) in zip(top.subplots(2, 4), runs.items(), strict=True):
            for axes, moment in zip(row, moments, strict=True):
                axes.imshow(still(seen["robot"], seen, moment, options))
                axes.set_title(f"filter {name}, {seen['time'][moment]:.1f} s")
                axes.axis("off")
        clearance, distance = bottom.subplots(2, 1, sharex=True)
        for name, seen in runs.items():
            style = {"color": COLOURS[name], "label": f"filter {name}"}
            clearance.plot(seen["time"], 100 * seen["clearance"], **style)
            distance.plot(seen["time"], 100 * seen["distance"], **style)
        at_work = np.asarray(runs["on"]["intervened"], bool)
        shade = {"facecolor": "0.9", "edgecolor": "0.6", "linewidth": 0.5, "zorder": 0}
        shade |= {"transform": clearance.get_xaxis_transform(), "label": "the filter at work"}
        clearance.fill_between(runs["on"]["time"], 0, 1, where=at_work, **shade)
        clearance.axhline(0, color="black", linewidth=0.8)
        clearance.set(ylabel="robot to balls and floor, cm")
        clearance.legend(ncols=3)
        distance.set(ylabel="hand to target, cm", xlabel="time, s", xlim=(0, options.seconds))


def main(options: Options) -> None:
    """Drag twice, and draw."""
    runs = {name: run(options, name == "on") for name in ("off", "on")}
    for name, seen in runs.items():
        least, last = 1e3 * float(seen["clearance"].min()), 1e3 * float(seen["distance"][-1])
        print(f"filter {name:4s} comes to {least:7.1f} mm, and ends {last:5.1f} mm off the target")
    plot(runs, options)
    print(f"Wrote {options.output}.")


if __name__ == "__main__":
    main(tyro.cli(Options))
