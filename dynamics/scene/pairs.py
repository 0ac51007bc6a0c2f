"""Which pairs of geoms are modelled, and in which order a scene has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..contact.model import GEOM_KINDS, Geom, Pair
from ..contact.narrowphase import slots_of


def ordered(geoms: Sequence[Geom], i: int, j: int) -> tuple[int, int]:
    """Both geoms in the order of their kinds; of one kind, as given."""
    swap = GEOM_KINDS.index(geoms[i].kind) > GEOM_KINDS.index(geoms[j].kind)
    return (j, i) if swap else (i, j)


def mixed_condim(one: Geom, other: Geom) -> int:
    """Dimension of the contacts of two geoms: of higher priority, else the larger."""
    if one.priority != other.priority:
        return max(one, other, key=lambda g: g.priority).condim
    return max(one.condim, other.condim)


def mixed_pair(geoms: Sequence[Geom], i: int, j: int) -> Pair:
    """The pair of two geoms whose parameters are mixed from theirs."""
    i, j = ordered(geoms, i, j)
    kinds = geoms[i].kind, geoms[j].kind
    return Pair((i, j), mixed_condim(geoms[i], geoms[j]), slots_of(*kinds))


def by_kinds(geoms: Sequence[Geom], pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Pairs with those of the same two kinds together, else in the order given."""

    def kinds(pair: Pair) -> tuple[int, int]:
        i, j = pair.geoms
        return GEOM_KINDS.index(geoms[i].kind), GEOM_KINDS.index(geoms[j].kind)

    return tuple(sorted(pairs, key=kinds))
