"""How long a first call of each kind of plan takes, caches empty and full. For docs/planning.md.

    python scripts/measure/planning_compile.py
    python scripts/measure/planning_compile.py --only panda quadruped

Each in a process of its own, beyond what importing takes; "cached" is the second process, which
finds kernels and XLA's programs where the first one left them. What a first call takes more than
another one is compiling. The last five are policies "mpc" of environments: their `begin` and their
first action, a program each.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any, Literal, get_args

import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

Kind = Literal[
    "panda", "panda_exact", "panda_batch", "ik", "motion", "quadruped",
    "push", "pick", "trot", "track", "pull",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)

POLICIES = {
    "push": ("PandaPush-v0", {"action": "torque", "policy_hz": 100}),
    "pick": ("PandaPick-v0", {"action": "torque", "policy_hz": 100}),
    "trot": ("A1Trot-v0", {}),
    "track": ("B2Z1Track-v0", {}),
    "pull": ("B2Z1Pull-v0", {}),
}


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    only: tuple[Kind, ...] = KINDS
    """Which of them."""
    child: bool = False
    """Compile the first of them here, and print how long it took."""


def first_calls(kind: Kind) -> list[float]:
    """Seconds of the first ones, and then of another."""
    if kind in POLICIES:
        return policy_calls(*POLICIES[kind])
    import jax
    import jax.numpy as jnp
    import numpy as np
    from planning_peers import drawn, panda_problem, plain

    from fraxenv import dynamics, plan
    from fraxenv.kernels import keep_programs

    keep_programs()
    robot = plain(dynamics.load_robot("panda"))
    q, target = jnp.asarray(robot.q_default), jnp.array([0.5, 0.2, 0.4])
    begin = q, jnp.zeros_like(q)
    began = time.perf_counter()
    if kind in ("panda", "panda_exact"):
        hessian = "exact" if kind == "panda_exact" else "gauss-newton"
        problem, how = panda_problem(robot, q, target), plan.Options(hessian=hessian)
        solving = jax.jit(lambda x: plan.solve(problem, x, None, how)), begin
    elif kind == "panda_batch":
        starts, targets = (jnp.asarray(x, jnp.float32) for x in drawn(1024))

        def solve(q: jax.Array, target: jax.Array) -> plan.Plan:
            return plan.solve(panda_problem(robot, q, target), (q, jnp.zeros_like(q)))

        solving = jax.jit(jax.vmap(solve)), starts, targets
    elif kind == "ik":
        places, turns = jnp.tile(target, (100, 1)), jnp.tile(jnp.eye(3), (100, 1, 1))

        def near(place: jax.Array, turn: jax.Array) -> plan.IKSolution:
            return plan.inverse_kinematics(robot, "hand", (place, turn))

        solving = jax.jit(jax.vmap(near)), places, turns
    elif kind == "motion":
        solving = jax.jit(lambda q: plan.reach(robot, q, q + 0.3)), q
    else:
        robot = dynamics.load_robot("a1")
        feet = ("FR_foot", "FL_foot", "RR_foot", "RL_foot")
        held = np.ones((20, 4), bool)
        walk = plan.Problem(
            robot,
            20,
            0.01,
            {"cones": plan.friction_cone(), "speed": plan.velocity(weight=0.1)},
            control_limits=True,
            contacts=plan.schedule(feet, held),
        )
        q = jnp.asarray(robot.q_default)
        solving = jax.jit(lambda q: plan.solve(walk, (q, jnp.zeros(robot.nv)))), q
    call, *given = solving
    jax.block_until_ready(call(*given))
    between = time.perf_counter()
    jax.block_until_ready(call(*given))
    return [between - began, time.perf_counter() - between]


def policy_calls(env_id: str, how: dict[str, Any]) -> list[float]:
    """Seconds of a policy's `begin`, of its first action, and of another."""
    import jax

    import fraxenv
    from fraxenv.envs import mpc_policy
    from fraxenv.kernels import keep_programs

    keep_programs()
    env, params = fraxenv.make(env_id, **how)
    key = jax.random.key(0)
    obs = jax.block_until_ready(env.reset(key, params)[0])
    policy = mpc_policy(env, params)
    begin, act = jax.jit(policy.begin), jax.jit(policy)
    times = [time.perf_counter()]
    memory = jax.block_until_ready(begin(obs))
    times.append(time.perf_counter())
    for _ in range(2):
        jax.block_until_ready(act(obs, key, memory))
        times.append(time.perf_counter())
    return [after - before for before, after in itertools.pairwise(times)]


def main(options: Options) -> None:
    """Measure, and print."""
    if options.child:
        print("seconds", *first_calls(options.only[0]))
        return
    table = Table("", "caches empty, s", "cached, s", "another call, s")
    for kind in track(options.only, description="kinds"):
        cells, another = [], 0.0
        with tempfile.TemporaryDirectory() as cache:
            for _ in range(2):
                command = [sys.executable, __file__, "--child", "--only", kind]
                env = os.environ | {"XDG_CACHE_HOME": cache}
                told = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
                *first, another = map(float, told.stdout.rsplit("seconds", 1)[1].split())
                cells.append(" + ".join(f"{x:.1f}" for x in first))
        table.add_row(kind, *cells, f"{another:.2g}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main(tyro.cli(Options))
