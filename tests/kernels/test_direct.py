"""Machine code that Python calls by itself."""

from __future__ import annotations

import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv import fuse
from fraxenv.kernels import KernelWarning, direct
from fraxenv.kernels.native import cache

pytestmark = pytest.mark.cpu


class State(NamedTuple):
    """What a step returns, of all kinds of numbers."""

    x: Any
    count: Any
    going: Any


def step(x: Any, n: Any, matrix: Any) -> tuple[Any, State]:
    """A rare branch that calls the C library, a loop, integers and bools."""
    y = jax.lax.fori_loop(0, 4, lambda k, y: jnp.sin(matrix @ y) + 1e6 * (x[0] > 1.5), x)
    return jnp.outer(y, x), State(y, n + 3, jnp.sum(y) > 0)


def given(rng: np.random.Generator, dtype: Any = np.float32) -> tuple[Any, ...]:
    return (
        rng.normal(size=3).astype(dtype),
        np.int32(rng.integers(9)),
        rng.normal(size=(3, 3)).astype(dtype),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_are_the_kernels(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    with jax.enable_x64(dtype == np.float64):
        rows = [given(rng, dtype) for _ in range(200)]
        batch = [np.stack([row[k] for row in rows]) for k in range(3)]
        expected = jax.tree.map(np.asarray, fuse(step)(*batch))
        compiled = direct(step)
        for k, row in enumerate(rows):
            found = compiled(*row)
            assert isinstance(found[1], State)
            for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
                assert isinstance(a, np.ndarray)
                assert (a.dtype, a.shape) == (b.dtype, b.shape[1:])
                np.testing.assert_array_equal(a, b[k])
    assert (batch[0][:, 0] > 1.5).any()


def test_subnormal_numbers_are_what_they_are_in_a_kernel() -> None:
    def halved(x: Any) -> Any:
        return x / 2, x * 1e20

    x = np.array([1.5e-38, 1e-40, -1e-45, 1.0], np.float32)
    found, expected = direct(halved)(x), fuse(halved)(x[None])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, np.asarray(b)[0])
    assert found[0][0] == 0
    assert np.float32(1.5e-38) / np.float32(2) > 0  # the thread is as it was


def test_results_are_the_callers_own() -> None:
    compiled = direct(lambda x: (x, 2 * x))
    x = np.ones(3, np.float32)
    first = compiled(x)
    x[:] = 5
    second = compiled(x)
    np.testing.assert_array_equal(first[0], np.ones(3))
    np.testing.assert_array_equal(first[1], 2 * np.ones(3))
    first[0][:] = 7
    np.testing.assert_array_equal(compiled(x)[0], second[0])


def test_threads_do_not_meet() -> None:
    compiled = direct(lambda x: jax.lax.fori_loop(0, 5000, lambda k, y: jnp.sin(y) + x, x))
    xs = [np.full(3, k, np.float32) for k in range(8)]
    alone = [compiled(x) for x in xs]

    def often(k: int) -> bool:
        return all(np.array_equal(compiled(xs[k]), alone[k]) for _ in range(30))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(often, range(8)))


def test_numbers_are_taken_as_jax_takes_them() -> None:
    compiled = direct(lambda x, n: x * n)
    found = compiled(np.arange(3.0), np.int64(2))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [0, 2, 4])
    np.testing.assert_array_equal(compiled(np.ones((2, 2)), np.int64(3)), np.full((2, 2), 3.0))
    np.testing.assert_array_equal(compiled(np.arange(3), np.int64(2)), [0, 2, 4])
    with pytest.raises(TypeError):
        compiled(np.ones(3))


def test_what_no_kernel_computes_is_jaxs() -> None:
    def spectrum(x: Any) -> Any:
        return jnp.abs(jnp.fft.fft(x))

    compiled = direct(spectrum)
    with pytest.warns(KernelWarning, match="spectrum: no machine code"):
        found = compiled(np.ones(4))
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, [4, 0, 0, 0], atol=1e-6)
    compiled(np.ones(4))  # told once


def test_code_stays_as_long_as_the_function() -> None:
    functions = [direct(lambda x, k=k: jnp.sin(x) + k) for k in range(5)]
    x = np.float32([0.5])
    for k, compiled in enumerate(functions):
        compiled(x)
        gc.collect()
        np.testing.assert_allclose(compiled(x), np.sin(x) + k, rtol=1e-6)


def test_another_process_finds_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAXENV_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("FRAXENV_CACHE", raising=False)
    program = """
import sys, numpy as np, jax.numpy as jnp
from fraxenv.kernels import direct
from fraxenv.kernels.native import single
if sys.argv[1] == "again":
    single.write_module = None
print(direct(lambda x: jnp.tanh(x) * 3)(np.float32([0.25, 1])).tobytes().hex())
"""
    found = [
        subprocess.run([sys.executable, "-c", program, word], capture_output=True, text=True)
        for word in ("first", "again")
    ]
    assert [run.returncode for run in found] == [0, 0], found[1].stderr
    assert found[0].stdout == found[1].stdout
    (kept,) = tmp_path.glob("*.o")
    kept.write_bytes(kept.read_bytes()[:-1])  # torn: it is made anew
    assert cache.load(kept.stem) is None
    torn = subprocess.run([sys.executable, "-c", program, "again"], capture_output=True, text=True)
    assert "'NoneType' object is not callable" in torn.stderr
