"""Model-predictive control of a cube that a hand pushes or picks up, through its contacts.

What plans cost, what they are aimed at, and where they begin. Where the hand is sent, and when it
closes, follows the experts (`tasks.experts`): what nothing touches yet has no derivative.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from fraxenv.controllers import planning as plan
from fraxenv.dynamics import (
    ContactGeom,
    Robot,
    Scene,
    SceneObject,
    Terms,
    build_scene,
    frame_pose,
    rotation_exp,
    sphere_geom,
)
from fraxenv.dynamics.math.algebra import matmul, norm
from fraxenv.dynamics.math.rotation import matrix_to_quaternion
from fraxenv.dynamics.model.robot import Joint

from .environment import Environment
from .observed import joint_state
from .tasks.experts import OPEN, pick, push, rotation_of
from .tasks.object_goals import ObjectGoals
from .tasks.tabletop import block

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

SOFT = 0.02
"""s, time constant of contacts in plans that pick up; the environment's is 4 ms."""

SQUEEZE = 20.0
"""N, of the gripper's motor that closes."""

NEAR = plan.l2(0.02)
"""The distance, rounded off within 2 cm."""

_DOWN, _PLACE = np.diag([1.0, -1.0, -1.0]), np.zeros(3)
"""What references are before they are given."""


def softer(scene: Scene, seconds: float) -> Scene:
    """The scene with contacts of a time constant, s, whose kinks are rounder to a plan."""
    geoms = scene.constraints.geoms
    solref = np.array(geoms.solref)
    solref[:, 0] = seconds
    soft = dataclasses.replace(geoms, solref=solref)
    constraints = dataclasses.replace(scene.constraints, geoms=soft)
    return dataclasses.replace(scene, constraints=constraints)


def touching(scene: Scene, name: str) -> Scene:
    """The scene with the contacts of one of its members alone: all others cost a plan as much."""
    own, layout = scene.members[name].bodies, scene.constraints.layout
    pairs = tuple(
        pair
        for pair in layout.pairs
        if any(own.start <= layout.geoms[k].body < own.stop for k in pair.geoms)
    )
    constraints = dataclasses.replace(
        scene.constraints, layout=dataclasses.replace(layout, pairs=pairs)
    )
    return dataclasses.replace(scene, constraints=constraints)


def _problem(
    scene: Scene,
    dt: float,
    arm: np.ndarray,
    still: np.ndarray,
    running: dict[str, plan.Residual],
    terminal: dict[str, plan.Residual],
) -> plan.Problem:
    """What is to be done, slowly (weights `still` (nv,)), with little effort of the `arm` (nv,)."""
    running = {
        **running,
        "posture": plan.posture(scene.system.q_default, 0.05 * arm),
        "still": plan.velocity(weight=still),
        "effort": plan.torque(weight=3e-3 * arm, beyond_gravity=True),
    }
    terminal = {**terminal, "still at the end": plan.velocity(weight=0.05 * arm)}
    return plan.Problem(scene, round(HORIZON / dt), dt, running, terminal, control_limits=True)


# --- pushing ---


@dataclass(frozen=True)
class _Push:
    """From the hand to its station; or, once it pushes, to a point in the cube (3,), m."""

    hand: str
    cube: str

    def __call__(self, robot: Robot, terms: Terms, tau: Array, aim: Any) -> Array:
        goal, station, pushes = aim
        hand, cube = (
            frame_pose(robot, terms.q, n, kin=terms.kin)[0] for n in (self.hand, self.cube)
        )
        way = (goal - cube)[:2]
        ahead = way / jnp.sqrt(jnp.sum(way * way) + ROUND**2)
        inside = jnp.append(cube[:2] - INSIDE * ahead, goal[2])
        # Height counts for more: pads that are too high tilt the cube, and go over it.
        off: Array = hand - station - pushes * (inside - station)
        return off * jnp.array([1.0, 1.0, 2.0])


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


def dragged(cube: SceneObject) -> SceneObject:
    """The cube in the plane, with a resistance in proportion to its speed."""
    model, nothing, unlimited = cube.model, np.zeros(3), np.full(3, np.inf)
    drag = float(np.asarray(model.mass)[0]) * 9.81 / DRAG_SPEED
    moved = model.replace(
        topology=dataclasses.replace(
            model.topology,
            joints=(Joint(cube.name, "planar", np.array([0.0, 0.0, 1.0])),),
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


def balls(hand: str) -> list[ContactGeom]:
    """What stands for the pads of a closed gripper in a plan."""
    return [
        sphere_geom(f"ball_{i}", BALL, frame=hand, position=(0.0, y, 0.0))
        for i, y in enumerate((-BESIDE, BESIDE))
    ]


def dragged_scene(robot: Robot, task: ObjectGoals, dt: float) -> Scene:
    """Arm and cube as pushing plans have them, in steps of dt, s."""
    pads = balls(task.hands.names[0])
    scene = build_scene(
        robot,
        [dragged(block(task.object))],
        geoms=pads,
        pairs=[(b.name, task.object) for b in pads],
        impratio=10.0,
        integrator="discrete",
    )
    return softer(scene, 2.0 * dt)


def push_problem(
    scene: Scene, robot: Robot, task: ObjectGoals, dt: float, place: float = 40.0
) -> plan.Problem:
    """A cube to its goal by pushing; its references are `push_references`.

    Args:
        scene: of the arm and the cube, such as `dragged_scene`.
        robot: the arm.
        task: names of the hand's frame and of the cube.
        dt: s, of a step.
        place: weight of the cube's distance from its goal.
    """
    n, nv = scene.nv, robot.nv
    arm = np.arange(n) < nv
    sliding = np.isin(np.arange(n), nv + np.arange(2 if n < nv + 6 else 3))
    aim = _PLACE, _PLACE, np.zeros(())

    def terms(share: float) -> dict[str, plan.Residual]:
        pushing = _Push(task.hands.names[0], task.object)
        return {
            "push": plan.residual(pushing, aim, share * 60.0, norm=NEAR),
            "cube": plan.position(task.object, _PLACE, share * place, norm=NEAR),
            "turn": plan.orientation(task.hands.names[0], _DOWN, share * 40.0),
        }

    still = 1.0 * arm + 15.0 * sliding
    return _problem(scene, dt, arm, still, terms(1.0), terms(0.2))


def push_references(task: ObjectGoals, seen: Mapping[str, Array], q: Array) -> dict[str, Any]:
    """References of an observation's terms."""
    position, rotation = seen["hand_position"], rotation_of(seen["hand_axes"])
    goal = seen["goal_position"]
    _, turn, _ = push(seen, task)
    return {
        "push": (goal, *station(position, seen["object_position"], goal)),
        "cube": goal,
        "turn": matmul(rotation_exp(turn), rotation),
    }


def seen_dragged(env: Environment, seen: Mapping[str, Array]) -> tuple[Array, Array]:
    """`q` and `v` of `dragged_scene`; how fast the cube turns is not observed."""
    q, v = joint_state(env, seen)
    place, x, speed = seen["object_position"], seen["object_axes"][:3], seen["object_velocity"]
    turned = jnp.arctan2(x[1], x[0])
    cube = jnp.append(place[:2], turned), jnp.append(speed[:2], 0.0)
    return jnp.concatenate([q, cube[0]]), jnp.concatenate([v, cube[1]])


# --- picking up ---


@dataclass(frozen=True)
class _Grip:
    """Off the force that closes, in its unit; or off the open gripper, in 2 cm."""

    finger: int

    def __call__(self, robot: Robot, terms: Terms, tau: Array, closes: Array) -> Array:
        closing = tau[self.finger] / SQUEEZE + 1.0
        opening = 50.0 * (terms.q[self.finger] - 0.5 * OPEN)
        return jnp.stack([closes * closing + (1.0 - closes) * opening])

    def slopes(self, robot: Robot, terms: Terms, tau: Array, closes: Array) -> tuple[Array, Array]:
        none = jnp.zeros((1, robot.nv), tau.dtype)
        by_q = none.at[0, self.finger].set(50.0 * (1.0 - closes))
        by_tau = none.at[0, self.finger].set(closes / SQUEEZE)
        return jnp.concatenate([by_q, none], axis=1), by_tau

    def bends(self, robot: Robot) -> tuple[str, ...]:
        return ()


def pick_problem(
    scene: Scene, robot: Robot, task: ObjectGoals, dt: float, place: float = 0.0
) -> plan.Problem:
    """A cube to its goal in the gripper; its references are `pick_references`.

    What the pads touch besides is not planned: they are sent to the cube's middle.

    Args:
        scene: the environment's.
        robot: the arm, its finger last.
        task: names of the hand's frame and of the cube.
        dt: s, of a step.
        place: weight of the cube's distance from its goal. A grasp holds by itself: without it the
            hand alone is sent.
    """
    finger, dofs = robot.nv - 1, np.arange(scene.nv)
    arm, sliding = dofs < finger, np.isin(dofs, robot.nv + np.arange(3))

    def terms(share: float) -> dict[str, plan.Residual]:
        return {
            "hand": plan.position(task.hands.names[0], _PLACE, share * 60.0, norm=NEAR),
            "cube": plan.position(task.object, _PLACE, share * place, norm=NEAR),
            "turn": plan.orientation(task.hands.names[0], _DOWN, share * 40.0),
        }

    grip = {"grip": plan.residual(_Grip(finger), np.zeros(()), 2.0)}
    still = 1.0 * arm + 0.1 * (dofs == finger) + 2.0 * sliding
    soft = softer(touching(scene, task.object), SOFT)
    return _problem(soft, dt, arm, still, terms(1.0) | grip, terms(0.2))


def pick_references(task: ObjectGoals, seen: Mapping[str, Array], q: Array) -> dict[str, Any]:
    """References of an observation's terms."""
    position, rotation = seen["hand_position"], rotation_of(seen["hand_axes"])
    move, turn, width = pick(seen, task)
    return {
        "hand": position + move,
        "turn": matmul(rotation_exp(turn), rotation),
        "grip": jnp.where(width < 0.5 * OPEN, 1.0, 0.0),
        "cube": seen["goal_position"],
    }


def seen_free(env: Environment, seen: Mapping[str, Array]) -> tuple[Array, Array]:
    """`q` and `v` of the environment's scene; how fast the cube turns is not observed."""
    q, v = joint_state(env, seen)
    turned = matrix_to_quaternion(rotation_of(seen["object_axes"]))
    speed = seen["object_velocity"]
    return (
        jnp.concatenate([q, seen["object_position"], turned]),
        jnp.concatenate([v, speed, jnp.zeros_like(speed)]),
    )
