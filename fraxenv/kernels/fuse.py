"""`fuse`: a function of one environment's small arrays as one kernel over a batch of them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

import jax

from .errors import KernelError
from .executors import ONE, default_platform, executor_for
from .kernel import nothing_collected
from .primitive import bind
from .traced import trace

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
        if inner or resolve(backend) != "xla" or default_platform() != "cpu":
            return jitted(*args, **kwargs)
        return unfused(*args, **kwargs)

    return call


def fusible(fn: F, backend: str = "auto") -> F:
    """`fn` itself, but that `jax.vmap` of it, at any depth and under `jit`, is one fused kernel.

    So are its derivatives, forwards and in reverse, of any order; calls that are not batched take
    JAX's ordinary way.

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
        return traced.unflatten(bind(traced, resolve(backend), operands))

    return call  # type: ignore[return-value]


def check_backend(backend: str) -> None:
    """Raise KernelError if there is no such backend."""
    if backend not in (*BACKENDS, ONE):
        raise KernelError(f"backend={backend!r}, expected one of {', '.join(BACKENDS)}.")


def resolve(backend: str) -> str:
    """The backend that "auto" is here and now."""
    if backend != "auto":
        return backend
    chosen = os.environ.get("FRAXENV_BACKEND", "auto")
    if chosen not in BACKENDS:
        raise KernelError(f"FRAXENV_BACKEND={chosen!r}, expected one of {', '.join(BACKENDS)}.")
    return executor_for(default_platform()) if chosen == "auto" else chosen
