"""Velocities and accelerations of the bodies, and how a displacement of an axis changes them.

In spatial vectors, about `reference_points`. Displaced along an axis `S_j`, the bodies that it
moves turn with it, and what moves the axis itself does not: `V` changes by `S_j x V + psi_dot_j`,
and `A` by `S_j x A + psi_ddot_j + psi_dot_j x V`.

Source: Singh, Russell and Wensing, "Efficient analytical derivatives of rigid-body dynamics using
spatial vector algebra" (RA-L 2022), eqs. 21 to 26, extended to joints with several axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from .kinematics import Kinematics, spatial_axes
from .math.algebra import matmul
from .math.spatial import motion_cross
from .model.robot import Robot, Topology
from .model.tree import axis_rates, of_carriers, tree_mask


@dataclass(frozen=True)
class AxisMasks:
    """Constant relations between axes, (na, na) bool each.

    Attributes:
        above: `above[i, j]`: axis j moves the body of axis i; true among the axes of one joint.
        carried: `carried[i, j]`: axis i is fixed in a body that axis j moves.
        behind: `behind[j, i]`: axis i moves the body of axis j, and axis j does not carry axis i.
            `behind @ (S v)` is the velocity of that body without the axes that axis j carries.
    """

    above: np.ndarray
    carried: np.ndarray
    behind: np.ndarray


def axis_masks(topology: Topology) -> AxisMasks:
    """Of a robot's axes."""
    axes = topology.axes
    above = axes.moves[axes.body]
    moves_carrier = np.concatenate([axes.moves, np.zeros((1, len(axes.body)), bool)])
    carried = moves_carrier[axes.carrier]
    return AxisMasks(above, carried, above & ~carried.T)


class DisplacedMotion(NamedTuple):
    """Motion vectors of bodies (nb, 6) and of joint axes (na, 6).

    Attributes:
        S: the axes.
        V: velocities of the bodies.
        A: their accelerations, and what lifts all of them.
        S_dot: rates of the axes.
        psi_dot: see above.
        psi_ddot: see above.
    """

    S: Array
    V: Array
    A: Array
    S_dot: Array
    psi_dot: Array
    psi_ddot: Array


def displaced_motion(
    robot: Robot, kin: Kinematics, v: Array, a: Array, lift: Array
) -> DisplacedMotion:
    """Motion at joint velocities `v` and accelerations `a` (nv,), the world lifted by `lift` (6,).

    Args:
        robot: the model.
        kin: kinematics.
        v: rad/s and m/s.
        a: rad/s^2 and m/s^2.
        lift: acceleration of the world: gravity's, backwards, for forces; zero for motion.
    """
    S = spatial_axes(robot.topology, kin)
    U, behind = tree_mask(robot, S.dtype), jnp.asarray(axis_masks(robot.topology).behind, S.dtype)
    rates = axis_rates(robot, v)[:, None]
    Sv = S * rates
    V = matmul(U, Sv)
    S_dot = motion_cross(of_carriers(robot.topology, V), S)
    Sa = S * axis_rates(robot, a)[:, None] + S_dot * rates
    A = matmul(U, Sa) + lift
    W = matmul(behind, Sv)
    psi_dot = motion_cross(W, S)
    psi_ddot = motion_cross(matmul(behind, Sa) + lift, S) + motion_cross(W, psi_dot)
    return DisplacedMotion(S, V, A, S_dot, psi_dot, psi_ddot)
