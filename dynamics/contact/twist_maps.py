"""The relative motion of two bodies, as a linear map of joint velocities."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..kinematics import Kinematics
from ..math.algebra import cross, einsum, matmul
from ..model.robot import WORLD, Robot


def twist_maps(
    robot: Robot,
    kin: Kinematics,
    first: np.ndarray,
    second: np.ndarray,
    from_first: Array,
    from_second: Array,
) -> Array:
    """Maps (n, 6, nv) from joint velocities to the twist of second bodies relative to first ones.

    See `axis_twists`.
    """
    return _by_velocities(robot, axis_twists(robot, kin, first, second, from_first, from_second))


def point_map(robot: Robot, kin: Kinematics, body: int, local: Array, reference: int) -> Array:
    """Map (6, nv) from joint velocities to the twist of a body at its own point `local` (3,), m.

    Its linear part is in the axes of the body `reference`, its angular part in the world's. In its
    own axes a body's joint moves the point by `axis x local`, at right angles to the lever exactly.
    In the world's, rounding would make a moment of a force along the lever: a weld that pulls a
    joint's own origin from its place does so with kilonewtons.
    """
    axes = robot.topology.axes
    lever = (matmul(kin.rotation[body], local) if body != WORLD else local)[None]
    columns = axis_twists(robot, kin, np.array([WORLD]), np.array([body]), lever, lever)
    if reference != WORLD:
        columns = columns.at[..., :3].set(matmul(columns[..., :3], kin.rotation[reference]))
    own = np.flatnonzero((axes.carrier == body) & axes.rotates)
    if body == reference and own.size:
        turning = cross(jnp.asarray(axes.direction[own], local.dtype), local)
        columns = columns.at[0, own, :3].set(turning)
    return _by_velocities(robot, columns)[0]


def _by_velocities(robot: Robot, columns: Array) -> Array:
    """Maps (n, 6, nv) of what is given by axes (n, na, 6)."""
    axes = robot.topology.axes
    if axes.has_mimics:
        columns = einsum("av,nai->nvi", jnp.asarray(axes.dof, columns.dtype), columns)
    return columns.swapaxes(1, 2)


def axis_twists(
    robot: Robot,
    kin: Kinematics,
    first: np.ndarray,
    second: np.ndarray,
    from_first: Array,
    from_second: Array,
) -> Array:
    """Twists (n, na, 6) of second bodies relative to first ones, when each axis has the rate one.

    `[linear; angular]` in world axes, of the bodies' points at a place that is given for each pair.
    Joints that move both bodies do not count.

    Args:
        robot: the forest.
        kin: kinematics.
        first: (n,) int, bodies, or `WORLD`.
        second: likewise.
        from_first: (n, 3), m, from the origin of the first body to the place, in world axes.
        from_second: likewise.
    """
    axes = robot.topology.axes
    of_second = moves(robot, second)
    sign = signs(robot, first, second)
    carrier = np.where(sign > 0, second[:, None], first[:, None])
    carrier = np.where(sign == 0, axes.body, carrier)

    along_tree = kin.relative[carrier] - kin.relative[axes.body]
    along_tree = jnp.where((carrier == axes.body)[:, :, None], 0.0, along_tree)
    from_carrier = jnp.where(of_second[:, :, None], from_second[:, None], from_first[:, None])
    rotates = axes.rotates[:, None]
    turning = cross(kin.axis, along_tree + from_carrier)
    linear = jnp.where(rotates, turning, kin.axis)
    angular = jnp.broadcast_to(jnp.where(rotates, kin.axis, 0.0), linear.shape)
    columns = jnp.concatenate([linear, angular], axis=-1) * sign[:, :, None].astype(linear.dtype)
    return jnp.where(sign[:, :, None] == 0, 0.0, columns)


def signs(robot: Robot, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """(n, na) int: 1 of axes that move the second body (n,) alone, -1 of those of the first."""
    signed: np.ndarray = moves(robot, second).astype(int) - moves(robot, first)
    return signed


def moves(robot: Robot, bodies: np.ndarray) -> np.ndarray:
    """(n, na) bool, whether an axis moves a body; none moves `WORLD`."""
    mask = robot.topology.axes.moves
    moved: np.ndarray = np.concatenate([mask, np.zeros_like(mask[:1])])[bodies]
    return moved


def reference_body(robot: Robot, bodies: np.ndarray) -> int:
    """The body about whose origin a pair's twist is taken: a free one, of which it is simplest."""
    moving = [int(b) for b in bodies if b != WORLD]
    free = [b for b in moving if robot.topology.joints[b].kind == "floating"]
    return (free or moving[::-1])[0]
