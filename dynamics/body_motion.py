"""Velocities and accelerations of the bodies, passed on from the roots outwards.

The first half of the recursive Newton-Euler algorithm (Luh, Walker and Paul, 1980), in world axes.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from .kinematics import Kinematics, spatial_axes
from .math.algebra import cross, matmul, matvec
from .math.rotation import skew
from .math.tracing import traced_once
from .model.robot import Robot, Topology
from .model.tree import (
    axis_rates,
    axis_sums,
    of_bases,
    of_carriers,
    of_parents,
    path_sums,
    tree_mask,
)


class BodyMotion(NamedTuple):
    """Motion of the moving bodies, in world axes.

    Attributes:
        angular_velocity: (nb, 3), rad/s.
        angular_acceleration: (nb, 3), rad/s^2.
        acceleration: (nb, 3), m/s^2, of the bodies' origins; without gravity.
        gradient: (nb, 3, 3), 1/s^2, of the acceleration within the body: a point at `r` from the
            body's origin has `acceleration + gradient @ r`.
    """

    angular_velocity: Array
    angular_acceleration: Array
    acceleration: Array
    gradient: Array


@traced_once
def body_motion(robot: Robot, kin: Kinematics, v: Array, a: Array) -> BodyMotion:
    """Motion of the bodies at joint velocities `v` (nv,) and accelerations `a` (nv,)."""
    topology, rotates = robot.topology, robot.topology.axes.rotates[:, None]
    along = kin.axis * axis_rates(robot, v)[:, None]
    omega = angular_velocity(topology, along)
    # Axes turn with the bodies that they are fixed in; translations feel that twice (Coriolis).
    carried = cross(of_carriers(topology, omega), along)
    sped_up = kin.axis * axis_rates(robot, a)[:, None]
    turned = axis_sums(topology, jnp.where(rotates, sped_up + carried, 0.0))
    shifted = axis_sums(topology, jnp.where(rotates, 0.0, sped_up + 2 * carried))

    alpha = path_sums(topology, turned)
    gradient = skew(alpha) + skew_square(omega)
    of_next = of_parents(topology, gradient, jnp.zeros_like(gradient[0]))
    acceleration = path_sums(topology, shifted + matvec(of_next, kin.offset))
    return BodyMotion(omega, alpha, acceleration, gradient)


@traced_once
def body_twists(robot: Robot, kin: Kinematics, v: Array) -> Array:
    """Spatial velocities (nb, 6) of the bodies, about `reference_points`."""
    S = spatial_axes(robot.topology, kin)
    return matmul(tree_mask(robot, S.dtype), S * axis_rates(robot, v)[:, None])


@traced_once
def kinematics_rate(robot: Robot, kin: Kinematics, twists: Array) -> Kinematics:
    """Time derivative of `kin` for bodies that move with the `body_twists` (nb, 6).

    In closed form: differentiating the forward kinematics costs several times as much.
    """
    topology, omega = robot.topology, twists[:, 3:]
    velocity = twists[:, :3] + cross(omega, kin.relative)
    turned = matmul(skew(omega), kin.inertia)
    return Kinematics(
        position=velocity,
        rotation=matmul(skew(omega), kin.rotation),
        relative=velocity - of_bases(topology, velocity) if topology.travels else velocity,
        offset=velocity - of_parents(topology, velocity, jnp.zeros_like(velocity[0])),
        axis=cross(of_carriers(topology, omega), kin.axis),
        first_moment=cross(omega, kin.first_moment),
        inertia=turned + turned.swapaxes(-1, -2),
    )


def angular_velocity(topology: Topology, along: Array) -> Array:
    """Angular velocities (nb, 3), rad/s, of the bodies.

    Args:
        topology: the robot's.
        along: (na, 3), the joint axes times their rates, rad/s and m/s.
    """
    turning = jnp.where(topology.axes.rotates[:, None], along, 0.0)
    return path_sums(topology, axis_sums(topology, turning))


def skew_square(w: Array) -> Array:
    """Squared cross-product matrices `[w]x [w]x` (n, 3, 3) of vectors (n, 3)."""
    length = jnp.sum(w * w, axis=-1)[:, None, None] * jnp.eye(3, dtype=w.dtype)
    return w[:, :, None] * w[:, None, :] - length
