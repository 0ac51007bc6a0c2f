"""A load that the controller does not know of: how soon the observer finds it, how well it is held.

Panda arms in random postures hold 1 kg, and others move it about, with OSC at 1 kHz. An estimate is
off by its distance from the torques of the load, weight and inertia, in parts of these. The results
are in docs/controllers.md.

    python scripts/measure/unknown_load.py
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from rich.console import Console
from rich.table import Table

from fraxenv import dynamics
from fraxenv.controllers import OSC, MomentumObserver, PoseTarget

DT = 1e-3


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    arms: int = 1000
    """Postures, and directions of motion."""
    mass: float = 1.0
    """kg, of the load."""
    offset: float = 0.05
    """m, of its centre from the hand's frame, along each axis at most."""
    spread: float = 0.5
    """rad, of the postures about the default one."""
    swing: float = 0.05
    """m, of the motion along each axis, at 0.5 to 1 Hz."""
    seconds: float = 2.0
    """Of holding, and of motion."""
    gain: float = 50.0
    """1/s, of the observer."""
    seed: int = 0
    """Of everything."""


def follow(key: Array, observer: MomentumObserver | None, swing: float, options: Options) -> Any:
    """Of one arm's steps: position errors (n,), m, and how far the estimate is off (n,), of it."""
    robot, osc, motors = dynamics.load_robot("panda"), OSC("hand"), dynamics.Actuators()
    keys = jax.random.split(key, 3)
    noise = jax.random.uniform(keys[0], (robot.nv,), minval=-1.0)
    q = jnp.asarray(robot.q_default, jnp.float32) + options.spread * noise
    com = options.offset * jax.random.uniform(keys[1], (3,), minval=-1.0)
    true = dynamics.with_payload(robot, dynamics.Payload("hand", options.mass, com))
    rates = 2 * jnp.pi * jax.random.uniform(keys[2], (3,), minval=0.5, maxval=1.0)
    v = jnp.zeros_like(q)
    terms = dynamics.compute_terms(robot, q, v)
    place, turn = dynamics.frame_pose(robot, q, "hand")

    def step(carry: Any, k: Array) -> Any:
        q, v, state = carry
        terms = seen = dynamics.compute_terms(robot, q, v)
        if observer is not None:
            state = observer(robot, terms, state, DT)
            seen = observer.informed(terms, state)
        target = PoseTarget(place + swing * jnp.sin(rates * k * DT), turn)
        tau, _, report = osc(robot, seen, target, None, DT)
        applied, command, _ = motors(robot, tau, v, dynamics.ActuatorState(), DT)
        if observer is not None:
            state = observer.after(robot, terms, command, state, DT)
        then = dynamics.step(true, q, v, applied, DT)
        a = (then[1] - v) / DT
        lacking = dynamics.rnea(robot, q, v, a) - dynamics.rnea(true, q, v, a)
        found = jnp.zeros_like(v) if observer is None else state.estimate
        off = jnp.linalg.norm(found - lacking) / jnp.linalg.norm(lacking)
        return (*then, state), (report["position_error"], off)

    start = (q, v, None if observer is None else observer.init(terms))
    return jax.lax.scan(step, start, jnp.arange(round(options.seconds / DT)))[1]


def main(options: Options) -> None:
    """Print the table."""
    table = Table(title=f"{options.arms} arms with {options.mass} kg, gain {options.gain} 1/s")
    headings = (
        "", "error at the end, mm", "99 %", "largest", "estimate off after 0.1 s, %, 99 %", "0.3 s",
        "largest",
    )  # fmt: skip
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left")
    keys = jax.random.split(jax.random.key(options.seed), options.arms)
    for what, swing in (("held", 0.0), ("moved", options.swing)):
        for observer in (None, MomentumObserver(options.gain)):
            one = partial(follow, observer=observer, swing=swing, options=options)
            errors, off = (np.asarray(x) for x in jax.jit(jax.vmap(one))(keys))
            end, off = 1e3 * errors[:, -1], 100 * off
            numbers = [np.median(end), np.quantile(end, 0.99), end.max()]
            early, later = np.quantile(off[:, [100, 300]], 0.99, axis=0)
            numbers += [early, later, off[:, 300].max()]
            name = f"{what}, {'without' if observer is None else 'with'} the observer"
            table.add_row(name, *(f"{x:.3g}" for x in numbers))
    Console(width=120).print(table)


if __name__ == "__main__":
    main(tyro.cli(Options))
