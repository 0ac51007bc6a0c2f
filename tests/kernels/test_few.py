"""A few environments with many numbers each: computed one after the other, to the same bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support import with_slow

from fraxenv.kernels import explain, fuse
from fraxenv.kernels.executors import FEW, MANY

pytestmark = pytest.mark.cpu


def smoothed(x: Array, gain: Array) -> tuple[Array, Array]:
    """Forwards and back, with a branch and elementary functions."""

    def on(carry: Array, x: Array) -> tuple[Array, Array]:
        new = jax.lax.cond(
            carry[0] > 1.0, lambda c: 0.5 * c, lambda c: jnp.sin(c) + gain * x, carry
        )
        return new, new / (1.0 + new * new)

    last, forwards = jax.lax.scan(on, x[0], x)
    return jax.lax.scan(on, last, forwards, reverse=True)


@pytest.mark.parametrize("dtype", with_slow([np.float32, np.float64], np.float64))
def test_the_bits_are_those_of_many(dtype: type) -> None:
    with jax.enable_x64(dtype is np.float64):
        rounds = MANY // 8
        x = jnp.asarray(np.random.default_rng(0).normal(size=(FEW + 1, rounds, 4)), dtype)
        gain = jnp.linspace(0.5, 2.0, FEW + 1, dtype=dtype)
        many = fuse(smoothed)(x, gain)
        for size in (1, FEW):
            few = fuse(smoothed)(x[:size], gain[:size])
            jax.tree.map(lambda a, b, n=size: np.testing.assert_array_equal(a, b[:n]), few, many)
        assert explain(smoothed)(x, gain).vector > 1
        assert explain(smoothed)(x[:FEW], gain[:FEW]).vector == 1


def test_few_numbers_share_the_kernel_of_many() -> None:
    x, gain = jnp.ones((1, 8, 4)), jnp.ones(1)
    assert explain(smoothed)(x, gain).vector > 1
