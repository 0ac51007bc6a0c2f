"""What the safety filter does in bad worlds: the numbers of docs/safety.md, "Bad worlds".

Arms of `PandaReachObstacles-v0` do random actions for a second. Then an obstacle has no place any
more, or is in the hand, or a motor dies; and arms that swing about on their own have sensors that
freeze. Another second is looked at.

    python scripts/measure/bad_worlds.py
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
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
from fraxenv import dynamics
from fraxenv.controllers import MomentumObserver, Robustness, SafetyFilter
from fraxenv.dynamics import Sphere
from fraxenv.kernels import fusible

ID = "PandaReachObstacles-v0"
STEPS = 50
"""Policy steps before and after, 1 s."""
DT = 0.001
FREEZES = 500
"""Physics steps of an arm that swings, before its sensors freeze."""
RESTS = 0.01
"""rad/s, below which an arm counts as at rest."""


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    arms: int = 1024
    """Of each row."""
    filters: tuple[str, ...] = ("cbf", "robust")
    """Which filters."""
    seed: int = 0
    """Of scenes, actions and swings."""


def rolled(env: Any, params: Any, state: Any, key: Array) -> tuple[Any, dict[str, np.ndarray]]:
    """A second of random actions: the state after it, and what happened, (steps, arms, ...)."""
    n = len(state.q)

    def act(state: Any, key: Array) -> Any:
        action = jax.random.uniform(key, (n, env.num_actions), minval=-1.0)
        keys = jax.random.split(key, n)
        _, state, *_, info = jax.vmap(env.step_env, (0, 0, 0, None))(keys, state, action, params)
        told = {"v": state.v, "q": state.q, "clearance": info["clearance"]}
        told |= {"feasible": info["safety"]["feasible"], "torque": info["controller"]["torque"]}
        if state.observer_state is not None:
            told["estimate"] = state.observer_state.estimate
        return state, told

    @jax.jit
    def roll(state: Any) -> Any:
        return jax.lax.scan(act, state, jax.random.split(key, STEPS))

    return jax.tree.map(np.asarray, roll(state))  # type: ignore[no-any-return]


def with_nearest(robot: dynamics.Robot, state: Any, place: Array) -> Any:
    """The states with the sphere that is nearest to the hand at another place (n, 3), m."""
    balls = state.world.obstacles.spheres
    hand = jax.vmap(lambda q: dynamics.frame_pose(robot, q, "hand")[0])(state.q)
    far = jnp.linalg.norm(balls.position - hand[:, None], axis=-1)
    far = jnp.where(state.world.obstacles.active, far, jnp.inf)
    nearest = jnp.arange(far.shape[1]) == jnp.argmin(far, axis=1)[:, None]
    moved = jnp.where(nearest[..., None], place[:, None], balls.position)
    obstacles = dataclasses.replace(state.world.obstacles, spheres=Sphere(moved, balls.radius))
    return state.replace(world=dataclasses.replace(state.world, obstacles=obstacles))


def in_environments(safety: str, options: Options) -> Iterator[tuple[str, str]]:
    """What happens, and what becomes of it."""
    n, keys = options.arms, jax.random.split(jax.random.key(options.seed), 4)
    env, params = fraxenv.make(ID, safety=safety, actuators=dynamics.Actuators(gain=jnp.ones(7)))
    robot, limit = env.robot, np.asarray(env.robot.effort_limits, np.float32)
    _, state = jax.jit(jax.vmap(env.reset, (0, None)))(jax.random.split(keys[0], n), params)
    state, _ = rolled(env, params, state, keys[1])
    state = jax.tree.map(jnp.asarray, state)

    def after(state: Any, params: Any = params) -> dict[str, np.ndarray]:
        found = rolled(env, params, state, keys[2])[1]
        assert np.isfinite(found["torque"]).all()
        assert (np.abs(found["torque"]) <= limit).all()
        return found

    yield "nothing", told(after(state))
    found = after(with_nearest(robot, state, jnp.full((n, 3), jnp.nan)))
    moves = np.abs(found["v"]).max(axis=-1) > RESTS
    rest = np.where(moves.any(axis=0), STEPS - np.argmax(moves[::-1], axis=0), 0) / env.policy_hz
    yield (
        "an obstacle has no place",
        f"{(~found['feasible']).mean():.1%} of the policy steps infeasible; at rest after "
        f"{1e3 * np.median(rest):.0f} ms in the median, {1e3 * rest.max():.0f} ms at most",
    )
    place = jax.vmap(lambda q: dynamics.frame_pose(robot, q, "hand")[0])(state.q)
    place = place + 0.02 * jax.random.normal(keys[3], place.shape)
    found = after(with_nearest(robot, state, place))
    inside = found["clearance"] < 0
    left = np.where(inside.any(axis=0), STEPS - np.argmax(inside[::-1], axis=0), 0) / env.policy_hz
    speed = (np.abs(found["v"]) / np.asarray(robot.velocity_limits)).max()
    yield (
        "an obstacle is in the hand",
        f"{-1e3 * np.median(found['clearance'][0]):.0f} mm deep in the median after a policy step; "
        f"left after {1e3 * np.median(left):.0f} ms in the median, 99 % of arms after "
        f"{1e3 * np.quantile(left, 0.99):.0f} ms; {inside[-1].sum()} of {n} inside after 1 s; "
        f"{speed:.1%} of the limits of speed at most",
    )
    for joint in range(7):
        gain = jnp.ones(7).at[joint].set(0.0)
        found = after(
            state,
            params.replace(actuators=dynamics.Actuators(gain=gain, steps=params.actuators.steps)),
        )
        yield f"the motor of joint {joint + 1} dies", told(found, joint)


def told(found: dict[str, np.ndarray], joint: int | None = None) -> str:
    """Collisions and what the filter says; and of a joint by how much its estimate is off."""
    text = (
        f"{(found['clearance'] < 0).sum()} of {found['clearance'].size} policy steps in collision, "
        f"{1e3 * max(0.0, -found['clearance'].min()):.0f} mm deep; "
        f"{(~found['feasible']).sum()} infeasible"
    )
    if joint is None or "estimate" not in found:
        return text
    late = slice(10, None)
    missing, estimate = -found["torque"][late, :, joint], found["estimate"][late, :, joint]
    off = np.abs(estimate - missing)
    return (
        f"{text}; missing {np.median(np.abs(missing)):.2g} N m in the median, estimate off by "
        f"{np.median(off):.2g} N m in the median"
    )


def frozen(options: Options, sensors: list[int], mass: float, resolution: float) -> str:
    """Arms that swing at up to 0.8 rad/s, and whose sensors freeze: what becomes of the speed."""
    robot, safety = dynamics.load_robot("panda"), SafetyFilter(robust=Robustness())
    true = dynamics.with_payload(robot, dynamics.Payload("hand", mass, (0.0, 0.0, 0.05)))
    motors, idle = dynamics.Actuators(), dynamics.ActuatorState()
    observer = MomentumObserver(gain=100.0, resolution=resolution)
    rng = np.random.default_rng(options.seed)
    middle = robot.q_default + 0.2 * rng.normal(size=(options.arms, 7))
    swing = rng.uniform(-0.3, 0.3, (options.arms, 7))
    stuck = np.isin(np.arange(7), sensors)

    def move(carry: Any, time: Array, middle: Array, swing: Array) -> Any:
        q, v, sensed, state = carry
        fails = time >= DT * FREEZES
        seen_q, seen_v = (
            jnp.where(stuck & fails, old, new) for old, new in zip(sensed, (q, v), strict=True)
        )
        terms = dynamics.compute_terms(robot, seen_q, seen_v)
        state = observer(robot, terms, state, DT)
        terms = observer.believed(robot, terms, state, DT)
        seen = observer.informed(terms, state)
        push = 100 * (middle + swing * jnp.sin(3.0 * time) - seen_q) - 20 * seen_v
        tau = seen.bias + terms.mass_matrix @ push
        bounds = motors.range(robot, seen_v, idle, DT)
        tau, report = safety(robot, seen, tau, DT, bounds=bounds, error=state.error)
        _, command, _ = motors(robot, tau, seen_v, idle, DT)
        state = observer.after(robot, terms, command, state, DT)
        applied, _, _ = motors(robot, command, v, idle, DT)
        q, v = dynamics.step(true, q, v, applied, DT)
        return (q, v, (seen_q, seen_v), state), report["feasible"]

    q = jnp.asarray(middle, float)
    v = jnp.zeros_like(q)
    first = jax.vmap(lambda q, v: observer.init(dynamics.compute_terms(robot, q, v)))(q, v)
    step = jax.jit(jax.vmap(fusible(move), (0, None, 0, 0)))
    carry, speeds, feasible = (q, v, (q, v), first), [], []
    for k in range(FREEZES + 1000):
        carry, met = step(carry, DT * k, jnp.asarray(middle, float), jnp.asarray(swing, float))
        speeds.append(np.abs(carry[1]).max(axis=1))
        feasible.append(np.asarray(met))
    at = {ms: np.quantile(speeds[FREEZES - 1 + ms], 0.99) for ms in (0, 100, 250, 1000)}
    seen = 1 - np.mean(feasible[FREEZES + 5 :])
    alarms = 1 - np.mean(feasible[:FREEZES])
    return (
        ", ".join(f"{x:.2g} rad/s after {ms} ms" for ms, x in at.items())
        + f" (99 % of arms below); seen in {seen:.1%} of the steps after, {alarms:.1%} before"
    )


def main(options: Options) -> None:
    """Print the tables."""
    table = Table(title=f"{ID}, {options.arms} arms")
    for heading in ("filter", "what happens", "what becomes of it"):
        table.add_column(heading)
    for safety in options.filters:
        for what, found in in_environments(safety, options):
            table.add_row(safety, what, found)
    console = Console(width=150)
    console.print(table)
    table = Table(title=f"Sensors that freeze, {options.arms} arms that swing, robust filter")
    for heading in ("what freezes", "what becomes of it"):
        table.add_column(heading)
    rows = {
        "nothing is looked for": (list(range(7)), 0.0, 10.0),
        "all sensors": (list(range(7)), 0.0, 1e-5),
        "all sensors, 1 kg unknown": (list(range(7)), 1.0, 1e-5),
        "that of joint 4": ([3], 0.0, 1e-5),
    }
    for what, arguments in rows.items():
        table.add_row(what, frozen(options, *arguments))
    console.print(table)


if __name__ == "__main__":
    main(tyro.cli(Options))
