"""Composite rigid body algorithm, as products with the ancestor mask.

Featherstone (2008), chapter 6; vectorised as in the frax paper (Morton and Pavone).
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .algebra import einsum, matmul
from .kinematics import Kinematics, compute_kinematics, tree_mask
from .robot import Robot


def crba(robot: Robot, q: ArrayLike, *, kin: Kinematics | None = None) -> Array:
    """Joint-space mass matrix (nv, nv), kg m^2 and kg: symmetric, armature on its diagonal.

    Args:
        robot: the model.
        q: (nq,), rad and m.
        kin: kinematics at `q`, if already computed.
    """
    kin = compute_kinematics(robot, q) if kin is None else kin
    U = tree_mask(robot, kin.S.dtype)
    composite = einsum("ji,jkl->ikl", U, kin.inertia)
    force = einsum("ikl,il->ik", composite, kin.S)
    # Row i, column j: the force that moves i's subtree along joint i, felt at its ancestor j.
    lower = U * matmul(force, kin.S.T)
    strictly_upper = (lower * np.tri(robot.nv, k=-1, dtype=bool)).T
    return lower + strictly_upper + jnp.diag(jnp.asarray(robot.armature, lower.dtype))
