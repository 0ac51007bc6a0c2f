"""Where plans begin."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import gravity_forces

from .problem import Problem, clipped, of_dtype


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


def guess(problem: Problem, q: ArrayLike, v: ArrayLike | None = None) -> Guess:
    """A robot that stays where it is, held against gravity.

    Args:
        problem: the problem.
        q: (nq,), rad and m.
        v: (nv,) of the first knot, rad/s and m/s; zero if omitted. The others are at rest.
    """
    robot, N, dtype = problem.robot, problem.horizon, jnp.result_type(float)
    q = jnp.asarray(q, dtype)
    rest = jnp.zeros(robot.nv, dtype)
    first = rest if v is None else jnp.asarray(v, dtype)
    tau = clipped(of_dtype(problem, dtype), gravity_forces(robot, q))
    still = jnp.broadcast_to(rest, (N, robot.nv))
    return Guess(
        jnp.broadcast_to(q, (N + 1, len(q))),
        jnp.concatenate([first[None], still]),
        jnp.broadcast_to(tau, (N, robot.nv)),
    )
