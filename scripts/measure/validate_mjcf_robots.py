"""Robots of MJCF files beside MuJoCo, at a random state each: the largest differences, in a table.

    python scripts/measure/validate_mjcf_robots.py arm.xml hand.xml

Of each file it is the tree with the most joints. What a `Robot` cannot have is left out, and named.
Exits with status 1 if a file's robot cannot be had, or differs by more than 1e-12. The results of
arms and hands of others are in docs/robots.md.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import mujoco
import tyro
from rich.console import Console
from rich.table import Table

from fraxenv import dynamics
from fraxenv.dynamics import Robot
from fraxenv.dynamics.scene.unsupported import LEFT_OUT
from fraxenv.errors import SceneLoadError

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "shared"))

from mjcf_robots import differences

BOUND = 1e-12


@dataclass(frozen=True)
class Options:
    """Options of the validation."""

    files: tyro.conf.Positional[tuple[Path, ...]]
    """MJCF files."""


def largest_tree(model: Any) -> str:
    """Name of the body below the world that carries the most joints."""
    counts = Counter(model.body_rootid[model.jnt_bodyid].tolist())
    body = counts.most_common(1)[0][0]
    return str(mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, body))


def robot_of(model: Any) -> tuple[Robot, str]:
    """The largest tree, and what had to be left out."""
    left: list[Any] = []
    while True:
        try:
            robot = dynamics.load_mjcf_robot(model, root=largest_tree(model), leave_out=left)
            return robot, ", ".join(left)
        except SceneLoadError as error:
            more = [x for x in LEFT_OUT if f"leave_out=['{x}']" in str(error) and x not in left]
            if not more:
                raise
            left += more


def main() -> int:
    """Run the command line; returns the exit status."""
    options = tyro.cli(Options)
    jax.config.update("jax_enable_x64", True)
    compared = ("mass matrix", "bias", "positions", "Jacobians")
    table = Table("file", "nv", "frames", *compared, "left out")
    sound = True
    for path in options.files:
        name = "/".join(path.parts[-2:])
        try:
            model = mujoco.MjModel.from_xml_path(str(path))
            robot, left = robot_of(model)
        except (ValueError, IndexError) as error:
            sound = False
            table.add_row(name, *[""] * 6, " ".join(str(error).split())[:60])
            continue
        found, frames = differences(model, robot)
        sound &= max(found.values()) < BOUND
        columns = (f"{found[x]:.0e}" for x in compared)
        table.add_row(name, str(robot.nv), str(frames), *columns, left)
    Console().print(table)
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
