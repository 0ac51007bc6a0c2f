"""Partial evaluation of a jaxpr on arrays of scalar values.

Small arrays become NumPy arrays of ids; what only moves elements about happens here, once, and
leaves no trace in the program (Jones, Gomard and Sestoft, "Partial Evaluation and Automatic
Program Generation", 1993, chapter 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.extend import core

from .buffer import Buffer, is_key, key_shape
from .errors import BetterOutsideError, BuildError, TooLongError, UnsupportedError
from .program import Id, IdArray, Program
from .rules.registry import CARRYING, COMPUTED, RULES, STRUCTURAL

UNBATCHED = frozenset({"reduce", "reduce_window"})
"""Primitives that JAX batches only if some operands are not; outside a kernel all of them are."""


class Ids(np.ndarray):
    """An array of values, told apart from an array of numbers."""


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
    products: bool = False,
    alone: bool = False,
) -> PartialEvaluation:
    """Partially evaluate a traced function for one environment.

    Args:
        traced: its `jaxpr`, `operands`, `consts` and `times`; see `fuse.Traced`.
        batched: whether each operand differs between environments.
        platform: "cpu", "gpu" or "tpu", for functions that depend on it.
        expand: as in `Program`.
        products: as in `Program`.
        alone: as in `Program`.
    """
    jaxpr = traced.jaxpr
    buffers = [Buffer.of(a, b) for a, b in zip(traced.operands, batched, strict=True)]
    program = Program(expand, traced.times, products, alone)
    evaluator = Evaluator(PartialEvaluation(program, buffers), platform)
    consts, inputs = traced.consts([evaluator.read(i) for i in range(len(buffers))])
    result = evaluator.result
    result.outputs = evaluator.run(jaxpr, consts, inputs)
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

    def read(self, index: int) -> IdArray:
        """The elements of a buffer."""
        buffer = self.result.buffers[index]
        size = int(np.prod(buffer.shape))
        ids = [self.program.input(index, k, buffer.dtype) for k in range(size)]
        return np.array(ids, int).reshape(buffer.shape).view(Ids)

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
            if isinstance(atom, core.Literal):
                aval: Any = atom.aval  # the value may be a Python number
                return self.program.constants(np.asarray(atom.val, aval.dtype))
            return values[atom]

        for equation in jaxpr.eqns:
            outputs = self.equation(equation, [value(x) for x in equation.invars])
            values.update(zip(equation.outvars, outputs, strict=True))
        return [value(x) for x in jaxpr.outvars]

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
        name = equation.primitive.name
        rule = RULES.get(name)
        if rule is None:
            raise UnsupportedError(f"{name!r} has no rule")
        if name not in CARRYING:
            _check_computed(name, (*equation.invars, *equation.outvars))
        keys = [v.aval.dtype for v in equation.invars if is_key(v.aval)]
        if keys and name in STRUCTURAL:
            return self._by_component(rule, equation, inputs, keys[0])
        outputs = rule(self, equation, *inputs)
        outputs = outputs if isinstance(outputs, list) else [outputs]
        self._check_results(equation, outputs)
        return outputs

    def _check_results(self, equation: Any, outputs: Sequence[IdArray]) -> None:
        """Raise UnsupportedError where a rule knew less than it thought, of a newer JAX's say."""
        for variable, output in zip(equation.outvars, outputs, strict=True):
            made = Buffer.of(variable.aval, True)
            if output.shape != made.shape:
                raise UnsupportedError(f"{equation.primitive.name!r} to a shape of {made.shape}")
            if output.size and self.dtype(int(output.flat[0])) != made.dtype:
                raise UnsupportedError(f"{equation.primitive.name!r} to {made.dtype}")

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
            made.equations, self.scope = equations, scope
            raise

    def map(self, op: str, *arrays: IdArray, dtype: Any = None) -> IdArray:
        """An elementwise operation."""
        apply = self.program.apply
        first, *rest = arrays
        if any(x.shape != first.shape for x in rest):
            first, *rest = np.broadcast_arrays(*arrays)
        flat = zip(first.ravel().tolist(), *(x.ravel().tolist() for x in rest), strict=True)
        if self.program.alone:
            ids = self._noted(first.shape, (apply(op, *a, dtype=dtype) for a in flat))
        elif dtype is None:
            ids = [apply(op, *a) for a in flat]
        else:
            ids = [apply(op, *a, dtype=dtype) for a in flat]
        return np.array(ids, int).reshape(first.shape)

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


def _check_computed(name: str, variables: Sequence[Any]) -> None:
    """Raise UnsupportedError if a kernel cannot compute with one of the dtypes."""
    for variable in variables:
        dtype = getattr(variable.aval, "dtype", None)
        if dtype is not None and not is_key(variable.aval) and dtype not in COMPUTED:
            raise UnsupportedError(f"{name!r} of {dtype}")
