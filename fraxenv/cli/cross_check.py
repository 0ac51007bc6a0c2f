"""`fraxenv cross-check`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import (
    ConfigError,
    FraxenvError,
    MissingExtraError,
    RobotLoadError,
    RobotLoadWarning,
    check_count,
    import_extra,
)

WITHIN, BEYOND = 0, 1
"""Exit status: all within tolerance; something beyond it."""

TIMESTEP = 1e-3
"""s, of everything that is integrated."""

TOLERANCES = {  # of relative errors against each, and of the trajectory, rad and m
    "float64": {"Pinocchio": 1e-10, "MuJoCo": 1e-9, "trajectory": 1e-6},
    "float32": {"Pinocchio": 1e-4, "MuJoCo": 1e-4, "trajectory": 1e-2},
}


@dataclass(frozen=True)
class Options:
    """Compare a robot's dynamics with MuJoCo's, and Pinocchio's if it is installed.

    The same random states, torques and trajectory go through all. Prints the worst relative error
    of each quantity, draws the trajectory and its difference, and exits with status 1 if anything
    is beyond tolerance. A robot that one of them cannot model is compared with the other alone.

    An MJCF file is a scene, with contacts, and compared with MuJoCo: which contacts there are and
    where, rows of constraints, their forces, accelerations, and a trajectory.

    Attributes:
        robot: a bundled robot's name, a URDF file, or an MJCF file (.xml).
        floating_base: let the root link of the URDF float.
        states: number of random states.
        seconds: length of the trajectory, s.
        seed: of the states and torques.
        float32: check our float32 arithmetic rather than float64.
        output: the PNG of the trajectory; `cross_check_ROBOT.png` if omitted.
    """

    robot: str
    floating_base: bool = False
    states: int = 100
    seconds: float = 5.0
    seed: int = 0
    float32: bool = False
    output: Path | None = None


def run(options: Options) -> int:
    """Compare, print, draw; returns the exit status.

    Raises:
        FraxenvError: there is nothing to compare, because of an option, the robot, or what is
            installed.
    """
    check_count("--states", options.states)
    if not options.seconds >= TIMESTEP:
        raise ConfigError(f"--seconds={options.seconds}, expected {TIMESTEP} s at least.")
    for module in ("mujoco", "rich", "matplotlib"):  # before anything takes time
        extra = "mujoco" if module == "mujoco" else "cross-check"
        import_extra(module, extra, "The cross-check")
    from ..cross_check.scenes import is_mjcf

    compare = _compare_scene if is_mjcf(Path(options.robot)) else _compare
    with _precision("float32" if options.float32 else "float64") as dtype:
        return compare(options, dtype)


def _compare(options: Options, dtype: np.dtype[Any]) -> int:
    from rich.console import Console
    from rich.progress import track

    from ..cross_check import comparison
    from ..cross_check.mujoco import MujocoOracle
    from ..cross_check.pinocchio import PinocchioOracle
    from ..cross_check.quantities import random_states
    from ..cross_check.report import error_table, plot_trajectories

    console = Console()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", RobotLoadWarning)
        robot, path = comparison.load_subject(options.robot, options.floating_base)
    for warning in warned:
        print(f"Warning: {warning.message}", file=sys.stderr)
    robot = comparison.comparable(robot)
    mujoco: MujocoOracle | None = None
    oracles: dict[str, PinocchioOracle | MujocoOracle] = {}
    left_out: dict[str, FraxenvError] = {}
    try:
        oracles["Pinocchio"] = PinocchioOracle.from_urdf(robot, path)
    except (MissingExtraError, RobotLoadError) as error:
        left_out["Pinocchio"] = error
    try:
        oracles["MuJoCo"] = mujoco = MujocoOracle.from_robot(robot, TIMESTEP)
    except ConfigError as error:  # it cannot model this robot; Pinocchio can
        if not oracles:
            raise
        left_out["MuJoCo"] = error

    allowed = TOLERANCES[dtype.name]
    states = random_states(robot, options.states, dtype, options.seed)
    with console.status(f"Compiling and computing {robot.name} ..."):
        ours = comparison.our_quantities(robot, states, TIMESTEP)
    rows = comparison.one_by_one(states)
    errors, tolerances = {}, {}
    for name, oracle in oracles.items():
        tracked = track(
            rows, name, console=console, transient=True, disable=not console.is_terminal
        )
        errors[name] = comparison.relative_errors(
            ours, comparison.oracle_quantities(oracle, tracked)
        )
        tolerances[name] = {
            quantity: comparison.tolerance(quantity, allowed[name], ours["mass matrix"])
            for quantity in errors[name]
        }

    drawn: Path | None = None
    if mujoco is not None:
        torques = comparison.random_torques(robot, options.seconds, TIMESTEP, dtype, options.seed)
        with console.status(f"Computing {options.seconds:g} s of motion ..."):
            moved = comparison.trajectories(robot, mujoco, torques)
        row = "trajectory, rad and m"
        errors["MuJoCo"][row] = moved.error
        tolerances["MuJoCo"][row] = allowed["trajectory"]
        drawn = options.output or Path(f"cross_check_{Path(options.robot).stem}.png")
        plot_trajectories(drawn, robot, moved, allowed["trajectory"], dtype)

    console.print(
        f"{robot.name}: {robot.nv} degrees of freedom; our {dtype} at {options.states} random "
        f"states of the whole joint range, speeds up to 10 rad/s (seed {options.seed})."
    )
    console.print(error_table(errors, tolerances, left_out))
    console.print(
        "Errors are relative to the quantity's largest entry. Joint friction and stops are not "
        "compared. Damping is raised, where it is less, to what slows down each joint on its own "
        f"within {comparison.DAMPING_TIME} s: {comparison.damping_range(robot)}."
    )
    for name, reason in left_out.items():
        console.print(f"{name} is left out: {reason}", markup=False)
    if drawn is not None:
        console.print(f"Drawn to {drawn}")
    beyond = [
        f"{quantity} ({name})"
        for name, by_quantity in errors.items()
        for quantity, error in by_quantity.items()
        if not error <= tolerances[name][quantity]
    ]
    if beyond:
        console.print(f"FAIL, beyond tolerance: {', '.join(beyond)}")
        return BEYOND
    console.print(f"pass: {robot.name} agrees with {' and '.join(oracles)}")
    return WITHIN


def _compare_scene(options: Options, dtype: np.dtype[Any]) -> int:
    from rich.console import Console
    from rich.progress import track

    from ..cross_check import scenes
    from ..cross_check.report import check_table, plot_trajectories

    if options.floating_base:
        raise ConfigError(
            f"--floating-base with the MJCF file {options.robot!r}, whose bodies float where the "
            "file says <freejoint/>, expected it with a URDF file. Leave it out."
        )
    console = Console()
    path = Path(options.robot)
    model = scenes.load_exact(path)
    scene = scenes.load_scene(model, path)
    states = scenes.random_states(model, options.states, options.seed, dtype)
    with console.status(f"Compiling and computing {scene.name} ..."):
        ours = scenes.our_numbers(scene, states)
    theirs = scenes.expected(model, states)
    tracked = track(
        theirs,
        "MuJoCo",
        total=options.states,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    checks, work = scenes.compare(model, states, ours, list(tracked), dtype)

    drawn: Path | None = None
    if scene.integrator != "discrete":
        allowed = scenes.TOLERANCES[dtype.name]["trajectory"]
        with console.status(f"Computing {options.seconds:g} s of motion ..."):
            motion = scenes.motion(scene, model, options.seconds, options.seed, dtype)
        steps = len(motion.converged)
        part = "" if motion.compared == steps else f", {motion.compared} steps"
        checks.append(scenes.Check(f"trajectory{part}, rad and m", motion.error, allowed))
        unsolved = int(np.sum(~motion.converged))
        checks.append(scenes.Check("trajectory, steps not converged", unsolved, 0))
        drawn = options.output or Path(f"cross_check_{path.stem}.png")
        until = None if motion.compared == steps else motion.compared * model.opt.timestep
        plot_trajectories(drawn, scene.system, motion.moved, allowed, dtype, until)

    layout = scene.constraints.layout
    console.print(
        f"{scene.name}: {scene.nv} degrees of freedom, {len(layout.pairs)} pairs of geoms with "
        f"{layout.slots} contact slots; our {dtype} at {options.states} states of random motions "
        f"(seed {options.seed})."
    )
    console.print(check_table(checks))
    console.print(work.text())
    if drawn is None:
        console.print(
            "No trajectory is compared: 'discrete' is not MuJoCo's integrator of that name."
        )
    else:
        if until is not None:
            console.print(
                f"The trajectory is compared over {motion.compared} of {steps} steps: a twin that "
                f"MuJoCo begins {scenes.DISTURBANCE:g} beside it is {scenes.CHAOS:g} away by then."
            )
        console.print(f"Drawn to {drawn}")
    beyond = [check.quantity for check in checks if not check.within]
    if beyond:
        console.print(f"FAIL, beyond tolerance: {'; '.join(beyond)}")
        return BEYOND
    console.print(f"pass: {scene.name} agrees with MuJoCo")
    return WITHIN


@contextmanager
def _precision(name: str) -> Iterator[np.dtype[Any]]:
    """JAX computes in this precision inside."""
    jax = import_extra("jax", "cross-check", "The cross-check")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", name == "float64")
    try:
        yield np.dtype(name)
    finally:
        jax.config.update("jax_enable_x64", before)
