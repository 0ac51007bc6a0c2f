"""Passive forces and actuators' forces of a scene, and their derivatives by the velocity.

MuJoCo's `qfrc_passive` and `qfrc_actuator` ("Computation", sections "Passive forces" and "Actuation
model").
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from fraxenv.errors import ArrayError

from ..kinematics import (
    Kinematics,
    checked_configuration,
    checked_tangent,
    compute_kinematics,
)
from ..manifold import difference, scalar_coordinates
from ..math.algebra import cross, matvec
from ..model.robot import WORLD
from ..rnea import generalized_forces
from .scene import Scene


def passive_forces(
    scene: Scene,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    *,
    kin: Kinematics | None = None,
) -> Float[Array, " nv"]:
    """Springs, damping and gravity compensation, N m and N.

    A spring pulls along `difference(q, reference)`: that of a ball or free joint turns the short
    way back.

    Args:
        scene: the scene.
        q: rad and m.
        v: rad/s and m/s.
        kin: kinematics at `q`, if already computed.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    q, v = checked_configuration(scene.system, q), checked_tangent(scene.system, "v", v)
    reference = jnp.asarray(scene.spring_reference, q.dtype)
    stretch = difference(scene.system, reference, q)
    force = -jnp.asarray(scene.stiffness, q.dtype) * stretch
    force = force - jnp.asarray(scene.system.damping, q.dtype) * v
    if scene.gravity_compensation is None:
        return force
    kin = compute_kinematics(scene.system, q) if kin is None else kin
    return force + generalized_forces(scene.system, q, _held_weight(scene, kin), kin=kin)


def _held_weight(scene: Scene, kin: Kinematics) -> Array:
    """Force and moment (nb, 6) that gravity compensation puts on each body."""
    system, dtype = scene.system, kin.rotation.dtype
    of_link = np.array([link.body for link in scene.constraints.layout.links])
    moving = np.flatnonzero(of_link != WORLD)
    bodies = of_link[moving]
    held = jnp.asarray(scene.gravity_compensation, dtype) * jnp.asarray(scene.link_share, dtype)
    mass = held[moving] * jnp.asarray(system.mass, dtype)[bodies]
    com = jnp.asarray(scene.constraints.link_com, dtype)[moving]
    force = -mass[:, None] * jnp.asarray(system.gravity, dtype)
    moment = cross(matvec(kin.rotation[bodies], com), force)
    belongs = jnp.asarray(bodies[None, :] == np.arange(system.nb)[:, None], dtype)
    both = jnp.concatenate([force, moment], axis=-1)
    return jnp.sum(belongs[:, :, None] * both[None], axis=1)


def actuator_forces(
    scene: Scene,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    ctrl: Real[ArrayLike, " nu"] | None,
) -> Float[Array, " nv"]:
    """Generalized forces of the actuators, N m and N, within their ranges and those of joints.

    Args:
        scene: the scene.
        q: rad and m.
        v: rad/s and m/s.
        ctrl: the controls; None for zeros.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    q, v = checked_configuration(scene.system, q), checked_tangent(scene.system, "v", v)
    if not scene.actuators.dofs:
        checked_controls(scene, ctrl, v)
        return jnp.zeros_like(v)
    force, _ = _affine_forces(scene, q, v, ctrl)
    clamped = _clamped(force, scene.actuators.force_range)
    felt = _by_dof(scene, clamped * jnp.asarray(scene.actuators.gear, v.dtype))
    return _clamped(felt, scene.actuators.joint_range)


def velocity_slopes(
    scene: Scene,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    ctrl: Real[ArrayLike, " nu"] | None,
) -> Float[Array, " nv"]:
    """Derivative by `v` of passive and actuator forces, which is diagonal, for `implicitfast`.

    An actuator that its own range or that of its joint clamps has none, as in MuJoCo from 4.0 on.

    Args:
        scene: the scene.
        q: rad and m.
        v: rad/s and m/s.
        ctrl: the controls; None for zeros.

    Returns:
        N m s/rad and N s/m; negative where it damps.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    q, v = checked_configuration(scene.system, q), checked_tangent(scene.system, "v", v)
    slope = -jnp.asarray(scene.system.damping, v.dtype)
    if not scene.actuators.dofs:
        return jnp.broadcast_to(slope, v.shape)
    force, by_rate = _affine_forces(scene, q, v, ctrl)
    act, gear = scene.actuators, jnp.asarray(scene.actuators.gear, v.dtype)
    felt = _by_dof(scene, gear * _clamped(force, act.force_range))
    by_rate = jnp.where(_within(force, act.force_range), by_rate * gear * gear, 0.0)
    return slope + jnp.where(_within(felt, act.joint_range), _by_dof(scene, by_rate), 0.0)


def position_slopes(
    scene: Scene,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    ctrl: Real[ArrayLike, " nu"] | None,
) -> Float[Array, " nv"]:
    """Derivative by the configuration of springs' and actuator forces: its diagonal.

    As `velocity_slopes`; N m/rad and N/m, negative where it pulls back.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    q, v = checked_configuration(scene.system, q), checked_tangent(scene.system, "v", v)
    act = scene.actuators
    slope: Array = jnp.broadcast_to(-jnp.asarray(scene.stiffness, v.dtype), v.shape)
    if not act.dofs:
        return slope
    force, _ = _affine_forces(scene, q, v, ctrl)
    gear = jnp.asarray(act.gear, v.dtype)
    u = _clamped(checked_controls(scene, ctrl, v), act.ctrl_range)
    by_length = jnp.asarray(act.gain, v.dtype)[:, 1] * u + jnp.asarray(act.bias, v.dtype)[:, 1]
    free = _within(force, act.force_range)
    return slope + _by_dof(scene, jnp.where(free, by_length * gear * gear, 0.0))


def _affine_forces(scene: Scene, q: Array, v: Array, ctrl: ArrayLike | None) -> tuple[Array, Array]:
    """Forces (nu,) before they are clamped, and their derivatives (nu,) by the rate."""
    act = scene.actuators
    dofs, gear = np.array(act.dofs), jnp.asarray(act.gear, v.dtype)
    clamped = _clamped(checked_controls(scene, ctrl, v), act.ctrl_range)
    length, rate = gear * scalar_coordinates(scene.system, q)[dofs], gear * v[dofs]
    gain, bias = jnp.asarray(act.gain, v.dtype), jnp.asarray(act.bias, v.dtype)
    force = (gain[:, 0] + gain[:, 1] * length + gain[:, 2] * rate) * clamped
    force = force + bias[:, 0] + bias[:, 1] * length + bias[:, 2] * rate
    return force, gain[:, 2] * clamped + bias[:, 2]


def checked_controls(scene: Scene, ctrl: ArrayLike | None, v: Array) -> Array:
    """The controls (nu,) in the dtype of `v`; zeros for None.

    Raises:
        ArrayError: they have the wrong shape.
    """
    if ctrl is None:
        return jnp.zeros(scene.nu, v.dtype)
    u = jnp.asarray(ctrl, v.dtype)
    if u.shape != (scene.nu,):
        raise ArrayError(
            f"ctrl of scene {scene.name!r} has shape {u.shape}, expected ({scene.nu},): one for "
            f"each of the actuators {', '.join(scene.actuator_names) or '(there are none)'}. Batch "
            "with jax.vmap."
        )
    return u


def _within(x: Array, ranges: ArrayLike) -> Array:
    low, high = jnp.moveaxis(jnp.asarray(ranges, x.dtype), -1, 0)
    inside: Array = (x > low) & (x < high)
    return inside


def _clamped(x: Array, ranges: ArrayLike) -> Array:
    low, high = jnp.moveaxis(jnp.asarray(ranges, x.dtype), -1, 0)
    return jnp.clip(x, low, high)


def _by_dof(scene: Scene, x: Array) -> Array:
    """Sums (nv,) of values by actuator (nu,) over each degree of freedom."""
    of_dof = np.array(scene.actuators.dofs)[None, :] == np.arange(scene.nv)[:, None]
    return jnp.sum(jnp.where(of_dof, x[None, :], 0.0), axis=1)
