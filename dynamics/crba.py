"""Composite rigid body algorithm, as products with the ancestor mask.

Featherstone (2008), chapter 6; vectorised as in the frax paper (Morton and Pavone).
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .algebra import einsum, matmul
from .kinematics import Kinematics, compute_kinematics, dof_forces, tree_mask
from .robot import Robot


def crba(robot: Robot, q: ArrayLike, *, kin: Kinematics | None = None) -> Array:
    """Joint-space mass matrix (nv, nv), kg m^2 and kg: symmetric, armature on its diagonal.

    Args:
        robot: the model.
        q: (nq,), rad and m.
        kin: kinematics at `q`, if already computed.
    """
    kin = compute_kinematics(robot, q) if kin is None else kin
    axes, dtype = robot.topology.axes, kin.S.dtype
    composite = einsum("ji,jkl->ikl", tree_mask(robot, dtype), kin.inertia)
    force = einsum("ikl,il->ik", composite, kin.S)
    # Row i, column j: the force that moves i's subtree along axis i, felt at its ancestor j.
    lower = jnp.asarray(np.tril(axes.moves[axes.body]), dtype) * matmul(force, kin.S.T)
    strictly_upper = (lower * np.tri(len(lower), k=-1, dtype=bool)).T
    M = lower + strictly_upper
    if axes.has_mimics:
        M = dof_forces(robot, dof_forces(robot, M).T)
    return M + jnp.diag(jnp.asarray(robot.armature, dtype))
