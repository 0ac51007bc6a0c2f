"""The product of two matrices, block by block of the result, whose sums are in registers.

Every number is a vector of environments. Sums are taken as they would be one by one: along the
rows, the first two products in one.

Source: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3),
2008: the innermost kernel; matrices of a robot are small enough for the cache as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..program import Id
from .builder import Builder
from .workspace import Matrix

BLOCK = 4, 6
"""Rows and columns of the largest block: of 32 registers, 24 sums and what they are made of."""

SMALL_BLOCK = 3, 3
"""Where there are 16, or a vector takes two of 32."""

VECTOR = 8
"""Sums that are under way at once of a product with a vector."""


def write_matmul(b: Builder, i: Id, matrices: tuple[Matrix, Matrix, Matrix]) -> Builder:
    """Write the call of a function that multiplies rows by columns: the function.

    Args:
        b: the function under construction.
        i: the `matmul`; its entries are in memory then.
        matrices: rows (m, k), columns (n, k) and the result (m, n).
    """
    m, n, k = b.program.attributes[i]
    dtype = b.program.dtypes[i + 1]
    f = _function(b, dtype, (m, n))
    b.declared[f.function] = f.apart()
    given = [f"ptr {b.address(x.pointer, x.begin)}" for x in matrices]
    strides = [f"i64 {stride}" for x in matrices[:2] for stride in (x.row, x.column)]
    sizes = [f"i64 {matrices[2].row}", *(f"i64 {size}" for size in (m, n, k))]
    b.emit(f"call void @{f.function}({', '.join((*given, *strides, *sizes))})")
    b.divide()  # what was loaded before need not wait in registers
    return f


def _function(b: Builder, dtype: np.dtype[Any], size: tuple[int, int]) -> Builder:
    """A function that multiplies in blocks which suit a size."""
    each = b.width * dtype.itemsize
    most = BLOCK if each in (16, 64) else SMALL_BLOCK
    if 1 in size:
        most = VECTOR, VECTOR
    # As many blocks, as alike as they can be.
    high, wide = (-(-n // -(-n // limit)) for n, limit in zip(size, most, strict=True))
    name = f"matmul.{high}.{wide}.{dtype.char}"
    f = Builder(b.program, b.width)
    parameters = "ptr %a, ptr %b, ptr %c" + "".join(
        f", i64 %{x}"
        for x in ("a_row", "a_step", "b_row", "b_step", "c_row", "rows", "columns", "depth")
    )
    f.define("void", name, parameters)
    with _blocks(f, "%rows", high) as i:
        a = f.step("%a", i, "%a_row")
        above = f.step("%c", i, "%c_row")
        with _blocks(f, "%columns", wide) as j:
            sums = _sums(f, dtype, a, f.step("%b", j, "%b_row"), (high, wide))
            c = f.step(above, j, each)
            for row in sums:
                for number, x in enumerate(row):
                    f.write(dtype, x, f.address(c, number * each))
                c = f.value(f"getelementptr i8, ptr {c}, i64 %c_row")
    f.emit("ret void")
    return f


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


def _sums(
    f: Builder, dtype: np.dtype[Any], a: str, b: str, size: tuple[int, int]
) -> list[list[str]]:
    """The sums of one block, of rows that begin at `a` and columns that begin at `b`."""
    t, (high, wide) = f.type(dtype), size

    def lines(first: str, count: int, row: str) -> list[str]:
        found = [first]
        for _ in range(1, count):
            found.append(f.value(f"getelementptr i8, ptr {found[-1]}, i64 {row}"))
        return found

    def following(pointers: Sequence[str], step: str) -> list[str]:
        return [f.value(f"getelementptr i8, ptr {p}, i64 {step}") for p in pointers]

    def added(x: str, y: str, to: str) -> str:
        if f.program.joined:
            return f.value(f.intrinsic("fma", dtype, x, y, to))
        return f.value(f"fadd {t} {to}, {f.value(f'fmul {t} {x}, {y}')}")

    def numbers(pointers: Sequence[str]) -> list[str]:
        return [f.load(dtype, p) for p in pointers]

    rows, columns = lines(a, high, "%a_row"), lines(b, wide, "%b_row")
    second = following(rows, "%a_step"), following(columns, "%b_step")
    x0, y0, x1, y1 = map(numbers, (rows, columns, *second))
    begin = [
        added(x0[i], y0[j], f.value(f"fmul {t} {x1[i]}, {y1[j]}"))
        for i, j in np.ndindex(high, wide)
    ]
    third = *following(second[0], "%a_step"), *following(second[1], "%b_step")
    before, start, end = f.block, f.label("sum"), f.label("summed")
    f.emit(f"br label %{start}")
    f.begin(start)
    header = len(f.lines)
    k, after = f.register("k"), f.register("k")
    at, sums = [f.register("p") for _ in third], [f.register("s") for _ in begin]
    x, y = numbers(at[:high]), numbers(at[high:])
    pairs = np.ndindex(high, wide)
    results = [added(x[i], y[j], one) for (i, j), one in zip(pairs, sums, strict=True)]
    moved = [*following(at[:high], "%a_step"), *following(at[high:], "%b_step")]
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
    return [results[i * wide : (i + 1) * wide] for i in range(high)]
