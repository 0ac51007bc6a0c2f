"""Layers with quick gradients compute what flax's do."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv.training import dense


class Network(nn.Module):
    """Layers that become wider, as wide, narrower; one is without a bias."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.tanh(nn.Dense(12)(x))
        x = nn.tanh(nn.Dense(12, bias_init=nn.initializers.normal())(x))
        return nn.Dense(3)(nn.Dense(5, use_bias=False)(x))


@pytest.mark.parametrize("shape", [(32, 7), (4, 8, 7), (7,)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients_are_those_of_flax(shape: tuple[int, ...], dtype: Any) -> None:
    network, rng = Network(), np.random.default_rng(0)
    with jax.enable_x64(dtype == np.float64):
        x = jnp.asarray(rng.normal(size=shape), dtype)
        weights = network.init(jax.random.key(0), jnp.zeros(shape))
        weights = jax.tree.map(
            lambda w: w + jnp.asarray(rng.normal(size=w.shape), w.dtype), weights
        )

        def loss(weights: Any, x: Any) -> Any:
            return jnp.sum(network.apply(weights, x) ** 3)

        usual = jax.jit(jax.value_and_grad(loss, (0, 1)))(weights, x)

        @jax.jit
        def intercepted(weights: Any, x: Any) -> Any:
            with nn.intercept_methods(dense.quick_gradients):
                return jax.value_and_grad(loss, (0, 1))(weights, x)

        quick = intercepted(weights, x)
    assert jax.tree.map(lambda a: (a.shape, a.dtype), usual) == jax.tree.map(
        lambda a: (a.shape, a.dtype), quick
    )
    bound = 1e-12 if dtype == np.float64 else 2e-5
    for a, b in zip(jax.tree.leaves(usual), jax.tree.leaves(quick), strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=bound * np.abs(a).max())


def test_every_layer_of_rows_with_a_bias_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    affine = dense.affine

    def told(x: Any, kernel: Any, bias: Any) -> Any:
        seen.append(kernel.shape)
        return affine(x, kernel, bias)

    monkeypatch.setattr(dense, "affine", told)
    network, x = Network(), jnp.ones((4, 7))
    weights = network.init(jax.random.key(0), x)
    with nn.intercept_methods(dense.quick_gradients):
        network.apply(weights, x)
    assert seen == [(7, 12), (12, 12), (5, 3)]
