"""Inverse kinematics: configurations in which frames are where they are to be.

Levenberg and Marquardt's method on the configuration manifold, from several seeds side by side.
Damping follows the error that is left, so that no step has to be taken back; a joint at a limit
that a step would cross is held for that step.

Source: Chan and Lawrence, "General inverse kinematics with the error damped pseudoinverse" (ICRA
1988); of the limits Bertsekas, "Projected Newton methods for optimization problems with simple
constraints" (SIAM J. Control and Optimization 20, 1982).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, compute_terms, integrate, random_configuration, spd_solve
from fraxenv.dynamics.kinematics import checked_configuration
from fraxenv.dynamics.manifold import scalar_coordinates
from fraxenv.dynamics.math.algebra import matmul, norm
from fraxenv.errors import ArrayError, ConfigError, check_count
from fraxenv.kernels import fusible

from ..hands import EndEffectors, Hands, PoseTarget, error_lengths, jacobians, pose_errors
from .states import displacement

DAMPING, LEAST_DAMPING = 0.1, 1e-6
"""Of a step: as a share of half the square of the error (m and rad), and what there is besides."""


class IKSolution(NamedTuple):
    """A configuration, and how far frames are from where they are to be.

    Of several frames, errors are (k,).

    Attributes:
        q: (nq,), rad and m, within the limits.
        position_error: (), m.
        orientation_error: (), rad; zero where no orientation is asked for.
        found: () bool, whether all errors are within the tolerance.
    """

    q: Array
    position_error: Array
    orientation_error: Array
    found: Array


class _Search(NamedTuple):
    """From one seed: a configuration, its errors (k,), and where to go from it."""

    q: Array
    position_error: Array
    orientation_error: Array
    next: Array
    rounds: Array
    going: Array


def inverse_kinematics(
    robot: Robot,
    end_effector: EndEffectors,
    target: tuple[ArrayLike, ArrayLike | None],
    *,
    near: ArrayLike | None = None,
    key: Array | None = None,
    seeds: int = 16,
    iterations: int = 20,
    tolerance: tuple[ArrayLike, ArrayLike] = (1e-5, 1e-4),
    backend: str = "auto",
) -> IKSolution:
    """A configuration within the joint limits in which a frame has a pose, or several have theirs.

    Of those that the seeds lead to it is the one nearest to `near`; where none is within the
    tolerance, it is that of the least error. One pose at a time: `jax.vmap` makes poses and seeds
    the lanes of one kernel. Equal arguments give equal results, whatever else is in the batch.

    Args:
        robot: the model.
        end_effector: name of a frame, a link's or an end effector's; or several in a tuple.
        target: position (3,), m, and rotation (3, 3), frame to world, as of
            `dynamics.frame_pose`; of several frames (k, 3) and (k, 3, 3). Without a rotation,
            None, any will do.
        near: (nq,), rad and m, the first seed; the robot's default configuration if omitted.
        key: for the other seeds, which are drawn within the limits; `jax.random.key(0)` if omitted.
        seeds: how many.
        iterations: at most, of each seed.
        tolerance: of the position, m, and of the orientation, rad.
        backend: of the kernels; see `fraxenv.fuse`.

    Raises:
        UnknownNameError: the robot has no such frame.
        ArrayError: an array has the wrong shape.
        ConfigError: a number of seeds or iterations is not possible, or no frame is named.
    """
    check_count("inverse_kinematics: seeds", seeds)
    check_count("inverse_kinematics: iterations", iterations)
    hands = Hands.of(end_effector)
    hands.check(robot)
    dtype = jnp.result_type(float)
    goal, rows = _goal(hands, target, dtype)
    allowed = [jnp.asarray(x, dtype) for x in tolerance]
    begin = checked_configuration(robot, robot.q_default if near is None else near).astype(dtype)
    lower, upper = jnp.asarray(robot.position_limits, dtype).T
    still = jnp.zeros(robot.nv, dtype)

    def advanced(now: _Search) -> _Search:
        q = now.next
        terms = compute_terms(robot, q, still)
        errors = pose_errors(robot, terms, hands, goal)
        lengths = error_lengths(errors)
        away, turned = lengths["position_error"], lengths["orientation_error"]
        turned = jnp.zeros_like(turned) if rows == 3 else turned
        error = jnp.concatenate(errors, axis=-1)[:, :rows].ravel()
        J = jacobians(robot, terms, hands, rows)

        at, downhill = scalar_coordinates(robot, q), matmul(J.T, error)
        held = ((at <= lower) & (downhill < 0)) | ((at >= upper) & (downhill > 0))
        by = _damped_step(jnp.where(held, 0.0, J), error)
        by = jnp.where(jnp.isfinite(jnp.sum(by)), by, 0.0)
        further = _within(robot, integrate(robot, q, by, 1.0))

        far = jnp.any(away > allowed[0]) | jnp.any(turned > allowed[1])
        rounds = now.rounds + 1
        return _Search(q, away, turned, further, rounds, far & (rounds < iterations))

    def searched(seed: Array) -> tuple[IKSolution, Array, Array]:
        """What a seed leads to, how far it is from `near`, and the square of its error."""
        seed = _within(robot, seed)
        unknown = jnp.full(hands.count, jnp.inf, dtype)
        start = _Search(seed, unknown, unknown, seed, jnp.zeros((), jnp.int32), jnp.array(True))
        end = jax.lax.while_loop(lambda now: now.going, advanced, start)
        reached = (end.position_error <= allowed[0]) & (end.orientation_error <= allowed[1])
        found = jnp.all(reached)
        left = jnp.sum(end.position_error**2 + end.orientation_error**2)
        one = IKSolution(end.q, end.position_error, end.orientation_error, found)
        return one, norm(displacement(robot, begin, end.q)), left

    key = jax.random.key(0) if key is None else key
    drawn = jax.vmap(lambda k: random_configuration(robot, k))(jax.random.split(key, seeds - 1))
    first = jnp.concatenate([begin[None], drawn.astype(dtype)])
    ends, away, left = jax.vmap(fusible(searched, backend))(first)

    # Of what is not finite the seed is left, which is.
    left = jnp.where(jnp.isfinite(left), left, jnp.inf)
    nearest = jnp.argmin(jnp.where(ends.found, away, jnp.inf))
    which = jnp.where(jnp.any(ends.found), nearest, jnp.argmin(left))
    chosen: IKSolution = jax.tree.map(lambda x: x[which], ends)
    position_error, orientation_error = hands.without_axis(chosen[1:3])
    return IKSolution(chosen.q, position_error, orientation_error, chosen.found)


def _damped_step(J: Array, error: Array) -> Array:
    """The displacement (nv,) towards an error (rows,), by the smaller of the two systems."""
    rows, n = J.shape
    damping = DAMPING * 0.5 * jnp.sum(error * error) + LEAST_DAMPING
    if rows <= n:
        eye = jnp.eye(rows, dtype=J.dtype)
        return matmul(J.T, spd_solve(matmul(J, J.T) + damping * eye, error))
    return spd_solve(matmul(J.T, J) + damping * jnp.eye(n, dtype=J.dtype), matmul(J.T, error))


def _within(robot: Robot, q: Array) -> Array:
    """The configuration with its joints within their limits."""
    coordinate = robot.topology.dof_coordinate
    scalar = np.flatnonzero(coordinate >= 0)
    lower, upper = jnp.asarray(robot.position_limits, q.dtype)[scalar].T
    return q.at[coordinate[scalar]].set(jnp.clip(q[coordinate[scalar]], lower, upper))


def _goal(
    hands: Hands, target: tuple[ArrayLike, ArrayLike | None], dtype: jnp.dtype
) -> tuple[PoseTarget, int]:
    """The target with an axis of hands, and how many rows its errors have.

    Raises:
        ArrayError: an array has the wrong shape.
        ConfigError: it is no pair.
    """
    if not (isinstance(target, tuple) and len(target) == 2):
        raise ConfigError(
            f"inverse_kinematics: target={target!r}, expected a tuple of a position and a "
            "rotation, as `dynamics.frame_pose` returns it; None in place of the rotation for any."
        )
    k = () if hands.alone else (hands.count,)

    def shaped(name: str, x: ArrayLike, shape: tuple[int, ...]) -> Array:
        array = jnp.asarray(x, dtype)
        if array.shape != (*k, *shape):
            raise ArrayError(
                f"inverse_kinematics: the target's {name} has shape {array.shape}, expected "
                f"{(*k, *shape)}. It takes one target at a time; batch them with jax.vmap."
            )
        return array if k else array[None]

    position, rotation = target
    place = shaped("position", position, (3,))
    if rotation is None:
        anyhow = jnp.broadcast_to(jnp.eye(3, dtype=dtype), (hands.count, 3, 3))
        return PoseTarget(place, anyhow), 3
    return PoseTarget(place, shaped("rotation", rotation, (3, 3))), 6
