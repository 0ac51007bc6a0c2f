"""All contacts of a scene: every pair of geoms that may touch, in its slots."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ...errors import ConfigError
from ..kinematics import Kinematics, Poses
from ..math.algebra import cross, matvec
from ..math.pytree import pytree_dataclass, static
from ..math.tracing import traced_once
from ..model.robot import Robot
from .colliders.box_box import box_box
from .colliders.capsule import capsule_capsule
from .colliders.capsule_box import capsule_box
from .colliders.plane import plane_box, plane_capsule, plane_cylinder, plane_sphere
from .colliders.points import Placed, Points, dot, flat_angle
from .colliders.sphere import sphere_box, sphere_capsule, sphere_cylinder, sphere_sphere
from .mixing import mixed_parameters as mixed_parameters
from .model import WORLD, Constraints, GeomKind

Collider = Callable[[Placed, Placed], Points]

COLLIDERS: dict[tuple[GeomKind, GeomKind], tuple[Collider, int]] = {
    ("plane", "sphere"): (plane_sphere, 1),
    ("plane", "capsule"): (plane_capsule, 2),
    ("plane", "cylinder"): (plane_cylinder, 4),
    ("plane", "box"): (plane_box, 4),
    ("sphere", "sphere"): (sphere_sphere, 1),
    ("sphere", "capsule"): (sphere_capsule, 1),
    ("sphere", "cylinder"): (sphere_cylinder, 1),
    ("sphere", "box"): (sphere_box, 1),
    ("capsule", "capsule"): (capsule_capsule, 2),
    ("capsule", "box"): (capsule_box, 2),
    ("box", "box"): (box_box, 8),
}
"""What finds the contacts of two geoms, and in how many slots."""


@pytree_dataclass
class Contacts:
    """The n contact slots of a scene, pair by pair in the order of `Layout.pairs`.

    Attributes:
        distance: (n,), m, negative where geoms overlap.
        position: (n, 3), m, in the world, half way between the surfaces.
        frame: (n, 3, 3), rows: the normal from the first geom to the second, and two tangents.
        active: (n,) bool, whether there is a contact in the slot, nearer than its margin.
        pair: names of both geoms of each slot, static; empty for contacts of geoms without a scene.
    """

    distance: Array
    position: Array
    frame: Array
    active: Array
    pair: tuple[tuple[str, str], ...] = static(default=())


def slots_of(first: GeomKind, second: GeomKind) -> int:
    """The most contacts that geoms of these kinds can have, in the order of `GEOM_KINDS`.

    Raises:
        ConfigError: contacts of such geoms are not modelled.
    """
    if (first, second) not in COLLIDERS:
        known = ", ".join("-".join(kinds) for kinds in COLLIDERS)
        raise ConfigError(
            f"Contacts of a {first} with a {second} are not modelled, in this order. Modelled are "
            f"{known}. Give one of the geoms another shape, or exclude the pair."
        )
    return COLLIDERS[first, second][1]


def find_contacts(system: Robot, constraints: Constraints, kin: Kinematics | Poses) -> Contacts:
    """Contacts of all pairs of `constraints.layout`.

    Args:
        system: the forest that the geoms' bodies are of.
        constraints: geoms and pairs.
        kin: the bodies' poses.

    Raises:
        ConfigError: contacts of a pair's kinds of geoms are not modelled.
    """
    return contacts_between(constraints, *placed_pairs(constraints, kin))


def placed_pairs(constraints: Constraints, kin: Kinematics | Poses) -> tuple[Placed, Placed]:
    """The first and the second geoms (np, ...) of all pairs, in the world."""
    geoms = _placed(constraints, kin)
    first, second = np.array([p.geoms for p in constraints.layout.pairs], int).reshape(-1, 2).T
    return jax.tree.map(itemgetter(first), geoms), jax.tree.map(itemgetter(second), geoms)


def contacts_between(constraints: Constraints, first: Placed, second: Placed) -> Contacts:
    """Contacts of all pairs of `constraints.layout`, whose geoms are placed anyhow.

    Args:
        constraints: geoms and pairs.
        first: the pairs' first geoms, as of `placed_pairs`.
        second: the second ones.

    Raises:
        ConfigError: contacts of a pair's kinds of geoms are not modelled.
    """
    layout, dtype = constraints.layout, first.position.dtype
    margin = jnp.asarray(mixed_parameters(constraints, dtype).margin)
    none = jnp.zeros((0, 3), dtype)
    found = [Contacts(none[:, 0], none, jnp.zeros((0, 3, 3), dtype), jnp.zeros(0, bool))]
    kinds = [(layout.geoms[p.geoms[0]].kind, layout.geoms[p.geoms[1]].kind) for p in layout.pairs]
    for alike, group in groupby(range(len(kinds)), key=kinds.__getitem__):
        pairs = np.array(list(group))
        slots_of(*alike)
        contacts = jax.vmap(partial(pair_contacts, COLLIDERS[alike][0]))(
            jax.tree.map(itemgetter(pairs), first),
            jax.tree.map(itemgetter(pairs), second),
            margin[pairs],
        )
        found.append(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), contacts))
    return _joined(found)


@traced_once
def pair_contacts(collide: Collider, first: Placed, second: Placed, margin: Array) -> Contacts:
    """Contacts of one pair of geoms, in its slots.

    Args:
        collide: of `COLLIDERS`, for their kinds.
        first: the first geom.
        second: the second geom.
        margin: m; contacts count below this distance.
    """
    found = collide(first, second)
    counts = found.exists & (found.distance < margin) & (found.separation <= margin)
    frame = jax.vmap(contact_frame)(found.normal, found.tangent)
    return Contacts(found.distance, found.position, frame, counts)


def contact_frame(normal: Float[Array, " 3"], tangent: Float[Array, " 3"]) -> Float[Array, "3 3"]:
    """Rows: the unit normal, a tangent along what `tangent` has across it, and their cross product.

    For a `tangent` of zero, the world's y axis, or z if the normal is within 60 degrees of y or -y.
    For one along the normal, which leaves nothing, x instead (where MuJoCo's frame would not have
    right angles, as without one).

    Source: MuJoCo's `mju_makeFrame`.
    """
    x, y, z = jnp.eye(3, dtype=normal.dtype)
    is_given = dot(tangent, tangent) > 0.25
    across = tangent - dot(tangent, normal) * normal
    is_upright = is_given & (dot(across, across) < flat_angle(normal.dtype) ** 2)
    usual = jnp.where(jnp.abs(normal[1]) < 0.5, y, z)
    instead = jnp.where(is_upright & (jnp.abs(normal[0]) < 0.5), x, usual)
    towards = jnp.where(is_given & ~is_upright, tangent, instead)
    across = towards - dot(towards, normal) * normal
    across = across * jax.lax.rsqrt(dot(across, across))
    return jnp.stack([normal, across, cross(normal, across)])


def _joined(contacts: list[Contacts]) -> Contacts:
    joined: Contacts = jax.tree.map(lambda *parts: jnp.concatenate(parts), *contacts)
    return joined


def _placed(constraints: Constraints, kin: Kinematics | Poses) -> Placed:
    """All geoms in the world."""
    geoms, dtype = constraints.geoms, kin.position.dtype
    position, rotation = jnp.asarray(geoms.position, dtype), jnp.asarray(geoms.rotation, dtype)
    body = np.array([g.body for g in constraints.layout.geoms], int)
    moves = body != WORLD
    if moves.any():
        of, at = kin.rotation[np.maximum(body, 0)], kin.position[np.maximum(body, 0)]
        turned = jnp.sum(of[:, :, :, None] * rotation[:, None, :, :], axis=2)
        position = jnp.where(moves[:, None], at + matvec(of, position), position)
        rotation = jnp.where(moves[:, None, None], turned, rotation)
    return Placed(position, rotation, jnp.asarray(geoms.size, dtype))
