"""Inverse weights: how easily links and joints move at the reference configuration.

MuJoCo scales each constraint's softness by them, so that one choice of `solref` and `solimp` suits
light and heavy bodies ("Computation", section "Constraint model: diagonal approximation").
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..crba import crba
from ..kinematics import Kinematics, compute_kinematics
from ..math.algebra import cross, matvec
from ..model.robot import WORLD, Robot
from ..model.tree import dof_forces, of_bodies
from ..solvers.cholesky import cholesky, solve_upper
from .model import Constraints, InverseWeights


def inverse_weights(system: Robot, constraints: Constraints) -> InverseWeights:
    """MuJoCo's `body_invweight0` and `dof_invweight0`.

    At `constraints.reference`: of a link, the mean of the diagonal of `J M^-1 J^T` of its centre of
    mass, for translation and rotation; of a joint, the mean of the diagonal of `M^-1` over its
    translational and over its rotational degrees of freedom. Differentiable by the system's
    parameters.

    Source: MuJoCo, engine_setconst.c, `set0`.
    """
    reference = jnp.asarray(constraints.reference)
    kin = compute_kinematics(system, reference)
    factor = cholesky(crba(system, reference, kin=kin))
    return InverseWeights(
        *_of_links(system, constraints, kin, factor), _of_dofs(system, constraints, factor)
    )


def _of_links(
    system: Robot, constraints: Constraints, kin: Kinematics, factor: Array
) -> tuple[Array, Array]:
    """Weights by link for translation and for rotation."""
    topology, links = system.topology, constraints.layout.links
    of_link = np.array([link.body for link in links])
    moving = np.flatnonzero(of_link != WORLD)
    translation = rotation = jnp.zeros(len(links), factor.dtype)
    if not moving.size:
        return translation, rotation
    bodies = of_link[moving]
    com = jnp.asarray(constraints.link_com, factor.dtype)[moving]
    point = matvec(kin.rotation[bodies], com) + kin.relative[bodies]
    # (links, na, 3): each link's point from the body that each axis moves.
    lever = point[:, None] - of_bodies(topology, kin.relative)[None]
    rotates = topology.axes.rotates[None, :, None]
    moves = topology.axes.moves[bodies][:, :, None]
    axis = jnp.broadcast_to(kin.axis, lever.shape)
    linear = jnp.where(moves, jnp.where(rotates, cross(axis, lever), axis), 0.0)
    angular = jnp.where(moves & rotates, axis, 0.0)
    translation = translation.at[moving].set(_mean_mobility(system, factor, linear))
    rotation = rotation.at[moving].set(_mean_mobility(system, factor, angular))
    for i, link in enumerate(links):
        if link.simple:
            translation = translation.at[i].set(1 / jnp.asarray(system.mass)[link.body])
            rotation = rotation.at[i].set(0.0)
    return translation, rotation


def _mean_mobility(system: Robot, factor: Array, columns: Array) -> Array:
    """Mean over the three directions (n,) of `J M^-1 J^T`, from columns by axis (n, na, 3)."""
    n = len(columns)
    by_axis = jnp.moveaxis(columns, 1, 0).reshape(-1, 3 * n)
    half = solve_upper(factor, dof_forces(system, by_axis))  # M^-1 = U^-T U^-1
    return jnp.sum(half * half, axis=0).reshape(n, 3).sum(-1) / 3


def _of_dofs(system: Robot, constraints: Constraints, factor: Array) -> Array:
    half = solve_upper(factor, jnp.eye(system.nv, dtype=factor.dtype))
    weights = jnp.sum(half * half, axis=0)
    topology = system.topology
    for i, joint in enumerate(topology.joints):
        start = int(topology.v_index[i])
        if joint.mimic is None and joint.kind in ("spherical", "floating"):
            for first in range(start, start + joint.nv, 3):
                three = slice(first, first + 3)
                weights = weights.at[three].set(jnp.sum(weights[three]) / 3)
    for link in constraints.layout.links:
        if link.simple:
            for body in _slides_of(system, link.body):
                dof = int(topology.v_index[body])
                weights = weights.at[dof].set(1 / jnp.asarray(system.mass)[link.body])
    return weights


def _slides_of(system: Robot, body: int) -> list[int]:
    """The body and its ancestors: all slides of a simple link."""
    return [int(i) for i in np.flatnonzero(system.topology.supported[body])]
