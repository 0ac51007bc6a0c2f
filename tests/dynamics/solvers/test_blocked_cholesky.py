"""Cholesky's factor by blocks, beside NumPy's solutions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv.dynamics.solvers.blocked_cholesky import (
    BLOCK,
    blocked_cholesky,
    blocked_cholesky_solve,
)


@pytest.mark.parametrize("n", [1, BLOCK, BLOCK + 1, 25, 40])
def test_solutions_are_numpys(n: int) -> None:
    rng = np.random.default_rng(n)
    root = rng.normal(size=(n, n))
    matrix, rhs = root @ root.T + 0.1 * np.eye(n), rng.normal(size=(n, 3))
    with jax.enable_x64(True):
        factor = blocked_cholesky(jnp.asarray(matrix))
        found = blocked_cholesky_solve(factor, jnp.asarray(rhs))
    assert max(len(x) for x in factor.inverses) <= BLOCK
    assert len(factor.inverses) == -(-n // BLOCK)
    expected = np.linalg.solve(matrix, rhs)
    tolerance = 1e-15 * np.linalg.cond(matrix) * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, 0, tolerance)


def test_only_positive_definite_matrices_have_a_factor() -> None:
    matrix = jnp.eye(20).at[13, 13].set(-1e-3)
    assert any(bool(jnp.isnan(x).any()) for x in blocked_cholesky(matrix).inverses)
