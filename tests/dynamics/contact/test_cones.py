"""Forces and Hessians of cones are derivatives of the costs in MuJoCo's documentation."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fraxenv.dynamics.contact import cones
from fraxenv.dynamics.contact.cones import Friction


def elliptic(x: Array, f: Friction) -> Array:
    """A contact's cost, zone by zone, as MuJoCo writes it ("Primal: cost")."""
    mu, coefficients = f.regularised, f.coefficients
    N, T = mu * x[0], jnp.sqrt(jnp.sum((coefficients * x[1:]) ** 2))
    D = f.weight / mu**2 * jnp.concatenate([mu[None], coefficients]) ** 2
    sticks = 0.5 * jnp.sum(D * x * x)
    slides = 0.5 * f.weight / (mu**2 * (1 + mu**2)) * (N - mu * T) ** 2
    return jnp.where(mu * T <= N, 0.0, jnp.where(mu * N + T <= 0, sticks, slides))


def pyramidal(x: Array, f: Friction) -> Array:
    """Every edge pays on its own."""
    edges = [
        x[0] + s * mu * y for mu, y in zip(f.coefficients, x[1:], strict=True) for s in (1, -1)
    ]
    return 0.5 * f.weight * jnp.sum(jnp.minimum(jnp.array(edges), 0) ** 2)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("d", [3, 4, 6])
@pytest.mark.parametrize("cost", [elliptic, pyramidal])
def test_derivatives_of_the_cost(cost: Callable[[Array, Friction], Array], d: int) -> None:
    n, rng = 200, np.random.default_rng(d)
    x = jnp.asarray(rng.normal(size=(n, d)))
    x = x.at[: n // 2, 0].add(-0.5)
    f = Friction(*(jnp.asarray(rng.uniform(0.2, 1.5, s)) for s in (n, (n, d - 1), n)))
    kind = cost.__name__
    force, hessian = (getattr(cones, f"{kind}_{name}") for name in ("force", "hessian"))

    @jax.jit
    def both(x: Array, f: Friction) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        automatic = (jax.vmap(d)(x, f) for d in (cost, jax.grad(cost), jax.hessian(cost)))
        pushed = force(x, f)
        return (cones.cone_cost(x, pushed), pushed, hessian(x, f)), tuple(automatic)

    ours, (expected, slope, bend) = jax.tree.map(np.asarray, both(x, f))
    # All zones are there: free, and bent in some directions or in all.
    ranks = np.linalg.matrix_rank(bend, hermitian=True, tol=1e-9)
    assert {0, d - 1, d} <= set(ranks)

    np.testing.assert_allclose(ours[0], expected, atol=1e-12)
    np.testing.assert_allclose(ours[1], -slope, atol=1e-12)
    upper = np.triu(np.ones((d, d), bool))
    np.testing.assert_allclose(ours[2][:, upper], bend[:, upper], atol=1e-11)
