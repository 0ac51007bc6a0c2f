"""The rows of equalities: joints that follow others, points and frames that coincide."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..body_motion import body_motion
from ..kinematics import Kinematics
from ..manifold import scalar_coordinates
from ..math.algebra import matmul
from ..math.rotation import (
    matrix_to_quaternion,
    quaternion_multiply,
    quaternion_to_matrix,
    skew,
)
from ..model.robot import WORLD, Robot
from .impedance import impedance, spring
from .model import Constraints, Equality, Layout
from .rows import ScalarRows
from .scalar_rows import soft_rows, units
from .twist_maps import point_map

ROWS = {"joint": 1, "connect": 3, "weld": 6}
"""How many rows an equality has."""


def equality_rows(
    robot: Robot, c: Constraints, kin: Kinematics, q: Array, v: Array, timestep: Array
) -> list[ScalarRows]:
    """Rows of each equality in turn."""
    equalities = c.layout.equalities
    if not equalities:
        return []
    solref, solimp = (jnp.asarray(x, v.dtype) for x in (c.equalities.solref, c.equalities.solimp))
    pull = spring(solref, solimp, timestep)
    active = jnp.asarray(c.equalities.active, v.dtype)
    parts = []
    for i, equality in enumerate(equalities):
        if equality.kind == "joint":
            rows = _equal_joints(robot, c, i, q, v)
        else:
            rows = _equal_points(robot, c, i, kin, v)
        m = len(rows.position)
        # An equality of several rows is as hard as its rows together are violated.
        square = jnp.sum(rows.position * rows.position)
        there = square > 0
        length = jnp.where(there, jnp.sqrt(jnp.where(there, square, 1.0)), 0.0)
        d = jnp.broadcast_to(impedance(solimp[i : i + 1], length[None]), (m,))
        stiffness, damping = (jnp.broadcast_to(x[i], (m,)) for x in pull)
        part = soft_rows(
            rows.jacobian, v, rows.position, (stiffness, damping, d), rows.inverse_weight,
            (-np.inf, np.inf), rows.bias,
        )  # fmt: skip
        parts.append(dataclasses.replace(part, weight=jnp.where(active[i] != 0, part.weight, 0.0)))
    return parts


def in_world_axes(layout: Layout, kin: Kinematics, values: Array) -> Array:
    """What belongs to scalar rows (m, ...), as MuJoCo has it: of points, along the world's axes."""
    start = 0
    for equality in layout.equalities:
        reference = _reference(equality)
        if equality.kind != "joint" and reference != WORLD:
            own = slice(start, start + 3)
            values = values.at[own].set(matmul(kin.rotation[reference], values[own]))
        start += ROWS[equality.kind]
    return values


def _reference(equality: Equality) -> int:
    """The body in whose axes an equality of points has its rows: the first that moves."""
    return equality.first if equality.first != WORLD else equality.second


class _EqualityRows(NamedTuple):
    """Jacobian (m, nv), violation (m,), inverse weights (m,) and `J_dot v` (m,)."""

    jacobian: Array
    position: Array
    inverse_weight: Array
    bias: Array


def _equal_joints(robot: Robot, c: Constraints, i: int, q: Array, v: Array) -> _EqualityRows:
    """One joint's coordinate is a polynomial of another's."""
    e, p = c.layout.equalities[i], c.equalities
    reference = jnp.asarray(p.reference, v.dtype)[i]
    factor = jnp.asarray(p.polynomial, v.dtype)[i]
    inverse = jnp.asarray(c.weights.dof, v.dtype)
    coordinate = scalar_coordinates(robot, q)
    x = coordinate[e.second] - reference[1] if e.second >= 0 else jnp.zeros((), v.dtype)
    value = factor[0] + x * (factor[1] + x * (factor[2] + x * (factor[3] + x * factor[4])))
    slope = factor[1] + x * (2 * factor[2] + x * (3 * factor[3] + x * 4 * factor[4]))
    jacobian, inverse_weight = units(robot, np.array([e.first]), v), inverse[e.first]
    if e.second >= 0:
        jacobian = jacobian - slope * units(robot, np.array([e.second]), v)
        inverse_weight = inverse_weight + inverse[e.second]
    position = (coordinate[e.first] - reference[0] - value)[None]
    return _EqualityRows(jacobian, position, inverse_weight[None], jnp.zeros(1, v.dtype))


def _equal_points(robot: Robot, c: Constraints, i: int, kin: Kinematics, v: Array) -> _EqualityRows:
    """Two points coincide ("connect"), and two frames ("weld"): the first's less the second's.

    Rows of points are in a body's axes (see `in_world_axes`). As all three are as hard, these may
    be any; and there, a body's own joint moves its point at right angles to the lever exactly.
    """
    e, p = c.layout.equalities[i], c.equalities
    motion = body_motion(robot, kin, v, jnp.zeros_like(v))
    links = np.array(e.links)
    translation = jnp.sum(jnp.asarray(c.weights.translation, v.dtype)[links])
    rotation = jnp.sum(jnp.asarray(c.weights.rotation, v.dtype)[links])
    maps, points, accelerations, bodies = [], [], [], []
    for body, local in zip((e.first, e.second), jnp.asarray(p.position, v.dtype)[i], strict=True):
        moves = body != WORLD
        turned = kin.rotation[body] if moves else jnp.eye(3, dtype=v.dtype)
        lever = matmul(turned, local)
        maps.append(point_map(robot, kin, body, local, _reference(e)))
        points.append((kin.position[body] if moves else 0.0) + lever)
        if moves:
            linear = motion.acceleration[body] + matmul(motion.gradient[body], lever)
            accelerations.append((linear, motion.angular_acceleration[body]))
            bodies.append((turned, motion.angular_velocity[body]))
        else:
            zero = jnp.zeros(3, v.dtype)
            accelerations.append((zero, zero))
            bodies.append((turned, zero))
    twist = maps[0] - maps[1]
    position, bias = points[0] - points[1], accelerations[0][0] - accelerations[1][0]
    if (reference := _reference(e)) != WORLD:
        position, bias = (matmul(kin.rotation[reference].T, x) for x in (position, bias))
    inverse_weight = jnp.broadcast_to(translation, (3,))
    if e.kind == "connect":
        return _EqualityRows(twist[:3], position, inverse_weight, bias)

    # With unit quaternions a and b of both frames, and the rate of a (half the angular velocity
    # times a), the angular violation is the vector part of conj(b) a.
    scale = jnp.asarray(p.torque_scale, v.dtype)[i]
    frames = [
        matmul(turned, quaternion_to_matrix(local))
        for (turned, _), local in zip(bodies, jnp.asarray(p.rotation, v.dtype)[i], strict=True)
    ]
    b, between = frames[1], matrix_to_quaternion(matmul(frames[1].T, frames[0]))

    def turned_by(pure: Array) -> Array:
        """`conj(b) w a` for the columns w (3, k) of `pure`: its vector part (3, k)."""
        w = matmul(b.T, pure)
        return between[0] * w + matmul(skew(-between[1:]), w)

    jacobian = 0.5 * scale * turned_by(twist[3:])
    first, second = bodies[0][1], bodies[1][1]
    difference = _pure(first - second)
    # d/dt of conj(b) w a / 2, with the rates of b and of a.
    rates = 0.5 * (
        quaternion_multiply(difference, _pure(first))
        - quaternion_multiply(_pure(second), difference)
    )
    rates = rates + _pure(accelerations[0][1] - accelerations[1][1])
    inside = jnp.concatenate([rates[:1], matmul(b.T, rates[1:])])
    angular_bias = 0.5 * scale * quaternion_multiply(inside, between)[1:]
    return _EqualityRows(
        jnp.concatenate([twist[:3], jacobian]),
        jnp.concatenate([position, scale * between[1:]]),
        jnp.concatenate([inverse_weight, jnp.broadcast_to(rotation, (3,))]),
        jnp.concatenate([bias, angular_bias]),
    )


def _pure(w: Array) -> Array:
    return jnp.concatenate([jnp.zeros_like(w[:1]), w])
