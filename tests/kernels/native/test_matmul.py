"""Products of two matrices: loops have the bits of sums taken one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from fraxenv.kernels import fuse
from fraxenv.kernels.fuse import trace
from fraxenv.kernels.kernel import Kernel, kernel_for
from fraxenv.kernels.native import cpu, executor, module
from fraxenv.kernels.rules import products

pytestmark = pytest.mark.cpu

RNG = np.random.default_rng(0)


def one(a: Any, b: Any) -> Any:
    return a @ b


def several(a: Any, b: Any) -> Any:
    """Results of products, transposed, in parts and again, as factors of others."""
    c = a @ b
    return c, c.T @ a, ((b + 1) @ a)[2:11] @ b[:, 1:14], jnp.tanh(c) @ c.T


def of_batches(a: Any, b: Any) -> Any:
    return jnp.stack([a, 2 * a]) @ jnp.stack([b, b[:, ::-1]])


def with_zeros(a: Any, b: Any) -> Any:
    """A third of the numbers is known to be zero."""
    return a @ b.at[: len(b) // 3].set(0)


def in_a_loop(a: Any, b: Any) -> Any:
    def turn(c: Any, t: Any) -> Any:
        c = (a @ b) @ c / 20 + t
        return c, c[0]

    return lax.scan(turn, a @ b, jnp.arange(3.0, dtype=a.dtype))


def as_long_as_it_takes(a: Any, b: Any) -> Any:
    return lax.while_loop(lambda c: jnp.max(jnp.abs(c)) > 1.0, lambda c: 0.02 * (a @ b) @ c, a @ b)


def in_a_branch(a: Any, b: Any) -> Any:
    return lax.cond(a[0, 0] > 0.0, lambda: a @ b, lambda: b @ a)


def kernel(
    monkeypatch: pytest.MonkeyPatch, fn: Callable[..., Any], xs: Any, backend: str, whole: bool
) -> tuple[list[np.ndarray], Kernel]:
    """Results of a batch, and the kernel, with or without loops over matrices."""
    with monkeypatch.context() as patch:
        if not whole:
            patch.setattr(products, "DENSE", 10**9)
            patch.setattr(products, "IN_MEMORY", 10**9)
        patch.setattr(executor.cache, "load", lambda *_: None)  # else both would be the same one
        traced, operands = trace(fn, tuple(x[0] for x in xs), {})
        made = kernel_for(traced, (True,) * len(operands), backend, "cpu")
        assert made.backend == backend
        return [np.asarray(y) for y in made(len(xs[0]), *xs)], made


def kinds(made: Kernel) -> set[str]:
    assert made.evaluation is not None
    return set(made.evaluation.program.ops)


@pytest.fixture(params=[True, False], ids=["joined", "apart"])
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that multiplies and adds in one operation, and one that does not."""
    if not request.param:
        monkeypatch.setattr(cpu, "multiplies_and_adds", lambda: False)


def check_the_bits(
    fn: Callable[..., Any], n: int, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of loops over matrices (n, n), and of sums one by one."""
    xs = RNG.normal(size=(2, 19, n, n)).astype(np.float32)
    loops, made = kernel(monkeypatch, fn, xs, backend, True)
    plain, other = kernel(monkeypatch, fn, xs, backend, False)
    assert "matmul" in kinds(made)
    assert "matmul" not in kinds(other)
    for x, y in zip(loops, plain, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("backend", ["native", "few"])
@pytest.mark.parametrize(("fn", "n"), [(one, 23), (of_batches, 17)])
def test_a_loop_has_the_bits_of_sums_one_by_one(
    fn: Callable[..., Any], n: int, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_the_bits(fn, n, backend, monkeypatch)


@pytest.mark.parametrize("backend", ["native", "few"])
def test_loops_over_results_of_loops_have_them_too(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_the_bits(several, 23, backend, monkeypatch)


@pytest.mark.parametrize("fn", [with_zeros, in_a_loop, as_long_as_it_takes, in_a_branch, several])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_are_those_of_jax(fn: Callable[..., Any], dtype: type) -> None:
    with jax.enable_x64(True):
        xs = jnp.asarray(RNG.normal(size=(2, 11, 24, 24)), dtype)
        found, expected = fuse(fn)(*xs), jax.vmap(fn)(*xs.astype(float))
        tolerance = 1e-12 if dtype is np.float64 else 2e-4
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, tolerance, tolerance), found, expected
        )


@settings(max_examples=9, deadline=None)
@given(*(st.integers(1, n) for n in (40, 40, 24)), st.sampled_from([np.float32, np.float64]))
def test_sizes_need_not_be_those_of_blocks(m: int, n: int, k: int, dtype: type) -> None:
    with jax.enable_x64(True):
        a, b = (jnp.asarray(RNG.normal(size=(5, *s)), dtype) for s in ((m, k), (k, n)))
        tolerance = 1e-13 if dtype is np.float64 else 1e-5
        for backend in ("native", "one"):
            found = fuse(one, backend)(a, b)
            expected = np.asarray(a, float) @ np.asarray(b, float)
            np.testing.assert_allclose(found, expected, tolerance, 10 * tolerance)


@pytest.mark.parametrize("backend", ["native", "few"])
def test_products_with_a_vector_are_loops_over_what_is_in_memory(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fn(a: Any, x: Any) -> Any:
        return a @ x, (x + 1) @ a, a.T @ jnp.tanh(x)

    a = RNG.normal(size=(9, 30, 30)).astype(np.float32)
    x = RNG.normal(size=(9, 30)).astype(np.float32)
    loops, made = kernel(monkeypatch, fn, (a, x), backend, True)
    plain, _ = kernel(monkeypatch, fn, (a, x), backend, False)
    assert "matmul" in kinds(made)
    for u, v in zip(loops, plain, strict=True):
        np.testing.assert_array_equal(u, v)


def test_lanes_stay_apart() -> None:
    xs = jnp.asarray(RNG.normal(size=(2, 20, 24, 24)), jnp.float32)
    worse = xs.at[0, 7, 3, 4].set(jnp.nan)
    well, ill = fuse(several)(*xs), fuse(several)(*worse)
    others = np.arange(20) != 7
    for x, y in zip(well, ill, strict=True):
        np.testing.assert_array_equal(x[others], y[others])
        assert np.isnan(y[7]).any()


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules that are written meanwhile."""
    found: list[str] = []
    write = cpu.write_module

    def noted(*args: Any, **kwargs: Any) -> Any:
        made = write(*args, **kwargs)
        found.append(made.text)
        return made

    monkeypatch.setattr(cpu, "write_module", noted)
    monkeypatch.setattr(executor.cache, "load", lambda *_: None)
    return found


def test_a_module_does_not_grow_with_the_products(text: list[str]) -> None:
    x = jnp.asarray(RNG.normal(size=(2, 3, 24, 24)), jnp.float32)
    fuse(lambda a, b: a @ (b @ (a @ b)))(*x)
    # 41 472 products and as many sums; 1 152 inputs, 576 results.
    assert text[-1].count("\n") < 12_000


def test_with_registers_that_are_chosen_here(
    monkeypatch: pytest.MonkeyPatch, text: list[str]
) -> None:
    x = RNG.normal(size=(2, 19, 23, 23)).astype(np.float32)
    plain, _ = kernel(monkeypatch, several, x, "native", True)
    monkeypatch.setattr(module, "LONG", 0)
    chosen, _ = kernel(monkeypatch, several, x, "native", True)
    assert text[-1].startswith(module.CHOSEN)
    for u, v in zip(chosen, plain, strict=True):
        np.testing.assert_array_equal(u, v)
