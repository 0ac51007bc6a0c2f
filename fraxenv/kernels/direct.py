"""Functions of one environment that Python calls by itself: machine code, and no XLA around it.

A call of any program of JAX takes 9 us on a CPU, and one of these 2.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from .errors import BuildError, KernelWarning
from .evaluator import partially_evaluate
from .fingerprint import fingerprint
from .kernel import nothing_collected
from .native import cache, cpu, mathlib, single
from .traced import Traced, trace

_NAME = "direct"

_FLUSHED = {
    "x86_64": """
define void @direct(ptr %in, ptr %out) {
  %before = alloca i32
  %meanwhile = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %before)
  %usual = load i32, ptr %before
  %flushing = or i32 %usual, 32832
  store i32 %flushing, ptr %meanwhile
  call void @llvm.x86.sse.ldmxcsr(ptr %meanwhile)
  call void @computed(ptr %in, ptr %out)
  call void @llvm.x86.sse.ldmxcsr(ptr %before)
  ret void
}
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
""",
    "aarch64": """
define void @direct(ptr %in, ptr %out) {
  %before = call i64 @llvm.aarch64.get.fpcr()
  %flushing = or i64 %before, 16777216
  call void @llvm.aarch64.set.fpcr(i64 %flushing)
  call void @computed(ptr %in, ptr %out)
  call void @llvm.aarch64.set.fpcr(i64 %before)
  ret void
}
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
""",
}
"""Subnormal numbers are zero meanwhile, as XLA has them where it calls a kernel."""

_ROOM = "\n@room = global i64 1\n"
"""A variable: llvmlite's memory has room for the addresses of the C library's functions only where
there is memory that may be written."""

Numbers = NDArray[Any]


def direct(
    fn: Callable[..., Any], otherwise: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """A pure function of arrays as one of NumPy's arrays, computed on this CPU.

    Compiled anew for arrays of other shapes or dtypes, which are those that JAX would make of them.
    The results are new arrays, with the bits of the kernel that `fuse` makes. Threads may call it
    side by side.

    Args:
        fn: the function.
        otherwise: what is called where no kernel can compute it. By default `jax.jit` of it, and a
            `KernelWarning` says why.
    """
    made: dict[Any, Callable[..., Any]] = {}

    def called(*args: Numbers) -> Any:
        kind = tuple([(x.shape, x.dtype.char) for x in args])
        found = made.get(kind)
        if found is None:
            found = made[kind] = _compiled(fn, args, otherwise)
        return found(*args)

    return called


class Entry(NamedTuple):
    """A function as C calls it: `void (const void *const *in, void *const *out)`.

    Attributes:
        address: of its machine code, which is there as long as the engine.
        engine: has it in memory.
        taken: arrays like its arguments.
        results: arrays like its results.
        unflatten: the results as the function returns them.
    """

    address: int
    engine: Any
    taken: list[Numbers]
    results: list[Numbers]
    unflatten: Callable[[Sequence[Any]], Any]


def entry(fn: Callable[..., Any], args: Sequence[Numbers]) -> Entry:
    """A pure function of arrays for C, which calls it by its address; see `direct`.

    Args:
        fn: the function.
        args: arrays like its arguments.

    Raises:
        BuildError: no kernel can compute it.
    """
    taken = [np.empty(x.shape, jax.dtypes.canonicalize_dtype(x.dtype)) for x in args]
    with nothing_collected():
        traced, _ = trace(fn, taken, {})
        engine = cpu.loaded(_machine_code(traced, len(taken)))
    results = [np.empty(x.shape, x.dtype) for x in traced.results]
    address = engine.get_function_address(_NAME)
    return Entry(address, engine, taken, results, traced.unflatten)


def assembled(text: str) -> Any:
    """An engine that has functions in memory which are given in LLVM's own language.

    Raises:
        BuildError: LLVM refuses.
    """
    return cpu.loaded(single.object_code(text + _ROOM, single.target_named("native")))


def _compiled(
    fn: Callable[..., Any], args: Sequence[Numbers], otherwise: Callable[..., Any] | None
) -> Callable[..., Any]:
    try:
        made = entry(fn, args)
    except BuildError as error:
        if otherwise is not None:
            return otherwise
        told = (
            f"{getattr(fn, '__name__', fn)}: no machine code of its own, JAX computes it: {error}"
        )
        warnings.warn(told, KernelWarning, stacklevel=4)
        program = jax.jit(fn)
        return lambda *args: jax.tree.map(np.asarray, program(*args))
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(made.address)
    room = _Room(made.taken, made.results)
    numbers: list[Any] = list(range(len(made.results)))
    # As most functions return: without JAX, which takes as long as all the rest here.
    as_they_are = made.unflatten(numbers) == tuple(numbers)

    def run(*args: Numbers, _kept: Any = made.engine) -> Any:
        for here, x in zip(room.taken, args, strict=True):
            here[...] = x
        function(*room.places)
        found: list[Any] = [x.copy() for x in room.results]
        return tuple(found) if as_they_are else made.unflatten(found)

    return run


class _Room(threading.local):
    """Where machine code finds arguments and leaves results, of each thread its own."""

    def __init__(self, taken: Sequence[Numbers], results: Sequence[Numbers]) -> None:
        self.taken, self.results = ([np.empty_like(x) for x in xs] for xs in (taken, results))
        self._tables = [
            (ctypes.c_void_p * len(xs))(*(x.ctypes.data for x in xs))
            for xs in (self.taken, self.results)
        ]
        self.places = [ctypes.addressof(table) for table in self._tables]


def _machine_code(traced: Traced, operands: int) -> bytes:
    flags = (True,) * operands
    known = fingerprint(traced, flags, "cpu")
    told = None if known is None else "\n".join((known, *cpu.host(), _NAME))
    digest = None if told is None else hashlib.sha256(told.encode()).hexdigest()
    code = None if digest is None else cache.load(digest)
    if code is None:
        made = partially_evaluate(
            traced, flags, "cpu", mathlib.expand, whole=("product", "matmul"), alone=True
        )
        for fallback in made.fallbacks:
            raise BuildError(
                f"{traced.name} has {fallback.equation.primitive.name!r} in it, which no kernel "
                f"has: {fallback.reason}"
            )
        dtypes = [result.dtype for result in made.results]
        function = single.Function("computed", made.program, made.buffers, made.outputs, dtypes)
        target = single.target_named("native")
        processor = target.triple.partition("-")[0].replace("arm64", "aarch64")
        if processor not in _FLUSHED:
            raise BuildError(f"there is none for {processor}")
        text = single.write_module([function], target) + _FLUSHED[processor] + _ROOM
        code = single.object_code(text, target)
        if digest is not None:
            cache.save(digest, code)
    return code
