"""A robot's collision shapes in the world."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from .geometry.distance import SHORT
from .geometry.shapes import Capsule, Shape, Sphere, enclosing_capsule
from .kinematics import (
    Kinematics,
    Poses,
    checked_configuration,
    forward_kinematics,
    reference_points,
)
from .math.algebra import cross, einsum
from .math.tracing import traced_once
from .model.robot import WORLD, Robot, Topology


class RobotGeometry(NamedTuple):
    """A robot's collision shapes in the world.

    Attributes:
        spheres: its spheres, in the order of `collision_shapes`.
        capsules: the capsules that enclose its other shapes, in the same order.
    """

    spheres: Sphere
    capsules: Capsule


@traced_once
def robot_geometry(
    robot: Robot, q: Real[ArrayLike, " nq"], *, kin: Kinematics | Poses | None = None
) -> RobotGeometry:
    """The robot's collision shapes in the world, as spheres and capsules that enclose them.

    Spheres and capsules stay as they are. A cylinder becomes the capsule of its axis and radius,
    which is longer by the radius at both ends. A box becomes the enclosing capsule of least volume
    along its longest edge. So a distance is never larger than that of the original shape.

    Args:
        robot: the model.
        q: rad and m.
        kin: kinematics at `q`, or the bodies' poses, if already computed.

    Raises:
        ArrayError: `q` has the wrong shape.
    """
    q = checked_configuration(robot, q)
    layout = shape_layout(robot.topology)
    poses = kin if kin is not None else forward_kinematics(robot, q)
    # The world's pose is appended, so that the index `WORLD`, -1, selects it.
    position = jnp.concatenate([poses.position, jnp.zeros((1, 3), q.dtype)])
    rotation = jnp.concatenate([poses.rotation, jnp.eye(3, dtype=q.dtype)[None]])

    def place(body: np.ndarray, point: np.ndarray) -> Array:
        turned = einsum("nij,nj->ni", rotation[body], jnp.asarray(point, q.dtype))
        return position[body] + turned

    spheres, capsules = layout.spheres, layout.capsules
    return RobotGeometry(
        Sphere(place(spheres.body, spheres.start), jnp.asarray(spheres.radius, q.dtype)),
        Capsule(
            place(capsules.body, capsules.start),
            place(capsules.body, capsules.end),
            jnp.asarray(capsules.radius, q.dtype),
        ),
    )


@traced_once
def robot_geometry_rate(
    robot: Robot, geometry: RobotGeometry, kin: Kinematics, twists: Float[Array, "nb 6"]
) -> RobotGeometry:
    """Time derivative of `robot_geometry` for moving bodies.

    Args:
        robot: the model.
        geometry: `robot_geometry` at the configuration.
        kin: kinematics at the configuration.
        twists: spatial velocities of the bodies, as of `body_twists`.
    """
    layout = shape_layout(robot.topology)
    # The world's row is appended, so that the index `WORLD`, -1, selects it.
    origin = jnp.pad(reference_points(robot.topology, kin), ((0, 1), (0, 0)))
    twists = jnp.concatenate([twists, jnp.zeros_like(twists[:1])])

    def rate(fixed: LocalCapsules, point: ArrayLike) -> Array:
        moving = twists[fixed.body]
        return moving[:, :3] + cross(moving[:, 3:], jnp.asarray(point) - origin[fixed.body])

    spheres, capsules = geometry
    return RobotGeometry(
        Sphere(rate(layout.spheres, spheres.position), jnp.zeros_like(spheres.radius)),
        Capsule(
            rate(layout.capsules, capsules.start),
            rate(layout.capsules, capsules.end),
            jnp.zeros_like(capsules.radius),
        ),
    )


class LocalCapsules(NamedTuple):
    """Capsules (n) in their bodies' frames, m; a sphere has equal `start` and `end`."""

    body: np.ndarray
    start: np.ndarray
    end: np.ndarray
    radius: np.ndarray


class ShapeLayout(NamedTuple):
    """Rows of the collision shapes in the arrays of `RobotGeometry`.

    Attributes:
        spheres: the spheres, in their bodies' frames.
        capsules: the capsules, in their bodies' frames.
        is_capsule: (s,) bool, of each collision shape.
        row: (s,) int, of each collision shape among the spheres or among the capsules.
        moves: (s,) bool, whether any joint moves the shape.
    """

    spheres: LocalCapsules
    capsules: LocalCapsules
    is_capsule: np.ndarray
    row: np.ndarray
    moves: np.ndarray


@lru_cache(maxsize=64)
def shape_layout(topology: Topology) -> ShapeLayout:
    """The layout of a robot's collision shapes, cached by topology."""
    shapes = topology.collision_shapes
    is_capsule = np.array([s.kind != "sphere" for s in shapes], bool)
    row = np.where(is_capsule, np.cumsum(is_capsule), np.cumsum(~is_capsule)) - 1

    def fixed(kind: bool) -> LocalCapsules:
        chosen = [s for s, capsule in zip(shapes, is_capsule, strict=True) if capsule == kind]
        capsules = [enclosing_capsule(s) for s in chosen]
        return LocalCapsules(
            # int32 is the same with and without x64; JAX may cache the conversion of int64.
            np.array([s.body for s in chosen], np.int32),
            np.array([c.start for c in capsules], float).reshape(-1, 3),
            np.array([c.end for c in capsules], float).reshape(-1, 3),
            np.array([c.radius for c in capsules], float),
        )

    moves = np.array([_moves(topology, shape) for shape in shapes], bool)
    return ShapeLayout(fixed(False), fixed(True), is_capsule, row, moves)


def _moves(topology: Topology, shape: Shape) -> bool:
    """Whether any joint moves a shape: none does if the shape lies on the axes of all of them."""
    capsule, body = enclosing_capsule(shape), shape.body
    ends = np.stack([np.asarray(capsule.start), np.asarray(capsule.end)])
    while body != WORLD:
        joint = topology.joints[body]
        off_axis = ends - np.outer(ends @ joint.axis, joint.axis)
        if joint.kind not in ("revolute", "continuous") or np.abs(off_axis).max() > SHORT:
            return True
        ends = topology.position[body] + ends @ topology.rotation[body].T
        body = int(topology.parent[body])
    return False
