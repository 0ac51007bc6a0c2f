"""Scalar programs: what a function of small arrays becomes when its arrays are taken apart.

Every value is one number per environment (a lane), or a constant. A program is built through
`Program.apply`, which folds constants, drops what changes nothing and shares what is computed
twice, so that the zeros and ones of a robot's structure never reach the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .errors import BuildError, TooLongError

Id = int
"""A value of a program: an index into its lists."""

IdArray = np.ndarray
"""A small array of values: integers of the array's shape."""

BOOL = np.dtype(bool)
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
LARGEST = 400_000
"""A program of more values is refused: LLVM would take minutes over it."""

COMMUTATIVE = frozenset({"add", "mul", "and", "or", "xor", "eq", "ne"})


@dataclass
class Loop:
    """A loop that stays one: `count` rounds, or as long as `condition` holds in some lane.

    Attributes:
        scope: the scope of its body.
        outer: the scope it stands in.
        count: the number of rounds; None for a while loop.
        counter: the value that counts rounds from 0 (int32, the same in every lane).
        carries: values at the beginning of a round.
        initial: their values before the first round.
        following: their values after a round, already frozen where a while loop's lane has ended;
            then the stacked ones.
        stacked: values of the body of which every round's is kept.
        condition: whether a while loop's lane is still running, from `carries`.
    """

    scope: int
    outer: int
    count: int | None
    counter: Id = -1
    carries: list[Id] = field(default_factory=list)
    initial: list[Id] = field(default_factory=list)
    following: list[Id] = field(default_factory=list)
    stacked: list[Id] = field(default_factory=list)
    condition: Id | None = None


class Program:
    """A scalar program under construction.

    Args:
        expand: makes basic operations of elementary functions, for executors that know only those.

    Attributes:
        ops: the operation of each value.
        args: the values it takes.
        attributes: what else it takes: the number of a constant, the place of an input.
        dtypes: of each value.
        scopes: the scope that each value belongs to: 0, or a loop's body.
        loops: the loops; `loop` values refer to them by index.
        depth: of each scope.
    """

    def __init__(self, expand: Callable[..., Id | None] | None = None) -> None:
        self._expand = expand
        self.ops: list[str] = []
        self.args: list[tuple[Id, ...]] = []
        self.attributes: list[Any] = []
        self.dtypes: list[np.dtype[Any]] = []
        self.scopes: list[int] = []
        self.loops: list[Loop] = []
        self.depth: list[int] = [0]
        self._known: dict[Any, Id] = {}
        self._constants: dict[Any, Id] = {}
        self.applied = 0
        """Scalar operations asked for, before anything folded."""
        self._most = LARGEST

    # --- values ---

    def constant(self, value: Any, dtype: np.dtype[Any] | None = None) -> Id:
        """A number."""
        number = np.asarray(value, dtype)[()]
        key = (number.dtype.char, number.tobytes())
        known = self._constants.get(key)
        if known is None:
            known = self._add("constant", (), number, number.dtype, 0)
            self._constants[key] = known
        return known

    def constants(self, array: np.ndarray) -> IdArray:
        """An array of numbers."""
        flat = [self.constant(x) for x in array.ravel()]
        return np.array(flat, int).reshape(array.shape)

    def input(self, buffer: int, element: int, dtype: np.dtype[Any]) -> Id:
        """One element of an input buffer."""
        return self._unique("input", (), (buffer, element), dtype, 0)

    def number(self, x: Id) -> Any:
        """The number of a constant; None of any other value."""
        return self.attributes[x] if self.ops[x] == "constant" else None

    def apply(self, op: str, *args: Id, dtype: np.dtype[Any] | None = None) -> Id:
        """The value of an operation on values: a constant or an earlier value if it can be.

        `dtype` is needed for casts only.
        """
        self.applied += 1
        folded = self._fold(op, args, dtype)
        if folded is not None:
            return folded
        simplify = _SIMPLIFY.get(op)
        if simplify is not None:
            simple = simplify(self, *args)
            if simple is not None:
                return simple
        if self._expand is not None:
            expanded = self._expand(self, op, args)
            if expanded is not None:
                return expanded
        if op in COMMUTATIVE and args[0] > args[1]:
            args = (args[1], args[0])
        if op in COMPARISONS or op == "is_finite":
            dtype = BOOL
        elif dtype is None:
            dtype = self.dtypes[args[-1]]
        return self._unique(op, args, None, dtype, self._innermost(args))

    def call(self, name: str, args: tuple[Id, ...]) -> Id:
        """A function of the C library, lane by lane.

        `guarded:NAME` takes a condition, the argument and the value where it does not hold.
        """
        return self._unique("call", args, name, self.dtypes[args[-1]], self._innermost(args))

    def lookup(self, index: Id, values: Sequence[Id]) -> Id:
        """`values[index]` for an index within them that is the same in every lane."""
        number = self.number(index)
        if number is not None:
            return values[int(number)]
        if all(v == values[0] for v in values):
            return values[0]
        args = (index, *values)
        return self._unique("lookup", args, None, self.dtypes[values[0]], self._innermost(args))

    # --- loops ---

    def open_loop(
        self, count: int | None, initial: Sequence[Id], scope: int
    ) -> tuple[int, list[Id], Id]:
        """Begin a loop in `scope`: its index, its carried values, its counter."""
        body = len(self.depth)
        self.depth.append(self.depth[scope] + 1)
        loop = Loop(body, scope, count, initial=list(initial))
        index = len(self.loops)
        self.loops.append(loop)
        loop.counter = self._add("counter", (), index, np.dtype(np.int32), body)
        for k, value in enumerate(initial):
            carry = self._add("carry", (), (index, k), self.dtypes[value], body)
            loop.carries.append(carry)
        return index, list(loop.carries), loop.counter

    def close_loop(
        self,
        index: int,
        following: Sequence[Id],
        stacked: Sequence[Id] = (),
        condition: Id | None = None,
    ) -> tuple[list[Id], list[list[Id]]]:
        """End a loop: the carried values after it, and each stacked value's of every round."""
        loop = self.loops[index]
        # The last round's stacked values are those that are there when the loop ends.
        loop.following, loop.stacked = [*following, *stacked], list(stacked)
        loop.condition = condition
        run = self._add("loop", (), index, BOOL, loop.outer)
        finals = [
            self._add("final", (run,), (index, k), self.dtypes[x], loop.outer)
            for k, x in enumerate(loop.following)
        ]
        rounds = [
            [
                self._add("round", (run,), (index, j, t), self.dtypes[x], loop.outer)
                for t in range((loop.count or 1) - 1)
            ]
            + [finals[len(following) + j]]
            for j, x in enumerate(stacked)
        ]
        return finals[: len(following)], rounds

    def within(self, scope: int, value: Id) -> Id:
        """The value as one of a scope, so that what is computed from it stays there, too."""
        if self.ops[value] == "constant":
            return value
        return self._unique("within", (value,), scope, self.dtypes[value], scope)

    # --- parts ---

    @contextmanager
    def attempt(self, most: int) -> Iterator[None]:
        """Raise TooLongError, and forget what was added, where it is more than `most` values."""
        began, loops, scopes = len(self.ops), len(self.loops), len(self.depth)
        before, applied = self._most, self.applied
        self._most = min(before, began + most)
        try:
            yield
        except TooLongError:
            for values in (self.ops, self.args, self.attributes, self.dtypes, self.scopes):
                del values[began:]
            del self.loops[loops:], self.depth[scopes:]
            for known in (self._known, self._constants):
                # The latest come last.
                while known and next(reversed(known.values())) >= began:
                    known.popitem()
            self.applied = applied
            raise
        finally:
            self._most = before

    def _fold(self, op: str, args: tuple[Id, ...], dtype: np.dtype[Any] | None) -> Id | None:
        compute = FOLD.get(op)
        if compute is None:
            return None
        numbers = []
        for a in args:
            if self.ops[a] != "constant":
                return None
            numbers.append(self.attributes[a])
        with np.errstate(all="ignore"):
            if op in ("convert", "bitcast"):
                return self.constant(compute(numbers[0], dtype))
            value = compute(*numbers)
        result = BOOL if op in COMPARISONS or op == "is_finite" else numbers[-1].dtype
        return self.constant(value, result)

    def _innermost(self, args: tuple[Id, ...]) -> int:
        # What does not depend on a loop's carried values moves out of the loop by itself.
        scopes, depth = self.scopes, self.depth
        scope = 0
        for a in args:
            if depth[scopes[a]] > depth[scope]:
                scope = scopes[a]
        return scope

    def _unique(
        self, op: str, args: tuple[Id, ...], attribute: Any, dtype: np.dtype[Any], scope: int
    ) -> Id:
        key = (op, args, attribute, dtype.char)
        known = self._known.get(key)
        if known is None:
            known = self._add(op, args, attribute, dtype, scope)
            self._known[key] = known
        return known

    def _add(
        self, op: str, args: tuple[Id, ...], attribute: Any, dtype: np.dtype[Any], scope: int
    ) -> Id:
        if len(self.ops) >= self._most:
            if self._most < LARGEST:
                raise TooLongError
            raise BuildError(
                f"the program has more than {LARGEST} scalar operations. Fuse a smaller function, "
                "of one environment, or pass backend='vmap'."
            )
        self.ops.append(op)
        self.args.append(args)
        self.attributes.append(attribute)
        self.dtypes.append(dtype)
        self.scopes.append(scope)
        return len(self.ops) - 1


def live_values(program: Program, outputs: Sequence[Id]) -> np.ndarray:
    """Which values (bool, by id) are needed for the outputs: all others are dead code."""
    alive = np.zeros(len(program.ops), bool)
    pending = list(outputs)

    def need(*values: Id) -> None:
        pending.extend(v for v in values if not alive[v])

    while pending:
        x = pending.pop()
        if alive[x]:
            continue
        alive[x] = True
        need(*program.args[x])
        op, attribute = program.ops[x], program.attributes[x]
        if op == "loop":
            condition = program.loops[attribute].condition
            need(*(() if condition is None else (condition,)))
        elif op == "carry":
            loop, k = program.loops[attribute[0]], attribute[1]
            need(loop.initial[k], loop.following[k])
        elif op == "final":
            loop, k = program.loops[attribute[0]], attribute[1]
            need(loop.following[k])
            if loop.condition is not None:  # it may end before its first round
                need(loop.carries[k])
        elif op == "round":
            need(program.loops[attribute[0]].stacked[attribute[1]])
    return alive


# --- constant folding ---


def _division(a: Any, b: Any) -> Any:
    if isinstance(a, np.floating):
        return a / b
    # Towards zero; XLA gives all ones where it divides by zero.
    return np.floor_divide(a - np.fmod(a, b), b) if b else np.invert(a.dtype.type(0))


def _remainder(a: Any, b: Any) -> Any:
    return a if isinstance(a, np.integer) and not b else np.fmod(a, b)


def _within_width(a: Any, b: Any) -> bool:
    return bool(0 <= int(b) < 8 * a.dtype.itemsize)


def _left(a: Any, b: Any) -> Any:
    return a << a.dtype.type(b) if _within_width(a, b) else a.dtype.type(0)


def _logical_right(a: Any, b: Any) -> Any:
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    x = a.view(unsigned)
    return (x >> unsigned.type(b) if _within_width(a, b) else unsigned.type(0)).view(a.dtype)


def _arithmetic_right(a: Any, b: Any) -> Any:
    signed = np.dtype(f"i{a.dtype.itemsize}")
    by = int(b) if _within_width(a, b) else 8 * a.dtype.itemsize - 1
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


FOLD: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _division,
    "rem": _remainder,
    "neg": lambda a: np.negative(a),
    "abs": np.abs,
    "max": np.maximum,
    "min": np.minimum,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: a.dtype.type(1) / np.sqrt(a),
    "floor": np.floor,
    "ceil": np.ceil,
    "round_even": np.rint,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shift_left": _left,
    "shift_right_logical": _logical_right,
    "shift_right_arithmetic": _arithmetic_right,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "is_finite": np.isfinite,
    "select": lambda condition, a, b: a if condition else b,
    "convert": _convert,
    "bitcast": lambda a, dtype: a.view(dtype),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "cbrt": np.cbrt,
    "pow": np.power,
}
"""NumPy's function for each operation that folds when all of its arguments are constants."""


# --- algebra ---
# Structural zeros absorb what they multiply, and the sign of a zero is not kept: a sparse product
# is computed as one, where a dense one would turn an infinite factor into NaN.


def _is_float(p: Program, x: Id) -> bool:
    return p.dtypes[x].kind == "f"


def _is(p: Program, x: Id, number: float) -> bool:
    return p.ops[x] == "constant" and bool(p.attributes[x] == number)


def _add(p: Program, a: Id, b: Id) -> Id | None:
    if _is(p, a, 0):
        return b
    if _is(p, b, 0):
        return a
    if p.ops[b] == "neg":
        return p.apply("sub", a, p.args[b][0])
    if p.ops[a] == "neg":
        return p.apply("sub", b, p.args[a][0])
    return None


def _sub(p: Program, a: Id, b: Id) -> Id | None:
    if _is(p, b, 0):
        return a
    if _is(p, a, 0):
        return p.apply("neg", b)
    if p.ops[b] == "neg":
        return p.apply("add", a, p.args[b][0])
    if p.ops[a] == "neg":
        return p.apply("neg", p.apply("add", p.args[a][0], b))
    if a == b and not _is_float(p, a):
        return p.constant(0, p.dtypes[a])
    return None


def _mul(p: Program, a: Id, b: Id) -> Id | None:
    if p.ops[b] == "constant":
        a, b = b, a
    if p.ops[a] == "constant":
        number = p.attributes[a]
        if number == 0:
            return a
        if number == 1:
            return b
        if number == -1:
            return p.apply("neg", b)
        if p.ops[b] == "neg":
            return p.apply("mul", p.apply("neg", a), p.args[b][0])
        return None
    # Signs move outwards, where sums absorb them.
    negative = p.ops[a] == "neg"
    if negative:
        a = p.args[a][0]
    if p.ops[b] == "neg":
        b, negative = p.args[b][0], not negative
        product = p.apply("mul", a, b)
        return p.apply("neg", product) if negative else product
    return p.apply("neg", p.apply("mul", a, b)) if negative else None


def _div(p: Program, a: Id, b: Id) -> Id | None:
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


def _neg(p: Program, a: Id) -> Id | None:
    if p.ops[a] == "neg":
        return p.args[a][0]
    if p.ops[a] == "sub":
        return p.apply("sub", p.args[a][1], p.args[a][0])
    return None


def _select(p: Program, condition: Id, a: Id, b: Id) -> Id | None:
    if p.ops[condition] == "constant":
        return a if p.attributes[condition] else b
    if a == b:
        return a
    if p.ops[condition] == "not":
        return p.apply("select", p.args[condition][0], b, a)
    if p.dtypes[a] == BOOL:
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


def _and(p: Program, a: Id, b: Id) -> Id | None:
    for x, other in ((a, b), (b, a)):
        if _is(p, x, 0):
            return x
        if p.dtypes[a] == BOOL and _is(p, x, True):
            return other
    return a if a == b else None


def _or(p: Program, a: Id, b: Id) -> Id | None:
    for x, other in ((a, b), (b, a)):
        if _is(p, x, 0):
            return other
        if p.dtypes[a] == BOOL and _is(p, x, True):
            return x
    return a if a == b else None


def _not(p: Program, a: Id) -> Id | None:
    return p.args[a][0] if p.ops[a] == "not" else None


def _extreme(p: Program, a: Id, b: Id) -> Id | None:
    for x in (a, b):
        number = p.number(x)
        if number is not None and number != number:
            return x
    return a if a == b else None


def _no_shift(p: Program, a: Id, b: Id) -> Id | None:
    return a if _is(p, b, 0) else None


_SIMPLIFY: dict[str, Callable[..., Id | None]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "neg": _neg,
    "select": _select,
    "and": _and,
    "or": _or,
    "not": _not,
    "max": _extreme,
    "min": _extreme,
    "shift_left": _no_shift,
    "shift_right_logical": _no_shift,
}
