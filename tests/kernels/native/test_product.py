"""Products with known matrices: loops have the bits of sums taken one by one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fraxenv.kernels.fuse import trace
from fraxenv.kernels.kernel import Kernel, kernel_for
from fraxenv.kernels.native import cpu, executor
from fraxenv.kernels.rules import products

pytestmark = pytest.mark.cpu

RNG = np.random.default_rng(0)
WIDE = RNG.normal(size=(37, 45)).astype(np.float32)
SQUARE = RNG.normal(size=(45, 45)).astype(np.float32) / 7


def layers(x: Any) -> Any:
    return SQUARE @ jnp.tanh(x @ WIDE) + WIDE[0]


def many_at_once(x: Any) -> Any:
    """Products of a matrix with a matrix, from either side."""
    several = jnp.stack([x, 2 * x, x**2])
    return several @ WIDE, WIDE.T @ several.T


def in_a_loop(x: Any) -> Any:
    """What a round hands to the next are entries, and what is kept of each."""

    def turn(y: Any, _: Any) -> Any:
        y = SQUARE @ y
        return y, y[:3]

    y = jnp.concatenate([x, x[:8]])
    return lax.scan(turn, y, None, 5)


def as_long_as_it_takes(x: Any) -> Any:
    y = jnp.concatenate([x, x[:8]])
    return lax.while_loop(lambda y: jnp.max(jnp.abs(y)) > 1.0, lambda y: SQUARE @ y / 2, y)


def in_a_branch(x: Any) -> Any:
    y = jnp.concatenate([x, x[:8]])
    return lax.cond(x[0] > 0.5, lambda: SQUARE @ (SQUARE @ y), lambda: 2 * y)


def made(
    monkeypatch: pytest.MonkeyPatch, fn: Callable[..., Any], x: Any, backend: str, whole: bool
) -> tuple[list[np.ndarray], Kernel]:
    """Results of a batch, and the kernel, with or without loops over matrices."""
    with monkeypatch.context() as patch:
        if not whole:
            patch.setattr(products, "LARGE_MATRIX", 10**9)
        patch.setattr(executor.cache, "load", lambda *_: None)  # else both would be the same one
        traced, operands = trace(fn, (x[0],), {})
        kernel = kernel_for(traced, (True,) * len(operands), backend, "cpu")
        assert kernel.backend == backend
        return [np.asarray(y) for y in kernel(len(x), x)], kernel


def cases() -> Iterator[Any]:
    """Each function as usual, and one of them in each other way; all others are slow tests."""
    functions = layers, in_a_loop, many_at_once, as_long_as_it_takes, in_a_branch
    ways = itertools.product(functions, (np.float32, np.float64), (True, False), ("native", "few"))
    for fn, dtype, joins, backend in ways:
        others = (dtype is np.float64) + (not joins) + (backend == "few")
        quick = others == 0 or (others == 1 and fn is in_a_loop)
        yield pytest.param(fn, dtype, joins, backend, marks=[] if quick else [pytest.mark.slow])


@pytest.mark.parametrize(("fn", "dtype", "joins", "backend"), list(cases()))
def test_a_loop_has_the_bits_of_sums(
    monkeypatch: pytest.MonkeyPatch,
    fn: Callable[..., Any],
    dtype: Any,
    joins: bool,
    backend: str,
) -> None:
    monkeypatch.setattr(cpu, "multiplies_and_adds", lambda: joins)
    with jax.enable_x64(dtype == np.float64):
        for name in ("WIDE", "SQUARE"):
            monkeypatch.setitem(globals(), name, globals()[name].astype(dtype))
        x = np.random.default_rng(1).normal(size=(19, 37)).astype(dtype)
        loops, kernel = made(monkeypatch, fn, x, backend, whole=True)
        sums, unrolled = made(monkeypatch, fn, x, backend, whole=False)
        expected = jax.tree.leaves(jax.vmap(fn)(x))
    assert kernel.evaluation is not None
    assert unrolled.evaluation is not None
    assert kernel.evaluation.program.matrices
    assert not unrolled.evaluation.program.matrices
    assert len(kernel.evaluation.program.ops) < len(unrolled.evaluation.program.ops)
    for a, b, c in zip(loops, sums, expected, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=0, atol=1e-4 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize(
    "matrix",
    [
        np.where(np.eye(45) > 0, 0, SQUARE),  # zeros are left out where every number is by itself
        SQUARE[:20],  # too small to matter
        SQUARE.astype(np.int32) + 1,
    ],
)
def test_others_stay_as_they_were(monkeypatch: pytest.MonkeyPatch, matrix: Any) -> None:
    x = np.arange(3 * 45, dtype=matrix.dtype).reshape(3, 45) / np.float32(7)
    x = x.astype(matrix.dtype)
    results, kernel = made(monkeypatch, lambda x: matrix @ x, x, "native", whole=True)
    assert kernel.evaluation is not None
    assert not kernel.evaluation.program.matrices
    np.testing.assert_allclose(results[0], x @ matrix.T, rtol=1e-4)
