"""Forward kinematics, and the spatial quantities that every algorithm derives from it.

Formulation: Morton and Pavone, the frax paper. All spatial vectors are expressed in one frame, in
world axes, so that sums over the tree become products with the constant ancestor mask. Joints with
several degrees of freedom contribute several axes to one body.
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
from .rotation import quaternion_normalize, quaternion_to_matrix
from .spatial import motion_cross, spatial_inertia


class Poses(NamedTuple):
    """Poses of the nb moving bodies in the world: `position` (nb, 3), m; `rotation` (nb, 3, 3)."""

    position: Array
    rotation: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Kinematics:
    """What one forward kinematics gives to every algorithm at the same configuration.

    Compute it once per configuration (`compute_kinematics`) and pass it on as `kin=`.

    Attributes:
        position: (nb, 3), m, of the bodies' frames in the world.
        rotation: (nb, 3, 3), body to world.
        origin: (3,), m, the point in the world that the spatial vectors below are about: the base
            of a robot that travels, the world's origin otherwise.
        S: (na, 6), joint axes as spatial motion vectors `[linear; angular]`, in world axes.
        inertia: (nb, 6, 6), spatial inertias of the bodies, in world axes.
    """

    position: Array
    rotation: Array
    origin: Array
    S: Array
    inertia: Array


def forward_kinematics(robot: Robot, q: ArrayLike) -> Poses:
    """Pose of every moving body in the world.

    Args:
        robot: the model.
        q: (nq,), rad and m.

    Returns:
        position (nb, 3), m, and rotation (nb, 3, 3), in the order of `robot.topology.body_names`.

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

    Raises:
        ArrayError: `q` is not of shape (nq,).
    """
    q = configuration(robot, q)
    position, rotation = forward_kinematics(robot, q)
    reference = robot.topology.reference_body
    origin = jnp.zeros_like(position[0]) if reference == WORLD else position[reference]
    relative = position if reference == WORLD else position - origin

    axes, dtype = robot.topology.axes, q.dtype
    fixed_in = rotation
    if not axes.carried_by_own_body:
        fixed_in = jnp.concatenate([rotation, jnp.eye(3, dtype=dtype)[None]])[axes.carrier]
    direction = einsum("nij,nj->ni", fixed_in, jnp.asarray(axes.direction, dtype))
    through = relative if axes.one_per_body else relative[axes.body]
    rotates = jnp.asarray(axes.rotates)[:, None]
    S = jnp.concatenate(
        [
            jnp.where(rotates, cross(through, direction), direction),
            jnp.where(rotates, direction, jnp.zeros_like(direction)),
        ],
        axis=-1,
    )

    com = relative + einsum("nij,nj->ni", rotation, jnp.asarray(robot.com, dtype))
    local = jnp.asarray(robot.inertia, dtype)
    # Only the symmetric part is an inertia; so derivatives by single entries make sense, too.
    local = 0.5 * (local + local.swapaxes(-1, -2))
    inertia = einsum("nij,njk,nlk->nil", rotation, local, rotation)
    mass = jnp.asarray(robot.mass, dtype)
    return Kinematics(position, rotation, origin, S, spatial_inertia(mass, com, inertia))


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
    """The ancestor mask `U` (nb, na): `U @ x` sums over ancestors, `U.T @ x` over descendants."""
    return jnp.asarray(robot.topology.axes.moves, dtype)


def axis_rates(robot: Robot, v: Array) -> Array:
    """Rates (na,) of the joint axes for the velocity `v` (nv,): with those that mimic others."""
    axes = robot.topology.axes
    return matmul(jnp.asarray(axes.dof, v.dtype), v) if axes.has_mimics else v


def dof_forces(robot: Robot, forces: Array) -> Array:
    """Generalized forces (nv, ...) of forces along the joint axes (na, ...): of `axis_rates`."""
    axes = robot.topology.axes
    return matmul(jnp.asarray(axes.dof.T, forces.dtype), forces) if axes.has_mimics else forces


def axes_rate(robot: Robot, kin: Kinematics, V: Array) -> Array:
    """Time derivatives (na, 6) of the joint axes `S` when the bodies move with `V` (nb, 6).

    An axis is fixed in its carrier, which takes it along.
    """
    axes = robot.topology.axes
    if not axes.carried_by_own_body:
        V = jnp.concatenate([V, jnp.zeros_like(V[:1])])[axes.carrier]
    return motion_cross(V, kin.S)


def _vector(robot: Robot, name: str, x: ArrayLike, size: int) -> Array:
    x = jnp.asarray(x)
    if x.shape != (size,):
        raise ArrayError(
            f"{name} of robot {robot.name!r} has shape {x.shape}, expected ({size},). "
            "Dynamics functions take one environment's arrays; batch them with jax.vmap."
        )
    return x.astype(jnp.result_type(x.dtype, float))


def _joint_poses(topology: Topology, q: Array) -> Poses:
    """Each body's pose in its parent's frame, (nb, 3) and (nb, 3, 3).

    Rodrigues' formula with the fixed rotation multiplied in beforehand:
    `R0 exp([a]x t) = R0 a a^T + cos(t) R0 (1 - a a^T) + sin(t) R0 [a]x`.
    """
    R0, a = topology.rotation, np.array([j.axis for j in topology.joints])
    along = R0 @ (a[:, :, None] * a[:, None, :])
    skew = np.cross(a[:, None, :], np.eye(3)[None]).transpose(0, 2, 1)
    angle, displacement = _angles_and_displacements(topology, q)
    # A prismatic joint turns by nothing: its cosine is one and its sine zero.
    turns = np.array([j.rotates[-1] for j in topology.joints])
    cos = jnp.where(turns, jnp.cos(angle), 1.0)[:, None, None]
    sin = jnp.where(turns, jnp.sin(angle), 0.0)[:, None, None]
    rotation = (
        jnp.asarray(along, q.dtype)
        + cos * jnp.asarray(R0 - along, q.dtype)
        + sin * jnp.asarray(R0 @ skew, q.dtype)
    )
    for body, start, _ in topology.quaternions:
        quaternion = quaternion_normalize(q[start : start + 4])
        turned = matmul(jnp.asarray(R0[body], q.dtype), quaternion_to_matrix(quaternion))
        rotation = rotation.at[body].set(turned)
    return Poses(jnp.asarray(topology.position, q.dtype) + displacement, rotation)


def _angles_and_displacements(topology: Topology, q: Array) -> tuple[Array, Array]:
    """Each joint's angle (nb,), rad, and displacement (nb, 3), m, in its parent's frame."""
    axes = topology.axes
    coordinate = q
    if not np.array_equal(axes.coordinate, np.arange(len(q))):
        coordinate = jnp.where(axes.coordinate < 0, 0.0, q[axes.coordinate])
    if axes.has_mimics:
        scale, shift = jnp.asarray(axes.multiplier, q.dtype), jnp.asarray(axes.offset, q.dtype)
        coordinate = scale * coordinate + shift
    local = np.concatenate([j.axes for j in topology.joints])
    direction = np.einsum("nij,nj->ni", topology.rotation[axes.body], local)
    direction = np.where(axes.rotates[:, None], 0.0, direction)
    displacement = jnp.asarray(direction, q.dtype) * coordinate[:, None]
    if axes.one_per_body:
        return coordinate, displacement
    of_body = axes.body == np.arange(len(topology.joints))[:, None]
    angle = matmul(jnp.asarray(of_body & axes.rotates, q.dtype), coordinate)
    return angle, matmul(jnp.asarray(of_body, q.dtype), displacement)


def _is_serial(topology: Topology) -> bool:
    return bool(np.array_equal(topology.parent, np.arange(len(topology.parent)) - 1))


def _compose(outer: tuple[Array, Array], inner: tuple[Array, Array]) -> tuple[Array, Array]:
    """Products of stacked poses: `outer` after `inner`."""
    position = outer[0] + einsum("nij,nj->ni", outer[1], inner[0])
    # Not a matrix product: under two nested `vmap`s XLA (of JAX 0.10) fails to compile that.
    rotation = jnp.sum(outer[1][..., :, :, None] * inner[1][..., None, :, :], axis=-2)
    return position, rotation


def _poses_by_level(topology: Topology, local: Poses) -> Poses:
    position, rotation = local
    for level in topology.levels[1:]:
        parent = topology.parent[level]
        p, R = _compose((position[parent], rotation[parent]), (position[level], rotation[level]))
        position, rotation = position.at[level].set(p), rotation.at[level].set(R)
    return Poses(position, rotation)
