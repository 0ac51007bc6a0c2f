"""Functions of one environment with large arrays: loops over them in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array, lax

from fraxenv.kernels import explain, fuse
from fraxenv.kernels.executors import ONE, executor_for, executor_of

pytestmark = pytest.mark.cpu

RNG = np.random.default_rng(0)


def views(x: Array, y: Array) -> Any:
    """Parts, turned, side by side, one below the other, of one value, and of known numbers."""
    n = len(x)
    wide = jnp.concatenate([x, -y.T], axis=1)
    tall = jnp.concatenate([x[::-1], jnp.zeros_like(y), y[:, ::-1]])
    known = jnp.arange(n * n, dtype=x.dtype).reshape(n, n)
    return (
        wide * wide[:, :1] - wide[0],
        tall / (2.0 + x[0, 0] * x[0, 0]) + tall,
        x.T + known,
        known * y[1, 2] - jnp.eye(n, dtype=x.dtype),
        (wide[:, 3 : n + 3] + x[n // 2]) * y[:, None, 0],
        wide[::2, 1::2] + wide[1::2, ::2] if n % 2 == 0 else wide,
    )


def handed_on(x: Array, y: Array) -> Any:
    """What rounds hand on changes places."""

    def turn(carry: tuple[Array, Array, Array], t: Array) -> Any:
        a, b, s = carry
        return (b, a - 0.1 * t * b, s + a[0, 0]), (a[1], b + t)

    return lax.scan(turn, (x, y, x[0, 1]), jnp.arange(5.0, dtype=x.dtype))


def as_it_is(x: Array, y: Array) -> Any:
    """Results that are operands, and of the same shape as others."""
    return x + y, x, y, y - x


def recursion(x: Array, y: Array) -> Any:
    """Like a plan's gains: a loop over knots whose numbers are looked up, from the last to the
    first."""
    A = jnp.stack([x, y, x - y, 0.5 * x])

    def knot(P: Array, at: Any) -> Any:
        A, t = at
        P = A.T @ P @ A * 0.01 + t * jnp.eye(len(x), dtype=x.dtype)
        return 0.5 * (P + P.T), P @ A[:, 0]

    return lax.scan(knot, x @ x.T, (A, jnp.arange(4.0, dtype=x.dtype)), reverse=True)


@pytest.mark.parametrize("fn", [views, handed_on, as_it_is, recursion])
@pytest.mark.parametrize(("n", "dtype"), [(12, np.float64), (13, np.float64), (25, np.float32)])
def test_results_are_those_of_jax(fn: Callable[..., Any], n: int, dtype: type) -> None:
    with jax.enable_x64(True):
        xs = jnp.asarray(RNG.normal(size=(2, 3, n, n)), dtype)
        found, expected = fuse(fn, ONE)(*xs), jax.vmap(fn)(*xs.astype(float))
        tolerance = 1e-11 if dtype is np.float64 else 2e-4
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, tolerance, tolerance), found, expected
        )
        about = explain(fn, ONE)(*xs)
    assert about.backend == ONE
    assert about.vector == 1
    assert "map" in about.kinds


@settings(max_examples=7, deadline=None)
@given(st.integers(12, 30), st.integers(8, 30), st.data())
def test_any_part_of_a_matrix_is_found_in_memory(m: int, n: int, data: Any) -> None:
    def cut(size: int) -> slice:
        begin = data.draw(st.integers(0, size - 3))
        return slice(begin, data.draw(st.integers(begin + 3, size)), data.draw(st.integers(1, 2)))

    rows, columns, turned = cut(m), cut(n), data.draw(st.booleans())

    def fn(x: Array, y: Array) -> Array:
        part = (x * y)[rows, columns]
        part = part.T if turned else part
        return jnp.tile(part, (12, 12)) + 1.0 - jnp.repeat(jnp.repeat(part, 12, 0), 12, 1)

    with jax.enable_x64(True):
        xs = jnp.asarray(RNG.normal(size=(2, 2, m, n)))
        np.testing.assert_allclose(fuse(fn, ONE)(*xs), jax.vmap(fn)(*xs), 1e-15, 1e-15)


def test_environments_are_computed_apart() -> None:
    xs = jnp.asarray(RNG.normal(size=(2, 9, 13, 13)), jnp.float32)
    many = fuse(recursion, ONE)(*xs)
    for k in range(9):
        alone = fuse(recursion, ONE)(*xs[:, k : k + 1])
        jax.tree.map(lambda a, b, k=k: np.testing.assert_array_equal(a[0], b[k]), alone, many)
    ill = fuse(recursion, ONE)(*xs.at[1, 4].set(jnp.inf))
    others = np.arange(9) != 4
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[others], b[others]), ill, many)


def test_small_arrays_are_taken_apart() -> None:
    x = jnp.ones((1, 5, 5))
    assert "map" not in explain(as_it_is, ONE)(x, x).kinds


def test_elsewhere_than_on_a_cpu_it_is_the_usual_executor() -> None:
    assert executor_of(ONE, "cpu", 1, 10) == ONE
    assert executor_of(ONE, "tpu", 1, 10) == executor_for("tpu")
