"""The scalar operations: everything the compiler knows of each, in one row of a table.

A program folds constants and simplifies by it (`program`), the rules of JAX's elementwise
primitives (`rules.elementwise`) and the operations of both kinds of executors (`xla`,
`native.instructions`, `native.mathlib`) are made of it. So a new operation is a new row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax

from . import algebra


@dataclass(frozen=True)
class Instruction:
    """LLVM's instruction, or intrinsic (`llvm.` and its name), for each kind of numbers.

    Attributes:
        floating: for floats.
        signed: for signed integers.
        unsigned: for unsigned integers and bools. Default: as for signed ones.
    """

    floating: str
    signed: str = ""
    unsigned: str = ""

    def of(self, dtype: np.dtype[Any]) -> str:
        """The instruction for numbers of a dtype; empty if there is none."""
        if dtype.kind == "f":
            return self.floating
        return self.unsigned or self.signed if dtype.kind in "ub" else self.signed


@dataclass(frozen=True)
class Operation:
    """An operation on scalars.

    Attributes:
        name: of the operation in a program.
        primitives: JAX's primitives that are this operation on every element.
        lax: the operation on JAX's arrays, for a cast with the dtype; None where `xla` has its own.
        fold: the operation on NumPy's scalars, for a cast with the dtype; None if it never folds.
        simplify: a simpler value than the operation's; see `algebra`.
        llvm: the instruction; None where `native.instructions` writes several, or where
            `native.mathlib` makes other operations of it.
        library: the C library's function of float64; the one of float32 ends in `f`.
        logical: the operation in its place where the operands are bools.
        commutative: whether the order of its operands does not matter.
        predicate: whether its result is a bool, whatever it is of.
        cast: whether the result's dtype is to be given.
    """

    name: str
    primitives: tuple[str, ...]
    lax: Callable[..., jax.Array] | None
    fold: Callable[..., Any] | None = None
    simplify: Callable[..., algebra.Id | None] | None = None
    llvm: Instruction | None = None
    library: str | None = None
    logical: str | None = None
    commutative: bool = False
    predicate: bool = False
    cast: bool = False


# --- constant folding where NumPy differs from XLA ---


def _division(a: Any, b: Any) -> Any:
    if isinstance(a, np.floating):
        return a / b
    # Towards zero; XLA gives all ones where it divides by zero.
    return np.floor_divide(a - np.fmod(a, b), b) if b else np.invert(a.dtype.type(0))


def _remainder(a: Any, b: Any) -> Any:
    return a if isinstance(a, np.integer) and not b else np.fmod(a, b)


def _fits_width(a: Any, b: Any) -> bool:
    return bool(0 <= int(b) < 8 * a.dtype.itemsize)


def _shift_left(a: Any, b: Any) -> Any:
    return a << a.dtype.type(b) if _fits_width(a, b) else a.dtype.type(0)


def _shift_right_logical(a: Any, b: Any) -> Any:
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    x = a.view(unsigned)
    return (x >> unsigned.type(b) if _fits_width(a, b) else unsigned.type(0)).view(a.dtype)


def _shift_right_arithmetic(a: Any, b: Any) -> Any:
    signed = np.dtype(f"i{a.dtype.itemsize}")
    by = int(b) if _fits_width(a, b) else 8 * a.dtype.itemsize - 1
    return (a.view(signed) >> signed.type(by)).view(a.dtype)


def _convert(a: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(a, np.floating) and np.issubdtype(dtype, np.integer):
        if np.isnan(a):
            return dtype.type(0)
        info = np.iinfo(dtype)
        if a >= float(info.max):
            return dtype.type(info.max)
        if a <= float(info.min):
            return dtype.type(info.min)
    return a.astype(dtype)


def _select(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


def _rsqrt(a: Any) -> Any:
    return a.dtype.type(1) / np.sqrt(a)


def _bitcast(a: Any, dtype: np.dtype[Any]) -> Any:
    return a.view(dtype)


def _round_even(x: Any) -> jax.Array:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


# --- the table ---


def _comparison(
    name: str, lax_function: Any, fold: Any, llvm: Instruction, commutative: bool = False
) -> Operation:
    return Operation(
        name, (name,), lax_function, fold, llvm=llvm, commutative=commutative, predicate=True
    )


def _elementary(name: str, lax_function: Any, fold: Any, library: str | None) -> Operation:
    return Operation(name, (name,), lax_function, fold, library=library)


_ROWS = (
    Operation("add", ("add", "add_any"), lax.add, np.add, algebra.add,
              Instruction("fadd", "add"), logical="or", commutative=True),
    Operation("sub", ("sub",), lax.sub, np.subtract, algebra.sub,
              Instruction("fsub", "sub")),
    Operation("mul", ("mul",), lax.mul, np.multiply, algebra.mul,
              Instruction("fmul", "mul"), logical="and", commutative=True),
    Operation("div", ("div",), lax.div, _division, algebra.div),
    Operation("rem", ("rem",), lax.rem, _remainder),
    Operation("neg", ("neg",), lax.neg, np.negative, algebra.neg),
    Operation("abs", ("abs",), lax.abs, np.abs, algebra.abs_),
    Operation("max", ("max",), lax.max, np.maximum, algebra.extreme, logical="or"),
    Operation("min", ("min",), lax.min, np.minimum, algebra.extreme, logical="and"),
    Operation("sqrt", ("sqrt",), lax.sqrt, np.sqrt, llvm=Instruction("llvm.sqrt")),
    Operation("rsqrt", (), lax.rsqrt, _rsqrt),
    Operation("floor", ("floor",), lax.floor, np.floor, llvm=Instruction("llvm.floor")),
    Operation("ceil", ("ceil",), lax.ceil, np.ceil, llvm=Instruction("llvm.ceil")),
    Operation("round_even", (), _round_even, np.rint, llvm=Instruction("llvm.roundeven")),
    Operation("and", ("and",), lax.bitwise_and, np.bitwise_and, algebra.and_,
              Instruction("", "and"), commutative=True),
    Operation("or", ("or",), lax.bitwise_or, np.bitwise_or, algebra.or_,
              Instruction("", "or"), commutative=True),
    Operation("xor", ("xor",), lax.bitwise_xor, np.bitwise_xor,
              llvm=Instruction("", "xor"), commutative=True),
    Operation("not", ("not",), lax.bitwise_not, np.invert, algebra.not_),
    Operation("shift_left", ("shift_left",), lax.shift_left, _shift_left, algebra.shift),
    Operation("shift_right_logical", ("shift_right_logical",), lax.shift_right_logical,
              _shift_right_logical, algebra.shift),
    Operation("shift_right_arithmetic", ("shift_right_arithmetic",), lax.shift_right_arithmetic,
              _shift_right_arithmetic),
    _comparison("eq", lax.eq, np.equal, Instruction("fcmp oeq", "icmp eq"), commutative=True),
    _comparison("ne", lax.ne, np.not_equal, Instruction("fcmp une", "icmp ne"), commutative=True),
    _comparison("lt", lax.lt, np.less, Instruction("fcmp olt", "icmp slt", "icmp ult")),
    _comparison("le", lax.le, np.less_equal, Instruction("fcmp ole", "icmp sle", "icmp ule")),
    _comparison("gt", lax.gt, np.greater, Instruction("fcmp ogt", "icmp sgt", "icmp ugt")),
    _comparison("ge", lax.ge, np.greater_equal, Instruction("fcmp oge", "icmp sge", "icmp uge")),
    Operation("is_finite", ("is_finite",), lax.is_finite, np.isfinite, predicate=True),
    Operation("select", (), None, _select, algebra.select),
    Operation("convert", (), lax.convert_element_type, _convert, cast=True),
    Operation("bitcast", (), lax.bitcast_convert_type, _bitcast, cast=True),
    _elementary("sin", lax.sin, np.sin, "sin"),
    _elementary("cos", lax.cos, np.cos, "cos"),
    _elementary("tan", lax.tan, np.tan, "tan"),
    _elementary("asin", lax.asin, np.arcsin, "asin"),
    _elementary("acos", lax.acos, np.arccos, "acos"),
    _elementary("atan", lax.atan, np.arctan, "atan"),
    _elementary("atan2", lax.atan2, np.arctan2, "atan2"),
    _elementary("sinh", lax.sinh, np.sinh, "sinh"),
    _elementary("cosh", lax.cosh, np.cosh, "cosh"),
    _elementary("tanh", lax.tanh, np.tanh, "tanh"),
    _elementary("asinh", lax.asinh, np.arcsinh, "asinh"),
    _elementary("acosh", lax.acosh, np.arccosh, "acosh"),
    _elementary("atanh", lax.atanh, np.arctanh, "atanh"),
    _elementary("exp", lax.exp, np.exp, "exp"),
    _elementary("exp2", lax.exp2, np.exp2, "exp2"),
    _elementary("expm1", lax.expm1, np.expm1, "expm1"),
    _elementary("log", lax.log, np.log, "log"),
    _elementary("log1p", lax.log1p, np.log1p, "log1p"),
    _elementary("cbrt", lax.cbrt, np.cbrt, "cbrt"),
    _elementary("pow", lax.pow, np.power, "pow"),
    _elementary("erf", lax.erf, None, "erf"),
    _elementary("erf_inv", lax.erf_inv, None, None),
)  # fmt: skip

OPERATIONS = {row.name: row for row in _ROWS}
"""Each operation, by its name."""
