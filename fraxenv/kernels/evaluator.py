"""Partial evaluation of a jaxpr on arrays of scalar values.

Small arrays become NumPy arrays of ids; what only moves elements about happens here, once, and
leaves no trace in the program (Jones, Gomard and Sestoft, "Partial Evaluation and Automatic
Program Generation", 1993, chapter 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core

from .buffer import WIDE, Buffer, is_key, key_shape
from .errors import BetterOutsideError, BuildError, TooLongError, UnsupportedError
from .program import ELEMENT, Id, IdArray, Program, Row
from .rules.registry import CARRYING, COMPUTED, HANDING_ON, RULES, STRUCTURAL

UNBATCHED = frozenset({"reduce", "reduce_window"})
"""Primitives that JAX batches only if some operands are not; outside a kernel all of them are."""


LARGE_ARRAY = 128
"""Numbers of an array from which on an executor with loops over arrays has one."""

MAPPED = frozenset({"add", "sub", "mul", "div", "neg"})
"""What such loops compute."""


class Ids(np.ndarray):
    """An array of values, told apart from an array of numbers."""


class Unread(Ids):
    """An array of places in a wide input, which are values of the program once they are computed
    with: of the hundreds of thousands that a scan goes over, a round has those of one row.

    Attributes:
        number: of the input.
    """

    number: int

    def __array_finalize__(self, whole: Any) -> None:
        self.number = getattr(whole, "number", -1)


@dataclass(frozen=True)
class Fallback:
    """An equation that is computed outside the kernel, batched by JAX.

    Attributes:
        equation: the equation.
        operands: its operands' values.
        first_buffer: index of the buffer of its first result.
        reason: the reason why it is not in the kernel.
        shared: of each operand that all environments share, the number of the buffer that it is.
        faster: whether that is faster.
    """

    equation: Any
    operands: tuple[IdArray, ...]
    first_buffer: int
    reason: str
    shared: tuple[int | None, ...]
    faster: bool


@dataclass
class PartialEvaluation:
    """The result of partial evaluation.

    Attributes:
        program: the scalar program.
        buffers: its inputs: the function's arguments, then the fallbacks' results.
        fallbacks: the equations outside the kernel, in the order in which they have to run.
        outputs: the values of each result.
        results: each result as a buffer: its shape and dtype.
        equations: number of equations of the function and its inner calls.
    """

    program: Program
    buffers: list[Buffer]
    fallbacks: list[Fallback] = field(default_factory=list)
    outputs: list[IdArray] = field(default_factory=list)
    results: list[Buffer] = field(default_factory=list)
    equations: int = 0


def partially_evaluate(
    traced: Any,
    batched: Sequence[bool],
    platform: str,
    expand: Callable[..., Id | None] | None = None,
    whole: Collection[str] = (),
    alone: bool = False,
) -> PartialEvaluation:
    """Partially evaluate a traced function for one environment.

    Args:
        traced: its `jaxpr`, `operands`, `consts` and `times`; see `fuse.Traced`.
        batched: whether each operand differs between environments.
        platform: "cpu", "gpu" or "tpu", for functions that depend on it.
        expand: as in `Program`.
        whole: as in `Program`.
        alone: as in `Program`.
    """
    jaxpr = traced.jaxpr
    buffers = [Buffer.of(a, b) for a, b in zip(traced.operands, batched, strict=True)]
    arrays = *traced.operands, *traced.results
    if not any(math.prod(x.shape) > WIDE for x in arrays):
        # All that is computed is in registers, which products of matrices would have to leave.
        whole = [op for op in whole if op != "matmul"]
    program = Program(expand, traced.times, whole, alone)
    evaluator = Evaluator(PartialEvaluation(program, buffers), platform)
    consts, inputs = traced.consts([evaluator.read(i) for i in range(len(buffers))])
    result = evaluator.result
    result.outputs = [evaluator.values(x) for x in evaluator.run(jaxpr, consts, inputs)]
    result.results = [Buffer.of(v.aval, True) for v in jaxpr.outvars]
    return result


class Evaluator:
    """Runs equations on arrays of values; see `partially_evaluate`.

    Attributes:
        result: the buffers, fallbacks and program so far.
        program: the program under construction.
        platform: as in `partially_evaluate`.
        scope: the scope of the program that is being built.
    """

    def __init__(self, result: PartialEvaluation, platform: str) -> None:
        self.result = result
        self.program = result.program
        self.platform = platform
        self.scope = 0
        self._rules: dict[int, _Rule] = {}
        self._literals: dict[int, tuple[Any, IdArray]] = {}
        self._some_unread = False

    def read(self, index: int) -> IdArray:
        """The elements of a buffer; `Unread` ones of a wide one, where the executor can do so."""
        buffer = self.result.buffers[index]
        size = buffer.size
        if size > WIDE and ELEMENT in self.program.whole:
            self.program.expect(size)
            self._some_unread = True
            places = np.arange(size).reshape(buffer.shape).view(Unread)
            places.number = index
            return places
        ids = self.program.inputs(index, size, buffer.dtype)
        return np.array(ids, int).reshape(buffer.shape).view(Ids)

    def values(self, x: IdArray) -> IdArray:
        """An array's values, which of an `Unread` one are asked for now."""
        if type(x) is not Unread:
            return x
        dtype = self.result.buffers[x.number].dtype
        ids = [self.program.input(x.number, k, dtype) for k in x.ravel().tolist()]
        return np.array(ids, int).reshape(x.shape)

    def row(self, index: Id, x: IdArray) -> IdArray:
        """`x[index]`, of an index in range that is the same in every lane."""
        rows = np.asarray(x).reshape(len(x), -1)
        if type(x) is Unread:
            steps = rows[1] - rows[0]
            if np.all(np.diff(rows, axis=0) == steps):
                dtype = self.result.buffers[x.number].dtype
                places = zip(rows[0].tolist(), steps.tolist(), strict=True)
                found = [self.program.element(index, Row(x.number, *p), dtype) for p in places]
                return np.array(found, int).reshape(x.shape[1:])
            rows = self.values(x).reshape(len(x), -1)
        found = [self.program.lookup(index, column) for column in rows.T.tolist()]
        return np.array(found, int).reshape(x.shape[1:])

    def array(self, value: Any) -> IdArray:
        """A known array."""
        if is_key(value):
            with jax.ensure_compile_time_eval():
                value = jax.random.key_data(value)
        return self.program.constants(np.asarray(value))

    def closed(self, closed: Any, args: Sequence[IdArray]) -> list[IdArray]:
        """Run a closed jaxpr."""
        return self.run(closed.jaxpr, closed.consts, args)

    def run(self, jaxpr: Any, consts: Sequence[Any], args: Sequence[IdArray]) -> list[IdArray]:
        """Run a jaxpr's equations."""
        values: dict[Any, IdArray] = dict(zip(jaxpr.invars, args, strict=True))
        for variable, const in zip(jaxpr.constvars, consts, strict=True):
            values[variable] = const if isinstance(const, Ids) else self.array(const)

        def value(atom: Any) -> IdArray:
            return self._literal(atom) if isinstance(atom, core.Literal) else values[atom]

        for equation in jaxpr.eqns:
            outputs = self.equation(equation, [value(x) for x in equation.invars])
            values.update(zip(equation.outvars, outputs, strict=True))
        return [value(x) for x in jaxpr.outvars]

    def _literal(self, atom: Any) -> IdArray:
        known = self._literals.get(id(atom))
        if known is None:
            # Its dtype is that of the abstract value: it may be a Python number.
            known = atom, self.program.constants(np.asarray(atom.val, _held_as(atom.aval.dtype)))
            self._literals[id(atom)] = known
        return known[1]

    def equation(self, equation: Any, inputs: list[IdArray]) -> list[IdArray]:
        """Run one equation: by its rule, or outside the kernel."""
        self.result.equations += 1
        try:
            return self._by_rule(equation, inputs)
        except UnsupportedError as error:
            # Within a loop there is no outside: the whole loop goes there.
            if self.scope != 0:
                raise
            return self._outside(equation, inputs, error)

    def _by_rule(self, equation: Any, inputs: list[IdArray]) -> list[IdArray]:
        # Of a loop that is unrolled, the same equation again and again.
        known = self._rules.get(id(equation))
        if known is None:
            known = self._rules[id(equation)] = _Rule.of(equation)
        if self._some_unread and not known.hands_on:
            inputs = [self.values(x) for x in inputs]
        if known.key is not None:
            return self._by_component(known.apply, equation, inputs, known.key)
        outputs = known.apply(self, equation, *inputs)
        outputs = outputs if isinstance(outputs, list) else [outputs]
        # A rule may know less than it thinks, of a newer JAX's say.
        for (shape, dtype), output in zip(known.results, outputs, strict=True):
            if output.shape != shape:
                raise UnsupportedError(f"{equation.primitive.name!r} to a shape of {shape}")
            if type(output) is Unread:
                continue
            if output.size and self.program.dtypes[output.item(0)] != dtype:
                raise UnsupportedError(f"{equation.primitive.name!r} to {dtype}")
        return outputs

    def _by_component(
        self, rule: Any, equation: Any, inputs: list[IdArray], key: Any
    ) -> list[IdArray]:
        """Apply a structural rule to typed keys, word by word."""
        words = int(np.prod(key_shape(key)))

        def component(x: IdArray, variable: Any, k: int) -> IdArray:
            if not is_key(variable.aval):
                return x
            return x.reshape(*variable.aval.shape, words)[..., k]

        outputs = []
        for k in range(words):
            parts = [component(x, v, k) for x, v in zip(inputs, equation.invars, strict=True)]
            result = rule(self, equation, *parts)
            outputs.append(result if isinstance(result, list) else [result])
        return [
            np.stack(parts, axis=-1).reshape(*parts[0].shape, *key_shape(key))
            for parts in zip(*outputs, strict=True)
        ]

    def _outside(
        self, equation: Any, inputs: list[IdArray], error: UnsupportedError
    ) -> list[IdArray]:
        if equation.primitive.name in UNBATCHED:
            raise BuildError(f"{error}, and JAX cannot batch its initial values")
        inputs = [self.values(x) for x in inputs]
        first = len(self.result.buffers)
        self.result.buffers.extend(Buffer.of(v.aval, True) for v in equation.outvars)
        shared = tuple(map(self.shared, inputs))
        faster = isinstance(error, BetterOutsideError)
        made = Fallback(equation, tuple(inputs), first, str(error), shared, faster)
        self.result.fallbacks.append(made)
        return [self.read(first + k) for k in range(len(equation.outvars))]

    # --- for rules ---

    def shared(self, x: IdArray) -> int | None:
        """The number of the buffer that an array is, if all environments share that."""
        program = self.program
        if not x.size or program.ops[int(x.flat[0])] != "input":
            return None
        number, _ = program.attributes[int(x.flat[0])]
        buffer = self.result.buffers[number]
        if buffer.batched or buffer.key is not None or buffer.shape != x.shape:
            return None
        same = all(
            program.ops[i] == "input" and program.attributes[i] == (number, k)
            for k, i in enumerate(x.ravel().tolist())
        )
        return number if same else None

    @contextmanager
    def transaction(self, most: int) -> Iterator[None]:
        """As `Program.transaction`, with the buffers and fallbacks."""
        made = self.result
        buffers, fallbacks, equations = len(made.buffers), len(made.fallbacks), made.equations
        scope = self.scope
        try:
            with self.program.transaction(most):
                yield
        except TooLongError:
            del made.buffers[buffers:], made.fallbacks[fallbacks:]
            self._literals.clear()
            made.equations, self.scope = equations, scope
            raise

    def map(self, op: str, *arrays: IdArray, dtype: Any = None) -> IdArray:
        """An elementwise operation."""
        apply = self.program.apply
        shape = arrays[0].shape
        for x in arrays[1:]:
            if x.shape != shape:
                arrays = np.broadcast_arrays(*arrays)
                shape = arrays[0].shape
                break
        if op in MAPPED and self._is_large(arrays):
            return self._mapped(op, arrays)
        if not shape and not self.program.alone:
            return np.array(apply(op, *[x.item() for x in arrays], dtype=dtype))
        flat = zip(*[x.ravel().tolist() for x in arrays], strict=True)
        if self.program.alone:
            ids = self._noted(shape, (apply(op, *a, dtype=dtype) for a in flat))
        elif op in ("mul", "add", "sub") and arrays[0].size:
            ids = self._with_zeros(op, flat)
        elif op == "select":
            ids = self._selected(flat)
        else:
            ids = [apply(op, *a, dtype=dtype) for a in flat]
        return np.array(ids, int).reshape(shape)

    def _with_zeros(self, op: str, pairs: Iterable[tuple[Id, Id]]) -> list[Id]:
        """As `apply`, which need not be asked of the zeros that most of an array may be."""
        p, ids = self.program, []
        apply, ops, zero = p.apply, p.ops, None
        for x, y in pairs:
            if zero is None:
                zero = p.constant(0, p.dtypes[x])
            if y == zero and (x == zero or ops[x] != "constant"):
                p.applied += 1
                ids.append(zero if op == "mul" else x)
            elif x == zero and op != "sub" and ops[y] != "constant":
                p.applied += 1
                ids.append(zero if op == "mul" else y)
            else:
                ids.append(apply(op, x, y))
        return ids

    def _selected(self, triples: Iterable[tuple[Id, Id, Id]]) -> list[Id]:
        """As `apply`, which need not be asked where the condition is known: most are masks."""
        p = self.program
        ops, numbers, apply = p.ops, p.attributes, p.apply
        ids = []
        for c, x, y in triples:
            if ops[c] == "constant":
                p.applied += 1
                ids.append(x if numbers[c] else y)
            else:
                ids.append(apply("select", c, x, y))
        return ids

    def _is_large(self, arrays: Sequence[IdArray]) -> bool:
        """Whether what is computed of arrays is a loop over them."""
        if "map" not in self.program.whole or arrays[0].size < LARGE_ARRAY:
            return False
        ops = self.program.ops
        some = any(ops[i] != "constant" for x in arrays for i in x.ravel().tolist())
        return some and self.dtype(int(arrays[0].flat[0])).kind == "f"

    def _mapped(self, op: str, arrays: Sequence[IdArray]) -> IdArray:
        shape = arrays[0].shape
        flat = math.prod(shape[:-1]), shape[-1]
        one = [x.ravel()[:1] if np.all(x == x.flat[0]) else x for x in arrays]
        return self.program.map(op, one, flat).reshape(shape)

    def _noted(self, shape: tuple[int, ...], computed: Iterator[Id]) -> list[Id]:
        """Note which values the elements of an array are computed by, one step after another."""
        ops = self.program.ops
        ids, ends = [], [len(ops)]
        for x in computed:
            ids.append(x)
            ends.append(len(ops))
        begins, sizes = np.array(ends[:-1]), np.diff(ends)
        if sizes.any():
            usual = int(np.bincount(sizes[sizes > 0]).argmax())
            for step in range(usual):
                alike = np.where(sizes == usual, begins + step, -1)
                self.program.alike.append(alike.reshape(shape))
        return ids

    def full(self, shape: tuple[int, ...], number: Any, dtype: Any) -> IdArray:
        """An array of one number."""
        return np.full(shape, self.program.constant(number, np.dtype(dtype)))

    def dtype(self, x: Id) -> np.dtype[Any]:
        """The dtype of a value."""
        return self.program.dtypes[x]


def _held_as(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Tangents of integers, which are nothing, are False: they are only handed on."""
    return np.dtype(bool) if dtype == jax.dtypes.float0 else dtype


class _Rule(NamedTuple):
    """How an equation is evaluated.

    Attributes:
        equation: the equation, kept, so that no other has its `id`.
        apply: its rule.
        key: the dtype of its typed keys, of which the rule is applied to word by word; or None.
        hands_on: whether it may hand on operands that are `Unread`.
        results: shape and dtype of each result.
    """

    equation: Any
    apply: Any
    key: Any
    hands_on: bool
    results: list[tuple[tuple[int, ...], np.dtype[Any]]]

    @staticmethod
    def of(equation: Any) -> _Rule:
        """An equation's.

        Raises:
            UnsupportedError: there is none.
        """
        name = equation.primitive.name
        rule = RULES.get(name)
        if rule is None:
            raise UnsupportedError(f"{name!r} has no rule")
        if name not in CARRYING:
            _check_computed(name, (*equation.invars, *equation.outvars))
        keys = [v.aval.dtype for v in equation.invars if is_key(v.aval)]
        key = keys[0] if keys and name in STRUCTURAL else None
        results = [Buffer.of(v.aval, True) for v in equation.outvars]
        hands_on = name in HANDING_ON and key is None
        return _Rule(equation, rule, key, hands_on, [(b.shape, _held_as(b.dtype)) for b in results])


def _check_computed(name: str, variables: Sequence[Any]) -> None:
    """Raise UnsupportedError if a kernel cannot compute with one of the dtypes."""
    for variable in variables:
        dtype = getattr(variable.aval, "dtype", None)
        if dtype is not None and not is_key(variable.aval) and dtype not in COMPUTED:
            raise UnsupportedError(f"{name!r} of {dtype}")
