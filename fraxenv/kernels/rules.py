"""A rule for each primitive: how it works on arrays of values.

Rules take the evaluator, the equation and the operands' values, and return the values of the
result (or a list of them). A rule that cannot serve an equation raises `UnsupportedError`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .errors import TooLongError, UnsupportedError
from .evaluator import Evaluator, is_key, key_shape
from .program import BOOL, Id, IdArray

Rule = Callable[..., Any]

RULES: dict[str, Rule] = {}
"""The rule of each primitive, by its name."""

STRUCTURAL = frozenset({
    "broadcast_in_dim", "concatenate", "copy", "copy_p", "dynamic_slice", "dynamic_update_slice",
    "expand_dims", "gather", "optimization_barrier", "reshape", "rev", "select_n", "slice",
    "split", "squeeze", "stack", "stop_gradient", "tile", "transpose", "unstack",
})  # fmt: skip
"""Primitives that only move elements about, and so move typed keys as well."""

UNROLL_ROUNDS = 64
UNROLL_OPERATIONS = 16_000

LONG_BRANCH = 64
"""Operations from which on a branch is passed over where no lane takes it."""
"""A loop of at most so many rounds, and so many operations in all, is unrolled."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of some primitives."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


# --- elementwise ---

_ELEMENTWISE = {
    "add": "add", "add_any": "add", "sub": "sub", "mul": "mul", "div": "div", "rem": "rem",
    "neg": "neg", "abs": "abs", "max": "max", "min": "min", "sqrt": "sqrt", "floor": "floor",
    "ceil": "ceil", "and": "and", "or": "or", "xor": "xor", "not": "not", "eq": "eq", "ne": "ne",
    "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "is_finite": "is_finite", "sin": "sin",
    "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan", "atan2": "atan2",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh",
    "atanh": "atanh", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log",
    "log1p": "log1p", "cbrt": "cbrt", "pow": "pow", "erf": "erf", "erf_inv": "erf_inv",
    "shift_left": "shift_left", "shift_right_logical": "shift_right_logical",
    "shift_right_arithmetic": "shift_right_arithmetic",
}  # fmt: skip

_KINDS = "biuf"


def _elementwise(op: str) -> Rule:
    def apply(ev: Evaluator, equation: Any, *xs: IdArray) -> IdArray:
        dtypes = [np.dtype(v.aval.dtype) for v in equation.invars]
        if any(d.kind not in _KINDS or d == np.float16 for d in dtypes):
            raise UnsupportedError(f"{equation.primitive.name!r} of {dtypes[0]}")
        if op == "pow" and dtypes[0] != dtypes[1]:
            xs = (xs[0], ev.map("convert", xs[1], dtype=dtypes[0]))
        if dtypes[0] == BOOL and op in ("add", "mul", "max", "min"):
            return ev.map({"add": "or", "max": "or", "mul": "and", "min": "and"}[op], *xs)
        return ev.map(op, *xs)

    return apply


for _name, _op in _ELEMENTWISE.items():
    RULES[_name] = _elementwise(_op)


def _number(ev: Evaluator, like: IdArray, number: float) -> IdArray:
    return ev.full((), number, ev.dtype(int(like.flat[0])) if like.size else np.float32)


@rule("integer_pow")
def _integer_pow(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
    exponent = equation.params["y"]
    if exponent == 0:
        return ev.full(x.shape, 1, equation.invars[0].aval.dtype)
    result = x
    for bit in bin(abs(exponent))[3:]:  # from the left, after the leading one
        result = ev.map("mul", result, result)
        if bit == "1":
            result = ev.map("mul", result, x)
    return result if exponent > 0 else ev.map("div", _number(ev, x, 1), result)


@rule("square")
def _square(ev: Evaluator, _: Any, x: IdArray) -> IdArray:
    return ev.map("mul", x, x)


@rule("rsqrt")
def _rsqrt(ev: Evaluator, _: Any, x: IdArray) -> IdArray:
    if x.size and ev.dtype(int(x.flat[0])) == np.float32:
        return ev.map("rsqrt", x)
    return ev.map("div", _number(ev, x, 1), ev.map("sqrt", x))


@rule("logistic")
def _logistic(ev: Evaluator, _: Any, x: IdArray) -> IdArray:
    # Of e = exp(-|x|) <= 1, which cannot overflow: 1 - e / (1 + e) on the right, and that times e
    # on the left, where the rounding of 1 + e hardly counts.
    one = _number(ev, x, 1)
    e = ev.map("exp", ev.map("neg", ev.map("abs", x)))
    rest = ev.map("div", e, ev.map("add", one, e))
    left = ev.map("sub", e, ev.map("mul", e, rest))
    right = ev.map("sub", one, rest)
    return ev.map("select", ev.map("lt", x, _number(ev, x, 0)), left, right)


@rule("sign")
def _sign(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
    zero, one = _number(ev, x, 0), _number(ev, x, 1)
    if equation.invars[0].aval.dtype.kind == "u":
        return ev.map("select", ev.map("eq", x, zero), zero, one)
    minus = _number(ev, x, -1)
    signs = ev.map("select", ev.map("lt", x, zero), minus, x)  # zero and NaN keep themselves
    return ev.map("select", ev.map("gt", x, zero), one, signs)


@rule("round")
def _round(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
    if equation.params["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN:
        return ev.map("round_even", x)
    # Away from zero: where the even neighbour is half a step towards zero, take the other.
    even = ev.map("round_even", x)
    half = _number(ev, x, 0.5)
    short = ev.map("eq", ev.map("abs", ev.map("sub", x, even)), half)
    away = ev.map("add", ev.map("floor", ev.map("abs", x)), _number(ev, x, 1))
    negative = ev.map("lt", x, _number(ev, x, 0))
    away = ev.map("select", negative, ev.map("neg", away), away)
    return ev.map("select", short, away, even)


@rule("clamp")
def _clamp(ev: Evaluator, _: Any, low: IdArray, x: IdArray, high: IdArray) -> IdArray:
    return ev.map("min", ev.map("max", x, low), high)


@rule("select_n")
def _select_n(ev: Evaluator, equation: Any, which: IdArray, *cases: IdArray) -> IdArray:
    if np.dtype(equation.invars[0].aval.dtype) == BOOL:
        return cases[0] if len(cases) == 1 else ev.map("select", which, cases[1], cases[0])
    result = cases[0]
    for k, case in enumerate(cases[1:], start=1):
        chosen = ev.map("eq", which, ev.full((), k, equation.invars[0].aval.dtype))
        result = ev.map("select", chosen, case, result)
    return result


@rule("convert_element_type")
def _convert(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
    source, target = np.dtype(equation.invars[0].aval.dtype), equation.params["new_dtype"]
    if jnp.issubdtype(target, jax.dtypes.extended):
        raise UnsupportedError(f"conversion to {target}")
    target = np.dtype(target)
    for d in (source, target):
        if d.kind not in _KINDS or d == np.float16:
            raise UnsupportedError(f"conversion from {source} to {target}")
    if source == target:
        return x
    if target == BOOL:
        return ev.map("ne", x, ev.full((), 0, source))
    return ev.map("convert", x, dtype=target)


@rule("bitcast_convert_type")
def _bitcast(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
    source = np.dtype(equation.invars[0].aval.dtype)
    target = np.dtype(equation.params["new_dtype"])
    if source.itemsize != target.itemsize:
        raise UnsupportedError(f"bitcast from {source} to {target}")
    return x if source == target else ev.map("bitcast", x, dtype=target)


def _total_order(comparison: str) -> Rule:
    """Comparison in which -NaN < -inf < -0 < 0 < inf < NaN."""

    def compare(ev: Evaluator, _: Any, *xs: IdArray) -> IdArray:
        return ev.map(comparison, *(_ordered_bits(ev, x) for x in xs))

    return compare


def _ordered_bits(ev: Evaluator, x: IdArray) -> IdArray:
    dtype = ev.dtype(int(x.flat[0])) if x.size else BOOL
    if dtype.kind != "f":
        return x
    whole = np.dtype(f"i{dtype.itemsize}")
    b = ev.map("bitcast", x, dtype=whole)
    flipped = ev.map("xor", b, ev.full((), np.iinfo(whole).max, whole))
    return ev.map("select", ev.map("lt", b, ev.full((), 0, whole)), flipped, b)


RULES["eq_to"], RULES["lt_to"], RULES["le_to"] = map(_total_order, ("eq", "lt", "le"))


@rule("nextafter")
def _nextafter(ev: Evaluator, equation: Any, x: IdArray, y: IdArray) -> IdArray:
    dtype = np.dtype(equation.outvars[0].aval.dtype)
    whole = np.dtype(f"i{dtype.itemsize}")
    zero = ev.full((), 0, dtype)
    up = ev.map("eq", ev.map("gt", y, x), ev.map("gt", x, zero))  # in magnitude
    step = ev.map("select", up, ev.full((), 1, whole), ev.full((), -1, whole))
    bits = ev.map("add", ev.map("bitcast", x, dtype=whole), step)
    sign = ev.map("and", ev.map("bitcast", y, dtype=whole), ev.full((), np.iinfo(whole).min, whole))
    least = ev.map("or", sign, ev.full((), 1, whole))
    bits = ev.map("select", ev.map("eq", x, zero), least, bits)
    moved = ev.map("select", ev.map("eq", x, y), y, ev.map("bitcast", bits, dtype=dtype))
    nan = ev.map("or", _is_nan(ev, x), _is_nan(ev, y))
    return ev.map("select", nan, ev.full((), np.nan, dtype), moved)


@rule("reduce_precision")
def _reduce_precision(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
    info = np.finfo(equation.invars[0].aval.dtype)
    if (equation.params["exponent_bits"], equation.params["mantissa_bits"]) != (
        info.nexp,
        info.nmant,
    ):
        raise UnsupportedError("'reduce_precision' to another precision")
    return x


# --- structure ---


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
        spread = np.full((size, *x.shape[1:]), int(filling))
        spread[:: interior + 1] = x
        spread = spread[max(-low, 0) : size - max(-high, 0)]
        ends = [np.full((max(n, 0), *x.shape[1:]), int(filling)) for n in (low, high)]
        x = np.moveaxis(np.concatenate([ends[0], spread, ends[1]]), 0, axis)
    return x


@rule("iota")
def _iota(ev: Evaluator, equation: Any) -> IdArray:
    shape, axis = equation.params["shape"], equation.params["dimension"]
    row = ev.array(np.arange(shape[axis]).astype(equation.params["dtype"]))
    placed = row.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return np.broadcast_to(placed, shape)


# --- products and sums ---


@rule("dot_general")
def _dot_general(ev: Evaluator, equation: Any, a: IdArray, b: IdArray) -> IdArray:
    (contract_a, contract_b), (batch_a, batch_b) = equation.params["dimension_numbers"]
    out = np.dtype(equation.outvars[0].aval.dtype)
    if out.kind not in "iuf":
        raise UnsupportedError(f"'dot_general' of {out}")
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
    apply = ev.program.apply
    zero = ev.program.constant(0, out)
    minus_zero = ev.program.constant(-0.0, out)
    present = [(x != zero) & (x != minus_zero) for x in (rows, columns)]
    ev.program.applied += 2 * batch * rows.shape[1] * columns.shape[1] * depth
    result = []
    for n in range(batch):
        for i, row in enumerate(rows[n].tolist()):
            both = present[0][n, i] & present[1][n]
            for j, column in enumerate(columns[n].tolist()):
                total = zero
                for k in np.flatnonzero(both[j]).tolist():
                    product = apply("mul", row[k], column[k])
                    total = product if total == zero else apply("add", total, product)
                result.append(total)
    return np.array(result, int).reshape(shape)


def _reduction(op: str, start: Callable[[np.dtype[Any]], Any]) -> Rule:
    def reduce(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
        axes = tuple(equation.params["axes"])
        dtype = np.dtype(equation.invars[0].aval.dtype)
        which = {"max": "or", "min": "and"}.get(op, op) if dtype == BOOL else op
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


def _lowest(dtype: np.dtype[Any]) -> Any:
    if dtype == BOOL:
        return False
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _highest(dtype: np.dtype[Any]) -> Any:
    if dtype == BOOL:
        return True
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max


RULES["reduce_sum"] = _reduction("add", lambda d: 0)
RULES["reduce_prod"] = _reduction("mul", lambda d: 1)
RULES["reduce_max"] = _reduction("max", _lowest)
RULES["reduce_min"] = _reduction("min", _highest)
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


# --- order ---


def _is_nan(ev: Evaluator, x: IdArray) -> IdArray:
    if x.size and ev.dtype(int(x.flat[0])).kind != "f":
        return ev.full(x.shape, False, bool)
    return ev.map("ne", x, x)


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
        last = ev.map("and", _is_nan(ev, b), ev.map("not", _is_nan(ev, a)))
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

    def before(a: IdArray, b: IdArray) -> IdArray:  # NaNs are the greatest
        first = ev.map("and", _is_nan(ev, a), ev.map("not", _is_nan(ev, b)))
        return ev.map("or", ev.map("gt", a, b), first)

    columns = _sorted_rows(ev, [values, numbers], 1, before)
    return [np.moveaxis(c[:k], 0, axis) for c in columns]


# --- indexing ---


def _wide(ev: Evaluator, indices: IdArray) -> IdArray:
    """Indices in a dtype that holds any place of an array."""
    if indices.size and ev.dtype(int(indices.flat[0])).itemsize < 4:
        return ev.map("convert", indices, dtype=np.dtype(np.int32))
    return indices


def _dynamic_window(
    ev: Evaluator, x: IdArray, starts: Sequence[Id], sizes: Sequence[int]
) -> IdArray:
    """`x[start : start + size]` along each axis, starts clamped; unknown ones choose."""
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        x = np.moveaxis(x, axis, 0)
        last = len(x) - size
        number = ev.program.number(start)
        if number is not None or last == 0:
            begin = int(np.clip(int(number), 0, last)) if number is not None else 0
            window = x[begin : begin + size]
        else:
            window = x[0:size]
            for k in range(1, last + 1):
                at = ev.program.constant(k, ev.dtype(start))
                op = "ge" if k == last else "eq"
                chosen = ev.program.apply(op, start, at)
                window = ev.map("select", np.array(chosen), x[k : k + size], window)
        x = np.moveaxis(window, 0, axis)
    return x


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
        if fill:
            inside = _within(ev, starts, [n - s for n, s in zip(x.shape, sizes, strict=True)])
            filling = ev.full((), _filling(p["fill_value"], equation), _dtype(equation))
            window = ev.map("select", inside, window, filling)
        window = window.reshape([sizes[k] for k in window_axes])
        where: list[Any] = [slice(None)] * len(shape)
        for axis, index in zip(batch_axes, place, strict=True):
            where[axis] = index
        out[tuple(where)] = window
    return out


def _dtype(equation: Any) -> np.dtype[Any]:
    dtype = equation.outvars[0].aval.dtype
    extended = jnp.issubdtype(dtype, jax.dtypes.extended)
    return np.dtype(np.uint32 if extended else dtype)


def _filling(value: Any, equation: Any) -> Any:
    if value is not None:
        return value
    dtype = _dtype(equation)
    return {"f": np.nan, "b": True, "u": _highest(dtype), "i": _lowest(dtype)}[dtype.kind]


def _within(ev: Evaluator, starts: Sequence[Id], last: Sequence[int]) -> IdArray:
    """Whether every start is in [0, last]."""
    inside = np.array(ev.program.constant(True))
    for start, high in zip(starts, last, strict=True):
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
        here = np.array(ev.program.constant(True))
        for start, begin in zip(starts, place, strict=True):
            at = ev.full((), begin, ev.dtype(start))
            here = ev.map("and", here, ev.map("eq", np.array(start), at))
        new = update if combine is None else ev.map(combine, result[window], update)
        result[window] = ev.map("select", here, new, result[window])


RULES["scatter"] = _scatter(None)
RULES["scatter-add"] = _scatter("add")
RULES["scatter_add"] = _scatter("add")
RULES["scatter-sub"] = RULES["scatter_sub"] = _scatter("sub")
RULES["scatter_mul"] = RULES["scatter-mul"] = _scatter("mul")
RULES["scatter_min"] = RULES["scatter-min"] = _scatter("min")
RULES["scatter_max"] = RULES["scatter-max"] = _scatter("max")


# --- linear algebra ---


@rule("cholesky")
def _cholesky(ev: Evaluator, equation: Any, matrix: IdArray) -> IdArray:
    """Lower factor of the matrices' lower triangles, row by row (Golub and Van Loan, 4.2)."""
    _needs_float(equation)
    n = matrix.shape[-1]
    one, zero = (ev.full((), k, _dtype(equation)) for k in (1, 0))
    factors = []
    for A in matrix.reshape(-1, n, n):
        L = np.full((n, n), int(zero))
        inverse = []
        for j in range(n):
            for i in range(j, n):
                total = np.array(A[i, j])
                for k in range(j):
                    total = ev.map("sub", total, ev.map("mul", L[i, k], L[j, k]))
                if i == j:
                    L[j, j] = ev.map("sqrt", total)
                    inverse.append(ev.map("div", one, L[j, j]))
                else:
                    L[i, j] = ev.map("mul", total, inverse[j])
        factors.append(L)
    return np.array(factors).reshape(matrix.shape)


@rule("triangular_solve")
def _triangular_solve(ev: Evaluator, equation: Any, a: IdArray, b: IdArray) -> IdArray:
    _needs_float(equation)
    p = equation.params
    n = a.shape[-1]
    one = ev.full((), 1, _dtype(equation))
    solutions = []
    for A, B in zip(a.reshape(-1, n, n), b.reshape(-1, *b.shape[-2:]), strict=True):
        lower = p["lower"]
        if p["transpose_a"]:
            A, lower = A.T, not lower
        if not p["left_side"]:  # X A = B is A^T X^T = B^T
            A, B, lower = A.T, B.T, not lower
        X = np.array(B)
        order = range(n) if lower else range(n - 1, -1, -1)
        for count, i in enumerate(order):
            for k in itertools.islice(order, count):
                X[i] = ev.map("sub", X[i], ev.map("mul", A[i, k], X[k]))
            if not p["unit_diagonal"]:
                X[i] = ev.map("mul", X[i], ev.map("div", one, A[i, i]))
        solutions.append(X if p["left_side"] else X.T)
    return np.array(solutions).reshape(b.shape)


def _needs_float(equation: Any) -> None:
    if _dtype(equation).kind != "f":
        raise UnsupportedError(f"{equation.primitive.name!r} of {_dtype(equation)}")


# --- calls ---


@rule("jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint")
def _call(ev: Evaluator, equation: Any, *xs: IdArray) -> list[IdArray]:
    p = equation.params
    inner = p.get("jaxpr") or p.get("call_jaxpr") or p.get("call")
    if hasattr(inner, "consts"):
        return ev.closed(inner, xs)
    return ev.run(inner, (), xs)


@rule("custom_vmap_call")
def _custom_vmap_call(ev: Evaluator, equation: Any, *xs: IdArray) -> list[IdArray]:
    plain = getattr(equation.params["rule"], "plain", None)
    if plain is None:
        results: list[IdArray] = _call(ev, equation, *xs)
        return results
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
    return ev.closed(jax.make_jaxpr(plain)(*shapes), xs)


@rule("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
def _custom_derivative(ev: Evaluator, equation: Any, *xs: IdArray) -> list[IdArray]:
    inner = equation.params.get("call_jaxpr") or equation.params["fun_jaxpr"]
    return ev.closed(inner, xs)


@rule("custom_linear_solve")
def _custom_linear_solve(ev: Evaluator, equation: Any, *xs: IdArray) -> list[IdArray]:
    lengths = equation.params["const_lengths"]
    skipped = lengths.matvec + lengths.vecmat
    constants = xs[skipped : skipped + lengths.solve]
    rhs = xs[sum(lengths) :]
    return ev.closed(equation.params["jaxprs"].solve, (*constants, *rhs))


@rule("platform_index")
def _platform_index(ev: Evaluator, equation: Any) -> IdArray:
    aliases = {"gpu": ("gpu", "cuda", "rocm")}.get(ev.platform, (ev.platform,))
    for k, names in enumerate(equation.params["platforms"]):
        if names is None or any(a in names for a in aliases):
            return ev.full((), k, np.int32)
    raise UnsupportedError(f"'platform_index' without an entry for {ev.platform!r}")


# --- control flow ---


@rule("cond")
def _cond(ev: Evaluator, equation: Any, index: IdArray, *xs: IdArray) -> list[IdArray]:
    branches = equation.params["branches"]
    number = ev.program.number(int(index))
    if number is not None:
        return ev.closed(branches[int(np.clip(int(number), 0, len(branches) - 1))], xs)
    if ev.dtype(int(index)) == BOOL:
        index = ev.map("convert", index, dtype=np.dtype(np.int32))
    chosen: list[IdArray] | None = None
    for k, branch in enumerate(branches):
        last = k == len(branches) - 1
        here = ev.map(
            "ge" if last and k else "le" if k == 0 else "eq",
            index,
            ev.full((), k, ev.dtype(int(index))),
        )
        chosen = _branch(ev, branch, xs, here, chosen)
    assert chosen is not None
    return chosen


def _branch(
    ev: Evaluator,
    branch: Any,
    xs: Sequence[IdArray],
    here: IdArray,
    otherwise: list[IdArray] | None,
) -> list[IdArray]:
    """A branch's results where it is taken, other ones elsewhere.

    A long branch is computed only if some lane takes it: it is a loop that ends after one round.
    """
    program, outer = ev.program, ev.scope
    if otherwise is None:
        avals = [v.aval for v in branch.jaxpr.outvars]
        if any(is_key(a.dtype) for a in avals):
            return ev.closed(branch, xs)
        initial = [ev.full(a.shape, 0, a.dtype) for a in avals]
    else:
        initial = otherwise
    index, carried, _ = program.open_loop(None, [int(here), *_pack(initial)], outer)
    ev.scope = program.loops[index].scope
    flag, now = np.array(carried[0]), _unpack(carried[1:], initial)
    following, ended = list(carried), program.constant(False, BOOL)
    inside = [
        np.array([program.within(ev.scope, i) for i in x.ravel().tolist()], int).reshape(x.shape)
        for x in xs
    ]
    began, long = len(program.ops), True
    try:
        results = ev.closed(branch, inside)
        long = len(program.ops) - began > LONG_BRANCH
        chosen = [ev.map("select", flag, a, b) for a, b in zip(results, now, strict=True)]
        following = [ended, *_pack(chosen)]
    except UnsupportedError:
        long = False
    finally:
        ev.scope = outer
    finals, _ = program.close_loop(index, following, condition=int(flag))
    if long:
        return _unpack(finals[1:], initial)
    results = ev.closed(branch, xs)
    if otherwise is None:
        return results
    return [ev.map("select", here, a, b) for a, b in zip(results, otherwise, strict=True)]


def _unpack(flat: Sequence[Id], like: Sequence[IdArray]) -> list[IdArray]:
    """Arrays of the shapes of `like` from all their values in a row."""
    ends = np.cumsum([x.size for x in like])
    parts = np.split(np.array(flat, int), ends)[:-1]
    return [part.reshape(x.shape) for part, x in zip(parts, like, strict=True)]


def _pack(arrays: Sequence[IdArray]) -> list[Id]:
    return [v for x in arrays for v in x.ravel().tolist()]


def _unrolled(
    ev: Evaluator,
    equation: Any,
    consts: Sequence[IdArray],
    carry: list[IdArray],
    scanned: Sequence[IdArray],
) -> list[IdArray]:
    """A scan's results, round by round."""
    p = equation.params
    n, reverse = p["num_carry"], p["reverse"]
    outputs = equation.outvars[n:]
    stacked: list[list[IdArray]] = [[] for _ in outputs]
    for k in range(p["length"] - 1, -1, -1) if reverse else range(p["length"]):
        results = ev.closed(p["jaxpr"], (*consts, *carry, *(x[k] for x in scanned)))
        carry = results[:n]
        for rows, row in zip(stacked, results[n:], strict=True):
            rows.append(row)
    ys = [
        np.stack(rows[::-1] if reverse else rows) if rows else np.zeros(v.aval.shape, int)
        for rows, v in zip(stacked, outputs, strict=True)
    ]
    return [*carry, *ys]


@rule("scan")
def _scan(ev: Evaluator, equation: Any, *xs: IdArray) -> list[IdArray]:
    p = equation.params
    body, length, reverse = p["jaxpr"], p["length"], p["reverse"]
    consts, rest = xs[: p["num_consts"]], xs[p["num_consts"] :]
    carry, scanned = list(rest[: p["num_carry"]]), rest[p["num_carry"] :]
    if length <= 1:
        return _unrolled(ev, equation, consts, carry, scanned)
    if length <= UNROLL_ROUNDS:
        # What many rounds leave is known only by trying: most of it may fold.
        try:
            with ev.attempt(UNROLL_OPERATIONS):
                return _unrolled(ev, equation, consts, carry, scanned)
        except TooLongError:
            pass

    program, outer = ev.program, ev.scope
    index, carried, counter = program.open_loop(length, _pack(carry), outer)
    ev.scope = program.loops[index].scope
    try:
        place = counter
        if reverse:
            place = program.apply("sub", program.constant(length - 1, np.dtype(np.int32)), counter)
        rows = []
        for x in scanned:
            columns = x.reshape(length, -1).T.tolist()
            rows.append(
                np.array([program.lookup(place, c) for c in columns], int).reshape(x.shape[1:])
            )
        results = ev.closed(body, (*consts, *_unpack(carried, carry), *rows))
    finally:
        ev.scope = outer
    new, ys = results[: p["num_carry"]], results[p["num_carry"] :]
    finals, rounds = program.close_loop(index, _pack(new), _pack(ys))
    ends = np.cumsum([y.size for y in ys])[:-1]
    stacked_ids = np.array(rounds, int).reshape(-1, length)
    if reverse:
        stacked_ids = stacked_ids[:, ::-1]
    parts = np.split(stacked_ids, ends) if ys else []
    return [
        *_unpack(finals, carry),
        *(part.T.reshape(length, *y.shape) for part, y in zip(parts, ys, strict=True)),
    ]


@rule("while")
def _while(ev: Evaluator, equation: Any, *xs: IdArray) -> list[IdArray]:
    p = equation.params
    nc, nb = p["cond_nconsts"], p["body_nconsts"]
    cond_consts, body_consts, carry = xs[:nc], xs[nc : nc + nb], list(xs[nc + nb :])

    began = len(ev.program.ops)
    for rounds in itertools.count():
        (running,) = ev.closed(p["cond_jaxpr"], (*cond_consts, *carry))
        number = ev.program.number(int(running))
        if number is None:
            break
        if not number:
            return carry
        if rounds >= UNROLL_ROUNDS or len(ev.program.ops) - began > UNROLL_OPERATIONS:
            raise UnsupportedError(f"'while' with more than {rounds} rounds that are known")
        carry = ev.closed(p["body_jaxpr"], (*body_consts, *carry))

    program, outer = ev.program, ev.scope
    index, carried, _ = program.open_loop(None, _pack(carry), outer)
    ev.scope = program.loops[index].scope
    try:
        now = _unpack(carried, carry)
        (running,) = ev.closed(p["cond_jaxpr"], (*cond_consts, *now))
        after = ev.closed(p["body_jaxpr"], (*body_consts, *now))
        # A lane that has ended waits for the others.
        following = [ev.map("select", running, a, b) for a, b in zip(after, now, strict=True)]
    finally:
        ev.scope = outer
    finals, _ = program.close_loop(index, _pack(following), condition=int(running))
    return _unpack(finals, carry)


# --- random numbers ---


def _by_implementation(
    ev: Evaluator, function: Callable[..., Any], keys: IdArray, key: Any, *others: IdArray
) -> IdArray:
    """What the key's own implementation computes, key by key."""
    words = key_shape(key)
    flat = keys.reshape(-1, *words)
    shapes = [jax.ShapeDtypeStruct(words, np.uint32)]
    shapes += [jax.ShapeDtypeStruct((), ev.dtype(int(x.flat[0]))) for x in others]
    closed = jax.make_jaxpr(function)(*shapes)
    shape = keys.shape[: keys.ndim - len(words)]
    rest = [np.broadcast_to(x, shape).ravel() for x in others]
    results = [
        ev.closed(closed, (k, *(np.array(r[i]) for r in rest)))[0] for i, k in enumerate(flat)
    ]
    return np.stack(results).reshape((*shape, *results[0].shape))


@rule("random_bits")
def _random_bits(ev: Evaluator, equation: Any, keys: IdArray) -> IdArray:
    key, p = equation.invars[0].aval.dtype, equation.params
    return _by_implementation(
        ev, lambda k: key._impl.random_bits(k, p["bit_width"], p["shape"]), keys, key
    )


@rule("random_split")
def _random_split(ev: Evaluator, equation: Any, keys: IdArray) -> IdArray:
    key, shape = equation.invars[0].aval.dtype, equation.params["shape"]
    return _by_implementation(ev, lambda k: key._impl.split(k, shape), keys, key)


@rule("random_fold_in")
def _random_fold_in(ev: Evaluator, equation: Any, keys: IdArray, data: IdArray) -> IdArray:
    key = equation.invars[0].aval.dtype
    return _by_implementation(ev, key._impl.fold_in, keys, key, data)


@rule("random_seed")
def _random_seed(ev: Evaluator, equation: Any, seeds: IdArray) -> IdArray:
    implementation = equation.params["impl"]
    seed = jax.ShapeDtypeStruct((), ev.dtype(int(seeds.flat[0])))
    closed = jax.make_jaxpr(implementation.seed)(seed)
    results = [ev.closed(closed, (np.array(s),))[0] for s in seeds.ravel()]
    return np.stack(results).reshape((*seeds.shape, *results[0].shape))


@rule("random_wrap", "random_unwrap", "random_clone")
def _random_wrap(ev: Evaluator, _: Any, x: IdArray) -> IdArray:
    return x


@rule("iota_2x32_shape")
def _iota_2x32_shape(ev: Evaluator, equation: Any) -> list[IdArray]:
    shape = equation.params["shape"]
    numbers = np.arange(int(np.prod(shape)), dtype=np.uint64).reshape(shape)
    return [ev.array((numbers >> np.uint64(32)).astype(np.uint32)),
            ev.array(numbers.astype(np.uint32))]  # fmt: skip


@rule("threefry2x32")
def _threefry2x32(
    ev: Evaluator, _: Any, k1: IdArray, k2: IdArray, x1: IdArray, x2: IdArray
) -> list[IdArray]:
    """Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers", SC 2011)."""
    u32 = np.dtype(np.uint32)

    def number(n: int) -> IdArray:
        return ev.full((), n, u32)

    def rotate(x: IdArray, by: int) -> IdArray:
        left, right = ev.map("shift_left", x, number(by)), number(32 - by)
        return ev.map("or", left, ev.map("shift_right_logical", x, right))

    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    keys = (k1, k2, ev.map("xor", ev.map("xor", k1, k2), number(0x1BD11BDA)))
    a, b = ev.map("add", x1, k1), ev.map("add", x2, k2)
    for i in range(5):
        for by in rotations[i % 2]:
            a = ev.map("add", a, b)
            b = ev.map("xor", rotate(b, by), a)
        a = ev.map("add", a, keys[(i + 1) % 3])
        b = ev.map("add", b, ev.map("add", keys[(i + 2) % 3], number(i + 1)))
    return [a, b]


@rule("random_gamma", "rng_bit_generator", "rng_uniform")
def _other_random(ev: Evaluator, equation: Any, *_: IdArray) -> IdArray:
    raise UnsupportedError(f"{equation.primitive.name!r} has no rule")
