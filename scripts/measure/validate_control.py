"""How well operational space control tracks: a table of what docs/controllers.md promises.

    python scripts/measure/validate_control.py

Steps of 5 cm, absolute poses in free space, and paths through the Panda's singularities, in float32
on the plain dynamics: no soft stops, no damping.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from rich.console import Console
from rich.table import Table

import fraxenv
from fraxenv.controllers import OSC, PoseTarget
from fraxenv.dynamics import (
    Actuators,
    Robot,
    compute_terms,
    frame_pose,
    frame_velocity,
    load_robot,
    orientation_error,
    step,
)

DT = 0.001
PATH_SECONDS = 4.0

# Where the hand's Jacobian loses a rank, and how far a path goes on either side.
ELBOW = np.array([0.0, 0.3, 0.0, -0.4670024231, 0.0, 1.6, 0.3])
WRIST = np.array([0.0, -0.3, 0.0, -2.0, np.pi / 2, 3.36426, 0.3])
PATHS = {
    "elbow": (ELBOW, np.array([0.3, -0.3, 0.1, 0.38, 0.2, 0.2, 0.3])),
    "wrist": (WRIST, np.array([0.3, 0.1, 0.1, 0.2, 0.2, 0.35, 0.2])),
}


@dataclass(frozen=True)
class Options:
    """Options of the validation."""

    poses: int = 200
    """Random poses, and random places for the steps."""
    seed: int = 0
    """Seed of both."""


class Row(NamedTuple):
    """A line of the table: what, how large at most, the limit, and the unit."""

    what: str
    worst: float
    limit: float
    unit: str


def final_errors(
    robot: Robot, q: Array, target: PoseTarget, seconds: float
) -> tuple[Array, Array, Array]:
    """Position error (3,), m, its largest entries (3,) on the way, and orientation error, rad."""
    osc, actuators = OSC("hand"), Actuators()
    zero = jnp.zeros_like(q)

    def control(carry: Any, _: None) -> tuple[Any, None]:
        q, v, state, motors, largest = carry
        terms = compute_terms(robot, q, v)
        tau, state, _ = osc(robot, terms, target, state, DT)
        tau, _, motors = actuators(robot, tau, v, motors, DT)
        hand, _ = frame_pose(robot, q, "hand", kin=terms.kin)
        largest = jnp.maximum(largest, jnp.abs(hand - target.position))
        return (*step(robot, q, v, tau, DT, terms=terms), state, motors, largest), None

    terms = compute_terms(robot, q, zero)
    memory = osc.init(robot, terms), actuators.init(robot, terms.bias, DT)
    start = (q, zero, *memory, jnp.zeros(3, q.dtype))
    (q, *_, largest), _ = jax.lax.scan(control, start, None, round(seconds / DT))
    position, rotation = frame_pose(robot, q, "hand")
    turn = orientation_error(target.rotation, rotation)
    return position - target.position, largest, jnp.sqrt(jnp.sum(turn * turn))


def near_ready(key: Array, share: float) -> Array:
    """A configuration within a share of the joint range about the ready pose."""
    robot = load_robot("panda")
    lower, upper = jnp.asarray(robot.position_limits, jnp.float32).T
    reach = 0.5 * share * (upper - lower)
    noise = jax.random.uniform(key, (robot.nv,), minval=-1.0)
    return jnp.clip(jnp.asarray(robot.q_default, jnp.float32) + reach * noise, lower, upper)


def steps(options: Options) -> list[Row]:
    """Commands of 5 cm along one axis: what is left, and what happens to the other axes."""
    robot = load_robot("panda")

    def one(key: Array) -> tuple[Array, Array]:
        key_q, key_axis, key_sign = jax.random.split(key, 3)
        q = near_ready(key_q, 0.1)
        axis = jax.random.randint(key_axis, (), 0, 3)
        sign = jnp.where(jax.random.bernoulli(key_sign), 1.0, -1.0)
        position, rotation = frame_pose(robot, q, "hand")
        along = jnp.arange(3) == axis
        target = PoseTarget(position + jnp.where(along, 0.05 * sign, 0.0), rotation)
        left, largest, _ = final_errors(robot, q, target, 2.0)
        return jnp.sqrt(jnp.sum(left * left)), jnp.max(jnp.where(along, 0.0, largest))

    left, across = fraxenv.fuse(one)(jax.random.split(jax.random.key(options.seed), options.poses))
    return [
        Row("5 cm step: error after 2 s", 1e3 * float(left.max()), 1.0, "mm"),
        Row("5 cm step: other axes, on the way", 1e3 * float(across.max()), 2.0, "mm"),
    ]


def poses(options: Options) -> list[Row]:
    """Absolute poses, of configurations within half the joint range, above the table."""
    robot = load_robot("panda")

    def goal(key: Array) -> tuple[Array, Array]:
        return frame_pose(robot, near_ready(key, 0.5), "hand")

    keys = jax.random.split(jax.random.key(options.seed + 1), 3 * options.poses)
    position, rotation = jax.jit(jax.vmap(goal))(keys)
    above = np.flatnonzero(position[:, 2] > 0.05)[: options.poses]
    q = jnp.asarray(robot.q_default, jnp.float32)

    def after(robot: Robot) -> tuple[Any, Any, float]:
        """Median errors, mm and degrees, and how many of a hundred are beyond 1 mm or 0.5."""

        def one(position: Array, rotation: Array) -> tuple[Array, Array]:
            left, _, turn = final_errors(robot, q, PoseTarget(position, rotation), 5.0)
            return jnp.sqrt(jnp.sum(left * left)), turn

        left, turn = fraxenv.fuse(one)(position[above], rotation[above])
        mm, degrees = 1e3 * np.asarray(left), np.degrees(turn)
        missed = (mm > 1.0) | (degrees > 0.5)
        return np.median(mm), np.median(degrees), 100 * float(missed.mean())

    mm, degrees, missed = after(robot)
    *_, law = after(robot.replace(velocity_limits=np.full(robot.nv, np.inf)))
    return [
        Row("absolute pose: error after 5 s, median", float(mm), 1.0, "mm"),
        Row("absolute pose: turn after 5 s, median", float(degrees), 0.5, "deg"),
        Row("absolute pose: beyond 1 mm or 0.5 deg", missed, 0.0, "%"),
        Row("absolute pose: likewise, speed not limited", law, 0.0, "%"),
    ]


def singularities() -> list[Row]:
    """Paths through the elbow's and the wrist's singularity."""
    robot, osc, actuators = load_robot("panda"), OSC("hand"), Actuators()
    rows = []
    for name, (middle, reach) in PATHS.items():

        def reference(t: Array, middle: Any = middle, reach: Any = reach) -> Array:
            return middle - reach * jnp.cos(jnp.pi * t / PATH_SECONDS)

        def control(carry: Any, t: Array, reference: Any = reference) -> tuple[Any, Any]:
            q, v, state, motors = carry
            q_ref, v_ref = jax.jvp(reference, (t,), (jnp.ones_like(t),))
            velocity = frame_velocity(robot, q_ref, v_ref, "hand")
            target = PoseTarget(*frame_pose(robot, q_ref, "hand"), velocity)
            terms = compute_terms(robot, q, v)
            tau, state, telemetry = osc(robot, terms, target, state, DT)
            applied, _, motors = actuators(robot, tau, v, motors, DT)
            q, v = step(robot, q, v, applied, DT, terms=terms)
            return (q, v, state, motors), (tau, telemetry["position_error"])

        q, v = reference(jnp.zeros(())), jnp.zeros(robot.nv)
        terms = compute_terms(robot, q, v)
        start = (q, v, osc.init(robot, terms), actuators.init(robot, terms.bias, DT))
        times = DT * jnp.arange(round(PATH_SECONDS / DT))
        _, (tau, error) = jax.jit(lambda s, t, c=control: jax.lax.scan(c, s, t))(start, times)
        change = float(np.abs(np.diff(tau, axis=0)).max())
        share = float(jnp.max(jnp.abs(tau) / jnp.asarray(robot.effort_limits)))
        rate = DT * float(np.min(robot.effort_rate_limits))
        rows += [
            Row(f"{name} singularity: torque step per ms", change, rate, "N m"),
            Row(f"{name} singularity: torque, of its limit", share, 1.0, ""),
            Row(f"{name} singularity: hand off its path", 1e3 * float(error.max()), 10.0, "mm"),
        ]
    return rows


def main(options: Options) -> int:
    """Print the table; the exit status says whether every limit holds."""
    table = Table(title=f"Panda, OSC with its defaults, float32, {options.poses} poses and places")
    for heading in ("what", "worst", "limit", "unit"):
        table.add_column(heading, justify="left" if heading in ("what", "unit") else "right")
    rows = [*steps(options), *poses(options), *singularities()]
    for row in rows:
        style = None if row.worst <= row.limit else "red"
        table.add_row(row.what, f"{row.worst:.3g}", f"{row.limit:.3g}", row.unit, style=style)
    Console(width=100).print(table)
    return 0 if all(row.worst <= row.limit for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
