"""How plans through contact pick a cube up, beside the scripted expert: PandaPick-v0.

    python scripts/measure/pick_by_plan.py
    python scripts/measure/pick_by_plan.py --ways planned led --episodes 64 --seed 1

Model-predictive control of the environment's own scene, pads and table and all, its contacts
softer, 100 plans a second; the arm's actions are the plan's torques, the gripper's the width to
which its spring pulls as the plan says. Where the hand is sent, and when it closes, is the
expert's. "planned": the cube's distance from the goal costs. "led": it costs nothing, and the hand
alone is sent to where the cube is at its goal.

Success is that of the last step, and "once" that of any; the time to the goal is that after which
every step is one of success. Plans are timed in the batch, with the environment's steps.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from rich.console import Console
from rich.table import Table

import fraxenv
from fraxenv import plan
from fraxenv.dynamics import Robot, Scene, Terms, compute_terms, frame_pose
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.math.rotation import rotation_exp
from fraxenv.envs import Environment, EnvParams
from fraxenv.envs.observed import terms_of
from fraxenv.envs.tasks.experts import OPEN, pick
from fraxenv.recording.scripted import expert_policy

Way = Literal["scripted", "planned", "led"]

ID, HAND, CUBE = "PandaPick-v0", "hand", "cube"
HZ, SECONDS, HORIZON = 100, 3.0, 35
FINGER = 7
"""Degree of freedom of the finger that is driven; the other follows."""

SOFT = 0.02
"""s, time constant of the plan's contacts; the environment's is 4 ms."""

SQUEEZE = 20.0
"""N, of the gripper's motor that closes."""


@dataclass(frozen=True)
class Options:
    """Options of the measurement.

    Attributes:
        ways: to pick.
        episodes: of each.
        seed: decides them.
        iterations: of each plan.
    """

    ways: tuple[Way, ...] = ("scripted", "planned", "led")
    episodes: int = 32
    seed: int = 0
    iterations: int = 2


@dataclass(frozen=True)
class _Grip:
    """Off the force that closes, in its unit; or off the open gripper, in 2 cm."""

    def __call__(self, robot: Robot, terms: Terms, tau: Array, closes: Array) -> Array:
        closing, opening = tau[FINGER] / SQUEEZE + 1.0, 50.0 * (terms.q[FINGER] - 0.5 * OPEN)
        return jnp.stack([closes * closing + (1.0 - closes) * opening])


@dataclass(frozen=True)
class Planner:
    """A policy with a memory, of the environment's state."""

    env: Environment
    params: EnvParams
    mpc: plan.MPC

    def begin(self, state: Any) -> plan.MPCState:
        """The memory at the beginning of an episode."""
        return self.mpc.init(self.mpc.problem.robot, self._terms(state))

    def __call__(
        self, obs: Array, state: Any, memory: plan.MPCState
    ) -> tuple[Array, plan.MPCState]:
        """The action (8,), and the next memory."""
        robot, terms, seen = self.mpc.problem.robot, self._terms(state), terms_of(self.env, obs)
        task: Any = self.params.task
        move, turn, width = pick(seen, task)
        position, rotation = frame_pose(robot, terms.q, HAND)
        aim = {
            "hand": position + move,
            "turn": matmul(rotation_exp(turn), rotation),
            "grip": jnp.where(width < 0.5 * OPEN, 1.0, 0.0),
            "cube": seen["goal_position"],
        }
        new = self.mpc.replan(robot, terms, aim, memory)
        tau = self.mpc.torque(robot, terms, new)[: FINGER + 1]
        law: Any = self.params.controller
        spring = 2.0 * (terms.q[FINGER] + tau[FINGER] / law.gripper_kp)
        low, high = jnp.asarray(
            [(a.low, a.high) for a in self.params.action.axes(self.env.robot)]
        ).T
        wanted = tau.at[FINGER].set(spring)
        action = jnp.clip(2.0 * (wanted - low) / (high - low) - 1.0, -1.0, 1.0)
        return action, self.mpc.later(new, 1.0 / HZ)

    def _terms(self, state: Any) -> Terms:
        cube = state.world.scene.objects[CUBE]
        q, v = jnp.concatenate([state.q, cube.q]), jnp.concatenate([state.v, cube.v])
        return compute_terms(self.mpc.problem.robot, q, v)


def problem_of(scene: Scene, way: Way) -> plan.Problem:
    """The plan's problem, of the scene with softer contacts."""
    geoms = scene.constraints.geoms
    solref = np.array(geoms.solref)
    solref[:, 0] = SOFT
    soft = dataclasses.replace(geoms, solref=solref)
    scene = dataclasses.replace(
        scene, constraints=dataclasses.replace(scene.constraints, geoms=soft)
    )
    dofs = np.arange(scene.nv)
    arm, finger, sliding = dofs < FINGER, dofs == FINGER, np.isin(dofs, FINGER + 1 + np.arange(3))
    goal, down = np.zeros(3), np.diag([1.0, -1.0, -1.0])

    def terms(share: float) -> dict[str, plan.Residual]:
        near: Any = {"norm": plan.l2(0.02)}
        return {
            "hand": plan.position(HAND, goal, share * 60.0, **near),
            "cube": plan.position(CUBE, goal, share * 20.0 * (way == "planned"), **near),
            "turn": plan.orientation(HAND, down, share * 40.0),
        }

    running = {
        **terms(1.0),
        "grip": plan.residual(_Grip(), np.zeros(()), 2.0),
        "posture": plan.posture(scene.system.q_default, 0.05 * arm),
        "still": plan.velocity(weight=1.0 * arm + 0.1 * finger + 2.0 * sliding),
        "effort": plan.torque(weight=3e-3 * arm, beyond_gravity=True),
    }
    terminal = {**terms(0.2), "still at the end": plan.velocity(weight=0.05 * arm)}
    return plan.Problem(scene, HORIZON, 1.0 / HZ, running, terminal, control_limits=True)


def main(options: Options) -> None:
    """Run, and print the table."""
    table = Table(
        "way", "success", "once", "time to goal, s", "90 %", "at the end, mm", "most",
        "ms a plan", "compiles, s", title=f"{ID}, {options.episodes} episodes",
    )  # fmt: skip
    for way in options.ways:
        env, params, planner = made(way, options.iterations)
        began = perf_counter()
        run = jax.jit(partial(rollout, env, params, planner, options.episodes))
        compiled = run.lower(options.seed).compile()
        built = perf_counter() - began
        began = perf_counter()
        success, distance = jax.device_get(compiled(options.seed))
        took = 1e3 * (perf_counter() - began) / success.size
        off = 1e3 * distance[-1]
        last = np.where(success.all(0), 0, len(success) - np.argmax(~success[::-1], axis=0))
        times = last[success[-1]] / env.policy_hz
        table.add_row(
            way,
            f"{100 * success[-1].mean():.1f} %",
            f"{100 * success.any(0).mean():.1f} %",
            *(f"{np.quantile(times, p):.2f}" if len(times) else "-" for p in (0.5, 0.9)),
            *(f"{np.quantile(off, p):.2f}" for p in (0.5, 1.0)),
            f"{took:.1f}" if planner else "-",
            f"{built:.0f}",
        )
    Console(width=120).print(table)


def made(way: Way, iterations: int) -> tuple[Environment, EnvParams, Planner | None]:
    """The environment, and what plans in it."""
    if way == "scripted":
        return *fraxenv.make(ID, max_steps_in_episode=round(SECONDS * 50)), None
    steps = round(SECONDS * HZ)
    env, params = fraxenv.make(ID, action="torque", policy_hz=HZ, max_steps_in_episode=steps)
    physics: Any = env.physics
    mpc = plan.MPC(problem_of(physics.scene, way), plan.Options(iterations))
    return env, params, Planner(env, params, mpc)


def rollout(
    env: Environment, params: EnvParams, planner: Planner | None, episodes: int, seed: Any
) -> tuple[Array, Array]:
    """Success, and the cube's distance from its goal, m, (steps, episodes) each."""
    keys = jax.random.split(jax.random.key(seed), episodes)
    obs, state = jax.vmap(lambda key: env.reset_env(key, params))(keys)
    memory = jax.vmap(planner.begin)(state) if planner else None
    scripted = None if planner else expert_policy(env, params)

    def step(carry: Any, _: None) -> tuple[Any, tuple[Array, Array]]:
        obs, state, memory = carry
        if planner is not None:
            action, memory = jax.vmap(planner)(obs, state, memory)
        else:
            action = jax.vmap(scripted)(obs, keys)  # type: ignore[arg-type]
        obs, state, _, _, info = jax.vmap(lambda k, s, a: env.step_env(k, s, a, params))(
            keys, state, action
        )
        return (obs, state, memory), (info["success"], info["object_distance"])

    steps = round(SECONDS * env.policy_hz)
    return jax.lax.scan(step, (obs, state, memory), length=steps)[1]  # type: ignore[no-any-return]


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
