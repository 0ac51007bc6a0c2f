"""Norms: their gradients and curvatures against those of their values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fraxenv import plan
from fraxenv.controllers.planning.norms import Norm, expansion
from fraxenv.errors import ConfigError

NORMS = {
    "quadratic": plan.quadratic(), "l2": plan.l2(0.1), "l22": plan.l22(0.2, 3.0),
    "cosh": plan.cosh(0.5), "power_loss": plan.power_loss(3.0),
    "smooth_abs": plan.smooth_abs(0.1), "smooth_abs2": plan.smooth_abs2(0.1, 2.5),
    "rectify": plan.rectify(0.05),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMS)
def test_derivatives_are_those_of_the_value(name: str, x64: None) -> None:
    norm, weight = NORMS[name], jnp.asarray([2.0, 0.5, 1.0])
    weight = jnp.asarray(2.0) if name in ("l2", "l22") else weight

    def value(x: Array) -> Array:
        return expansion(norm, weight, x).value

    @jax.jit
    @jax.vmap
    def both(x: Array) -> Any:
        return expansion(norm, weight, x), jax.grad(value)(x), jax.hessian(value)(x)

    it, gradient, hessian = both(jnp.asarray([[0.3, -0.7, 0.02], [-1.1, 0.2, 0.5]]))
    np.testing.assert_allclose(it.gradient, gradient, rtol=1e-10)
    bend = 0.0 if it.bend is None else it.bend
    np.testing.assert_allclose(it.curvature + bend, hessian, rtol=1e-9, atol=1e-10)
    assert np.linalg.eigvalsh(it.curvature).min() >= -1e-12
    assert np.linalg.eigvalsh(jnp.broadcast_to(bend, hessian.shape)).max() <= 1e-12


@pytest.mark.parametrize("name", ["l2", "l22", "smooth_abs", "smooth_abs2", "rectify"])
def test_a_model_of_what_bends_down_promises_no_more_than_there_is(name: str, x64: None) -> None:
    """Near where it is made and far from it; of `rectify` and exponents above 2 beyond `p`."""
    norm, weight = NORMS[name], jnp.asarray(2.0)
    away, toward = jax.random.normal(jax.random.key(0), (2, 500, 3))
    x = jnp.abs(away) + (0.5 if name in ("l22", "smooth_abs2", "rectify") else 0.0)
    y = x + 2.0 * toward

    @jax.jit
    @jax.vmap
    def both(x: Array, y: Array) -> Any:
        it, way = expansion(norm, weight, x), y - x
        modelled = it.value + it.gradient @ way + 0.5 * way @ it.curvature @ way
        return modelled, expansion(norm, weight, y).value

    modelled, there = both(x, y)
    assert (modelled >= there - 1e-12).all()


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_nothing_costs_nothing_and_is_finite(norm: Norm) -> None:
    weight: Array = jnp.asarray(1.0)
    it = jax.jit(lambda x: expansion(norm, weight, x))(jnp.zeros(3))
    expected = 3 * 0.05 * np.log(2) if norm.kind == "rectify" else 0.0
    np.testing.assert_allclose(it.value, expected, atol=1e-6)
    assert all(np.isfinite(x).all() for x in it if x is not None)


def test_wrong_parameters_are_told() -> None:
    with pytest.raises(ConfigError, match=r"smooth_abs: p=-1, expected a positive number"):
        plan.smooth_abs(-1)
    with pytest.raises(ConfigError, match=r"power_loss: p=1.5, expected a number of at least 2"):
        plan.power_loss(1.5)
    with pytest.raises(ConfigError, match=r"'l2', expected one number"):
        plan.velocity(weight=np.ones(7), norm=plan.l2(0.1))
