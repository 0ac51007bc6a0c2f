"""Rows of a GPU's results, stored by the threads of a warp together.

A thread that writes its own row touches a sector of 32 bytes for each number, and the memory
writes each sector that often. So the rows go by way of the multiprocessor's shared memory, and
neighbouring threads write neighbouring numbers.

Source: CUDA C++ Best Practices Guide, section Coalesced Access to Global Memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..program import IdArray
from .builder import Builder, llvm_type, stored
from .memory import each_part
from .workspace import FEW, Workspace

WIDTH = 32
"""Threads of a warp."""

LARGEST = 8 << 10
"""Bytes of shared memory that a warp takes at most, for part of the columns where there are more:
the caches get what is left over."""

APART = 128
"""Operations that take as long as threads that write a number each to rows of their own. An H100
took 0.55 ms longer over a million mass matrices so, 49 numbers each, whose 1785 operations take it
0.09 ms: 220."""

SYNC = "call void @llvm.nvvm.bar.warp.sync(i32 -1)"
SHARED = "addrspacecast ptr addrspace(3) @stage to ptr"


def pays(outputs: Sequence[IdArray], operations: int) -> bool:
    """Whether threads that write their own rows take longer for it than for so many operations."""
    return APART * sum(ids.size for ids in outputs) > operations


def declarations(outputs: Sequence[IdArray], dtypes: Sequence[np.dtype[Any]]) -> list[str]:
    """What `store_outputs` needs of the module."""
    sizes = [
        WIDTH * _pitch(_columns(ids.size, dtype)) * stored(dtype).itemsize
        for ids, dtype in zip(outputs, dtypes, strict=False)
        if ids.size > 1
    ]
    room = f"[{max(sizes, default=0)} x i8]"
    return [
        f"@stage = internal addrspace(3) global {room} undef, align 16",
        "declare void @llvm.nvvm.bar.warp.sync(i32)",
    ]


def store_outputs(
    b: Builder,
    outputs: Sequence[IdArray],
    dtypes: Sequence[np.dtype[Any]],
    workspace: Workspace | None = None,
) -> None:
    """Store results to the buffers `%out`; every thread of the warp has to come here.

    Args:
        b: the function under construction, with `%place` (i32) and `%lane` (i64), the thread's
            place in its warp, `%first`, the row of the warp's first thread, `%row`, its own, and
            `%rows`, how many there are from the first one on.
        outputs: the values of each result.
        dtypes: the dtype of each result.
        workspace: the places of wide results.
    """
    stage = b.value(SHARED)
    for number, (ids, dtype) in enumerate(zip(outputs, dtypes, strict=True)):
        size, s = ids.size, llvm_type(stored(dtype))
        if size == 0:
            continue
        base = b.value(f"load ptr, ptr {b.value(f'getelementptr ptr, ptr %out, i64 {number}')}")
        if size == 1:
            place = b.value(f"getelementptr {s}, ptr {base}, i64 %row")
            b.write(dtype, b.name(int(ids.ravel()[0])), place)
            continue
        if workspace is not None and number in workspace.outputs:
            pointer, offset, each = (
                workspace.pointer,
                workspace.outputs[number],
                stored(dtype).itemsize,
            )
            places = [(pointer, offset + k * each) for k in range(size)]
            b.copy(ids.ravel().tolist(), places, FEW)
            _store_table(b, stage, base, places[0], dtype, size)
        else:
            names = [b.name(int(x)) for x in ids.ravel()]
            _store_row(b, stage, base, names, dtype)


def _store_row(
    b: Builder, stage: str, base: str, names: Sequence[str], dtype: np.dtype[Any]
) -> None:
    """A result of which a thread has every number by name."""
    s, columns = llvm_type(stored(dtype)), _columns(len(names), dtype)
    for begin in range(0, len(names), columns):
        part = names[begin : begin + columns]
        for k, x in enumerate(part):
            b.write(dtype, x, _staged(b, stage, s, len(part), "%lane", str(k)))
        _together(b, stage, base, (len(names), s, len(part)), str(begin))


def _store_table(
    b: Builder, stage: str, base: str, place: tuple[str, int], dtype: np.dtype[Any], size: int
) -> None:
    """A result from a workspace."""
    s, each, columns = llvm_type(stored(dtype)), stored(dtype).itemsize, _columns(size, dtype)
    with each_part(b, size, columns) as begin:
        with b.repeat(columns) as k:
            at = b.step(place[0], b.value(f"add i64 {begin}, {k}"), each, place[1])
            x = b.value(f"load {s}, ptr {at}")
            b.emit(f"store {s} {x}, ptr {_staged(b, stage, s, columns, '%lane', k)}")
        _together(b, stage, base, (size, s, columns), begin)


def _columns(size: int, dtype: np.dtype[Any]) -> int:
    """How many columns are in shared memory at a time."""
    most = LARGEST // (WIDTH * stored(dtype).itemsize) - 1
    return min(size, most)


def _pitch(columns: int) -> int:
    """From one row to the next in shared memory: odd, so that the rows lie in different banks."""
    return columns | 1


def _staged(b: Builder, stage: str, s: str, columns: int, row: str, column: str) -> str:
    """The address of a number in shared memory."""
    start = b.value(f"mul i64 {row}, {_pitch(columns)}")
    place = b.value(f"add i64 {start}, {column}")
    return b.value(f"getelementptr {s}, ptr {stage}, i64 {place}")


def _together(b: Builder, stage: str, base: str, part: tuple[int, str, int], begin: str) -> None:
    """Write columns from `begin` on of the warp's rows: of `part`'s row length, type and number."""
    size, s, columns = part
    b.emit(SYNC)
    with b.repeat(columns) as turn:
        first = b.value(f"mul i32 {b.value(f'trunc i64 {turn} to i32')}, {WIDTH}")
        number = b.value(f"add i32 {first}, %place")
        row, column = (
            b.value(f"zext i32 {b.value(f'{part} i32 {number}, {columns}')} to i64")
            for part in ("udiv", "urem")
        )
        store, on = b.label("store"), b.label("stored")
        b.emit(f"br i1 {b.value(f'icmp ult i64 {row}, %rows')}, label %{store}, label %{on}")
        b.begin(store)
        x = b.value(f"load {s}, ptr {_staged(b, stage, s, columns, row, column)}")
        start = b.value(f"mul i64 {b.value(f'add i64 %first, {row}')}, {size}")
        place = b.value(f"add i64 {b.value(f'add i64 {start}, {begin}')}, {column}")
        b.emit(f"store {s} {x}, ptr {b.value(f'getelementptr {s}, ptr {base}, i64 {place}')}")
        b.emit(f"br label %{on}")
        b.begin(on)
    b.emit(SYNC)
