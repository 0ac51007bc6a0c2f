"""How near contact comes to MuJoCo, solved to convergence: the table of docs/contact.md.

    python scripts/measure/contact_accuracy.py
    python scripts/measure/contact_accuracy.py --only "cube" "equalities" --steps 200

Consecutive states of a random motion that MuJoCo computes: there, contacts, rows, accelerations and
forces in float64, and accelerations in float32; then whole motions. Errors are relative to the
largest entry, those of weights `D` each to its own. The scenes are the tests'. In float32 the state
and the sizes are rounded already; errors are told with that, and without.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import mujoco
import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "shared"))

import contact_scenes

Found = dict[str, list[float]]
"""Numbers of every state by what they are."""


@dataclass(frozen=True)
class Options:
    """Options of the comparison."""

    only: tuple[str, ...] = ()
    """Scenes; all if empty."""
    steps: int = 1000
    """States of each."""
    motions: bool = True
    """Whole motions, too."""


def in_double(t: contact_scenes.Trial, data: mujoco.MjData) -> dict[str, float]:
    """Errors at one state."""
    error = contact_scenes.error
    contacts, rows, a, solution = jax.tree.map(np.asarray, contact_scenes.solved(t, data))
    found = {"unsolved": float(~solution.converged), "rounds": float(solution.rounds)}
    try:
        slots = contact_scenes.matched(t, data, contacts)
    except AssertionError:
        return found | {"sets": 1.0}
    own = contact_scenes.ordered(rows, slots, t)
    force = np.zeros_like(solution.force)
    for i, slot in enumerate(slots):
        mujoco.mj_contactForce(t.model, data, i, force[slot])
    return found | {
        "sets": 0.0,
        "qacc": error(a, data.qacc),
        "slot force": error(solution.force, force),
        "joint force": error(solution.joint_force, data.qfrc_constraint),
        "J": error(own["J"], data.efc_J.reshape(-1, t.model.nv)),
        "aref": error(own["aref"], data.efc_aref),
        "D": float(np.max(np.abs(own["D"] / data.efc_D - 1), initial=0)),
    }


def rounded(model: mujoco.MjModel) -> mujoco.MjModel:
    """The model with places and sizes that float32 can hold."""
    model = copy.copy(model)
    for name in ("geom_size", "geom_pos", "geom_quat", "body_pos", "body_quat", "eq_data"):
        numbers = getattr(model, name)
        numbers[:] = numbers.astype(np.float32)
    return model


def in_single(
    t: contact_scenes.Trial, data: mujoco.MjData, same: mujoco.MjData
) -> dict[str, float]:
    """Errors at one state, of the solution in float32.

    Those of "qacc" count from the state; those of "rounded" from the state, places and sizes that
    float32 can hold, which are what was solved. `same` is of that model.
    """
    *_, a, solution = contact_scenes.solved(t, data, np.float32)
    for name in ("qpos", "qvel", "qfrc_applied", "ctrl", "qacc_warmstart"):
        getattr(same, name)[:] = getattr(data, name).astype(np.float32)
    mujoco.mj_forward(same.model, same)
    return {
        "qacc": contact_scenes.error(a, data.qacc),
        "rounded": contact_scenes.error(a, same.qacc),
        "unsolved": float(~solution.converged),
        "rounds": float(solution.rounds),
    }


def compared(xml: str, steps: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is found at all states of a scene, in float64 and in float32."""
    with jax.enable_x64(True):
        double = contact_scenes.trial(xml)
    with jax.enable_x64(False):
        single = contact_scenes.trial(xml)
    found: tuple[list[dict[str, float]], ...] = [], []
    same = mujoco.MjData(rounded(double.model))
    for data in contact_scenes.rollout(double.model, steps, every=1):
        with jax.enable_x64(True):
            found[0].append(in_double(double, data))
        with jax.enable_x64(False):
            found[1].append(in_single(single, data, same))
    first, second = (_columns(rows) for rows in found)
    return first, second


def _columns(rows: list[dict[str, float]]) -> dict[str, NDArray[np.float64]]:
    return {
        k: np.array([r[k] for r in rows if k in r])
        for k in dict.fromkeys(k for r in rows for k in r)
    }


def main(options: Options) -> int:
    """Print the tables; the exit status says whether all contacts are there and all converged."""
    scenes = {**contact_scenes.SCENES, **contact_scenes.SLOW}
    console = Console(width=160)
    worst = ("qacc", "slot force", "joint force", "aref", "J", "D")
    counts = ("sets", "unsolved")
    headings = (
        "scene",
        *worst,
        "other sets",
        "unsolved",
        "rounds",
        "float32 median",
        "worst",
        "of rounded: median",
        "worst",
        "unsolved",
        "rounds",
    )
    table, broken = Table(*headings, title=f"{options.steps} states of each scene"), 0.0
    for name in options.only or tuple(scenes):
        double, single = compared(scenes[name], options.steps)
        line = [f"{double[k].max():.1e}" for k in worst]
        line += [f"{double[k].sum():.0f}" for k in counts]
        line += [f"{double['rounds'].mean():.2f}, {double['rounds'].max():.0f}"]
        line += [f"{np.median(single['qacc']):.1e}", f"{single['qacc'].max():.1e}"]
        line += [f"{np.median(single['rounded']):.1e}", f"{single['rounded'].max():.1e}"]
        line += [f"{single['unsolved'].sum():.0f}"]
        line += [f"{single['rounds'].mean():.2f}, {single['rounds'].max():.0f}"]
        table.add_row(name, *line)
        print(name, *line, sep="  ", flush=True)
        broken += double["sets"].sum() + double["unsolved"].sum() + single["unsolved"].sum()
    console.print(table)
    if options.motions:
        table = Table("motion", "integrator", "steps", "farthest configuration")
        lift, kicks = contact_scenes.grasp(), contact_scenes.quadruped()
        for what, xml, steps in (
            ("pick and lift", lift, 1000),
            ("kicked quadruped", kicks, 300),
            ("kicked quadruped", kicks, 1000),
        ):
            for integrator in ("euler", "implicitfast"):
                with jax.enable_x64(True):
                    far = contact_scenes.farthest(xml, integrator, steps)
                table.add_row(what, integrator, str(steps), f"{far:.1e}")
        console.print(table)
    return 0 if broken == 0 else 1


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
