"""A known matrix times a vector as a loop over the matrix.

Where vectors are of environments, a few rows at a time go along the columns; of one environment,
vectors are of rows. Sums are taken as they would be one by one: column by column, the first two
products in one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..program import Id
from .builder import Builder, llvm_type

AT_A_TIME, VECTORS = 8, 4
"""Sums that are under way at once: of rows, and of vectors of rows."""

VECTOR_BYTES = 64
"""Of a vector of rows or columns in a kernel of one environment; some processors take several."""


def write_product(b: Builder, i: Id) -> None:
    """Write the loops of a `product`; its entries are in memory then."""
    p, vector, width = b.program, b.program.args[i], b.width
    matrix: np.ndarray = p.matrices[p.attributes[i]]
    dtype, columns = matrix.dtype, matrix.shape[1]
    each = width * dtype.itemsize
    lanes, sums = (VECTOR_BYTES // dtype.itemsize, VECTORS) if width == 1 else (width, AT_A_TIME)
    rows = sums * (lanes if width == 1 else 1)
    blocks = -(-len(matrix) // rows)
    table = b.table([*_laid_out(matrix, blocks, rows)])
    given, (found, begin) = b.alloca(columns, dtype), b.room(blocks * rows, dtype)
    for k, x in enumerate(vector):
        b.store(x, b.address(given, k * each))
    for k in range(len(matrix)):
        b.slots[i + 1 + k] = found, begin + k * each
    with b.repeat(blocks) as block, b.across(lanes):
        weights = b.step(table, block, columns * rows * dtype.itemsize)
        results = _sums(b, dtype, given, weights, (width, columns, rows, sums))
        at = b.step(found, block, rows * each, begin)
        for j, result in enumerate(results):
            b.write(dtype, result, b.address(at, j * lanes * dtype.itemsize))
    b.workspace = b.workspace or found  # what follows are as many values as rows


def _laid_out(matrix: np.ndarray, blocks: int, rows: int) -> np.ndarray:
    """The numbers of a matrix, column by column of as many rows as a block has."""
    padded = np.zeros((blocks * rows, matrix.shape[1]), matrix.dtype)
    padded[: len(matrix)] = matrix
    return padded.reshape(blocks, rows, -1).swapaxes(1, 2).ravel()


def _sums(
    b: Builder, dtype: np.dtype[Any], given: str, weights: str, sizes: tuple[int, int, int, int]
) -> list[str]:
    """The sums of one block's rows."""
    width, columns, rows, sums = sizes
    t, s = b.type(dtype), llvm_type(dtype)

    def factors(k: str) -> tuple[str, list[str]]:
        number = b.step(given, k, width * dtype.itemsize)
        at = b.step(weights, k, rows * dtype.itemsize)
        if width > 1:
            ones = [b.address(at, j * dtype.itemsize) for j in range(sums)]
            spread = [b.broadcast(b.value(f"load {s}, ptr {one}"), dtype) for one in ones]
            return b.load(dtype, number), [b.value(code) for code in spread]
        x = b.value(b.broadcast(b.value(f"load {s}, ptr {number}"), dtype))
        return x, [b.load(dtype, b.address(at, j * VECTOR_BYTES)) for j in range(sums)]

    def added(x: str, w: str, to: str) -> str:
        if b.program.joined:
            return b.value(b.intrinsic("fma", dtype, x, w, to))
        return b.value(f"fadd {t} {to}, {b.value(f'fmul {t} {x}, {w}')}")

    (x0, w0), (x1, w1) = factors("0"), factors("1")
    begin = [
        added(x0, first, b.value(f"fmul {t} {x1}, {second}"))
        for first, second in zip(w0, w1, strict=True)
    ]
    before, start, end = b.block, b.label("sum"), b.label("summed")
    b.emit(f"br label %{start}")
    b.begin(start)
    header = len(b.lines)
    k, following = b.register("k"), b.register("k")
    under_way = [b.register("s") for _ in begin]
    x, w = factors(k)
    results = [added(x, one, to) for one, to in zip(w, under_way, strict=True)]
    b.emit(f"{following} = add i64 {k}, 1")
    again = b.value(f"icmp ult i64 {following}, {columns}")
    b.emit(f"br i1 {again}, label %{start}, label %{end}")
    phis = [f"  {k} = phi i64 [ 2, %{before} ], [ {following}, %{start} ]"]
    phis += [
        f"  {name} = phi {t} [ {first}, %{before} ], [ {last}, %{start} ]"
        for name, first, last in zip(under_way, begin, results, strict=True)
    ]
    b.lines[header:header] = phis
    b.begin(end)
    return results
