"""Geoms of a MuJoCo scene as the safety filter's obstacles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fraxenv.dynamics import Box, Capsule, HalfSpace, Obstacles, Sphere
from fraxenv.errors import ConfigError, unknown_name

from .mujoco_arm import Numbers

_KINDS = {
    "mjGEOM_SPHERE": "spheres",
    "mjGEOM_CAPSULE": "capsules",
    "mjGEOM_CYLINDER": "capsules",  # of its axis and radius, which encloses it
    "mjGEOM_PLANE": "half_spaces",
}
"""Fields of `Obstacles`; all other geoms are the boxes around them."""

_ORDER = ("spheres", "capsules", "boxes", "half_spaces")


class GeomObstacles(NamedTuple):
    """m geoms as obstacles, in the order of `Obstacles`.

    Attributes:
        names: of the geoms; `geom` and its number where it has none.
        geoms: (m,), their numbers.
        kinds: the field of `Obstacles` of each.
        sizes: (m, 3), m: radius, or radius and half length, or half lengths.
        centres: (m, 3), m, in the geoms' frames.
        moving: whether any of them can move.
    """

    names: tuple[str, ...]
    geoms: NDArray[np.intp]
    kinds: tuple[str, ...]
    sizes: Numbers
    centres: Numbers
    moving: bool

    def read(self, mujoco: Any, model: Any, data: Any) -> Numbers:
        """Poses and velocities (m, 15): position, m, rotation by rows, velocity, m/s, world."""
        m = len(self.geoms)
        found = np.zeros((m, 15))
        found[:, 3:12] = data.geom_xmat[self.geoms]
        turned = found[:, 3:12].reshape(m, 3, 3) @ self.centres[:, :, None]
        found[:, :3] = data.geom_xpos[self.geoms] + turned[..., 0]
        if self.moving:
            velocity = np.zeros(6)
            for row, geom in zip(found, self.geoms, strict=True):
                kind = mujoco.mjtObj.mjOBJ_GEOM
                mujoco.mj_objectVelocity(model, data, kind, int(geom), velocity, 0)
                row[12:] = velocity[3:]
        return found

    def place(self, state: Array) -> Obstacles:
        """The obstacles at poses and velocities (m, 15), as `read` gives them."""
        position, velocity = state[:, :3], state[:, 12:]
        rotation = state[:, 3:12].reshape(-1, 3, 3)
        sizes = jnp.asarray(self.sizes, state.dtype)
        made: dict[str, Any] = {}
        for kind in dict.fromkeys(self.kinds):
            own = np.array([k == kind for k in self.kinds])
            at, turn, size = position[own], rotation[own], sizes[own]
            if kind == "spheres":
                made[kind] = Sphere(at, size[:, 0])
            elif kind == "capsules":
                half = turn[:, :, 2] * size[:, 1:2]
                made[kind] = Capsule(at - half, at + half, size[:, 0])
            elif kind == "boxes":
                made[kind] = Box(at, turn, size)
            else:
                normal = turn[:, :, 2]
                made[kind] = HalfSpace(normal, jnp.sum(normal * at, axis=-1))
        return Obstacles(**made, velocity=velocity if self.moving else None)


def geom_obstacles(
    mujoco: Any, model: Any, root: int, names: Sequence[str] | None
) -> GeomObstacles:
    """The geoms that an arm is to keep off.

    Args:
        mujoco: the package.
        model: a `mujoco.MjModel`.
        root: number of the body that the arm's tree begins with.
        names: of geoms, or of bodies for all geoms of theirs; by default those that stand still in
            the world and can touch something.

    Raises:
        UnknownNameError: there is no such geom or body.
        ConfigError: one of them is part of the arm.
    """
    body = model.geom_bodyid
    parts = np.zeros(model.nbody, bool)
    for b in range(1, model.nbody):
        parts[b] = b == root or parts[model.body_parentid[b]]
    touching = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    if names is None:
        still = model.body_weldid[body] == 0
        chosen = np.flatnonzero(still & touching & ~parts[body])
    else:
        chosen = np.unique([g for name in names for g in _named(mujoco, model, name)])
        for geom in chosen:
            if parts[body[geom]]:
                raise ConfigError(
                    f"obstacles: geom {_name(mujoco, model, geom)!r} is part of the arm's tree, "
                    "expected what it is to keep off. Leave it out, or choose another root."
                )
    kinds = [_KINDS.get(mujoco.mjtGeom(model.geom_type[g]).name, "boxes") for g in chosen]
    order = sorted(range(len(chosen)), key=lambda k: (_ORDER.index(kinds[k]), k))
    chosen, kinds = chosen[order].astype(np.intp), [kinds[k] for k in order]
    boxes = np.array([k == "boxes" for k in kinds], bool)[:, None]
    around = model.geom_aabb[chosen]
    return GeomObstacles(
        tuple(_name(mujoco, model, g) for g in chosen),
        chosen,
        tuple(kinds),
        np.where(boxes, around[:, 3:], model.geom_size[chosen]),
        np.where(boxes, around[:, :3], 0.0),
        bool((model.body_weldid[body[chosen]] != 0).any())
        or bool((model.body_mocapid[model.body_rootid[body[chosen]]] >= 0).any()),
    )


def _named(mujoco: Any, model: Any, name: str) -> list[int]:
    """The geoms of a name, or of a body of that name."""
    kinds = mujoco.mjtObj
    geom = mujoco.mj_name2id(model, kinds.mjOBJ_GEOM, name)
    if geom >= 0:
        return [geom]
    body = mujoco.mj_name2id(model, kinds.mjOBJ_BODY, name)
    if body < 0:
        counts = ((kinds.mjOBJ_GEOM, model.ngeom), (kinds.mjOBJ_BODY, model.nbody))
        known = [mujoco.mj_id2name(model, kind, i) for kind, n in counts for i in range(n)]
        raise unknown_name("geom or body", name, [n for n in known if n], "of the model")
    first = model.body_geomadr[body]
    return list(range(first, first + model.body_geomnum[body]))


def _name(mujoco: Any, model: Any, geom: Any) -> str:
    name: str | None = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_GEOM, int(geom))
    return f"geom{geom}" if name is None else name
