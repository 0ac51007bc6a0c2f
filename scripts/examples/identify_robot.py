"""Find a payload, and every joint's damping and friction: docs/stories/identify_robot.md.

    python scripts/examples/identify_robot.py
    python scripts/examples/identify_robot.py --velocity-noise 0 --position-noise 0
    python scripts/examples/identify_robot.py --help

A Panda that holds something, and whose joints resist, is recorded while it swings. The recording is
cut into windows of a tenth of a second, which are simulated side by side from what was measured;
the Levenberg-Marquardt method improves 18 numbers until they end as was measured. Needs the extra
`train`, for the picture.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from rich.console import Console
from rich.progress import track

import fraxenv
from fraxenv import dynamics
from fraxenv.dynamics import Robot
from fraxenv.envs import Environment, EnvParams
from fraxenv.media.plots import COLOURS, picture

WINDOW = 10  # policy steps, at 100 Hz
SCALES = 1e-3, 1e-2  # rad and rad/s: how far positions and velocities at a window's end may be off
BEGIN_DAMPING = 1e-3  # of the Levenberg-Marquardt method, of the Hessian's diagonal
STIFFNESS = np.array([40.0, 40.0, 40.0, 40.0, 15.0, 15.0, 10.0])  # N m/rad, of the swings
ROTORS = 0.1  # kg m^2, of the motors, geared: what a wrist is moved against
NAMES = ("mass, kg", "x, mm", "y, mm", "z, mm")


@dataclass(frozen=True)
class Options:
    """Identify a payload, damping and friction from a recording."""

    mass: float = 0.8
    """That the payload adds to the last body, kg."""
    shift: tuple[float, float, float] = (0.02, -0.03, 0.06)
    """Of the last body's centre of mass, m, in the body's axes."""
    resistance: float = 1.0
    """Size of damping and friction, which are drawn at random."""
    position_noise: float = 1e-4
    """Standard deviation of the measured joint positions, rad."""
    velocity_noise: float = 5e-3
    """Of the measured joint velocities, rad/s."""
    episodes: int = 16
    """Swings, each from its own place."""
    seconds: float = 3.0
    """Length of a swing."""
    iterations: int = 10
    """Of the Levenberg-Marquardt method."""
    recording: Path = Path("swings.npz")
    """Where the recording is kept."""
    output: Path = Path("identify_robot.png")
    """The picture."""


class Windows(NamedTuple):
    """Many windows of a recording: q and v (n, 7) before and after, and actions (T, n, 7)."""

    q: Array
    v: Array
    actions: Array
    q_after: Array
    v_after: Array


def resisting(robot: Robot, numbers: Array) -> Robot:
    """The robot with these 18: its last body's mass and centre of mass, damping, friction."""
    return robot.replace(
        mass=jnp.asarray(robot.mass).at[-1].set(numbers[0]),
        com=jnp.asarray(robot.com).at[-1].set(numbers[1:4]),
        damping=numbers[4:11],
        friction=numbers[11:],
    )


def measured(env: Environment, observations: Array) -> tuple[Array, Array]:
    """Joint positions, rad, and velocities, rad/s, of observations (..., m)."""
    robot, start = env.robot, np.cumsum([0, *env.observation_layout.values()])
    place = dict(zip(env.observation_layout, start.tolist(), strict=False))
    lower, upper = jnp.asarray(robot.position_limits).T
    n, q, v = robot.nv, place["joint_position"], place["joint_velocity"]
    middle, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
    return middle + half * observations[..., q : q + n], observations[..., v : v + n]


def swinging(env: Environment) -> Callable[[Array, Array], Array]:
    """A policy that swings the arm about, by torques that know nothing of what is to be found."""
    robot = env.robot
    limits = jnp.asarray(robot.effort_limits)
    to_goal = env.num_actions * 2 + 3

    def policy(obs: Array, key: Array) -> Array:
        q, v = measured(env, obs)
        # A pose for each goal, and pushes that are drawn anew in every step.
        goal = obs[to_goal : to_goal + 3] - jnp.array([0.45, 0.0, 0.35])
        pose = robot.q_default + jnp.sin(goal @ jnp.arange(1.0, 22.0).reshape(3, 7)) * 0.6
        push = 4.0 * jax.random.normal(key, (7,))
        tau = (
            dynamics.gravity_forces(robot, q) + STIFFNESS * (pose - q) - 0.1 * STIFFNESS * v + push
        )
        return tau / limits

    return policy


def cut(
    env: Environment, recording: fraxenv.Recording, steps: int, noise: tuple[float, float]
) -> Windows:
    """The windows of a recording, with noise on what was measured."""
    q, v = (np.asarray(x) for x in measured(env, jnp.asarray(recording.observations[:steps])))
    draw = np.random.default_rng(0)
    q, v = (x + s * draw.normal(size=x.shape) for x, s in zip((q, v), noise, strict=True))
    starts = np.arange(0, steps - WINDOW, WINDOW)
    actions = np.stack([recording.actions[t : t + WINDOW] for t in starts], axis=1)
    before = [x[starts].reshape(-1, x.shape[-1]) for x in (q, v)]
    after = [x[starts + WINDOW].reshape(-1, x.shape[-1]) for x in (q, v)]
    actions = actions.reshape(WINDOW, -1, actions.shape[-1])
    return Windows(*(jnp.asarray(x, jnp.float32) for x in (*before, actions, *after)))


def identify(
    env: Environment, params: EnvParams, windows: Windows, numbers: Array, iterations: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Losses (iterations + 1,), the 18 numbers (iterations + 1, 18), standard deviations (18,).

    A step is taken if it lessens the loss, and damping then, too; else there is more damping.
    """
    n = len(windows.q)
    key = jax.random.split(jax.random.key(0), n)
    _, blank = jax.jit(jax.vmap(env.reset_env, (0, None)))(key, params)
    step = jax.vmap(env.step_env, (0, 0, 0, None))

    def residual(numbers: Array) -> Array:
        guessed = params.replace(robot=resisting(env.robot, numbers))
        state = blank.replace(q=windows.q, v=windows.v)

        def one(state: Any, action: Array) -> tuple[Any, None]:
            return step(key, state, action, guessed)[1], None

        state, _ = jax.lax.scan(one, state, windows.actions)
        errors = (state.q - windows.q_after) / SCALES[0], (state.v - windows.v_after) / SCALES[1]
        return jnp.concatenate(errors).ravel()

    @jax.jit
    def improve(numbers: Array, damping: Array) -> tuple[Array, ...]:
        error, J = residual(numbers), jax.jacfwd(residual)(numbers)
        loss, hessian = jnp.mean(error**2), J.T @ J
        damped = hessian + damping * jnp.diag(jnp.diag(hessian))
        trial = numbers - jnp.linalg.solve(damped, J.T @ error)
        better = jnp.mean(residual(trial) ** 2) < loss  # and not NaN
        spread = jnp.sqrt(loss * jnp.diag(jnp.linalg.inv(hessian)))
        chosen = jnp.where(better, trial, numbers)
        return loss, chosen, damping * jnp.where(better, 0.1, 10.0), spread

    damping, console = jnp.array(BEGIN_DAMPING), Console()
    losses, history = [], []
    show = {"console": console, "transient": True, "disable": not console.is_terminal}
    for _ in track(range(iterations + 1), "improving", **show):
        before = numbers
        loss, numbers, damping, spread = improve(before, damping)
        losses.append(float(loss))
        history.append(np.asarray(before))
    return np.array(losses), np.array(history), np.asarray(spread)


def plot(
    path: Path, losses: np.ndarray, found: np.ndarray, spread: np.ndarray, true: np.ndarray
) -> None:
    """Draw the loss, and what was found beside the truth."""
    with picture(path, 11, 6.0, 110) as figure:
        top, bottom = figure.subplots(2, 2)
        loss, body = top
        loss.semilogy(losses, color=COLOURS[2], marker="o", markersize=3)
        loss.set(xlabel="iteration", ylabel="loss", title="windows' ends, of 1 mrad, 10 mrad/s")
        units = np.array([1e3, 1e3, 1e3, 1e3])
        body.barh(
            ["mass, g", *NAMES[1:]], units * (found - true)[:4], xerr=2 * units * spread[:4],
            color=COLOURS[0], capsize=3,
        )  # fmt: skip
        body.axvline(0, color="0.3", linewidth=0.8)
        body.invert_yaxis()
        body.set_title("payload: error, and two standard deviations")
        joints = np.arange(1, 8)
        for axes, part, label in zip(
            bottom,
            (slice(4, 11), slice(11, 18)),
            ("damping, N m s/rad", "friction, N m"),
            strict=True,
        ):
            axes.bar(joints, true[part], color="0.85", label="true")
            axes.errorbar(
                joints, found[part], yerr=2 * spread[part], fmt="o", markersize=4,
                color=COLOURS[0], capsize=3, label="found",
            )  # fmt: skip
            axes.set(xlabel="joint", ylabel=label)
            axes.legend()


def main(argv: list[str] | None = None) -> int:
    options = tyro.cli(Options, args=argv)
    steps = round(100 * options.seconds)
    panda = dynamics.load_robot("panda")
    # No motor comes near its limit of speed, where torques would depend on it.
    panda = panda.replace(armature=np.full(7, ROTORS), velocity_limits=np.full(7, np.inf))
    env, params = fraxenv.make(
        robot=panda,
        task="reach",
        action="torque",
        task_options={"start_noise": 0.2},
        max_steps_in_episode=steps,
        policy_hz=100,
        control_hz=500,
        physics_hz=500,
    )
    env = env.with_transition_gradients()
    robot = env.robot
    draw = np.random.default_rng(0)
    size = options.resistance * np.array([1.0, 1.0, 1.0, 1.0, 0.4, 0.4, 0.2])
    held = [robot.mass[-1] + options.mass, *(robot.com[-1] + options.shift)]
    resist = [size * draw.uniform(0.3, 1.0, 7) for _ in range(2)]
    true = np.concatenate([held, *resist]).astype(np.float32)

    fraxenv.record(
        env,
        params.replace(robot=resisting(robot, jnp.asarray(true))),
        swinging(env),
        jax.random.key(0),
        steps=steps,
        num_envs=options.episodes,
        infos=["success"],
    ).save(options.recording)

    recording = fraxenv.load_recording(options.recording)
    windows = cut(env, recording, steps, (options.position_noise, options.velocity_noise))
    known = [robot.mass[-1], *robot.com[-1]]
    guess = jnp.asarray([*known, *([0.1] * 14)], jnp.float32)
    start = time.perf_counter()
    losses, history, spread = identify(env, params, windows, guess, options.iterations)
    seconds = time.perf_counter() - start
    print(f"{len(windows.q)} windows, {options.iterations} iterations in {seconds:.0f} s")
    plot(options.output, losses, history[-1], spread, true)

    print(f"{'':18}{'at first':>10}{'found':>10}{'±':>8}{'true':>10}")
    joints = [f"{what}, joint {j}" for what in ("damping", "friction") for j in range(1, 8)]
    units = np.array([1.0, 1e3, 1e3, 1e3, *([1.0] * 14)])
    rows = (x * units for x in (history[0], history[-1], spread, true))
    for name, *numbers in zip((*NAMES, *joints), *rows, strict=True):
        first, found, deviation, truth = numbers
        print(f"{name:18}{first:10.3f}{found:10.3f}{deviation:8.3f}{truth:10.3f}")
    print(f"loss {losses[0]:.1e} -> {losses[-1]:.1e}; drawn to {options.output}")
    return 0 if np.isfinite(history).all() else 1


if __name__ == "__main__":
    sys.exit(main())
