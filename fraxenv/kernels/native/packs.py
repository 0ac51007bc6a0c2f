"""Which operations of one environment are computed side by side, in the lanes of vectors.

A program has the arrays of its source taken apart. What the elements of one array are computed by
is alike, so that a vector's lanes can compute many at once, if what they are computed from lies
side by side as well, or is the same for all: else moving it costs more than is saved. So arrays
have to suit each other. Along which axis each of them lies in vectors, if at all, is chosen by
counting instructions: first for arrays of one shape that are computed of each other together, then
for each by itself, given how the others lie.

Source: Larsen and Amarasinghe, "Exploiting superword level parallelism with multimedia instruction
sets", PLDI 2000; there what is alike is found in the text.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..program import BOOKKEEPING, WHOLE, Id, IdArray, Program

WIDEST = 16
"""Lanes of the widest vector."""

FEWEST = 3
"""Values of the smallest vector."""

CHAIN = 4
"""Loops through which it is followed where a value lies."""

NEIGHBOURS = 24
"""Most arrays whose instructions are counted when a layout is chosen for one."""

LEAST = 0.2
"""Share of a scope's instructions that vectors save at least: values reach them later."""

ALONE = BOOKKEEPING | WHOLE | {"call", "lookup", "element"}
"""Operations that are not computed side by side."""

EXCHANGED = frozenset({"add", "mul", "and", "or", "xor", "eq", "ne", "fma", "fms", "fnma"})
"""Operations whose first two operands may change places, bit for bit."""

Pack = tuple[Id, ...]
"""The values of a vector, lane by lane, -1 where there is none."""

Layout = int | None
"""How an array lies in vectors: along an axis, in a row (-1), or not at all."""

Place = tuple[Hashable, int]
"""A vector, and a lane of it."""


class Vector(NamedTuple):
    """A vector that an array may lie in.

    Attributes:
        number: which.
        pack: its values.
        members: they and their lanes.
        operands: the values of each operand, lane by lane, -1 where there is none.
    """

    number: int
    pack: Pack
    members: dict[Id, int]
    operands: list[list[Id]]


def packs(program: Program, alive: np.ndarray) -> list[Pack]:
    """The vectors that pay.

    Args:
        program: of one environment, which says what is computed `alike`.
        alive: its live values.
    """
    return _Choice(program, alive).made()


def sources(program: Program) -> list[Id]:
    """What each value is, pins aside."""
    ops, args = program.ops, program.args
    found = list(range(len(ops)))
    for x, op in enumerate(ops):
        if op == "pin":
            found[x] = found[args[x][0]]
    return found


def operands(
    program: Program, pack: Pack, source: Sequence[Id], place: Callable[[Id], Place | None]
) -> list[list[Id]]:
    """The values of each operand of a vector, lane by lane, -1 where there is none.

    Args:
        program: the program.
        pack: the vector's values.
        source: the program's `sources`.
        place: where a value lies in another vector.
    """
    columns = _columns(program, pack, source)
    if program.ops[_first(pack)] in EXCHANGED:
        _exchange(columns, pack, place)
    return columns


def _first(pack: Pack) -> Id:
    return next(x for x in pack if x >= 0)


def _columns(program: Program, pack: Pack, source: Sequence[Id]) -> list[list[Id]]:
    args = program.args
    return [
        [source[args[x][k]] if x >= 0 else -1 for x in pack] for k in range(len(args[_first(pack)]))
    ]


def _exchange(columns: Sequence[list[Id]], pack: Pack, place: Callable[[Id], Place | None]) -> None:
    """Let the operands of all lanes be of the same vectors, where they may change places."""
    first, second = columns[:2]

    def kind(x: Id) -> Hashable:
        there = place(x)
        return x if there is None else there[0]

    lanes = [k for k, x in enumerate(pack) if x >= 0]
    one, other = kind(first[lanes[0]]), kind(second[lanes[0]])
    if one == other:
        return
    for k in lanes[1:]:
        x, y = kind(first[k]), kind(second[k])
        if (x == other and y != other) or (y == one and x != one):
            first[k], second[k] = second[k], first[k]


class _Choice:
    """A layout for each array."""

    def __init__(self, program: Program, alive: np.ndarray) -> None:
        self._program, self._source = program, sources(program)
        self._arrays = _usable(program, alive)
        self._array_of = {
            x: k for k, a in enumerate(self._arrays) for x in a.ravel().tolist() if x >= 0
        }
        self._users: dict[Id, list[Id]] = {}
        for i in np.flatnonzero(alive).tolist():
            for a in program.args[i]:
                self._users.setdefault(self._source[a], []).append(i)
        self._following = {
            c: self._source[x]
            for loop in program.loops
            for c, x in zip(loop.carries, loop.following, strict=False)
        }
        numbers = itertools.count()
        self._layouts = [self._vectors(_layouts(a), numbers) for a in self._arrays]
        self._chosen: list[Layout] = [None] * len(self._arrays)
        self._places: dict[Id, Place] = {}
        self._given, self._near = self._neighbours()
        self._costs: dict[Hashable, float] = {}

    def made(self) -> list[Pack]:
        """The vectors that pay."""
        for k, array in enumerate(self._arrays):
            self._choose(k, array.ndim - 1)
        single = [[k] for k in range(len(self._arrays))]
        for together in (self._families(), single, single[::-1]):
            for members in together:
                self._improve(members)
        self._leave_out()
        chosen = zip(self._layouts, self._chosen, strict=True)
        return [vector.pack for layouts, layout in chosen for vector in layouts[layout]]

    def _leave_out(self) -> None:
        """Have no vectors in scopes where they save little."""
        p = self._program
        scopes = [p.scopes[next(x for x in a.flat if x >= 0)] for a in self._arrays]
        saved = dict.fromkeys(scopes, 0.0)
        for k, scope in enumerate(scopes):
            saved[scope] += float(np.count_nonzero(self._arrays[k] >= 0)) - self._cost(k)
        users = {u for users in self._users.values() for u in users}
        every = Counter(p.scopes[i] for i in users if p.ops[i] not in BOOKKEEPING)
        for k, scope in enumerate(scopes):
            if saved[scope] < LEAST * every[scope]:
                self._choose(k, None)

    # --- what there is to choose ---

    def _vectors(
        self, layouts: dict[Layout, list[Pack]], numbers: Iterator[int]
    ) -> dict[Layout, list[Vector]]:
        return {
            layout: [
                Vector(
                    next(numbers),
                    pack,
                    {x: k for k, x in enumerate(pack) if x >= 0},
                    _columns(self._program, pack, self._source),
                )
                for pack in packs
            ]
            for layout, packs in layouts.items()
        }

    def _neighbours(self) -> tuple[list[list[int]], list[list[int]]]:
        """The arrays whose layouts each one's instructions depend on; those that are near each."""
        given: list[dict[int, None]] = [{} for _ in self._arrays]
        for x, k in self._array_of.items():
            for u in self._users.get(x, ()):
                if u in self._array_of:
                    given[k][self._array_of[u]] = None
            for a in self._program.args[x]:
                decides = self._decides(self._source[a], CHAIN)
                if decides is not None:
                    given[k][self._array_of[decides]] = None
        near = [dict(g) for g in given]
        for k, others in enumerate(given):
            for other in others:
                near[other][k] = None
        return [sorted(g) for g in given], [list(n)[:NEIGHBOURS] for n in near]

    def _families(self) -> list[list[int]]:
        """Arrays of one shape that are computed of each other, element by element."""
        root = list(range(len(self._arrays)))

        def find(k: int) -> int:
            while root[k] != k:
                root[k] = root[root[k]]
                k = root[k]
            return k

        position = {x: n for a in self._arrays for n, x in enumerate(a.ravel().tolist()) if x >= 0}
        for x, k in self._array_of.items():
            for a in self._program.args[x]:
                other = self._array_of.get(self._source[a])
                if other is None or position[self._source[a]] != position[x]:
                    continue
                if self._arrays[other].shape == self._arrays[k].shape:
                    root[find(other)] = find(k)
        members: dict[int, list[int]] = {}
        for k in range(len(self._arrays)):
            members.setdefault(find(k), []).append(k)
        return [m for m in members.values() if len(m) > 1 and self._arrays[m[0]].ndim > 1]

    # --- choosing ---

    def _improve(self, members: Sequence[int]) -> None:
        """Let arrays lie as costs least, all in the same way."""
        near = list(dict.fromkeys(n for k in members for n in (k, *self._near[k])))
        best, least = [self._chosen[k] for k in members], sum(map(self._cost, near))
        for layout in dict.fromkeys(x for k in members for x in self._layouts[k]):
            for k in members:
                self._choose(k, layout)
            cost = sum(map(self._cost, near))
            if cost < least:
                best, least = [self._chosen[k] for k in members], cost
        for k, layout in zip(members, best, strict=True):
            self._choose(k, layout)

    def _choose(self, k: int, layout: Layout) -> None:
        layouts = self._layouts[k]
        for vector in layouts[self._chosen[k]]:
            for x in vector.members:
                del self._places[x]
        self._chosen[k] = layout if layout in layouts else None
        for vector in layouts[self._chosen[k]]:
            for x, lane in vector.members.items():
                self._places[x] = vector.number, lane

    def _cost(self, k: int) -> float:
        """Instructions for an array as it lies now, and for bringing its operands."""
        key = (k, self._chosen[k], *(self._chosen[n] for n in self._given[k]))
        known = self._costs.get(key)
        if known is None:
            known = self._costs[key] = self._counted(k)
        return known

    def _counted(self, k: int) -> float:
        cost = float(np.count_nonzero(self._arrays[k] >= 0))
        for vector in self._layouts[k][self._chosen[k]]:
            columns, members = vector.operands, list(vector.members)
            if self._program.ops[members[0]] in EXCHANGED:
                columns = [list(c) for c in columns]
                _exchange(columns, vector.pack, self._place)
            cost += 1 - len(members) + sum(map(self._bringing, columns))
            # Instructions that need one of the values take it from memory.
            cost += any(u not in self._places for x in members for u in self._users.get(x, ()))
        return cost

    def _place(self, x: Id) -> Place | None:
        """The vector that a value lies in, and where."""
        there = self._places.get(x)
        if there is not None or x in self._array_of:
            return there
        decides = self._decides(x, CHAIN)
        if decides is None or decides not in self._places:
            return None
        number, lane = self._places[decides]
        # What a loop carries, and leaves, lies as what it is next, in a vector of its own.
        return (self._program.ops[x], self._program.attributes[x][0], number), lane

    def _decides(self, x: Id, most: int) -> Id | None:
        """The value of an array that lies as this one."""
        if x in self._array_of:
            return x
        if not most:
            return None
        if self._following.get(x, x) != x:
            return self._decides(self._following[x], most - 1)
        if self._program.ops[x] == "final":
            loop, number = self._program.attributes[x]
            following = self._program.loops[loop].following[number]
            return self._decides(self._source[following], most - 1)
        return None

    def _bringing(self, lanes: Sequence[Id]) -> float:
        """Instructions that bring an operand's values to their lanes."""
        ops, distinct = self._program.ops, {x for x in lanes if x >= 0}
        known = sum(ops[x] == "constant" for x in distinct)
        if known == len(distinct):
            return 0
        if len(distinct) == 1:
            return 0.5 if self._place(next(iter(distinct))) is None else 1
        if all(ops[x] == "input" for x in distinct):
            return 1
        vectors, there = set(), not known
        for lane, x in enumerate(lanes):
            if x < 0 or ops[x] == "constant":
                continue
            place = self._place(x)
            if place is None:
                return len(distinct) + 1
            vectors.add(place[0])
            there = there and place[1] == lane
        return 1.5 * (len(vectors) - 1) + (not there)


def _usable(program: Program, alive: np.ndarray) -> list[IdArray]:
    """Arrays of values that one operation computes in one scope, each of them once."""
    found: list[IdArray] = []
    taken: set[Id] = set()
    for array in program.alike:
        flat = [x if x >= 0 and alive[x] and x not in taken else -1 for x in array.ravel().tolist()]
        kinds = Counter(_kind(program, x) for x in flat if x >= 0)
        if not kinds:
            continue
        ((kind, _),) = kinds.most_common(1)
        seen: set[Id] = set()
        for k, x in enumerate(flat):
            if x < 0 or x in seen or _kind(program, x) != kind:
                flat[k] = -1
            else:
                seen.add(x)
        if kind[0] not in ALONE and len(seen) >= FEWEST:
            taken |= seen
            found.append(np.array(flat).reshape(array.shape))
    return found


def _kind(program: Program, x: Id) -> tuple[str, int, np.dtype[Any]]:
    return program.ops[x], program.scopes[x], program.dtypes[x]


def _layouts(array: IdArray) -> dict[Layout, list[Pack]]:
    """The vectors of an array, by its layouts that have some."""
    tables = {k: np.moveaxis(array, k, -1) for k in range(array.ndim)}
    if array.ndim > 1:
        tables[-1] = array.reshape(1, -1)
    found: dict[Layout, list[Pack]] = {None: []}
    for layout, table in tables.items():
        parts = [p for row in table.reshape(-1, table.shape[-1]).tolist() for p in _parts(row)]
        packs = [part for part in parts if sum(x >= 0 for x in part) >= FEWEST]
        if packs:
            found[layout] = packs
    return found


def _parts(row: Sequence[Id]) -> Iterator[Pack]:
    """The vectors of a row, no wider than they need to be."""
    for begin in range(0, len(row), WIDEST):
        part = row[begin : begin + WIDEST]
        width = 1 << (len(part) - 1).bit_length()
        yield (*part, *[-1] * (width - len(part)))
