"""`fuse`: a function of one environment's small arrays as one kernel over a batch of them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap

from .errors import KernelError
from .executors import executor_for
from .kernel import kernel_for, nothing_collected, vmapped
from .traced import Traced, trace

F = TypeVar("F", bound=Callable[..., Any])

UNFUSED = {"xla_disable_hlo_passes": "fusion"}
"""XLA's fusion on the CPU computes shared subexpressions again for each of their users."""

BACKENDS = ("auto", "native", "pallas", "xla", "vmap")


def fuse(fn: Callable[..., Any], backend: str = "auto", in_axes: Any = 0) -> Callable[..., Any]:
    """`jax.vmap(fn)`, computed by one fused kernel over the batch, and jitted.

    Args:
        fn: a pure function of one environment's arrays.
        backend: "native" (LLVM, on the CPU), "pallas" (GPU), "xla" (anywhere), "vmap" (plain
            `jax.vmap`), or "auto" for the fastest there is. `FRAXENV_BACKEND` overrides "auto".
        in_axes: as in `jax.vmap`.

    Raises:
        KernelError: there is no such backend.
    """
    batch = jax.vmap(fusible(fn, backend), in_axes=in_axes)
    jitted, unfused = jax.jit(batch), jax.jit(batch, compiler_options=UNFUSED)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        inner = any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((args, kwargs)))
        # Only a program of its own can be compiled with options.
        if inner or resolve(backend) != "xla" or jax.default_backend() != "cpu":
            return jitted(*args, **kwargs)
        return unfused(*args, **kwargs)

    return call


def fusible(fn: F, backend: str = "auto") -> F:
    """`fn` itself, but that `jax.vmap` of it, at any depth and under `jit`, is one fused kernel.

    Calls that are not batched, and derivatives, take JAX's ordinary way.

    Args:
        fn: a pure function of one environment's arrays.
        backend: as in `fuse`.

    Raises:
        KernelError: there is no such backend.
    """
    check_backend(backend)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if resolve(backend) == "vmap":
            return fn(*args, **kwargs)
        with nothing_collected():
            traced, operands = trace(fn, args, kwargs)
        if traced.collective:
            return fn(*args, **kwargs)
        return traced.unflatten(_call(traced, resolve(backend))(*operands))

    return call  # type: ignore[return-value]


def check_backend(backend: str) -> None:
    """Raise KernelError if there is no such backend."""
    if backend not in BACKENDS:
        raise KernelError(f"backend={backend!r}, expected one of {', '.join(BACKENDS)}.")


def resolve(backend: str) -> str:
    """The backend that "auto" is here and now."""
    if backend != "auto":
        return backend
    chosen = os.environ.get("FRAXENV_BACKEND", "auto")
    if chosen not in BACKENDS:
        raise KernelError(f"FRAXENV_BACKEND={chosen!r}, expected one of {', '.join(BACKENDS)}.")
    return executor_for(jax.default_backend()) if chosen == "auto" else chosen


def _call(traced: Traced, backend: str) -> Callable[..., list[Array]]:
    """The traced function with its rules: for `vmap` a kernel, for derivatives JAX's own."""

    @custom_vmap
    def fused(*operands: Any) -> list[Array]:
        return traced(*operands)

    @fused.def_vmap
    def _(size: int, batched: list[bool], *operands: Any) -> tuple[list[Array], list[bool]]:
        results = _batched(traced, backend, tuple(batched), size)(*operands)
        return results, [True] * len(results)

    @jax.custom_jvp
    def call(*operands: Any) -> list[Array]:
        results: list[Array] = fused(*operands)
        return results

    @call.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return jax.jvp(traced, primals, tangents)

    return call


def _batched(
    traced: Traced, backend: str, batched: tuple[bool, ...], size: int
) -> Callable[..., list[Array]]:
    """The kernel for a batch of that size; a `vmap` around it makes the batch larger."""

    @custom_vmap
    def run(*operands: Array) -> list[Array]:
        return kernel_for(traced, batched, backend)(size, *operands)

    def merge(outer: int, also: list[bool], *operands: Array) -> tuple[list[Array], list[bool]]:
        merged = []
        for x, inner_batched, outer_batched in zip(operands, batched, also, strict=True):
            if inner_batched and not outer_batched:
                x = jnp.broadcast_to(x, (outer, *x.shape))
            elif outer_batched and not inner_batched:
                x = jnp.broadcast_to(x[:, None], (outer, size, *x.shape[1:]))
            if inner_batched or outer_batched:
                x = x.reshape(outer * size, *x.shape[2:])
            merged.append(x)
        flags = tuple(a or b for a, b in zip(batched, also, strict=True))
        results = _batched(traced, backend, flags, outer * size)(*merged)
        return [r.reshape(outer, size, *r.shape[1:]) for r in results], [True] * len(results)

    # Within another kernel there is no kernel of its own.
    merge.plain = vmapped(traced, batched, size)  # type: ignore[attr-defined]
    run.def_vmap(merge)
    return run
