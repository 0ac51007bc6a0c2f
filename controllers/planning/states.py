"""States of a robot as plans have and compare them: by tangent vectors `[dq; dv]` (2 nv,)."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from fraxenv.dynamics import Robot, difference, integrate


class Guess(NamedTuple):
    """Where to begin: states of all knots, and torques; the states need not follow from them.

    Attributes:
        q: (N + 1, nq), rad and m.
        v: (N + 1, nv), rad/s and m/s.
        tau: (N, nv), N m and N.
    """

    q: Array
    v: Array
    tau: Array


def displacement(robot: Robot, q0: Array, q1: Array) -> Array:
    """From one configuration to another (nv,), rad and m: `difference`, but the short way round.

    A continuous joint is where it was after a turn; it moves by at most half of one.
    """
    d = difference(robot, q0, q1)
    turning = _turning(robot)
    if not turning.any():
        return d
    turn = 2 * np.pi
    return jnp.where(turning, d - turn * jnp.round(d / turn), d)


def between(robot: Robot, q0: Array, v0: Array, q1: Array, v1: Array) -> Array:
    """The tangent vector from one state to another."""
    return jnp.concatenate([displacement(robot, q0, q1), v1 - v0])


def moved(robot: Robot, q: Array, v: Array, by: Array) -> tuple[Array, Array]:
    """The state a tangent vector away."""
    return integrate(robot, q, by[: robot.nv], 1.0), v + by[robot.nv :]


def _turning(robot: Robot) -> np.ndarray:
    """Which displacements are a continuous joint's angle (nv,) bool."""
    kinds = [joint.kind for joint in robot.topology.joints for _ in range(joint.nv)]
    return np.array([kind == "continuous" for kind in kinds], bool)
