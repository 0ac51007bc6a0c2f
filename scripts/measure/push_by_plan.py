"""How plans through contact push a cube, beside the scripted expert: PandaPush-v0.

    python scripts/measure/push_by_plan.py
    python scripts/measure/push_by_plan.py --ways scripted dragged dragged-50 --episodes 256
    python scripts/measure/push_by_plan.py --ways whole --episodes 16

Model-predictive control with the torques of the arm as actions; every plan begins with the last.
The hand is sent to a station behind the cube as seen from the goal, first above it, then down; once
it is there, into the cube, so that it touches; and the cube to the goal. Ways to plan:

- "dragged": the cube moves in the plane, and what the table's friction does at a tenth of a metre a
  second resists it in proportion to its speed; two balls in the place of the pads touch it.
- "dragged-50": the same with 50 plans a second in place of 100, of steps twice as long.
- "aimless": as "dragged", but the cube's distance from the goal costs nothing.
- "balls": the cube is free, and lies on the table; two balls in the place of the pads.
- "whole": the environment's own scene, pads and table and all, its contacts softer.

Success is that of the last step, and "once" that of any; the time to the goal is that after which
every step is one of success. Plans of one robot alone are those of the first episode, again.
"Converged" and "regularisation" are how plans end that begin at rest where a pad touches the cube
and are given 50 iterations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
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
from fraxenv.dynamics import (
    Robot,
    Scene,
    SceneObject,
    Terms,
    build_scene,
    compute_terms,
    frame_pose,
    plane_geom,
    sphere_geom,
)
from fraxenv.dynamics.math.algebra import matmul, norm
from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.dynamics.math.rotation import quaternion_to_matrix, rotation_exp
from fraxenv.dynamics.model.robot import Joint
from fraxenv.envs import Environment, EnvParams, block
from fraxenv.envs.observed import terms_of
from fraxenv.envs.tasks.experts import push
from fraxenv.recording.scripted import expert_policy

Way = Literal["scripted", "dragged", "dragged-50", "aimless", "balls", "whole"]

ID, SECONDS = "PandaPush-v0", 3.0
HAND, CUBE, TABLE = "hand", "cube", "table"
HORIZON = 0.35
"""s, of a plan."""

BALL, BESIDE = 0.00875, 0.0076
"""m, half the thickness of a pad, the radius of the balls; and half its width, where they are."""

DRAG_SPEED, ARM = 0.1, 0.0153
"""m/s, at which the cube resists a plan as the table's friction does; and m, the mean distance of
its points from the middle.
"""

STATION, ABOVE = 0.055, 0.06
"""m, of the hand behind the cube before it pushes, and above it on its way there."""

INSIDE, ROUND = 0.024, 0.01
"""m, of the hand behind the cube when it pushes, 5 mm nearer than where it touches; and m from the
goal, over which "behind" is rounded off.
"""

THERE = 0.008
"""m, of the cube from its goal, from where on the hand stays where it is."""


@dataclass(frozen=True)
class Options:
    """Options of the measurement.

    Attributes:
        ways: to push.
        episodes: of each.
        seed: decides them.
        iterations: of each plan.
        ends: how many plans are solved to their ends; none if 0.
    """

    ways: tuple[Way, ...] = ("scripted", "dragged", "dragged-50", "aimless")
    episodes: int = 64
    seed: int = 0
    iterations: int = 2
    ends: int = 0


@pytree_dataclass
class Seen:
    """Where a plan begins, and what it is aimed at.

    Attributes:
        q: (nq,), of robot and cube as they are planned.
        v: (nv,).
        aim: references.
    """

    q: Array
    v: Array
    aim: Any


@dataclass(frozen=True)
class _Push:
    """From the hand to its station; or, once it pushes, to a point in the cube (3,), m."""

    def __call__(self, robot: Robot, terms: Terms, tau: Array, aim: Any) -> Array:
        goal, station, pushes = aim
        hand, cube = (frame_pose(robot, terms.q, n, kin=terms.kin)[0] for n in (HAND, CUBE))
        way = (goal - cube)[:2]
        ahead = way / jnp.sqrt(jnp.sum(way * way) + ROUND**2)
        inside = jnp.append(cube[:2] - INSIDE * ahead, goal[2])
        # Height counts for more: pads that are too high tilt the cube, and go over it.
        return (hand - station - pushes * (inside - station)) * jnp.array([1.0, 1.0, 2.0])


@dataclass(frozen=True)
class Planner:
    """A policy with a memory, of the environment's state."""

    env: Environment
    mpc: plan.MPC

    def see(self, obs: Array, state: Any) -> Seen:
        """Where a plan begins, of an observation and the state behind it."""
        robot, cube = self.mpc.problem.robot, state.world.scene.objects[CUBE]
        q, v = cube.q, cube.v
        if robot.nv < self.env.robot.nv + 6:  # the cube is dragged
            x = quaternion_to_matrix(q[3:])[:, 0]
            q, v = jnp.append(q[:2], jnp.arctan2(x[1], x[0])), jnp.append(v[:2], v[5])
        seen = terms_of(self.env, obs)
        goal = seen["goal_position"]
        position, rotation = frame_pose(self.env.robot, state.q, HAND)
        _, turn, _ = push(seen, self.env.default_params.task)
        aim = {
            "push": (goal, *station(position, seen["object_position"], goal)),
            "cube": goal,
            "turn": matmul(rotation_exp(turn), rotation),
        }
        return Seen(jnp.concatenate([state.q, q]), jnp.concatenate([state.v, v]), aim)

    def begin(self, seen: Seen) -> plan.MPCState:
        """The memory at the beginning of an episode."""
        return self.mpc.init(self.mpc.problem.robot, self._terms(seen))

    def __call__(self, seen: Seen, memory: plan.MPCState) -> tuple[Array, plan.MPCState]:
        """The action (7,), and the next memory."""
        robot, terms = self.mpc.problem.robot, self._terms(seen)
        new = self.mpc.replan(robot, terms, seen.aim, memory)
        high = jnp.asarray(self.env.robot.effort_limits)
        tau = self.mpc.torque(robot, terms, new)[: len(high)]
        return jnp.clip(tau / high, -1.0, 1.0), self.mpc.later(new, 1.0 / self.env.policy_hz)

    def _terms(self, seen: Seen) -> Terms:
        return compute_terms(self.mpc.problem.robot, seen.q, seen.v)


def station(hand: Array, cube: Array, goal: Array) -> tuple[Array, Array]:
    """Where the hand is to be before it pushes (3,), m, and whether it pushes, 0 or 1."""
    way = (goal - cube)[:2]
    distance = norm(way)
    ahead = way / jnp.maximum(distance, 1e-6)
    off = (cube - hand)[:2]
    along, across = jnp.sum(off * ahead), off[1] * ahead[0] - off[0] * ahead[1]
    touches = along < 0.045
    behind = (along > 0.015) & (jnp.abs(across) < jnp.where(touches, 0.02, 0.012))
    low = jnp.abs(hand[2] - cube[2]) < jnp.where(touches, 0.016, 0.01)
    place = cube[:2] - STATION * ahead
    over = norm(hand[:2] - place) < 0.015
    place = jnp.append(place, goal[2] + jnp.where(over, 0.0, ABOVE))
    there = distance < THERE
    return jnp.where(there, hand, place), jnp.where(behind & low & ~there, 1.0, 0.0)


def planned_scene(env: Environment, way: Way, dt: float) -> Scene:
    """What is planned: arm and cube, with contacts whose time constant is two steps."""
    physics: Any = env.physics
    if way == "whole":
        scene = physics.scene
    else:
        cube = block(CUBE)
        balls = [
            sphere_geom(f"ball_{i}", BALL, frame="panda_hand_tcp", position=(0.0, y, 0.0))
            for i, y in enumerate((-BESIDE, BESIDE))
        ]
        free = way == "balls"
        scene = build_scene(
            env.robot,
            [cube if free else dragged(cube)],
            [plane_geom(TABLE)] if free else [],
            geoms=balls,
            pairs=[*((b.name, CUBE) for b in balls), *([(CUBE, TABLE)] if free else [])],
            impratio=10.0,
            integrator="discrete",
        )
    geoms = scene.constraints.geoms
    solref = np.array(geoms.solref)
    solref[:, 0] = 2.0 * dt
    softer = dataclasses.replace(geoms, solref=solref)
    return dataclasses.replace(
        scene, constraints=dataclasses.replace(scene.constraints, geoms=softer)
    )


def dragged(cube: SceneObject) -> SceneObject:
    """The cube in the plane, with a resistance in proportion to its speed."""
    model, nothing, unlimited = cube.model, np.zeros(3), np.full(3, np.inf)
    drag = float(model.mass[0]) * 9.81 / DRAG_SPEED
    moved = model.replace(
        topology=dataclasses.replace(
            model.topology,
            joints=(Joint(CUBE, "planar", np.array([0.0, 0.0, 1.0])),),
            position=np.asarray(model.q_default)[None, :3] * [0, 0, 1],
        ),
        armature=nothing,
        damping=drag * np.array([1.0, 1.0, ARM**2]),
        friction=nothing,
        position_limits=np.stack([-unlimited, unlimited], axis=1),
        stop_stiffness=nothing,
        stop_damping=nothing,
        velocity_limits=unlimited,
        effort_limits=nothing,
        effort_rate_limits=unlimited,
        q_default=np.append(np.asarray(model.q_default)[:2], 0.0),
    )
    return SceneObject(moved, cube.geoms)


def problem_of(env: Environment, way: Way) -> plan.Problem:
    """The plan's problem, in steps as long as the policy's."""
    dt = 1.0 / env.policy_hz
    scene = planned_scene(env, way, dt)
    n, arm = scene.nv, np.arange(scene.nv) < env.robot.nv
    sliding = np.isin(np.arange(n), env.robot.nv + np.arange(2 if n == 10 else 3))
    goal, down = np.zeros(3), np.diag([1.0, -1.0, -1.0])

    def terms(share: float) -> dict[str, plan.Residual]:
        near: Any = {"norm": plan.l2(0.02)}
        aim = goal, goal, np.zeros(())
        return {
            "push": plan.residual(_Push(), aim, share * 60.0, **near),
            "cube": plan.position(CUBE, goal, share * 40.0 * (way != "aimless"), **near),
            "turn": plan.orientation(HAND, down, share * 40.0),
        }

    running = {
        **terms(1.0),
        "posture": plan.posture(scene.system.q_default, 0.05 * arm),
        "still": plan.velocity(weight=1.0 * arm + 15.0 * sliding),
        "effort": plan.torque(weight=3e-3 * arm, beyond_gravity=True),
    }
    terminal = {**terms(0.2), "still at the end": plan.velocity(weight=0.05 * arm)}
    steps = round(HORIZON / dt)
    return plan.Problem(scene, steps, dt, running, terminal, control_limits=True)


def made(way: Way) -> tuple[Environment, EnvParams]:
    """The environment, with the actions of a way to push."""
    if way == "scripted":
        return fraxenv.make(ID)
    hz = 50 if way.endswith("50") else 100
    steps = round(SECONDS * hz)
    return fraxenv.make(ID, action="torque", policy_hz=hz, max_steps_in_episode=steps)


def main(options: Options) -> None:
    """Run, and print the table."""
    table = Table(
        "way", "success", "once", "time to goal, s", "90 %", "at the end, mm", "90 %",
        "rad/s, 99 %", "ms a plan", "95 %", "compiles, s",
        title=f"{ID}, {options.episodes} episodes",
    )  # fmt: skip
    told = []
    for way in options.ways:
        env, params = made(way)
        planner = None
        if way != "scripted":
            mpc = plan.MPC(problem_of(env, way), plan.Options(options.iterations))
            planner = Planner(env, mpc)
        began = perf_counter()
        run = jax.jit(partial(rollout, env, params, planner, options.episodes))
        compiled = run.lower(options.seed).compile()
        built = perf_counter() - began
        out, seen, touched = jax.device_get(compiled(options.seed))
        success, off = out["success"], 1e3 * out["distance"][-1]
        last = np.where(success.all(0), 0, len(success) - np.argmax(~success[::-1], axis=0))
        times = last[success[-1]] / env.policy_hz
        took = [] if planner is None else times_of_plans(planner, seen)
        table.add_row(
            way,
            f"{100 * success[-1].mean():.1f} %",
            f"{100 * success.any(0).mean():.1f} %",
            *(f"{np.quantile(times, p):.2f}" if len(times) else "-" for p in (0.5, 0.9)),
            *(f"{np.quantile(off, p):.1f}" for p in (0.5, 0.9)),
            f"{np.quantile(out['speed'], 0.99):.1f}",
            *(f"{1e3 * np.quantile(took, p):.2f}" if len(took) else "-" for p in (0.5, 0.95)),
            f"{built:.0f}",
        )
        if planner is not None and options.ends:
            told.append(f"{way}: {ends(planner, seen, touched, options.ends)}")
    Console(width=130).print(table)
    print(*told, sep="\n")


def times_of_plans(planner: Planner, seen: Seen) -> list[float]:
    """s, of each plan of the first episode."""
    first = [jax.tree.map(lambda x, k=k: x[k, 0], seen) for k in range(len(seen.q))]
    act, memory = jax.jit(planner), planner.begin(first[0])
    jax.block_until_ready(act(first[0], memory))
    times = []
    for one in first:
        began = perf_counter()
        _, memory = jax.block_until_ready(act(one, memory))
        times.append(perf_counter() - began)
    return times


def ends(planner: Planner, seen: Seen, touched: np.ndarray, count: int) -> str:
    """How plans end that begin at rest, from states in which a pad touches the cube."""
    which = np.flatnonzero(touched.ravel())
    which = which[np.linspace(0, len(which) - 1, count).astype(int)]
    some = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[which], seen)
    problem = planner.mpc.problem

    def solved(one: Seen) -> Any:
        def aimed(terms: Any) -> Any:
            own = {k: dataclasses.replace(terms[k], reference=x) for k, x in one.aim.items()}
            return {**terms, **own}

        own = dataclasses.replace(
            problem, running=aimed(problem.running), terminal=aimed(problem.terminal)
        )
        found = plan.solve(own, (one.q, one.v), plan.guess(own, one.q, one.v), plan.Options(50))
        return found.status, found.iterations

    status, iterations = jax.device_get(jax.jit(jax.vmap(solved))(some))
    shares = (f"{100 * np.mean(status == i):.0f} % {name}" for i, name in enumerate(plan.STATUS))
    return f"{', '.join(shares)}; {np.median(iterations):.0f} iterations in the median"


def rollout(
    env: Environment, params: EnvParams, planner: Planner | None, episodes: int, seed: Any
) -> Any:
    """What was measured, where plans began, and whether a pad touched the cube then.

    Leading axes are steps and episodes.
    """
    keys = jax.random.split(jax.random.key(seed), episodes)
    obs, state = jax.vmap(lambda key: env.reset_env(key, params))(keys)
    physics: Any = env.physics
    on_cube = np.array([CUBE in pair and TABLE not in pair for pair in physics.pairs])
    scripted: Callable[..., Any] | None = None if planner else expert_policy(env, params)
    memory = None if planner is None else jax.vmap(planner.begin)(jax.vmap(planner.see)(obs, state))

    def step(carry: Any, _: None) -> tuple[Any, Any]:
        obs, state, memory = carry
        seen = None
        if scripted is not None:
            action = jax.vmap(scripted)(obs, keys)
        else:
            assert planner is not None
            seen = jax.vmap(planner.see)(obs, state)
            action, memory = jax.vmap(planner)(seen, memory)
        touched = jnp.any(state.world.contacts.normal_force[:, on_cube] > 0, axis=1)
        obs, state, _, _, info = jax.vmap(lambda k, s, a: env.step_env(k, s, a, params))(
            keys, state, action
        )
        measured = {
            "success": info["success"],
            "distance": info["object_distance"],
            "speed": jnp.max(jnp.abs(state.v), axis=-1),
        }
        return (obs, state, memory), (measured, seen, touched)

    steps = int(env.default_params.max_steps_in_episode)
    return jax.lax.scan(step, (obs, state, memory), length=steps)[1]


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
