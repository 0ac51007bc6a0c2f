"""How model-predictive control does in environments, beside the scripted policy.

    python scripts/measure/predictive_control.py
    python scripts/measure/predictive_control.py --ids PandaReachObstacles-v0 --episodes 5000
    python scripts/measure/predictive_control.py --ids A1Trot-v0 B2Z1Track-v0 --episodes 40

Of each environment: the scripted policy, where there is one, and the policy "mpc" with its actions;
"mpc" with torques at the policy's rate; and plans at 100 Hz, of hands with gains that act at the
rate of control. Success is that of the last step; the time to the goal that after which every step
is one of success; torques are squared and averaged over joints and steps. "Filtered" is the share
of steps in which the safety filter changed something. Of a hand that tracks on what walks, the rms
distance from its reference after half a second. The time of a plan alone is that
of the policy "mpc" with torques.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from jax.typing import ArrayLike
from rich.console import Console
from rich.table import Table

import fraxenv
from fraxenv import plan
from fraxenv.dynamics import Robot, Terms
from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.envs import Environment, EnvParams, Trot, mpc_policy
from fraxenv.recording.policies import MemoryPolicy, with_memory
from fraxenv.recording.scripted import scripted_policy

PLANS_HZ = 100


@dataclass(frozen=True)
class Options:
    """Options of the measurement.

    Attributes:
        ids: of the environments.
        episodes: of each.
        seed: decides them.
        iterations: of each plan.
    """

    ids: tuple[str, ...] = ("PandaReach-v0", "PandaReachObstacles-v0")
    episodes: int = 1000
    seed: int = 0
    iterations: int = 1


@pytree_dataclass
class Follow:
    """The torques of a plan that somebody writes into the controller's state."""

    mpc: plan.MPC

    def init(self, robot: Robot, terms: Terms) -> plan.MPCState:
        """The robot stands still."""
        return self.mpc.init(robot, terms)

    def __call__(
        self, robot: Robot, terms: Terms, target: Any, state: plan.MPCState, dt: ArrayLike
    ) -> tuple[Array, plan.MPCState, dict[str, Array]]:
        """Torques (nv,); the state; nothing."""
        return self.mpc.torque(robot, terms, state), self.mpc.later(state, dt), {}


@dataclass(frozen=True)
class Replanned:
    """A policy whose plan a controller `Follow` is given; its memory is that controller's state."""

    policy: Any
    num_actions: int

    def begin(self, obs: Array) -> Any:
        """The plan to stand still."""
        return self.policy.begin(obs)

    def __call__(self, obs: Array, key: Array, memory: Any) -> tuple[Array, Any]:
        """An action that means nothing, and the new plan."""
        _, after = self.policy(obs, key, memory)
        new = self.policy.mpc.later(after, -1.0 / PLANS_HZ)
        return jnp.zeros(self.num_actions), new


def main(options: Options) -> None:
    """Run, and print a table for each environment."""
    for id in options.ids:
        table = Table(
            "policy", "success", "time to goal, s", "90 %", "torque^2", "filtered", "clearance, mm",
            "hand off, mm", "run, s", title=f"{id}, {options.episodes} episodes",
        )  # fmt: skip
        for name, env, params, policy, follows in ways(id, options.iterations):
            began = perf_counter()
            run = jax.jit(partial(rollout, env, params, policy, follows, options.episodes))
            compiled = run.lower(options.seed).compile()
            built = perf_counter() - began
            began = perf_counter()
            out = jax.device_get(compiled(options.seed))
            took = perf_counter() - began
            # Time from which on all is success.
            success = out["success"]
            last = np.where(success.all(0), 0, len(success) - np.argmax(~success[::-1], axis=0))
            times = last[success[-1]] / env.policy_hz
            table.add_row(
                name,
                f"{100 * success[-1].mean():.2f} %",
                f"{np.median(times):.2f}",
                f"{np.quantile(times, 0.9):.2f}",
                f"{out['torque'].mean():.1f}",
                f"{100 * out['intervened'].mean():.1f} %",
                f"{1000 * out['clearance'].min():.1f}",
                f"{1000 * np.sqrt(np.mean(out['hand'][env.policy_hz // 2 :] ** 2)):.2f}",
                f"{took:.1f} + {built:.0f}",
            )
        Console(width=110).print(table)
        print(f"A plan of one robot alone: {1e3 * time_of_a_plan(id, options.iterations):.2f} ms")


def time_of_a_plan(id: str, iterations: int, plans: int = 500) -> float:
    """s, the least of five means, one plan after the other."""
    env, params = fraxenv.make(id, action="torque")
    policy = mpc_policy(env, params, iterations)
    obs, _ = env.reset(jax.random.key(0), params)

    def again(memory: Any, _: None) -> tuple[Any, Array]:
        action, memory = policy(obs, jax.random.key(0), memory)
        return memory, action

    run = jax.jit(lambda obs: jax.lax.scan(again, policy.begin(obs), length=plans)[1])
    jax.block_until_ready(run(obs))
    times = []
    for _ in range(5):
        began = perf_counter()
        jax.block_until_ready(run(obs))
        times.append((perf_counter() - began) / plans)
    return min(times)


def ways(id: str, iterations: int) -> list[tuple[str, Environment, EnvParams, Any, bool]]:
    """What is compared: name, environment, parameters, policy, whether its plans are followed."""
    env, params = fraxenv.make(id)
    direct, torque = fraxenv.make(id, action="torque")
    fast, own = fraxenv.make(
        id, action="torque", policy_hz=PLANS_HZ, max_steps_in_episode=3 * PLANS_HZ
    )
    planner = mpc_policy(fast, own, iterations)
    followed = own.replace(controller=Follow(planner.mpc))
    walks = isinstance(params.task, Trot)
    planned = [
        ("mpc", env, params, mpc_policy(env, params, iterations), False),
        ("mpc, torques", direct, torque, mpc_policy(direct, torque, iterations), False),
    ]
    if walks:  # nothing is scripted, and a plan's world is not the controller's
        return [*planned, (f"mpc, torques, {PLANS_HZ} Hz", fast, own, planner, False)]
    gains = Replanned(planner, fast.num_actions)
    return [
        ("scripted", env, params, scripted_policy(env, params), False),
        *planned,
        (f"mpc, {PLANS_HZ} Hz, gains", fast, followed, gains, True),
    ]


def rollout(
    env: Environment,
    params: EnvParams,
    policy: Callable[..., Any] | MemoryPolicy,
    follows: bool,
    episodes: int,
    seed: Any,
) -> dict[str, Array]:
    """What was measured at every step, (steps, episodes) each."""
    act = with_memory(policy)
    keys = jax.random.split(jax.random.key(seed), episodes)
    obs, state = jax.vmap(lambda key: env.reset_env(key, params))(keys)
    memory = jax.vmap(act.begin)(obs)

    def step(carry: Any, _: None) -> tuple[Any, dict[str, Array]]:
        obs, state, memory = carry
        action, memory = jax.vmap(act)(obs, keys, memory)
        if follows:
            state = state.replace(controller_state=memory)
        obs, state, _, _, info = jax.vmap(lambda k, s, a: env.step_env(k, s, a, params))(
            keys, state, action
        )
        if follows:
            memory = state.controller_state
        measured = {
            "success": info["success"],
            "torque": jnp.mean(info["controller"]["torque"] ** 2, axis=-1),
            "intervened": info["safety"]["intervened"],
            "clearance": info.get("clearance", jnp.full(episodes, jnp.nan)),
            "hand": info.get("hand_error", jnp.full(episodes, jnp.nan)),
        }
        return (obs, state, memory), measured

    steps = int(env.default_params.max_steps_in_episode)
    _, measured = jax.lax.scan(step, (obs, state, memory), length=steps)
    return measured


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
