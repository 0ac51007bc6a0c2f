"""The product of two matrices, block by block of the result, whose sums are in registers.

Every number is a vector of environments; in a kernel of one environment vectors are of a result's
columns. Sums are taken as they would be one by one: along the rows, the first two products in one.

Source: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3),
2008: the innermost kernel; matrices of a robot are small enough for the cache as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..program import Id
from .builder import Builder, llvm_type
from .product import VECTOR_BYTES
from .workspace import Matrix

BLOCK = 4, 6
"""Rows and columns of the largest block: of 32 registers, 24 sums and what they are made of."""

SMALL_BLOCK = 3, 3
"""Where there are 16, or a vector takes two of 32."""

VECTOR = 8
"""Sums that are under way at once of a product with a vector."""

_STRIDES = "a_row", "a_step", "b_row", "b_step", "c_row", "rows", "columns", "depth"


def write_matmul(b: Builder, i: Id, matrices: tuple[Matrix, Matrix, Matrix]) -> Builder:
    """Write the call of a function that multiplies rows by columns: the function.

    Args:
        b: the function under construction.
        i: the `matmul`; its entries are in memory then.
        matrices: rows (m, k), columns (n, k) and the result (m, n).
    """
    size, dtype = b.program.attributes[i], b.program.dtypes[i + 1]
    each = b.width * dtype.itemsize
    most = BLOCK if each in (16, 64) else SMALL_BLOCK
    if 1 in size[:2]:
        most = VECTOR, VECTOR
    high, wide = (_alike(n, limit) for n, limit in zip(size, most, strict=False))
    f = _begun(b, f"matmul.{high}.{wide}.{dtype.char}")
    with _blocks(f, "%rows", high) as row:
        a, above = f.step("%a", row, "%a_row"), f.step("%c", row, "%c_row")
        rows = _lines(f, a, high, "%a_row")
        with _blocks(f, "%columns", wide) as column:
            columns = _lines(f, f.step("%b", column, "%b_row"), wide, "%b_row")
            sums = _sums(f, dtype, rows, columns)
            _store(f, dtype, sums, f.step(above, column, each), [j * each for j in range(wide)])
    _call(b, f, matrices, size)
    b.divide()  # what was loaded before need not wait in registers
    return f


def write_matmul_of_one(
    b: Builder, i: Id, matrices: tuple[Matrix, Matrix, Matrix], size: tuple[int, int, int]
) -> list[Builder]:
    """The same in a kernel of one environment: the functions that are called.

    Args:
        b: the function under construction.
        i: the `matmul`; its entries are in memory then.
        matrices: rows (m, k), columns (n, k) side by side in memory, and the result (m, n).
        size: m, n, k.
    """
    (m, n, _), dtype = size, b.program.dtypes[i + 1]
    each = dtype.itemsize
    lanes = min(VECTOR_BYTES // each, 1 << (n.bit_length() - 1))
    # The last vector ends with the row, and has some of what the one before has.
    begins = [*range(0, n - lanes, lanes), n - lanes]
    high, called = _alike(m, BLOCK[0]), []
    for first in range(0, len(begins), BLOCK[1]):
        part = begins[first : first + BLOCK[1]]
        offsets = [(begin - part[0]) * each for begin in part]
        f = _begun(b, f"matmul.{high}.of.{lanes}.{'.'.join(map(str, offsets))}.{dtype.char}")
        with _blocks(f, "%rows", high) as row:
            rows = _lines(f, f.step("%a", row, "%a_row"), high, "%a_row")
            above = f.step("%c", row, "%c_row")
            with f.across(lanes):
                sums = _sums(f, dtype, rows, ["%b"], offsets)
                _store(f, dtype, sums, above, offsets)
        a, columns, result = matrices
        moved = [x._replace(begin=x.begin + part[0] * each) for x in (columns, result)]
        _call(b, f, (a, moved[0], moved[1]), size)
        called.append(f)
    return called


def _alike(size: int, most: int) -> int:
    """The size of as few blocks as there can be, as alike as they can be."""
    return -(-size // -(-size // most))


def _begun(b: Builder, name: str) -> Builder:
    f = Builder(b.program, b.width)
    f.define("void", name, ", ".join(("ptr %a, ptr %b, ptr %c", *(f"i64 %{x}" for x in _STRIDES))))
    return f


def _call(
    b: Builder, f: Builder, matrices: tuple[Matrix, Matrix, Matrix], size: tuple[int, int, int]
) -> None:
    f.emit("ret void")
    rows, columns, result = matrices
    given = [f"ptr {b.address(x.pointer, x.begin)}" for x in matrices]
    numbers = rows.row, rows.column, columns.row, columns.column, result.row, *size
    b.emit(f"call void @{f.function}({', '.join((*given, *(f'i64 {x}' for x in numbers)))})")


@contextmanager
def _blocks(f: Builder, size: str, block: int) -> Iterator[str]:
    """A loop over blocks of rows or columns: the first one of each. The last block ends with them.

    Where they are no multiple of a block, some are computed twice.
    """
    last = f.value(f"sub i64 {size}, {block}")
    above = f.value(f"add i64 {size}, {block - 1}")
    with f.repeat(f.value(f"udiv i64 {above}, {block}")) as k:
        begin = f.value(f"mul i64 {k}, {block}")
        within = f.value(f"icmp ult i64 {begin}, {last}")
        yield f.value(f"select i1 {within}, i64 {begin}, i64 {last}")


def _lines(f: Builder, first: str, count: int, row: str) -> list[str]:
    """Where rows begin."""
    found = [first]
    for _ in range(1, count):
        found.append(f.value(f"getelementptr i8, ptr {found[-1]}, i64 {row}"))
    return found


def _sums(
    f: Builder,
    dtype: np.dtype[Any],
    rows: Sequence[str],
    columns: Sequence[str],
    offsets: Sequence[int] | None = None,
) -> list[list[str]]:
    """The sums of one block: of its rows and columns, or of vectors of columns at offsets."""
    t = f.type(dtype)

    def following(pointers: Sequence[str], step: str) -> list[str]:
        return [f.value(f"getelementptr i8, ptr {p}, i64 {step}") for p in pointers]

    def added(x: str, y: str, to: str) -> str:
        if f.program.joined:
            return f.value(f.intrinsic("fma", dtype, x, y, to))
        return f.value(f"fadd {t} {to}, {f.value(f'fmul {t} {x}, {y}')}")

    def factors(rows: Sequence[str], columns: Sequence[str]) -> tuple[list[str], list[str]]:
        if offsets is None:
            return [f.load(dtype, p) for p in rows], [f.load(dtype, p) for p in columns]
        scalars = [f.value(f"load {llvm_type(dtype)}, ptr {p}") for p in rows]
        places = [f.address(columns[0], offset) for offset in offsets]
        return (
            [f.value(f.broadcast(x, dtype)) for x in scalars],
            [f.value(f"load {t}, ptr {p}, align {dtype.itemsize}") for p in places],
        )

    second = following(rows, "%a_step"), following(columns, "%b_step")
    (x0, y0), (x1, y1) = factors(rows, columns), factors(*second)
    begin = [added(x, y, f.value(f"fmul {t} {u}, {v}"))
             for x, u in zip(x0, x1, strict=True) for y, v in zip(y0, y1, strict=True)]  # fmt: skip
    third = *following(second[0], "%a_step"), *following(second[1], "%b_step")
    before, start, end = f.block, f.label("sum"), f.label("summed")
    f.emit(f"br label %{start}")
    f.begin(start)
    header = len(f.lines)
    k, after = f.register("k"), f.register("k")
    at, sums = [f.register("p") for _ in third], [f.register("s") for _ in begin]
    x, y = factors(at[: len(rows)], at[len(rows) :])
    pairs = itertools.product(x, y)
    results = [added(one, other, to) for (one, other), to in zip(pairs, sums, strict=True)]
    moved = *following(at[: len(rows)], "%a_step"), *following(at[len(rows) :], "%b_step")
    f.emit(f"{after} = add i64 {k}, 1")
    again = f.value(f"icmp ult i64 {after}, %depth")
    f.emit(f"br i1 {again}, label %{start}, label %{end}")
    phis = [("i64", k, "2", after)]
    phis += [("ptr", *values) for values in zip(at, third, moved, strict=True)]
    phis += [(t, *values) for values in zip(sums, begin, results, strict=True)]
    f.lines[header:header] = [
        f"  {name} = phi {kind} [ {first}, %{before} ], [ {last}, %{start} ]"
        for kind, name, first, last in phis
    ]
    f.begin(end)
    wide = len(y)
    return [results[row * wide : (row + 1) * wide] for row in range(len(rows))]


def _store(
    f: Builder, dtype: np.dtype[Any], sums: Sequence[Sequence[str]], c: str, offsets: Sequence[int]
) -> None:
    """Write a block of the result, row by row from `c` on."""
    for row in sums:
        for x, offset in zip(row, offsets, strict=True):
            f.emit(f"store {f.type(dtype)} {x}, ptr {f.address(c, offset)}, align {dtype.itemsize}")
        c = f.value(f"getelementptr i8, ptr {c}, i64 %c_row")
