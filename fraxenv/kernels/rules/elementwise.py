"""Elementwise functions, conversions and comparisons."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..errors import UnsupportedError
from ..evaluator import Evaluator
from ..ops import OPERATIONS, Operation
from ..program import BOOL, IdArray
from .registry import RULES, Rule, rule


def _elementwise(operation: Operation) -> Rule:
    def apply(ev: Evaluator, equation: Any, *xs: IdArray) -> IdArray:
        dtypes = [np.dtype(v.aval.dtype) for v in equation.invars]
        op = operation.name
        if op == "pow" and dtypes[0] != dtypes[1]:
            xs = (xs[0], ev.map("convert", xs[1], dtype=dtypes[0]))
        return ev.map(operation.logical or op if dtypes[0] == BOOL else op, *xs)

    return apply


for _operation in OPERATIONS.values():
    rule(*_operation.primitives)(_elementwise(_operation))


def is_nan(ev: Evaluator, x: IdArray) -> IdArray:
    """Whether each element is NaN."""
    if x.size and ev.dtype(int(x.flat[0])).kind != "f":
        return ev.full(x.shape, False, bool)
    return ev.map("ne", x, x)


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


@rule("one_minus_square")
def _one_minus_square(ev: Evaluator, _: Any, x: IdArray) -> IdArray:
    one = _number(ev, x, 1)
    return ev.map("mul", ev.map("sub", one, x), ev.map("add", one, x))


@rule("log2")
def _log2(ev: Evaluator, _: Any, x: IdArray) -> IdArray:
    return ev.map("mul", ev.map("log", x), _number(ev, x, 1.4426950408889634))


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
        # A number beyond the cases chooses the nearest, as in XLA.
        chosen = ev.map("ge", which, ev.full((), k, equation.invars[0].aval.dtype))
        result = ev.map("select", chosen, case, result)
    return result


@rule("convert_element_type")
def _convert(ev: Evaluator, equation: Any, x: IdArray) -> IdArray:
    source, target = np.dtype(equation.invars[0].aval.dtype), equation.params["new_dtype"]
    if jnp.issubdtype(target, jax.dtypes.extended):
        raise UnsupportedError(f"conversion to {target}")
    target = np.dtype(target)
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
        return ev.map(comparison, *(ordered_bits(ev, x) for x in xs))

    return compare


def ordered_bits(ev: Evaluator, x: IdArray) -> IdArray:
    """Integers in the order of numbers, in which -NaN < -inf < -0 < 0 < inf < NaN."""
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
    nan = ev.map("or", is_nan(ev, x), is_nan(ev, y))
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
