"""Operations on whole matrices: loops over memory.

An operand that is not in order anywhere is moved, rectangle by rectangle. In a kernel of one
environment vectors are of columns, which lie side by side in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..program import Id
from .builder import Builder, literal, llvm_type
from .matmul import write_matmul, write_matmul_of_one
from .memory import each_part
from .product import VECTOR_BYTES
from .workspace import Matrix, Slot, Workspace, in_order, operands

Shape = tuple[int, int]

_INSTRUCTIONS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "neg": "fneg"}
"""Of what is computed element by element."""


def write(b: Builder, i: Id, work: Workspace) -> list[Builder]:
    """Write an operation; its entries are in memory then.

    Args:
        b: the function under construction.
        i: the operation: a `matmul`, or a `map`.
        work: the places of its operands and of its result.

    Returns:
        the functions that it calls.
    """
    if b.program.ops[i] == "map":
        _write_map(b, i, work)
        return []
    given = [
        _placed(b, values, shape, planned, work)
        for (values, shape), planned in zip(operands(b.program, i), work.given[i], strict=True)
    ]
    if b.width > 1:
        return [write_matmul(b, i, (given[0], given[1], work.made[i]))]
    m, n, k = b.program.attributes[i]
    rows, columns, result = *given, work.made[i]
    each = result.column
    if n == 1 and m >= 4 and rows.row == each:
        (m, n), rows, columns = (n, m), columns, rows
        result = Matrix(result.pointer, result.begin, m * each, each)
    if n >= 4 and columns.row != each and m >= 4:
        columns = _transposed(b, columns, (n, k), work, b.program.dtypes[i + 1])
    if n >= 4 and columns.row == each:
        return write_matmul_of_one(b, i, (rows, columns, result), (m, n, k))
    return [write_matmul(b, i, (rows, columns, result))]


def _placed(
    b: Builder, values: Sequence[Id], shape: Shape, planned: Matrix | None, work: Workspace
) -> Matrix:
    """Where a matrix is, put there if its numbers are not in order anywhere."""
    places = [b.slots.get(x) for x in values]
    there = in_order(places, shape)
    if there is not None:
        return there
    if all(b.program.ops[x] == "constant" for x in values) and b.width == 1:
        each = b.program.dtypes[values[0]].itemsize
        numbers = [b.program.attributes[x] for x in values]
        return Matrix(b.table(numbers), 0, shape[1] * each, each)
    size = b.width * b.program.dtypes[values[0]].itemsize
    matrix = planned or work.matrix(shape, size)
    for rectangle in _rectangles(b, values, shape):
        _move(b, rectangle, values, shape, matrix)
    return matrix


class _Rectangle(NamedTuple):
    """Rows and columns from some on, to others."""

    top: int
    left: int
    bottom: int
    right: int


def _rectangles(b: Builder, values: Sequence[Id], shape: Shape) -> list[_Rectangle]:
    """Parts of a matrix each of which is in order somewhere, or one value, or a value by itself."""
    pointers: dict[Any, int] = {}
    where, at = np.empty(len(values), int), np.zeros(len(values), int)
    for n, x in enumerate(values):
        place = b.slots.get(x)
        where[n] = pointers.setdefault(x if place is None else place[0], len(pointers))
        at[n] = 0 if place is None else place[1]
    where, at = where.reshape(shape), at.reshape(shape)
    done = np.zeros(shape, bool)
    found = []
    for top in range(shape[0]):
        left = 0
        while left < shape[1]:
            if done[top, left]:
                left += 1
                continue
            right = _end(where[top, left:], at[top, left:], done[top, left:]) + left
            bottom = top + 1
            part = where[:, left:right], at[:, left:right]
            while bottom < shape[0] and _goes_on(*part, top, bottom):
                bottom += 1
            done[top:bottom, left:right] = True
            found.append(_Rectangle(top, left, bottom, right))
            left = right
    return found


def _end(where: np.ndarray, at: np.ndarray, done: np.ndarray) -> int:
    """The end of what is in order from the beginning of a row on."""
    end = 1
    while end < len(where) and where[end] == where[0] and not done[end]:
        if at[end] - at[end - 1] != at[1] - at[0]:
            break
        end += 1
    return end


def _goes_on(where: np.ndarray, at: np.ndarray, top: int, row: int) -> bool:
    """Whether a row is in order with those from `top` on, which are so with each other."""
    step = at[top + 1, 0] - at[top, 0]
    alike = np.array_equal(where[row], where[top])
    return alike and bool(np.all(at[row] - at[row - 1] == step))


def _move(b: Builder, part: _Rectangle, values: Sequence[Id], shape: Shape, to: Matrix) -> None:
    """Write a part of a matrix to its place."""
    top, left, bottom, right = part
    rows, columns = bottom - top, right - left
    first = values[top * shape[1] + left]
    begin = to.pointer, to.begin + top * to.row + left * to.column
    dtype = b.program.dtypes[first]
    if rows * columns == 1:
        if b.slots.get(first) != begin:
            b.store(first, b.address(*begin))
        return
    place = b.slots.get(first)
    step: list[int] = [0, 0]
    if place is not None:
        for axis, (count, next_) in enumerate(((rows, shape[1]), (columns, 1))):
            beyond: Slot = b.slots[values[top * shape[1] + left + next_]] if count > 1 else place
            step[axis] = beyond[1] - place[1]
        if (
            place == begin
            and (rows == 1 or step[0] == to.row)
            and (columns == 1 or step[1] == to.column)
        ):
            return  # it is there already
    name = "" if place is not None else b.name(first)
    with b.repeat(rows) as i:
        row = b.step(begin[0], i, to.row, begin[1])
        line = "" if place is None else b.step(place[0], i, step[0], place[1])
        with b.repeat(columns) as j:
            if place is not None:
                name = b.load(dtype, b.step(line, j, step[1]))
            b.write(dtype, name, b.step(row, j, to.column))


def _transposed(
    b: Builder, matrix: Matrix, shape: Shape, work: Workspace, dtype: np.dtype[Any]
) -> Matrix:
    """A matrix (n, k) with its columns side by side in memory."""
    (n, k), each = shape, dtype.itemsize
    made = Matrix(work.pointer, work.room(n * k * each), each, n * each)
    with b.repeat(k) as i:
        to = b.step(made.pointer, i, made.column, made.begin)
        line = b.step(matrix.pointer, i, matrix.column, matrix.begin)
        with b.repeat(n) as j:
            b.write(dtype, b.load(dtype, b.step(line, j, matrix.row)), b.step(to, j, each))
    return made


# --- element by element ---


def _write_map(b: Builder, i: Id, work: Workspace) -> None:
    op, (rows, columns), _ = b.program.attributes[i]
    dtype, result = b.program.dtypes[i + 1], work.made[i]
    each = dtype.itemsize
    given: list[Matrix | str] = []
    for (values, shape), planned in zip(operands(b.program, i), work.given[i], strict=True):
        if shape == (1, 1):
            given.append(_number(b, values[0]))
            continue
        matrix = _placed(b, values, shape, planned, work)
        if columns > 1 and matrix.column not in (0, each):
            there = _transposed(b, _turned(matrix), (columns, rows), work, dtype)
            matrix = _turned(there)
        given.append(matrix)
    matrices = [x for x in given if isinstance(x, Matrix)]
    if all((x.row, x.column) == (columns * each, each) for x in (*matrices, result)):
        rows, columns = 1, rows * columns
    lanes = min(VECTOR_BYTES // each, 1 << (columns.bit_length() - 1))
    with b.repeat(rows) as r:
        lines = [
            b.step(x.pointer, r, x.row, x.begin) if isinstance(x, Matrix) else x for x in given
        ]
        to = b.step(result.pointer, r, result.row, result.begin)
        spread = [isinstance(x, str) or x.column == 0 for x in given]
        scalars = [
            (line if isinstance(x, str) else b.value(f"load {llvm_type(dtype)}, ptr {line}"))
            if alone
            else line
            for x, line, alone in zip(given, lines, spread, strict=True)
        ]
        with b.across(lanes):
            t = b.type(dtype)
            vectors = [
                b.value(b.broadcast(x, dtype)) if alone else x
                for x, alone in zip(scalars, spread, strict=True)
            ]
            with each_part(b, columns, lanes) as begin:
                names = [
                    x if alone else b.value(f"load {t}, ptr {b.step(x, begin, each)}, align {each}")
                    for x, alone in zip(vectors, spread, strict=True)
                ]
                x = b.value(f"{_INSTRUCTIONS[op]} {t} {', '.join(names)}")
                b.emit(f"store {t} {x}, ptr {b.step(to, begin, each)}, align {each}")


def _turned(matrix: Matrix) -> Matrix:
    """The transpose."""
    return Matrix(matrix.pointer, matrix.begin, matrix.column, matrix.row)


def _number(b: Builder, x: Id) -> str:
    """A value by itself as an operand of LLVM's."""
    if b.program.ops[x] == "constant":
        return literal(b.program.attributes[x])
    return b.value(f"extractelement {b.type(b.program.dtypes[x])} {b.name(x)}, i32 0")
