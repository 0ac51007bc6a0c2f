"""What constrains a forest: geoms and the pairs that may touch, joint limits, friction, equalities.

MuJoCo's model of soft constraints ("Computation" in its documentation). What is constrained by what
is static, so that a program has a fixed number of slots; every number is a leaf.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jax.typing import ArrayLike

from ..math.pytree import pytree_dataclass, static
from ..model.fingerprint import fingerprint
from ..model.robot import WORLD as WORLD

GeomKind = Literal["plane", "sphere", "capsule", "cylinder", "box"]
GEOM_KINDS: tuple[GeomKind, ...] = ("plane", "sphere", "capsule", "cylinder", "box")
"""Kinds of geoms in MuJoCo's order: in a pair, the first geom's kind does not come later."""

EqualityKind = Literal["joint", "connect", "weld"]
Cone = Literal["elliptic", "pyramidal"]


@dataclass(frozen=True)
class Geom:
    """The static part of a geom: what it is, and what it is fixed to.

    Attributes:
        name: unique in the scene.
        kind: one of `GEOM_KINDS`.
        body: index of the forest's body that it moves with, `WORLD` if it does not move.
        link: index into `Layout.links`.
        condim: 1, 3, 4 or 6, the dimension of its contacts.
        priority: of two geoms in contact, the one of higher priority decides the parameters.
    """

    name: str
    kind: GeomKind
    body: int
    link: int
    condim: int = 3
    priority: int = 0


@dataclass(frozen=True)
class Link:
    """A body as the model's file has it. Links that are welded together are one body of the forest.

    MuJoCo gives every link its own inverse weights, at its own centre of mass.

    Attributes:
        name: its name.
        body: index of the forest's body that it is part of, `WORLD` if it does not move.
        simple: MuJoCo's shorter formula holds for its inverse weights: they are 1/mass for all its
            directions, although it only slides along some (`body_simple` 2).
    """

    name: str
    body: int
    simple: bool = False


@dataclass(frozen=True)
class Pair:
    """Two geoms that may touch, in `slots` contact points.

    Attributes:
        geoms: indices of the two geoms, in the order of their kinds.
        condim: 1, 3, 4 or 6.
        slots: the most contacts they can have.
        parameters: index into `PairParameters` where the pair has its own; -1 where they are mixed
            from those of its geoms.
    """

    geoms: tuple[int, int]
    condim: int
    slots: int
    parameters: int = -1


@dataclass(frozen=True)
class Equality:
    """The static part of an equality constraint.

    Attributes:
        name: its name; may be empty.
        kind: "joint": one joint's coordinate is a polynomial of another's, or a constant;
            "connect": two points coincide; "weld": two frames coincide.
        first: of "joint", the degree of freedom; else the forest's body, or `WORLD`.
        second: likewise; of "joint", -1 if there is no other.
        links: of "connect" and "weld", indices of both links, whose inverse weights count.
    """

    name: str
    kind: EqualityKind
    first: int
    second: int
    links: tuple[int, int] = (-1, -1)


@dataclass(frozen=True, eq=False)
class Layout:
    """The static part of `Constraints`.

    Attributes:
        geoms: all geoms.
        links: all links, the world first.
        pairs: pairs of geoms that may touch, those of the same two kinds together.
        equalities: equality constraints, in MuJoCo's order.
        limited: degrees of freedom of joints with one axis, of which `Robot.position_limits` are
            constraints.
        limited_balls: bodies with spherical joints that have a limit: `Robot.position_limits` of
            its first degree of freedom, (0, largest angle).
        friction_loss: degrees of freedom of which `Robot.friction` is a constraint.
        cone: "elliptic" or "pyramidal".
    """

    geoms: tuple[Geom, ...]
    links: tuple[Link, ...]
    pairs: tuple[Pair, ...]
    equalities: tuple[Equality, ...] = ()
    limited: tuple[int, ...] = ()
    limited_balls: tuple[int, ...] = ()
    friction_loss: tuple[int, ...] = ()
    cone: Cone = "elliptic"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    @cached_property
    def _digest(self) -> bytes:
        return fingerprint(self)

    @cached_property
    def slots(self) -> int:
        """Number of contact slots of all pairs."""
        return sum(p.slots for p in self.pairs)

    @cached_property
    def slot_pair(self) -> np.ndarray:
        """(n,) int, the pair of each contact slot."""
        return np.repeat(np.arange(len(self.pairs)), [p.slots for p in self.pairs])


@pytree_dataclass
class Geoms:
    """Numbers of the ng geoms.

    Attributes:
        size: (ng, 3), m, as MuJoCo: radius; radius and half length, along z; half extents; 0 else.
        position: (ng, 3), m, in the body's frame.
        rotation: (ng, 3, 3), geom to body. A plane's z is its normal.
        friction: (ng, 3), sliding; torsional, m; rolling, m.
        solref: (ng, 2), time constant, s, and damping ratio; or, negative, stiffness and damping.
        solimp: (ng, 5), impedance: d0, dwidth, width (m), midpoint, power.
        solmix: (ng,), weight of its solref and solimp against the other geom's.
        margin: (ng,), m; contacts count from this distance on, summed over both geoms.
        gap: (ng,), m, by which contacts are found earlier than they count.
    """

    size: ArrayLike
    position: ArrayLike
    rotation: ArrayLike
    friction: ArrayLike
    solref: ArrayLike
    solimp: ArrayLike
    solmix: ArrayLike
    margin: ArrayLike
    gap: ArrayLike


@pytree_dataclass
class PairParameters:
    """Parameters of contacts: of all pairs, after mixing, or of the pairs that have their own.

    Attributes:
        friction: (np, 5), two tangents, spin (m), two rolls (m).
        solref: (np, 2), as in `Geoms`.
        solref_friction: (np, 2), of the friction rows of elliptic contacts; zeros: as `solref`.
        solimp: (np, 5), as in `Geoms`.
        margin: (np,), m.
        gap: (np,), m.
    """

    friction: ArrayLike
    solref: ArrayLike
    solref_friction: ArrayLike
    solimp: ArrayLike
    margin: ArrayLike
    gap: ArrayLike


@pytree_dataclass
class JointParameters:
    """Parameters of joint limits and of friction loss, by degree of freedom.

    Attributes:
        margin: (nv,), rad or m, of limits.
        limit_solref: (nv, 2), as in `Geoms`.
        limit_solimp: (nv, 5), as in `Geoms`.
        friction_solref: (nv, 2), as in `Geoms`.
        friction_solimp: (nv, 5), as in `Geoms`.
    """

    margin: ArrayLike
    limit_solref: ArrayLike
    limit_solimp: ArrayLike
    friction_solref: ArrayLike
    friction_solimp: ArrayLike


@pytree_dataclass
class EqualityParameters:
    """Parameters of the ne equality constraints.

    Attributes:
        active: (ne,), 1, or 0 for one that is switched off.
        polynomial: (ne, 5), of "joint": `q1 - r1 = c0 + c1 x + ... + c4 x^4` with `x = q2 - r2`.
        reference: (ne, 2), of "joint": r1 and r2, rad or m.
        position: (ne, 2, 3), m, of "connect" and "weld": the points in the frames of both bodies.
        rotation: (ne, 2, 4), of "weld": the frames that shall coincide, each a quaternion in its
            body's frame.
        torque_scale: (ne,), m, of "weld": weight of angles against distances.
        solref: (ne, 2), as in `Geoms`.
        solimp: (ne, 5), as in `Geoms`.
    """

    active: ArrayLike
    polynomial: ArrayLike
    reference: ArrayLike
    position: ArrayLike
    rotation: ArrayLike
    torque_scale: ArrayLike
    solref: ArrayLike
    solimp: ArrayLike


@pytree_dataclass
class InverseWeights:
    """How easily bodies and joints move at the reference configuration: scales of constraints.

    MuJoCo's `body_invweight0` and `dof_invweight0`.

    Attributes:
        translation: (number of links,), 1/kg, at the links' centres of mass; 0 if immovable.
        rotation: (number of links,), 1/(kg m^2).
        dof: (nv,), 1/kg or 1/(kg m^2).
    """

    translation: ArrayLike
    rotation: ArrayLike
    dof: ArrayLike


@pytree_dataclass(eq=False)
class Constraints:
    """All soft constraints of a forest.

    Attributes:
        layout: geoms, pairs, equalities, which joints are limited: static.
        geoms: their numbers.
        pairs: parameters of pairs that have their own.
        joints: of limits and friction loss.
        equalities: of equality constraints.
        link_com: (number of links, 3), m, the links' centres of mass in their bodies' frames.
        reference: (nq,), the configuration of the inverse weights.
        weights: the inverse weights, `inverse_weights(system, constraints)`.
        impratio: ratio of frictional to normal impedance of elliptic contacts.
    """

    layout: Layout = static()
    geoms: Geoms
    pairs: PairParameters
    joints: JointParameters
    equalities: EqualityParameters
    link_com: ArrayLike
    reference: ArrayLike
    weights: InverseWeights
    impratio: ArrayLike = 1.0
