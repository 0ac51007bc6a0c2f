"""LLVM IR of a scalar program: every value becomes a SIMD vector of environments.

The text has three layers. `block` computes one vector's width of environments from rows of the
input buffers to rows of the output buffers; where a branch is rare (see `gather`), several
functions do. `rows` calls it for a range, the ragged end through scratch rows, so that every
environment goes through the same instructions whatever the size of the batch. The handler (see
`ffi`) is what XLA calls: it reads the buffers' addresses from the call frame and shares the range
out among threads.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..errors import BuildError
from ..evaluator import Buffer
from ..program import BOOL, Id, IdArray, Loop, Program, live_values
from . import gather
from .ffi import driver
from .schedule import schedule

_TYPES = {
    "?": "i1", "b": "i8", "B": "i8", "h": "i16", "H": "i16", "i": "i32", "I": "i32",
    "l": "i64", "L": "i64", "q": "i64", "Q": "i64", "f": "float", "d": "double",
}  # fmt: skip
_PACKED = frozenset({"int2", "uint2", "int4", "uint4", "float4_e2m1fn"})


def _llvm_type(dtype: np.dtype[Any]) -> str:
    """The element type; numbers that no rule computes with are carried as bits."""
    if dtype.name in _PACKED:
        raise BuildError(f"{dtype} is kept several to a byte")
    return _TYPES.get(dtype.char) or f"i{8 * dtype.itemsize}"


_CHUNK_OPERATIONS = 60_000
"""Vector operations in the smallest piece of work that is given to a thread."""


@dataclass(frozen=True)
class Listing:
    """LLVM IR, and what it takes to run one environment.

    Attributes:
        text: the module; `{name}` in it is the handler's name.
        width: environments per vector.
        operations: vector operations per vector of environments, rounds of loops counted.
        rare: the same of a round that takes a rare branch, which is not in `operations`.
    """

    text: str
    width: int
    operations: int
    rare: int


def listing(
    program: Program,
    buffers: Sequence[Buffer],
    outputs: Sequence[IdArray],
    dtypes: Sequence[np.dtype[Any]],
    vector_bytes: int,
) -> Listing:
    """LLVM IR for a program.

    Args:
        program: made with `mathlib.expand`.
        buffers: what it reads.
        outputs: the values of each result.
        dtypes: each result's.
        vector_bytes: width of the machine's vectors.
    """
    results = [int(x) for o in outputs for x in o.ravel()]
    alive = live_values(program, results)
    read = [i for i in np.flatnonzero(alive).tolist() if program.ops[i] == "input"]
    floats = [program.dtypes[i].itemsize for i in read if program.dtypes[i].kind == "f"]
    width = vector_bytes // max([4, *floats])
    write = partial(_Writer, buffers=buffers, width=width)
    rare = gather.rare_branch(program, alive)
    if rare is None:
        parts = [_block(write(program, results), outputs, dtypes)]
        operations, again = parts[0].counted, 0
        vectors = _VECTORS.replace("<<WIDTH>>", str(width))
    else:
        plan = gather.plan(program, alive, rare, results, buffers, width)
        parts = _parts(write, program, plan, outputs, dtypes)
        counted = {w.function: w.counted for w in parts}
        again = counted["round"]
        usual = again - sum(w.rarely for w in parts)
        operations = counted["before"] + plan.rounds * usual + counted["after"]
        vectors = gather.driver(plan, width)
    declared = {name: text for w in parts for name, text in w.declared.items()}
    text = driver(
        width,
        [int(np.prod(b.shape, dtype=int)) * b.dtype.itemsize if b.batched else 0 for b in buffers],
        [o.size * d.itemsize for o, d in zip(outputs, dtypes, strict=True)],
        grain=width * max(1, _CHUNK_OPERATIONS // max(1, operations)),
    )
    attributes = (
        f'attributes #0 = {{ noinline nounwind "prefer-vector-width"="{32 * width}" '
        f'"min-legal-vector-width"="{32 * width}" }}\n'
    )
    functions = [w.text() for w in parts]
    listed = "\n".join((*declared.values(), *functions, vectors, text, attributes))
    return Listing(listed, width, operations, again)


_VECTORS = """
define internal void @vectors(ptr %in, ptr %out, i64 %row, i64 %count) {
entry:
  br label %check
check:
  %done = phi i64 [ 0, %entry ], [ %following, %one ]
  %more = icmp slt i64 %done, %count
  br i1 %more, label %one, label %end
one:
  %before = mul i64 %done, <<WIDTH>>
  %first = add i64 %row, %before
  call void @block(ptr %in, ptr %out, i64 %first)
  %following = add i64 %done, 1
  br label %check
end:
  ret void
}
"""


def _block(writer: _Writer, outputs: Sequence[IdArray], dtypes: Sequence[np.dtype[Any]]) -> _Writer:
    """The whole program for one vector."""
    writer.define("void", "block", "ptr %in, ptr %out, i64 %row")
    writer.inputs()
    writer.scope(0)
    writer.store(outputs, dtypes)
    writer.emit("ret void")
    return writer


def _parts(
    write: Callable[..., _Writer],
    program: Program,
    plan: gather.Plan,
    outputs: Sequence[IdArray],
    dtypes: Sequence[np.dtype[Any]],
) -> list[_Writer]:
    """The functions that `gather.driver` calls."""
    shared = {x: ("%shared", at) for x, at in plan.shared.offsets.items()}
    fixed = {x: ("%fixed", at) for x, at in plan.fixed.offsets.items()}
    now = {x: ("%now", plan.state.offsets[k]) for k, x in plan.carries.items()}
    finals = {x: ("%now", plan.state.offsets[k]) for x, k in plan.finals.items()}

    share = write(program, list(shared))
    share.define("void", "share", "ptr %in, ptr %shared")
    share.inputs()
    share.scope(0)
    for x, (pointer, at) in shared.items():
        share.keep(x, pointer, at)
    share.emit("ret void")

    before = write(gather.given(program, shared), plan.before, slots=shared)
    before.define("void", "before", "ptr %in, i64 %row, ptr %shared, ptr %fixed, ptr %now")
    before.inputs()
    before.scope(0)
    for x, (pointer, at) in fixed.items():
        before.keep(x, pointer, at)
    for k, x in plan.initial.items():
        before.keep(x, "%now", plan.state.offsets[k])
    before.emit("ret void")

    known = shared | fixed | now
    wanted = [*plan.following.values(), plan.rare.taken]
    loop = None if plan.rare.loop is None else program.loops[plan.rare.loop]
    # One function for both, as its code is hot where it is needed for the branch.
    one = write(gather.given(program, known), wanted, slots=known, rare=plan.rare.branch)
    layout = "ptr %shared, ptr %fixed, ptr %now, ptr %next, i32 %round"
    one.define("i32", "round", f"{layout}, i1 %branching")
    one.round(plan.scope, loop)
    for k, x in plan.following.items():
        one.keep(x, "%next", plan.state.offsets[k])
    bits = one.lanes(plan.rare.taken)
    one.emit(f"%lanes = zext i{one.width} {bits} to i32")
    one.emit("ret i32 %lanes")

    results = [int(x) for o in outputs for x in o.ravel()]
    after = write(plan.after, results, slots=shared | fixed | finals)
    after.define("void", "after", "ptr %in, ptr %out, i64 %row, ptr %shared, ptr %fixed, ptr %now")
    after.inputs()
    after.scope(0)
    after.store(outputs, dtypes)
    after.emit("ret void")
    return [share, before, one, after]


def _hex(number: Any) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(number)))[0]:016X}"


class _Writer:
    """One function of the text.

    Args:
        program: what it is a part of.
        wanted: the values that are needed in the end.
        buffers: what the program reads.
        width: lanes of a vector.
        slots: values that are in memory: the pointer's name and the byte they begin at.
        rare: index of the branch that is left out unless `%branching`.
    """

    def __init__(
        self,
        program: Program,
        wanted: Sequence[Id],
        *,
        buffers: Sequence[Buffer],
        width: int,
        slots: Mapping[Id, tuple[str, int]] | None = None,
        rare: int | None = None,
    ) -> None:
        self.p, self.wanted, self.buffers = program, wanted, buffers
        self.alive = live_values(program, wanted)
        self.width = width
        self.slots = dict(slots or {})
        self.lines: list[str] = []
        self.names: dict[Id, str] = {}
        self.loaded: dict[Id, str] = {}
        self.declared: dict[str, str] = {}
        self.function = self.heading = ""
        self.rare = None if rare is None else program.loops[rare]
        self.counted = self.rarely = 0
        self.fresh = 0
        self.block = "entry"
        self.tables: dict[tuple[Id, ...], str] = {}
        self.allocas: list[str] = []
        self.rounds: dict[int, dict[int, str]] = {}
        self.by_scope: dict[int, list[Id]] = {}
        for i in np.flatnonzero(self.alive).tolist():
            if i not in self.slots:
                self.by_scope.setdefault(program.scopes[i], []).append(i)
        self.by_scope = {s: self.ordered(s, ids) for s, ids in self.by_scope.items()}

    def ordered(self, scope: int, members: list[Id]) -> list[Id]:
        wanted = list(self.wanted)
        if scope:
            loop = next(loop for loop in self.p.loops if loop.scope == scope)
            # The stacked values come after the carried ones.
            wanted += [x for x in loop.following if self.alive[x]]
            wanted += [] if loop.condition is None else [loop.condition]
        return schedule(self.p, members, wanted)

    def define(self, result: str, name: str, parameters: str) -> None:
        """Name the function."""
        self.function = name
        self.heading = f"define internal {result} @{name}({parameters}) #0"

    def text(self) -> str:
        """The function."""
        body = "\n".join(["entry:", *("  " + a for a in self.allocas), *self.lines])
        return f"{self.heading} {{\n{body}\n}}\n"

    # --- small things ---

    def new(self, stem: str = "t") -> str:
        self.fresh += 1
        return f"%{stem}{self.fresh}"

    def emit(self, line: str) -> None:
        self.lines.append("  " + line)

    def type(self, dtype: np.dtype[Any]) -> str:
        return f"<{self.width} x {_llvm_type(dtype)}>"

    def scalar(self, number: Any) -> str:
        dtype = number.dtype
        if dtype == BOOL:
            return "true" if number else "false"
        if dtype.char not in _TYPES:
            return str(int.from_bytes(number.tobytes(), "little"))
        if dtype.kind == "f":
            return _hex(number)
        return str(int(number))

    def splat(self, dtype: np.dtype[Any], text: str) -> str:
        return f"splat ({_llvm_type(dtype)} {text})"

    def name(self, x: Id) -> str:
        if self.p.ops[x] == "constant":
            return self.splat(self.p.dtypes[x], self.scalar(self.p.attributes[x]))
        if x not in self.slots:
            return self.names[x]
        # Loaded anew in every block, where it is needed: it need not stay at hand.
        if x not in self.loaded:
            pointer, at = self.slots[x]
            self.loaded[x] = self.from_memory(self.p.dtypes[x], self.at(pointer, at))
        return self.loaded[x]

    def set(self, x: Id, code: str) -> None:
        self.names[x] = f"%v{x}"
        self.emit(f"%v{x} = {code}")

    def value(self, code: str) -> str:
        name = self.new()
        self.emit(f"{name} = {code}")
        return name

    def intrinsic(self, name: str, dtype: np.dtype[Any], *operands: str, extra: str = "") -> str:
        t = self.type(dtype)
        suffix = (
            f"v{self.width}{_llvm_type(dtype).replace('float', 'f32').replace('double', 'f64')}"
        )
        full = f"@llvm.{name}.{suffix}"
        parameters = ", ".join([t] * len(operands) + (["i1"] if extra else []))
        self.declared[full] = f"declare {t} {full}({parameters})"
        given = ", ".join(f"{t} {o}" for o in operands)
        return f"call {t} {full}({given}{extra})"

    # --- memory ---

    def at(self, pointer: str, offset: int) -> str:
        return self.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def stored(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype that one is kept as."""
        return np.dtype(np.uint8) if dtype == BOOL else dtype

    def to_memory(self, x: Id, place: str) -> None:
        dtype, name = self.p.dtypes[x], self.name(x)
        t = self.type(self.stored(dtype))
        if dtype == BOOL:
            name = self.value(f"zext {self.type(dtype)} {name} to {t}")
        self.emit(f"store {t} {name}, ptr {place}")

    def from_memory(self, dtype: np.dtype[Any], place: str) -> str:
        t = self.type(self.stored(dtype))
        x = self.value(f"load {t}, ptr {place}")
        return self.value(f"icmp ne {t} {x}, zeroinitializer") if dtype == BOOL else x

    def keep(self, x: Id, pointer: str, offset: int) -> None:
        self.to_memory(x, self.at(pointer, offset))

    def lanes(self, x: Id) -> str:
        """Which lanes a value holds in, as bits."""
        return self.value(f"bitcast {self.type(BOOL)} {self.name(x)} to i{self.width}")

    def inputs(self) -> None:
        wanted: dict[int, list[tuple[int, Id]]] = {}
        for i in np.flatnonzero(self.alive).tolist():
            if self.p.ops[i] == "input" and i not in self.slots:
                buffer, element = self.p.attributes[i]
                wanted.setdefault(buffer, []).append((element, i))
        for number, elements in sorted(wanted.items()):
            buffer = self.buffers[number]
            size = int(np.prod(buffer.shape, dtype=int))
            place = self.value(f"getelementptr ptr, ptr %in, i64 {number}")
            base = self.value(f"load ptr, ptr {place}")
            if buffer.batched:
                offset = self.value(f"mul i64 %row, {size * buffer.dtype.itemsize}")
                base = self.value(f"getelementptr i8, ptr {base}, i64 {offset}")
            if not buffer.batched:
                for element, i in sorted(elements):
                    self.load_uniform(base, buffer.dtype, element, i)
            elif size == 1:
                self.load_contiguous(base, buffer.dtype, elements[0][1])
            else:
                self.load_columns(base, buffer.dtype, size, sorted(elements))

    def load_uniform(self, base: str, dtype: np.dtype[Any], element: int, i: Id) -> None:
        memory = "i8" if dtype == BOOL else _llvm_type(dtype)
        place = self.value(f"getelementptr {memory}, ptr {base}, i64 {element}")
        x = self.value(f"load {memory}, ptr {place}")
        if dtype == BOOL:
            x = self.value(f"icmp ne i8 {x}, 0")
        self.set(i, self.spread(x, dtype))

    def spread(self, x: str, dtype: np.dtype[Any]) -> str:
        t, s = self.type(dtype), _llvm_type(dtype)
        one = self.value(f"insertelement {t} poison, {s} {x}, i32 0")
        return f"shufflevector {t} {one}, {t} poison, <{self.width} x i32> zeroinitializer"

    def load_contiguous(self, base: str, dtype: np.dtype[Any], i: Id) -> None:
        if dtype == BOOL:
            x = self.value(f"load <{self.width} x i8>, ptr {base}, align 1")
            self.set(i, f"icmp ne <{self.width} x i8> {x}, zeroinitializer")
        else:
            self.set(i, f"load {self.type(dtype)}, ptr {base}, align {dtype.itemsize}")

    def load_columns(
        self, base: str, dtype: np.dtype[Any], size: int, elements: list[tuple[int, Id]]
    ) -> None:
        columns = dict(elements)
        if dtype.itemsize == 4 and size >= 4 and len(elements) > 2:
            for start, names in self.tiles(base, dtype, size):
                for k, name in enumerate(names):
                    if start + k in columns and columns[start + k] not in self.names:
                        self.names[columns[start + k]] = name
            return
        memory = "i8" if dtype == BOOL else _llvm_type(dtype)
        t = f"<{self.width} x {memory}>"
        for element, i in elements:
            x = "poison"
            for lane in range(self.width):
                place = self.value(
                    f"getelementptr {memory}, ptr {base}, i64 {lane * size + element}"
                )
                one = self.value(f"load {memory}, ptr {place}, align {dtype.itemsize}")
                x = self.value(f"insertelement {t} {x}, {memory} {one}, i32 {lane}")
            if dtype == BOOL:
                self.set(i, f"icmp ne {t} {x}, zeroinitializer")
            else:
                self.names[i] = x

    def tile_starts(self, size: int) -> tuple[int, list[int]]:
        """Width of the square tiles that cover `size` columns, and where they begin."""
        tile = min(self.width, 1 << (size.bit_length() - 1))
        starts = list(range(0, size - tile + 1, tile))
        if starts[-1] + tile < size:
            starts.append(size - tile)  # overlaps the one before
        return tile, starts

    def tiles(self, base: str, dtype: np.dtype[Any], size: int) -> Any:
        """Columns of a matrix of rows, transposed in registers: (first column, vectors)."""
        s, t = _llvm_type(dtype), self.type(dtype)
        tile, starts = self.tile_starts(size)
        small = f"<{tile} x {s}>"
        groups = self.width // tile
        for start in starts:
            rows = []
            for r in range(tile):
                parts = []
                for g in range(groups):
                    place = self.value(
                        f"getelementptr {s}, ptr {base}, i64 {(g * tile + r) * size + start}"
                    )
                    parts.append(self.value(f"load {small}, ptr {place}, align {dtype.itemsize}"))
                rows.append(self.join(parts, s, tile))
            yield start, self.transpose(rows, t, tile)

    def join(self, parts: list[str], s: str, size: int) -> str:
        """Vectors of `size` elements one after the other."""
        while len(parts) > 1:
            mask = ", ".join(f"i32 {k}" for k in range(2 * size))
            t = f"<{size} x {s}>"
            parts = [
                self.value(f"shufflevector {t} {a}, {t} {b}, <{2 * size} x i32> <{mask}>")
                for a, b in zip(parts[::2], parts[1::2], strict=True)
            ]
            size *= 2
        return parts[0]

    def transpose(self, rows: list[str], t: str, tile: int) -> list[str]:
        """Transpose square tiles that lie side by side in vectors."""
        step = 1
        while step < tile:
            mixed = list(rows)
            for a in range(tile):
                if a & step:
                    continue
                b = a + step
                low, high = [], []
                for lane in range(self.width):
                    if lane & step:
                        low.append(self.width + lane - step)
                        high.append(self.width + lane)
                    else:
                        low.append(lane)
                        high.append(lane + step)
                for target, mask in ((a, low), (b, high)):
                    text = ", ".join(f"i32 {k}" for k in mask)
                    mixed[target] = self.value(
                        f"shufflevector {t} {rows[a]}, {t} {rows[b]}, <{self.width} x i32> <{text}>"
                    )
            rows, step = mixed, step * 2
        return rows

    def store(self, outputs: Sequence[IdArray], dtypes: Sequence[np.dtype[Any]]) -> None:
        for number, (ids, dtype) in enumerate(zip(outputs, dtypes, strict=True)):
            size = ids.size
            place = self.value(f"getelementptr ptr, ptr %out, i64 {number}")
            base = self.value(f"load ptr, ptr {place}")
            offset = self.value(f"mul i64 %row, {size * dtype.itemsize}")
            base = self.value(f"getelementptr i8, ptr {base}, i64 {offset}")
            names = [self.name(int(x)) for x in ids.ravel()]
            t, memory = self.type(dtype), _llvm_type(dtype)
            if dtype == BOOL:
                t, memory = f"<{self.width} x i8>", "i8"
                names = [self.value(f"zext {self.type(dtype)} {x} to {t}") for x in names]
            if size == 1:
                self.emit(f"store {t} {names[0]}, ptr {base}, align {dtype.itemsize}")
            elif dtype.itemsize == 4 and size >= 4:
                self.store_tiles(base, dtype, size, names)
            else:
                for column, x in enumerate(names):
                    for lane in range(self.width):
                        one = self.value(f"extractelement {t} {x}, i32 {lane}")
                        at = self.value(
                            f"getelementptr {memory}, ptr {base}, i64 {lane * size + column}"
                        )
                        self.emit(f"store {memory} {one}, ptr {at}, align {dtype.itemsize}")

    def store_tiles(self, base: str, dtype: np.dtype[Any], size: int, names: list[str]) -> None:
        s, t = _llvm_type(dtype), self.type(dtype)
        tile, starts = self.tile_starts(size)
        for start in starts:
            rows = self.transpose(names[start : start + tile], t, tile)
            for r, row in enumerate(rows):
                for g in range(self.width // tile):
                    mask = ", ".join(f"i32 {g * tile + k}" for k in range(tile))
                    part = row
                    if tile < self.width:
                        part = self.value(
                            f"shufflevector {t} {row}, {t} poison, <{tile} x i32> <{mask}>"
                        )
                    at = self.value(
                        f"getelementptr {s}, ptr {base}, i64 {(g * tile + r) * size + start}"
                    )
                    self.emit(f"store <{tile} x {s}> {part}, ptr {at}, align {dtype.itemsize}")

    # --- values ---

    def scope(self, scope: int) -> None:
        before = self.counted
        self.compute(self.by_scope.get(scope, ()))
        if scope == 0:
            return
        rounds = next(loop.count for loop in self.p.loops if loop.scope == scope) or 1
        self.counted = before + rounds * (self.counted - before)

    def compute(self, ids: Sequence[Id]) -> None:
        for i in ids:
            op = self.p.ops[i]
            if op in ("constant", "input", "carry"):
                continue
            if op == "loop":
                self.loop(self.p.attributes[i])
            else:
                if op not in ("counter", "final", "round", "within"):
                    self.counted += 1
                getattr(self, f"op_{op}", self.basic)(i)

    def label(self, stem: str) -> str:
        self.fresh += 1
        return f"{stem}{self.fresh}"

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label
        self.loaded = {}

    def round(self, scope: int, loop: Loop | None) -> None:
        """One round of a loop, by itself: number `%round`."""
        if loop is not None:
            self.fill_tables(scope, loop.outer)
            self.set(loop.counter, self.spread("%round", np.dtype(np.int32)))
        self.compute(self.by_scope.get(scope, ()))

    def loop(self, index: int) -> None:
        p, loop = self.p, self.p.loops[index]
        self.fill_tables(loop.scope, loop.outer)
        carried = [k for k, c in enumerate(loop.carries) if self.alive[c]]
        for k in carried:
            self.names[loop.carries[k]] = f"%v{loop.carries[k]}"
        kept = {
            p.attributes[i][1]
            for i in self.by_scope.get(loop.outer, ())
            if p.ops[i] == "round" and p.attributes[i][0] == index
        }
        rounds = {j: self.alloca(loop.count or 0, p.dtypes[loop.stacked[j]]) for j in kept}
        initial = {k: self.name(loop.initial[k]) for k in carried}
        start, end = self.label("loop"), self.label("end")
        before = self.block
        self.emit(f"br label %{start}")
        header = len(self.lines)
        self.begin(start)
        counter, following = self.new("i"), self.new("i")
        vector = self.spread(counter, np.dtype(np.int32))
        self.set(loop.counter, vector)
        before_round = self.counted
        if loop.condition is not None:
            self.leave(loop, loop.condition, end)
        self.scope(loop.scope)
        if loop is self.rare:
            self.rarely = self.counted - before_round
        for j, memory in rounds.items():
            x = loop.stacked[j]
            at = self.value(f"getelementptr {self.type(p.dtypes[x])}, ptr {memory}, i32 {counter}")
            self.emit(f"store {self.type(p.dtypes[x])} {self.name(x)}, ptr {at}")
        self.emit(f"{following} = add i32 {counter}, 1")
        ends = {k: self.name(loop.following[k]) for k in carried}
        latch = self.block
        if loop.condition is None:
            again = self.value(f"icmp ult i32 {following}, {loop.count}")
            self.emit(f"br i1 {again}, label %{start}, label %{end}")
        else:
            self.emit(f"br label %{start}")
        phis = [f"  {counter} = phi i32 [ 0, %{before} ], [ {following}, %{latch} ]"]
        for k in carried:
            c = loop.carries[k]
            phis.append(
                f"  %v{c} = phi {self.type(p.dtypes[c])} [ {initial[k]}, %{before} ], "
                f"[ {ends[k]}, %{latch} ]"
            )
        self.lines[header + 1 : header + 1] = phis
        self.begin(end)
        self.rounds[index] = rounds

    def leave(self, loop: Loop, condition: Id, end: str) -> None:
        """Out of a while loop before a round, if no lane goes on: of most, before the first."""
        needed: set[Id] = set()
        pending = [condition]
        while pending:
            x = pending.pop()
            if self.p.scopes[x] == loop.scope and x not in needed:
                needed.add(x)
                pending.extend(self.p.args[x])
        ids = self.by_scope.get(loop.scope, [])
        if any(self.p.ops[i] in ("loop", "final", "round") for i in needed):
            needed = set(ids)  # a condition that loops itself: with the whole round
        self.compute([i for i in ids if i in needed])
        self.by_scope[loop.scope] = [i for i in ids if i not in needed]
        bits = self.lanes(condition)
        some = self.value(f"icmp ne i{self.width} {bits}, 0")
        if loop is self.rare:
            some = self.value(f"and i1 {some}, %branching")
        body = self.label("body")
        self.emit(f"br i1 {some}, label %{body}, label %{end}")
        self.begin(body)

    def alloca(self, count: int, dtype: np.dtype[Any]) -> str:
        name = self.new("m")
        self.allocas.append(f"{name} = alloca [{count} x {self.type(dtype)}], align 64")
        return name

    def fill_tables(self, scope: int, outer: int) -> None:
        """Lay out in memory what a loop, or a loop within it, looks up by its counter."""
        inner = {scope}
        for loop in self.p.loops:
            if loop.outer in inner:
                inner.add(loop.scope)
        for s in inner:
            for i in self.by_scope.get(s, ()):
                values = self.p.args[i][1:]
                if self.p.ops[i] != "lookup" or values in self.tables:
                    continue
                if any(self.p.scopes[x] in inner for x in values):
                    continue
                stored = self.stored(self.p.dtypes[i])
                memory = self.alloca(len(values), stored)
                for k, x in enumerate(values):
                    self.to_memory(
                        x, self.value(f"getelementptr {self.type(stored)}, ptr {memory}, i32 {k}")
                    )
                self.tables[values] = memory

    def op_counter(self, i: Id) -> None:
        """Set where its loop begins."""

    def op_lookup(self, i: Id) -> None:
        index, *values = self.p.args[i]
        dtype = self.p.dtypes[i]
        place = self.value(
            f"extractelement {self.type(self.p.dtypes[index])} {self.name(index)}, i32 0"
        )
        memory, t = self.tables[tuple(values)], self.type(self.stored(dtype))
        at = self.value(f"getelementptr {t}, ptr {memory}, i32 {place}")
        self.names[i] = self.from_memory(dtype, at)

    def op_final(self, i: Id) -> None:
        index, k = self.p.attributes[i]
        loop = self.p.loops[index]
        # A while loop is left before a round, when every lane has been frozen.
        self.alias(i, (loop.following if loop.condition is None else loop.carries)[k])

    def op_within(self, i: Id) -> None:
        self.alias(i, self.p.args[i][0])

    def alias(self, i: Id, x: Id) -> None:
        if x in self.slots:
            self.slots[i] = self.slots[x]
        else:
            self.names[i] = self.name(x)

    def op_round(self, i: Id) -> None:
        index, j, t = self.p.attributes[i]
        type_ = self.type(self.p.dtypes[i])
        at = self.value(f"getelementptr {type_}, ptr {self.rounds[index][j]}, i32 {t}")
        self.set(i, f"load {type_}, ptr {at}")

    def op_call(self, i: Id) -> None:
        name, args = self.p.attributes[i], self.p.args[i]
        dtype = self.p.dtypes[i]
        t, s = self.type(dtype), _llvm_type(dtype)
        function = name.removeprefix("guarded:")
        guarded = name != function
        operands = [self.name(a) for a in (args[1:2] if guarded else args)]
        self.declared[f"@{function}"] = f"declare {s} @{function}({', '.join([s] * len(operands))})"
        if guarded:
            rare, usual = self.name(args[0]), self.name(args[2])
            bits = self.value(f"bitcast {self.type(BOOL)} {rare} to i{self.width}")
            some = self.value(f"icmp ne i{self.width} {bits}, 0")
            before, slow, after = self.block, self.label("rare"), self.label("usual")
            self.emit(f"br i1 {some}, label %{slow}, label %{after}, !prof !0")
            self.begin(slow)
        result = "poison"
        for lane in range(self.width):
            parts = [self.value(f"extractelement {t} {o}, i32 {lane}") for o in operands]
            given = ", ".join(f"{s} {x}" for x in parts)
            one = self.value(f"call {s} @{function}({given})")
            result = self.value(f"insertelement {t} {result}, {s} {one}, i32 {lane}")
        if not guarded:
            self.names[i] = result
            return
        chosen = self.value(f"select {self.type(BOOL)} {rare}, {t} {result}, {t} {usual}")
        self.emit(f"br label %{after}")
        self.begin(after)
        self.set(i, f"phi {t} [ {usual}, %{before} ], [ {chosen}, %{slow} ]")

    def op_select(self, i: Id) -> None:
        c, a, b = self.p.args[i]
        t = self.type(self.p.dtypes[i])
        self.set(
            i, f"select {self.type(BOOL)} {self.name(c)}, {t} {self.name(a)}, {t} {self.name(b)}"
        )

    def op_convert(self, i: Id) -> None:
        (x,) = self.p.args[i]
        source, target = self.p.dtypes[x], self.p.dtypes[i]
        s, t = self.type(source), self.type(target)
        unsigned = source.kind in "ub"
        if source.kind == "f" and target.kind == "f":
            op = "fpext" if target.itemsize > source.itemsize else "fptrunc"
        elif source.kind == "f":
            kind = "fptoui" if target.kind == "u" else "fptosi"
            ends = [f"v{self.width}{_llvm_type(d).replace('float', 'f32').replace('double', 'f64')}"
                    for d in (target, source)]  # fmt: skip
            full = f"@llvm.{kind}.sat.{ends[0]}.{ends[1]}"
            self.declared[full] = f"declare {t} {full}({s})"
            self.set(i, f"call {t} {full}({s} {self.name(x)})")
            return
        elif target.kind == "f":
            op = "uitofp" if unsigned else "sitofp"
        elif target.itemsize == source.itemsize and source != BOOL:
            op = "bitcast"
        elif target.itemsize < source.itemsize:
            op = "trunc"
        else:
            op = "zext" if unsigned else "sext"
        self.set(i, f"{op} {s} {self.name(x)} to {t}")

    def op_bitcast(self, i: Id) -> None:
        (x,) = self.p.args[i]
        source, target = self.type(self.p.dtypes[x]), self.type(self.p.dtypes[i])
        self.set(i, f"bitcast {source} {self.name(x)} to {target}")

    def op_rsqrt(self, i: Id) -> None:
        (x,) = self.p.args[i]
        dtype, t = self.p.dtypes[i], self.type(self.p.dtypes[i])
        # Not by the estimate that some processors have: the bits are to be the same on all.
        root = self.value(self.intrinsic("sqrt", dtype, self.name(x)))
        self.set(i, f"fdiv {t} {self.splat(dtype, _hex(1))}, {root}")

    def op_is_finite(self, i: Id) -> None:
        (x,) = self.p.args[i]
        dtype = self.p.dtypes[x]
        size = self.value(self.intrinsic("fabs", dtype, self.name(x)))
        self.set(i, f"fcmp olt {self.type(dtype)} {size}, {self.splat(dtype, _hex(np.inf))}")

    def extreme(self, i: Id, greater: bool) -> None:
        a, b = self.p.args[i]
        dtype = self.p.dtypes[a]
        t = self.type(dtype)
        if dtype.kind != "f":
            sign = "u" if dtype.kind in "ub" else "s"
            c = self.value(
                f"icmp {sign}{'gt' if greater else 'lt'} {t} {self.name(a)}, {self.name(b)}"
            )
        else:
            # A NaN on either side is the result.
            word = "gt" if greater else "lt"
            if self.p.ops[b] == "constant":
                c = self.value(f"fcmp u{word} {t} {self.name(a)}, {self.name(b)}")
            else:
                c = self.value(f"fcmp o{word} {t} {self.name(a)}, {self.name(b)}")
                if self.p.ops[a] != "constant":
                    nan = self.value(f"fcmp uno {t} {self.name(a)}, {self.name(a)}")
                    c = self.value(f"or {self.type(BOOL)} {c}, {nan}")
        self.set(i, f"select {self.type(BOOL)} {c}, {t} {self.name(a)}, {t} {self.name(b)}")

    def op_max(self, i: Id) -> None:
        self.extreme(i, greater=True)

    def op_min(self, i: Id) -> None:
        self.extreme(i, greater=False)

    def shift(self, i: Id, op: str) -> None:
        x, by = self.p.args[i]
        dtype = self.p.dtypes[x]
        t, bits = self.type(dtype), dtype.itemsize * 8
        amount = self.p.number(by)
        if amount is not None and 0 <= int(amount) < bits:
            self.set(i, f"{op} {t} {self.name(x)}, {self.name(by)}")
            return
        # Shifting by as many bits as there are, or more, leaves nothing (or only the sign).
        fits = self.value(f"icmp ult {t} {self.name(by)}, {self.splat(dtype, str(bits))}")
        safe = self.value(
            f"select {self.type(BOOL)} {fits}, {t} {self.name(by)}, "
            f"{t} {self.splat(dtype, str(bits - 1))}"
        )
        if op == "ashr":
            self.set(i, f"ashr {t} {self.name(x)}, {safe}")
        else:
            shifted = self.value(f"{op} {t} {self.name(x)}, {safe}")
            self.set(i, f"select {self.type(BOOL)} {fits}, {t} {shifted}, {t} zeroinitializer")

    def op_shift_left(self, i: Id) -> None:
        self.shift(i, "shl")

    def op_shift_right_logical(self, i: Id) -> None:
        self.shift(i, "lshr")

    def op_shift_right_arithmetic(self, i: Id) -> None:
        self.shift(i, "ashr")

    def integer_quotient(self, i: Id, op: str) -> None:
        a, b = (self.name(x) for x in self.p.args[i])
        dtype = self.p.dtypes[i]
        t, c = self.type(dtype), self.type(BOOL)
        zero = self.value(f"icmp eq {t} {b}, zeroinitializer")
        bad = zero
        if dtype.kind == "i":
            least = self.splat(dtype, str(np.iinfo(dtype).min))
            lowest = self.value(f"icmp eq {t} {a}, {least}")
            minus = self.value(f"icmp eq {t} {b}, {self.splat(dtype, '-1')}")
            over = self.value(f"and {c} {lowest}, {minus}")
            bad = self.value(f"or {c} {zero}, {over}")
        safe = self.value(f"select {c} {bad}, {t} {self.splat(dtype, '1')}, {t} {b}")
        word = ("s" if dtype.kind == "i" else "u") + op
        x = self.value(f"{word} {t} {a}, {safe}")
        # XLA: a division by zero gives -1, its remainder the dividend.
        replaced = self.splat(dtype, "-1") if op == "div" else a
        self.set(i, f"select {c} {zero}, {t} {replaced}, {t} {x}")

    def basic(self, i: Id) -> None:
        p, op = self.p, self.p.ops[i]
        args = p.args[i]
        dtype = p.dtypes[args[0]]
        t = self.type(dtype)
        names = [self.name(a) for a in args]
        floating = dtype.kind == "f"
        if op in ("eq", "ne", "lt", "le", "gt", "ge"):
            if floating:
                word = "une" if op == "ne" else f"o{op}"
                self.set(i, f"fcmp {word} {t} {names[0]}, {names[1]}")
            else:
                sign = "" if op in ("eq", "ne") else "u" if dtype.kind in "ub" else "s"
                self.set(i, f"icmp {sign}{op} {t} {names[0]}, {names[1]}")
        elif op in ("add", "sub", "mul"):
            word = f"f{op} contract" if floating else op
            self.set(i, f"{word} {t} {names[0]}, {names[1]}")
        elif op in ("div", "rem"):
            if floating:
                self.set(i, f"f{op} {t} {names[0]}, {names[1]}")
            else:
                self.integer_quotient(i, op)
        elif op in ("and", "or", "xor"):
            self.set(i, f"{op} {t} {names[0]}, {names[1]}")
        elif op == "not":
            ones = self.splat(dtype, "true" if dtype == BOOL else "-1")
            self.set(i, f"xor {t} {names[0]}, {ones}")
        elif op == "neg":
            self.set(
                i, f"fneg {t} {names[0]}" if floating else f"sub {t} zeroinitializer, {names[0]}"
            )
        elif op == "abs":
            if floating:
                self.set(i, self.intrinsic("fabs", dtype, names[0]))
            else:
                self.set(i, self.intrinsic("abs", dtype, names[0], extra=", i1 false"))
        elif op in ("sqrt", "floor", "ceil", "round_even"):
            self.set(i, self.intrinsic(op.replace("round_even", "roundeven"), dtype, names[0]))
        else:
            raise BuildError(f"no instructions for the operation {op!r}")
