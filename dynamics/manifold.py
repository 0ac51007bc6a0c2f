"""The configuration manifold: R^n, times a unit quaternion for each free rotation.

Sola, Deray and Atchuthan, "A micro Lie theory for state estimation in robotics" (2018), for
R^n x SO(3) with velocities on the right: the position of a floating joint moves in its parent's
axes, its rotation `q exp(w)` in the body's, as in MuJoCo.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from .kinematics import checked_configuration, checked_tangent
from .math.algebra import matmul
from .math.rotation import (
    quaternion_conjugate,
    quaternion_exp,
    quaternion_log,
    quaternion_multiply,
    quaternion_normalize,
    right_jacobian,
    right_jacobian_inverse,
    rotation_exp,
)
from .math.tracing import traced_once
from .model.robot import Robot

_UNLIMITED_ANGLE = np.pi
_UNLIMITED_DISPLACEMENT = 1.0


def neutral(robot: Robot) -> Float[Array, " nq"]:
    """The configuration of zero joint displacements."""
    q = np.zeros(robot.nq)
    for _, start, _ in robot.topology.quaternions:
        q[start] = 1.0
    return jnp.asarray(q, jnp.result_type(float))


def random_configuration(robot: Robot, key: Array) -> Float[Array, " nq"]:
    """A configuration drawn uniformly from the joint limits.

    Without limits, angles are drawn from [-pi, pi] and displacements from [-1, 1] m; with one limit
    only, from a range of that width that begins there. Quaternions are uniform over all rotations.

    Args:
        robot: the model.
        key: a key of `jax.random`.
    """
    coordinate = robot.topology.dof_coordinate
    scalar = coordinate >= 0
    reach = np.where(robot.topology.dof_rotates, _UNLIMITED_ANGLE, _UNLIMITED_DISPLACEMENT)
    limits = jnp.asarray(robot.position_limits, jnp.result_type(float))
    below, above = limits.T
    lower = jnp.where(jnp.isfinite(above), above - 2 * reach, -reach)
    lower = jnp.where(jnp.isfinite(below), below, lower)
    upper = jnp.where(jnp.isfinite(above), above, lower + 2 * reach)
    keys = jax.random.split(key)
    drawn = jax.random.uniform(keys[0], lower.shape, lower.dtype, lower, upper)
    q = neutral(robot).at[coordinate[scalar]].set(drawn[scalar])
    for i, (_, start, _) in enumerate(robot.topology.quaternions):
        four = jax.random.normal(jax.random.fold_in(keys[1], i), (4,), q.dtype)
        q = q.at[start : start + 4].set(quaternion_normalize(four))
    return q


@traced_once
def integrate(
    robot: Robot, q: Real[ArrayLike, " nq"], v: Real[ArrayLike, " nv"], dt: Real[ArrayLike, ""]
) -> Float[Array, " nq"]:
    """Configuration after moving from `q` at the constant velocity `v` for `dt` s.

    Quaternions are normalised. The inverse is `difference`.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    q, v = checked_configuration(robot, q), checked_tangent(robot, "v", v)
    moved = v * jnp.asarray(dt, v.dtype)
    if not robot.topology.quaternions:
        return q + moved
    coordinate = robot.topology.dof_coordinate
    scalar = coordinate >= 0
    result = q.at[coordinate[scalar]].add(moved[scalar])
    for _, i, k in robot.topology.quaternions:
        turned = quaternion_multiply(q[i : i + 4], quaternion_exp(moved[k : k + 3]))
        result = result.at[i : i + 4].set(quaternion_normalize(turned))
    return result


@traced_once
def difference(
    robot: Robot, q0: Real[ArrayLike, " nq"], q1: Real[ArrayLike, " nq"]
) -> Float[Array, " nv"]:
    """Velocity that moves from `q0` to `q1` in one second: the inverse of `integrate`.

    Rotations take the short way round, at most pi.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    q0, q1 = checked_configuration(robot, q0), checked_configuration(robot, q1)
    if not robot.topology.quaternions:
        return q1 - q0
    result = scalar_coordinates(robot, q1) - scalar_coordinates(robot, q0)
    for _, i, k in robot.topology.quaternions:
        result = result.at[k : k + 3].set(_turn(q0[i : i + 4], q1[i : i + 4]))
    return result


def integrate_derivatives(
    robot: Robot, q: Real[ArrayLike, " nq"], v: Real[ArrayLike, " nv"], dt: Real[ArrayLike, ""]
) -> tuple[Float[Array, "nv nv"], Float[Array, "nv nv"]]:
    """Derivatives of `integrate` on the tangent spaces: by `q` and by `v`.

    Moving `q` along `e` moves the result along `by_q @ e`, and likewise for `v`.

    Raises:
        ArrayError: an argument has the wrong shape.

    Source: Sola et al. (2018), section II.G.
    """
    checked_configuration(robot, q)
    v = checked_tangent(robot, "v", v)
    dt = jnp.asarray(dt, v.dtype)
    by_q, by_v = jnp.eye(robot.nv, dtype=v.dtype), jnp.eye(robot.nv, dtype=v.dtype) * dt
    for _, _, k in robot.topology.quaternions:
        w, block = v[k : k + 3] * dt, (slice(k, k + 3), slice(k, k + 3))
        by_q = by_q.at[block].set(rotation_exp(-w))
        by_v = by_v.at[block].set(dt * right_jacobian(w))
    return by_q, by_v


def difference_derivatives(
    robot: Robot, q0: Real[ArrayLike, " nq"], q1: Real[ArrayLike, " nq"]
) -> tuple[Float[Array, "nv nv"], Float[Array, "nv nv"]]:
    """Derivatives of `difference` on the tangent spaces: by `q0` and by `q1`.

    Raises:
        ArrayError: an argument has the wrong shape.

    Source: Sola et al. (2018), section II.G.
    """
    turn = difference(robot, q0, q1)
    by_q1 = jnp.eye(robot.nv, dtype=turn.dtype)
    by_q0 = -by_q1
    for _, _, k in robot.topology.quaternions:
        w, block = turn[k : k + 3], (slice(k, k + 3), slice(k, k + 3))
        by_q0 = by_q0.at[block].set(-right_jacobian_inverse(-w))
        by_q1 = by_q1.at[block].set(right_jacobian_inverse(w))
    return by_q0, by_q1


def displacement_rate(robot: Robot, displacement: Array, v: Array) -> Array:
    """Rate (nv,) of `displacement` for which `integrate(q, displacement, 1)` has the velocity `v`.

    Source: Sola et al. (2018), section II.G: the inverse right Jacobian of rotations.
    """
    rate = v
    for _, _, k in robot.topology.quaternions:
        turn = slice(k, k + 3)
        rate = rate.at[turn].set(matmul(right_jacobian_inverse(displacement[turn]), v[turn]))
    return rate


def coordinate_rates(robot: Robot, q: Real[ArrayLike, " nq"]) -> Float[Array, "nq nv"]:
    """The matrix with `dq/dt = matrix @ v`; for a quaternion, `dq/dt = q * [0, v] / 2`.

    It converts derivatives by coordinates to derivatives on the tangent space.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    q = checked_configuration(robot, q)
    if not robot.topology.quaternions:
        return jnp.eye(robot.nv, dtype=q.dtype)
    coordinate = robot.topology.dof_coordinate
    scalar = np.flatnonzero(coordinate >= 0)
    constant = np.zeros((robot.nq, robot.nv))
    constant[coordinate[scalar], scalar] = 1.0
    rates = jnp.asarray(constant, q.dtype)
    for _, i, k in robot.topology.quaternions:
        w, x, y, z = q[i : i + 4]
        rows = [[-x, -y, -z], [w, -z, y], [z, w, -x], [-y, x, w]]
        block = jnp.stack([jnp.stack(row) for row in rows])
        rates = rates.at[i : i + 4, k : k + 3].set(0.5 * block)
    return rates


def scalar_coordinates(robot: Robot, q: Array) -> Array:
    """Angle or displacement (nv,), rad or m, of each degree of freedom; zero in quaternions.

    These are the coordinates that `position_limits` apply to.
    """
    coordinate = robot.topology.dof_coordinate
    if len(coordinate) == robot.nq:
        return q
    return jnp.where(coordinate < 0, 0.0, q[coordinate])


def driven_part(robot: Robot, x: Any) -> Any:
    """Of numbers (nv, ...) those (n, ...) of the degrees of freedom that motors drive."""
    driven = robot.topology.driven
    return x if len(driven) == robot.nv else x[driven]


def among_all(robot: Robot, x: Array) -> Array:
    """Numbers (n,) of the degrees of freedom that motors drive, among zeros (nv,)."""
    driven = robot.topology.driven
    return x if len(driven) == robot.nv else jnp.zeros(robot.nv, x.dtype).at[driven].set(x)


def _turn(a: Array, b: Array) -> Array:
    """Rotation vector (3,) in the axes of `a` that turns the quaternion `a` into `b`."""
    return quaternion_log(quaternion_multiply(quaternion_conjugate(a), b))
