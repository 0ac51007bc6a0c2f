"""Moving elements about."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..evaluator import Evaluator
from ..program import IdArray
from .registry import rule


@rule("copy", "copy_p", "stop_gradient", "reshard", "sharding_constraint", "pvary", "pcast")
def _identity(ev: Evaluator, _: Any, x: IdArray) -> IdArray:
    return x


@rule("optimization_barrier")
def _barrier(ev: Evaluator, _: Any, *xs: IdArray) -> list[IdArray]:
    return list(xs)


@rule("reshape")
def _reshape(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
    if equation.params.get("dimensions") is not None:
        x = x.transpose(equation.params["dimensions"])
    return x.reshape(equation.params["new_sizes"])


@rule("transpose")
def _transpose(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
    return x.transpose(equation.params["permutation"])


@rule("squeeze")
def _squeeze(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
    return x.squeeze(tuple(equation.params["dimensions"]))


@rule("expand_dims")
def _expand_dims(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
    return np.expand_dims(x, tuple(equation.params["dimensions"]))


@rule("broadcast_in_dim")
def _broadcast_in_dim(ev: Evaluator, equation: Any, x: IdArray, *_: IdArray) -> IdArray:
    shape = equation.params["shape"]
    placed = [1] * len(shape)
    for size, axis in zip(x.shape, equation.params["broadcast_dimensions"], strict=True):
        placed[axis] = size
    return np.broadcast_to(x.reshape(placed), shape)


@rule("slice")
def _slice(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
    p = equation.params
    strides = p["strides"] or (1,) * x.ndim
    return x[tuple(map(slice, p["start_indices"], p["limit_indices"], strides))]


@rule("split")
def _split(ev: Evaluator, equation: Any, x: IdArray) -> list[IdArray]:
    ends = np.cumsum(equation.params["sizes"])[:-1]
    return np.split(x, ends, axis=equation.params["axis"])


@rule("concatenate")
def _concatenate(ev: Evaluator, equation: Any, *xs: IdArray) -> IdArray:
    return np.concatenate(xs, axis=equation.params["dimension"])


@rule("stack")
def _stack(ev: Evaluator, equation: Any, *xs: IdArray) -> IdArray:
    return np.stack(xs, axis=equation.params["axis"])


@rule("unstack")
def _unstack(ev: Evaluator, equation: Any, x: IdArray) -> list[IdArray]:
    return list(np.moveaxis(x, equation.params["axis"], 0))


@rule("tile")
def _tile(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
    return np.tile(x, equation.params["reps"])


@rule("rev")
def _rev(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
    return np.flip(x, equation.params["dimensions"])


@rule("pad")
def _pad(ev: Evaluator, equation: Any, x: IdArray, filling: IdArray) -> IdArray:
    for axis, (low, high, interior) in enumerate(equation.params["padding_config"]):
        x = np.moveaxis(x, axis, 0)
        size = len(x) + max(len(x) - 1, 0) * interior
        dilated = np.full((size, *x.shape[1:]), int(filling))
        dilated[:: interior + 1] = x
        dilated = dilated[max(-low, 0) : size - max(-high, 0)]
        ends = [np.full((max(n, 0), *x.shape[1:]), int(filling)) for n in (low, high)]
        x = np.moveaxis(np.concatenate([ends[0], dilated, ends[1]]), 0, axis)
    return x


@rule("iota")
def _iota(ev: Evaluator, equation: Any) -> IdArray:
    shape, axis = equation.params["shape"], equation.params["dimension"]
    row = ev.array(np.arange(shape[axis]).astype(equation.params["dtype"]))
    placed = row.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return np.broadcast_to(placed, shape)


@rule("empty", "empty2")
def _empty(ev: Evaluator, equation: Any) -> IdArray:
    # What a transposed scan adds to: memory that has not been written. Zeros serve, as in XLA.
    aval = equation.outvars[0].aval
    return ev.full(aval.shape, 0, aval.dtype)
