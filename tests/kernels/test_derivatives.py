"""Derivatives of fused functions: right, and kernels again, in every order of transformations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fraxenv.kernels import fusible
from fraxenv.kernels.derivatives import cotangent, tangent
from fraxenv.kernels.traced import trace

Fn = Callable[..., Any]
Equal = Callable[..., None]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(17, 5)).astype(np.float32)
P = RNG.normal(size=(5,)).astype(np.float32)
WIDE = RNG.normal(size=(3, 17, 5)).astype(np.float32)
ULPS = 64


def swing(x: Any, p: Any) -> Any:
    """A state, with what is no float and what does not move beside it."""
    inner = lax.scan(lambda c, _: (jnp.sin(c) * p + c, c.sum()), x, length=3)[0]
    return {"next": inner, "count": jnp.sum(x > 0), "still": jnp.ones(2), "energy": x @ p}


def cost(f: Fn) -> Fn:
    return lambda *args: jnp.sum(f(*args)["next"] ** 2) + jnp.sum(f(*args)["energy"])


def rollout(f: Fn, wrap: Fn = lambda g: g) -> Fn:
    """The cost of a scan of batches, by what all environments share."""
    batch = wrap(jax.vmap(f, (0, None)))

    def total(p: Any) -> Any:
        def step(x: Any, _: Any) -> Any:
            found = batch(x, p)
            return found["next"] * 0.5, jnp.sum(found["energy"])

        last, energies = lax.scan(step, jnp.asarray(X, p.dtype), length=4)
        return jnp.sum(last**2) + jnp.sum(energies)

    return total


def hessian_vector(f: Fn) -> Any:
    one = lambda x: jax.jvp(jax.grad(lambda y: cost(f)(y, P)), (x,), (jnp.ones(5),))[1]  # noqa: E731
    return jax.vmap(one)(X)


COMPOSITIONS: dict[str, Callable[[Fn], Any]] = {
    "gradient by a shared operand": lambda f: jax.grad(cost(jax.vmap(f, (0, None))), 1)(X, P),
    "gradient by both": lambda f: jax.grad(cost(jax.vmap(f, (0, None))), (0, 1))(X, P),
    "batch of gradients": lambda f: jax.vmap(jax.grad(cost(f), (0, 1)), (0, None))(X, P),
    "batch of batches": lambda f: jax.grad(
        lambda p: jnp.sum(jax.vmap(jax.vmap(f, (0, None)), (0, None))(WIDE, p)["next"])
    )(P),
    "gradient of a rollout": lambda f: jax.grad(rollout(f))(P),
    "gradient of a compiled rollout": lambda f: jax.jit(jax.grad(rollout(f, jax.jit)))(P),
    "gradient of a rollout that remembers little": lambda f: jax.grad(rollout(f, jax.checkpoint))(
        P
    ),
    "tangent of a rollout": lambda f: jax.jvp(rollout(f), (P,), (P[::-1],)),
    "linearised rollout": lambda f: jax.linearize(rollout(f), P)[1](P),
    "Hessian by a vector, of each": hessian_vector,
    "Hessian of a rollout by a vector": lambda f: jax.jvp(jax.grad(rollout(f)), (P,), (P[::-1],))[
        1
    ],
    "Jacobian of a tangent": lambda f: jax.vmap(
        lambda x: jax.jacrev(lambda y: jax.jvp(lambda z: f(z, P)["next"], (y,), (y,))[1])(x)
    )(X),
    "through a branch": lambda f: jax.vmap(
        jax.grad(lambda x: lax.cond(x[0] > 0, lambda: cost(f)(x, P), lambda: jnp.sum(x)))
    )(X),
    "through another": lambda f: jax.grad(
        cost(jax.vmap(fusible(lambda x, p: f(x * 2, p)), (0, None))), (0, 1)
    )(X, P),
    "of one environment": lambda f: jax.jit(jax.grad(cost(f), (0, 1)))(X[0], P),
    "of weights that are zero": lambda f: jax.vjp(lambda p: f(X[0], p)["still"], P)[1](jnp.ones(2)),
}


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_equals_that_of_jax(name: str, equal: Equal) -> None:
    compose = COMPOSITIONS[name]
    expected = jax.jit(lambda: compose(swing))()
    equal(jax.jit(lambda: compose(fusible(swing, "native")))(), expected, ULPS)


def names(jaxpr: Any) -> list[str]:
    """Primitives of all equations, those of kernels aside."""
    found = []
    for equation in jaxpr.eqns:
        found.append(equation.primitive.name)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns") and equation.primitive.name != "fused":
                found += names(inner)
    return found


@pytest.mark.parametrize("name", ["gradient of a rollout", "Hessian of a rollout by a vector"])
def test_is_kernels(name: str) -> None:
    jaxpr = jax.make_jaxpr(lambda: COMPOSITIONS[name](fusible(swing, "native")))().jaxpr
    assert "sin" not in names(jaxpr)
    assert "cos" not in names(jaxpr)
    assert names(jaxpr).count("fused") >= 2
    assert "sin" in names(jax.make_jaxpr(lambda: COMPOSITIONS[name](swing))().jaxpr)


def test_what_does_not_move_has_no_tangent() -> None:
    traced, _ = trace(swing, (X[0], P), {})
    by_name = dict(zip(sorted(swing(X[0], P)), tangent(traced, (True, False)).moves, strict=True))
    assert by_name == {"count": False, "energy": True, "next": True, "still": False}


def test_a_gradient_traces_no_tangent() -> None:
    traced, _ = trace(swing, (X[0], P), {})
    function = tangent(traced, (True, True))
    cotangent(traced, function.moves, (True, True))
    assert "_closed" not in vars(function)


def test_stop_gradient_in_a_scan(equal: Equal) -> None:
    """Raised "Transpose rule for 'stop_gradient' not implemented" before."""

    def f(x: Any, p: Any) -> Any:
        return {"next": x * p + lax.stop_gradient(x), "energy": x @ lax.stop_gradient(p)}

    expected = jax.jit(jax.grad(rollout(f)))(P)
    equal(jax.jit(jax.grad(rollout(fusible(f, "native"))))(P), expected, ULPS)


def test_own_rules_are_kept(equal: Equal) -> None:
    @jax.custom_vjp
    def doubled(x: Any) -> Any:
        return x

    doubled.defvjp(lambda x: (x, None), lambda _, w: (2 * w,))
    gradient = jax.vmap(jax.grad(fusible(lambda x: jnp.sum(doubled(x) ** 2), "native")))(X)
    equal(gradient, 4 * X, 1)


def test_keys_and_integers_are_operands(equal: Equal) -> None:
    def f(key: Any, k: Any, x: Any) -> Any:
        return jnp.sum(x * jax.random.normal(key, (5,))) * k

    keys, counts = jax.random.split(jax.random.key(0), 17), np.arange(17, dtype=np.int32)
    gradient = jax.vmap(jax.grad(fusible(f, "native"), 2))(keys, counts, X)
    equal(gradient, jax.jit(jax.vmap(jax.grad(f, 2)))(keys, counts, X), ULPS)


@pytest.mark.parametrize("backend", ["xla", "pallas", "vmap"])
def test_other_backends(backend: str, equal: Equal) -> None:
    expected = jax.jit(jax.grad(rollout(swing)))(P)
    equal(jax.jit(jax.grad(rollout(fusible(swing, backend))))(P), expected, ULPS)


def test_float64() -> None:
    with jax.enable_x64(True):
        p = np.asarray(P, np.float64)
        f = jax.jit(rollout(fusible(swing, "native")))
        exact = jax.jit(jax.grad(f))(p)
        step = 1e-6
        for k in range(5):
            e = step * np.eye(5)[k]
            difference = (f(p + e) - f(p - e)) / (2 * step)
            np.testing.assert_allclose(exact[k], difference, rtol=1e-6)
