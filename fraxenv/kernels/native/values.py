"""Values of a program with Python's operators, for writing functions as scalar programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..program import Id, Program

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
I32, I64 = np.dtype(np.int32), np.dtype(np.int64)


class Value:
    """A value of a program, with Python's operators."""

    def __init__(self, program: Program, id: Id) -> None:
        self.program, self.id = program, id

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the value."""
        return self.program.dtypes[self.id]

    def like(self, number: float) -> Value:
        """A number of the same dtype."""
        return Value(self.program, self.program.constant(number, self.dtype))

    def do(self, op: str, *others: Value | float, dtype: Any = None) -> Value:
        """An operation with this value as its first operand."""
        rest = [x.id if isinstance(x, Value) else self.like(x).id for x in others]
        return Value(self.program, self.program.apply(op, self.id, *rest, dtype=dtype))

    def to(self, dtype: np.dtype[Any]) -> Value:
        """The value in another dtype."""
        return self.do("convert", dtype=dtype)

    def bits(self, dtype: np.dtype[Any]) -> Value:
        """The bits of the value as another dtype."""
        return self.do("bitcast", dtype=dtype)

    def __add__(self, other: Value | float) -> Value:
        return self.do("add", other)

    def __sub__(self, other: Value | float) -> Value:
        return self.do("sub", other)

    def __rsub__(self, other: float) -> Value:
        return self.like(other) - self

    def __mul__(self, other: Value | float) -> Value:
        return self.do("mul", other)

    def __truediv__(self, other: Value | float) -> Value:
        return self.do("div", other)

    def __neg__(self) -> Value:
        return self.do("neg")

    def __abs__(self) -> Value:
        return self.do("abs")

    def __lt__(self, other: Value | float) -> Value:
        return self.do("lt", other)

    def __gt__(self, other: Value | float) -> Value:
        return self.do("gt", other)

    def __and__(self, other: Value | int) -> Value:
        return self.do("and", other)

    def __or__(self, other: Value | int) -> Value:
        return self.do("or", other)

    __radd__, __rmul__ = __add__, __mul__


def where(condition: Value, a: Value, b: Value | float) -> Value:
    """`a` where the condition holds, `b` elsewhere."""
    other = b if isinstance(b, Value) else a.like(b)
    p = condition.program
    return Value(p, p.apply("select", condition.id, a.id, other.id))


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's scheme, the highest power first."""
    total = x.like(coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total


def libm(name: str, x: Value, *others: Value) -> Value:
    """A function of the C library, lane by lane."""
    p = x.program
    args = (x.id, *(y.id for y in others))
    return Value(p, p.call(name, args))


def guarded(rare: Value, name: str, x: Value, usual: Value) -> Value:
    """The C library's function where `rare` holds, `usual` elsewhere; skipped if none is rare."""
    p = x.program
    return Value(p, p.call(f"guarded:{name}", (rare.id, x.id, usual.id)))


def rounded(x: Value) -> tuple[Value, Value]:
    """The nearest whole number, and its last 32 bits; of numbers below 2^51, 2^22 in float32.

    Added to a number whose last digit is one, what is behind the point is rounded away. What makes
    an integer of any float, as `convert` has to, takes vectors apart.
    """
    shift = 1.5 * 2.0 ** np.finfo(x.dtype).nmant
    shifted = x + shift
    if x.dtype == F64:  # whose last 32 bits those of `shift` are not among
        return shifted - shift, shifted.bits(I64).to(I32)
    return shifted - shift, shifted.bits(I32) - int(np.float32(shift).view(np.int32))
