"""A scene: a forest of bodies with all that constrains and drives it."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from fraxenv.errors import ArrayError, ConfigError, is_concrete, unknown_name

from ..contact.weights import inverse_weights
from ..math.pytree import pytree_dataclass
from ..model.robot import Robot
from .export import scene_to_mujoco
from .parts import INTEGRATORS, SceneParts

SMALLEST_PYRAMID = 0.05
"""Sliding friction below which a pyramid's stiffness, which grows as 1/friction^2, takes float32's
digits."""


@pytree_dataclass(eq=False)
class Scene(SceneParts):
    """A forest of bodies with all that constrains and drives it. An immutable pytree.

    What there is, and what may touch what, is static; every number is a leaf, to be batched,
    randomised and differentiated. Its attributes are those of `SceneParts`.
    """

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
        weights = jax.jit(inverse_weights)(system, constraints)
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
            ConfigError: a size or friction is negative.
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
            if field in ("size", "friction") and is_concrete(value) and np.min(value) < 0:
                raise ConfigError(
                    f"scene {self.name!r}: {field} of geom {name!r} is {value!r}, expected numbers "
                    "that are not negative."
                )
            if isinstance(old, np.ndarray) and not isinstance(value, jax.Array):
                changed[field] = old.copy()
                changed[field][at] = value
            else:
                changed[field] = jnp.asarray(old).at[at].set(value)
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
        return scene_to_mujoco(self)


def check_scene(scene: Scene) -> None:
    """Check the shapes of a scene's own arrays, after any batch axes.

    Raises:
        ArrayError: one has the wrong shape.
        ConfigError: there is no such integrator, or the timestep or `impratio` is not positive.
    """
    if scene.integrator not in INTEGRATORS:
        raise ConfigError(
            f"scene {scene.name!r}: integrator={scene.integrator!r}, expected one of "
            f"{', '.join(map(repr, INTEGRATORS))}."
        )
    for what, number in (("timestep", scene.timestep), ("impratio", scene.constraints.impratio)):
        if is_concrete(number) and not (np.asarray(number) > 0).all():
            raise ConfigError(
                f"scene {scene.name!r}: {what}={number!r}, expected a positive number."
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
        "constraints.geoms.position": (scene.constraints.geoms.position, (ng, 3)),
        "constraints.geoms.rotation": (scene.constraints.geoms.rotation, (ng, 3, 3)),
        "constraints.geoms.solmix": (scene.constraints.geoms.solmix, (ng,)),
        "constraints.geoms.margin": (scene.constraints.geoms.margin, (ng,)),
        "constraints.geoms.gap": (scene.constraints.geoms.gap, (ng,)),
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


def check_precision(scene: Scene, dtype: DTypeLike) -> None:
    """Check that a scene's contacts can be solved in a dtype; for a step to call.

    The stiffness of a pyramidal cone grows as 1/friction^2: below `SMALLEST_PYRAMID`, float32 has
    not the digits for it beside a mass matrix. Traced frictions cannot be checked.

    Raises:
        ConfigError: the cone is pyramidal, the dtype float32, and a pair's friction is too small;
            names the pair.
    """
    layout, constraints = scene.constraints.layout, scene.constraints
    if layout.cone != "pyramidal" or np.dtype(dtype) != np.float32:
        return
    if not is_concrete(constraints.geoms.friction, constraints.pairs.friction):
        return
    of_geoms = np.asarray(constraints.geoms.friction)[..., 0]
    of_pairs = np.asarray(constraints.pairs.friction)
    for names, pair in zip(scene.pair_names, layout.pairs, strict=True):
        if pair.condim == 1:
            continue
        one, two = (layout.geoms[g] for g in pair.geoms)
        if pair.parameters >= 0:
            friction = of_pairs[..., pair.parameters, :2]
        elif one.priority == two.priority:
            friction = np.maximum(of_geoms[..., pair.geoms[0]], of_geoms[..., pair.geoms[1]])
        else:
            friction = of_geoms[..., pair.geoms[0 if one.priority > two.priority else 1]]
        if np.min(friction) < SMALLEST_PYRAMID:
            raise ConfigError(
                f"scene {scene.name!r}: geoms {names[0]!r} and {names[1]!r} have the friction "
                f"{np.min(friction):g} under a pyramidal cone, expected at least "
                f"{SMALLEST_PYRAMID} in float32: the cone's stiffness grows as 1/friction^2. Use "
                "cone='elliptic', condim=1 for no friction, or float64."
            )
