"""Indexing by values: windows, gather and scatter."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..errors import UnsupportedError
from ..evaluator import Evaluator
from ..program import Id, IdArray
from .products import highest, lowest
from .registry import RULES, Rule, result_dtype, rule


def _wide(ev: Evaluator, indices: IdArray) -> IdArray:
    """Indices in a dtype that holds any place of an array."""
    if indices.size and ev.dtype(int(indices.flat[0])).itemsize < 4:
        return ev.map("convert", indices, dtype=np.dtype(np.int32))
    return indices


def _dynamic_window(
    ev: Evaluator, x: IdArray, starts: Sequence[Id], sizes: Sequence[int]
) -> IdArray:
    """`x[start : start + size]` along each axis, starts clamped; unknown ones choose."""
    known, unknown = [], []
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        number, last = ev.program.number(start), x.shape[axis] - size
        if number is None and last > 0:
            unknown.append((axis, start, size))
            known.append(slice(None))
            continue
        begin = 0 if number is None else min(max(int(number), 0), last)
        known.append(slice(begin, begin + size))
    x = x[tuple(known)]
    for axis, start, size in unknown:
        x = np.moveaxis(x, axis, 0)
        last = len(x) - size
        if ev.program.alone and size == 1 and len(x) >= LONG:
            window = _looked_up(ev, start, x)
        else:
            window = x[0:size]
            for k in range(1, last + 1):
                at = ev.program.constant(k, ev.dtype(start))
                op = "ge" if k == last else "eq"
                chosen = ev.program.apply(op, start, at)
                window = ev.map("select", np.array(chosen), x[k : k + size], window)
        x = np.moveaxis(window, 0, axis)
    return x


LONG = 6
"""Numbers from which on one of them is found in memory, where a lane is alone, and not chosen."""


def _unpinned(ev: Evaluator, x: Id) -> Id:
    while ev.program.ops[x] == "pin":
        (x,) = ev.program.args[x]
    return x


def _looked_up(ev: Evaluator, index: Id, x: IdArray) -> IdArray:
    """`x[index : index + 1]`, from a table in memory."""
    p, dtype = ev.program, ev.dtype(index)
    low, high = p.constant(0, dtype), p.constant(len(x) - 1, dtype)
    within = p.apply("min", p.apply("max", index, low), high)
    columns = x.reshape(len(x), -1).T.tolist()
    found = [p.lookup(within, [_unpinned(ev, v) for v in column]) for column in columns]
    return np.array(found, int).reshape(1, *x.shape[1:])


@rule("dynamic_slice")
def _dynamic_slice(ev: Evaluator, equation: Any, x: IdArray, *starts: IdArray) -> IdArray:
    places = [int(_wide(ev, s)) for s in starts]
    return _dynamic_window(ev, x, places, equation.params["slice_sizes"])


@rule("dynamic_update_slice")
def _dynamic_update_slice(
    ev: Evaluator, equation: Any, x: IdArray, update: IdArray, *starts: IdArray
) -> IdArray:
    result = np.array(x)
    starts = tuple(_wide(ev, s) for s in starts)
    options = []
    for start, size, extent in zip(starts, update.shape, x.shape, strict=True):
        number = ev.program.number(int(start))
        last = extent - size
        known = last == 0 or number is not None
        options.append(
            [int(np.clip(int(number or 0), 0, last))] if known else list(range(last + 1))
        )
    for place in itertools.product(*options):
        window = tuple(slice(b, b + s) for b, s in zip(place, update.shape, strict=True))
        here = np.array(ev.program.constant(True))
        for start, begin, choice, extent, size in zip(
            starts, place, options, x.shape, update.shape, strict=True
        ):
            if len(choice) > 1:
                at = ev.full((), begin, ev.dtype(int(start)))
                # Out of range means the nearest place within it.
                op = "le" if begin == 0 else "ge" if begin == extent - size else "eq"
                here = ev.map("and", here, ev.map(op, start, at))
        result[window] = ev.map("select", here, update, result[window])
    return result


@rule("gather")
def _gather(ev: Evaluator, equation: Any, x: IdArray, indices: IdArray) -> IdArray:
    p = equation.params
    d = p["dimension_numbers"]
    sizes = p["slice_sizes"]
    indices = _wide(ev, indices)
    shape = equation.outvars[0].aval.shape
    batch_axes = [k for k in range(len(shape)) if k not in d.offset_dims]
    window_axes = [
        k for k in range(x.ndim) if k not in (*d.collapsed_slice_dims, *d.operand_batching_dims)
    ]
    fill = p["mode"] == lax.GatherScatterMode.FILL_OR_DROP
    out = np.empty(shape, int)
    for place in np.ndindex(*indices.shape[:-1]):
        starts: list[Id] = [ev.program.constant(0, np.dtype(np.int32))] * x.ndim
        for k, axis in enumerate(d.start_index_map):
            starts[axis] = int(indices[(*place, k)])
        for axis, from_axis in zip(
            d.operand_batching_dims, d.start_indices_batching_dims, strict=True
        ):
            starts[axis] = ev.program.constant(place[from_axis], np.dtype(np.int32))
        window = _dynamic_window(ev, x, starts, sizes)
        last = [n - s for n, s in zip(x.shape, sizes, strict=True)]
        inside = _in_range(ev, starts, last) if fill else None
        if inside is not None:
            filling = ev.full((), _filling(p["fill_value"], equation), result_dtype(equation))
            window = ev.map("select", inside, window, filling)
        window = window.reshape([sizes[k] for k in window_axes])
        where: list[Any] = [slice(None)] * len(shape)
        for axis, index in zip(batch_axes, place, strict=True):
            where[axis] = index
        out[tuple(where)] = window
    return out


def _filling(value: Any, equation: Any) -> Any:
    if value is not None:
        return value
    dtype = result_dtype(equation)
    if jnp.issubdtype(dtype, jnp.inexact):
        return np.nan
    return lowest(dtype) if dtype.kind == "i" else highest(dtype)


def _in_range(ev: Evaluator, starts: Sequence[Id], last: Sequence[int]) -> IdArray | None:
    """Whether every start is in [0, last]; None where that is known of all."""
    inside = None
    for start, high in zip(starts, last, strict=True):
        number = ev.program.number(start)
        if number is not None and 0 <= int(number) <= high:
            continue
        if inside is None:
            inside = np.array(ev.program.constant(True))
        dtype = ev.dtype(start)
        low_ok = ev.map("ge", np.array(start), ev.full((), 0, dtype))
        high_ok = ev.map("le", np.array(start), ev.full((), high, dtype))
        inside = ev.map("and", inside, ev.map("and", low_ok, high_ok))
    return inside


def _scatter(combine: str | None) -> Rule:
    def scatter(
        ev: Evaluator, equation: Any, x: IdArray, indices: IdArray, updates: IdArray
    ) -> IdArray:
        p = equation.params
        if combine is None and p["update_jaxpr"] is not None:
            raise UnsupportedError("'scatter' of a function")
        d = p["dimension_numbers"]
        indices = _wide(ev, indices)
        batch_axes = [k for k in range(updates.ndim) if k not in d.update_window_dims]
        window_axes = [
            k for k in range(x.ndim)
            if k not in (*d.inserted_window_dims, *d.operand_batching_dims)
        ]  # fmt: skip
        sizes = [1] * x.ndim
        for axis, window_axis in zip(window_axes, d.update_window_dims, strict=True):
            sizes[axis] = updates.shape[window_axis]
        last = [n - s for n, s in zip(x.shape, sizes, strict=True)]
        result = np.array(x)
        for place in np.ndindex(*indices.shape[:-1]):
            starts: list[Id] = [ev.program.constant(0, np.dtype(np.int32))] * x.ndim
            for k, axis in enumerate(d.scatter_dims_to_operand_dims):
                starts[axis] = int(indices[(*place, k)])
            for axis, from_axis in zip(
                d.operand_batching_dims, d.scatter_indices_batching_dims, strict=True
            ):
                starts[axis] = ev.program.constant(place[from_axis], np.dtype(np.int32))
            which: list[Any] = [slice(None)] * updates.ndim
            for axis, index in zip(batch_axes, place, strict=True):
                which[axis] = index
            update = updates[tuple(which)].reshape(sizes)
            if p["mode"] == lax.GatherScatterMode.CLIP:
                starts = [
                    int(ev.map("min", ev.map("max", np.array(s), ev.full((), 0, ev.dtype(s))),
                               ev.full((), high, ev.dtype(s))))
                    for s, high in zip(starts, last, strict=True)
                ]  # fmt: skip
            _scatter_one(ev, result, starts, sizes, last, update, combine)
        return result

    return scatter


def _scatter_one(
    ev: Evaluator,
    result: IdArray,
    starts: Sequence[Id],
    sizes: Sequence[int],
    last: Sequence[int],
    update: IdArray,
    combine: str | None,
) -> None:
    options = []
    for start, high in zip(starts, last, strict=True):
        number = ev.program.number(start)
        places = range(high + 1) if number is None else [int(number)]
        options.append([k for k in places if 0 <= k <= high])  # beyond: dropped
    for place in itertools.product(*options):
        window = tuple(slice(b, b + s) for b, s in zip(place, sizes, strict=True))
        here = None
        for start, begin in zip(starts, place, strict=True):
            if ev.program.number(start) is None:
                at = ev.map("eq", np.array(start), ev.full((), begin, ev.dtype(start)))
                here = at if here is None else ev.map("and", here, at)
        new = update if combine is None else ev.map(combine, result[window], update)
        result[window] = new if here is None else ev.map("select", here, new, result[window])


RULES["scatter"] = _scatter(None)
RULES["scatter-add"] = _scatter("add")
RULES["scatter_add"] = _scatter("add")
RULES["scatter-sub"] = RULES["scatter_sub"] = _scatter("sub")
RULES["scatter_mul"] = RULES["scatter-mul"] = _scatter("mul")
RULES["scatter_min"] = RULES["scatter-min"] = _scatter("min")
RULES["scatter_max"] = RULES["scatter-max"] = _scatter("max")
