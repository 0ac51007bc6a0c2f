"""Draw what actions do: the pictures of docs/action_space.md.

    python scripts/docs/draw_action_spaces.py
    python scripts/docs/draw_action_spaces.py --output docs/pictures

Every picture shows a real environment that was given the same action for a while: the robot as it
was (pale) and as it is, and the way of its hand. Needs the extra `train`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from rich.progress import track

import fraxenv
from fraxenv.dynamics import Robot, frame_pose
from fraxenv.envs import Environment, EnvParams
from fraxenv.media.plots import COLOURS, picture
from fraxenv.rendering import Camera, Shape, render, scene

ID = "PandaReach-v0"
CAMERA = Camera(eye=(1.75, -1.25, 0.95), target=(0.26, 0.0, 0.36), fov=32.0)
SIZE = 420  # pixels
WAY = (0.95, 0.66, 0.10, 1.0)
PALE = 0.94  # of its size: what has not moved hides its pale twin


@dataclass(frozen=True)
class Options:
    """Options of the pictures."""

    output: Path = Path("docs/pictures")
    """The folder that they go to."""


def held(env: Environment, params: EnvParams, actions: Array) -> Array:
    """Configurations (n, T + 1, nq) under actions (n, T, k), all from the same state."""

    def rollout(actions: Array) -> Array:
        _, state = env.reset(jax.random.key(0), params)

        def step(state: Any, action: Array) -> tuple[Any, Array]:
            state = env.step_env(jax.random.key(0), state, action, params)[1]
            return state, state.q

        return jnp.concatenate([state.q[None], jax.lax.scan(step, state, actions)[1]])

    return jax.jit(jax.vmap(rollout))(actions)


def one_number(size: int, index: int, steps: int, value: float = 1.0) -> Array:
    """Actions (steps, size), of which one number has a value."""
    return jnp.zeros((steps, size)).at[:, index].set(value)


def hand_ways(robot: Robot, configurations: Array) -> tuple[np.ndarray, np.ndarray]:
    """Positions (..., 3), m, and rotations (..., 3, 3) of the hand."""
    poses = jnp.vectorize(lambda q: frame_pose(robot, q, "hand"), signature="(n)->(3),(3,3)")
    position, rotation = poses(configurations)
    return np.asarray(position), np.asarray(rotation)


def before_and_after(robot: Robot, configurations: Array) -> np.ndarray:
    """A picture of the robot at the end of its way, and pale, at its beginning."""
    pale = [
        Shape(s.kind, tuple(PALE * x for x in s.size), s.position, s.rotation, (*s.rgba[:3], 0.16))
        for s in scene(robot, configurations[0])
    ]
    way = [
        Shape("sphere", (0.007,), p, np.eye(3), WAY) for p in hand_ways(robot, configurations)[0]
    ]
    return render([*scene(robot, configurations[-1]), *way, *pale], CAMERA, SIZE, SIZE)


def panels(path: Path, titles: Sequence[str], images: Sequence[np.ndarray], columns: int) -> None:
    """Draw images side by side, each with its title."""
    rows = -(-len(images) // columns)
    with picture(path, 3.4 * columns, 3.65 * rows, 110) as figure:
        grid = figure.subplots(rows, columns).flat
        for axes, title, image in zip(grid, titles, images, strict=True):
            axes.imshow(image)
            axes.set_title(title)
            axes.axis("off")


def six_numbers(path: Path) -> None:
    """What each number of `ee_delta_pose` does, held at 1 for half a second."""
    env, params = fraxenv.make(ID)
    actions = jnp.stack([one_number(6, i, 25) for i in range(6)])
    found = held(env, params, actions)
    position, rotation = hand_ways(env.robot, found)
    titles = []
    for i, axis in enumerate(params.action.axes(env.robot)):
        moved = np.linalg.norm(position[i, -1] - position[i, 0])
        trace = np.trace(rotation[i, -1] @ rotation[i, 0].T)
        turned = np.degrees(np.arccos(np.clip((trace - 1) / 2, -1, 1)))
        what = f"{100 * moved:.0f} cm" if axis.unit == "m" else f"{turned:.0f}°"
        titles.append(f"{axis.name} = 1: {what} in 0.5 s")
    panels(path, titles, [before_and_after(env.robot, q) for q in found], 3)


def frames(path: Path) -> None:
    """The same number in the axes of the base, and in those of the hand."""
    titles, images = [], []
    for frame, words in (("base", "up, as the world"), ("ee", "where the fingers point")):
        env, params = fraxenv.make(ID, action_options={"frame": frame})
        found = held(env, params, one_number(6, 2, 25)[None])[0]
        titles.append(f'dz = 1, frame="{frame}": {words}')
        images.append(before_and_after(env.robot, found))
    panels(path, titles, images, 2)


def spaces(path: Path) -> None:
    """The first number of every action space at 1, the others at 0."""
    titles, images = [], []
    rows = {
        "ee_delta_pose": (50, "the hand moves along x"),
        "ee_pose": (75, "the hand goes to a place"),
        "joint_delta": (50, "the first joint turns"),
        "joint_position": (75, "every joint goes to a place"),
        "joint_velocity": (25, "at its greatest speed"),
        "torque": (10, "and nothing holds the arm"),
    }
    for name, (steps, words) in track(rows.items(), "action spaces", transient=True):
        env, params = fraxenv.make(ID, action=name)
        found = held(env, params, one_number(env.num_actions, 0, steps)[None])[0]
        titles.append(f"{name}, {steps / 50:.1f} s:\n{words}")
        images.append(before_and_after(env.robot, found))
    panels(path, titles, images, 3)


def in_time(path: Path) -> None:
    """How far and how fast the hand goes under `dx = 1` for a second, and what stiffness does."""
    with picture(path, 10.2, 3.3, 110) as figure:
        left, middle, right = figure.subplots(1, 3)
        pushed = jnp.concatenate([one_number(6, 0, 50), jnp.zeros((25, 6))])[None]
        time = np.arange(pushed.shape[1] + 1) / 50
        for target, colour in zip(("measured", "desired"), COLOURS, strict=False):
            env, params = fraxenv.make(ID, action_options={"target": target})
            x = hand_ways(env.robot, held(env, params, pushed))[0][0, :, 0]
            left.plot(time, 100 * (x - x[0]), color=colour, label=f'target="{target}"')
            middle.plot(time[1:], 50 * np.diff(x), color=colour)
        left.set(ylabel="way of the hand along x, cm", title="dx = 1 for a second, then 0")
        left.legend()
        middle.set(ylabel="its speed, m/s", title="")

        env, params = fraxenv.make(ID, action="ee_delta_pose+impedance")
        names = [axis.name for axis in params.action.axes(env.robot)]
        stiffness = [i for i, name in enumerate(names) if name.startswith("kp_")]
        for value, colour in zip((-0.5, 0.0, 1.0), COLOURS, strict=False):
            gains = jnp.zeros((75, len(names))).at[:50, 0].set(1.0)
            gains = gains.at[:, jnp.array(stiffness)].set(value)
            x = hand_ways(env.robot, held(env, params, gains[None]))[0][0, :, 0]
            right.plot(time, 100 * (x - x[0]), color=colour, label=f"{value:g}")
        right.legend(title="stiffness")
        right.set(ylabel="way of the hand along x, cm", title="the same, with +impedance")
        for axes in (left, middle, right):
            axes.axvspan(0, 1, color="0.95", zorder=0)
            axes.set(xlabel="time, s", xlim=(0, time[-1]))


def main(options: Options) -> None:
    """Draw all."""
    figures = {
        "action_six_numbers": six_numbers,
        "action_frames": frames,
        "action_in_time": in_time,
        "action_spaces": spaces,
    }
    for name, draw in figures.items():
        path = options.output / f"{name}.png"
        draw(path)
        print(f"Wrote {path}")


if __name__ == "__main__":
    main(tyro.cli(Options))
