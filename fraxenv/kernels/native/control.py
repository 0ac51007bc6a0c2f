"""Scopes and loops: the operations of a function in their order, branches and rounds."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..buffer import Buffer
from ..errors import BuildError
from ..program import BOOL, Id, IdArray, Loop, Program, live_values
from . import arrays, instructions, vectors, workspace
from .builder import Builder, llvm_type, stored
from .contraction import operations
from .packs import WIDEST
from .product import write_product
from .registers import BLOCK as BLOCK_OF_CHOSEN
from .registers import PART, WITHOUT_INSTRUCTIONS, Choice, Registers, choose, source
from .schedule import captured_values, operands, schedule, spilled_values, waiting_bytes
from .workspace import FEW, NOT_STORED, Workspace

Values = Mapping[int, Sequence[Id]]
"""Values of each scope."""

BLOCK = 256
"""Values of a basic block of a function with a workspace, in which there may be very many, and
stores of one at the end of any function."""


class Call(NamedTuple):
    """A loop that is a function of its own.

    Attributes:
        name: the function's.
        given: the values that it needs, and the byte where each lies in what it is handed.
        results: the values that it computes, and where.
        bytes: the size of what it is handed.
        operations: vector operations, rounds counted.
    """

    name: str
    given: Mapping[Id, int]
    results: Mapping[Id, int]
    bytes: int
    operations: int


class Body:
    """The operations of one function.

    Args:
        program: the program that it computes a part of.
        wanted: the values that are needed in the end.
        width: lanes of a vector.
        buffers: the program's inputs.
        outputs: the values of the results, if it stores them.
        work: where its workspace begins, if it needs one: the pointer's name, and bytes from there.
        slots: as in `Builder`.
        rare: index of the branch that is left out unless `%branching`.
        registers: the processor's, if what waits in them is chosen here and not by LLVM.
        calls: then, its loops.
        alive: what is needed for what is wanted, if that is known.

    Attributes:
        builder: the function's text.
        workspace: the places of its tables; None if they are on the stack.
        inputs: the elements of buffers that it needs in registers.
        operations: vector operations, rounds of loops counted.
        rarely: vector operations of the rare branch, which are in `operations`.
        multiplying: the functions that multiply matrices for it.
        go_on: where registers are chosen, goes on in another part if the function is long.
    """

    def __init__(
        self,
        program: Program,
        wanted: Sequence[Id],
        *,
        width: int,
        buffers: Sequence[Buffer],
        outputs: Sequence[IdArray] = (),
        work: tuple[str, int] = ("%work", 0),
        slots: Mapping[Id, tuple[str, int]] | None = None,
        rare: int | None = None,
        registers: Registers | None = None,
        calls: Mapping[int, Call] | None = None,
        alive: np.ndarray | None = None,
    ) -> None:
        self.builder = Builder(program, width, slots)
        self.builder.loads_numbers = registers is not None
        self.builder.frame = None if registers is None else 0
        self._registers, self._calls = registers, calls or {}
        self.go_on: Callable[[], None] | None = None
        self.operations = self.rarely = 0
        self.multiplying: list[Builder] = []
        self._program, self._wanted = program, wanted
        self._alive = live_values(program, wanted) if alive is None else alive
        self._rare = None if rare is None else program.loops[rare]
        self._tables: dict[tuple[Id, ...], tuple[str, int]] = {}
        self._found: dict[tuple[Id, ...], tuple[str, int, int] | str] = {}
        self._addresses: dict[tuple[int, Id, str, int], str] = {}
        self._rounds: dict[int, dict[int, tuple[str, int]]] = {}
        self._last: dict[Id, str] = {}
        self._done: set[int] = set()
        self._lanes = vectors.Lanes(self.builder)
        computed = [i for i in np.flatnonzero(self._alive).tolist() if i not in self.builder.slots]
        self.workspace = workspace.plan(
            program, computed, buffers, outputs, width, work, registers is not None, slots
        )
        if self.workspace is not None:
            self.builder.slots |= self.workspace.slots
            self.builder.workspace = self.workspace.pointer
            computed = [i for i in computed if i not in self.workspace.slots]
        self.inputs = [i for i in computed if program.ops[i] == "input"]
        scopes: dict[int, list[Id]] = {}
        for i in computed:
            scopes.setdefault(program.scopes[i], []).append(i)
        self._captured = captured_values(program)
        self._scopes = {s: self._ordered(s, ids) for s, ids in scopes.items()}
        self._spill(work)
        self._without_instructions: dict[str, Callable[[Id], None]] = {
            "final": self._final, "round": self._round, "pin": self._pin,
            "lookup": self._lookup, "element": self._element, "product": self._product,
            "matmul": self._whole, "map": self._whole, "lane": self._lanes.write,
            "numbers": partial(vectors.write_numbers, self.builder),
            "assemble": partial(vectors.write_assembled, self.builder),
        }  # fmt: skip

    def _ordered(self, scope: int, members: list[Id]) -> list[Id]:
        p = self._program
        wanted = [*self._wanted, *self._following(scope)]
        there = () if self.workspace is None else self.workspace.slots
        # What is in memory is there after its loop.
        kept = {x: p.args[x][0] for x in there if p.args[x]}
        return schedule(p, members, wanted, self._captured, kept)

    def _loop_of(self, scope: int) -> Loop:
        """The loop whose body a scope is."""
        return next(loop for loop in self._program.loops if loop.scope == scope)

    def _following(self, scope: int) -> list[Id]:
        """The values that are needed after a round."""
        if not scope:
            return []
        loop = self._loop_of(scope)
        # The stacked values come after the carried ones.
        wanted = [x for x in loop.following if self._alive[x]]
        return wanted + ([] if loop.condition is None else [loop.condition])

    def _spill(self, work: tuple[str, int]) -> None:
        """Keep in memory what is too much for the stack.

        Raises:
            BuildError: what is left is too much by itself.
        """

        def waiting() -> tuple[Program, Values, Values, Values, set[Id], int]:
            there = {*self._homes(), *self.builder.slots}
            ends = {s: self._at_end(s, there) for s in self._scopes}
            return self._program, self._scopes, ends, self._captured, there, self.builder.width

        room = workspace.LARGEST_STACK
        if waiting_bytes(*waiting()) <= room:
            return
        if self.workspace is None:
            self.workspace = Workspace(*work)
            self.builder.workspace = self.workspace.pointer
        for x in spilled_values(*waiting(), room):
            size = self.builder.width * stored(self._program.dtypes[x]).itemsize
            self.workspace.homes[x] = self.workspace.pointer, self.workspace.room(size)
        size = waiting_bytes(*waiting())
        if size > room:
            raise BuildError(
                f"{size // 2**10} KiB of numbers wait at once for what is computed of them, where "
                f"a thread's stack has room for {room >> 10} KiB. Fuse a smaller function, or pass "
                "backend='vmap'."
            )

    def _at_end(self, scope: int, there: Container[Id]) -> list[Id]:
        """The values that wait at the end of a scope for what comes after it."""
        if not scope:
            return [x for x in self._wanted if x not in there]
        loop = self._loop_of(scope)
        # From one place in memory to another a value goes by itself, but where both are the loop's.
        passing = {
            x
            for c, x in zip(loop.carries, loop.following, strict=False)
            if c in there and (x == c or (x in there and x not in loop.carries))
        }
        return [x for x in self._following(scope) if x not in passing]

    def _homes(self) -> Mapping[Id, tuple[str, int]]:
        return {} if self.workspace is None else self.workspace.homes

    def compute_scope(self, scope: int) -> None:
        """Compute all of a scope."""
        before, ids = self.operations, self._scopes.get(scope, ())
        if self._registers is None:
            self._compute(ids)
        else:
            self._compute_chosen(scope, ids, self._registers)
        if scope == 0:
            return
        rounds = self._loop_of(scope).count or 1
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
        for k, i in enumerate(ids):
            if self._program.ops[i] in WITHOUT_INSTRUCTIONS:
                continue
            self._compute_one(i)
            if self.builder.workspace and k % BLOCK == BLOCK - 1:
                self.builder.divide()

    def _compute_one(self, i: Id) -> None:
        op = self._program.ops[i]
        if op == "loop" and self._program.attributes[i] in self._calls:
            self._call(self._calls[self._program.attributes[i]])
        elif op == "loop":
            self._loop(self._program.attributes[i])
        elif op == "final" and i in self.builder.slots:
            pass
        elif op in self._without_instructions:
            self._without_instructions[op](i)
        else:
            self.operations += operations(self._program, i)
            if i in self._program.lanes:
                with self.builder.like(i):
                    instructions.write(self.builder, i)
            else:
                instructions.write(self.builder, i)
        if self.workspace is not None and i in self.workspace.homes:
            self.builder.settle(i, *self.workspace.homes[i])

    def _compute_chosen(self, scope: int, ids: Sequence[Id], registers: Registers) -> None:
        """Compute all of a scope, with the values in registers that are chosen here."""
        b, homes = self.builder, self._homes()
        begin, wanted = self.inputs, self._wanted
        if scope:
            loop = self._loop_of(scope)
            begin = [x for x in (*loop.carries, loop.counter) if x in b.names]
            wanted = self._following(scope)
        chosen = choose(
            self._program, ids, begin, wanted,
            lambda i: operands(self._program, i, self._captured),
            lambda x: x in homes or self._is_found(x) or b.is_loaded(x),
            registers, b.width,
        )  # fmt: skip
        places = [b.room_in_frame(size) for size in chosen.sizes]

        def move(x: Id) -> None:
            if x in chosen.places:
                b.settle(x, *places[chosen.places[x]])

        for x in begin:
            move(x)
            b.forget(x)
        for k, i in enumerate(ids):
            if self._program.ops[i] in WITHOUT_INSTRUCTIONS:
                continue
            b.leaving = chosen.left[k]
            self._compute_one(i)
            move(i)
            for x in chosen.left[k]:
                b.forget(x)
            if scope == 0 and self.go_on is not None and k % PART == PART - 1:
                self._keep_all(ids[k + 1 :], k, chosen)
                self.go_on()
            elif k % BLOCK_OF_CHOSEN == BLOCK_OF_CHOSEN - 1:
                b.divide()

    def _keep_all(self, following: Sequence[Id], k: int, chosen: Choice) -> None:
        """Keep in memory what another part needs of the operations up to number `k`."""
        p, b = self._program, self.builder
        for i in following:
            done = p.ops[i] == "final" and p.attributes[i][0] in self._done
            if done and i not in b.slots:
                self._final(i)
        # Masks, and what loops leave in registers.
        for x in [*b.names]:
            if chosen.ends.get(source(p, x), -1) > k and x not in b.slots:
                b.settle(x, *b.room(1, p.dtypes[x]))

    def _is_found(self, x: Id) -> bool:
        """Whether a value will be where a loop has left it, or in a table in memory."""
        p = self._program
        if p.ops[x] == "lookup":
            return any(p.ops[value] != "constant" for value in p.args[x][1:])
        return p.ops[x] in ("final", "element")

    def _call(self, call: Call) -> None:
        """Hand a loop what it needs, in memory, where its results are then."""
        b = self.builder
        memory, begin = b.room_in_frame(call.bytes)
        for x, at in call.given.items():
            b.store(x, b.address(memory, begin + at))
            b.forget(x)  # in the call registers are the loop's
        b.declared[call.name] = f"declare void @{call.name}(ptr)"
        b.emit(f"call void @{call.name}(ptr {b.address(memory, begin)})")
        b.slots |= {x: (memory, begin + at) for x, at in call.results.items()}
        self.operations += call.operations

    # --- loops ---

    def _loop(self, index: int) -> None:
        p, b, loop = self._program, self.builder, self._program.loops[index]
        self._fill_tables(loop.scope, loop.outer)
        alive, there = [k for k, c in enumerate(loop.carries) if self._alive[c]], self._homes()
        homes = {k: there[loop.carries[k]] for k in alive if loop.carries[k] in there}
        carried = [k for k in alive if k not in homes]
        b.copy([loop.initial[k] for k in homes], list(homes.values()), FEW)
        b.slots |= {loop.carries[k]: home for k, home in homes.items()}
        for k in carried:
            b.names[loop.carries[k]] = b.register("v")
        kept = {
            p.attributes[i][1]
            for i in self._scopes.get(loop.outer, ())
            if p.ops[i] == "round" and p.attributes[i][0] == index
        }
        rounds = {j: b.room(loop.count or 0, p.dtypes[loop.stacked[j]]) for j in kept}
        places = {} if self.workspace is None else self.workspace.rounds.get(index, {})
        names = {k: b.names[loop.carries[k]] for k in carried}
        initial = {k: self._carried_name(loop.carries[k], loop.initial[k]) for k in carried}
        start, end = b.label("loop"), b.label("end")
        before = b.block
        b.emit(f"br label %{start}")
        header = len(b.lines)
        b.begin(start)
        counter, following = b.register("i"), b.register("i")
        b.set(loop.counter, b.broadcast(counter, np.dtype(np.int32)))
        rows = self._rows(loop, places, counter)
        before_round = self.operations
        if loop.condition is not None:
            self._leave(loop, loop.condition, end)
        self.compute_scope(loop.scope)
        if loop is self._rare:
            self.rarely = self.operations - before_round
        for j, memory in rounds.items():
            x = loop.stacked[j]
            t = b.type(p.dtypes[x])
            at = b.value(f"getelementptr {t}, ptr {b.address(*memory)}, i32 {counter}")
            b.emit(f"store {t} {b.name(x)}, ptr {at}")
        ordered = sorted((step, at, loop.stacked[j]) for j, (at, step) in places.items())
        b.copy([x for *_, x in ordered], [(rows[step], at) for step, at, _ in ordered], FEW)
        b.emit(f"{following} = add i32 {counter}, 1")
        ends = {k: self._carried_name(loop.carries[k], loop.following[k]) for k in carried}
        taken = set(homes.values())
        for i in self._scopes.get(loop.outer, ()):
            if p.ops[i] == "final" and p.attributes[i][0] == index:
                k = p.attributes[i][1]
                # What is kept of the last round is read before its place is another value's.
                outside = p.scopes[loop.following[k]] != loop.scope
                leaving = b.slots.get(loop.following[k]) in taken or (
                    outside and self._registers is not None
                )
                if k not in homes and leaving:
                    self._last[i] = b.name(loop.following[k])
        self._hand_on([(loop.following[k], home) for k, home in homes.items()])
        latch = b.block
        if loop.condition is None:
            again = b.value(f"icmp ult i32 {following}, {loop.count}")
            b.emit(f"br i1 {again}, label %{start}, label %{end}")
        else:
            b.emit(f"br label %{start}")
        phis = [f"  {counter} = phi i32 [ 0, %{before} ], [ {following}, %{latch} ]"]
        for k in carried:
            c = loop.carries[k]
            with b.like(c):
                t = b.type(p.dtypes[c])
            phis.append(
                f"  {names[k]} = phi {t} [ {initial[k]}, %{before} ], [ {ends[k]}, %{latch} ]"
            )
        b.lines[header + 1 : header + 1] = phis
        b.begin(end)
        self._rounds[index] = rounds
        self._done.add(index)

    def _carried_name(self, carry: Id, x: Id) -> str:
        """What a loop carries, as an operand."""
        with self.builder.like(carry):
            return self.builder.name(x)

    def _hand_on(self, values: Sequence[tuple[Id, tuple[str, int]]]) -> None:
        """Write to memory what a loop hands from round to round there."""
        b, read = self.builder, {home for _, home in values}
        moved = [(x, home) for x, home in values if b.slots.get(x) != home]
        # All that is read there before anything is written there.
        first = [(x, home) for x, home in moved if b.slots.get(x) in read]
        for x, _ in first:
            b.name(x)
        for x, home in first:
            b.store(x, b.address(*home))
        rest = [(x, home) for x, home in moved if b.slots.get(x) not in read]
        b.copy([x for x, _ in rest], [home for _, home in rest], FEW)

    def _rows(
        self, loop: Loop, places: Mapping[int, tuple[int, int]], counter: str
    ) -> dict[int, str]:
        """Where a round's kept values go in the workspace, by how far a round's are from the next.

        What the round computes is stored there at once.
        """
        if not places:
            return {}
        assert self.workspace is not None
        p, b, pointer = self._program, self.builder, self.workspace.pointer
        number = b.value(f"zext i32 {counter} to i64")
        rows = {step: b.step(pointer, number, step) for step in {s for _, s in places.values()}}
        for j, (at, step) in places.items():
            x = loop.stacked[j]
            if p.scopes[x] == loop.scope and p.ops[x] not in NOT_STORED:
                self.workspace.homes.setdefault(x, (rows[step], at))
        return rows

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
        p = self._program
        inner = {scope}
        for loop in p.loops:
            if loop.outer in inner:
                inner.add(loop.scope)
        for s in inner:
            for i in self._scopes.get(s, ()):
                values = p.args[i][1:]
                if p.ops[i] != "lookup" or values in self._tables or values in self._found:
                    continue
                if any(p.scopes[x] in inner for x in values):
                    continue
                if self.workspace is not None:
                    self._found[values] = self._find_table(values, self.workspace)
                    continue
                self._tables[values] = self._lay_out(values, stored(p.dtypes[i]))

    def _lay_out(self, values: Sequence[Id], dtype: np.dtype[Any]) -> tuple[str, int]:
        """A table of values on the stack."""
        b = self.builder
        place = b.room(len(values) + (WIDEST if self._program.lanes else 0), dtype)
        memory = b.address(*place)
        there = self._lanes.lay_out(values, memory) if self._program.lanes else ()
        for k, x in enumerate(values):
            if k not in there:
                b.store(x, b.value(f"getelementptr {b.type(dtype)}, ptr {memory}, i32 {k}"))
        return place

    def _find_table(self, values: Sequence[Id], work: Workspace) -> tuple[str, int, int] | str:
        """Where values can be looked up, put there if they are not in order anywhere.

        The pointer, the bytes to the first and from one to the next; of known ones their address.
        """
        p, b = self._program, self.builder
        there = b.spaced(values)
        if there is not None:
            return there
        if all(p.ops[x] == "constant" for x in values):
            return b.table([p.number(x) for x in values])
        each = b.width * stored(p.dtypes[values[0]]).itemsize
        at = work.room(len(values) * each)
        places = [(work.pointer, at + k * each) for k in range(len(values))]
        b.copy(values, places, FEW)
        return work.pointer, at, each

    # --- operations without instructions of their own ---

    def _lookup(self, i: Id) -> None:
        self.operations += 1
        p, b = self._program, self.builder
        index, values = p.args[i][0], p.args[i][1:]
        if self.workspace is not None:
            if values not in self._found:
                self._found[values] = self._find_table(values, self.workspace)
            self._look_up(i, index, self._found[values])
            return
        if values not in self._tables:
            self._tables[values] = self._lay_out(values, stored(p.dtypes[i]))
        place = b.value(f"extractelement {b.type(p.dtypes[index])} {b.name(index)}, i32 0")
        memory, t = b.address(*self._tables[values]), b.type(stored(p.dtypes[i]))
        at = b.value(f"getelementptr {t}, ptr {memory}, i32 {place}")
        b.names[i] = b.load(p.dtypes[i], at)

    def _element(self, i: Id) -> None:
        assert self.workspace is not None
        self.operations += 1
        number, begin, step = self._program.attributes[i]
        pointer, at = self.workspace.wide_input(number)
        each = self.builder.width * stored(self._program.dtypes[i]).itemsize
        self._look_up(i, self._program.args[i][0], (pointer, at + begin * each, step * each))

    def _look_up(self, i: Id, index: Id, table: tuple[str, int, int] | str) -> None:
        """Find a value in the workspace, or among known ones."""
        p, b = self._program, self.builder
        pointer, at, step = (table, 0, 0) if isinstance(table, str) else table
        key = (p.scopes[i], index, pointer, step)
        if key not in self._addresses:
            place = b.value(f"extractelement {b.type(p.dtypes[index])} {b.name(index)}, i32 0")
            number = b.value(f"sext {llvm_type(p.dtypes[index])} {place} to i64")
            s = llvm_type(stored(p.dtypes[i]))
            self._addresses[key] = (
                b.value(f"getelementptr {s}, ptr {pointer}, i64 {number}")
                if isinstance(table, str)
                else b.step(pointer, number, step)
            )
        address = self._addresses[key]
        if not isinstance(table, str):
            b.slots[i] = address, at
            return
        one = b.value(f"load {llvm_type(stored(p.dtypes[i]))}, ptr {address}")
        if p.dtypes[i] == BOOL:
            one = b.value(f"icmp ne i8 {one}, 0")
        b.set(i, b.broadcast(one, p.dtypes[i]))

    def _product(self, i: Id) -> None:
        self.operations += operations(self._program, i)
        write_product(self.builder, i)

    def _whole(self, i: Id) -> None:
        assert self.workspace is not None
        self.operations += operations(self._program, i)
        self.multiplying += arrays.write(self.builder, i, self.workspace)

    def _final(self, i: Id) -> None:
        index, k = self._program.attributes[i]
        loop, b = self._program.loops[index], self.builder
        in_memory = k < len(loop.carries) and loop.carries[k] in self._homes()
        if in_memory or loop.condition is not None:
            # A while loop is left before a round, when every lane has been frozen.
            b.alias(i, loop.carries[k])
        elif i in self._last:
            b.names[i] = self._last[i]
        else:
            b.alias(i, loop.following[k])

    def _pin(self, i: Id) -> None:
        self.builder.alias(i, self._program.args[i][0])

    def _round(self, i: Id) -> None:
        index, j, number = self._program.attributes[i]
        b = self.builder
        t = b.type(self._program.dtypes[i])
        memory = b.address(*self._rounds[index][j])
        at = b.value(f"getelementptr {t}, ptr {memory}, i32 {number}")
        b.set(i, f"load {t}, ptr {at}")
