"""What a scene consists of: static structure, and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from jax.typing import ArrayLike

from fraxenv.errors import ConfigError

from ..contact.model import Constraints
from ..math.pytree import pytree_dataclass, static
from ..model.combine import MemberSlices, tree_slices
from ..model.robot import Robot

Integrator = Literal["euler", "implicitfast", "discrete"]
INTEGRATORS: tuple[Integrator, ...] = get_args(Integrator)

SOLREF = (0.02, 1.0)
"""MuJoCo's default time constant, s, and damping ratio of constraints."""
SOLIMP = (0.9, 0.95, 0.001, 0.5, 2.0)
"""MuJoCo's default impedance of constraints."""


def check_softness(what: str, solref: Sequence[float], solimp: Sequence[float]) -> None:
    """Check how soft a constraint is to be; `what` names it.

    Raises:
        ConfigError: `solref` is neither two positive nor two negative numbers, or `solimp` not
            five.
    """
    ref, imp = np.asarray(solref, float), np.asarray(solimp, float)
    if ref.shape != (2,) or not (np.isfinite(ref).all() and ((ref > 0).all() or (ref <= 0).all())):
        raise ConfigError(
            f"{what}: solref={solref!r}, expected two positive numbers, a time constant in s and a "
            "damping ratio, or two negative ones, stiffness and damping: (0.02, 1.0) is MuJoCo's "
            "default."
        )
    if imp.shape != (5,) or not np.isfinite(imp).all():
        raise ConfigError(
            f"{what}: solimp={solimp!r}, expected five numbers: impedance at the surface and at "
            "the width, the width in m, midpoint and power: (0.9, 0.95, 0.001, 0.5, 2.0) is "
            "MuJoCo's default."
        )


@pytree_dataclass
class JointActuators:
    """The nu actuators of a scene, each on one degree of freedom, and affine in its control.

    With the length `l = gear q` and its rate `v`: `force = (g0 + g1 l + g2 v) ctrl + b0 + b1 l +
    b2 v`; the joint feels `gear force`. MuJoCo's `general` actuator without dynamics: motors,
    position and velocity servos, dampers.

    Attributes:
        names: nu names.
        dofs: nu degrees of freedom.
        gain: (nu, 3), g0, g1, g2.
        bias: (nu, 3), b0, b1, b2.
        gear: (nu,), ratio of the transmission.
        ctrl_range: (nu, 2), controls are clamped to it; infinite where there is none.
        force_range: (nu, 2), N m or N, forces are clamped to it; infinite where there is none.
        joint_range: (nv, 2), N m or N, to which the sum on each joint is clamped.
    """

    names: tuple[str, ...] = static()
    dofs: tuple[int, ...] = static()
    gain: ArrayLike
    bias: ArrayLike
    gear: ArrayLike
    ctrl_range: ArrayLike
    force_range: ArrayLike
    joint_range: ArrayLike


class Keyframe(NamedTuple):
    """A state that a scene's file names: `q` (nq,), `v` (nv,), `ctrl` (nu,)."""

    q: np.ndarray
    v: np.ndarray
    ctrl: np.ndarray


@dataclass(frozen=True)
class StoredKeyframe:
    """A keyframe as static data: numbers in tuples, which can be hashed."""

    name: str
    q: tuple[float, ...]
    v: tuple[float, ...]
    ctrl: tuple[float, ...]


@pytree_dataclass(eq=False)
class SceneParts:
    """The parts of a `Scene`, which see.

    Attributes:
        name: its name.
        system: the forest: robots, free bodies, articulated objects. `position_limits` and
            `friction` (Coulomb) are constraints where `constraints.layout` says so; `damping` is a
            passive force.
        constraints: geoms, pairs that may touch, limits, friction loss, equalities.
        stiffness: (nv,), N m/rad or N/m, of springs at joints.
        spring_reference: (nq,), rad and m, where they rest.
        link_share: (number of links,), the part of its body's mass that each link has.
        gravity_compensation: (number of links,), the part of each link's weight that is held by a
            force at its centre of mass; None if there is no such force.
        actuators: what drives it.
        timestep: s, of a physics step.
        integrator: "euler", "implicitfast" or "discrete".
        stored_keyframes: see `keyframes`.
        stored_members: names of the robots and objects it was built of, and their slices; see
            `members`.
    """

    name: str = static()
    system: Robot
    constraints: Constraints
    stiffness: ArrayLike
    spring_reference: ArrayLike
    link_share: ArrayLike
    gravity_compensation: ArrayLike | None
    actuators: JointActuators
    timestep: ArrayLike
    integrator: Integrator = static(default="euler")
    stored_keyframes: tuple[StoredKeyframe, ...] = static(default=())
    stored_members: tuple[tuple[str, MemberSlices], ...] = static(default=())

    @property
    def nq(self) -> int:
        """Dimension of the configuration."""
        return self.system.nq

    @property
    def nv(self) -> int:
        """Dimension of the velocity: the degrees of freedom."""
        return self.system.nv

    @property
    def nu(self) -> int:
        """Number of actuators."""
        return len(self.actuators.names)

    @property
    def geom_names(self) -> tuple[str, ...]:
        """Names of the geoms, in the order of `constraints.geoms`."""
        return tuple(g.name for g in self.constraints.layout.geoms)

    @property
    def pair_names(self) -> tuple[tuple[str, str], ...]:
        """Names of both geoms of each pair, in the order of `constraints.layout.pairs`."""
        names = self.geom_names
        return tuple((names[p.geoms[0]], names[p.geoms[1]]) for p in self.constraints.layout.pairs)

    @property
    def link_names(self) -> tuple[str, ...]:
        """Names of the links, the world first."""
        return tuple(link.name for link in self.constraints.layout.links)

    @property
    def equality_names(self) -> tuple[str, ...]:
        """Names of the equality constraints."""
        return tuple(e.name for e in self.constraints.layout.equalities)

    @property
    def actuator_names(self) -> tuple[str, ...]:
        """Names of the actuators, in the order of `ctrl`."""
        return self.actuators.names

    @property
    def members(self) -> dict[str, MemberSlices]:
        """Slices of arrays of `system` by the name of a robot or object it was built of.

        Of a scene that was loaded, of its trees, by the names of their root bodies.
        """
        return dict(self.stored_members) or tree_slices(self.system)

    @property
    def keyframes(self) -> dict[str, Keyframe]:
        """States by name, as the file has them."""
        return {
            k.name: Keyframe(np.array(k.q), np.array(k.v), np.array(k.ctrl))
            for k in self.stored_keyframes
        }
