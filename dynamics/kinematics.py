"""Forward kinematics, with the joint axes and inertias that every algorithm derives from it.

All quantities are in world axes, so that those of different bodies can be added, but about each
body's own origin: a common origin far away would cost light bodies digits to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from fraxenv.errors import ArrayError

from .math.algebra import cross, einsum, matmul, matvec, mirrored
from .math.pytree import pytree_dataclass
from .math.rotation import quaternion_normalize, quaternion_to_matrix
from .math.spatial import parallel_axes
from .math.tracing import traced_once
from .model.robot import WORLD, Robot, Topology
from .model.tree import of_bases, of_bodies, of_parents, path_sums


class Poses(NamedTuple):
    """Poses of the nb moving bodies in the world: `position` (nb, 3), m; `rotation` (nb, 3, 3)."""

    position: Array
    rotation: Array


@pytree_dataclass
class Kinematics:
    """Poses, joint axes and inertias at one configuration, shared by all algorithms.

    Compute it once per configuration (`compute_kinematics`) and pass it on as `kin=`.

    Attributes:
        position: (nb, 3), m, the bodies' origins in the world.
        rotation: (nb, 3, 3), body to world.
        relative: (nb, 3), m, `position` minus its `reference_points`: the base of a tree that
            travels, computed without the rounding of far travels; elsewhere the world's origin.
        offset: (nb, 3), m, from the parent's origin (the world's, for a root) to the body's.
        axis: (na, 3), unit directions of the joint axes.
        first_moment: (nb, 3), kg m, mass times centre of mass, about the body's origin.
        inertia: (nb, 3, 3), kg m^2, about the body's origin.

    All but `rotation` are in world axes.
    """

    position: Array
    rotation: Array
    relative: Array
    offset: Array
    axis: Array
    first_moment: Array
    inertia: Array


def forward_kinematics(robot: Robot, q: Real[ArrayLike, " nq"]) -> Poses:
    """Pose of every moving body in the world.

    Args:
        robot: the model.
        q: rad and m.

    Returns:
        position (nb, 3), m, and rotation (nb, 3, 3), in the order of `robot.topology.body_names`.

    Raises:
        ArrayError: `q` has the wrong shape.
    """
    rotation, offset = _rotations_and_offsets(robot.topology, checked_configuration(robot, q))
    return Poses(_positions(robot.topology, offset)[0], rotation)


@traced_once
def compute_kinematics(robot: Robot, q: Real[ArrayLike, " nq"]) -> Kinematics:
    """Forward kinematics with joint axes and inertias, for `kin=` of other functions.

    Args:
        robot: the model.
        q: rad and m.

    Raises:
        ArrayError: `q` has the wrong shape.
    """
    q = checked_configuration(robot, q)
    rotation, offset = _rotations_and_offsets(robot.topology, q)
    position, relative = _positions(robot.topology, offset)

    axes, dtype = robot.topology.axes, q.dtype
    fixed_in = rotation
    if not axes.carried_by_own_body:
        fixed_in = jnp.concatenate([rotation, jnp.eye(3, dtype=dtype)[None]])[axes.carrier]
    axis = matvec(fixed_in, jnp.asarray(axes.direction, dtype))

    com = jnp.asarray(robot.com, dtype)
    first_moment = jnp.asarray(robot.mass, dtype)[:, None] * com
    inertia = jnp.asarray(robot.inertia, dtype) + parallel_axes(0.5 * first_moment, com)
    # Only the symmetric part counts, so that derivatives by single entries are right, too.
    inertia = 0.5 * (inertia + inertia.swapaxes(-1, -2))
    inertia = mirrored(einsum("nij,njk,nlk->nil", rotation, inertia, rotation))
    first_moment = matvec(rotation, first_moment)
    return Kinematics(position, rotation, relative, offset, axis, first_moment, inertia)


@traced_once
def frame_pose(
    robot: Robot, q: Real[ArrayLike, " nq"], frame: str, *, kin: Kinematics | Poses | None = None
) -> tuple[Float[Array, " 3"], Float[Array, "3 3"]]:
    """Pose of a frame in the world: position, m, and rotation, frame to world.

    Args:
        robot: the model.
        q: rad and m.
        frame: name of a link or of an end effector.
        kin: kinematics at `q`, or the bodies' poses, if already computed.

    Raises:
        UnknownNameError: the robot has no such frame.
    """
    q = checked_configuration(robot, q)
    f = robot.frame(frame)
    position, rotation = jnp.asarray(f.position, q.dtype), jnp.asarray(f.rotation, q.dtype)
    if f.body == WORLD:
        return position, rotation
    poses = kin if kin is not None else forward_kinematics(robot, q)
    body = poses.rotation[f.body]
    return poses.position[f.body] + matmul(body, position), matmul(body, rotation)


def frame_poses(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    frames: Sequence[str],
    *,
    kin: Kinematics | Poses | None = None,
) -> tuple[Float[Array, "k 3"], Float[Array, "k 3 3"]]:
    """Poses of k frames, stacked; for the arguments and errors see `frame_pose`."""
    kin = forward_kinematics(robot, q) if kin is None else kin
    poses = [frame_pose(robot, q, frame, kin=kin) for frame in frames]
    return jnp.stack([p for p, _ in poses]), jnp.stack([r for _, r in poses])


@traced_once
def spatial_axes(topology: Topology, kin: Kinematics) -> Array:
    """The joint axes `S` (na, 6) as spatial motion vectors, about `reference_points`.

    A tree has one reference point, so that vectors of the same tree can be added.
    """
    rotates = topology.axes.rotates[:, None]
    turning = cross(of_bodies(topology, kin.relative), kin.axis)
    linear, angular = jnp.where(rotates, turning, kin.axis), jnp.where(rotates, kin.axis, 0.0)
    return jnp.concatenate([linear, angular], axis=-1)


def reference_points(topology: Topology, kin: Kinematics) -> Array:
    """The origin (nb, 3), m, in the world, of `Kinematics.relative`: one point for each tree."""
    if not topology.travels:
        return jnp.zeros_like(kin.position)
    return of_bases(topology, kin.position) - of_bases(topology, kin.relative)


def relative_to_first(topology: Topology, kin: Kinematics) -> Array:
    """Positions (nb, 3), m, of all bodies relative to the reference point of the first body."""
    if (topology.base == topology.base[0]).all():
        return kin.relative
    points = reference_points(topology, kin)
    return kin.relative + (points - points[0])


def checked_configuration(robot: Robot, q: ArrayLike) -> Array:
    """`q` (nq,) as a floating-point array, its shape checked."""
    return _vector(robot, "q", q, robot.nq)


def checked_tangent(robot: Robot, name: str, v: ArrayLike) -> Array:
    """A velocity, acceleration or torque (nv,) as a floating-point array, its shape checked."""
    return _vector(robot, name, v, robot.nv)


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
    # A prismatic joint has the cosine of no turn, one, and its sine, zero.
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


def _rotations_and_offsets(topology: Topology, q: Array) -> tuple[Array, Array]:
    """Body to world (nb, 3, 3), and parent's to body's origin (nb, 3), m, in world axes."""
    local = _joint_poses(topology, q)
    rotation = _rotations(topology, local.rotation)
    parent = of_parents(topology, rotation, jnp.eye(3, dtype=q.dtype))
    return rotation, matvec(parent, local.position)


@traced_once
def _rotations(topology: Topology, local: Array) -> Array:
    """Body-to-world rotations (nb, 3, 3) from body-to-parent ones."""
    rotation = local
    for level in topology.levels[1:]:
        # Not a matrix product: under two nested `vmap`s XLA (of JAX 0.10) fails to compile that.
        outer, inner = rotation[topology.parent[level]], local[level]
        product = jnp.sum(outer[..., :, :, None] * inner[..., None, :, :], axis=-2)
        rotation = rotation.at[level].set(product)
    return rotation


def _positions(topology: Topology, offset: Array) -> tuple[Array, Array]:
    """`position` and `relative` of `Kinematics`, both (nb, 3), m."""
    if not topology.travels:
        position = path_sums(topology, offset)
        return position, position
    bases = np.unique(topology.base[topology.base != WORLD])
    relative = path_sums(topology, offset.at[bases].set(0.0))
    return of_bases(topology, offset) + relative, relative
