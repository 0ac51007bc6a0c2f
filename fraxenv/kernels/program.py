"""Scalar programs: functions of small arrays with the arrays taken apart.

Every value is one number per environment (a lane), or a constant. A program is built through
`Program.apply`, which folds constants, drops what changes nothing and shares what is computed
twice, so that the zeros and ones of a robot's structure never reach the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np

from .algebra import Id as Id
from .errors import BuildError, TooLongError
from .ops import OPERATIONS, Operation
from .twins import are_twins, beginning

IdArray = np.ndarray
"""A small array of values: integers of the array's shape."""

BOOL = np.dtype(bool)

BOOKKEEPING = frozenset({
    "constant", "input", "known", "loop", "counter", "carry", "final", "round", "pin", "entry",
})  # fmt: skip
"""Values for which nothing is computed; all others are operations, calls and lookups."""

WHOLE = frozenset({"product", "matmul", "map"})
"""Operations on whole arrays, which some executors have; their results are the entries after it."""

ELEMENT = "element"
"""What an executor has that reads numbers of wide inputs where they are: see `Row`."""

LARGEST = 500_000
"""A program of more values is refused: LLVM would take minutes over it. As many inputs, for which
nothing is written, do not count."""


class Row(NamedTuple):
    """Where the numbers are that an `element` is one of, at equal distances.

    Attributes:
        number: of the input buffer.
        begin: the number that it is at the index 0.
        step: numbers from there to that at the index 1.
    """

    number: int
    begin: int
    step: int


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
        stacked: values of the body that are kept of every round.
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


Ends = tuple[list[Id], list[list[Id]]]
"""Of a loop: the carried values after it, and each stacked value's of every round."""


_TRAITS = {
    name: (row.fold is not None, row.simplify, row.commutative, row.predicate)
    for name, row in OPERATIONS.items()
}
"""What `Program.apply` asks of an operation."""


class Program:
    """A scalar program under construction.

    Args:
        expand: expands elementary functions, for executors with basic operations only.
        times: how often `LARGEST` values it may have.
        whole: those of `WHOLE` that the executor has, and `ELEMENT` if it has that.
        alone: whether it is for one environment alone: which values are computed alike is noted.

    Attributes:
        ops: the operation of each value.
        args: the operands of each value.
        attributes: other parameters of each value: a constant's number, an input's place.
        dtypes: the dtype of each value.
        scopes: the scope that each value belongs to: 0, or a loop's body.
        loops: the loops; `loop` values refer to them by index.
        matrices: known matrices (rows, columns); `product` values refer to them by index.
        joined: whether a sum rounds together with the product that it adds; see `contraction`.
        lanes: the number of lanes of the values that are vectors of numbers; see `native.packs`.
        alike: values of which each array's elements were computed alike, -1 where one was not; none
            unless `alone`.
        depth: the number of loops around each scope.
        units: which constants are 0, 1 or -1, of whatever dtype.
    """

    def __init__(
        self,
        expand: Callable[..., Id | None] | None = None,
        times: int = 1,
        whole: Collection[str] = (),
        alone: bool = False,
    ) -> None:
        self._expand, self.whole, self.alone = expand, whole, alone
        self.alike: list[IdArray] = []
        self.lanes: dict[Id, int] = {}
        self.ops: list[str] = []
        self.args: list[tuple[Id, ...]] = []
        self.attributes: list[Any] = []
        self.dtypes: list[np.dtype[Any]] = []
        self.scopes: list[int] = []
        self.loops: list[Loop] = []
        self.matrices: list[np.ndarray] = []
        self.joined = False
        self.depth: list[int] = [0]
        self._known: dict[Any, Id] = {}
        self._constants: dict[Any, Id] = {}
        self._folds: dict[Any, Id] = {}
        self._loops_by_beginning: dict[Any, list[tuple[int, Loop, Ends]]] = {}
        self.units: dict[Id, int] = {}
        self.applied = 0
        """Scalar operations asked for, before anything folded."""
        self._limit = self._largest = self._most = self._free = times * LARGEST

    # --- values ---

    def constant(self, value: Any, dtype: np.dtype[Any] | None = None) -> Id:
        """A number."""
        number = np.asarray(value, dtype)[()]
        key = (number.dtype.char, number.tobytes())
        known = self._constants.get(key)
        if known is None:
            known = self._add("constant", (), number, number.dtype, 0)
            self._constants[key] = known
            for unit in (0, 1, -1):
                if number == unit:
                    self.units[known] = unit
        return known

    def constants(self, array: np.ndarray) -> IdArray:
        """An array of numbers."""
        flat = [self.constant(x) for x in array.ravel()]
        return np.array(flat, int).reshape(array.shape)

    def inputs(self, buffer: int, size: int, dtype: np.dtype[Any]) -> list[Id]:
        """The elements of an input buffer, which are asked for once."""
        self.expect(size)
        return self._add_all("input", (), [(buffer, k) for k in range(size)], dtype, 0)

    def expect(self, size: int) -> None:
        """Have room for the elements of an input buffer."""
        free = min(size, self._free)
        self._free -= free
        self._largest, self._most = self._largest + free, self._most + free

    def input(self, buffer: int, k: int, dtype: np.dtype[Any]) -> Id:
        """An element of an input buffer of which not all are asked for at once."""
        return self._unique("input", (), (buffer, k), dtype, 0)

    def element(self, index: Id, row: Row, dtype: np.dtype[Any]) -> Id:
        """An input buffer's element at an index that is in range and the same in every lane."""
        return self._unique(ELEMENT, (index,), row, dtype, self._innermost((index,)))

    def number(self, x: Id) -> Any:
        """The number of a constant; None of any other value."""
        return self.attributes[x] if self.ops[x] == "constant" else None

    def apply(self, op: str, *args: Id, dtype: np.dtype[Any] | None = None) -> Id:
        """The value of an operation on values: a constant or an earlier value if it can be.

        `dtype` is needed for casts only.
        """
        # A million calls in a kernel's making: what could be asked of others is written out.
        self.applied += 1
        folds, simplify, commutative, predicate = _TRAITS[op]
        if folds:
            ops = self.ops
            for a in args:
                if ops[a] != "constant":
                    break
            else:
                return self._fold(OPERATIONS[op], args, dtype)
        if simplify is not None:
            simple = simplify(self, *args)
            if simple is not None:
                return simple
        if self._expand is not None:
            expanded = self._expand(self, op, args)
            if expanded is not None:
                return expanded
        if commutative and args[0] > args[1]:
            args = (args[1], args[0])
        if predicate:
            dtype = BOOL
        elif dtype is None:
            dtype = self.dtypes[args[-1]]
        key = (op, args, None, dtype.char)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._add(op, args, None, dtype, self._innermost(args))
        return known

    def call(self, name: str, args: tuple[Id, ...]) -> Id:
        """A function of the C library, lane by lane.

        `guarded:NAME` takes a condition, the argument and the value where it does not hold.
        """
        return self._unique("call", args, name, self.dtypes[args[-1]], self._innermost(args))

    def lookup(self, index: Id, values: Sequence[Id]) -> Id:
        """`values[index]` for an index in range that is the same in every lane."""
        number = self.number(index)
        if number is not None:
            return values[int(number)]
        if all(v == values[0] for v in values):
            return values[0]
        args = (index, *values)
        return self._unique("lookup", args, None, self.dtypes[values[0]], self._innermost(args))

    def product(self, matrix: np.ndarray, vector: Sequence[Id]) -> list[Id]:
        """A known matrix times a vector: for each row the sum of its products, in their order.

        The values of these follow that of the product.
        """
        number, args, dtype = len(self.matrices), tuple(vector), matrix.dtype
        self.matrices.append(matrix)
        self.applied += 2 * matrix.size
        scope = self._innermost(args)
        run = self._add("product", args, number, BOOL, scope)
        return [self._add("entry", (run,), (number, k), dtype, scope) for k in range(len(matrix))]

    def matmul(self, rows: IdArray, columns: IdArray) -> IdArray:
        """The product (m, n) of a matrix's rows (m, k) and another's columns (n, k).

        Each is the sum of its products, in their order. The values of these follow that of the
        whole, row by row.
        """
        (m, k), n = rows.shape, len(columns)
        args, dtype = (*rows.ravel().tolist(), *columns.ravel().tolist()), self.dtypes[rows[0, 0]]
        self.applied += 2 * m * n * k
        return self._whole("matmul", args, (m, n, k), dtype, (m, n))

    def map(self, op: str, arrays: Sequence[IdArray], shape: tuple[int, int]) -> IdArray:
        """An operation on arrays of a shape, or of one value, element by element.

        The values of these follow that of the whole, row by row.
        """
        args = tuple(i for x in arrays for i in x.ravel().tolist())
        about, dtype = (op, shape, tuple(x.size for x in arrays)), self.dtypes[args[-1]]
        self.applied += shape[0] * shape[1]
        return self._whole("map", args, about, dtype, shape)

    def _whole(
        self,
        op: str,
        args: tuple[Id, ...],
        about: Any,
        dtype: np.dtype[Any],
        shape: tuple[int, int],
    ) -> IdArray:
        """The entries of an operation on whole arrays."""
        key = (op, args, about, dtype.char)
        run = self._known.get(key)
        if run is None:
            scope = self._innermost(args)
            run = self._known[key] = self._add(op, args, about, BOOL, scope)
            self._add_all("entry", (run,), range(shape[0] * shape[1]), dtype, scope)
        return run + 1 + np.arange(shape[0] * shape[1]).reshape(shape)

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
    ) -> Ends:
        """End a loop; the ends of an earlier one that computes the same, if there is one."""
        loop = self.loops[index]
        # The last round's stacked values are those that are there when the loop ends.
        loop.following, loop.stacked = [*following, *stacked], list(stacked)
        loop.condition = condition
        begin = beginning(self, index)
        alike = self._loops_by_beginning.setdefault(begin, [])
        for earlier, itself, results in alike:
            there = earlier < index and self.loops[earlier] is itself  # not taken back meanwhile
            if there and are_twins(self, earlier, index):
                loop.initial, loop.following, loop.stacked, loop.condition = [], [], [], None
                return results
        run = self._add("loop", (), index, BOOL, loop.outer)
        finals = [
            self._add("final", (run,), (index, k), self.dtypes[x], loop.outer)
            for k, x in enumerate(loop.following)
        ]
        others = range((loop.count or 1) - 1)
        rounds = [
            [
                *self._add_all(
                    "round", (run,), [(index, j, t) for t in others], self.dtypes[x], loop.outer
                ),
                finals[len(following) + j],
            ]
            for j, x in enumerate(stacked)
        ]
        results = finals[: len(following)], rounds
        alike.append((index, loop, results))
        return results

    def pin(self, scope: int, value: Id) -> Id:
        """A value kept in a scope: operations on it do not move out of the loop."""
        if self.ops[value] == "constant":
            return value
        return self._unique("pin", (value,), scope, self.dtypes[value], scope)

    # --- parts ---

    def room(self) -> int:
        """How many values there is room for: in a transaction, no more than in it."""
        return self._most - len(self.ops)

    @contextmanager
    def transaction(self, most: int) -> Iterator[None]:
        """Add at most `most` values, or none.

        Raises:
            TooLongError: there are more; the program is as before.
        """
        began, loops, scopes = len(self.ops), len(self.loops), len(self.depth)
        matrices, alike = len(self.matrices), len(self.alike)
        before, applied = self._most, self.applied
        self._most = min(before, began + most)
        try:
            yield
        except TooLongError:
            for values in (self.ops, self.args, self.attributes, self.dtypes, self.scopes):
                del values[began:]
            del self.loops[loops:], self.depth[scopes:], self.matrices[matrices:]
            del self.alike[alike:]
            for known in (self._known, self._constants):
                # The latest come last.
                while known and next(reversed(known.values())) >= began:
                    known.popitem()
            while self.units and next(reversed(self.units)) >= began:
                self.units.popitem()
            self._folds.clear()
            self.applied = applied
            raise
        finally:
            self._most = before

    def _fold(self, operation: Operation, args: tuple[Id, ...], dtype: np.dtype[Any] | None) -> Id:
        key = (operation.name, args, dtype)
        known = self._folds.get(key)
        if known is None:
            assert operation.fold is not None
            numbers = [self.attributes[a] for a in args]
            with np.errstate(all="ignore"):
                if operation.cast:
                    known = self.constant(operation.fold(numbers[0], dtype))
                else:
                    result = BOOL if operation.predicate else numbers[-1].dtype
                    known = self.constant(operation.fold(*numbers), result)
            self._folds[key] = known
        return known

    def _innermost(self, args: tuple[Id, ...]) -> int:
        if len(self.depth) == 1:
            return 0
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

    def _add_all(
        self,
        op: str,
        args: tuple[Id, ...],
        attributes: Sequence[Any],
        dtype: np.dtype[Any],
        scope: int,
    ) -> list[Id]:
        """Values that differ in their attributes."""
        begin, count = len(self.ops), len(attributes)
        if begin + count > self._most:
            self._refuse()
        self.ops += [op] * count
        self.args += [args] * count
        self.attributes += attributes
        self.dtypes += [dtype] * count
        self.scopes += [scope] * count
        return list(range(begin, begin + count))

    def _refuse(self) -> NoReturn:
        if self._most < self._largest:
            raise TooLongError
        raise BuildError(
            f"the program has more than {self._limit} scalar operations. Fuse a smaller "
            "function, of one environment, or pass backend='vmap'."
        )

    def _add(
        self, op: str, args: tuple[Id, ...], attribute: Any, dtype: np.dtype[Any], scope: int
    ) -> Id:
        new = len(self.ops)
        if new >= self._most:
            self._refuse()
        self.ops.append(op)
        self.args.append(args)
        self.attributes.append(attribute)
        self.dtypes.append(dtype)
        self.scopes.append(scope)
        return new


def live_values(program: Program, outputs: Sequence[Id]) -> np.ndarray:
    """The values (bool, by id) that the outputs need: all others are dead code."""
    alive, pending = bytearray(len(program.ops)), list(outputs)
    ops, args, loops = program.ops, program.args, program.loops
    while pending:
        x = pending.pop()
        if alive[x]:
            continue
        alive[x] = True
        pending += args[x]
        if ops[x] not in ("loop", "carry", "final", "round"):
            continue
        attribute = program.attributes[x]
        if ops[x] == "loop":
            condition = loops[attribute].condition
            pending += () if condition is None else (condition,)
            continue
        loop, k = loops[attribute[0]], attribute[1]
        if ops[x] == "carry":
            pending += loop.initial[k], loop.following[k]
        elif ops[x] == "round":
            pending.append(loop.stacked[k])
        else:
            pending.append(loop.following[k])
            if loop.condition is not None:  # it may end before its first round
                pending.append(loop.carries[k])
    return np.frombuffer(alive, bool)
