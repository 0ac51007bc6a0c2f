"""Model-predictive control of a gait: what a plan of `Trot` costs, and what it is aimed at.

Terms, weights and norms are those of MuJoCo MPC's task "Quadruped Flat" (`mjpc/tasks/quadruped`,
Howell et al., arXiv 2212.00541).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.controllers import planning as plan
from fraxenv.controllers.planning.problem import cost
from fraxenv.dynamics import Robot, Scene, Terms, frame_pose
from fraxenv.dynamics.manifold import among_all
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.math.rotation import matrix_to_quaternion

from .environment import Environment
from .observed import expected
from .tasks.trot import Trot
from .tasks.trot_track import TrotTrack

STEP, HORIZON = 0.01, 35
"""s, of a step of a plan, and how many it has."""

GOAL, SWING, SWING_AT_END = "position", "gait", "gait at the end"
HAND, HAND_AT_END = "hand", "hand at the end"
"""Names of the terms whose references change."""

HAND_WEIGHT, HAND_ROUND = 2.0, 0.02
"""Of the hand's distance from a reference, and m, within which that is rounded off: ours."""

EFFORT, SIDEWAYS = 0.03 * 0.8**2, 4.0
"""Weights of a torque's squared share of its limit, and of how far hips turn out.

The latter against other joints. MuJoCo MPC has 0.02 / (N m) with motors of 40 N m.
"""


def gait_problem(
    scene: Scene, task: Trot, sole: float, home: ArrayLike | None = None, *, dt: float = STEP
) -> plan.Problem:
    """To a place in a gait, upright and balanced; its references are `gait_references`.

    Args:
        scene: of one robot on the ground.
        task: names of frames, and the gait.
        sole: world height of the feet's frames where they stand, m.
        home: (nq,), the configuration that is best for the joints; the default one if None.
        dt: s, of a step.
    """
    n, home = len(task.feet), scene.system.q_default if home is None else home
    during = _swinging(task, np.zeros((HORIZON, n)), sole, each=True)
    at_end = _swinging(task, np.zeros(n), sole, each=False)
    running = _costs(scene.system, task, home, during, effort=True)
    last = _costs(scene.system, task, home, at_end, effort=False)
    terminal = {k: dataclasses.replace(t, weight=t.weight * dt) for k, t in last.items()}
    return plan.Problem(scene, HORIZON, dt, running, terminal, control_limits=True)


def gait_references(
    task: Trot, time: Array, goal: ArrayLike, hand: Array | None = None, *, dt: float = STEP
) -> dict[str, Array]:
    """References of a plan that begins at a time of the gait, s, to a place (2,), m.

    And of the places (HORIZON + 1, 3), m, of a hand that tracks.
    """
    heights = task.heights(time + dt * jnp.arange(HORIZON + 1))
    own = {GOAL: jnp.asarray(goal), SWING: heights[:HORIZON], SWING_AT_END: heights[HORIZON]}
    return own if hand is None else {**own, HAND: hand[:HORIZON], HAND_AT_END: hand[HORIZON]}


def gait_cost(
    problem: plan.Problem,
    task: Trot,
    sole: float,
    terms: Terms,
    tau: Array,
    time: Array,
    goal: ArrayLike,
) -> Array:
    """The running cost () of a state and torques (nv,) at a time of the gait, s, to a place, m."""
    own = {
        GOAL: dataclasses.replace(problem.running[GOAL], reference=jnp.asarray(goal)),
        SWING: _swinging(task, task.heights(time), sole, each=False),
    }
    return cost(problem.robot, {**problem.running, **own}, terms, tau)


def seen_state(env: Environment, task: Trot, seen: Mapping[str, Array]) -> tuple[Array, Array]:
    """`q` (nq,) and `v` (nv,) of an observation's terms, with the place to go to at x = y = 0."""
    robot, dtype = env.robot, seen["trunk_axes"].dtype
    ahead, left = seen["trunk_axes"].reshape(2, 3)
    R = jnp.stack([ahead, left, jnp.cross(ahead, left)], axis=1)
    driven = robot.topology.driven
    lower, upper = np.asarray(robot.position_limits, float)[driven].T
    joints = 0.5 * (lower + upper) + 0.5 * (upper - lower) * seen["joint_position"]
    q = jnp.zeros(robot.nq, dtype).at[robot.topology.dof_coordinate[driven]].set(joints)
    q = q.at[3:7].set(matrix_to_quaternion(R))
    trunk, _ = frame_pose(robot, q, task.trunk)
    head, _ = frame_pose(robot, q, task.hands.names[0])
    height = 0.1 * seen["trunk_height"][0] + task.standing(robot)
    place = -matmul(R, seen["to_goal"]) - head
    q = q.at[:3].set(jnp.stack([place[0], place[1], height - trunk[2]]))
    v = among_all(robot, 10.0 * seen["joint_velocity"])
    return q, v.at[:3].set(matmul(R, seen["trunk_velocity"])).at[3:6].set(seen["trunk_turning"])


def seen_reference(
    env: Environment, task: TrotTrack, seen: Mapping[str, Array], q: Array, *, dt: float = STEP
) -> Array:
    """Places (HORIZON + 1, 3), m, where the reference is expected, of an observation's terms.

    In the world of `seen_state`, whose `q` (nq,) is.
    """
    hand, _ = frame_pose(env.robot, q, task.hand)
    ahead, left = seen["trunk_axes"].reshape(2, 3)
    R = jnp.stack([ahead, left, jnp.cross(ahead, left)], axis=1)
    now, then, speed = (
        matmul(R, seen[name])
        for name in ("to_hand_goal", "to_hand_goal_ahead", "hand_goal_velocity")
    )
    times = dt * jnp.arange(HORIZON + 1)
    return hand + expected(now, then, speed, task.lookahead, times)


def seen_time(task: Trot, seen: Mapping[str, Array]) -> Array:
    """Time (), s, of the gait in an observation's terms, in the period about zero."""
    cosine, sine = seen["gait"]
    return jnp.arctan2(sine, cosine) / (2 * jnp.pi * jnp.asarray(task.cadence))


def _costs(
    robot: Robot, task: Trot, home: ArrayLike, swinging: plan.Residual, *, effort: bool
) -> dict[str, plan.Residual]:
    """The terms, with those of the feet in the air."""
    limits = np.asarray(robot.effort_limits, float)
    efforts = EFFORT / np.where(limits > 0, limits, np.inf) ** 2
    sideways = [SIDEWAYS if axis[0] else 1.0 for axis in _axes(robot)]
    hips = np.asarray(among_all(robot, jnp.asarray(sideways)))
    height = float(np.asarray(task.height))
    terms = {"effort": plan.torque(weight=efforts)} if effort else {}
    if isinstance(task, TrotTrack):
        each = swinging.each
        place = np.zeros((HORIZON, 3) if each else 3)
        options: dict[str, Any] = {"weight": HAND_WEIGHT, "norm": plan.l2(HAND_ROUND)}
        name = HAND if each else HAND_AT_END
        terms[name] = plan.position(task.hand, place, each=each, **options)
    return terms | {
        "upright": plan.upright(task.trunk, 1.0, norm=plan.smooth_abs(0.05)),
        "height": plan.height(task.trunk, task.feet, height, 1.0, norm=plan.smooth_abs(0.04)),
        GOAL: plan.residual(_Place(task.hands.names[0]), jnp.zeros(2), 0.2, norm=plan.l2(0.1)),
        "balance": plan.balance(task.feet, height, 0.2, norm=plan.l2(0.1)),
        "posture": plan.posture(home, 0.02 * hips),
        SWING if swinging.each else SWING_AT_END: swinging,
    }


def _axes(robot: Robot) -> list[np.ndarray]:
    """Axes (3,) of the joints that are driven, each of one."""
    return [j.axis for j in robot.topology.joints if j.kind != "floating"]


def _swinging(task: Trot, heights: ArrayLike, sole: float, *, each: bool) -> plan.Residual:
    """The term of the feet in the air."""
    norm = plan.smooth_abs(0.03)
    return plan.swing(task.feet, heights, 2.0, sole=sole, norm=norm, each=each)


@dataclass(frozen=True)
class _Place:
    frame: str

    def __call__(self, robot: Robot, terms: Terms, tau: Array, goal: Array) -> Array:
        return frame_pose(robot, terms.q, self.frame, kin=terms.kin)[0][:2] - goal
