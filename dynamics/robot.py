"""The robot model: what is known before any configuration is.

A `Robot` is an immutable pytree. Its topology and geometry are static, so that algorithms fold
them into the program; its inertial, actuation and friction parameters are leaves, so that they can
be batched, randomised and differentiated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import jax
import numpy as np
from jax.typing import ArrayLike

from .errors import unknown_name
from .fingerprint import fingerprint

WORLD = -1
"""Body index of the world, to which the root link is welded."""

ShapeKind = Literal["sphere", "cylinder", "box"]


@dataclass(frozen=True)
class Frame:
    """A named frame fixed to a body.

    Attributes:
        name: name of the URDF link.
        body: index of the body it moves with, `WORLD` if it does not move.
        position: (3,), m, in the body's frame.
        rotation: (3, 3), frame to body.
    """

    name: str
    body: int
    position: np.ndarray
    rotation: np.ndarray


@dataclass(frozen=True)
class Shape:
    """A geometric primitive fixed to a body, in URDF's conventions.

    Attributes:
        name: unique among the collision shapes of a robot; may be empty for visual ones.
        kind: "sphere", "cylinder" (along z) or "box".
        size: sphere (radius,), cylinder (radius, length), box (x, y, z) full extents, m.
        body: index of the body it moves with, `WORLD` if it does not move.
        position: (3,), m, in the body's frame.
        rotation: (3, 3), shape to body.
        rgba: colour, each in [0, 1].
    """

    name: str
    kind: ShapeKind
    size: tuple[float, ...]
    body: int
    position: np.ndarray
    rotation: np.ndarray
    rgba: tuple[float, float, float, float] = (0.7, 0.7, 0.7, 1.0)


@dataclass(frozen=True, eq=False)
class Topology:
    """What never changes about a robot: its tree, its joints, its frames and its shapes.

    There are n moving bodies, one per degree of freedom, numbered so that parents come first. Body
    `i` is moved by joint `i`; its frame is the joint's frame. Links that are welded together are
    one body.

    Attributes:
        name: name of the robot.
        joint_names: n names.
        body_names: n names: of the link that joint i moves.
        parent: (n,) int, the parent body, `WORLD` at the root.
        is_revolute: (n,) bool, False where the joint is prismatic.
        axis: (n, 3), unit, in the joint's frame.
        position: (n, 3), m, the joint's frame in its parent's.
        rotation: (n, 3, 3), joint frame to parent frame, at zero displacement.
        frames: all frames, the root link first.
        end_effectors: alias -> index into `frames`.
        collision_shapes: the collision model.
        visual_shapes: what is drawn.
        self_collision_pairs: (k, 2) int, pairs of indices into `collision_shapes`.
    """

    name: str
    joint_names: tuple[str, ...]
    body_names: tuple[str, ...]
    parent: np.ndarray
    is_revolute: np.ndarray
    axis: np.ndarray
    position: np.ndarray
    rotation: np.ndarray
    frames: tuple[Frame, ...]
    end_effectors: Mapping[str, int]
    collision_shapes: tuple[Shape, ...] = ()
    visual_shapes: tuple[Shape, ...] = ()
    self_collision_pairs: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), int))

    def __eq__(self, other: object) -> bool:
        # By content, so that two loads of the same file share one compiled program.
        return isinstance(other, Topology) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    @cached_property
    def _digest(self) -> bytes:
        return fingerprint(self)

    @cached_property
    def ancestor_mask(self) -> np.ndarray:
        """`U` (n, n) bool: `U[i, j]` iff j is i or an ancestor of i. Lower triangular."""
        mask = np.eye(len(self.parent), dtype=bool)
        for i, parent in enumerate(self.parent):
            if parent != WORLD:
                mask[i] |= mask[parent]
        return mask

    @cached_property
    def levels(self) -> tuple[np.ndarray, ...]:
        """Bodies grouped by depth in the tree, the root's children first."""
        depth = self.ancestor_mask.sum(axis=1)
        return tuple(np.flatnonzero(depth == d) for d in range(1, depth.max(initial=0) + 1))

    @cached_property
    def frame_names(self) -> tuple[str, ...]:
        """Names of `frames`, in order."""
        return tuple(f.name for f in self.frames)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Robot:
    """A robot: static topology, and parameters that are pytree leaves.

    Leaves may be replaced (`robot.replace(damping=...)`), batched with `jax.vmap` and
    differentiated. Algorithms cast them to the dtype of the configuration they are given.

    Attributes:
        topology: the tree, joints, frames and shapes; static.
        mass: (n,), kg, of each moving body.
        com: (n, 3), m, centre of mass in the body's frame.
        inertia: (n, 3, 3), kg m^2, about the centre of mass in the body's axes.
        gravity: (3,), m/s^2, in world axes.
        armature: (nv,), kg m^2 or kg, rotor inertia felt at the joint; adds to diag(M).
        damping: (nv,), N m s/rad or N s/m, viscous; integrated implicitly.
        friction: (nv,), N m or N, Coulomb.
        position_limits: (nv, 2), rad or m, lower and upper; infinite where there is none.
        stop_stiffness: (nv,), N m/rad or N/m, of the soft stops beyond the position limits; zero,
            the default, for none.
        stop_damping: (nv,), N m s/rad or N s/m, likewise.
        velocity_limits: (nv,), rad/s or m/s; infinite where there is none.
        effort_limits: (nv,), N m or N; infinite where there is none.
        effort_rate_limits: (nv,), N m/s or N/s; infinite where there is none.
        q_default: (nq,), the default configuration.
    """

    topology: Topology = field(metadata={"static": True})
    mass: ArrayLike
    com: ArrayLike
    inertia: ArrayLike
    gravity: ArrayLike
    armature: ArrayLike
    damping: ArrayLike
    friction: ArrayLike
    position_limits: ArrayLike
    stop_stiffness: ArrayLike
    stop_damping: ArrayLike
    velocity_limits: ArrayLike
    effort_limits: ArrayLike
    effort_rate_limits: ArrayLike
    q_default: ArrayLike

    @property
    def name(self) -> str:
        """Name of the robot."""
        return self.topology.name

    @property
    def nq(self) -> int:
        """Dimension of the configuration."""
        return len(self.topology.parent)

    @property
    def nv(self) -> int:
        """Dimension of the velocity."""
        return len(self.topology.parent)

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the movable joints, in the order of `q`."""
        return self.topology.joint_names

    @property
    def frame_names(self) -> tuple[str, ...]:
        """Names of all frames: every link of the URDF."""
        return self.topology.frame_names

    @property
    def end_effectors(self) -> tuple[str, ...]:
        """Names of the end effectors; each is also accepted wherever a frame is."""
        return tuple(self.topology.end_effectors)

    def frame(self, name: str) -> Frame:
        """The frame of that name: a link's, or an end effector's.

        Raises:
            UnknownNameError: there is no such frame; names the closest ones.
        """
        topology = self.topology
        if name in topology.end_effectors:
            return topology.frames[topology.end_effectors[name]]
        if name in topology.frame_names:
            return topology.frames[topology.frame_names.index(name)]
        known = (*topology.end_effectors, *topology.frame_names)
        raise unknown_name(f"frame of robot {self.name!r}", name, dict.fromkeys(known))

    def replace(self, **changes: Any) -> Robot:
        """A copy with some fields changed.

        Raises:
            UnknownNameError: there is no such field.
        """
        names = [f.name for f in dataclasses.fields(self)]
        for name in changes:
            if name not in names:
                raise unknown_name("field of Robot", name, names)
        return dataclasses.replace(self, **changes)
