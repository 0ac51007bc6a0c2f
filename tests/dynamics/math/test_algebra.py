"""Determinants and smallest entries against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from fraxenv.dynamics.math import algebra


@pytest.mark.parametrize("n", [3, 6])
def test_determinant(n: int, x64: None) -> None:
    matrices = np.random.default_rng(n).normal(size=(20, n, n))
    result = jax.jit(jax.vmap(algebra.determinant))(matrices)
    np.testing.assert_allclose(result, np.linalg.det(matrices), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [3, 6])
def test_determinants_of_singular_matrices_have_derivatives(n: int, x64: None) -> None:
    """Of a matrix without rank in one row and column only, that is one there, and nowhere else."""
    matrix = np.eye(n)
    matrix[-1, -1] = 0
    expected = np.zeros((n, n))
    expected[-1, -1] = 1
    np.testing.assert_array_equal(jax.jit(jax.grad(algebra.determinant))(matrix), expected)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13])
def test_smallest(n: int) -> None:
    x = np.random.default_rng(n).normal(size=(4, 3, n)).astype(np.float32)
    value, index = jax.jit(algebra.smallest)(x)
    np.testing.assert_array_equal(value, x.min(axis=-1))
    np.testing.assert_array_equal(index, x.argmin(axis=-1))


def test_the_first_of_equal_entries_is_the_smallest() -> None:
    _, index = jax.jit(algebra.smallest)(np.array([[2.0, 1.0, 1.0], [3.0, 3.0, 3.0]]))
    assert index.tolist() == [1, 0]


def test_symmetric_products_multiply_little_twice() -> None:
    """Of strips of eight rows, what is below the diagonal of their first columns."""
    rng = np.random.default_rng(0)
    a, weights = rng.normal(size=(6, 43)), rng.uniform(1, 2, 6)
    b = weights[:, None] * a
    found = jax.jit(lambda a, b: algebra.mirrored(algebra.symmetric_product(a, b)))(a, b)
    np.testing.assert_allclose(found, a.T @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found, found.T)
    equations = jax.make_jaxpr(algebra.symmetric_product.__wrapped__)(a, b).eqns
    sizes = [e.outvars[0].aval.size for e in _within(equations) if "dot" in e.primitive.name]
    assert 43 * 44 / 2 <= sum(sizes) <= 43 * 44 / 2 + 43 * 7 / 2


def _within(equations: list[Any]) -> Iterator[Any]:
    """All equations, those of functions that are called among them."""
    for equation in equations:
        yield equation
        inner = equation.params.get("jaxpr")
        if inner is not None:
            yield from _within(inner.eqns)
