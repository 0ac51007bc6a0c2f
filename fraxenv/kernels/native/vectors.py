"""Vectors in the program of one environment, as LLVM has them; see `packing`."""

from __future__ import annotations

from collections.abc import Sequence

from ..program import BOOL, Id
from .builder import Builder, literal, llvm_type


def write_numbers(b: Builder, i: Id) -> None:
    """A vector of known numbers."""
    t = llvm_type(b.program.dtypes[i])
    b.names[i] = f"<{', '.join(f'{t} {literal(x)}' for x in b.program.attributes[i])}>"


def write_assembled(b: Builder, i: Id) -> None:
    """A vector of lanes of others, and of values by themselves."""
    given, lanes = b.program.args[i], b.program.attributes[i]
    alone = [x not in b.program.lanes for x in given]
    if len(given) == 1:
        b.names[i] = _spread(b, given[0], [lane for _, lane in lanes])
        return
    made = ""
    for number, x in enumerate(given):
        if not alone[number]:
            made = _joined(b, made, x, [k if n == number else -1 for n, k in lanes])
    t = llvm_type(b.program.dtypes[i])
    vector = f"<{len(lanes)} x {t}>"
    for k, (number, _) in enumerate(lanes):
        if alone[number]:
            one = b.value(f"extractelement <1 x {t}> {b.name(given[number])}, i32 0")
            made = b.value(f"insertelement {vector} {made or 'poison'}, {t} {one}, i32 {k}")
    b.names[i] = made


def _joined(b: Builder, made: str, x: Id, lanes: Sequence[int]) -> str:
    """What has been made of a vector, with lanes of another one where they are not -1."""
    width, size = len(lanes), b.program.lanes[x]
    if not made:
        return _spread(b, x, lanes)
    if size <= width:
        other = _spread(b, x, [*range(size), *[-1] * (width - size)])
        chosen = [width + k if k >= 0 else lane for lane, k in enumerate(lanes)]
    else:
        other = _spread(b, x, lanes)
        chosen = [width + lane if k >= 0 else lane for lane, k in enumerate(lanes)]
    t = llvm_type(b.program.dtypes[x])
    return _shuffled(b, f"<{width} x {t}>", made, other, chosen)


def _spread(b: Builder, x: Id, lanes: Sequence[int]) -> str:
    """Lanes of a vector, or of a value by itself, in a vector as wide as there are."""
    if b.program.dtypes[x] == BOOL and len(set(lanes)) == 1:
        return _everywhere(b, x, lanes[0], len(lanes))
    with b.like(x):
        return _shuffled(b, b.type(b.program.dtypes[x]), b.name(x), "poison", lanes)


def _everywhere(b: Builder, x: Id, lane: int, count: int) -> str:
    """A bool in all lanes of a vector, by comparing numbers: bits move slowly between lanes."""
    with b.like(x):
        bits = b.value(f"zext i{b.width} {b.lanes(x)} to i32")
    t = f"<{count} x i32>"
    one = b.value(f"insertelement {t} poison, i32 {bits}, i32 0")
    every = b.value(f"shufflevector {t} {one}, {t} poison, {t} zeroinitializer")
    chosen = b.value(f"and {t} {every}, splat (i32 {1 << lane})")
    return b.value(f"icmp ne {t} {chosen}, zeroinitializer")


def _shuffled(b: Builder, vector: str, one: str, other: str, lanes: Sequence[int]) -> str:
    chosen = ", ".join(f"i32 {'poison' if k < 0 else k}" for k in lanes)
    return b.value(
        f"shufflevector {vector} {one}, {vector} {other}, <{len(lanes)} x i32> <{chosen}>"
    )


class Lanes:
    """Single lanes of vectors, for instructions that need them by themselves."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._places: dict[Id, str] = {}

    def write(self, i: Id) -> None:
        """Let a lane be a value by itself."""
        b, dtype = self._builder, self._builder.program.dtypes[i]
        (vector,), lane = b.program.args[i], b.program.attributes[i]
        if dtype == BOOL:
            # Each of a vector's bits by itself would take longer than from memory.
            b.slots[i] = self._place(vector), lane
            return
        with b.like(vector):
            one = b.value(f"extractelement {b.type(dtype)} {b.name(vector)}, i32 {lane}")
        t = llvm_type(dtype)
        b.set(i, f"insertelement <1 x {t}> poison, {t} {one}, i32 0")

    def _place(self, vector: Id) -> str:
        """Where a vector of bools lies in memory."""
        if vector not in self._places:
            b = self._builder
            self._places[vector] = place = b.register("s")
            b.reserve(place, b.program.lanes[vector])
            with b.like(vector):
                b.store(vector, place)
        return self._places[vector]

    def lay_out(self, values: Sequence[Id], memory: str) -> set[int]:
        """Write to a table the vectors whose lanes follow each other there.

        What they have besides is written there as well, and is to be overwritten.

        Args:
            values: the table's.
            memory: the table's pointer; there is room for a vector beyond its end.

        Returns:
            The places of the values that are there then.
        """
        b, p = self._builder, self._builder.program
        dtype, found = p.dtypes[values[0]], set[int]()
        if dtype == BOOL:
            return set()
        lanes = [(p.args[x][0], p.attributes[x]) if p.ops[x] == "lane" else None for x in values]
        for begin, there in enumerate(lanes):
            if there is None or there[1] != 0:
                continue
            vector = there[0]
            width = p.lanes[vector]
            same = {
                begin + k
                for k, other in enumerate(lanes[begin : begin + width])
                if other == (vector, k)
            }
            if len(same) > 1:
                with b.like(vector):
                    name, t = b.name(vector), b.type(dtype)
                at = b.address(memory, begin * dtype.itemsize)
                b.emit(f"store {t} {name}, ptr {at}, align {dtype.itemsize}")
                found -= set(range(begin, begin + width))
                found |= same
        return found
