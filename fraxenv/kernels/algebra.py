"""Simplification: algebraic identities of the operations.

Each function takes a program and an operation's operands, and returns the simpler value, or None.
Structural zeros absorb what they multiply, and the sign of a zero is not kept: a sparse product is
computed as one, where a dense one would turn an infinite factor into NaN.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

Id = int
"""A value of a program: an index into its lists."""


class Values(Protocol):
    """The values of a program; see `Program`."""

    ops: list[str]
    args: list[tuple[Id, ...]]
    attributes: list[Any]
    dtypes: list[np.dtype[Any]]
    units: dict[Id, int]

    def constant(self, value: Any, dtype: np.dtype[Any] | None = None) -> Id:
        """A number."""

    def number(self, x: Id) -> Any:
        """The number of a constant; None of any other value."""

    def apply(self, op: str, *args: Id) -> Id:
        """An operation on values."""


def _is_float(p: Values, x: Id) -> bool:
    return p.dtypes[x].kind == "f"


def _is_bool(p: Values, x: Id) -> bool:
    return p.dtypes[x].kind == "b"


def _is(p: Values, x: Id, unit: int) -> bool:
    return p.units.get(x) == unit


def add(p: Values, a: Id, b: Id) -> Id | None:
    """`a + 0`, and sums of negatives as differences."""
    units = p.units
    if units.get(a) == 0:
        return b
    if units.get(b) == 0:
        return a
    if p.ops[b] == "neg":
        return p.apply("sub", a, p.args[b][0])
    if p.ops[a] == "neg":
        return p.apply("sub", b, p.args[a][0])
    return None


def sub(p: Values, a: Id, b: Id) -> Id | None:
    """`a - 0`, `0 - b`, `a - a`, and differences of negatives as sums."""
    units = p.units
    if units.get(b) == 0:
        return a
    if units.get(a) == 0:
        return p.apply("neg", b)
    if p.ops[b] == "neg":
        return p.apply("add", a, p.args[b][0])
    if p.ops[a] == "neg":
        return p.apply("neg", p.apply("add", p.args[a][0], b))
    if a == b and not _is_float(p, a):
        return p.constant(0, p.dtypes[a])
    return None


def mul(p: Values, a: Id, b: Id) -> Id | None:
    """`0 b`, `1 b`, `-1 b`; signs move outwards, where sums absorb them."""
    left, right = p.ops[a], p.ops[b]
    if right == "constant":
        a, b, left, right = b, a, right, left
    if left == "constant":
        unit = p.units.get(a)
        if unit == 0:
            return a
        if unit == 1:
            return b
        if unit == -1:
            return p.apply("neg", b)
        if right == "neg":
            return p.apply("mul", p.apply("neg", a), p.args[b][0])
        return None
    negative = left == "neg"
    if negative:
        a = p.args[a][0]
    if right == "neg":
        b, negative = p.args[b][0], not negative
        product = p.apply("mul", a, b)
        return p.apply("neg", product) if negative else product
    return p.apply("neg", p.apply("mul", a, b)) if negative else None


def div(p: Values, a: Id, b: Id) -> Id | None:
    """`a / 1`; division by a power of two is multiplication by its reciprocal."""
    if _is(p, b, 1):
        return a
    if not _is_float(p, a):
        return None
    if p.ops[b] == "constant":
        mantissa, exponent = np.frexp(p.attributes[b])
        # A power of two, and not so large that its reciprocal is subnormal: the product is exact.
        if abs(mantissa) == 0.5 and abs(exponent) < np.finfo(p.dtypes[a]).maxexp - 1:
            return p.apply("mul", a, p.constant(1 / p.attributes[b], p.dtypes[a]))
    if p.ops[a] == "neg":
        return p.apply("neg", p.apply("div", p.args[a][0], b))
    return None


def abs_(p: Values, a: Id) -> Id | None:
    """`|a|` of unsigned numbers."""
    return a if p.dtypes[a].kind in "ub" else None


def neg(p: Values, a: Id) -> Id | None:
    """`-(-a)` and `-(a - b)`."""
    op = p.ops[a]
    if op == "neg":
        return p.args[a][0]
    if op == "sub":
        return p.apply("sub", p.args[a][1], p.args[a][0])
    return None


def select(p: Values, condition: Id, a: Id, b: Id) -> Id | None:
    """Known, equal or repeated choices; choices of bools as logic."""
    chooses = p.ops[condition]
    if chooses == "constant":
        return a if p.attributes[condition] else b
    if a == b:
        return a
    if chooses == "not":
        return p.apply("select", p.args[condition][0], b, a)
    if _is_bool(p, a):
        if _is(p, a, True):
            return p.apply("or", condition, b)
        if _is(p, b, False):
            return p.apply("and", condition, a)
    # Choosing again by the same condition chooses the same.
    if p.ops[a] == "select" and p.args[a][0] == condition:
        return p.apply("select", condition, p.args[a][1], b)
    if p.ops[b] == "select" and p.args[b][0] == condition:
        return p.apply("select", condition, a, p.args[b][2])
    return None


def and_(p: Values, a: Id, b: Id) -> Id | None:
    """`a & 0`, `a & a`, and `a & True` of bools."""
    for x, other in ((a, b), (b, a)):
        if _is(p, x, 0):
            return x
        if _is_bool(p, a) and _is(p, x, True):
            return other
    return a if a == b else None


def or_(p: Values, a: Id, b: Id) -> Id | None:
    """`a | 0`, `a | a`, and `a | True` of bools."""
    for x, other in ((a, b), (b, a)):
        if _is(p, x, 0):
            return other
        if _is_bool(p, a) and _is(p, x, True):
            return x
    return a if a == b else None


def not_(p: Values, a: Id) -> Id | None:
    """`~~a`."""
    return p.args[a][0] if p.ops[a] == "not" else None


def extreme(p: Values, a: Id, b: Id) -> Id | None:
    """`max` and `min` of a NaN or of equal values."""
    for x in (a, b):
        number = p.number(x)
        if number is not None and number != number:
            return x
    return a if a == b else None


def shift(p: Values, a: Id, b: Id) -> Id | None:
    """Shifts by no bits."""
    return a if _is(p, b, 0) else None
