"""What an observation tells of the state: its terms, joints and obstacles."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics import Box, Capsule, Obstacles, Sphere, frame_pose

from .environment import Environment
from .tasks.among_obstacles import AmongObstacles


def terms_of(env: Environment, obs: Array) -> dict[str, Array]:
    """The terms of a flat observation (n,), by name."""
    layout = env.observation_layout
    ends = np.cumsum(list(layout.values()))[:-1]
    return dict(zip(layout, jnp.split(obs, ends), strict=True))


def configuration(env: Environment, scaled: Array) -> Array:
    """`q` (nq,) from the scaled joint positions of `envs.joint_terms`."""
    robot = env.robot
    lower, upper = np.asarray(robot.position_limits).T
    limited = np.isfinite(upper - lower)
    unit = np.where(robot.topology.dof_rotates, np.pi, 1.0)
    middle, half = np.zeros(robot.nv), unit
    middle[limited] = 0.5 * (lower[limited] + upper[limited])
    half[limited] = 0.5 * (upper[limited] - lower[limited])
    q = jnp.zeros(robot.nq, scaled.dtype)
    return q.at[np.asarray(robot.topology.dof_coordinate)].set(middle + half * scaled)


def velocity(env: Environment, scaled: Array) -> Array:
    """`v` (nv,) from the scaled joint velocities of `envs.joint_terms`."""
    speed = np.asarray(env.robot.velocity_limits)
    return scaled * jnp.asarray(np.where(np.isfinite(speed), speed, 1.0), scaled.dtype)


def joint_state(env: Environment, terms: Mapping[str, Array]) -> tuple[Array, Array]:
    """`q` (nq,) and `v` (nv,) of the robot, of an observation with the terms of its joints."""
    return configuration(env, terms["joint_position"]), velocity(env, terms["joint_velocity"])


def ways_to_goals(terms: Mapping[str, Array]) -> list[tuple[Array, Array]]:
    """Displacement (3,), m, and turn (3,), rad, of each hand to its goal, world axes.

    No turn where the orientation does not count. Where a goal moves, it is the way to where the
    goal will be when the hand arrives.
    """
    way = 0.1 * terms.get("to_goal_ahead", terms["to_goal"])
    turn = terms.get("turn_to_goal", jnp.zeros_like(way))
    return list(zip(way.reshape(-1, 3), turn.reshape(-1, 3), strict=True))


def obstacles(
    env: Environment, task: AmongObstacles, terms: Mapping[str, Array], q: Array
) -> Obstacles:
    """The obstacles of `AmongObstacles.observation_terms`, as if they were at rest.

    Args:
        env: the environment.
        task: its task.
        terms: of the observation.
        q: (nq,) of the same moment.
    """
    s, m, b = task.sphere_count, task.capsule_count, task.box_count
    hand, _ = frame_pose(env.robot, q, task.hands.names[0])
    centre = hand + terms["to_obstacles"].reshape(-1, 3)
    radius = terms["obstacle_radius"]
    axes = terms.get("obstacle_axes", jnp.zeros(0, q.dtype))
    spheres = capsules = boxes = None
    if s:
        spheres = Sphere(centre[:s], radius[:s])
    if m:
        middle, half = centre[s : s + m], axes[: 3 * m].reshape(-1, 3)
        capsules = Capsule(middle - half, middle + half, radius[s : s + m])
    if b:
        half_axes = axes[3 * m :].reshape(-1, 3, 3)
        extents = jnp.sqrt(jnp.sum(half_axes**2, axis=-1))
        there = extents[..., None] > 0
        rows = jnp.where(there, half_axes / jnp.where(there, extents[..., None], 1), jnp.eye(3))
        boxes = Box(centre[s + m :], jnp.swapaxes(rows, 1, 2), extents)
    velocity = None
    if "obstacle_velocity" in terms:
        moving = terms["obstacle_velocity"].reshape(-1, 3)
        velocity = jnp.zeros((len(radius), 3), q.dtype).at[: len(moving)].set(moving)
    return Obstacles(spheres, capsules, boxes, active=radius > 0, velocity=velocity)


def expected(now: Array, then: Array, speed: Array, ahead: ArrayLike, times: Array) -> Array:
    """Places (n, 3), m, of what moves, at times (n,), s: on the parabola through what is known.

    Args:
        now: (3,), m, where it is.
        then: (3,), m, where it will be after `ahead`, s.
        speed: (3,), m/s, now.
        ahead: (), s.
        times: (n,), s, from now.
    """
    ahead = jnp.asarray(ahead)
    bend = (then - now - ahead * speed) / ahead**2
    t = times.astype(now.dtype)[:, None]
    return now + t * speed + t**2 * bend
