"""Whether any torques could have avoided what a safety filter did not: a planner decides.

`PandaReachObstacles-v0` with spheres that move, as `unknown_robot.py` has it. Of every episode it
takes the first policy step in collision and the first one that the filter called infeasible, goes
back by some time, and has `plan.solve` look for torques within the limits that keep the arm off
spheres, off itself and within its joints' ranges from there on, for half a second. The planner
knows the robot as it is, and where each sphere will be. What it finds is checked between its knots:
then the step was avoidable. What it does not find from any of its guesses it may have missed.
The results are in docs/safety.md.

    python scripts/measure/avoidable.py
    python scripts/measure/avoidable.py --known --speed 0.1
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from unknown_robot import FILTERS, ID, RANDOMISED, Policy, towards

import fraxenv
from fraxenv import plan
from fraxenv.controllers import barriers
from fraxenv.dynamics import Obstacles, Robot, Sphere, integrate, obstacle_distances

DT, AHEAD = 0.005, 0.5
"""s, of a plan's steps, and of a plan."""

KEPT = 0.002
"""m, that a plan keeps at its knots."""

BETWEEN = 5
"""Places in each step of a plan at which it is checked."""

AT_A_TIME = 64
"""Steps, with a plan for each guess."""

ITERATIONS = 100
"""Of a plan."""

FADING = 0.1
"""s, in which a guess's motion fades."""

SWINGS = np.array([0.0, 1.0, -1.0], np.float32)
"""Guesses: the arm is at rest, or goes on as it does, or back, for a while; times its velocity."""


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    envs: int = 1024
    """Episodes of each row of the table."""
    moving: int = 4
    """Spheres of the eight that move, at up to `speed` along each axis."""
    speed: float = 0.5
    """m/s."""
    filters: tuple[str, ...] = ("robust", "robust, with foresight")
    """Of those of unknown_robot.py."""
    policies: tuple[Policy, ...] = ("random", "towards")
    """As there."""
    before: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4)
    """s, before the policy step began, from which there are plans."""
    known: bool = False
    """Whether the robot is the one that the filter knows."""
    most: int = 128
    """Steps that are judged of each kind, at most; 0 to count what happens, and no more."""
    seed: int = 0
    """Of the actions and the scenes."""


class Episodes(NamedTuple):
    """What happened in n episodes of k policy steps; states are those in which steps begin."""

    q: NDArray[Any]
    v: NDArray[Any]
    spheres: NDArray[Any]
    radius: NDArray[Any]
    collides: NDArray[Any]
    infeasible: NDArray[Any]
    robot: Robot


def recorded(name: str, policy: Policy, options: Options) -> tuple[Any, Episodes]:
    """The environment, and episodes in it."""
    task = {"moving_count": options.moving, "obstacle_speed": options.speed}
    drawn = None if options.known else RANDOMISED
    env, params = fraxenv.make(ID, task_options=task, randomisation=drawn, **FILTERS[name])
    n, steps = options.envs, int(params.max_steps_in_episode)

    def step(state: Any, key: Array) -> tuple[Any, tuple[Array, ...]]:
        key_action, key_step = jax.random.split(key)
        action = jax.random.uniform(key_action, (n, env.num_actions), minval=-1.0)
        spheres = state.world.obstacles.spheres
        if policy == "towards":
            action = jax.vmap(towards, (None, 0, 0, 0))(env.robot, state.q, spheres, action)
        keys = jax.random.split(key_step, n)
        new, *_, info = jax.vmap(env.step_env, (0, 0, 0, None))(keys, state, action, params)[1:]
        flags = info["clearance"] < 0, ~info["safety"]["feasible"]
        return new, (state.q, state.v, spheres.position, *flags)

    @jax.jit
    def roll(key: Array) -> tuple[Any, Any]:
        keys = jax.random.split(key, 2)
        _, state = jax.vmap(env.reset, (0, None))(jax.random.split(keys[0], n), params)
        return state, jax.lax.scan(step, state, jax.random.split(keys[1], steps))[1]

    state, found = roll(jax.random.key(options.seed))
    q, v, spheres, collides, infeasible = (np.moveaxis(np.asarray(x), 0, 1) for x in found)
    if state.episode is None:
        robot = jax.tree.map(lambda x: np.broadcast_to(x, (n, *np.shape(x))), env.robot)
    else:
        robot = jax.vmap(lambda own: own.true_robot(env.robot))(state.episode)
        robot = jax.tree.map(
            lambda x, like: jnp.broadcast_to(x, (n, *np.shape(like))), robot, env.robot
        )
    radius = np.asarray(state.world.obstacles.spheres.radius)
    return env, Episodes(q, v, spheres, radius, collides, infeasible, robot)


def first_steps(happened: NDArray[Any], back: int, ahead: int) -> list[tuple[int, int]]:
    """Episode and policy step of the first step in each episode in which something happened.

    Those that are left out are too near to an episode's beginning or end.
    """
    steps = happened.shape[1]
    first = [(e, int(np.argmax(row))) for e, row in enumerate(happened) if row.any()]
    return [(e, k) for e, k in first if k >= back and k + ahead < steps]


class Case(NamedTuple):
    """A state, what the robot is, and where the spheres will be."""

    robot: Robot
    q: Array
    v: Array
    path: Array
    radius: Array


def planner(policy_hz: int) -> Callable[[Case, Array], Array]:
    """Whether torques are found that avoid everything, for cases and for guesses."""
    horizon = round(AHEAD / DT)
    knots, fine = np.arange(horizon + 1) * DT, np.arange(horizon * BETWEEN + 1) * (DT / BETWEEN)
    kept = (
        barriers.obstacles(margin=KEPT),
        barriers.self_collision(),
        barriers.joint_position(),
        barriers.joint_velocity(),
    )
    cost = {"still": plan.velocity(weight=0.1), "effort": plan.torque(weight=1e-4)}

    def spheres(case: Case, times: Any) -> Sphere:
        place = times * policy_hz
        rows = np.minimum(place.astype(int), len(case.path) - 2)
        share = jnp.asarray(place - rows, case.q.dtype)[:, None, None]
        position = (1 - share) * case.path[rows] + share * case.path[rows + 1]
        return Sphere(position, jnp.broadcast_to(case.radius, position.shape[:2]))

    def one(case: Case, swing: Array) -> Array:
        robot, q, v = case.robot, case.q, case.v
        problem = plan.Problem(
            robot,
            horizon,
            DT,
            cost,
            control_limits=True,
            constraints=kept,
            obstacles=Obstacles(spheres=spheres(case, knots)),
            obstacles_each=True,
        )
        slower = swing * jnp.exp(-jnp.asarray(knots) / FADING)[:, None] * v
        along = FADING * (swing * v - slower)
        guess = plan.guess(problem, q)
        moving = jax.vmap(lambda dq: integrate(robot, q, dq, 1.0))(along)
        guess = guess._replace(q=moving, v=slower.at[0].set(v))
        found = plan.solve(problem, (q, v), guess, plan.Options(iterations=ITERATIONS))
        # Between knots joints go on at the velocity of the next one, as the step has it.
        rows = np.minimum(np.arange(len(fine)) // BETWEEN, horizon - 1)
        places = jax.vmap(lambda q, v, s: integrate(robot, q, v, s * DT))(
            found.q[rows], found.v[rows + 1], jnp.asarray(fine / DT - rows)
        )
        off = jax.vmap(lambda q, x: jnp.min(obstacle_distances(robot, q, Obstacles(spheres=x))))
        clear = jnp.min(off(places, spheres(case, fine))) > 0
        return (found.gap < 1e-3) & (found.violation < KEPT) & clear

    return jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))


def avoidable(
    solve: Callable[[Case, Array], Array], env: Any, seen: Episodes, at: list[tuple[int, int]]
) -> NDArray[Any]:
    """Whether steps (episode, number) had a way out from where they begin."""
    steps = round(AHEAD * env.policy_hz) + 1
    episode, step = np.array(at).T
    results = []
    for begin in range(0, len(at), AT_A_TIME):
        chosen = np.resize(np.arange(begin, min(begin + AT_A_TIME, len(at))), AT_A_TIME)
        e, k = episode[chosen], step[chosen]
        robot = jax.tree.map(itemgetter(e), seen.robot)
        path = np.stack([seen.spheres[i, j : j + steps] for i, j in zip(e, k, strict=True)])
        solved = solve(Case(robot, seen.q[e, k], seen.v[e, k], path, seen.radius[e]), SWINGS)
        results.append(np.asarray(solved).any(axis=1)[: len(at) - begin])
    return np.concatenate(results)


def main(options: Options) -> None:
    """Print the table."""
    titles = ["filter", "actions", "first step", "of 1000 episodes", "judged"]
    titles += [f"avoidable {t:g} s before" for t in options.before]
    table = Table(title=f"{ID}, {'as modelled' if options.known else 'everything randomised'}")
    for title in titles:
        table.add_column(title)
    rows = [(name, policy) for name in options.filters for policy in options.policies]
    solve: Any = None
    for name, policy in track(rows, description="filters and actions"):
        env, seen = recorded(name, policy, options)
        solve = solve or planner(env.policy_hz)
        back, ahead = (round(x * env.policy_hz) for x in (max(options.before), AHEAD))
        for what, happened in (("in collision", seen.collides), ("infeasible", seen.infeasible)):
            steps = first_steps(happened, back, ahead)
            count = f"{1000 * happened.any(axis=1).mean():.1f}"
            judged = steps[: options.most]
            shares = []
            for before in options.before if judged else ():
                earlier = [(e, k - round(before * env.policy_hz)) for e, k in judged]
                shares.append(f"{100 * avoidable(solve, env, seen, earlier).mean():.0f} %")
            table.add_row(name, policy, what, count, str(len(judged)), *shares)
    Console(width=150).print(table)


if __name__ == "__main__":
    main(tyro.cli(Options))
