"""Which pairs of geoms are modelled, and in which order a scene has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..contact.model import GEOM_KINDS, Geom, GeomKind, Pair
from ..contact.narrowphase import COLLIDERS, slots_of


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


def other_kinds(kinds: tuple[GeomKind, GeomKind]) -> str:
    """What else two geoms of kinds that cannot touch might be: the beginning of a remedy."""

    def partners(kind: GeomKind) -> list[GeomKind]:
        pairs = (p for p in COLLIDERS if kind in p and "plane" not in p)
        return list(dict.fromkeys(p[1] if p[0] == kind else p[0] for p in pairs))

    one, other = kinds
    ways = [f"a {other} touches {_listed(partners(other))}"]
    if one != other:
        ways.append(f"a {one} {_listed(partners(one))}")
    return f"Replace one of them: {', '.join(ways)}"


def _listed(kinds: Sequence[GeomKind]) -> str:
    named = [f"a {kind}" for kind in kinds]
    return " or ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def by_kinds(geoms: Sequence[Geom], pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Pairs with those of the same two kinds together, else in the order given."""

    def kinds(pair: Pair) -> tuple[int, int]:
        i, j = pair.geoms
        return GEOM_KINDS.index(geoms[i].kind), GEOM_KINDS.index(geoms[j].kind)

    return tuple(sorted(pairs, key=kinds))
