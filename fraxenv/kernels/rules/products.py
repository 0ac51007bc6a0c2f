"""Products, sums and other reductions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import BetterOutsideError
from ..evaluator import LARGE_ARRAY, Evaluator
from ..ops import OPERATIONS
from ..program import BOOKKEEPING, BOOL, ELEMENT, Id, IdArray, live_values
from .registry import RULES, Rule, rule

LARGE_MATRIX, LARGEST_MATRIX = 1024, 2048
"""Numbers of a known matrix from which on a product with it is a loop, and rows and columns up to
which there is room for it on the stack."""

DENSE = 1024
"""Products of the numbers of two matrices from which on all of them are a loop."""

FULL = 0.5
"""The share of these, of numbers that are not known, that there is at least: none is left out."""

FEWEST = 4
"""Rows, columns and products of an entry that such a loop has at least."""

IN_MEMORY = 512
"""Numbers of a matrix from which on its product with a vector is a loop over it, where it is: for
less it has to be moved."""

LARGE_PRODUCT = 2048
"""Products with one matrix from which on a library's product of matrices is much faster."""


@rule("dot_general")
def _dot_general(ev: Evaluator, equation: Any, a: IdArray, b: IdArray) -> IdArray:
    (contract_a, contract_b), (batch_a, batch_b) = equation.params["dimension_numbers"]
    out = np.dtype(equation.outvars[0].aval.dtype)
    a, b = (x if ev.dtype(int(x.flat[0])) == out else ev.map("convert", x, dtype=out)
            for x in (a, b)) if a.size and b.size else (a, b)  # fmt: skip
    free_a = [k for k in range(a.ndim) if k not in (*contract_a, *batch_a)]
    free_b = [k for k in range(b.ndim) if k not in (*contract_b, *batch_b)]
    shape = equation.outvars[0].aval.shape

    def size(x: IdArray, axes: Sequence[int]) -> int:
        return int(np.prod([x.shape[k] for k in axes], dtype=int))

    depth, batch = size(a, contract_a), size(a, batch_a)
    rows = a.transpose(*batch_a, *free_a, *contract_a)
    rows = rows.reshape(batch, size(a, free_a), depth)
    columns = b.transpose(*batch_b, *free_b, *contract_b)
    columns = columns.reshape(batch, size(b, free_b), depth)
    if ev.scope == 0 and any(ev.shared(x) is not None for x in (a, b)):
        _check_worth(ev, a, b, batch * rows.shape[1] * columns.shape[1] * depth)
    if _known(ev, out, columns, rows):
        found = [[_product(ev, columns[n], row) for row in rows[n]] for n in range(batch)]
        return np.array(found, int).reshape(shape)
    if _known(ev, out, rows, columns):
        found = [[_product(ev, rows[n], column) for column in columns[n]] for n in range(batch)]
        return np.array(found, int).swapaxes(1, 2).reshape(shape)
    if _dense(ev, rows, columns):
        return np.array(list(map(ev.program.matmul, rows, columns)), int).reshape(shape)
    apply = ev.program.apply
    times, plus = ("and", "or") if out == BOOL else ("mul", "add")
    zero = ev.program.constant(0, out)
    minus_zero = ev.program.constant(-0.0, out)
    present = [(x != zero) & (x != minus_zero) for x in (rows, columns)]
    ev.program.applied += 2 * batch * rows.shape[1] * columns.shape[1] * depth
    began, result = len(ev.program.ops), []
    sums: list[list[Id]] = []
    for n in range(batch):
        for i, row in enumerate(rows[n].tolist()):
            both = present[0][n, i] & present[1][n]
            for j, column in enumerate(columns[n].tolist()):
                total = zero
                steps: list[Id] = []
                for k in np.flatnonzero(both[j]).tolist():
                    product = apply(times, row[k], column[k])
                    total = product if total == zero else apply(plus, total, product)
                    steps += product, total
                result.append(total)
                sums.append(steps)
    if ev.program.alone:
        for alike in itertools.zip_longest(*sums, fillvalue=-1):
            made = np.array(alike, int)
            ev.program.alike.append(np.where(made >= began, made, -1).reshape(shape))
    return np.array(result, int).reshape(shape)


def _known(ev: Evaluator, dtype: np.dtype[Any], matrices: IdArray, vectors: IdArray) -> bool:
    """Whether products with these matrices, (batch, rows, columns), are loops."""
    _, rows, columns = matrices.shape
    if "product" not in ev.program.whole or dtype.kind != "f" or rows * columns < LARGE_MATRIX:
        return False
    if columns < 3 or rows + columns > LARGEST_MATRIX or vectors.size == 0:
        return False
    # What is known of either, or is zero, makes less work where every number is by itself.
    number = ev.program.number
    return all(number(x) for x in matrices.ravel().tolist()) and all(
        number(x) is None for x in vectors.ravel().tolist()
    )


def _dense(ev: Evaluator, rows: IdArray, columns: IdArray) -> bool:
    """Whether products of (batch, m, k) and (batch, n, k) are loops."""
    (batch, m, k), n, ops = rows.shape, columns.shape[1], ev.program.ops
    arrays = "map" in ev.program.whole
    if "matmul" not in ev.program.whole or batch * m * n * k == 0 or k < FEWEST:
        return False
    if ev.dtype(int(rows.flat[0])).kind != "f":
        return False
    if min(m, n) == 1:
        matrix = (rows if n == 1 else columns).ravel().tolist()
        there = {"input", "lookup", ELEMENT, *(("carry", "final", "entry") if arrays else ())}
        return m * n * k >= IN_MEMORY and all(ops[i] in there for i in matrix)
    if min(m, n) < FEWEST or m * n * k < (LARGE_ARRAY if arrays else DENSE):
        return False
    first, second = (
        np.array([ops[i] != "constant" for i in x.ravel().tolist()]).reshape(x.shape).sum(1)
        for x in (rows, columns)
    )
    return bool((first * second).sum() >= FULL * batch * m * n * k)


def _product(ev: Evaluator, matrix: IdArray, vector: IdArray) -> list[int]:
    numbers = [ev.program.number(x) for x in matrix.ravel().tolist()]
    return ev.program.product(np.array(numbers).reshape(matrix.shape), vector.tolist())


def _check_worth(ev: Evaluator, a: IdArray, b: IdArray, products: int) -> None:
    """Raise BetterOutsideError where a library multiplies a batch by one matrix faster.

    What leads to the product is then computed for it, and again for what comes later: little.
    """
    if products >= LARGE_PRODUCT:
        needed = live_values(ev.program, [*a.ravel().tolist(), *b.ravel().tolist()])
        before = sum(ev.program.ops[i] not in BOOKKEEPING for i in np.flatnonzero(needed).tolist())
        if before <= 4 * products:
            raise BetterOutsideError(f"{products} products with what all environments share")


def _reduction(op: str, start: Callable[[np.dtype[Any]], Any]) -> Rule:
    def reduce(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
        axes = tuple(equation.params["axes"])
        dtype = np.dtype(equation.invars[0].aval.dtype)
        which = OPERATIONS[op].logical or op if dtype == BOOL else op
        kept = [k for k in range(x.ndim) if k not in axes]
        shape = tuple(x.shape[k] for k in kept)
        x = x.transpose(*kept, *axes).reshape(*shape, -1)
        if x.shape[-1] == 0:
            return ev.full(shape, start(dtype), dtype)
        total = x[..., 0]
        for k in range(1, x.shape[-1]):
            total = ev.map(which, total, x[..., k])
        return total

    return reduce


@rule("reduce")
def _reduce(ev: Evaluator, equation: Any, *operands: IdArray) -> list[IdArray]:
    """Fold several arrays at once by a function of the user's."""
    axes = tuple(equation.params["dimensions"])
    xs, totals = operands[: len(operands) // 2], list(operands[len(operands) // 2 :])
    kept = [k for k in range(xs[0].ndim) if k not in axes]
    shape = tuple(xs[0].shape[k] for k in kept)
    rows = [x.transpose(*kept, *axes).reshape(*shape, -1) for x in xs]
    results = [np.empty(shape, int) for _ in xs]
    for place in np.ndindex(*shape):
        folded = totals
        for elements in zip(*(r[place] for r in rows), strict=True):
            arguments = [*folded, *(np.array(e) for e in elements)]
            folded = ev.closed(equation.params["jaxpr"], arguments)
        for result, total in zip(results, folded, strict=True):
            result[place] = total
    return results


def lowest(dtype: np.dtype[Any]) -> Any:
    """The least number of a dtype."""
    if dtype == BOOL:
        return False
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def highest(dtype: np.dtype[Any]) -> Any:
    """The greatest number of a dtype."""
    if dtype == BOOL:
        return True
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max


RULES["reduce_sum"] = _reduction("add", lambda d: 0)
RULES["reduce_prod"] = _reduction("mul", lambda d: 1)
RULES["reduce_max"] = _reduction("max", lowest)
RULES["reduce_min"] = _reduction("min", highest)
RULES["reduce_and"] = _reduction("and", lambda d: ~d.type(0))
RULES["reduce_or"] = _reduction("or", lambda d: 0)
RULES["reduce_xor"] = _reduction("xor", lambda d: 0)


def _cumulative(op: str) -> Rule:
    def accumulate(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
        axis, reverse = equation.params["axis"], equation.params["reverse"]
        rows = np.moveaxis(x, axis, 0)
        rows = rows[::-1] if reverse else rows
        sums = list(rows[:1])
        for row in rows[1:]:
            sums.append(ev.map(op, sums[-1], row))
        if not sums:
            return x
        total = np.stack(sums)
        return np.moveaxis(total[::-1] if reverse else total, 0, axis)

    return accumulate


RULES["cumsum"] = _cumulative("add")
RULES["cumprod"] = _cumulative("mul")
RULES["cummax"] = _cumulative("max")
RULES["cummin"] = _cumulative("min")
