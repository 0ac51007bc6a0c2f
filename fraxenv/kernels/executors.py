"""The executors, and the choice of one for a platform."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from . import pallas, xla
from .errors import KernelError, KernelWarning
from .native import executor as native
from .native import mathlib
from .program import ELEMENT


@dataclass(frozen=True)
class Executor:
    """A way to run a scalar program.

    Attributes:
        build: compiles a program to a function; see `native.executor.build`.
        expand: the expansion of elementary functions into basic operations, if it needs one.
        recall: what `build` made of a function of this fingerprint before; see `native.executor`.
        whole: the operations on whole arrays, and in wide ones, that it has on a CPU; see
            `program.WHOLE` and `program.ELEMENT`.
    """

    build: Callable[..., Any]
    expand: Callable[..., Any] | None = None
    recall: Callable[..., Any] | None = None
    whole: tuple[str, ...] = ()


ONE = "one"
"""The executor of functions of one environment with large matrices, where many are computed one
after the other. It does not round what it computes of arrays as others do."""

FEW, MANY = 4, 8192
"""Environments that are computed one after the other where each has so many numbers: as vectors of
environments, most of them empty, they would not fit the cache."""

EXECUTORS = {
    "native": Executor(native.build, mathlib.expand, native.recall, ("product", "matmul")),
    "few": Executor(
        functools.partial(native.build, one_by_one="few"),
        mathlib.expand,
        functools.partial(native.recall, one_by_one="few"),
        ("product", "matmul", ELEMENT),
    ),
    ONE: Executor(
        functools.partial(native.build, one_by_one=ONE),
        mathlib.expand,
        functools.partial(native.recall, one_by_one=ONE),
        ("product", "matmul", "map", ELEMENT),
    ),
    "xla": Executor(xla.build),
    "pallas": Executor(pallas.build),
}


def default_platform() -> str:
    """Where JAX computes what is not told where: "cpu", "gpu" or "tpu"."""
    device = jax.config.values["jax_default_device"]
    return getattr(device, "platform", device) or jax.default_backend()


def executor_for(platform: str) -> str:
    """The fastest executor on a platform: "cpu", "gpu" or "tpu"."""
    if platform == "cpu":
        # XLA's fusion on the CPU computes shared subexpressions again and again: a scalar program
        # within somebody's `jit` would be slower than what it replaces.
        return "native" if _native_works(platform) else "vmap"
    if platform == "gpu":
        return "native" if _native_works(platform) else "pallas"
    return "xla"


def executor_of(backend: str, platform: str, size: int, numbers: int) -> str:
    """The executor of a batch.

    Args:
        backend: resolved.
        platform: "cpu", "gpu" or "tpu".
        size: of the batch.
        numbers: of each environment, operands and results.
    """
    if backend == ONE and platform != "cpu":
        return executor_for(platform)
    few = backend == "native" and platform == "cpu" and size <= FEW and numbers >= MANY
    return "few" if few else backend


def slower(backend: str, platform: str) -> tuple[str, ...]:
    """The backends to try, in this order, where an executor cannot build a kernel."""
    if backend in ("native", "pallas") and platform != "cpu":
        return ("xla", "vmap")
    return ("vmap",) if backend != "vmap" else ()


@functools.cache
def _native_works(platform: str) -> bool:
    """Whether the native executor passes a test on this machine; says why if it does not."""
    reason = native.available()
    if reason is None:
        try:
            reason = _self_test(platform)
        except KernelError:
            raise
        except Exception as error:
            reason = f"its self-test failed: {error}"
    if reason is not None:
        warnings.warn(
            f"Kernels are not compiled for this {platform.upper()}, and run many "
            f"times slower: {reason}",
            KernelWarning,
            stacklevel=2,
        )
    return reason is None


def _self_test(platform: str) -> str | None:
    """Run a small kernel; None, or the failure."""
    from .evaluator import partially_evaluate
    from .traced import Traced

    def fn(x: Any, scale: Any) -> Any:
        return jax.numpy.sum(x * scale + 1.0), x > 0

    x = np.linspace(-1, 1, 19 * 5, dtype=np.float32).reshape(19, 5)
    scale = np.float32(3)
    with jax.ensure_compile_time_eval(), jax.default_device(jax.local_devices(backend=platform)[0]):
        closed = jax.make_jaxpr(fn)(x[0], scale)
        made = partially_evaluate(
            Traced("test", closed, None), (True, False), platform, mathlib.expand
        )
        run, _ = native.build(made.program, made.buffers, made.outputs, made.results, platform)
        total, positive = (np.asarray(r) for r in jax.jit(run, static_argnums=0)(19, x, scale))
    right = np.allclose(total, (x * scale + 1).sum(1), rtol=1e-5)
    if not (right and np.array_equal(positive, x > 0)):
        return "its self-test gave wrong numbers"
    return None
