"""The worst errors of our dynamics over many robots, as Markdown tables.

    python scripts/measure/validate_dynamics.py
    python scripts/measure/validate_dynamics.py --robots panda hyq --output validation.md
    python scripts/measure/validate_dynamics.py --help

What `fraxenv cross-check` does for one robot, in float64 and float32, for all bundled robots and
those of the package example-robot-data that are listed below. Needs the extra `test`.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import jax
import tyro
from rich.console import Console
from rich.progress import track

from fraxenv import dynamics
from fraxenv.cross_check import comparison
from fraxenv.cross_check.comparison import Errors
from fraxenv.cross_check.mujoco import MujocoOracle
from fraxenv.cross_check.pinocchio import PinocchioOracle
from fraxenv.cross_check.quantities import random_states
from fraxenv.dynamics import Robot
from fraxenv.dynamics.model.bundled import bundled_urdf
from fraxenv.errors import ConfigError, unknown_name
from fraxenv.storage.files import write_atomic

TIMESTEP = 1e-3  # s

# Of the package example-robot-data: where the file is, and whether the base floats.
ELSEWHERE = {
    "talos": ("talos_data/robots/talos_reduced.urdf", True),
    "talos_full": ("talos_data/robots/talos_full_v2.urdf", False),
    "hyq": ("hyq_description/robots/hyq_no_sensors.urdf", True),
    "solo": ("solo_description/robots/solo12.urdf", True),
    "ur5": ("ur_description/urdf/ur5_robot.urdf", False),
    "baxter": ("baxter_description/urdf/baxter.urdf", False),
    "tiago": ("tiago_description/robots/tiago.urdf", False),
    "kinova": ("kinova_description/robots/kinova.urdf", False),
    "anymal_kinova": ("anymal_b_simple_description/robots/anymal-kinova.urdf", True),
    "go1": ("go1_description/urdf/go1.urdf", True),
    "bolt": ("bolt_description/robots/bolt.urdf", True),
    "humanoid": ("simple_humanoid_description/urdf/simple_humanoid.urdf", False),
    "allegro": ("allegro_hand_description/urdf/allegro_right_hand.urdf", False),
    "so101": ("so_arm_description/urdf/so101.urdf", True),
}
ROBOTS = (*dynamics.list_robots(), *ELSEWHERE)

COLUMNS = {
    "poses, velocities, Jacobians": ("frame ", "body "),
    "mass matrix": ("mass matrix",),
    "inverse dynamics, bias, gravity": ("inverse dynamics", "bias", "gravity"),
    "forward dynamics": ("forward dynamics", "damped forward dynamics"),
    "centre of mass, momentum, energy": ("centre of mass", "centroidal", "kinetic", "potential"),
    "one step": ("integrated configuration", "configuration after", "velocity after"),
    "trajectory, rad or m": ("trajectory",),
}
"""Column -> what the names of its quantities begin with."""


@dataclass(frozen=True)
class Options:
    """Compare many robots' dynamics with Pinocchio's and MuJoCo's.

    Attributes:
        robots: their names; all if omitted.
        states: number of random states of each.
        seconds: length of the trajectories, s.
        seed: of the states and torques.
        output: the Markdown file; only printed if omitted.
    """

    robots: tuple[str, ...] = ROBOTS
    states: int = 100
    seconds: float = 5.0
    seed: int = 0
    output: Path | None = None


@cache
def load(name: str) -> tuple[Robot, Path]:
    """A robot by its name, and its file."""
    if name in dynamics.list_robots():
        return dynamics.load_robot(name), bundled_urdf(name)
    if name not in ELSEWHERE:
        raise unknown_name("robot", name, ROBOTS)
    end, floating = ELSEWHERE[name]
    files = metadata.files("example-robot-data") or ()
    path = Path(next(f for f in files if str(f).endswith(end)).locate())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dynamics.RobotLoadWarning)  # some are published like that
        return dynamics.load_urdf(path, floating_base=floating), path


def errors(name: str, precision: str, options: Options) -> dict[str, Errors]:
    """Oracle -> quantity -> the worst error; without MuJoCo where it cannot model the robot."""
    loaded, path = load(name)
    robot = comparison.comparable(loaded)
    states = random_states(robot, options.states, precision, options.seed)
    ours = comparison.our_quantities(robot, states, TIMESTEP)
    rows = comparison.one_by_one(states)
    pinocchio = comparison.oracle_quantities(PinocchioOracle.from_urdf(robot, path), rows)
    result = {"Pinocchio": comparison.relative_errors(ours, pinocchio)}
    try:
        oracle = MujocoOracle.from_robot(robot, TIMESTEP)
    except ConfigError:
        return result
    seconds, seed = options.seconds, options.seed
    torques = comparison.random_torques(robot, seconds, TIMESTEP, precision, seed)
    moved = comparison.trajectories(robot, oracle, torques)
    mujoco = comparison.relative_errors(ours, comparison.oracle_quantities(oracle, rows))
    return result | {"MuJoCo": mujoco | {"trajectory": moved.error}}


def table(rows: dict[str, Errors]) -> str:
    """Robots down, groups of quantities across, as Markdown."""
    groups = [
        (column, prefixes)
        for column, prefixes in COLUMNS.items()
        if any(q.startswith(prefixes) for by_quantity in rows.values() for q in by_quantity)
    ]
    lines = [
        "| robot | base | nv | " + " | ".join(column for column, _ in groups) + " |",
        "|---|---|" + "---:|" * (len(groups) + 1),
    ]
    for name, by_quantity in rows.items():
        worst = [
            max(e for q, e in by_quantity.items() if q.startswith(prefixes))
            for _, prefixes in groups
        ]
        robot, _ = load(name)
        base = "floating" if robot.topology.joints[0].kind == "floating" else "fixed"
        cells = [f"`{name}`", base, str(robot.nv), *(f"{e:.0e}" for e in worst)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    options = tyro.cli(Options, args=argv)
    for name in options.robots:
        load(name)  # before anything takes time
    cases = [(p, name) for p in ("float64", "float32") for name in options.robots]
    console = Console(stderr=True)
    by_case: dict[tuple[str, str], dict[str, Errors]] = {}
    for precision, name in track(cases, "robots", console=console, transient=True):
        jax.config.update("jax_enable_x64", precision == "float64")
        by_case[precision, name] = errors(name, precision, options)
    sections = []
    for precision in ("float64", "float32"):
        for oracle in ("Pinocchio", "MuJoCo"):
            rows = {
                name: by_case[precision, name][oracle]
                for name in options.robots
                if oracle in by_case[precision, name]
            }
            if rows:
                sections.append(f"{precision} against {oracle}:\n\n{table(rows)}\n")
    text = "\n".join(sections)
    print(text, end="")
    if options.output is not None:
        write_atomic(options.output, text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
