"""A scene: a forest of bodies with all that constrains and drives it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fraxenv.errors import ArrayError, ConfigError, unknown_name

from ..contact.model import Constraints
from ..contact.weights import inverse_weights
from ..math.pytree import pytree_dataclass, static
from ..model.combine import MemberSlices
from ..model.robot import Robot

Integrator = Literal["euler", "implicitfast", "discrete"]
INTEGRATORS: tuple[Integrator, ...] = get_args(Integrator)

SMALLEST_PYRAMID = 0.05
"""Sliding friction below which a pyramid's stiffness, which grows as 1/friction^2, takes float32's
digits."""


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
class Scene:
    """A forest of bodies with all that constrains and drives it. An immutable pytree.

    What there is, and what may touch what, is static; every number is a leaf, to be batched,
    randomised and differentiated.

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
        """Slices of arrays of `system` by the name of a robot or object it was built of."""
        return dict(self.stored_members)

    @property
    def keyframes(self) -> dict[str, Keyframe]:
        """States by name, as the file has them."""
        return {
            k.name: Keyframe(np.array(k.q), np.array(k.v), np.array(k.ctrl))
            for k in self.stored_keyframes
        }

    def geom(self, name: str) -> int:
        """Index of a geom.

        Raises:
            UnknownNameError: there is no such geom; names the closest ones.
        """
        if name not in self.geom_names:
            raise unknown_name("geom", name, self.geom_names, f"of scene {self.name!r}")
        return self.geom_names.index(name)

    def replace(self, **changes: Any) -> Scene:
        """A copy with some fields changed. Masses are better changed by `with_system`.

        Raises:
            UnknownNameError: there is no such field.
            ArrayError: an array has the wrong shape; leading batch axes are allowed.
            ConfigError: there is no such integrator.
        """
        fields = [f.name for f in dataclasses.fields(self)]
        for name in changes:
            if name not in fields:
                raise unknown_name("field", name, fields, "of Scene")
        scene = dataclasses.replace(self, **changes)
        check_scene(scene)
        return scene

    def with_system(self, system: Robot) -> Scene:
        """The scene with other numbers of its forest, such as masses, and what follows from them.

        Centres of mass of links move with those of their bodies, and the inverse weights, by which
        constraints are scaled, are computed anew. Differentiable, and works under `jax.vmap`.

        Raises:
            ConfigError: `system` has another topology.
        """
        if system.topology != self.system.topology:
            raise ConfigError(
                f"scene {self.name!r}: with_system got the robot {system.name!r} of another "
                "topology, expected the scene's own system with other numbers: "
                "scene.with_system(scene.system.replace(mass=...))."
            )
        layout = self.constraints.layout
        bodies = np.array([link.body for link in layout.links])
        moves = (bodies >= 0)[:, None]
        shift = jnp.asarray(system.com) - jnp.asarray(self.system.com)
        link_com = jnp.asarray(self.constraints.link_com)
        constraints = dataclasses.replace(
            self.constraints, link_com=link_com + jnp.where(moves, shift[bodies], 0.0)
        )
        weights = inverse_weights(system, constraints)
        constraints = dataclasses.replace(constraints, weights=weights)
        return dataclasses.replace(self, system=system, constraints=constraints)

    def with_geom(self, name: str, **numbers: ArrayLike) -> Scene:
        """The scene with other numbers of one geom, such as its friction or its size.

        Args:
            name: name of the geom.
            **numbers: fields of `Geoms`. `friction` may be one number, the sliding one.

        Pairs that have their own parameters (MJCF's `<pair>`) do not ask their geoms.

        Raises:
            UnknownNameError: there is no such geom or field.
            ArrayError: a number has the wrong shape.
        """
        i, geoms = self.geom(name), self.constraints.geoms
        fields = [f.name for f in dataclasses.fields(geoms)]
        changed: dict[str, Any] = {}
        for field, value in numbers.items():
            if field not in fields:
                raise unknown_name("field", field, fields, "of Geoms")
            old = getattr(geoms, field)
            at: Any = (i, 0) if field == "friction" and np.ndim(value) == 0 else i
            if np.shape(value) != np.shape(old[at]):
                raise ArrayError(
                    f"scene {self.name!r}: {field} of geom {name!r} has shape {np.shape(value)}, "
                    f"expected {np.shape(old[at])}."
                )
            if isinstance(old, np.ndarray) and not isinstance(value, jax.Array):
                new = old.copy()
                new[at] = value
            else:
                new = jnp.asarray(old).at[at].set(value)
            changed[field] = new
        constraints = dataclasses.replace(
            self.constraints, geoms=dataclasses.replace(geoms, **changed)
        )
        return dataclasses.replace(self, constraints=constraints)

    def to_mujoco(self) -> Any:
        """The scene as a `mujoco.MjModel`, with the numbers that its leaves have now.

        See `fraxenv.dynamics.scene.export`.

        Raises:
            MissingExtraError: MuJoCo is not installed.
            ConfigError: MuJoCo cannot have such a scene; says why.
        """
        from .export import scene_to_mujoco

        return scene_to_mujoco(self)


def check_scene(scene: Scene) -> None:
    """Check the shapes of a scene's own arrays, after any batch axes.

    Raises:
        ArrayError: one has the wrong shape.
        ConfigError: there is no such integrator.
    """
    if scene.integrator not in INTEGRATORS:
        raise ConfigError(
            f"scene {scene.name!r}: integrator={scene.integrator!r}, expected one of "
            f"{', '.join(map(repr, INTEGRATORS))}."
        )
    layout, nq, nv, nu = scene.constraints.layout, scene.nq, scene.nv, scene.nu
    ng, nl, ne = len(layout.geoms), len(layout.links), len(layout.equalities)
    own = sum(p.parameters >= 0 for p in layout.pairs)
    expected = {
        "stiffness": (scene.stiffness, (nv,)),
        "spring_reference": (scene.spring_reference, (nq,)),
        "link_share": (scene.link_share, (nl,)),
        "gravity_compensation": (scene.gravity_compensation, (nl,)),
        "actuators.gain": (scene.actuators.gain, (nu, 3)),
        "actuators.bias": (scene.actuators.bias, (nu, 3)),
        "actuators.gear": (scene.actuators.gear, (nu,)),
        "actuators.ctrl_range": (scene.actuators.ctrl_range, (nu, 2)),
        "actuators.force_range": (scene.actuators.force_range, (nu, 2)),
        "actuators.joint_range": (scene.actuators.joint_range, (nv, 2)),
        "constraints.reference": (scene.constraints.reference, (nq,)),
        "constraints.link_com": (scene.constraints.link_com, (nl, 3)),
        "constraints.geoms.size": (scene.constraints.geoms.size, (ng, 3)),
        "constraints.geoms.friction": (scene.constraints.geoms.friction, (ng, 3)),
        "constraints.geoms.solref": (scene.constraints.geoms.solref, (ng, 2)),
        "constraints.geoms.solimp": (scene.constraints.geoms.solimp, (ng, 5)),
        "constraints.pairs.friction": (scene.constraints.pairs.friction, (own, 5)),
        "constraints.equalities.active": (scene.constraints.equalities.active, (ne,)),
        "constraints.weights.dof": (scene.constraints.weights.dof, (nv,)),
        "constraints.weights.translation": (scene.constraints.weights.translation, (nl,)),
    }
    for name, (value, shape) in expected.items():
        actual = np.shape(value) if value is not None else shape
        if actual[len(actual) - len(shape) :] != shape:
            raise ArrayError(
                f"scene {scene.name!r}: {name} has shape {actual}, expected {shape}, perhaps "
                "after batch axes."
            )
