"""Find out what a Panda holds from how it moves, by derivatives of the simulation.

    python scripts/examples/identify_payload.py
    python scripts/examples/identify_payload.py --mass 2 --shift 0 0.05 0.1
    python scripts/examples/identify_payload.py --help

A payload changes the mass and the centre of mass of the arm's last body, and the arm swings under
known torques. The Levenberg-Marquardt method improves mass and centre of mass until short
simulations from the measured states end with the measured velocities. Needs the extra `train`, for
the picture.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from rich.console import Console
from rich.progress import track

from fraxenv import dynamics
from fraxenv.dynamics import Robot
from fraxenv.media.plots import COLOURS, picture

DT = 1e-3  # s
SEGMENT = 10  # steps simulated from each measured state
DAMPING = 1e-3  # of the first step, of the Hessian's diagonal


@dataclass(frozen=True)
class Options:
    """Identify the payload of a Panda from a trajectory.

    Attributes:
        mass: that the payload adds to the last body, kg.
        shift: of the last body's centre of mass, m, in the body's axes.
        seconds: length of the trajectory, s.
        iterations: of the Levenberg-Marquardt method.
        output: the PNG of the loss, the mass and the centre of mass.
    """

    mass: float = 0.8
    shift: tuple[float, float, float] = (0.02, -0.03, 0.06)
    seconds: float = 4.0
    iterations: int = 12
    output: Path = Path("identify_payload.png")


def loaded(robot: Robot, body: Array) -> Robot:
    """The robot with a last body of this mass and centre of mass (4,): kg, and m."""
    return robot.replace(
        mass=jnp.asarray(robot.mass).at[-1].set(body[0]),
        com=jnp.asarray(robot.com).at[-1].set(body[1:]),
    )


def measure(robot: Robot, body: Array, seconds: float) -> tuple[Array, Array, Array]:
    """Configurations and velocities before each step of a swing, and the torques during it."""
    frequency = jnp.linspace(2.0, 5.0, robot.nv)  # rad/s
    held = loaded(robot, body)

    def step(state: tuple[Array, Array], t: Array) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
        q, v = state
        goal = robot.q_default + 0.5 * jnp.sin(frequency * t)
        tau = dynamics.gravity_forces(robot, q) + 50.0 * (goal - q) - 5.0 * v
        return dynamics.step(held, q, v, tau, DT), (q, v, tau)

    times = DT * jnp.arange(round(seconds / DT))
    start = jnp.asarray(robot.q_default), jnp.zeros(robot.nv)
    return jax.lax.scan(step, start, times)[1]


def identify(robot: Robot, swing: tuple[Array, Array, Array], iterations: int) -> np.ndarray:
    """Loss, mass and centre of mass (iterations + 1, 5) as the Levenberg-Marquardt method goes on.

    A step is taken if it lessens the loss, and damping then, too; else there is more damping.
    """
    q, v, tau = swing
    segments = (len(q) - 1) // SEGMENT
    start = SEGMENT * jnp.arange(segments)
    torques = tau[: SEGMENT * segments].reshape(segments, SEGMENT, -1)

    def residual(body: Array) -> Array:
        held = loaded(robot, body)

        def final_velocity(q: Array, v: Array, torques: Array) -> Array:
            def step(state: tuple[Array, Array], tau: Array) -> tuple[tuple[Array, Array], None]:
                return dynamics.step(held, *state, tau, DT), None

            return jax.lax.scan(step, (q, v), torques)[0][1]

        found = jax.vmap(final_velocity)(q[start], v[start], torques)
        return (found - v[start + SEGMENT]).ravel()

    @jax.jit
    def improve(body: Array, damping: Array) -> tuple[Array, Array, Array]:
        error, J = residual(body), jax.jacfwd(residual)(body)
        loss, hessian = jnp.mean(error**2), J.T @ J
        damped = hessian + damping * jnp.diag(jnp.diag(hessian))
        trial = body - jnp.linalg.solve(damped, J.T @ error)
        better = jnp.mean(residual(trial) ** 2) < loss  # and not NaN
        return loss, jnp.where(better, trial, body), damping * jnp.where(better, 0.1, 10.0)

    body, damping = jnp.array([robot.mass[-1], *robot.com[-1]]), jnp.array(DAMPING)
    console, history = Console(), []
    counted = range(iterations + 1)
    for _ in track(
        counted, "improving", console=console, transient=True, disable=not console.is_terminal
    ):
        before = body
        loss, body, damping = improve(before, damping)
        history.append([loss, *before])
    return np.array(history)


def plot(path: Path, history: np.ndarray, true: np.ndarray) -> None:
    """Draw the loss, and mass and centre of mass on their way to the truth; atomic."""
    with picture(path, 10, 3.2) as figure:
        left, middle, right = figure.subplots(1, 3)
        left.semilogy(history[:, 0], marker="o", markersize=3)
        middle.plot(history[:, 1], marker="o", markersize=3)
        middle.axhline(true[0], color=COLOURS[0], linewidth=1.0, linestyle="--")
        for name, colour, x, truth in zip("xyz", COLOURS, history[:, 2:].T, true[1:], strict=False):
            right.plot(1e3 * x, color=colour, marker="o", markersize=3, label=name)
            right.axhline(1e3 * truth, color=colour, linewidth=1.0, linestyle="--")
        right.legend(ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0))
        labels = ("loss, (rad/s)²", "mass, kg", "centre of mass, mm")
        for axes, label in zip((left, middle, right), labels, strict=True):
            axes.set(xlabel="iteration", ylabel=label, xlim=(0, len(history) - 1))
        figure.suptitle("Last body of a Panda with a payload; dashed: the truth")


def main(argv: list[str] | None = None) -> int:
    options = tyro.cli(Options, args=argv)
    robot = dynamics.load_robot("panda")
    true = np.array([robot.mass[-1] + options.mass, *(robot.com[-1] + options.shift)])
    swing = jax.jit(lambda body: measure(robot, body, options.seconds))(true)
    history = identify(robot, swing, options.iterations)
    plot(options.output, history, true)

    print(f"{'':12}{'mass, kg':>10}{'x, mm':>10}{'y, mm':>10}{'z, mm':>10}")
    rows = {"unloaded": history[0, 1:], "recovered": history[-1, 1:], "true": true}
    for name, body in rows.items():
        millimetres = "".join(f"{1e3 * x:10.3f}" for x in body[1:])
        print(f"{name:12}{body[0]:10.5f}{millimetres}")
    print(f"loss {history[0, 0]:.1e} -> {history[-1, 0]:.1e} (rad/s)²; drawn to {options.output}")
    return 0 if np.isfinite(history).all() else 1


if __name__ == "__main__":
    sys.exit(main())
