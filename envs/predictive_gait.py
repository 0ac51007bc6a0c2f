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
from fraxenv.dynamics import Robot, Scene, Terms, frame_jacobian, frame_pose
from fraxenv.dynamics.manifold import among_all
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.math.rotation import matrix_to_quaternion

from .environment import Environment
from .observed import expected
from .tasks.pull import Pull
from .tasks.trot import Trot
from .tasks.trot_track import TrotTrack

STEP, HORIZON = 0.01, 35
"""s, of a step of a plan, and how many it has."""

GOAL, SWING, SWING_AT_END = "position", "gait", "gait at the end"
HAND, HAND_AT_END, PULLED = "hand", "hand at the end", "pulled"
"""Names of the terms whose references change."""

HAND_WEIGHT, PULL_WEIGHT, ROUND = 2.0, 1.0, 0.02
"""Of the hand's distance from a reference and of the sled's, and m, of their rounding off: ours."""

PULL_SPEED, PULL_AHEAD, STAND = 0.1, 0.03, 2.0
"""m/s, at which a sled is to resist a plan as it does; m, by which plans pull at most; and the
weight of a standing foot's squared speed. Ours.
"""

LOADED, LEAST = 1.0, 0.3
"""50 N, of the foot that carries least, from which a plan pulls as it wants, and the share of that
below: ours.
"""

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
    if isinstance(task, Pull):
        scene = _with_viscous_sled(scene, task)
    during = _swinging(task, np.zeros((HORIZON, n)), sole, each=True)
    at_end = _swinging(task, np.zeros(n), sole, each=False)
    running = _costs(scene.system, task, home, during, effort=True)
    last = _costs(scene.system, task, home, at_end, effort=False)
    terminal = {k: dataclasses.replace(t, weight=t.weight * dt) for k, t in last.items()}
    return plan.Problem(scene, HORIZON, dt, running, terminal, control_limits=True)


def _with_viscous_sled(scene: Scene, task: Pull) -> Scene:
    """The scene with a sled that resists as much at the speed `PULL_SPEED`, and less below it.

    To a plan, Coulomb friction is a wall: nothing that pulls a little less or more moves a sled
    that stands.
    """
    system = scene.system
    dof = int(system.topology.v_index[_sled_joint(system, task)])
    friction, damping = np.array(system.friction), np.array(system.damping)
    damping[dof] += friction[dof] / PULL_SPEED
    friction[dof] = 0.0
    planned = scene.with_system(system.replace(friction=friction, damping=damping))
    # What hardly creeps is as hard to plan through.
    constraints = dataclasses.replace(planned.constraints, impratio=10.0)
    return dataclasses.replace(planned, constraints=constraints)


def _sled_joint(system: Robot, task: Pull) -> int:
    """Number of the sled's joint among all joints of a scene."""
    return [j.name for j in system.topology.joints].index(f"{task.object}_joint")


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
    q, v, R = _trunk_and_joints(env, task, seen)
    head, _ = frame_pose(env.robot, q, task.hands.names[0])
    place = -matmul(R, seen["to_goal"]) - head
    return q.at[:2].set(place[:2]), v


def seen_with_sled(env: Environment, task: Pull, seen: Mapping[str, Array]) -> tuple[Array, Array]:
    """`q` (nq,) and `v` (nv,) of a scene with a sled, whose handle tells where all is."""
    q, v, _ = _trunk_and_joints(env, task, seen)
    scene: Any = env.physics
    first = scene.scene.system.topology.position[scene.objects[task.object].bodies.start]
    hand, _ = frame_pose(env.robot, q, task.hand)
    x = first[0] - seen["pulled"][0] - hand[0]
    q = q.at[:2].set(jnp.stack([x, first[1] - hand[1]]))
    return jnp.concatenate([q, seen["pulled"]]), jnp.concatenate([v, seen["pull_speed"]])


def _trunk_and_joints(
    env: Environment, task: Trot, seen: Mapping[str, Array]
) -> tuple[Array, Array, Array]:
    """`q` (nq,) at x = y = 0, `v` (nv,), and the trunk's rotation, of an observation's terms."""
    robot, dtype = env.robot, seen["trunk_axes"].dtype
    R = _trunk_rotation(seen)
    driven = robot.topology.driven
    lower, upper = np.asarray(robot.position_limits, float)[driven].T
    joints = 0.5 * (lower + upper) + 0.5 * (upper - lower) * seen["joint_position"]
    q = jnp.zeros(robot.nq, dtype).at[robot.topology.dof_coordinate[driven]].set(joints)
    q = q.at[3:7].set(matrix_to_quaternion(R))
    trunk, _ = frame_pose(robot, q, task.trunk)
    q = q.at[2].set(0.1 * seen["trunk_height"][0] + task.standing(robot) - trunk[2])
    v = among_all(robot, 10.0 * seen["joint_velocity"])
    v = v.at[:3].set(matmul(R, seen["trunk_velocity"])).at[3:6].set(seen["trunk_turning"])
    return q, v, R


def _trunk_rotation(seen: Mapping[str, Array]) -> Array:
    ahead, left = seen["trunk_axes"].reshape(2, 3)
    return jnp.stack([ahead, left, jnp.cross(ahead, left)], axis=1)


def pull_references(
    env: Environment, task: Pull, seen: Mapping[str, Array], q: Array
) -> dict[str, Array]:
    """References of a plan that pulls and stands where it stood; `q` is of `seen_with_sled`."""
    head, _ = frame_pose(env.robot, q[: env.robot.nq], task.hands.names[0])
    place = head + matmul(_trunk_rotation(seen), seen["to_goal"])
    carried = jnp.clip(jnp.min(seen["foot_force"]) / LOADED, LEAST, 1.0)
    further = carried * jnp.clip(seen["to_pull"], -PULL_AHEAD, PULL_AHEAD)
    own = gait_references(task, seen_time(task, seen), place[:2])
    return {**own, PULLED: seen["pulled"] + further}


def seen_reference(
    env: Environment, task: TrotTrack, seen: Mapping[str, Array], q: Array, *, dt: float = STEP
) -> Array:
    """Places (HORIZON + 1, 3), m, where the reference is expected, of an observation's terms.

    In the world of `seen_state`, whose `q` (nq,) is.
    """
    hand, _ = frame_pose(env.robot, q, task.hand)
    R = _trunk_rotation(seen)
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
    sideways = np.where(robot.topology.axes.direction[:, 0] != 0, SIDEWAYS, 1.0)
    hips = np.where(limits > 0, sideways, 0.0)
    height = float(np.asarray(task.height))
    terms = {"effort": plan.torque(weight=efforts)} if effort else {}
    if isinstance(task, TrotTrack):
        each = swinging.each
        place = np.zeros((HORIZON, 3) if each else 3)
        options: dict[str, Any] = {"weight": HAND_WEIGHT, "norm": plan.l2(ROUND)}
        name = HAND if each else HAND_AT_END
        terms[name] = plan.position(task.hand, place, each=each, **options)
    return terms | {
        "upright": plan.upright(task.trunk, 1.0, norm=plan.smooth_abs(0.05)),
        "height": plan.height(task.trunk, task.feet, height, 1.0, norm=plan.smooth_abs(0.04)),
        **_place(robot, task),
        "balance": plan.balance(task.feet, height, 0.2, norm=plan.l2(0.1)),
        "posture": plan.posture(home, 0.02 * hips),
        SWING if swinging.each else SWING_AT_END: swinging,
    }


def _place(robot: Robot, task: Trot) -> dict[str, plan.Residual]:
    """The terms of the place to go to, and of the sled that is to be pulled."""
    head = _Place(task.hands.names[0])
    place = {GOAL: plan.residual(head, jnp.zeros(2), 0.2, norm=plan.l2(0.1))}
    if not isinstance(task, Pull):
        return place
    joint = _sled_joint(robot, task)
    sled = _Pulled(int(robot.topology.q_index[joint]), int(robot.topology.v_index[joint]))
    still = {
        f"stand {foot}": plan.frame_twist(foot, weight=STAND * np.repeat([1.0, 0.0], 3))
        for foot in task.feet
    }
    pulled = plan.residual(sled, jnp.zeros(1), PULL_WEIGHT, norm=plan.l2(ROUND))
    return {**place, PULLED: pulled, **still}


def _swinging(task: Trot, heights: ArrayLike, sole: float, *, each: bool) -> plan.Residual:
    """The term of the feet in the air."""
    norm = plan.smooth_abs(0.03)
    return plan.swing(task.feet, heights, 2.0, sole=sole, norm=norm, each=each)


@dataclass(frozen=True)
class _Place:
    frame: str

    def __call__(self, robot: Robot, terms: Terms, tau: Array, goal: Array) -> Array:
        return frame_pose(robot, terms.q, self.frame, kin=terms.kin)[0][:2] - goal

    def slopes(self, robot: Robot, terms: Terms, tau: Array, _: Array) -> tuple[Array, Array]:
        J = frame_jacobian(robot, terms.q, self.frame, kin=terms.kin)[:2]
        return jnp.concatenate([J, jnp.zeros_like(J)], axis=1), jnp.zeros_like(J)


@dataclass(frozen=True)
class _Pulled:
    coordinate: int
    dof: int

    def __call__(self, robot: Robot, terms: Terms, tau: Array, goal: Array) -> Array:
        return terms.q[self.coordinate, None] - goal

    def slopes(self, robot: Robot, terms: Terms, tau: Array, _: Array) -> tuple[Array, Array]:
        none = jnp.zeros((1, robot.nv), terms.q.dtype)
        return jnp.concatenate([none.at[0, self.dof].set(1.0), none], axis=1), none
