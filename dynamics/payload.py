"""Payloads: what a robot carries, as a part of its model."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.errors import ConfigError, check_not_negative, is_concrete

from .jacobian import frame_bias_acceleration, frame_jacobian
from .kinematics import Kinematics
from .math.algebra import cross, matmul
from .math.pytree import pytree_dataclass, static
from .model.robot import WORLD, Frame, Robot
from .terms import Terms


@pytree_dataclass
class Payload:
    """A rigid load that is fixed to a frame of a robot.

    Attributes:
        frame: name of a link or of an end effector.
        mass: (), kg.
        com: (3,), m, its centre of mass, in the frame.
        inertia: (3, 3), kg m^2, about its centre of mass, in the frame's axes; None for a point.

    Raises:
        ConfigError: the mass is negative, or an array has the wrong shape.
    """

    frame: str = static()
    mass: ArrayLike = 0.0
    com: ArrayLike = (0.0, 0.0, 0.0)
    inertia: ArrayLike | None = None

    def __post_init__(self) -> None:
        check_not_negative(self, "mass")
        for name, last in (("com", (3,)), ("inertia", (3, 3))):
            value = getattr(self, name)
            if value is None or not is_concrete(value):
                continue
            try:
                array = np.asarray(value, float)
            except (TypeError, ValueError):
                array = np.array(np.nan)
            if array.shape[-len(last) :] != last or not np.isfinite(array).all():
                raise ConfigError(
                    f"Payload: {name}={value!r}, expected finite numbers of shape {last}."
                )


def with_payload(robot: Robot, payload: Payload) -> Robot:
    """The robot whose body carries the payload: with its mass, and its centre and moments of mass.

    The body gains the inertia of the reduced mass at the distance `d` of the two centres,
    `m M / (m + M) (|d|^2 1 - d d^T)`, and the payload's own. A frame of the world carries anything.

    Args:
        robot: the model.
        payload: what one of its frames carries.

    Raises:
        UnknownNameError: the robot has no such frame.
    """
    frame = robot.frame(payload.frame)
    i = frame.body
    if i == WORLD:
        return robot
    mass = jnp.asarray(robot.mass)
    com, inertia = (jnp.asarray(x, mass.dtype) for x in (robot.com, robot.inertia))
    load = jnp.asarray(payload.mass, mass.dtype)
    point, own = _in_body(frame, payload, mass.dtype)
    d = point - com[i]
    total = mass[i] + load
    # Of a body without a mass, that carries nothing, too.
    whole = jnp.where(total > 0, total, 1.0)
    reduced = mass[i] * load / whole
    added = reduced * (jnp.sum(d * d) * jnp.eye(3, dtype=d.dtype) - jnp.outer(d, d))
    if own is not None:
        added = added + own
    here = jnp.arange(robot.nb) == i
    return dataclasses.replace(
        robot,
        mass=jnp.where(here, total, mass),
        com=jnp.where(here[:, None], com + load / whole * d, com),
        inertia=jnp.where(here[:, None, None], inertia + added, inertia),
    )


def terms_with_payload(robot: Robot, terms: Terms, payload: Payload) -> Terms:
    """Terms of the robot with a payload, from those without it.

    They equal `compute_terms(with_payload(robot, payload), q, v)`, for a fraction of its cost:
    mass matrix and bias forces gain those of one more body, by the frame's Jacobian.

    Args:
        robot: the model without the payload.
        terms: its terms.
        payload: what one of its frames carries.

    Raises:
        UnknownNameError: the robot has no such frame.
    """
    frame = robot.frame(payload.frame)
    if frame.body == WORLD:
        return terms
    q, v, kin, dtype = terms.q, terms.v, terms.kin, terms.v.dtype
    mass = jnp.asarray(payload.mass, dtype)
    point, inertia = _in_body(frame, payload, dtype)
    body = kin.rotation[frame.body]
    com = matmul(body, point - jnp.asarray(frame.position, dtype))  # from the frame's origin

    J = frame_jacobian(robot, q, payload.frame, kin=kin)
    turning = J[3:]
    moving = J[:3] + cross(turning.T, com).T  # of the payload's centre of mass
    bias = frame_bias_acceleration(robot, q, v, payload.frame, kin=kin)
    omega, alpha = matmul(turning, v), bias[3:]
    acceleration = bias[:3] + cross(alpha, com) + cross(omega, cross(omega, com))
    force = mass * (acceleration - jnp.asarray(robot.gravity, dtype))
    mass_matrix = terms.mass_matrix + mass * matmul(moving.T, moving)
    forces = terms.bias + matmul(moving.T, force)
    if inertia is not None:
        inertia = matmul(matmul(body, inertia), body.T)
        moment = matmul(inertia, alpha) + cross(omega, matmul(inertia, omega))
        mass_matrix = mass_matrix + matmul(turning.T, matmul(inertia, turning))
        forces = forces + matmul(turning.T, moment)
    loaded = _load_kinematics(kin, frame.body, mass, matmul(body, point), inertia)
    return Terms(q, v, loaded, mass_matrix, forces)


def _in_body(frame: Frame, payload: Payload, dtype: np.dtype) -> tuple[Array, Array | None]:
    """Centre of mass (3,), m, and inertia (3, 3) of a payload in the frame of the body."""
    rotation = jnp.asarray(frame.rotation, dtype)
    turned = matmul(rotation, jnp.asarray(payload.com, dtype))
    point = jnp.asarray(frame.position, dtype) + turned
    if payload.inertia is None:
        return point, None
    inertia = jnp.asarray(payload.inertia, dtype)
    return point, matmul(matmul(rotation, inertia), rotation.T)


def _load_kinematics(
    kin: Kinematics, body: int, mass: Array, point: Array, inertia: Array | None
) -> Kinematics:
    """Kinematics whose body carries a mass at a point (3,), m, from its origin, world axes."""
    square = jnp.sum(point * point) * jnp.eye(3, dtype=point.dtype)
    about = mass * (square - jnp.outer(point, point))
    if inertia is not None:
        about = about + inertia
    return dataclasses.replace(
        kin,
        first_moment=kin.first_moment.at[body].add(mass * point),
        inertia=kin.inertia.at[body].add(about),
    )
