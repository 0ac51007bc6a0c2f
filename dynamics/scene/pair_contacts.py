"""Contacts pair by pair: whether two geoms touch, how hard, and whether they slip."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from fraxenv.errors import ConfigError, unknown_name

from ..contact.model import Layout
from ..contact.newton import Solution
from ..math.algebra import norm
from ..math.pytree import pytree_dataclass, static

Names = str | Iterable[str]


@pytree_dataclass
class PairContacts:
    """Contacts of n pairs of geoms, over all contact points of each.

    Attributes:
        pairs: names of both geoms of each pair.
        active: (n,) bool, whether they touch: nearer than their margin.
        normal_force: (n,), N, sum over the points.
        tangential_force: (n,), N, sum of the points' magnitudes: at most the friction coefficient
            times `normal_force`.
        slip_speed: (n,), m/s, the fastest of the points across their normals; zero where the pair
            does not touch, or has no friction.
    """

    pairs: tuple[tuple[str, str], ...] = static()
    active: Array
    normal_force: Array
    tangential_force: Array
    slip_speed: Array

    def between(self, one: Names, other: Names | None = None) -> PairContacts:
        """The contacts of one geom, or of any of several, with another, or with any.

        >>> contacts.between("cube").active.any()
        >>> contacts.between(("left_pad", "right_pad"), "cube").normal_force.sum()

        Raises:
            UnknownNameError: there is no such geom; names the closest ones.
            ConfigError: no pair of the scene is of these geoms, so that they never touch.
        """
        index = np.array(chosen_pairs(self.pairs, one, other))
        taken: PairContacts = jax.tree.map(lambda x: x[..., index], self)
        return dataclasses.replace(taken, pairs=tuple(self.pairs[i] for i in index))


def chosen_pairs(
    pairs: tuple[tuple[str, str], ...], one: Names, other: Names | None = None
) -> list[int]:
    """Numbers of the pairs of one geom, or of any of several, with another, or with any.

    Raises:
        UnknownNameError: there is no such geom; names the closest ones.
        ConfigError: no pair is of these geoms, so that they never touch.
    """
    known = sorted({name for pair in pairs for name in pair})
    sides = [None if names is None else _names(names) for names in (one, other)]
    for name in (n for side in sides for n in side or ()):
        if name not in known:
            raise unknown_name("geom", name, known, "in the scene's pairs")
    chosen = [i for i, (a, b) in enumerate(pairs) if _is_of(a, b, *sides) or _is_of(b, a, *sides)]
    if not chosen:
        raise ConfigError(
            f"no pair of geoms of the scene is of {one!r} and {other!r}, expected one that may "
            f"touch: {', '.join(map(' and '.join, pairs))}. Name it among the scene's pairs."
        )
    return chosen


def pair_slots(layout: Layout) -> list[slice]:
    """Contact slots of each pair of `layout.pairs`."""
    ends = np.cumsum([p.slots for p in layout.pairs])
    return [slice(end - p.slots, end) for p, end in zip(layout.pairs, ends, strict=True)]


def _names(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _is_of(a: str, b: str, one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> bool:
    return (one is None or a in one) and (other is None or b in other)


def no_contacts(pairs: tuple[tuple[str, str], ...], dtype: DTypeLike) -> PairContacts:
    """Pairs of which none touches."""
    none = jnp.zeros(len(pairs), dtype)
    return PairContacts(pairs, none > 0, none, none, none)


def pair_contacts(
    pairs: tuple[tuple[str, str], ...], layout: Layout, solution: Solution
) -> PairContacts:
    """What a step's solution says of each pair.

    Args:
        pairs: names of both geoms of each pair, in the order of `layout.pairs`.
        layout: pairs and their slots.
        solution: of the step.
    """
    touching, force = solution.touching, solution.force
    across = jax.vmap(norm)(force[:, 1:3])
    speed = jnp.where(touching, jax.vmap(norm)(solution.velocity[:, 1:3]), 0.0)
    slots = pair_slots(layout)
    if not slots:
        return no_contacts(pairs, force.dtype)
    return PairContacts(
        pairs,
        active=jnp.stack([jnp.any(touching[s]) for s in slots]),
        normal_force=jnp.stack([jnp.sum(force[s, 0]) for s in slots]),
        tangential_force=jnp.stack([jnp.sum(across[s]) for s in slots]),
        slip_speed=jnp.stack([jnp.max(speed[s]) for s in slots]),
    )
