"""Blocks of a Hessian in whose axes the same pairs of bodies are felt alike.

`J' K J` is a sum over pairs of bodies of `J_p' K_p J_p`, with the stiffness `K_p` of a pair's
contacts against its relative twist. All joints of an arm move a hand, and each of its fingers:
their columns of `J_p` are the same twists for every pair of a finger, but for where they are
taken. So the stiffnesses are added up first, and multiplied by the twists once, as composite
inertias are in the mass matrix.

Source: Featherstone, "Rigid body dynamics algorithms" (2008), 6.2 (composite rigid bodies).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..math.algebra import matmul
from ..math.rotation import skew
from ..model.robot import Robot
from .twist_maps import signs


@dataclass(frozen=True)
class Block:
    """A block of the Hessian, or a part of it.

    Attributes:
        rows: degrees of freedom of its rows.
        columns: of its columns; those of `rows` if it is on the diagonal.
        pairs: which pairs add to it, each with the sign of its part; those whose twists are taken
            about the same point together. The map of the first of all has the twists.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    pairs: tuple[tuple[tuple[int, int], ...], ...]


Content = tuple[tuple[int, int], ...]
"""Axes that turn with a degree of freedom and move a pair, with signs; the first one positive."""


def blocks(robot: Robot, bodies: np.ndarray, base: np.ndarray) -> tuple[Block, ...]:
    """The blocks of the Hessian of some pairs.

    Args:
        robot: the forest.
        bodies: (p, 2) int, both bodies of each pair.
        base: (p,) int, the body about whose origin a pair's twist is taken.
    """
    dof = robot.topology.axes.dof
    sign = signs(robot, *bodies.T)
    count = range(len(bodies))

    def content(pair: int, j: int) -> tuple[Content, int]:
        moved = [(int(a), int(sign[pair, a])) for a in np.flatnonzero(dof[:, j]) if sign[pair, a]]
        way = moved[0][1] if moved else 0
        return tuple((a, s * way) for a, s in moved), way

    contents = [[content(p, j) for p in count] for j in range(dof.shape[1])]
    # Alike are those that are moved, and moved otherwise, by the same pairs.
    alike: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for j, of_pairs in enumerate(contents):
        known = list(dict.fromkeys(c for c, _ in of_pairs))
        key = tuple((known.index(c) if way else -1, way) for c, way in of_pairs)
        if any(way for _, way in key):
            alike.setdefault(key, []).append(j)

    found = []
    for one, other in combinations_with_replacement(alike, 2):
        parts: dict[tuple[int, int], list[int]] = {}
        for p in count:
            if one[p][1] and other[p][1]:
                parts.setdefault((one[p][0], other[p][0]), []).append(p)
        for pairs in parts.values():
            turn = [one[p][1] * other[p][1] for p in pairs]
            about: dict[int, list[tuple[int, int]]] = {}
            for p, s in zip(pairs, turn, strict=True):
                about.setdefault(int(base[p]), []).append((p, s * turn[0]))
            grouped = tuple(tuple(group) for group in about.values())
            found.append(Block(tuple(alike[one]), tuple(alike[other]), grouped))
    return tuple(found)


def assembled(blocks: tuple[Block, ...], maps: Array, origins: Array, stiffness: Array) -> Array:
    """`J' K J` (nv, nv).

    Args:
        blocks: of the pairs.
        maps: (p, 6, nv), twists of the pairs' bodies against each other, about the origins.
        origins: (p, 3), m.
        stiffness: (p, 6, 6), symmetric.
    """
    nv, dtype = maps.shape[-1], maps.dtype
    total = jnp.zeros((nv, nv), dtype)
    for block in blocks:
        rows, columns = np.array(block.rows), np.array(block.columns)
        first = block.pairs[0][0][0]
        felt = jnp.zeros((6, 6), dtype)
        for group in block.pairs:
            together = jnp.zeros((6, 6), dtype)
            for pair, sign in group:
                together = together + sign * stiffness[pair]
            here = group[0][0]
            if here != first:
                together = _about(together, origins[first] - origins[here])
            felt = felt + together
        part = matmul(maps[first][:, rows].T, matmul(felt, maps[first][:, columns]))
        total = total.at[np.ix_(rows, columns)].add(part)
        if block.rows != block.columns:
            total = total.at[np.ix_(columns, rows)].add(part.T)
    return total


def _about(stiffness: Array, way: Array) -> Array:
    """A stiffness (6, 6) against a twist that is taken somewhere else, `way` (3,) m from there."""
    eye = jnp.eye(6, dtype=stiffness.dtype)
    moved = eye.at[:3, 3:].set(skew(way))
    return matmul(moved.T, matmul(stiffness, moved))
