"""An expert handles objects among moving spheres: how often it succeeds, and whether it collides.

Collisions are counted from configurations and spheres alone, without the filter's report or its
distances: the robot's collision shapes are placed by its forward kinematics, and distances of boxes
and spheres worked out in NumPy, five times in every policy step. The results are in docs/safety.md.

    python scripts/measure/handle_among_obstacles.py
    python scripts/measure/handle_among_obstacles.py --speed 0.1
    python scripts/measure/handle_among_obstacles.py --speed 0.1 --safety none --episodes 1000
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console

import fraxenv
from fraxenv.dynamics import Robot, Shape, forward_kinematics
from fraxenv.dynamics.collision_geometry import shape_layout
from fraxenv.recording.scripted import scripted_policy

SUBSTEPS = 5
"""Moments of every policy step at which distances are worked out."""

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Options:
    """Options of the rollouts."""

    id: str = "PandaPick-v0"
    """The environment."""
    episodes: int = 10_000
    """Episodes, each of its own scene."""
    envs: int = 1000
    """Environments at a time."""
    steps: int = 150
    """Policy steps of an episode."""
    spheres: int = 3
    """Spheres, all of which move."""
    speed: float = 0.05
    """Greatest speed of a sphere along each axis, m/s."""
    safety: Literal["cbf", "none"] = "cbf"
    """Whether torques go through the filter."""
    payload: Literal["held"] | None = "held"
    """What controller and filter know that the hand carries."""
    seed: int = 0
    """Of the scenes."""


def distances(shape: Shape, position: Floats, rotation: Floats, centres: Floats) -> Floats:
    """Distances (..., k), m, of points (..., k, 3) from a shape of a body with these poses."""
    seen = np.einsum("...ji,...kj->...ki", rotation, centres - position[..., None, :])
    seen = np.einsum("ji,...kj->...ki", shape.rotation, seen - shape.position)
    if shape.kind == "sphere":
        found: Floats = np.linalg.norm(seen, axis=-1) - shape.size[0]
        return found
    if shape.kind != "box":
        raise ValueError(f"{shape.name} is a {shape.kind}, expected a sphere or a box.")
    beyond = np.abs(seen) - 0.5 * np.asarray(shape.size)
    outside = np.linalg.norm(np.maximum(beyond, 0.0), axis=-1)
    return outside + np.minimum(beyond.max(axis=-1), 0.0)


def clearances(robot: Robot, before: Any, after: Any) -> Floats:
    """Least distance (n,), m, of the robot's moving shapes from the spheres in a policy step."""
    layout = shape_layout(robot.topology)
    moving = [s for s, m in zip(robot.topology.collision_shapes, layout.moves, strict=True) if m]
    least = np.full(len(before.q), np.inf)
    for part in np.arange(1, SUBSTEPS + 1) / SUBSTEPS:
        q = before.q + part * (after.q - before.q)
        centres, ends = (np.asarray(s.world.obstacles.spheres.position) for s in (before, after))
        centres = centres + part * (ends - centres)
        position, rotation = (np.asarray(x, float) for x in _poses(robot, q))
        radius = np.asarray(after.world.obstacles.spheres.radius)
        there = np.asarray(after.world.obstacles.active)
        for shape in moving:
            gap = distances(shape, position[:, shape.body], rotation[:, shape.body], centres)
            least = np.minimum(least, np.where(there, gap - radius, np.inf).min(axis=1))
    return least


_poses = jax.jit(jax.vmap(forward_kinematics, (None, 0)))


def main(options: Options) -> int:
    """Roll the expert out, and say what happened."""
    env, params = fraxenv.make(
        options.id,
        obstacles={
            "sphere_count": options.spheres,
            "moving_count": options.spheres,
            "obstacle_speed": options.speed,
        },
        safety=options.safety,
        payload=options.payload,
        max_steps_in_episode=options.steps,
    )
    act, n = scripted_policy(env, params), options.envs

    @jax.jit
    @jax.vmap
    def step(key: Any, obs: Any, state: Any) -> Any:
        obs, state, _, _, info = env.step_env(key, state, act(obs, key), params)
        return obs, state, info

    reset = jax.jit(jax.vmap(lambda key: env.reset(key, params)))
    rounds = -(-options.episodes // n)
    collided, succeeded, once, told, spheres = ([] for _ in range(5))
    barrier, infeasible, worst, moving = np.inf, 0, np.inf, 0.0
    for i, key in enumerate(jax.random.split(jax.random.key(options.seed), rounds)):
        keys = jax.random.split(key, n)
        obs, state = reset(keys)
        least, ever = np.full(n, np.inf), np.zeros(n, bool)
        seen = np.zeros(n, bool)
        for _ in range(options.steps):
            before = state
            began = time.perf_counter()
            obs, state, info = jax.block_until_ready(step(keys, obs, state))
            moving += time.perf_counter() - began
            least = np.minimum(least, clearances(env.robot, before, state))
            ever |= np.asarray(info["success"])
            seen |= np.asarray(info["clearance"]) < 0
            barrier = min(barrier, float(jnp.min(info["safety"]["min_barrier"])))
            infeasible += int(jnp.sum(~info["safety"]["feasible"]))
        collided.append(least < 0)
        told.append(seen)
        succeeded.append(np.asarray(info["success"]))
        once.append(ever)
        spheres.append(np.asarray(state.world.obstacles.active).sum(axis=1))
        worst = min(worst, float(least.min()))
        print(f"{(i + 1) * n} episodes, {np.sum(collided)} with a collision", file=sys.stderr)
    total = rounds * n
    Console().print(
        f"{options.id}, {np.mean(spheres):.2f} spheres at up to {options.speed:g} m/s, filter "
        f"{options.safety}, {total} episodes of {options.steps} steps\n"
        f"episodes with a collision {np.sum(collided)}, least distance {1e3 * worst:.1f} mm; "
        f"by the task's own measure {np.sum(told)}\n"
        f"success at the end {np.mean(succeeded):.2%}, at any time {np.mean(once):.2%}\n"
        f"least barrier {barrier:.2g}, infeasible policy steps {infeasible}; "
        f"{total * options.steps / moving:,.0f} policy steps/s"
    )
    return int(np.sum(collided) > 0)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
