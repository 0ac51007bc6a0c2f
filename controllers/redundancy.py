"""Redundancy: postures in the nullspace, damping near singularities, priorities among hands.

Away from singularities the damping vanishes. It also vanishes with the error, so that a target
near a singularity is reached exactly. Nearness to the singularity is measured as in Nakamura and
Hanafusa, "Inverse kinematic solutions with singularity robustness for robot manipulator control",
ASME J. DSMC 108, 1986, eq. 24; the damping grows with the squared error as in Sugihara,
"Solvability-unconcerned inverse kinematics by the Levenberg-Marquardt method", IEEE T-RO 27(5),
2011.
"""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, difference, neutral
from fraxenv.dynamics.math.tracing import traced_once
from fraxenv.dynamics.solvers.cholesky import cholesky

Posture = Literal["default", "center", "zero", "none"]

POSTURES: tuple[Posture, ...] = ("default", "center", "zero", "none")

LARGEST_ERROR = np.pi
"""Bound, rad or m, of a joint's distance from the posture.

The pull is multiplied by the inertia, so it is not a potential's: without a bound, joints that have
turned far beyond their limits may gain speed from it for ever.
"""

Priority = Literal["equal", "ordered"]

PRIORITIES: tuple[Priority, ...] = ("equal", "ordered")

HALF_POSITION_ERROR = 0.05
"""Position error, m, at which the damping near a singularity is half of its greatest."""

HALF_ORIENTATION_ERROR = 0.25
"""Orientation error, rad, likewise."""

FLOOR = 1e-5
"""Diagonal that keeps the factorisation defined at a singularity; far below any threshold."""


def posture_error(posture: Posture, robot: Robot, q: Array) -> Array:
    """Displacements (nv,) from `q` to a posture, rad and m, at most `LARGEST_ERROR` each.

    "default" is the robot's default configuration, "center" the centre of its position limits (the
    default of joints without limits), "zero" the neutral configuration; "none" has no error.
    """
    if posture == "none":
        return jnp.zeros(robot.nv, q.dtype)
    goal = jnp.asarray(neutral(robot) if posture == "zero" else robot.q_default, q.dtype)
    if posture == "center":
        coordinate = robot.topology.dof_coordinate
        scalar = coordinate >= 0
        limits = jnp.asarray(robot.position_limits, q.dtype)[scalar]
        limited = jnp.all(jnp.isfinite(limits), axis=1)
        middle = jnp.mean(jnp.where(limited[:, None], limits, 0.0), axis=1)
        there = goal[coordinate[scalar]]
        goal = goal.at[coordinate[scalar]].set(jnp.where(limited, middle, there))
    return jnp.clip(difference(robot, q, goal), -LARGEST_ERROR, LARGEST_ERROR)


@traced_once
def damp(
    matrix: Array,
    error: Array,
    priority: Priority,
    damping: ArrayLike,
    threshold: ArrayLike,
    turning: np.ndarray | None = None,
) -> tuple[Array, Array]:
    """Add damping to `J M^-1 J^T`, or to `J J^T`, near singularities and far from the targets.

    With several end effectors the matrix may also become singular because their targets conflict.
    `priority` says which of them give way. "equal": all are damped, as the worst conditioned one.
    "ordered": each is damped by how much freedom the ones before it leave it. As `A x = a` has the
    rows of an undamped end effector exact, whatever the others' damping, it moves as commanded, and
    the ones after it move in its nullspace: the prioritised tasks of
    Sentis and Khatib, "Synthesis of whole-body behaviors through hierarchical control of
    behavioral primitives", Int. J. Humanoid Robotics 2(4), 2005.

    Args:
        matrix: (k n, k n), of k end effectors of n rows each: 3 linear, or 3 linear and 3 angular.
        error: (k, n), m and rad.
        priority: "equal" or "ordered".
        damping: the greatest one, at a singularity and far from the target, relative to the mean
            diagonal.
        threshold: conditioning below which the damping sets in.
        turning: (k,) bool, whether any joint turns each end effector, as all do by default. The
            orientation's rows are zero of one that only slides: it is always at a singularity.

    Returns:
        The damped matrix, and the conditioning (k,): the determinant of an end effector's block,
        scaled to a unit diagonal on average: 1 where all directions are equally easy, 0 at a
        singularity. With several end effectors, the block is the Schur complement: the part that
        the ones before it leave.
    """
    dtype, eps = matrix.dtype, float(np.finfo(matrix.dtype).eps)
    k, n = error.shape
    # Position and orientation have different units, so each is measured by its own mean.
    mean = jnp.mean(jnp.diagonal(matrix).reshape(-1, 3), axis=-1)
    if turning is not None and n == 6 and not turning.all():
        # Where all rows are zero any unit will do.
        mean = jnp.where(np.stack([np.ones(k, bool), turning], axis=1).ravel(), mean, 1)
    scale = jnp.repeat(mean, 3, total_repeat_length=k * n)
    inverse_root = 1 / jnp.sqrt(scale)
    scaled = matrix * (inverse_root[:, None] * inverse_root) + FLOOR * jnp.eye(k * n, dtype=dtype)
    if k > 1:  # the pivots of this factorisation are what the rows below leave of the diagonal
        last_first = np.arange(k * n).reshape(k, n)[::-1].ravel()
        scaled = scaled[last_first][:, last_first]
    pivots = jnp.diagonal(cholesky(scaled)).reshape(k, n)[::-1]
    conditioning = jnp.prod(pivots, axis=-1) ** 2

    worst = conditioning if priority == "ordered" else jnp.min(conditioning)
    closeness = jnp.maximum(1.0 - worst / jnp.asarray(threshold, dtype), 0.0)
    far = [HALF_POSITION_ERROR] * 3 + [HALF_ORIENTATION_ERROR] * 3
    distance = jnp.sum((error * jnp.asarray(1 / np.array(far), dtype)[:n]) ** 2, axis=-1)
    # Where the error has taken the damping away, what is left keeps rounding errors from growing.
    amount = jnp.asarray(damping, dtype) * distance / (1 + distance) + 100 * eps
    amount = closeness**2 * amount
    return matrix + jnp.diag(jnp.repeat(amount, n, total_repeat_length=k * n) * scale), conditioning
