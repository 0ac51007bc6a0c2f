"""A digest of all that a kernel follows from, so that it is found again before it is made.

Partial evaluation and code are functions of the equations, their numbers, what JAX is set to, and
the text of this package. Whatever a parameter holds that is not known here to be told by its value
makes the function one without a fingerprint: never are two that differ taken for the same.

A derivative follows from the function that it is one of, from the rules that this function brings
along (`jax.custom_jvp`), and from JAX: it need not be traced to be found.
"""

from __future__ import annotations

import enum
import functools
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
from jax.extend import core

from .buffer import is_key
from .derivatives import Derivative
from .traced import Traced, scan_counts

_INNER = ("jaxpr", "call_jaxpr", "call", "fun_jaxpr")

_CALLS = frozenset({
    "jit", "pjit", "closed_call", "core_call", "eval_jaxpr", "remat2", "checkpoint",
    "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_vmap_call",
})  # fmt: skip
"""Primitives of whose parameters the rules read nothing but the function that is called."""


def fingerprint(traced: Traced, batched: Sequence[bool], platform: str) -> str | None:
    """The same for the same kernel, in every process; None where that cannot be told.

    Args:
        traced: the function.
        batched: whether each operand differs between environments.
        platform: as in `partially_evaluate`.
    """
    sources = _sources()
    if sources is None:
        return None
    config: Any = jax.config
    flags = bool(config.jax_enable_x64), bool(config.jax_threefry_partitionable)
    versions = jax.__version__, jaxlib.version.__version__, np.__version__
    try:
        text = _Writer().function(traced)
    except _UntoldError:
        return None
    parts = (sources, versions, flags, platform, tuple(batched), text)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


class _UntoldError(Exception):
    """A parameter is not known by its value."""


@functools.cache
def _sources() -> str | None:
    """Digest of this package's text; None where it is kept without."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    files = sorted(folder.rglob("*.py"))
    for path in files:
        digest.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest() if files else None


@functools.cache
def _is_builtin(implementation: Any) -> bool:
    """Whether an implementation of random keys is the one that JAX has under that name."""
    try:
        named = jax.eval_shape(lambda: jax.random.key(0, impl=implementation.name))
    except (TypeError, ValueError):
        return False
    return bool(named.dtype._impl == implementation)


def _text(info: Any) -> str:
    """Digest of the file that a function is from."""
    try:
        return hashlib.sha256(Path(info.func_filename).read_bytes()).hexdigest()
    except (AttributeError, OSError, TypeError) as error:
        raise _UntoldError from error


class _Writer:
    """Writes values as nested tuples whose `repr` differs wherever they do."""

    def __init__(self) -> None:
        # Functions that several equations call are written once. The jaxprs are kept, lest
        # another one gets the same id.
        self._jaxprs: dict[tuple[int, int], tuple[Any, str]] = {}
        # How often what is written will be differentiated.
        self._order = 0

    def function(self, traced: Traced) -> Any:
        """A function, or a derivative by what it is one of."""
        if isinstance(traced, Derivative):
            try:
                with self._differentiated(1):
                    return traced.name, traced.flags, self.function(traced.function)
            except _UntoldError:
                pass  # its equations may tell
        known = [None if c is None else self.told(c) for c in traced.known]
        return known, self.jaxpr(traced.jaxpr)

    @contextmanager
    def _differentiated(self, times: int) -> Iterator[None]:
        self._order += times
        try:
            yield
        finally:
            self._order -= times

    def told(self, x: Any) -> Any:
        """A parameter, or a constant."""
        kind = type(x)
        if x is None or kind in (bool, int, float, str):
            return x
        if hasattr(x, "key_shape"):
            return self._implementation(x)
        if kind in (tuple, list):
            return (kind.__name__, *map(self.told, x))
        if isinstance(x, tuple):  # a named one
            return (kind.__qualname__, *map(self.told, x))
        if isinstance(x, enum.Enum):
            return (kind.__qualname__, x.name)
        if isinstance(x, core.ClosedJaxpr):
            return (self.jaxpr(x.jaxpr), *map(self.told, x.consts))
        if isinstance(x, core.Jaxpr):
            return self.jaxpr(x)
        if isinstance(x, (np.ndarray, np.generic, jax.Array)):
            return self._array(x)
        if isinstance(x, np.dtype) or hasattr(x, "_impl"):
            return self._dtype(x)
        if isinstance(x, jax.sharding.NamedSharding) and x.mesh.empty:
            return "over no devices"  # as batched conversions have it
        raise _UntoldError

    def _array(self, x: Any) -> Any:
        if isinstance(x, jax.core.Tracer):
            raise _UntoldError
        dtype = self._dtype(x.dtype)
        with jax.ensure_compile_time_eval():
            numbers = np.asarray(jax.random.key_data(x) if is_key(x) else x)
        return dtype, numbers.shape, hashlib.sha256(numbers.tobytes()).hexdigest()

    def _dtype(self, dtype: Any) -> Any:
        if isinstance(dtype, np.dtype):
            if dtype.kind == "O":
                raise _UntoldError
            return dtype.name, dtype.byteorder
        if not jnp.issubdtype(dtype, jax.dtypes.prng_key):
            raise _UntoldError
        return self._implementation(dtype._impl)

    def _implementation(self, implementation: Any) -> Any:
        if not _is_builtin(implementation):
            raise _UntoldError
        return "key", implementation.name

    def _aval(self, aval: Any) -> Any:
        return self._dtype(aval.dtype), self.told(tuple(aval.shape))

    def jaxpr(self, jaxpr: Any) -> str:
        """A digest of a jaxpr without its constants' numbers: variables by their order."""
        key = id(jaxpr), self._order
        if key in self._jaxprs:
            return self._jaxprs[key][1]
        numbers: dict[Any, int] = {}

        def defined(variable: Any) -> Any:
            numbers[variable] = len(numbers)
            return self._aval(variable.aval)

        def read(atom: Any) -> Any:
            if isinstance(atom, core.Literal):
                aval: Any = atom.aval  # the value may be a Python number
                dtype, number = self._dtype(aval.dtype), np.asarray(atom.val, aval.dtype)
                return "literal", dtype, number.shape, number.tobytes()
            return numbers[atom]

        written: list[Any] = [
            [defined(v) for v in jaxpr.constvars],
            [defined(v) for v in jaxpr.invars],
        ]
        for equation in jaxpr.eqns:
            inputs = [read(x) for x in equation.invars]
            outputs = [defined(v) for v in equation.outvars]
            written.append((equation.primitive.name, inputs, self._params(equation), outputs))
        written.append([read(x) for x in jaxpr.outvars])
        digest = hashlib.sha256(repr(written).encode()).hexdigest()
        self._jaxprs[key] = jaxpr, digest
        return digest

    def _params(self, equation: Any) -> Any:
        params, name = equation.params, equation.primitive.name
        if name == "fused":  # a kernel within this one
            call = params["call"]
            return self.function(call.traced), call.size, call.batched
        if name == "scan":  # its operands' and results' trees, in newer JAX
            read = {k: x for k, x in params.items() if k not in ("ft_in", "ft_out")}
            params = {**read, "counts": scan_counts(params)}
        if name not in _CALLS:
            return [(k, self.told(x)) for k, x in sorted(params.items())]
        called = [(k, self.told(params[k])) for k in _INNER if k in params]
        return (called, self._rule(equation)) if self._order else called

    def _rule(self, equation: Any) -> Any:
        """What the derivative of a call follows from besides the function that is called."""
        params, name = equation.params, equation.primitive.name
        if name in ("remat2", "checkpoint"):
            return self.told(params["policy"])
        if name == "custom_jvp_call":
            rule = getattr(params.get("jvp_jaxpr_fun"), "call_wrapped", None)
            if rule is None:
                raise _UntoldError
            # A rule that asks what moves can do otherwise elsewhere: its text says what.
            text = _text(rule.__self__.debug_info) if params["symbolic_zeros"] else None
            still = (False,) * (len(equation.invars) - params["num_consts"])
            jaxpr, consts, zero = rule(*still)
            with self._differentiated(-1):
                return params["num_consts"], text, self.jaxpr(jaxpr), self.told((consts, zero))
        if name not in ("jit", "pjit", "closed_call", "core_call", "eval_jaxpr"):
            raise _UntoldError
        return None
