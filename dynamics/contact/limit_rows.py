"""The rows of friction in joints, and of joint limits."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..manifold import scalar_coordinates
from ..math.rotation import quaternion_log
from ..model.robot import Robot
from .impedance import impedance, spring
from .model import Constraints
from .rows import ScalarRows
from .scalar_rows import soft_rows, units


def friction_loss_rows(robot: Robot, c: Constraints, v: Array, timestep: Array) -> list[ScalarRows]:
    """Rows of joints with friction loss."""
    dofs = np.array(c.layout.friction_loss, int)
    if not dofs.size:
        return []
    solref, solimp = (
        jnp.asarray(x, v.dtype)[dofs] for x in (c.joints.friction_solref, c.joints.friction_solimp)
    )
    position = jnp.zeros(len(dofs), v.dtype)
    pull = (position, spring(solref, solimp, timestep).damping, impedance(solimp, position))
    loss = jnp.asarray(robot.friction, v.dtype)[dofs]
    inverse = jnp.asarray(c.weights.dof, v.dtype)[dofs]
    return [soft_rows(units(robot, dofs, v), v, position, pull, inverse, (-loss, loss))]


def limit_rows(
    robot: Robot, c: Constraints, q: Array, v: Array, timestep: Array
) -> list[ScalarRows]:
    """Limits of joints with one axis, lower then upper of each, and of spherical joints."""
    layout, parts = c.layout, []
    if layout.limited:
        dofs = np.repeat(np.array(layout.limited, int), 2)
        side = jnp.asarray(np.tile([1.0, -1.0], len(layout.limited)), v.dtype)
        limits = jnp.asarray(robot.position_limits, v.dtype)[np.array(layout.limited)].reshape(-1)
        gap = side * (scalar_coordinates(robot, q)[dofs] - limits)
        parts.append(_limit(c, dofs, side[:, None] * units(robot, dofs, v), v, gap, timestep))
    for body in layout.limited_balls:
        start = int(robot.topology.v_index[body])
        at = int(robot.topology.q_index[body])
        turned = quaternion_log(q[at : at + 4])
        square = jnp.sum(turned * turned)
        turns = square > 0
        angle = jnp.sqrt(jnp.where(turns, square, 1.0))
        axis = jnp.where(turns, turned / angle, jnp.asarray([1.0, 0.0, 0.0], v.dtype))
        jacobian = jnp.zeros((1, robot.nv), v.dtype).at[0, start : start + 3].set(-axis)
        largest = jnp.max(jnp.asarray(robot.position_limits, v.dtype)[start])
        gap = (largest - jnp.where(turns, angle, 0.0))[None]
        parts.append(_limit(c, np.array([start]), jacobian, v, gap, timestep))
    return parts


def _limit(
    c: Constraints, dofs: np.ndarray, jacobian: Array, v: Array, gap: Array, timestep: Array
) -> ScalarRows:
    """Rows of limits that are `gap` (m,) away, with the parameters of the dofs (m,)."""
    margin, solref, solimp, inverse = (
        jnp.asarray(x, v.dtype)[dofs]
        for x in (c.joints.margin, c.joints.limit_solref, c.joints.limit_solimp, c.weights.dof)
    )
    active = gap < margin
    position = jnp.where(active, gap, 0.0) - jnp.where(active, margin, 0.0)
    pull = (*spring(solref, solimp, timestep), impedance(solimp, position))
    part = soft_rows(jacobian, v, position, pull, inverse, (0.0, np.inf))
    return dataclasses.replace(part, weight=jnp.where(active, part.weight, 0.0))
