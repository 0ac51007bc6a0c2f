"""Products and sums that round once: where, and that nothing else decides it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fraxenv import fuse
from fraxenv.kernels.native import cpu

pytestmark = [
    pytest.mark.cpu,
    pytest.mark.skipif(
        not cpu.multiplies_and_adds(), reason="this processor has no such operation"
    ),
]

RNG = np.random.default_rng(0)
X, Y, Z = RNG.normal(size=(3, 1000)).astype(np.float32)


def exactly(x: Any, y: Any, z: Any) -> Any:
    """`x y + z`, rounded once: products of float32 are exact in float64, sums nearly always."""
    return (x.astype(np.float64) * y + z.astype(np.float64)).astype(np.float32)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda x, y, z: x * y + z, lambda x, y, z: exactly(x, y, z)),
        (lambda x, y, z: z + y * x, lambda x, y, z: exactly(x, y, z)),
        (lambda x, y, z: x * y - z, lambda x, y, z: exactly(x, y, -z)),
        (lambda x, y, z: z - x * y, lambda x, y, z: exactly(-x, y, z)),
    ],
)
def test_a_product_that_one_sum_needs_is_not_rounded(fn: Any, expected: Any) -> None:
    right = expected(X, Y, Z)
    assert (right != fn(X, Y, Z)).sum() > 50
    assert np.array_equal(np.asarray(fuse(fn)(X, Y, Z)), right)


def test_a_product_that_others_need_is_rounded_for_all() -> None:
    def both(x: Any, y: Any, z: Any) -> Any:
        product = x * y
        return product + z, product

    found, product = (np.asarray(r) for r in fuse(both)(X, Y, Z))
    assert np.array_equal(product, X * Y)
    assert np.array_equal(found, X * Y + Z)


def test_width_of_vectors_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where functions are cut depends on it: loops whose lanes are refilled, rare branches."""

    def fn(x: Any, y: Any, z: Any) -> Any:
        def turn(carry: Any) -> Any:
            k, a = carry
            return k + 1, a * y + jnp.sin(a) * z

        k, a = lax.while_loop(lambda c: (c[0] < 30) & (jnp.abs(c[1]) > 0.1), turn, (0, x))
        return lax.cond(a > 0.05, lambda: jnp.sqrt(a) * y + z * a, lambda: a * z - y), k

    usual = [np.asarray(r) for r in fuse(fn)(X, Y, Z)]
    assert len(np.unique(usual[1])) > 10
    for width in (16, 32):
        if width < cpu.vector_bytes():
            with monkeypatch.context() as patch:
                patch.setattr(cpu, "vector_bytes", lambda width=width: width)
                narrow = [np.asarray(r) for r in fuse(lambda *xs: fn(*xs))(X, Y, Z)]
            assert all(map(np.array_equal, narrow, usual))
