"""Scopes and loops: the operations of a function in their order, branches and rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..program import Id, Loop, Program, live_values
from . import instructions
from .builder import Builder, stored
from .schedule import schedule


class Body:
    """The operations of one function.

    Args:
        program: the program that it computes a part of.
        wanted: the values that are needed in the end.
        width: lanes of a vector.
        slots: as in `Builder`.
        rare: index of the branch that is left out unless `%branching`.

    Attributes:
        builder: the function's text.
        inputs: the elements of buffers that it needs.
        operations: vector operations, rounds of loops counted.
        rarely: vector operations of the rare branch, which are in `operations`.
    """

    def __init__(
        self,
        program: Program,
        wanted: Sequence[Id],
        *,
        width: int,
        slots: Mapping[Id, tuple[str, int]] | None = None,
        rare: int | None = None,
    ) -> None:
        self.builder = Builder(program, width, slots)
        self.operations = self.rarely = 0
        self._program, self._wanted = program, wanted
        self._alive = live_values(program, wanted)
        self._rare = None if rare is None else program.loops[rare]
        self._tables: dict[tuple[Id, ...], str] = {}
        self._rounds: dict[int, dict[int, str]] = {}
        computed = [i for i in np.flatnonzero(self._alive).tolist() if i not in self.builder.slots]
        self.inputs = [i for i in computed if program.ops[i] == "input"]
        scopes: dict[int, list[Id]] = {}
        for i in computed:
            scopes.setdefault(program.scopes[i], []).append(i)
        self._scopes = {s: self._ordered(s, ids) for s, ids in scopes.items()}
        self._without_instructions = {
            "final": self._final, "round": self._round, "pin": self._pin,
            "lookup": self._lookup,
        }  # fmt: skip

    def _ordered(self, scope: int, members: list[Id]) -> list[Id]:
        wanted = list(self._wanted)
        if scope:
            loop = next(loop for loop in self._program.loops if loop.scope == scope)
            # The stacked values come after the carried ones.
            wanted += [x for x in loop.following if self._alive[x]]
            wanted += [] if loop.condition is None else [loop.condition]
        return schedule(self._program, members, wanted)

    def compute_scope(self, scope: int) -> None:
        """Compute all of a scope."""
        before = self.operations
        self._compute(self._scopes.get(scope, ()))
        if scope == 0:
            return
        rounds = next(loop.count for loop in self._program.loops if loop.scope == scope) or 1
        self.operations = before + rounds * (self.operations - before)

    def compute_round(self, scope: int, loop: Loop | None) -> None:
        """Compute one round of a loop by itself: number `%round`."""
        if loop is not None:
            self._fill_tables(scope, loop.outer)
        if loop is not None and loop.count is not None:
            counter = self.builder.broadcast("%round", np.dtype(np.int32))
            self.builder.set(loop.counter, counter)
        self._compute(self._scopes.get(scope, ()))

    def _compute(self, ids: Sequence[Id]) -> None:
        for i in ids:
            op = self._program.ops[i]
            if op in ("constant", "input", "known", "carry", "counter"):
                continue
            if op == "loop":
                self._loop(self._program.attributes[i])
            elif op in self._without_instructions:
                self._without_instructions[op](i)
            else:
                self.operations += 1
                instructions.write(self.builder, i)

    # --- loops ---

    def _loop(self, index: int) -> None:
        p, b, loop = self._program, self.builder, self._program.loops[index]
        self._fill_tables(loop.scope, loop.outer)
        carried = [k for k, c in enumerate(loop.carries) if self._alive[c]]
        for k in carried:
            b.names[loop.carries[k]] = f"%v{loop.carries[k]}"
        kept = {
            p.attributes[i][1]
            for i in self._scopes.get(loop.outer, ())
            if p.ops[i] == "round" and p.attributes[i][0] == index
        }
        rounds = {j: b.alloca(loop.count or 0, p.dtypes[loop.stacked[j]]) for j in kept}
        initial = {k: b.name(loop.initial[k]) for k in carried}
        start, end = b.label("loop"), b.label("end")
        before = b.block
        b.emit(f"br label %{start}")
        header = len(b.lines)
        b.begin(start)
        counter, following = b.register("i"), b.register("i")
        b.set(loop.counter, b.broadcast(counter, np.dtype(np.int32)))
        before_round = self.operations
        if loop.condition is not None:
            self._leave(loop, loop.condition, end)
        self.compute_scope(loop.scope)
        if loop is self._rare:
            self.rarely = self.operations - before_round
        for j, memory in rounds.items():
            x = loop.stacked[j]
            t = b.type(p.dtypes[x])
            at = b.value(f"getelementptr {t}, ptr {memory}, i32 {counter}")
            b.emit(f"store {t} {b.name(x)}, ptr {at}")
        b.emit(f"{following} = add i32 {counter}, 1")
        ends = {k: b.name(loop.following[k]) for k in carried}
        latch = b.block
        if loop.condition is None:
            again = b.value(f"icmp ult i32 {following}, {loop.count}")
            b.emit(f"br i1 {again}, label %{start}, label %{end}")
        else:
            b.emit(f"br label %{start}")
        phis = [f"  {counter} = phi i32 [ 0, %{before} ], [ {following}, %{latch} ]"]
        for k in carried:
            c = loop.carries[k]
            phis.append(
                f"  %v{c} = phi {b.type(p.dtypes[c])} [ {initial[k]}, %{before} ], "
                f"[ {ends[k]}, %{latch} ]"
            )
        b.lines[header + 1 : header + 1] = phis
        b.begin(end)
        self._rounds[index] = rounds

    def _leave(self, loop: Loop, condition: Id, end: str) -> None:
        """Leave a while loop before a round, if no lane goes on: most, before the first."""
        p, b = self._program, self.builder
        needed: set[Id] = set()
        pending = [condition]
        while pending:
            x = pending.pop()
            if p.scopes[x] == loop.scope and x not in needed:
                needed.add(x)
                pending.extend(p.args[x])
        ids = self._scopes.get(loop.scope, [])
        if any(p.ops[i] in ("loop", "final", "round") for i in needed):
            needed = set(ids)  # a condition that loops itself: with the whole round
        self._compute([i for i in ids if i in needed])
        self._scopes[loop.scope] = [i for i in ids if i not in needed]
        bits = b.lanes(condition)
        some = b.value(f"icmp ne i{b.width} {bits}, 0")
        if loop is self._rare:
            some = b.value(f"and i1 {some}, %branching")
        body = b.label("body")
        b.emit(f"br i1 {some}, label %{body}, label %{end}")
        b.begin(body)

    def _fill_tables(self, scope: int, outer: int) -> None:
        """Lay out in memory the tables that a loop, or an inner one, looks up by its counter."""
        p, b = self._program, self.builder
        inner = {scope}
        for loop in p.loops:
            if loop.outer in inner:
                inner.add(loop.scope)
        for s in inner:
            for i in self._scopes.get(s, ()):
                values = p.args[i][1:]
                if p.ops[i] != "lookup" or values in self._tables:
                    continue
                if any(p.scopes[x] in inner for x in values):
                    continue
                memory = b.alloca(len(values), stored(p.dtypes[i]))
                t = b.type(stored(p.dtypes[i]))
                for k, x in enumerate(values):
                    b.store(x, b.value(f"getelementptr {t}, ptr {memory}, i32 {k}"))
                self._tables[values] = memory

    # --- operations without instructions of their own ---

    def _lookup(self, i: Id) -> None:
        self.operations += 1
        p, b = self._program, self.builder
        index, *values = p.args[i]
        place = b.value(f"extractelement {b.type(p.dtypes[index])} {b.name(index)}, i32 0")
        memory, t = self._tables[tuple(values)], b.type(stored(p.dtypes[i]))
        at = b.value(f"getelementptr {t}, ptr {memory}, i32 {place}")
        b.names[i] = b.load(p.dtypes[i], at)

    def _final(self, i: Id) -> None:
        index, k = self._program.attributes[i]
        loop = self._program.loops[index]
        # A while loop is left before a round, when every lane has been frozen.
        self.builder.alias(i, (loop.following if loop.condition is None else loop.carries)[k])

    def _pin(self, i: Id) -> None:
        self.builder.alias(i, self._program.args[i][0])

    def _round(self, i: Id) -> None:
        index, j, number = self._program.attributes[i]
        b = self.builder
        t = b.type(self._program.dtypes[i])
        at = b.value(f"getelementptr {t}, ptr {self._rounds[index][j]}, i32 {number}")
        b.set(i, f"load {t}, ptr {at}")
