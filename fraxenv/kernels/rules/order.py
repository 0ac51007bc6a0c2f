"""Order: greatest and least elements, sorting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..evaluator import Evaluator
from ..program import IdArray
from .elementwise import is_nan, ordered_bits
from .registry import RULES, Rule, rule


def _extreme(comparison: str) -> Rule:
    def find(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
        (axis,) = equation.params["axes"]
        index_dtype = equation.params["index_dtype"]
        rows = np.moveaxis(x, axis, 0)
        best, index = rows[0], ev.full(rows.shape[1:], 0, index_dtype)
        floating = x.size and ev.dtype(int(x.flat[0])).kind == "f"
        for k, row in enumerate(rows[1:], start=1):
            better = ev.map(comparison, row, best)
            if floating:
                # A NaN is found before any number, as in NumPy: it is not on the other side.
                opposite = {"gt": "le", "lt": "ge"}[comparison]
                better = ev.map("not", ev.map(opposite, row, best))
                better = ev.map("and", better, ev.map("eq", best, best))
            best = ev.map("select", better, row, best)
            index = ev.map("select", better, ev.full((), k, index_dtype), index)
        return index

    return find


RULES["argmax"] = _extreme("gt")
RULES["argmin"] = _extreme("lt")

_LONGEST_SORT = 32


def _sorted_rows(
    ev: Evaluator, columns: list[IdArray], keys: int, before: Callable[..., IdArray]
) -> list[IdArray]:
    """Stable odd-even transposition sort of rows by their first `keys` columns."""
    n = len(columns[0])
    if n > _LONGEST_SORT:
        raise UnsupportedError(f"sorting {n} elements, more than {_LONGEST_SORT}")
    rows = [list(c) for c in columns]
    for sweep in range(n):
        for i in range(sweep % 2, n - 1, 2):
            *first, last = rows[:keys]
            swap = before(last[i + 1], last[i])
            for column in reversed(first):
                less = before(column[i + 1], column[i])
                greater = before(column[i], column[i + 1])
                tie = ev.map("and", ev.map("not", greater), swap)
                swap = ev.map("or", less, tie)
            for column in rows:
                a, b = column[i], column[i + 1]
                column[i] = ev.map("select", swap, b, a)
                column[i + 1] = ev.map("select", swap, a, b)
    return [np.stack(c) if c else x for c, x in zip(rows, columns, strict=True)]


@rule("sort")
def _sort(ev: Evaluator, equation: Any, *xs: IdArray) -> list[IdArray]:
    axis, keys = equation.params["dimension"], equation.params["num_keys"]

    def before(a: IdArray, b: IdArray) -> IdArray:  # NaNs come last
        last = ev.map("and", is_nan(ev, b), ev.map("not", is_nan(ev, a)))
        return ev.map("or", ev.map("lt", a, b), last)

    columns = _sorted_rows(ev, [np.moveaxis(x, axis, 0) for x in xs], keys, before)
    return [np.moveaxis(c, 0, axis) for c in columns]


@rule("top_k")
def _top_k(ev: Evaluator, equation: Any, x: IdArray) -> list[IdArray]:
    axis, k = equation.params["axis"], equation.params["k"]
    values = np.moveaxis(x, axis, 0)
    numbers = ev.array(np.arange(len(values), dtype=np.int32))
    shape = (-1, *(1,) * (values.ndim - 1))
    numbers = np.broadcast_to(numbers.reshape(shape), values.shape)

    order = ordered_bits(ev, values)
    columns = _sorted_rows(ev, [order, values, numbers], 1, partial(ev.map, "gt"))
    return [np.moveaxis(c[:k], 0, axis) for c in columns[1:]]
