"""Where plans begin."""

from __future__ import annotations

from typing import cast

import jax.numpy as jnp
from jax.typing import ArrayLike

from fraxenv.dynamics import gravity_forces

from .alone import alone
from .problem import Problem, beginning, clipped, of_dtype, shaped, spread
from .rollout import rolled
from .states import Guess


def guess(
    problem: Problem,
    q: ArrayLike,
    v: ArrayLike | None = None,
    tau: ArrayLike | None = None,
) -> Guess:
    """A robot that stays where it is, held against gravity; or the motion that torques cause.

    What nothing touches yet has no derivative by torques: plans of pushing and lifting begin with a
    motion that touches.

    Args:
        problem: the problem.
        q: (nq,), rad and m.
        v: (nv,) of the first knot, rad/s and m/s; zero if omitted. Without torques the others are
            at rest.
        tau: (N, nv), N m and N, clipped to the limits.

    Raises:
        ArrayError: an array has the wrong shape.
    """
    robot, N, dtype = problem.robot, problem.horizon, jnp.result_type(float)
    q = jnp.asarray(q, dtype)
    rest = jnp.zeros(robot.nv, dtype)
    first = rest if v is None else jnp.asarray(v, dtype)
    own = of_dtype(problem, dtype)
    if tau is not None:
        torques = clipped(own, shaped("guess: tau", tau, (N, robot.nv), dtype))
        begin = beginning("guess", robot, (q, first), dtype)
        motion = alone(lambda *given: rolled(*given)[0], "auto")
        return cast(Guess, motion(spread(own), begin, torques))
    tau = clipped(own, gravity_forces(robot, q))
    still = jnp.broadcast_to(rest, (N, robot.nv))
    return Guess(
        jnp.broadcast_to(q, (N + 1, len(q))),
        jnp.concatenate([first[None], still]),
        jnp.broadcast_to(tau, (N, robot.nv)),
    )
