"""Functions traced for one environment."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fraxenv.kernels import fuse
from fraxenv.kernels.traced import trace


def names(jaxpr: jax.core.Jaxpr) -> list[str]:
    return [equation.primitive.name for equation in jaxpr.eqns]


def first_of_two(x: jax.Array) -> jax.Array:
    """Sines, after a product that nobody asks for."""

    def both(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.sin(x), jnp.outer(x, x) @ x

    return jax.jvp(both, (x,), (x,))[1][0]


def test_what_no_result_needs_is_not_kept() -> None:
    x = jnp.arange(1.0, 5.0)
    traced, operands = trace(first_of_two, (x,), {})
    assert "dot_general" in names(jax.make_jaxpr(first_of_two)(x).jaxpr)
    assert names(traced.jaxpr) == ["cos", "mul"]
    np.testing.assert_allclose(traced(*operands)[0], x * jnp.cos(x), rtol=1e-6)


def test_an_argument_that_is_not_needed_stays_one() -> None:
    traced, operands = trace(lambda x, y: (x, y)[0] + 1, (jnp.ones(2), jnp.ones(3)), {})
    assert len(operands) == len(traced.operands) == 2


def test_outer_values_of_what_is_not_needed_are_no_operands() -> None:
    found = []

    def outer(scale: jax.Array) -> jax.Array:
        def inner(x: jax.Array) -> jax.Array:
            return (x + 1, x * scale)[0]

        traced, operands = trace(inner, (jnp.ones(2),), {})
        found.append((len(operands), len(traced.operands)))
        return jnp.sum(fuse(inner)(jnp.ones((3, 2)))) + scale

    assert jax.jit(outer)(2.0) == 14.0
    assert found == [(1, 1)]
