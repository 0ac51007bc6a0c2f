"""Rows of buffers to vectors of environments, and back.

A buffer has one environment's numbers in a row; a vector has one number of every lane's. Square
parts of 32 bit buffers are transposed in registers, all others are moved number by number. Wide
buffers are transposed square by square in a loop, from or to a workspace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..buffer import Buffer
from ..program import BOOL, Id, IdArray
from .builder import Builder, llvm_type, stored
from .workspace import FEW, Workspace


def load_inputs(
    b: Builder,
    inputs: Sequence[Id],
    buffers: Sequence[Buffer],
    workspace: Workspace | None = None,
) -> None:
    """Load elements of the buffers `%in` for the vector of rows from `%row` on.

    Args:
        b: the function under construction.
        inputs: the elements that are to be in registers, as values of the program.
        buffers: the program's inputs.
        workspace: the places of wide buffers.
    """
    wanted: dict[int, list[tuple[int, Id]]] = {}
    for i in inputs:
        buffer, element = b.program.attributes[i]
        wanted.setdefault(buffer, []).append((element, i))
    for number, elements in sorted(wanted.items()):
        _load_buffer(b, number, buffers[number], elements)
    if workspace is not None:
        find_inputs(b, buffers, workspace)
        for number, offset in workspace.inputs.items():
            _load_wide(b, number, buffers[number], (workspace.pointer, offset))


def find_inputs(b: Builder, buffers: Sequence[Buffer], workspace: Workspace) -> None:
    """Point to the inputs that are read where they are."""
    for number, pointer in workspace.direct.items():
        base, _ = _base(b, number, buffers[number])
        b.emit(f"{pointer} = getelementptr i8, ptr {base}, i64 0")


def _base(b: Builder, number: int, buffer: Buffer) -> tuple[str, int]:
    """The address of a buffer's numbers for the vector, and how many there are in a row."""
    size = buffer.size
    place = b.value(f"getelementptr ptr, ptr %in, i64 {number}")
    base = b.value(f"load ptr, ptr {place}")
    if buffer.batched:
        offset = b.value(f"mul i64 %row, {size * buffer.dtype.itemsize}")
        base = b.value(f"getelementptr i8, ptr {base}, i64 {offset}")
    return base, size


def _load_buffer(
    b: Builder, number: int, buffer: Buffer, elements: Sequence[tuple[int, Id]]
) -> None:
    dtype = buffer.dtype
    base, size = _base(b, number, buffer)
    if not buffer.batched:
        for element, i in sorted(elements):
            _load_uniform(b, base, dtype, element, i)
        return
    if size == 1:
        _load_contiguous(b, base, dtype, elements[0][1])
    elif dtype.itemsize == 4 and size >= 4 and len(elements) > 2:
        _load_transposed(b, base, dtype, size, dict(elements))
    else:
        _load_columns(b, base, dtype, size, sorted(elements))


def _load_uniform(b: Builder, base: str, dtype: np.dtype[Any], element: int, i: Id) -> None:
    """An element that all environments share."""
    memory = _memory_type(dtype)
    place = b.value(f"getelementptr {memory}, ptr {base}, i64 {element}")
    x = b.value(f"load {memory}, ptr {place}")
    if dtype == BOOL:
        x = b.value(f"icmp ne i8 {x}, 0")
    b.set(i, b.broadcast(x, dtype))


def _load_contiguous(b: Builder, base: str, dtype: np.dtype[Any], i: Id) -> None:
    """The only element of each row."""
    if dtype == BOOL:
        x = b.value(f"load <{b.width} x i8>, ptr {base}, align 1")
        b.set(i, f"icmp ne <{b.width} x i8> {x}, zeroinitializer")
    else:
        b.set(i, f"load {b.type(dtype)}, ptr {base}, align {dtype.itemsize}")


def _load_transposed(
    b: Builder, base: str, dtype: np.dtype[Any], size: int, columns: dict[int, Id]
) -> None:
    for start, names in _transposed_squares(b, base, dtype, size):
        for k, name in enumerate(names):
            if start + k in columns and columns[start + k] not in b.names:
                b.names[columns[start + k]] = name


def _load_columns(
    b: Builder, base: str, dtype: np.dtype[Any], size: int, elements: Sequence[tuple[int, Id]]
) -> None:
    memory = _memory_type(dtype)
    t = f"<{b.width} x {memory}>"
    for element, i in elements:
        x = "poison"
        for lane in range(b.width):
            place = b.value(f"getelementptr {memory}, ptr {base}, i64 {lane * size + element}")
            one = b.value(f"load {memory}, ptr {place}, align {dtype.itemsize}")
            x = b.value(f"insertelement {t} {x}, {memory} {one}, i32 {lane}")
        if dtype == BOOL:
            b.set(i, f"icmp ne {t} {x}, zeroinitializer")
        else:
            b.names[i] = x


def _load_wide(b: Builder, number: int, buffer: Buffer, to: tuple[str, int]) -> None:
    """All of a buffer to a workspace."""
    base, size = _base(b, number, buffer)
    s = _memory_type(buffer.dtype)
    t, each = f"<{b.width} x {s}>", stored(buffer.dtype).itemsize
    if not buffer.batched:
        with b.repeat(size) as k:
            place = b.value(f"getelementptr {s}, ptr {base}, i64 {k}")
            one = b.value(f"load {s}, ptr {place}, align {each}")
            x = b.value(b.broadcast(one, stored(buffer.dtype)))
            b.emit(f"store {t} {x}, ptr {b.step(to[0], k, b.width * each, to[1])}")
        return
    with each_part(b, size, b.width) as first:
        rows = []
        for lane in range(b.width):
            place = b.value(f"getelementptr {s}, ptr {base}, i64 {first}")
            place = b.address(place, lane * size * each)
            rows.append(b.value(f"load {t}, ptr {place}, align {each}"))
        at = b.step(to[0], first, b.width * each, to[1])
        for number, column in enumerate(_transpose(b, rows, t)):
            b.emit(f"store {t} {column}, ptr {b.address(at, number * b.width * each)}")


def _store_wide(
    b: Builder, base: str, dtype: np.dtype[Any], size: int, place: tuple[str, int]
) -> None:
    """A result from a workspace."""
    s = _memory_type(dtype)
    t, each = f"<{b.width} x {s}>", stored(dtype).itemsize
    with each_part(b, size, b.width) as first:
        at = b.step(place[0], first, b.width * each, place[1])
        columns = [
            b.value(f"load {t}, ptr {b.address(at, k * b.width * each)}") for k in range(b.width)
        ]
        for lane, row in enumerate(_transpose(b, columns, t)):
            to = b.value(f"getelementptr {s}, ptr {base}, i64 {first}")
            to = b.address(to, lane * size * each)
            b.emit(f"store {t} {row}, ptr {to}, align {each}")


@contextmanager
def each_part(b: Builder, size: int, width: int) -> Iterator[str]:
    """A loop over parts of `width` of `size` columns: the number of the first one of each."""
    with b.repeat(-(-size // width)) as k:
        begin = b.value(f"mul i64 {k}, {width}")
        within = b.value(f"icmp ult i64 {begin}, {size - width}")
        # The last part overlaps the one before.
        yield b.value(f"select i1 {within}, i64 {begin}, i64 {size - width}")


def store_outputs(
    b: Builder,
    outputs: Sequence[IdArray],
    dtypes: Sequence[np.dtype[Any]],
    workspace: Workspace | None = None,
) -> None:
    """Store results to the buffers `%out` for the vector of rows from `%row` on.

    Args:
        b: the function under construction.
        outputs: the values of each result.
        dtypes: the dtype of each result.
        workspace: the places of wide results.
    """
    for number, (ids, dtype) in enumerate(zip(outputs, dtypes, strict=True)):
        size = ids.size
        place = b.value(f"getelementptr ptr, ptr %out, i64 {number}")
        base = b.value(f"load ptr, ptr {place}")
        offset = b.value(f"mul i64 %row, {size * dtype.itemsize}")
        base = b.value(f"getelementptr i8, ptr {base}, i64 {offset}")
        if workspace is not None and number in workspace.outputs:
            begin, each = workspace.outputs[number], b.width * stored(dtype).itemsize
            places = [(workspace.pointer, begin + k * each) for k in range(size)]
            b.copy(ids.ravel().tolist(), places, FEW)
            _store_wide(b, base, dtype, size, places[0])
            continue
        names = [b.name(int(x)) for x in ids.ravel()]
        memory = _memory_type(dtype)
        t = f"<{b.width} x {memory}>"
        if dtype == BOOL:
            names = [b.value(f"zext {b.type(dtype)} {x} to {t}") for x in names]
        if size == 1:
            b.emit(f"store {t} {names[0]}, ptr {base}, align {dtype.itemsize}")
        elif dtype.itemsize == 4 and size >= 4:
            _store_transposed(b, base, dtype, size, names)
        else:
            _store_columns(b, base, dtype, names)


def _store_transposed(
    b: Builder, base: str, dtype: np.dtype[Any], size: int, names: Sequence[str]
) -> None:
    s, t = llvm_type(dtype), b.type(dtype)
    side, starts = _squares(b.width, size)
    for start in starts:
        rows = _transpose(b, names[start : start + side], t)
        for r, row in enumerate(rows):
            for g in range(b.width // side):
                mask = ", ".join(f"i32 {g * side + k}" for k in range(side))
                part = row
                if side < b.width:
                    part = b.value(f"shufflevector {t} {row}, {t} poison, <{side} x i32> <{mask}>")
                at = b.value(f"getelementptr {s}, ptr {base}, i64 {(g * side + r) * size + start}")
                b.emit(f"store <{side} x {s}> {part}, ptr {at}, align {dtype.itemsize}")


def _store_columns(b: Builder, base: str, dtype: np.dtype[Any], names: Sequence[str]) -> None:
    memory = _memory_type(dtype)
    t = f"<{b.width} x {memory}>"
    for column, x in enumerate(names):
        for lane in range(b.width):
            one = b.value(f"extractelement {t} {x}, i32 {lane}")
            at = b.value(f"getelementptr {memory}, ptr {base}, i64 {lane * len(names) + column}")
            b.emit(f"store {memory} {one}, ptr {at}, align {dtype.itemsize}")


def _memory_type(dtype: np.dtype[Any]) -> str:
    """The type of a number in a buffer."""
    return "i8" if dtype == BOOL else llvm_type(dtype)


# --- transposition in registers ---


def _squares(width: int, size: int) -> tuple[int, list[int]]:
    """The side of the squares that cover `size` columns, and the column where each begins."""
    side = min(width, 1 << (size.bit_length() - 1))
    starts = list(range(0, size - side + 1, side))
    if starts[-1] + side < size:
        starts.append(size - side)  # overlaps the one before
    return side, starts


def _transposed_squares(
    b: Builder, base: str, dtype: np.dtype[Any], size: int
) -> Iterator[tuple[int, list[str]]]:
    """Columns of a matrix of rows: the first one's number, and their vectors."""
    s, t = llvm_type(dtype), b.type(dtype)
    side, starts = _squares(b.width, size)
    for start in starts:
        rows = []
        for r in range(side):
            parts = []
            for g in range(b.width // side):
                place = b.value(
                    f"getelementptr {s}, ptr {base}, i64 {(g * side + r) * size + start}"
                )
                parts.append(b.value(f"load <{side} x {s}>, ptr {place}, align {dtype.itemsize}"))
            rows.append(_concatenate(b, parts, s, side))
        yield start, _transpose(b, rows, t)


def _concatenate(b: Builder, parts: Sequence[str], s: str, size: int) -> str:
    """Vectors of `size` elements one after the other."""
    while len(parts) > 1:
        mask = ", ".join(f"i32 {k}" for k in range(2 * size))
        t = f"<{size} x {s}>"
        parts = [
            b.value(f"shufflevector {t} {x}, {t} {y}, <{2 * size} x i32> <{mask}>")
            for x, y in zip(parts[::2], parts[1::2], strict=True)
        ]
        size *= 2
    return parts[0]


def _transpose(b: Builder, rows: Sequence[str], t: str) -> list[str]:
    """Transpose squares that lie side by side in vectors: as many rows as a square has."""
    rows, side, step = list(rows), len(rows), 1
    while step < side:
        mixed = list(rows)
        for upper in range(side):
            if upper & step:
                continue
            lower = upper + step
            low, high = [], []
            for lane in range(b.width):
                if lane & step:
                    low.append(b.width + lane - step)
                    high.append(b.width + lane)
                else:
                    low.append(lane)
                    high.append(lane + step)
            for target, mask in ((upper, low), (lower, high)):
                text = ", ".join(f"i32 {k}" for k in mask)
                mixed[target] = b.value(
                    f"shufflevector {t} {rows[upper]}, {t} {rows[lower]}, "
                    f"<{b.width} x i32> <{text}>"
                )
        rows, step = mixed, step * 2
    return rows
