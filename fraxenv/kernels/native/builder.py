"""The text of an LLVM function in which every value is a SIMD vector of environments."""

from __future__ import annotations

import functools
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from ..errors import BuildError
from ..program import BOOL, Id, Program

_TYPES = {
    "?": "i1", "b": "i8", "B": "i8", "h": "i16", "H": "i16", "i": "i32", "I": "i32",
    "l": "i64", "L": "i64", "q": "i64", "Q": "i64", "f": "float", "d": "double",
}  # fmt: skip
_PACKED = frozenset({"int2", "uint2", "int4", "uint4", "float4_e2m1fn"})


@functools.cache
def llvm_type(dtype: np.dtype[Any]) -> str:
    """The element type; numbers that no rule computes with are carried as bits.

    Raises:
        BuildError: several of the dtype share a byte.
    """
    if dtype.name in _PACKED:
        raise BuildError(f"{dtype} is kept several to a byte")
    return _TYPES.get(dtype.char) or f"i{8 * dtype.itemsize}"


def mangled(dtype: np.dtype[Any]) -> str:
    """The element type as LLVM's intrinsics have it in their names."""
    return llvm_type(dtype).replace("float", "f32").replace("double", "f64")


@functools.cache
def _vector_type(width: int, dtype: np.dtype[Any]) -> str:
    return f"<{width} x {llvm_type(dtype)}>"


@functools.cache
def _intrinsic_name(name: str, width: int, dtype: np.dtype[Any]) -> str:
    return f"@llvm.{name}.v{width}{mangled(dtype)}"


def float_literal(number: Any) -> str:
    """A float as LLVM reads it without rounding: the bits of the float64."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(number)))[0]:016X}"


def stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of a value in memory: bools have a byte."""
    return np.dtype(np.uint8) if dtype == BOOL else dtype


def aligned(size: int) -> int:
    """A size in bytes, up to the next multiple of a vector's."""
    return -(-size // 64) * 64


def literal(number: Any) -> str:
    """A NumPy scalar as LLVM reads it."""
    dtype = number.dtype
    if dtype == BOOL:
        return "true" if number else "false"
    if dtype.char not in _TYPES:
        return str(int.from_bytes(number.tobytes(), "little"))
    return float_literal(number) if dtype.kind == "f" else str(int(number))


def splat(dtype: np.dtype[Any], text: str) -> str:
    """A literal in every lane."""
    return f"splat ({llvm_type(dtype)} {text})"


class Builder:
    """One LLVM function under construction.

    Args:
        program: the program of which the function computes a part.
        width: lanes of a vector.
        slots: values in memory: the pointer's name and the byte where they begin.

    Attributes:
        names: the registers of the values that have been computed.
        declared: the declarations of external functions, by their names.
        block: the label of the basic block that is being written.
        lines: the text so far.
        function: the function's name.
        workspace: the parameter that points to its workspace, if it has one.
        frame: the bytes of what its parts have on the stack in common, `%frame`; None if it is in
            one part.
        loads_numbers: whether known floats are loaded where they are needed, as what is in memory.
        leaving: the values that leave the registers with what is being written.
        gpu: whether it is written for a GPU, where LLVM joins products with sums, and has a
            remainder only of small quotients.
    """

    def __init__(
        self, program: Program, width: int, slots: Mapping[Id, tuple[str, int]] | None = None
    ) -> None:
        self.program, self.width = program, width
        self.slots = dict(slots or {})
        self.names: dict[Id, str] = {}
        self.declared: dict[str, str] = {}
        self.block = "entry"
        self.lines: list[str] = []
        self.function = self._signature = self._result = self._linkage = self._first = ""
        self.workspace = ""
        self.frame: int | None = None
        self.loads_numbers = self.gpu = False
        self.leaving: Collection[Id] = ()
        self._divided = False
        self._loaded: dict[Id, str] = {}
        self._allocas: list[str] = []
        self._fresh = 0

    # --- text ---

    def define(self, result: str, name: str, parameters: str, linkage: str = "internal") -> None:
        """Name the function."""
        self.function, self._result, self._linkage = name, result, linkage
        self._signature = f"{result} @{name}({parameters})"
        self._first = parameters.split(",")[0].split()[-1]

    def apart(self) -> str:
        """What a module declares that calls the function, which then is in another module."""
        self._linkage = ""
        return f"declare {self._signature}\n"

    def go_on(self, name: str, parameters: str) -> None:
        """Go on in another part, a function of its own: what is not in memory is gone."""
        self.lines, self._allocas, self._divided = [], [], False
        self.define("void", name, parameters, linkage="")
        self.names, self._loaded, self.block = {}, {}, "entry"

    def text(self) -> str:
        """The function's definition."""
        first, last = ["entry:", *("  " + a for a in self._allocas)], []
        if self._divided:
            first.append(f"  %never = icmp eq ptr {self._first}, null")
            last = ["leave:", f"  ret {self._result}" + (" 0" if self._result != "void" else "")]
        body = "\n".join([*first, *self.lines, *last])
        return f"define {self._linkage} {self._signature} #0 {{\n{body}\n}}\n"

    def register(self, stem: str = "t") -> str:
        """A new register's name."""
        self._fresh += 1
        return f"%{stem}{self._fresh}"

    def label(self, stem: str) -> str:
        """A new basic block's label."""
        self._fresh += 1
        return f"{stem}{self._fresh}"

    def begin(self, label: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{label}:")
        self.block = label
        self._loaded = {}

    def divide(self) -> None:
        """Go on in a new basic block: the time that LLVM takes over one grows with its square.

        It would join blocks that always follow each other. So it is not told that they do.
        """
        label = self.label("on")
        self.emit(f"br i1 %never, label %leave, label %{label}")
        self.begin(label)
        self._divided = True

    def emit(self, line: str) -> None:
        """Write a line."""
        self.lines.append("  " + line)

    def value(self, code: str) -> str:
        """The register of an instruction's result."""
        # Most of a text is written here: what is done by others is written out.
        self._fresh += 1
        name = f"%t{self._fresh}"
        self.lines.append(f"  {name} = {code}")
        return name

    # --- values of the program ---

    def type(self, dtype: np.dtype[Any]) -> str:
        """The type of vectors."""
        return _vector_type(self.width, dtype)

    def like(self, x: Id) -> AbstractContextManager[None]:
        """Vectors as wide as a value."""
        return self.across(self.program.lanes.get(x, self.width))

    def set(self, x: Id, code: str) -> None:
        """Compute a value by an instruction."""
        self.names[x] = self.value(code)

    def alias(self, x: Id, source: Id) -> None:
        """Let a value be another one."""
        if source in self.slots:
            self.slots[x] = self.slots[source]
        else:
            self.names[x] = self.name(source)

    def name(self, x: Id) -> str:
        """A value as an operand."""
        # Loaded anew in every block, where it is needed: it need not stay at hand.
        loaded = self._loaded.get(x)
        if loaded is not None:
            return loaded
        if x not in self.slots:
            if self.program.ops[x] != "constant":
                return self.names[x]
            number = splat(self.program.dtypes[x], literal(self.program.attributes[x]))
            if not self.is_loaded(x):
                return number
            self.slots[x] = self._in_every_lane(x, number), 0
        place = self.address(*self.slots[x])
        self._loaded[x] = loaded = self.load(self.program.dtypes[x], place)
        return loaded

    def is_loaded(self, x: Id) -> bool:
        """Whether a value is in memory already, or a known number that is loaded."""
        known = self.loads_numbers and self.program.ops[x] == "constant"
        return x in self.slots or (known and self.program.dtypes[x].kind == "f")

    def _in_every_lane(self, x: Id, number: str) -> str:
        """The address of a known number in every lane."""
        bits = literal(self.program.attributes[x])
        name = f"@{mangled(self.program.dtypes[x])}.{self.width}.{bits}"
        t = self.type(self.program.dtypes[x])
        self.declared[name] = f"{name} = private constant {t} {number}, align 64"
        return name

    def forget(self, x: Id) -> None:
        """Let a value that is in memory be loaded again where it is needed next."""
        self._loaded.pop(x, None)

    def settle(self, x: Id, pointer: str, offset: int) -> None:
        """Write a value to memory, where it will be from now on."""
        name = self.name(x)
        self.store(x, self.address(pointer, offset))
        self.slots[x] = pointer, offset
        self._loaded[x] = name

    # --- common instructions ---

    def intrinsic(self, name: str, dtype: np.dtype[Any], *operands: str, extra: str = "") -> str:
        """A call of one of LLVM's functions; `extra` is an operand that is no vector."""
        t, full = self.type(dtype), _intrinsic_name(name, self.width, dtype)
        if full not in self.declared:
            parameters = ", ".join([t] * len(operands) + (["i1"] if extra else []))
            self.declared[full] = f"declare {t} {full}({parameters})"
        return f"call {t} {full}({t} {f', {t} '.join(operands)}{extra})"

    def broadcast(self, x: str, dtype: np.dtype[Any]) -> str:
        """A scalar in every lane."""
        t, s = self.type(dtype), llvm_type(dtype)
        one = self.value(f"insertelement {t} poison, {s} {x}, i32 0")
        return f"shufflevector {t} {one}, {t} poison, <{self.width} x i32> zeroinitializer"

    def lanes(self, x: Id) -> str:
        """The lanes in which a bool holds, as bits of an integer."""
        return self.value(f"bitcast {self.type(BOOL)} {self.name(x)} to i{self.width}")

    @contextmanager
    def repeat(self, count: int | str) -> Iterator[str]:
        """A loop around what is written meanwhile: its counter (i64), from 0."""
        start, end, before = self.label("copy"), self.label("copied"), self.block
        counter, following = self.register("n"), self.register("n")
        self.emit(f"br label %{start}")
        self.begin(start)
        header = len(self.lines)
        yield counter
        self.emit(f"{following} = add i64 {counter}, 1")
        again = self.value(f"icmp ult i64 {following}, {count}")
        self.emit(f"br i1 {again}, label %{start}, label %{end}")
        phi = f"  {counter} = phi i64 [ 0, %{before} ], [ {following}, %{self.block} ]"
        self.lines.insert(header, phi)
        self.begin(end)

    # --- memory ---

    def alloca(self, count: int, dtype: np.dtype[Any]) -> str:
        """Room for vectors on the stack."""
        name = self.register("m")
        self._allocas.append(f"{name} = alloca [{count} x {self.type(dtype)}], align 64")
        return name

    def room(self, count: int, dtype: np.dtype[Any]) -> tuple[str, int]:
        """Room for vectors on the stack, for all parts: a pointer's name, and bytes from there."""
        if self.frame is None:
            return self.alloca(count, dtype), 0
        return self.room_in_frame(count * self.width * stored(dtype).itemsize)

    def room_in_frame(self, size: int) -> tuple[str, int]:
        """Room for so many bytes, for all parts."""
        at = self.frame or 0
        self.frame = at + aligned(size)
        return "%frame", at

    def reserve(self, pointer: str, size: int) -> None:
        """Room for so many bytes on the stack, by the name of its pointer."""
        self._allocas.append(f"{pointer} = alloca [{size} x i8], align 64")

    def address(self, pointer: str, offset: int) -> str:
        """The address some bytes from another."""
        if not offset:
            return pointer
        return self.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def store(self, x: Id, address: str) -> None:
        """Write a value to memory."""
        self.write(self.program.dtypes[x], self.name(x), address)

    def write(self, dtype: np.dtype[Any], name: str, address: str) -> None:
        """Write a vector to memory."""
        t = self.type(stored(dtype))
        if dtype == BOOL:
            name = self.value(f"zext {self.type(dtype)} {name} to {t}")
        self.emit(f"store {t} {name}, ptr {address}")

    def load(self, dtype: np.dtype[Any], address: str) -> str:
        """A vector from memory."""
        t = self.type(stored(dtype))
        x = self.value(f"load {t}, ptr {address}")
        return self.value(f"icmp ne {t} {x}, zeroinitializer") if dtype == BOOL else x

    def step(self, pointer: str, counter: str, stride: int | str, offset: int = 0) -> str:
        """The address `counter` (i64) times some bytes from another."""
        bytes_ = self.value(f"mul i64 {counter}, {stride}")
        at = self.value(f"getelementptr i8, ptr {pointer}, i64 {bytes_}")
        return self.address(at, offset) if offset else at

    def spaced(self, values: Sequence[Id]) -> tuple[str, int, int] | None:
        """The pointer, the bytes to the first and from one to the next of values in memory.

        None if they are not at equal distances.
        """
        places = [self.slots.get(x) for x in values]
        first, second = places[0], places[1]
        if first is None or second is None:
            return None
        step = second[1] - first[1]
        alike = places == [(first[0], first[1] + k * step) for k in range(len(places))]
        return (*first, step) if alike else None

    def copy(self, values: Sequence[Id], places: Sequence[tuple[str, int]], few: int) -> None:
        """Write values to memory, by a loop where more than a few are at equal distances."""
        begin = 0
        while begin < len(values):
            end = self._run(values, places, begin)
            if end - begin <= few:
                end = begin + 1
                if self.slots.get(values[begin]) != places[begin]:
                    self.store(values[begin], self.address(*places[begin]))
                if end % 256 == 0:
                    self.divide()
            else:
                self._copy_run(values[begin:end], places[begin:end])
            begin = end

    def _run(self, values: Sequence[Id], places: Sequence[tuple[str, int]], begin: int) -> int:
        """The end of the values from `begin` on that a loop can write."""
        if begin + 1 >= len(values):
            return len(values)
        dtype, source = self.program.dtypes[values[begin]], self.slots.get(values[begin])
        same, pointer = values[begin] == values[begin + 1], places[begin][0]
        if not same and source is None:
            return begin + 1
        beyond = self.slots.get(values[begin + 1], ("", 0))[1]
        steps = (
            (0 if source is None else beyond - source[1]),
            places[begin + 1][1] - places[begin][1],
        )
        end = begin + 1
        while end < len(values):
            n, x = end - begin, values[end]
            if places[end] != (pointer, places[begin][1] + n * steps[1]):
                break
            if self.program.dtypes[x] != dtype or (same and x != values[begin]):
                break
            if not same and (
                source is None or self.slots.get(x) != (source[0], source[1] + n * steps[0])
            ):
                break
            end += 1
        return end

    def _copy_run(self, values: Sequence[Id], places: Sequence[tuple[str, int]]) -> None:
        dtype = self.program.dtypes[values[0]]
        source = None if values[0] == values[1] else self.spaced(values)
        if source is not None and source == (*places[0], places[1][1] - places[0][1]):
            return  # there already
        name = self.name(values[0]) if source is None else ""
        with self.repeat(len(values)) as k:
            if source is not None:
                name = self.load(dtype, self.step(source[0], k, source[2], source[1]))
            pointer, offset = places[0]
            self.write(dtype, name, self.step(pointer, k, places[1][1] - offset, offset))

    @contextmanager
    def across(self, width: int) -> Iterator[None]:
        """Vectors of another width: of what is not environments."""
        before, self.width = self.width, width
        yield
        self.width = before

    def table(self, numbers: Sequence[Any]) -> str:
        """The address of known numbers, each once for all lanes."""
        dtype = numbers[0].dtype
        t = llvm_type(stored(dtype))
        texts = [str(int(x)) if dtype == BOOL else literal(x) for x in numbers]
        name = f"@{self.function}.{self.register('c')[1:]}"
        listed = ", ".join(f"{t} {text}" for text in texts)
        self.declared[name] = (
            f"{name} = private constant [{len(numbers)} x {t}] [{listed}], align 64"
        )
        return name
