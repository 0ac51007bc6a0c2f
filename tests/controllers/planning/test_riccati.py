"""The backward pass of robots with many joints: a kernel whose arrays are loops, beside JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fraxenv.controllers.planning import alone as planning_alone
from fraxenv.controllers.planning.alone import one_by_one
from fraxenv.controllers.planning.problem import Quadratic
from fraxenv.controllers.planning.riccati import Gains, Knots, backward

N = 3


def knots(n: int, rng: np.random.Generator) -> tuple[Knots, Quadratic, Array]:
    """Steps of random numbers, some torques held, to second order; the end, and the first gap."""

    def draw(*shape: int) -> Array:
        return jnp.asarray(0.1 * rng.normal(size=shape))

    def definite(size: int) -> Array:
        return jnp.eye(size) + jnp.stack([x @ x.T for x in draw(N + 1, size, size)])

    A = draw(N, 2 * n, 2 * n) + jnp.eye(2 * n)
    A = A.at[:, :n].set(jnp.eye(n, 2 * n) + 0.05 * A[:, n:])  # positions after velocities
    B = draw(N, 2 * n, n)
    B = B.at[:, :n].set(0.05 * B[:, n:])
    whole = Quadratic(
        draw(N + 1), draw(N + 1, 2 * n), draw(N + 1, n), definite(2 * n),
        draw(N + 1, n, 2 * n), definite(n),
    )  # fmt: skip
    cost, end = jax.tree.map(lambda x: x[:N], whole), jax.tree.map(lambda x: x[N], whole)
    held = jnp.asarray(rng.integers(-1, 2, (N, n)), jnp.int8)
    limits = -jnp.ones((N, n)), jnp.ones((N, n))
    return Knots(A, B, draw(N, 2 * n), cost, None, *limits, held), end, draw(2 * n)


def test_of_many_numbers_no_kernel_is_made(x64: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be refused with a warning, after a second."""
    monkeypatch.setattr(planning_alone, "LARGEST", 100)
    given: Any = knots(14, np.random.default_rng(0))

    def gains(knots: Knots, end: Quadratic, gap: Array) -> Gains:
        return backward(knots, end, gap, jnp.asarray(1e-6), None)

    monkeypatch.setattr(planning_alone, "alone", None)
    jax.eval_shape(one_by_one(gains, "auto"), *given)


@pytest.mark.parametrize("dt", [None, 0.05])
@pytest.mark.parametrize("batch", [None, 3])
def test_gains_are_those_of_jax(dt: float | None, batch: int | None, x64: None) -> None:
    rng = np.random.default_rng(0)
    several = [knots(14, rng) for _ in range(batch or 1)]
    given: Any = jax.tree.map(lambda *x: jnp.stack(x), *several)

    def with_dt(knots: Knots, end: Quadratic, gap: Array) -> Gains:
        step = None if dt is None else jnp.asarray(dt)
        return backward(knots, end, gap, jnp.asarray(1e-6), step)

    kernel = jax.jit(jax.vmap(one_by_one(with_dt, "auto")))(*given)
    expected = jax.vmap(with_dt)(*given)
    assert bool(expected.fine.all())
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, 1e-9, 1e-11), kernel, expected)
