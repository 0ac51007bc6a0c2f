"""The robot model: topology and parameters. A robot is a forest: one or more trees in the world.

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

from fraxenv.errors import is_concrete, unknown_name

from ..geometry.shapes import WORLD as WORLD
from ..geometry.shapes import Shape
from ..math.pytree import pytree_dataclass, static
from .fingerprint import fingerprint
from .inertia import check_inertias, check_masses

JointKind = Literal["revolute", "continuous", "prismatic", "planar", "spherical", "floating"]


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
class Mimic:
    """A joint that follows another: `q = multiplier * q[joint] + offset`.

    Attributes:
        joint: index of the followed joint, which follows no other.
        multiplier: without unit, m/rad or rad/m.
        offset: rad or m.
    """

    joint: int
    multiplier: float
    offset: float


@dataclass(frozen=True)
class Joint:
    """A joint that moves a body.

    | kind | coordinates `q` | velocity `v` |
    |---|---|---|
    | revolute, continuous | angle | its rate |
    | prismatic | displacement | its rate |
    | planar | x, y, angle | their rates |
    | spherical | quaternion wxyz | angular velocity in body axes |
    | floating | position, quaternion wxyz | linear velocity in joint axes, angular in body axes |

    Attributes:
        name: as in the URDF.
        kind: see the table.
        axis: (3,), unit, in the joint's frame; of a planar joint, the normal. Unused for spherical
            and floating joints.
        mimic: the joint that this one follows; a follower has no coordinates of its own.
    """

    name: str
    kind: JointKind
    axis: np.ndarray
    mimic: Mimic | None = None

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return 0 if self.mimic else _COORDINATES[self.kind]

    @property
    def nv(self) -> int:
        """Number of degrees of freedom."""
        return 0 if self.mimic else len(self.rotates)

    @property
    def rotates(self) -> tuple[bool, ...]:
        """Whether each of the joint's axes rotates (or else translates) the body."""
        return _ROTATES[self.kind]

    @property
    def axes(self) -> np.ndarray:
        """The joint's k axes (k, 3), unit, in its frame: translations first, then rotations.

        A planar joint moves along the images of x and y under the smallest rotation that turns z
        into the normal.
        """
        match self.kind:
            case "planar":
                return np.array([*_plane(self.axis), self.axis])
            case "spherical":
                return np.eye(3)
            case "floating":
                return np.concatenate([np.eye(3), np.eye(3)])
            case _:
                return self.axis[None]


@dataclass(frozen=True)
class Axes:
    """The na axes of all joints: one for each degree of freedom, and those of mimics.

    Each axis is fixed in one body, its carrier: a rotation axis in the body that it turns, a
    translation axis in the body that the joint is mounted on (for a prismatic joint, the axis is
    fixed in both, and the moved body is taken).

    Attributes:
        body: (na,) int, the body that the axis' joint moves.
        carrier: (na,) int, the body that the axis is fixed in; `WORLD` if it does not move.
        rotates: (na,) bool, rotation (or else translation).
        direction: (na, 3), unit, in the carrier's frame.
        coordinate: (na,) int, index into `q` of the axis' angle or displacement; -1 where a
            quaternion has none.
        multiplier: (na,), of mimics; 1 for others.
        offset: (na,), of mimics; 0 for others: `multiplier * q[coordinate] + offset` is the axis'
            coordinate.
        moves: (nb, na) bool, whether the axis moves the body: the ancestor mask `U`.
        dof: (na, nv), maps `v` to the axes' rates: the identity unless joints mimic others.
    """

    body: np.ndarray
    carrier: np.ndarray
    rotates: np.ndarray
    direction: np.ndarray
    coordinate: np.ndarray
    multiplier: np.ndarray
    offset: np.ndarray
    moves: np.ndarray
    dof: np.ndarray

    @property
    def one_per_body(self) -> bool:
        """Whether every joint has exactly one axis."""
        return bool(np.array_equal(self.body, np.arange(len(self.moves))))

    @property
    def carried_by_own_body(self) -> bool:
        """Whether axis i is fixed in body i."""
        return bool(np.array_equal(self.carrier, np.arange(len(self.moves))))

    @property
    def has_mimics(self) -> bool:
        """Whether some joints follow others, so that `dof` is not the identity."""
        return bool(self.dof.shape[0] != self.dof.shape[1])


@dataclass(frozen=True, eq=False)
class Topology:
    """The static part of a robot: its trees, joints, frames and shapes.

    There are nb moving bodies, one per joint, numbered so that parents come first. Joint `i` moves
    body `i`, whose frame is the joint's frame. Links that are welded together are one body.

    Attributes:
        name: name of the robot.
        joints: nb joints.
        body_names: nb names, of the links that the joints move.
        parent: (nb,) int, the parent body, `WORLD` at a root: there may be several.
        position: (nb, 3), m, the joint's frame in its parent's.
        rotation: (nb, 3, 3), joint frame to parent frame, at zero displacement.
        frames: all frames; root links come first in their trees.
        end_effectors: alias -> index into `frames`.
        collision_shapes: shapes that distances are measured between.
        visual_shapes: shapes that are drawn.
        self_collision_pairs: (k, 2) int, pairs of indices into `collision_shapes`.
    """

    name: str
    joints: tuple[Joint, ...]
    body_names: tuple[str, ...]
    parent: np.ndarray
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
    def q_index(self) -> np.ndarray:
        """(nb + 1,) int, joint i has `q[q_index[i]:q_index[i + 1]]`; the last entry is nq."""
        return np.cumsum([0, *(j.nq for j in self.joints)])

    @cached_property
    def v_index(self) -> np.ndarray:
        """(nb + 1,) int, joint i has `v[v_index[i]:v_index[i + 1]]`; the last entry is nv."""
        return np.cumsum([0, *(j.nv for j in self.joints)])

    @cached_property
    def levels(self) -> tuple[np.ndarray, ...]:
        """Bodies grouped by depth in their trees, the roots first."""
        depth = np.zeros(len(self.parent), int)
        for i, parent in enumerate(self.parent):
            depth[i] = 0 if parent == WORLD else depth[parent] + 1
        levels = range(depth.max(initial=-1) + 1)
        return tuple(np.flatnonzero(depth == d).astype(np.int32) for d in levels)

    @cached_property
    def supported(self) -> np.ndarray:
        """(nb, nb) bool: body j is body i or an ancestor of it; lower triangular."""
        supported = np.eye(len(self.parent), dtype=bool)
        for i, parent in enumerate(self.parent):
            if parent != WORLD:
                supported[i] |= supported[parent]
        return supported

    @cached_property
    def is_chain(self) -> bool:
        """Whether every body is the parent of the next one."""
        return bool(np.array_equal(self.parent, np.arange(len(self.parent)) - 1))

    @cached_property
    def axes(self) -> Axes:
        """The axes of all joints."""
        body = [i for i, j in enumerate(self.joints) for _ in j.rotates]
        carrier, direction, coordinate, multiplier, offset = [], [], [], [], []
        dof = np.zeros((len(body), self.v_index[-1]))
        for i, joint in enumerate(self.joints):
            master, scale, shift = i, 1.0, 0.0
            if joint.mimic:
                master, scale, shift = joint.mimic.joint, joint.mimic.multiplier, joint.mimic.offset
            for k, (rotates, axis) in enumerate(zip(joint.rotates, joint.axes, strict=True)):
                fixed_in_own = rotates or joint.kind == "prismatic"
                carrier.append(i if fixed_in_own else self.parent[i])
                direction.append(axis if fixed_in_own else self.rotation[i] @ axis)
                in_quaternion = joint.kind == "spherical" or (joint.kind == "floating" and rotates)
                coordinate.append(-1 if in_quaternion else self.q_index[master] + k)
                multiplier.append(scale)
                offset.append(shift)
                dof[len(carrier) - 1, self.v_index[master] + k] = scale
        return Axes(
            body=np.array(body, np.int32),
            carrier=np.array(carrier, np.int32),
            rotates=np.array([r for j in self.joints for r in j.rotates], bool),
            direction=np.array(direction, float).reshape(-1, 3),
            coordinate=np.array(coordinate, np.int32),
            multiplier=np.array(multiplier, float),
            offset=np.array(offset, float),
            moves=self.supported[:, body],
            dof=dof,
        )

    @cached_property
    def dof_coordinate(self) -> np.ndarray:
        """(nv,) int, index into `q` of each degree of freedom; -1 where a quaternion has none."""
        own = [not j.mimic for j in self.joints for _ in j.rotates]
        return self.axes.coordinate[own]

    @cached_property
    def dof_rotates(self) -> np.ndarray:
        """(nv,) bool, whether a degree of freedom is an angle (rad) or a displacement (m)."""
        own = [not j.mimic for j in self.joints for _ in j.rotates]
        return self.axes.rotates[own]

    @cached_property
    def dof_names(self) -> tuple[str, ...]:
        """Names of the nv degrees of freedom: the joint's, with `.x`, `.wz`, ... for several."""
        names: list[str] = []
        for joint in self.joints:
            if not joint.mimic:
                parts = _PARTS.get(joint.kind, ("",))
                names.extend(f"{joint.name}.{p}" if p else joint.name for p in parts)
        return tuple(names)

    @cached_property
    def driven(self) -> np.ndarray:
        """(n,) int, degrees of freedom that motors drive: all but those of floating joints."""
        floats = [j.kind == "floating" for j in self.joints if not j.mimic for _ in j.rotates]
        return np.flatnonzero(~np.array(floats, bool))

    @cached_property
    def quaternions(self) -> tuple[tuple[int, int, int], ...]:
        """Body, start in `q` and start in `v` of each quaternion and its angular velocity."""
        return tuple(
            (i, int(self.q_index[i + 1]) - 4, int(self.v_index[i + 1]) - 3)
            for i, joint in enumerate(self.joints)
            if joint.kind in ("spherical", "floating")
        )

    @cached_property
    def base(self) -> np.ndarray:
        """(nb,) int, the root of each body's tree if its joint is floating or planar, else `WORLD`.

        A tree with such a root may go far from the world's origin: it travels.
        """
        base = np.full(len(self.parent), WORLD, np.int32)
        for i, (joint, parent) in enumerate(zip(self.joints, self.parent, strict=True)):
            if parent != WORLD:
                base[i] = base[parent]
            elif joint.kind in ("floating", "planar"):
                base[i] = i
        return base

    @cached_property
    def travels(self) -> bool:
        """Whether some tree travels, that is, has a floating or planar root."""
        return bool((self.base != WORLD).any())

    @cached_property
    def frame_names(self) -> tuple[str, ...]:
        """Names of `frames`, in order."""
        return tuple(f.name for f in self.frames)


_ROTATES: dict[JointKind, tuple[bool, ...]] = {
    "revolute": (True,),
    "continuous": (True,),
    "prismatic": (False,),
    "planar": (False, False, True),
    "spherical": (True, True, True),
    "floating": (False, False, False, True, True, True),
}
_COORDINATES: dict[JointKind, int] = {
    "revolute": 1,
    "continuous": 1,
    "prismatic": 1,
    "planar": 3,
    "spherical": 4,
    "floating": 7,
}
_PARTS: dict[JointKind, tuple[str, ...]] = {
    "planar": ("x", "y", "yaw"),
    "spherical": ("wx", "wy", "wz"),
    "floating": ("x", "y", "z", "wx", "wy", "wz"),
}


def _plane(normal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The images of x and y under the smallest rotation that turns z into `normal`."""
    x, y, z = normal
    if z < -1 + 1e-12:  # half a turn about x
        return np.array([1.0, 0.0, 0.0]), np.array([0.0, -1.0, 0.0])
    along = 1 - x * x / (1 + z), 1 - y * y / (1 + z), -x * y / (1 + z)
    return np.array([along[0], along[2], -x]), np.array([along[2], along[1], -y])


@pytree_dataclass(eq=False)
class Robot:
    """A robot: static topology, and parameters that are pytree leaves.

    Leaves may be replaced (`robot.replace(damping=...)`), batched with `jax.vmap` and
    differentiated. Algorithms cast them to the dtype of the configuration they are given.

    Attributes:
        topology: the trees, joints, frames and shapes; static.
        mass: (nb,), kg, of each moving body.
        com: (nb, 3), m, centre of mass in the body's frame.
        inertia: (nb, 3, 3), kg m^2, about the centre of mass in the body's axes.
        gravity: (3,), m/s^2, in world axes.
        armature: (nv,), kg m^2 or kg, rotor inertia felt at the joint; adds to diag(M).
        damping: (nv,), N m s/rad or N s/m, viscous; integrated implicitly.
        friction: (nv,), N m or N, Coulomb.
        position_limits: (nv, 2), rad or m, lower and upper; infinite where there is none.
        stop_stiffness: (nv,), N m/rad or N/m, of the soft stops beyond the position limits; zero,
            the default, for none.
        stop_damping: (nv,), N m s/rad or N s/m, of the soft stops.
        velocity_limits: (nv,), rad/s or m/s; infinite where there is none.
        effort_limits: (nv,), N m or N; infinite where there is none.
        effort_rate_limits: (nv,), N m/s or N/s; infinite where there is none.
        q_default: (nq,), rad and m, the default configuration.
    """

    topology: Topology = static()
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
        return int(self.topology.q_index[-1])

    @property
    def nv(self) -> int:
        """Dimension of the velocity: the degrees of freedom."""
        return int(self.topology.v_index[-1])

    @property
    def nb(self) -> int:
        """Number of moving bodies."""
        return len(self.topology.joints)

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the joints that have coordinates, in the order of `q`."""
        return tuple(j.name for j in self.topology.joints if not j.mimic)

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
        raise unknown_name("frame", name, dict.fromkeys(known), f"of robot {self.name!r}")

    def replace(self, **changes: Any) -> Robot:
        """A copy with some fields changed.

        Concrete masses and inertias, with or without leading batch axes, are checked; traced ones
        cannot be. A body that has none, as between several joints of a MuJoCo body, may stay so. As
        in `load_urdf`, moments of inertia that break the triangle inequality give a
        `RobotLoadWarning`, and are used.

        Raises:
            UnknownNameError: there is no such field.
            ArrayError: a mass or an inertia is not physical; names the body.
        """
        names = [f.name for f in dataclasses.fields(self)]
        for name in changes:
            if name not in names:
                raise unknown_name("field", name, names, "of Robot")
        robot = dataclasses.replace(self, **changes)
        bodies = robot.topology.body_names
        if (mass := _concrete_leaf(changes.get("mass"), (robot.nb,))) is not None:
            check_masses(robot.name, bodies, mass, self._massless)
        if (inertia := _concrete_leaf(changes.get("inertia"), (robot.nb, 3, 3))) is not None:
            check_inertias(robot.name, bodies, inertia, self._massless)
        return robot

    @property
    def _massless(self) -> np.ndarray:
        """(nb,) bool, bodies that are known to have no mass."""
        mass = _concrete_leaf(self.mass, (self.nb,))
        if mass is None:
            return np.zeros(self.nb, bool)
        return np.asarray((mass == 0).reshape(-1, self.nb).all(axis=0))


def _concrete_leaf(leaf: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """A leaf of this shape, after any batch axes; None if it is traced or of another shape."""
    if not is_concrete(leaf) or not isinstance(leaf, np.ndarray | jax.Array):
        return None
    return np.asarray(leaf, float) if leaf.shape[-len(shape) :] == shape else None
