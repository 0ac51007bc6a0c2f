"""Forward kinematics, and the spatial quantities that every algorithm derives from it.

Formulation: Morton and Pavone, the frax paper. All spatial vectors are expressed in the world
frame, so that sums over the tree become products with the constant ancestor mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .algebra import cross, einsum, matmul
from .errors import ArrayError
from .robot import WORLD, Robot, Topology
from .spatial import spatial_inertia


class Poses(NamedTuple):
    """Poses of the n moving bodies in the world: `position` (n, 3), m; `rotation` (n, 3, 3)."""

    position: Array
    rotation: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Kinematics:
    """What one forward kinematics gives to every algorithm at the same configuration.

    Compute it once per configuration (`compute_kinematics`) and pass it on as `kin=`.

    Attributes:
        position: (n, 3), m, of the bodies' frames in the world.
        rotation: (n, 3, 3), body to world.
        S: (n, 6), joint axes as spatial motion vectors `[linear; angular]` in the world frame.
        inertia: (n, 6, 6), spatial inertias of the bodies in the world frame.
    """

    position: Array
    rotation: Array
    S: Array
    inertia: Array


def forward_kinematics(robot: Robot, q: ArrayLike) -> Poses:
    """Pose of every moving body in the world.

    Args:
        robot: the model.
        q: (nq,), rad and m.

    Returns:
        position (n, 3), m, and rotation (n, 3, 3), in the order of `robot.topology.body_names`.

    Raises:
        ArrayError: `q` is not of shape (nq,).
    """
    q = configuration(robot, q)
    local = _joint_poses(robot.topology, q)
    if _is_serial(robot.topology):
        return Poses(*jax.lax.associative_scan(_compose, tuple(local)))
    return _poses_by_level(robot.topology, local)


def compute_kinematics(robot: Robot, q: ArrayLike) -> Kinematics:
    """Forward kinematics with joint axes and spatial inertias, to be shared by algorithms.

    Args:
        robot: the model.
        q: (nq,), rad and m.
    """
    q = configuration(robot, q)
    topology, dtype = robot.topology, q.dtype
    position, rotation = forward_kinematics(robot, q)

    axis = einsum("nij,nj->ni", rotation, jnp.asarray(topology.axis, dtype))
    revolute = jnp.asarray(topology.is_revolute)[:, None]
    S = jnp.concatenate(
        [
            jnp.where(revolute, cross(position, axis), axis),
            jnp.where(revolute, axis, jnp.zeros_like(axis)),
        ],
        axis=-1,
    )

    com = position + einsum("nij,nj->ni", rotation, jnp.asarray(robot.com, dtype))
    inertia = einsum("nij,njk,nlk->nil", rotation, jnp.asarray(robot.inertia, dtype), rotation)
    return Kinematics(
        position, rotation, S, spatial_inertia(jnp.asarray(robot.mass, dtype), com, inertia)
    )


def frame_pose(
    robot: Robot, q: ArrayLike, frame: str, *, kin: Kinematics | Poses | None = None
) -> tuple[Array, Array]:
    """Pose of a frame in the world: position (3,), m, and rotation (3, 3), frame to world.

    Args:
        robot: the model.
        q: (nq,), rad and m.
        frame: name of a link or of an end effector.
        kin: kinematics at `q`, or the bodies' poses, if already computed.

    Raises:
        UnknownNameError: the robot has no such frame.
    """
    q = configuration(robot, q)
    f = robot.frame(frame)
    position, rotation = jnp.asarray(f.position, q.dtype), jnp.asarray(f.rotation, q.dtype)
    if f.body == WORLD:
        return position, rotation
    poses = kin if kin is not None else forward_kinematics(robot, q)
    body = poses.rotation[f.body]
    return poses.position[f.body] + matmul(body, position), matmul(body, rotation)


def configuration(robot: Robot, q: ArrayLike) -> Array:
    """`q` as a floating-point array, its shape checked."""
    return _vector(robot, "q", q, robot.nq)


def tangent(robot: Robot, name: str, v: ArrayLike) -> Array:
    """A tangent vector (velocity, acceleration, torque) as a floating-point array, checked."""
    return _vector(robot, name, v, robot.nv)


def tree_mask(robot: Robot, dtype: jnp.dtype) -> Array:
    """The ancestor mask `U` (n, n): `U @ x` sums over ancestors, `U.T @ x` over descendants."""
    return jnp.asarray(robot.topology.ancestor_mask, dtype)


def _vector(robot: Robot, name: str, x: ArrayLike, size: int) -> Array:
    x = jnp.asarray(x)
    if x.shape != (size,):
        raise ArrayError(
            f"{name} of robot {robot.name!r} has shape {x.shape}, expected ({size},). "
            "Dynamics functions take one environment's arrays; batch them with jax.vmap."
        )
    return x.astype(jnp.result_type(x.dtype, float))


def _joint_poses(topology: Topology, q: Array) -> Poses:
    """Each body's pose in its parent's frame, (n, 3) and (n, 3, 3).

    Rodrigues' formula with the fixed rotation multiplied in beforehand:
    `R0 exp([a]x t) = R0 a a^T + cos(t) R0 (1 - a a^T) + sin(t) R0 [a]x`.
    """
    R0, a = topology.rotation, topology.axis
    along = R0 @ (a[:, :, None] * a[:, None, :])
    skew = np.cross(a[:, None, :], np.eye(3)[None]).transpose(0, 2, 1)
    # A prismatic joint turns by nothing: its cosine is one and its sine zero.
    cos = jnp.where(topology.is_revolute, jnp.cos(q), 1.0)[:, None, None]
    sin = jnp.where(topology.is_revolute, jnp.sin(q), 0.0)[:, None, None]
    rotation = (
        jnp.asarray(along, q.dtype)
        + cos * jnp.asarray(R0 - along, q.dtype)
        + sin * jnp.asarray(R0 @ skew, q.dtype)
    )
    direction = np.where(topology.is_revolute[:, None], 0.0, (R0 @ a[:, :, None])[:, :, 0])
    position = (
        jnp.asarray(topology.position, q.dtype) + jnp.asarray(direction, q.dtype) * q[:, None]
    )
    return Poses(position, rotation)


def _is_serial(topology: Topology) -> bool:
    return bool(np.array_equal(topology.parent, np.arange(len(topology.parent)) - 1))


def _compose(outer: tuple[Array, Array], inner: tuple[Array, Array]) -> tuple[Array, Array]:
    """Products of stacked poses: `outer` after `inner`."""
    position = outer[0] + einsum("nij,nj->ni", outer[1], inner[0])
    return position, einsum("nij,njk->nik", outer[1], inner[1])


def _poses_by_level(topology: Topology, local: Poses) -> Poses:
    position, rotation = local
    for level in topology.levels[1:]:
        parent = topology.parent[level]
        p, R = _compose((position[parent], rotation[parent]), (position[level], rotation[level]))
        position, rotation = position.at[level].set(p), rotation.at[level].set(R)
    return Poses(position, rotation)
