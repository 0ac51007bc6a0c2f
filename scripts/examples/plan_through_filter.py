"""Correct a motion through the safety filter: the story of docs/stories/plan.md.

    python scripts/examples/plan_through_filter.py
    python scripts/examples/plan_through_filter.py --iterations 200 --seed 1
    python scripts/examples/plan_through_filter.py --help

Straight for the goal there is a ball in the way. The safety filter keeps the arm off it, and does
not know where else to go. The actions of the whole motion are improved together, along their
derivatives through dynamics, controller and the filter's quadratic program, from several random
beginnings side by side. Drawn are both motions. Needs the extra `train`, for the picture.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from jax import Array
from rich.console import Console
from rich.progress import track

import fraxenv
from fraxenv.controllers import SafetyFilter, barriers
from fraxenv.dynamics import (
    Obstacles,
    Robot,
    Shape,
    Sphere,
    frame_pose,
    obstacle_distances,
    obstacle_shapes,
)
from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.envs import Environment, EnvParams, Motion, Task, World
from fraxenv.media.plots import COLOURS, picture
from fraxenv.rendering import Camera, render, scene

START, GOAL = (0.45, -0.28, 0.42), (0.5, 0.28, 0.42)
CENTRE, RADIUS = (0.49, 0.0, 0.42), 0.09
AWAY = (0.0, 0.0, -5.0)
CAMERA = Camera(eye=(1.75, -0.75, 1.3), target=(0.36, 0.0, 0.34), fov=35.0)
BALL = Obstacles(Sphere(jnp.array([CENTRE]), jnp.array([RADIUS])))
RED, MARK = (0.80, 0.35, 0.28, 1.0), (0.15, 0.65, 0.35, 1.0)
BEFORE, AFTER = COLOURS[1], COLOURS[0]
RGBA = {"straight": (0.85, 0.37, 0.01, 1.0), "corrected": (0.12, 0.44, 0.55, 1.0)}


@dataclass(frozen=True)
class Options:
    """Correct a motion through the safety filter."""

    iterations: int = 100
    """Steps of Adam."""
    learning_rate: float = 0.03
    """Of the actions."""
    beginnings: int = 16
    """Motions that are improved side by side."""
    steps: int = 120
    """Policy steps of the motion, at 50 Hz."""
    spread: float = 0.3
    """Standard deviation of what is added to the straight motion to begin with, in actions."""
    deviation: float = 1.0
    """What the filter's changes of torque cost, mm^2 of the distance at the end for 1 (N m)^2."""
    change: float = 100.0
    """What a change of the action from one step to the next costs, likewise."""
    control_hz: int = 200
    """Controller and filter updates, and physics steps per second."""
    seed: int = 0
    """Of the beginnings."""
    output: Path = Path("plan_through_filter.png")
    """The picture."""


@pytree_dataclass
class Cross(Task):
    """Bring the hand to the goal, past the ball; the state is where both are, (2, 3), m."""

    def reset(self, key: Array, robot: Robot) -> tuple[Array, Array]:
        """From the default configuration to the place where the motion is to begin."""
        return jnp.asarray(robot.q_default, float), jnp.array([START, AWAY], float)

    def way(self, robot: Robot, motion: Motion, state: Array) -> Array:
        """From the hand to the goal, (3,), m."""
        return state[0] - frame_pose(robot, motion.q, "hand", kin=motion.poses)[0]

    def observation_terms(self, robot: Robot, motion: Motion, state: Array) -> dict[str, Array]:
        """Where the goal is, seen from the hand."""
        return {"way": self.way(robot, motion, state)}

    def reward_terms(self, robot: Robot, motion: Motion, state: Array) -> dict[str, Array]:
        """The nearer the better."""
        return {"near": -jnp.sum(self.way(robot, motion, state) ** 2)}

    def measures(self, robot: Robot, motion: Motion, state: Array) -> dict[str, Array]:
        """The square of the distance to the goal, m^2, which is smooth at the goal, too."""
        square = jnp.sum(self.way(robot, motion, state) ** 2)
        return {"success": square < 0.02**2, "square": square}

    @property
    def obstacle_count(self) -> int:
        """The ball."""
        return 1

    def world(self, key: Array, robot: Robot, q: Array, state: Array) -> World:
        """The ball where the state has it."""
        return World(Obstacles(Sphere(state[1:], jnp.array([RADIUS], q.dtype))))


def make(options: Options) -> tuple[Environment, EnvParams]:
    """The hand's position is commanded; the filter minds the ball and the joints' limits."""
    minded = barriers.joint_position(margin=0.01), barriers.obstacles(margin=0.005)
    env, params = fraxenv.make(
        robot="panda",
        task=Cross(),
        action="ee_delta_position",
        safety=SafetyFilter(barriers=minded, end_effectors=("hand",)),
        control_hz=options.control_hz,
        physics_hz=options.control_hz,
        max_steps_in_episode=100_000,
    )
    return env.with_transition_gradients(), params


def crossing(state: Any) -> Any:
    """The states of a batch, at rest, with the ball in the way to the goal."""
    n = len(state.q)
    task = jnp.broadcast_to(jnp.array([GOAL, CENTRE], state.q.dtype), (n, 2, 3))
    ball = Sphere(task[:, 1:], jnp.full((n, 1), RADIUS, state.q.dtype))
    around = dataclasses.replace(state.world.obstacles, spheres=ball)
    world = dataclasses.replace(state.world, obstacles=around)
    return state.replace(v=jnp.zeros_like(state.v), task_state=task, world=world)


def straight_for_it(obs: Array) -> Array:
    """The action that leads straight to the goal."""
    return jnp.clip(obs / 0.05, -1.0, 1.0)


def motions(env: Environment, params: EnvParams) -> Callable[..., tuple[Any, dict[str, Array]]]:
    """Where actions (T, n, k) lead, and what happened (T, n, ...); a policy's where it is given."""
    step, observe = (jax.vmap(f, (0, 0, 0, None)) for f in (env.step_env, env.observe))

    def run(state: Any, actions: Array, policy: Any = None) -> tuple[Any, dict[str, Array]]:
        keys = jax.random.split(jax.random.key(0), len(state.q))
        obs = observe(keys, state, state.action, params)

        def one(carry: Any, action: Array) -> tuple[Any, dict[str, Array]]:
            obs, state = carry
            if policy is not None:
                action = jax.vmap(policy)(obs)
            obs, state, _, _, info = step(keys, state, action, params)
            seen = {
                "q": state.q,
                "square": info["square"],
                "action": action,
                "deviation": info["safety"]["deviation"],
            }
            return (obs, state), seen

        (_, state), seen = jax.lax.scan(one, (obs, state), actions)
        return state, seen

    return run


def cost(seen: dict[str, Array], options: Options) -> Array:
    """Of each motion (n,): distance at the end, the filter's work, and changes of the action."""
    distance = 1e6 * jnp.mean(seen["square"][-10:], axis=0)
    deviation = jnp.mean(seen["deviation"] ** 2, axis=0)
    change = jnp.mean(jnp.sum(jnp.diff(seen["action"], axis=0) ** 2, axis=-1), axis=0)
    return distance + options.deviation * deviation + options.change * change


def beginnings(straight: Array, options: Options) -> Array:
    """Actions (T, n, k): the straight ones, and something smooth and random added."""
    n, (steps, size) = options.beginnings, straight.shape
    knots = jax.random.normal(jax.random.key(options.seed), (n, 5, size)).at[0].set(0.0)
    at, where = jnp.linspace(0, 4, steps), jnp.arange(5)
    ways = jax.vmap(jax.vmap(lambda y: jnp.interp(at, where, y)))(jnp.swapaxes(knots, 1, 2))
    return jnp.clip(straight[:, None] + options.spread * jnp.moveaxis(ways, 2, 0), -1.0, 1.0)


def improve(
    costs: Callable[[Array], Array], actions: Array, options: Options
) -> tuple[Array, np.ndarray]:
    """Actions of least cost that each beginning came by, and the costs (iterations, n)."""
    adam = optax.adam(optax.cosine_decay_schedule(options.learning_rate, options.iterations))

    @jax.jit
    def step(actions: Array, moments: Any, best: Any) -> Any:
        def total(actions: Array) -> tuple[Array, Array]:
            each = costs(actions)
            return jnp.sum(each), each

        gradient, each = jax.grad(total, has_aux=True)(actions)
        better = each < best[0]
        best = jnp.where(better, each, best[0]), jnp.where(better[:, None], actions, best[1])
        changes, moments = adam.update(gradient, moments)
        # Beyond 1 an action is clipped, and has no derivative that would bring it back.
        return jnp.clip(actions + changes, -1.0, 1.0), moments, best, each

    moments, history, console = adam.init(actions), [], Console()
    best = jnp.full(actions.shape[1], jnp.inf), actions
    show = {"console": console, "transient": True, "disable": not console.is_terminal}
    for _ in track(range(options.iterations), "improving", **show):
        actions, moments, best, each = step(actions, moments, best)
        history.append(np.asarray(each))
    return best[1], np.array(history)


def view(env: Environment, runs: dict[str, Any], hands: dict[str, np.ndarray], name: str) -> Any:
    """The robot at the end of one motion, with the ways of both, the ball and the goal."""
    markers = [*obstacle_shapes(BALL, RED).values(), Shape("sphere", (0.02,), GOAL, rgba=MARK)]
    for way, at in hands.items():
        markers += [Shape("sphere", (0.006,), p, rgba=RGBA[way]) for p in at[::2]]
    return render(scene(env.robot, runs[name]["q"][-1], markers), CAMERA, 520, 440)


def plot(options: Options, env: Environment, runs: dict[str, Any], history: np.ndarray) -> None:
    """Draw where both motions end, distances, and what the filter does."""
    hand = jax.jit(jax.vmap(lambda q: frame_pose(env.robot, q, "hand")[0]))
    hands = {name: np.asarray(hand(seen["q"])) for name, seen in runs.items()}
    moments = np.arange(1, options.steps + 1) / env.policy_hz
    with picture(options.output, 11, 7.4, 110) as figure:
        top, bottom = figure.subfigures(2, 1, height_ratios=[1.3, 1])
        for axes, name in zip(top.subplots(1, 2), runs, strict=True):
            axes.imshow(view(env, runs, hands, name))
            axes.set_title(f"{name}, at {moments[-1]:.1f} s")
            axes.axis("off")
        distance, work, costs = bottom.subplots(1, 3)
        for (name, seen), colour in zip(runs.items(), (BEFORE, AFTER), strict=True):
            distance.semilogy(moments, 1e3 * np.sqrt(seen["square"]), color=colour, label=name)
            work.plot(moments, seen["deviation"], color=colour, label=name)
        distance.set(xlabel="time, s", ylabel="hand to goal, mm")
        distance.yaxis.set_major_formatter("{x:g}")
        distance.legend()
        work.set(xlabel="time, s", ylabel="torque that the filter changes, N m")
        best = np.argmin(history[-1])
        costs.semilogy(history, color="0.75", linewidth=0.8)
        costs.semilogy(history[:, best], color=AFTER)
        costs.set(xlabel="step of Adam", ylabel="cost, mm²")
        costs.set_title(f"{options.beginnings} beginnings")


def main(options: Options) -> None:
    """Move straight, correct the motion, and draw both."""
    env, params = make(options)
    n, size = options.beginnings, env.num_actions
    run = motions(env, params)
    key = jnp.broadcast_to(jax.random.key(0), (n,))
    _, state = jax.jit(jax.vmap(env.reset_env, (0, None)))(key, params)
    blank = jnp.zeros((options.steps, n, size))
    straight = jax.jit(lambda state: run(state, blank, straight_for_it))
    begin = crossing(straight(state)[0])
    _, seen = straight(begin)
    first = beginnings(seen["action"][:, 0], options)

    start = time.perf_counter()
    found, history = improve(lambda a: cost(run(begin, a)[1], options), first, options)
    seconds = time.perf_counter() - start
    print(f"{options.iterations} steps of Adam in {seconds:.0f} s, compiling included")

    best = int(np.argmin(np.asarray(history).min(axis=0)))
    tried = jax.jit(lambda actions: run(begin, actions)[1])(found)
    runs = {
        "straight": jax.tree.map(lambda x: np.asarray(x[:, 0]), seen),
        "corrected": jax.tree.map(lambda x: np.asarray(x[:, best]), tried),
    }
    clearance = jax.jit(jax.vmap(lambda q: jnp.min(obstacle_distances(env.robot, q, BALL))))
    for name, own in runs.items():
        end, least = 1e3 * np.sqrt(own["square"][-1]), 1e3 * float(clearance(own["q"]).min())
        work = np.sqrt(np.mean(own["deviation"] ** 2))
        print(
            f"{name:9s} ends {end:6.1f} mm off the goal, comes to {least:5.1f} mm, "
            f"the filter changes {work:6.2f} N m (rms)"
        )
    plot(options, env, runs, history)
    print(f"Wrote {options.output}.")


if __name__ == "__main__":
    main(tyro.cli(Options))
