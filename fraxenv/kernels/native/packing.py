"""The program of one environment with vectors in it: what `packs` says is computed side by side.

Besides a program's usual operations, on vectors now, there are

    assemble  a vector of lanes of other vectors, and of values by themselves
    numbers   a vector of known numbers
    lane      a value that lies in a vector, by itself

A value's bits are the same in a vector or alone.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from ..program import WHOLE, Id, IdArray, Loop, Program, live_values
from .packs import FEWEST, Pack, Place, operands, packs, sources


def packed(program: Program, outputs: Sequence[IdArray]) -> tuple[Program, Sequence[IdArray]]:
    """The program with vectors, and its results in it.

    Args:
        program: of one environment.
        outputs: the values of each result.
    """
    results = [int(x) for o in outputs for x in o.ravel()]
    alive = live_values(program, results)
    found = packs(program, alive)
    if not found:
        return program, outputs
    try:
        made = _Packing(program, alive, found)
    except _CircularError:
        return program, outputs
    parts = np.split(
        np.array([made.value(x) for x in results], int), np.cumsum([o.size for o in outputs])[:-1]
    )
    return made.program, [p.reshape(o.shape) for p, o in zip(parts, outputs, strict=True)]


class _CircularError(Exception):
    """Two vectors need each other."""


class _Packing:
    """A program that is made anew, with vectors.

    Attributes:
        program: the new one.
    """

    def __init__(self, program: Program, alive: np.ndarray, found: Sequence[Pack]) -> None:
        made = copy.copy(program)
        made.ops, made.args, made.attributes, made.dtypes, made.scopes = [], [], [], [], []
        made.loops = [Loop(loop.scope, loop.outer, loop.count) for loop in program.loops]
        made.lanes = {}
        self.program, self._old, self._alive = made, program, alive
        self._source = sources(program)
        self._packs = {x: (pack, lane) for pack in found for lane, x in enumerate(pack) if x >= 0}
        self._width: dict[Hashable, int] = {pack: len(pack) for pack in found}
        self._like: dict[Hashable, Id] = {}
        self._runs = {
            program.attributes[x]: x
            for x, op in enumerate(program.ops)
            if op == "loop" and alive[x]
        }
        self._carried: dict[Id, Place] = {}
        self._place_carried()
        self._values: dict[Id, Id] = {}
        self._vectors: dict[Hashable, Id] = {}
        self._known: dict[Hashable, Id] = {}
        self._numbers: dict[tuple[int, Hashable], int] = {}
        self._underway: set[Pack] = set()
        # In their order, so that nearly all that a value needs is there.
        for x in np.flatnonzero(alive).tolist():
            self.value(x)

    def _place_carried(self) -> None:
        """Let what loops carry lie in vectors where what it is next does."""
        # Loops within a loop, and those that come after it, have higher numbers.
        for index in reversed(range(len(self._old.loops))):
            loop = self._old.loops[index]
            members: dict[Hashable, dict[int, Id]] = {}
            for c, x in zip(loop.carries, loop.following, strict=False):
                there = self._place(self._source[x]) if self._alive[c] else None
                if there is not None:
                    members.setdefault(there[0], {}).setdefault(there[1], c)
            for following, lanes in members.items():
                if len(lanes) >= FEWEST:
                    vector = (index, following)
                    self._width[vector] = self._width["final", vector] = self._width[following]
                    self._like[vector] = next(iter(lanes.values()))
                    self._carried |= {c: (vector, lane) for lane, c in lanes.items()}

    # --- values by themselves ---

    def value(self, x: Id) -> Id:
        """A value of the old program, by itself."""
        x = self._source[x]
        if x not in self._values:
            there = self._place(x)
            if there is None:
                self._values[x] = self._alone(x)
            else:
                self._values[x] = self._lane(self._vector(there[0]), there[1])
        return self._values[x]

    def _alone(self, x: Id) -> Id:
        old = self._old
        op, attribute = old.ops[x], old.attributes[x]
        if op == "loop":
            self._close(attribute)
        args = tuple(self.value(a) for a in old.args[x])
        if op == "final":
            attribute = attribute[0], self._numbers[attribute]
        made = self._add(op, args, attribute, old.dtypes[x], old.scopes[x])
        if op in WHOLE:  # its entries follow it
            entry = x
            while (entry := entry + 1) < len(old.ops) and old.args[entry] == (x,):
                self._values[entry] = self._add(
                    "entry", (made,), old.attributes[entry], old.dtypes[entry], old.scopes[entry]
                )
        return made

    def _add(
        self, op: str, args: tuple[Id, ...], attribute: Any, dtype: np.dtype[Any], scope: int
    ) -> Id:
        p = self.program
        p.ops.append(op)
        p.args.append(args)
        p.attributes.append(attribute)
        p.dtypes.append(dtype)
        p.scopes.append(scope)
        return len(p.ops) - 1

    def _once(
        self, op: str, args: tuple[Id, ...], attribute: Any, dtype: np.dtype[Any], scope: int
    ) -> Id:
        key = (op, args, attribute)
        if key not in self._known:
            self._known[key] = self._add(op, args, attribute, dtype, scope)
        return self._known[key]

    def _lane(self, vector: Id, lane: int) -> Id:
        p = self.program
        return self._once("lane", (vector,), lane, p.dtypes[vector], p.scopes[vector])

    # --- vectors ---

    def _place(self, x: Id) -> Place | None:
        """The vector that a value lies in, and its lane."""
        there = self._packs.get(x) or self._carried.get(x)
        if there is None and self._old.ops[x] == "final":
            index, number = self._old.attributes[x]
            carries = self._old.loops[index].carries
            there = self._carried.get(carries[number]) if number < len(carries) else None
            return None if there is None else (("final", there[0]), there[1])
        return there

    def _vector(self, key: Any) -> Id:
        """A vector of the new program: a pack, what a loop carries, or leaves."""
        if key not in self._vectors:
            if key in self._underway:
                raise _CircularError
            self._underway.add(key)
            made = self._computed(key)
            self.program.lanes[made] = self._width[key]
            self._vectors[key] = made
        return self._vectors[key]

    def _computed(self, key: Any) -> Id:
        old = self._old
        if key[0] == "final":
            carried = key[1]
            index, like = carried[0], self._like[carried]
            run = self.value(self._runs[index])
            attribute = index, self._numbers[index, carried]
            return self._add("final", (run,), attribute, old.dtypes[like], old.loops[index].outer)
        if isinstance(key[1], tuple):
            like = self._like[key]
            return self._add("carry", (), None, old.dtypes[like], old.scopes[like])
        first = next(x for x in key if x >= 0)
        columns = operands(old, key, self._source, self._place)
        args = tuple(self._brought(column) for column in columns)
        about = old.attributes[first], old.dtypes[first], old.scopes[first]
        return self._add(old.ops[first], args, *about)

    def _brought(self, lanes: Sequence[Id]) -> Id:
        """Values, -1 for any, as a vector; by itself where a known one is the same in all lanes."""
        old = self._old
        distinct = dict.fromkeys(self._source[x] for x in lanes if x >= 0)
        first = next(iter(distinct))
        filled = [first if x < 0 else self._source[x] for x in lanes]
        if len(distinct) == 1:
            if old.ops[first] == "constant":
                return self.value(first)
            return self._assembled([self._at(first)] * len(lanes))
        if all(old.ops[x] == "constant" for x in distinct):
            numbers = tuple(old.attributes[x] for x in filled)
            # By their values, as zeros of either sign, and numbers of all dtypes, are equal.
            key = "numbers", tuple(filled)
            if key not in self._known:
                self._known[key] = self._add("numbers", (), numbers, old.dtypes[first], 0)
                self.program.lanes[self._known[key]] = len(lanes)
            return self._known[key]
        places = [(self._place(x), x) for x in filled]
        vectors = {there[0] for there, x in places if there is not None}
        if len(vectors) == 1 and self._width[next(iter(vectors))] == len(lanes):
            there_already = all(
                x < 0 or (there is not None and there[1] == lane)
                for lane, (x, (there, _)) in enumerate(zip(lanes, places, strict=True))
            )
            if there_already:
                return self._vector(next(iter(vectors)))
        return self._assembled([self._at(x) for x in filled])

    def _at(self, x: Id) -> tuple[Id, int]:
        """The vector that a value lies in, or the value by itself, and the lane."""
        there = self._place(x)
        return (self.value(x), 0) if there is None else (self._vector(there[0]), there[1])

    def _assembled(self, places: Sequence[tuple[Id, int]]) -> Id:
        p = self.program
        given = tuple(dict.fromkeys(v for v, _ in places))
        scope = max((p.scopes[v] for v in given), key=lambda s: p.depth[s])
        lanes = tuple((given.index(v), lane) for v, lane in places)
        made = self._once("assemble", given, lanes, p.dtypes[given[0]], scope)
        p.lanes[made] = len(places)
        return made

    # --- loops ---

    def _close(self, index: int) -> None:
        """What a loop carries, once its body has been made."""
        old, loop = self._old.loops[index], self.program.loops[index]
        vectors: dict[Hashable, list[int]] = {}
        for k, (c, last) in enumerate(zip(old.carries, old.following, strict=False)):
            if c in self._carried:
                vector, lane = self._carried[c]
                vectors.setdefault(vector, [-1] * self._width[vector])[lane] = k
            elif self._alive[c]:
                values = self.value(old.initial[k]), self.value(last)
                self._carry(index, k, self.value(c), *values)
            elif self._alive[last]:
                # What it is at last may be needed, where no round reads it.
                carry = self._add("carry", (), None, self._old.dtypes[c], self._old.scopes[c])
                self._carry(index, k, carry, carry, self.value(last))
        for vector, lanes in vectors.items():
            initial = self._brought([old.initial[k] if k >= 0 else -1 for k in lanes])
            following = self._brought([old.following[k] if k >= 0 else -1 for k in lanes])
            self._carry(index, vector, self._vector(vector), initial, following)
        loop.counter = self.value(old.counter)
        # In place of a value that nobody needs any other stands.
        loop.stacked = [self.value(x) if self._alive[x] else loop.counter for x in old.stacked]
        for j in range(len(old.stacked)):
            self._numbers[index, len(old.carries) + j] = len(loop.carries) + j
        loop.following += loop.stacked
        loop.condition = None if old.condition is None else self.value(old.condition)

    def _carry(self, index: int, key: Hashable, carry: Id, initial: Id, following: Id) -> None:
        loop = self.program.loops[index]
        self._numbers[index, key] = len(loop.carries)
        self.program.attributes[carry] = index, len(loop.carries)
        loop.carries.append(carry)
        loop.initial.append(initial)
        loop.following.append(following)
