"""A hand presses on the table as hard as it can, and is moved about: with a barrier, and without.

Its target is always a full action below it, and towards a random place of the table as far as one
action goes. Policy, control
and physics have one rate, so that the force of every physics step is seen. The results are in
docs/safety.md.

    python scripts/measure/press_hard.py
    python scripts/measure/press_hard.py --limits 30 --scales 0.1 --share 0.35
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from rich.console import Console
from rich.table import Table

import fraxenv
from fraxenv.controllers import SafetyFilter, barriers
from fraxenv.controllers.safety.filter import default_barriers
from fraxenv.dynamics import frame_pose

HZ = 500
PADS = ("left_pad", "right_pad")
AREA = (0.38, -0.2), (0.62, 0.2)
"""m, corners of where the hand is moved about: there are the marks of the task."""


@dataclass(frozen=True)
class Options:
    """Options of the rollouts."""

    limits: tuple[float, ...] = (60.0, 30.0)
    """Of the barriers, N."""
    scales: tuple[float, ...] = (0.05, 0.1)
    """How far below the hand its target is, m."""
    share: float = 0.5
    """Of a limit, that torques push with."""
    envs: int = 1000
    """Environments at a time."""
    seconds: float = 2.0
    """Length of an episode, s."""
    seed: int = 0
    """Of starts and actions."""


def press(limit: float | None, scale: float, options: Options) -> dict[str, Any]:
    """The forces (steps, n), N, of pads on the table, and how often the filter had no solution."""
    safety: Any = "none"
    if limit is not None:
        kept = barriers.contact_force("hand", limit, PADS, friction=0.1, share=options.share)
        safety = SafetyFilter((*default_barriers(), kept), end_effectors=("hand",))
    env, params = fraxenv.make(
        "PandaWipe-v0",
        action="ee_delta_position",
        action_options={"position_scale": scale},
        policy_hz=HZ,
        safety=safety,
    )
    n, (low, high) = options.envs, np.asarray(AREA)
    hands = jax.vmap(lambda q: frame_pose(env.robot, q, "hand")[0][:2])

    @jax.jit
    def roll(state: Any, key: Array) -> Any:
        def step(carry: Any, key: Array) -> Any:
            state, place = carry
            key_turns, key_place = jax.random.split(key)
            turns = jax.random.uniform(key_turns, (n, 1)) < 0.01
            drawn = low + (high - low) * jax.random.uniform(key_place, (n, 2))
            place = jnp.where(turns, drawn, place)
            aside = jnp.clip((place - hands(state.q)) / scale, -1.0, 1.0)
            action = jnp.concatenate([aside, -jnp.ones((n, 1))], axis=1)
            keys = jax.random.split(key, n)
            _, state, _, _, info = jax.vmap(env.step_env, (0, 0, 0, None))(
                keys, state, action, params
            )
            return (state, place), (info["force"], info["safety"]["feasible"])

        keys = jax.random.split(key, round(options.seconds * HZ))
        return jax.lax.scan(step, (state, hands(state.q)), keys)[1]

    starts = jax.random.split(jax.random.key(options.seed), n)
    state = jax.vmap(lambda key: env.reset(key, params)[1])(starts)
    force, feasible = map(np.asarray, roll(state, jax.random.key(options.seed + 1)))
    return {"force": force, "infeasible": np.mean(~feasible)}


def main(options: Options) -> None:
    """Print the table."""
    title = f"{options.envs} hands, {options.seconds:g} s each"
    table = Table(title=title)
    for heading in ("target below, m", "limit, N", "highest, N", "99.9 %", "steps with a force",
                    "infeasible"):  # fmt: skip
        table.add_column(heading, justify="right")
    for scale in options.scales:
        for limit in (None, *options.limits):
            found = press(limit, scale, options)
            force = found["force"]
            pressing = force[force > 0]
            table.add_row(
                f"{scale:g}",
                "none" if limit is None else f"{limit:g}",
                f"{pressing.max():.1f}",
                f"{np.quantile(pressing, 0.999):.1f}",
                f"{len(pressing):,}",
                f"{found['infeasible']:.3%}",
            )
    Console(width=100).print(table)


if __name__ == "__main__":
    main(tyro.cli(Options))
