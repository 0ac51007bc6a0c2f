"""Kernels: a traced function compiled for a batch, part by part."""

from __future__ import annotations

import gc
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .buffer import Buffer, is_key
from .derivatives import Cotangent
from .errors import BuildError, KernelWarning
from .evaluator import Fallback, PartialEvaluation, partially_evaluate
from .executors import EXECUTORS, slower
from .fingerprint import fingerprint
from .rules import (  # noqa: F401 (they register themselves)
    calls,
    control,
    elementwise,
    indexing,
    linalg,
    order,
    products,
    random,
    structure,
)
from .sharding import shardable
from .traced import Traced, bind_equation

_lock = threading.RLock()


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Without Python's search for cycles, which goes through all of JAX's objects every time.

    A program is a million objects that stay, and would set it off again and again.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def kernel_for(traced: Traced, batched: tuple[bool, ...], backend: str, platform: str) -> Kernel:
    """The kernel of a traced function.

    Args:
        traced: the function.
        batched: whether each operand is.
        backend: the name of its executor.
        platform: what computes it: "cpu", "gpu" or "tpu".
    """
    with _lock:
        kernels, key = traced.kernels, (batched, backend, platform)
        if key not in kernels:
            with nothing_collected():
                kernels[key] = Kernel(traced, *key)
        return kernels[key]  # type: ignore[no-any-return]


class Kernel:
    """A traced function compiled for a batch.

    Attributes:
        backend: the name of its executor.
        parts: the executor's report on each part.
        seconds: of partial evaluation and compilation, s, without other kernels', nor LLVM's where
            nobody waits for it.
    """

    def __init__(
        self, traced: Traced, batched: tuple[bool, ...], backend: str, platform: str
    ) -> None:
        began = time.perf_counter()
        self._traced, self._flags, self._platform = traced, batched, platform
        self._evaluation: PartialEvaluation | None = None
        self._seconds_of_others = 0.0
        self.parts: list[dict[str, Any]] = []
        for self.backend in (backend, *slower(backend, platform)):
            try:
                self._build()
                break
            except BuildError as error:
                warnings.warn(
                    f"{traced.name}: no {self.backend!r} kernel, a slower way is taken: {error}",
                    KernelWarning,
                    stacklevel=2,
                )
        self.seconds = time.perf_counter() - began - self._seconds_of_others

    @property
    def evaluation(self) -> PartialEvaluation | None:
        """The scalar program; None where the function runs as it is."""
        if self._evaluation is None and self.backend != "vmap":
            executor, platform = EXECUTORS[self.backend], self._platform
            self._evaluation = partially_evaluate(
                self._traced,
                self._flags,
                platform,
                executor.expand,
                executor.whole if platform == "cpu" else (),
            )
        return self._evaluation

    def _build(self) -> None:
        self._evaluation = None
        self._steps: list[tuple[Any, list[Buffer], Fallback | None]] = []
        if self.backend == "vmap":
            return
        executor, traced, known = EXECUTORS[self.backend], self._traced, None
        if executor.recall is not None:
            known = fingerprint(traced, self._flags, self._platform)
        if known is not None and self._recall(executor.recall, known):
            return
        evaluation = self.evaluation
        assert evaluation is not None
        _tell_fallbacks(traced.name, evaluation.fallbacks)
        by_fingerprint = {"fingerprint": known} if known and not evaluation.fallbacks else {}
        parts: list[dict[str, Any]] = []
        steps: list[tuple[Any, list[Buffer], Fallback | None]] = []
        for fallback in (*evaluation.fallbacks, None):
            if fallback is None:
                count, outputs, results = (
                    len(evaluation.buffers), evaluation.outputs, evaluation.results
                )  # fmt: skip
            else:
                # What all environments share is handed over as it is.
                count, own = fallback.first_buffer, [k is None for k in fallback.shared]
                outputs = [x for x, o in zip(fallback.operands, own, strict=True) if o]
                operands = zip(fallback.equation.invars, own, strict=True)
                results = [Buffer.of(v.aval, True) for v, o in operands if o]
            run: Any = None
            if outputs:
                buffers = evaluation.buffers[:count]
                run, about = executor.build(
                    evaluation.program,
                    buffers,
                    outputs,
                    results,
                    self._platform,
                    **by_fingerprint,
                    **({"meanwhile": self._make_gradients} if self._gradients() else {}),
                )
                run = shardable(run, buffers, results)
                parts.append(about)
            steps.append((run, results, fallback))
        self.parts, self._steps = parts, steps

    def _gradients(self) -> list[tuple[Cotangent, tuple[bool, ...], str]]:
        """Calls of this function's cotangents so far: whoever traced them needs their kernels next.

        None of them where the executor does not compile beside Python.
        """
        if EXECUTORS[self.backend].recall is None:
            return []
        known = list(self._traced.derivatives.values())  # other threads may add to them
        found = [d for d in known if isinstance(d, Cotangent)]
        return [(d, *call) for d in found for call in tuple(d.calls)]

    def _make_gradients(self) -> None:
        """Make the kernels of `_gradients`."""
        began = time.perf_counter()
        for call in self._gradients():
            with suppress(Exception):  # it is raised again where the call is lowered
                kernel_for(*call, self._platform)
        self._seconds_of_others += time.perf_counter() - began

    def _recall(self, recall: Any, known: str) -> bool:
        """Take the kernel from the cache, if it is there, without making its program."""
        operands = zip(self._traced.operands, self._flags, strict=True)
        buffers = [Buffer.of(a, b) for a, b in operands]
        results = [Buffer.of(a, True) for a in self._traced.results]
        found = recall(known, results, self._platform)
        if found is not None:
            run, about = found
            self.parts = [about]
            self._steps = [(shardable(run, buffers, results), results, None)]
        return found is not None

    def __call__(self, size: int, *operands: Array) -> list[Array]:
        """Results for a batch of operands."""
        if self.backend == "vmap":
            return self._traced.vmapped(self._flags, size)(*operands)
        arrays = [jax.random.key_data(x) if is_key(x) else x for x in map(jnp.asarray, operands)]
        for run, results, fallback in self._steps:
            values = list(run(size, *arrays)) if run is not None else []
            values = [
                x if r.key is None else jax.random.wrap_key_data(x, impl=r.key._impl.name)
                for x, r in zip(values, results, strict=True)
            ]
            if fallback is None:
                return values
            outside = _outside(fallback, size, values, arrays)
            arrays += [jax.random.key_data(x) if is_key(x) else x for x in outside]
        raise AssertionError("the last step returns")  # pragma: no cover


def _outside(
    fallback: Fallback, size: int, own: Sequence[Array], arrays: Sequence[Array]
) -> list[Array]:
    """An equation's primitive on a batch.

    Args:
        fallback: the equation.
        size: of the batch.
        own: its operands that differ between environments.
        arrays: the buffers, of which the others are some.
    """
    following = iter(own)
    operands = [next(following) if k is None else arrays[k] for k in fallback.shared]
    axes = [0 if k is None else None for k in fallback.shared]
    batch: Any = jax.vmap(
        lambda *xs: bind_equation(fallback.equation, xs), in_axes=axes, axis_size=size
    )
    return list(batch(*operands))


_told: set[tuple[str, str]] = set()


def _tell_fallbacks(name: str, fallbacks: Sequence[Fallback]) -> None:
    for fallback in fallbacks:
        if not fallback.faster and (name, fallback.reason) not in _told:
            _told.add((name, fallback.reason))
            warnings.warn(
                f"{name}: {fallback.reason}, so {fallback.equation.primitive.name!r} is computed "
                "outside the fused kernel, which is right but slower.",
                KernelWarning,
                stacklevel=2,
            )
