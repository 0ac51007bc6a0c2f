"""Where plans begin."""

from __future__ import annotations

from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import compute_terms, gravity_forces
from fraxenv.dynamics.constrained_dynamics import constraint_jacobian
from fraxenv.dynamics.forward_dynamics import spd_solve
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.kernels import fusible

from .alone import alone
from .problem import Problem, beginning, clipped, of_dtype, shaped, spread
from .rollout import rolled
from .scheduled import Schedule
from .states import Guess

SLACK = 1e-6
"""Of what holds a robot on too few frames, as a share of what it stands on: it need not succeed."""


def guess(
    problem: Problem,
    q: ArrayLike,
    v: ArrayLike | None = None,
    tau: ArrayLike | None = None,
) -> Guess:
    """A robot that stays where it is, held against gravity; or the motion that torques cause.

    With contacts it stands on the frames that are held, as far as torques can do that.

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
    if own.contacts is None:
        hold = jnp.broadcast_to(alone(gravity_forces, "auto")(robot, q), (N, robot.nv))
    else:
        hold = jax.vmap(fusible(partial(_holding, own, q)))(own.contacts)
    still = jnp.broadcast_to(rest, (N, robot.nv))
    return Guess(
        jnp.broadcast_to(q, (N + 1, len(q))),
        jnp.concatenate([first[None], still]),
        clipped(own, hold),
    )


def _holding(problem: Problem, q: Array, contacts: Schedule) -> Array:
    """Torques (nv,) that hold a robot still on the frames that are held, as far as they can.

    What nothing drives is held by the smallest forces on the frames: Crocoddyl's `quasiStatic`.
    """
    robot = problem.robot
    terms = compute_terms(robot, q, jnp.zeros(robot.nv, q.dtype))
    J, _ = constraint_jacobian(robot, terms, contacts.constraints)
    limits = problem.control_limits
    loose = jnp.zeros(robot.nv) if limits is None else (limits[0] == 0) & (limits[1] == 0)
    loose = loose.astype(q.dtype)
    felt = J * loose
    square = matmul(felt.T, felt)
    size = jnp.trace(square)
    least = jnp.where(size > 0, SLACK * size, 1)
    forces = matmul(felt, spd_solve(square + jnp.diag(1 - loose + least), loose * terms.bias))
    holding: Array = (1 - loose) * (terms.bias - matmul(J.T, forces))
    return holding
